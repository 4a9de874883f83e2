"""Extended headers: 64-bit lengths, a uniform header size, and payloads for commands other than WRITE.

The rules are scored separately, as an extension. All of them require the server to acknowledge
EXTENDED_HEADERS."""
import struct
import time

import wire
from structured import content_chunks, coverage, extents_ok, patchwork
from suite import MUST, SHOULD, allowed, expect, offered, rule
from transmission import answered, pattern

CHAPTER = 'NBD_OPT_EXTENDED_HEADERS'


def with_status(server):
    return server.go('extended', ('base:allocation',))


@rule(SHOULD, CHAPTER, 'EXTENDED_HEADERS with data is refused with ERR_INVALID', extension=True)
def with_data(server):
    """the server SHOULD reject a request that includes data with NBD_REP_ERR_INVALID"""
    server.connect_for('extended')
    answer = server.connect().option(wire.EXTENDED_HEADERS, b'data')
    expect(answer.final == wire.ERR_INVALID, f'it is answered with {answer.name}')


@rule(SHOULD, CHAPTER, 'EXTENDED_HEADERS works with and without structured replies', extension=True)
def either_way(server):
    """a server SHOULD support this option even if structured replies are not negotiated"""
    before = server.connect()
    before.option(wire.STRUCTURED_REPLY)
    answer = before.option(wire.EXTENDED_HEADERS)
    offered(answer.ok, f'extended headers: {answer.name}')
    expect(server.go('extended', negotiation=before).alive(), 'no READ after them')
    alone = server.connect()
    answer = alone.option(wire.EXTENDED_HEADERS)
    expect(answer.ok, f'without structured replies it is {answer.name}')
    expect(server.go('extended', negotiation=alone).alive(), 'no READ without them')


@rule(MUST, 'NBD_OPT_STRUCTURED_REPLY', 'STRUCTURED_REPLY after EXTENDED_HEADERS is refused', extension=True)
def structured_after(server):
    """NBD_REP_ERR_EXT_HEADER_REQD: The client has already successfully negotiated extended headers,
    which takes precedence over this option."""
    negotiation = server.connect_for('extended')
    answer = negotiation.option(wire.STRUCTURED_REPLY)
    expect(answer.final == wire.ERR_EXT_HEADER_REQD, f'it is answered with {answer.name}')
    expect(server.go('extended', negotiation=negotiation).alive(), 'extended headers are off afterwards')


@rule(MUST, CHAPTER, 'EXPORT_NAME after EXTENDED_HEADERS ends the session', extension=True)
def no_export_name(server):
    """declare that any client opting in to extended headers will use NBD_OPT_GO instead of the weaker
    NBD_OPT_EXPORT_NAME; and: A party [...] MUST initiate a hard disconnect if [...] that party is the server
    and it cannot return an error (e.g. after an NBD_OPT_EXPORT_NAME it cannot satisfy)"""
    negotiation = server.connect_for('extended')
    negotiation.send(wire.EXPORT_NAME, server.export.encode())
    count = len(negotiation.stream.rest())
    expect(count == 0, f'{count} bytes come after EXPORT_NAME')


@rule(MUST, CHAPTER, 'a second EXTENDED_HEADERS does not disable them', extension=True)
def twice(server):
    """if it does, the server MAY fail the repeated message with NBD_REP_ERR_INVALID"""
    negotiation = server.connect_for('extended')
    answer = negotiation.option(wire.EXTENDED_HEADERS)
    expect(answer.ok or answer.final == wire.ERR_INVALID, f'the second is {answer.name}')
    expect(server.go('extended', negotiation=negotiation).alive(), 'a READ after it has no extended reply')


@rule(MUST, 'NBD_OPT_SET_META_CONTEXT', 'contexts may be set without structured replies', extension=True)
def contexts(server):
    """This option MUST NOT be requested unless structured replies or extended headers have been
    negotiated first."""
    negotiation = server.connect_for('extended')
    answer = negotiation.option(wire.SET_META_CONTEXT,
                                wire.context_query(server.export, 'base:allocation'))
    offered(answer.final != wire.ERR_UNSUP, 'metadata contexts')
    expect(answer.ok and answer.contexts(), f'{answer.name}, {answer.contexts()}')


@rule(MUST, 'Extended reply chunk message', 'a reply has the right magic, cookie and offset', extension=True)
def header(server):
    """S: 32 bits, 0x6e8a278c; 16 bits, reply flags; 16 bits, type; 64 bits, cookie (MUST match the
    request); 64 bits, offset (MUST match the request); 64 bits, length of payload"""
    session = server.go('extended')
    session.stream.send(session.encode(wire.READ, 4096, 4096, cookie=0xa1b2c3d4e5f60718))
    head = session.stream.reply_head()
    expect(head.style == 'extended' and head.cookie == 0xa1b2c3d4e5f60718 and head.offset == 4096, f'{head}')
    expect(not head.flags & ~wire.DONE and head.kind in (wire.CHUNK_DATA, wire.CHUNK_HOLE), f'{head}')
    expect(head.length in (12, 4104), f'{head}')


