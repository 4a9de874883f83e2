"""The handshake up to the first option, and EXPORT_NAME."""

import wire
from session import Session
from suite import HOLE, MUST, SHOULD, expect, offered, rule


def export_name(server, client_flags, name=None):
    negotiation = server.connect(client_flags)
    negotiation.send(wire.EXPORT_NAME, (server.export if name is None else name).encode())
    return negotiation.stream


@rule(MUST, 'Newstyle negotiation', 'greeting')
def greeting(server):
    """S: 64 bits NBDMAGIC, 64 bits IHAVEOPT, 16 bits handshake flags; then it is the client's turn."""
    stream = server.stream()
    expect(stream.receive(16) == b'NBDMAGICIHAVEOPT', 'the greeting is not NBDMAGIC IHAVEOPT')
    stream.receive(2)
    expect(stream.silent(), 'the server sends more than its greeting')


@rule(MUST, 'Handshake flags', 'FIXED_NEWSTYLE is set')
def fixed_newstyle(server):
    """Baseline: the following MUST be implemented by all implementations: the fixed newstyle
    handshake. FIXED_NEWSTYLE MUST be set by servers that support the fixed newstyle protocol."""
    flags = server.connect(plain=True).flags
    expect(flags & wire.FIXED_NEWSTYLE, f'the handshake flags are {flags:#x}')


@rule(MUST, 'Handshake flags', 'no other handshake flag is set')
def no_other_handshake_flag(server):
    """The server MUST NOT set any other flags."""
    flags = server.connect(plain=True).flags
    expect(not flags & ~(wire.FIXED_NEWSTYLE | wire.NO_ZEROES), f'the handshake flags are {flags:#x}')


@rule(MUST, 'Client flags', 'an unknown client flag ends the connection')
def unknown_client_flag(server):
    """the server MUST drop the TCP connection if the client sets an unknown flag"""
    for bit in (2, 15, 16, 31):
        negotiation = server.connect(wire.FIXED_NEWSTYLE | 1 << bit, plain=True)
        # Some servers read the flags only together with the first option.
        try:
            negotiation.send(wire.LIST)
        except wire.Closed:
            pass
        count = len(negotiation.stream.rest())
        expect(count == 0, f'client flag {bit} is accepted: {count} bytes were received')


@rule(MUST, 'Client flags', 'a client flag that was not advertised ends the connection')
def unadvertised_client_flag(server):
    """the server MUST drop the TCP connection if the client sets [...] a flag that does not match
    something advertised by the server"""
    offered(not server.connect(plain=True).flags & wire.NO_ZEROES, 'it advertises both flags')
    negotiation = server.connect(wire.FIXED_NEWSTYLE | wire.NO_ZEROES, plain=True)
    expect(negotiation.stream.rest() == b'', 'NO_ZEROES is accepted without being advertised')


def check_export_name(server, client_flags, padding):
    stream = export_name(server, client_flags)
    size, flags = stream.unpack('QH')
    zeroes = stream.receive(padding)
    expect(zeroes == bytes(padding), f'the {padding} bytes after the flags are not zeroes')
    session = Session(stream, size, flags)
    expect(session.alive(), 'no READ is answered after EXPORT_NAME')
    return size, flags


@rule(SHOULD, 'Fixed newstyle negotiation', 'EXPORT_NAME without NO_ZEROES pads with 124 zeroes')
def export_name_with_zeroes(server):
    """S: 64 bits size, 16 bits transmission flags, 124 bytes zeroes (unless NO_ZEROES was negotiated).
    EXPORT_NAME itself is a SHOULD: "servers that desire interoperability with older implementations
    SHOULD implement the NBD_OPT_EXPORT_NAME message"."""
    check_export_name(server, wire.FIXED_NEWSTYLE, 124)


@rule(MUST, 'Client flags', 'EXPORT_NAME with NO_ZEROES pads with nothing')
def export_name_without_zeroes(server):
    """If set, the server MUST NOT send the 124 bytes of zeroes when the client ends negotiation with
    NBD_OPT_EXPORT_NAME."""
    offered(server.connect(plain=True).flags & wire.NO_ZEROES, 'NO_ZEROES')
    check_export_name(server, wire.FIXED_NEWSTYLE | wire.NO_ZEROES, 0)


@rule(SHOULD, 'Newstyle negotiation', 'a client without FIXED_NEWSTYLE may use EXPORT_NAME')
def not_fixed(server):
    """EXPORT_NAME is the only valid option in nonfixed newstyle negotiation."""
    offered(not server.secure, 'TLS needs fixed newstyle')
    check_export_name(server, 0, 124)


@rule(MUST, 'NBD_OPT_EXPORT_NAME', 'EXPORT_NAME of an unknown export ends the session')
def export_name_unknown(server):
    """If the chosen export does not exist [...], the server MUST terminate the session."""
    stream = export_name(server, None, server.unknown_export())
    count = len(stream.rest())
    expect(count == 0, f'{count} bytes were received for an unknown export')