@rule(MUST, 'Extended reply chunk message', 'no reply is simple, and each echoes its offset',
      extension=True)
def never_simple(server):
    """all server replies MUST use an extended reply; the server MUST NOT use simple replies even when
    there is no payload. [...] offset which MUST match the offset of the client's request"""
    session = server.writable('extended')
    end = session.size // 4096 * 4096
    asks = [(wire.READ, 4096, 8192, b'', 0), (wire.READ, end, 4096, b'', 0),
            (wire.READ, 12288, 4096, b'', 0x8000), (wire.WRITE, 8192, None, pattern(4096), 0),
            (wire.WRITE, end, None, pattern(4096), 0), (99, 16384, 4096, b'', 0)]
    asks += [(command, offset, length, b'', 0) for command, offset, length, flag in (
        (wire.FLUSH, 0, 0, wire.SEND_FLUSH), (wire.TRIM, 20480, 4096, wire.SEND_TRIM),
        (wire.CACHE, 4096, 4096, wire.SEND_CACHE),
        (wire.WRITE_ZEROES, 24576, 4096, wire.SEND_WRITE_ZEROES)) if session.has(flag)]
    for command, offset, length, payload, flags in asks:
        reply = session.ask(command, offset, length, payload, flags=flags)
        expect(reply.style == 'extended', f'{reply.request.name} has a {reply.style} reply')


@rule(MUST, 'NBD_CMD_READ', 'extended: chunks cover the request exactly', extension=True)
def exact_coverage(server):
    """the server MUST send enough data chunks to cover the entire region described by the offset and
    length of the client's request (each using NBD_EXTENDED_REPLY_MAGIC)"""
    coverage(server, 'extended')


@rule(MUST, 'NBD_CMD_READ', 'extended: DF works', extension=True)
def df(server):
    """bit 7, NBD_FLAG_SEND_DF: do not fragment a structured or extended reply."""
    session, content = patchwork(server, 'extended')
    offered(session.has(wire.SEND_DF), 'DF')
    reply = session.ask(wire.READ, 65536 - 4096, 65536, flags=wire.DF)
    expect([chunk.kind for chunk in content_chunks(reply)] == [wire.CHUNK_DATA], f'{reply.outcome}')
    expect(reply.contents() == content[65536 - 4096:2 * 65536 - 4096], 'it differs')


@rule(MUST, 'Request message', 'WRITE carries PAYLOAD_LEN', extension=True)
def write(server):
    """The command NBD_CMD_WRITE MUST use the flag NBD_CMD_FLAG_PAYLOAD_LEN in this mode"""
    session = server.writable('extended')
    data = pattern(65536, 31)
    session.write(4096, data)
    expect(session.read(4096, 65536) == data, 'what was written is not read')


def write_without_payload(server):
    """A session that sent a WRITE without PAYLOAD_LEN, and the data of the export before it."""
    session = server.writable('extended')
    before = session.read(0, 4096)
    request = session.prepare(wire.WRITE, 0, 4096)
    session.stream.send(request[:4] + bytes(2) + request[6:])
    return session, before


@rule(MUST, 'Request message', 'WRITE without PAYLOAD_LEN never succeeds', extension=True)
def write_without_flag(server):
    """With extended headers, the flag MUST be set for NBD_CMD_WRITE. (A server MAY disconnect, or wait
    for a payload. It must not write data that it has not received.)"""
    session, before = write_without_payload(server)
    session.stream.deadline = min(session.stream.deadline, time.monotonic() + 10)
    try:
        expect(not session.receive().ok, 'a WRITE without a payload succeeds')
    except (wire.Closed, wire.Late):
        allowed()
    expect(server.go().read(0, 4096) == before, 'it changed the export')


@rule(SHOULD, 'Request message', 'WRITE without PAYLOAD_LEN is refused without waiting', extension=True)
def write_refused(server):
    """or if the flag is absent (there is no payload, and length instead is an effect length). (A server
    that waits for a payload loses synchronization with its client. The specification does not name the
    error; EINVAL is the error of invalid flags. The server MAY disconnect.)"""
    session, _ = write_without_payload(server)
    try:
        reply = session.receive()
    except wire.Closed:
        allowed()
        return
    expect(reply.error == wire.EINVAL, f'it is answered with {reply.outcome}')
    expect(session.alive(), 'no request is answered afterwards')


@rule(SHOULD, 'Request message', 'an unexpected payload is consumed, then EINVAL', extension=True)
def unwanted_payload(server):
    """in all other cases, a server SHOULD gracefully consume length bytes of payload (even if it then
    replies with an NBD_EINVAL failure because the particular command was not expecting a payload), and
    proceed with the next client command"""
    session = server.writable('extended')
    bait = (session.encode(wire.READ, 0, 512, cookie=0xbad) * 128)[:4096]
    for command in (wire.READ, wire.TRIM, wire.WRITE_ZEROES, wire.FLUSH, 99):
        reply = answered(session, wire.named(wire.COMMAND_NAMES, command), command, 0, payload=bait, flags=wire.PAYLOAD_LEN)
        expect(reply.error == wire.EINVAL, f'{reply.request.name} is answered with {reply.outcome}')
        expect(session.alive(), f'{reply.request.name}: no request is answered afterwards')


@rule(SHOULD, 'Request message', 'an oversized payload ends the connection', extension=True)
def absurd_payload(server):
    """A server SHOULD initiate hard disconnect if a client sets the NBD_CMD_FLAG_PAYLOAD_LEN flag and
    uses a length larger than a server's advertised or default maximum payload length"""
    for length in (1 << 40, (1 << 64) - 1):
        session = server.writable('extended')
        session.stream.send(session.encode(wire.WRITE, 0, length, flags=wire.PAYLOAD_LEN))
        session.stream.rest()
        expect(server.go().alive(), 'a new client is not served')