@rule(MUST, 'NBD_INFO_EXPORT', 'GO and EXPORT_NAME describe the same export')
def same_description(server):
    """NBD_INFO_EXPORT describes the same information that is sent in response to the older
    NBD_OPT_EXPORT_NAME."""
    by_go = server.go()
    if server.connect().flags & wire.NO_ZEROES:
        described = check_export_name(server, wire.FIXED_NEWSTYLE | wire.NO_ZEROES, 0)
    else:
        described = check_export_name(server, wire.FIXED_NEWSTYLE, 124)
    expect(described == (by_go.size, by_go.flags),
           f'EXPORT_NAME: {described}, GO: {(by_go.size, by_go.flags)}')


@rule(MUST, 'NBD_OPT_GO', 'no zeroes follow GO, with or without NO_ZEROES')
def go_without_padding(server):
    """The server MUST NOT send any zero padding bytes after the NBD_REP_ACK data, whether or not the
    client negotiated the NBD_FLAG_C_NO_ZEROES flag."""
    session = server.go(negotiation=server.connect(wire.FIXED_NEWSTYLE))
    expect(session.stream.silent(), 'bytes follow the ACK of GO')
    expect(server.go(negotiation=server.connect(wire.FIXED_NEWSTYLE)).alive(), 'no READ after GO')


@rule(MUST, 'TLS: Server-side requirements', 'no TLS for a client without FIXED_NEWSTYLE')
def no_tls_without_fixed(server):
    """The server MUST operate in NOTLS mode unless the server set flag NBD_FLAG_FIXED_NEWSTYLE and
    the client replied with NBD_FLAG_C_FIXED_NEWSTYLE."""
    negotiation = server.connect(0, plain=True)
    negotiation.send(wire.STARTTLS)
    try:
        answer = negotiation.answer(wire.STARTTLS)
    except wire.Closed:
        answer = None
    expect(not answer or not answer.ok, 'STARTTLS is acknowledged to a client without FIXED_NEWSTYLE')


HANG_UPS = {
    'before the client flags': b'',
    'inside the client flags': b'\0\0',
    'before an option': wire.encode_flags(1),
    'inside the header of an option': wire.encode_flags(1) + wire.encode_option(wire.GO)[:8],
    'inside the data of an option':
        wire.encode_flags(1) + wire.encode_option(wire.GO, b'half', 100),
    'inside the name of EXPORT_NAME':
        wire.encode_flags(1) + wire.encode_option(wire.EXPORT_NAME, b'half', 100),
    'after LIST, unread': wire.encode_flags(1) + wire.encode_option(wire.LIST),
}


@rule(MUST, 'Termination of the session during option haggling', 'a disconnect does not affect other clients')
def hang_ups(server):
    """A party MUST NOT initiate a hard disconnect save where set out in this section; a disconnect of
    another client is not listed there. Servers have crashed when a client disconnected during the handshake."""
    offered(not server.secure, 'only in the clear')
    with server.bystander():
        for data in HANG_UPS.values():
            for _ in range(3):
                stream = server.stream()
                stream.receive(18)
                stream.send(data)
                stream.close()


@rule(MUST, 'Termination of the session during option haggling',
      'commands during the handshake do not affect other clients')
def commands_too_early(server):
    """A party MUST NOT initiate a hard disconnect save where set out in this section. Servers have crashed
    on requests that were sent during the handshake."""
    request = Session(None, 0, 0).encode
    with server.bystander():
        for data in (request(wire.READ, 0, 4096), request(wire.WRITE, 0, payload=b'x' * 512),
                     request(wire.DISC), request(wire.BLOCK_STATUS, 0, 4096) * 100):
            negotiation = server.connect()
            negotiation.stream.send(data)
            negotiation.stream.close()


@rule(MUST, 'Newstyle negotiation', 'bytes without the option magic are not executed as an option')
def bad_option_magic(server):
    """C: 64 bits, IHAVEOPT. A party that detects a violation of a mandatory condition MAY disconnect. It
    must not answer bytes that are not an option as if they were one."""
    negotiation = server.connect()
    negotiation.send(wire.LIST, magic=0x4141414141414141)
    try:
        kind, _ = negotiation.reply(wire.LIST)
    except (wire.Closed, wire.Broken):
        kind = None
    expect(kind is None or kind >= 1 << 31, 'LIST after a wrong magic is answered')


@rule(MUST, 'Newstyle negotiation', 'flags and options may arrive byte by byte')
def byte_by_byte(server):
    """TCP is a byte stream: the specification defines messages, not packets."""
    negotiation = server.connect()
    data = wire.info_request(server.export)
    for byte in wire.encode_option(wire.INFO, data):
        negotiation.stream.send(bytes([byte]))
    answer = negotiation.answer(wire.INFO)
    expect(answer.ok, f'INFO sent byte by byte is answered with {answer.name}')


@rule(HOLE, 'none', 'a hundred idle handshakes do not block other clients')
def idle_handshakes(server):
    """No sentence of the specification. In some servers, clients that never negotiate occupy every slot."""
    for _ in range(100):
        server.stream()
    expect(server.go().alive(), 'a client is not served while a hundred others are idle')