@rule(MUST, 'Request message', 'lengths have 64 bits', extension=True)
def wide_lengths(server):
    """C: 64 bits, payload/effect length (unsigned). (A server that truncates the length to 32 bits would
    process the first bytes only.)"""
    session = server.writable('extended')
    data = pattern(65536, 32)
    session.write(0, data)
    length = (session.size // 4096 * 4096 + (1 << 32) - 1) >> 32 << 32 | 4096
    for command in session.advertised(wire.TRIM, wire.WRITE_ZEROES, wire.READ):
        reply = session.ask(command, 0, length)
        expect(not reply.ok, f'{reply.request.name} succeeds in {session.size} bytes')
    expect(session.read(0, 65536) == data, 'the first bytes of it changed')


@rule(MUST, 'Request message', 'a command beyond 4 GiB succeeds for its whole range', extension=True)
def beyond_4_gib(server):
    """Extended messages make it possible to perform 64-bit transactions (although typically only for
    commands that do not include a data payload)"""
    session = server.writable('extended', contexts=('base:allocation',), least=(4 << 30) + wire.MiB)
    end = session.size // 4096 * 4096
    data = pattern(4096, 33)
    for command in session.advertised(wire.WRITE_ZEROES, wire.TRIM, wire.CACHE):
        session.write(end - 4096, data)
        reply = session.ask(command, 0, end)
        found = session.read(end - 4096, 4096)
        if reply.ok and command == wire.WRITE_ZEROES:
            expect(found == bytes(4096), f'{reply.request.name} leaves the end as it was')
        elif not reply.ok:
            expect(reply.error in (wire.EINVAL, wire.EOVERFLOW), f'{reply.request.name}: {reply.outcome}')
    for flags in (0, wire.REQ_ONE):
        extents_ok(session, 0, end, session.status(0, end, flags), flags)
    expect(session.alive(), 'no request is answered afterwards')


@rule(MUST, 'NBD_REPLY_TYPE_BLOCK_STATUS_EXT', 'BLOCK_STATUS is answered with 64-bit extents',
      extension=True)
def status(server):
    """length MUST be 8 + (a positive multiple of 16); the payload starts with 32 bits, metadata context
    ID, and 32 bits, descriptor count; [...] the server MUST ensure that the header length is equal to
    descriptor count * 16 + 8; for metadata contexts that only return a 32-bit status (including all
    contexts in the base: namespace), the most-significant 32 bits of status MUST be all zeroes"""
    session = with_status(server)
    length = session.size // 4096 * 4096
    for flags in (0, wire.REQ_ONE):
        reply = session.ask(wire.BLOCK_STATUS, 0, length, flags=flags)
        kinds = [chunk.kind for chunk in reply.chunks if not chunk.kind == wire.CHUNK_NONE]
        expect(reply.ok and set(kinds) == {wire.CHUNK_STATUS_EXT}, f'{reply.outcome}, chunks {kinds}')
        for extents in reply.statuses().values():
            extents_ok(session, 0, length, extents, flags)


@rule(SHOULD, 'NBD_CMD_BLOCK_STATUS', 'BLOCK_STATUS of more than 4 GiB past the end is EINVAL',
      extension=True)
def status_wide(server):
    """The server SHOULD return NBD_EINVAL if it receives a NBD_CMD_BLOCK_STATUS request including one
    or more sectors beyond the size of the device."""
    session = with_status(server)
    length = (session.size + (1 << 32) - 1) >> 32 << 32 | 4096
    reply = session.ask(wire.BLOCK_STATUS, 0, length)
    expect(reply.error == wire.EINVAL, f'{reply.request.name} is answered with {reply.outcome}')


def with_payload(session, effect, *identities, cut=0):
    data = struct.pack('>Q', effect) + b''.join(struct.pack('>I', one) for one in identities)
    return session.ask(wire.BLOCK_STATUS, 0, payload=data[:len(data) - cut], flags=wire.PAYLOAD_LEN)


@rule(MUST, 'NBD_CMD_BLOCK_STATUS', 'a status payload selects contexts', extension=True)
def status_payload(server):
    """an alternative request form where the client sets NBD_CMD_FLAG_PAYLOAD_LEN in order to pass a
    payload that informs the server to limit its replies to the metacontext id(s) in the client's
    request payload: 64 bits, effect length; n * 32 bits, list of metacontext ids to use"""
    session = with_status(server)
    offered(session.has(wire.BLOCK_STATUS_PAYLOAD), 'BLOCK_STATUS_PAYLOAD')
    identity = session.contexts['base:allocation']
    reply = with_payload(session, 65536, identity)
    expect(reply.ok and list(reply.statuses()) == [identity], f'{reply.outcome}, {reply.statuses()}')
    extents_ok(session, 0, 65536, reply.statuses()[identity])


@rule(MUST, 'NBD_CMD_BLOCK_STATUS', 'a status payload leaves out the other contexts', extension=True)
def status_payload_of_some(server):
    """pass a payload that informs the server to limit its replies to the metacontext id(s) in the client's
    request payload"""
    names = server.listed_contexts()
    offered(len(names) > 1, 'a second metadata context')
    session = server.go('extended', names)
    offered(session.has(wire.BLOCK_STATUS_PAYLOAD), 'BLOCK_STATUS_PAYLOAD')
    identities = [session.contexts[name] for name in names]
    for chosen in [[identity] for identity in identities] + [identities, identities[::-1]]:
        reply = with_payload(session, 65536, *chosen)
        expect(reply.ok and set(reply.statuses()) == set(chosen),
               f'asked for {chosen}: {reply.outcome}, {list(reply.statuses())}')


@rule(MUST, 'NBD_CMD_BLOCK_STATUS', 'the length in a status payload is the length of the range', extension=True)
def status_payload_length(server):
    """64 bits, effect length (that of the request's header counts the payload)"""
    session = with_status(server)
    offered(session.has(wire.BLOCK_STATUS_PAYLOAD), 'BLOCK_STATUS_PAYLOAD')
    identity = session.contexts['base:allocation']
    for length in (4096, 65536):
        reply = with_payload(session, length, identity)
        expect(reply.ok, f'{length} bytes: {reply.outcome}')
        counts = [count for count, _ in reply.statuses()[identity]]
        expect(sum(counts[:-1]) < length, f'{length} bytes: extents of {counts}')
    reply = with_payload(session, (session.size // 4096 + 1) * 4096, identity)
    expect(reply.error == wire.EINVAL, f'past the end it is {reply.outcome}')
    expect(session.alive(), 'no request is answered afterwards')


@rule(MUST, 'NBD_CMD_BLOCK_STATUS', 'a wrong status payload is consumed, then EINVAL', extension=True)
def status_payload_wrong(server):
    """If the server does not support the payload form, or detects duplicate or unknown metacontext ids
    in the client's payload, the server MUST gracefully consume the client's payload before failing with
    NBD_EINVAL. The payload form MUST occupy 8 + n*4 bytes."""
    session = with_status(server)
    identity = session.contexts['base:allocation']
    cases = {'an unknown id': ((65536, identity + 77), 0),
             'a duplicate id': ((65536, identity, identity), 0),
             'a length that is not 8 + n * 4': ((65536, identity), 1),
             'half an effect length': ((65536,), 4)}
    if not session.has(wire.BLOCK_STATUS_PAYLOAD):
        cases['a payload that is not advertised'] = ((65536, identity), 0)
    for what, (arguments, cut) in cases.items():
        reply = with_payload(session, *arguments, cut=cut)
        expect(reply.error == wire.EINVAL, f'{what} is answered with {reply.outcome}')
        expect(session.alive(), f'after {what} no request is answered')


@rule(MUST, CHAPTER, 'compact requests are refused', extension=True)
def compact_request(server):
    """the client MUST use the 32-byte extended request header [...] and the server MUST use the 32-byte
    extended reply header"""
    session = server.go('extended')
    session.stream.send(wire.encode_request(wire.READ, 0, 512, cookie=1) + bytes(36))
    try:
        head = session.stream.reply_head()
    except (wire.Closed, wire.Late):
        allowed()
        return
    expect(head.style == 'extended' and head.kind & 0x8000, f'a compact READ succeeds: {head}')
