"""Transmission with simple replies: flags, commands, sizes, order, and disconnects."""
import random

import wire
from session import Session
from suite import HOLE, MUST, SHOULD, allowed, expect, offered, rule
from target import STYLES

MAX_PORTABLE = 32 * wire.MiB


def pattern(length, seed=1):
    return random.Random(seed).randbytes(length)


def styles(server):
    """The reply styles that the server supports. Simple replies are always supported."""
    return ['simple', *(style for style, option in STYLES.items() if server.connect().option(option).ok)]


def answered(session, what, *request, **options):
    """The reply to a request at which the server must not disconnect."""
    try:
        return session.ask(*request, **options)
    except wire.Closed:
        expect(False, f'the server disconnects at {what}')


@rule(MUST, 'Transmission flags', 'HAS_FLAGS is set')
def has_flags(server):
    """bit 0, NBD_FLAG_HAS_FLAGS: MUST always be 1."""
    for style in styles(server):
        flags = server.go(style).flags
        expect(flags & wire.HAS_FLAGS, f'{style}: the flags are {flags:#x}')


@rule(MUST, 'Transmission flags', 'SEND_DF is clear without structured replies')
def df_clear(server):
    """MUST leave this flag clear if structured replies have not been negotiated."""
    expect(not server.go().has(wire.SEND_DF), 'SEND_DF is set')


@rule(MUST, 'Transmission flags', 'SEND_FAST_ZERO comes only with SEND_WRITE_ZEROES')
def fast_zero_flag(server):
    """MUST set this transmission flag to 0 if NBD_FLAG_SEND_WRITE_ZEROES is not set"""
    session = server.go()
    expect(session.has(wire.SEND_WRITE_ZEROES) or not session.has(wire.SEND_FAST_ZERO),
           f'the flags are {session.flags:#x}')


@rule(MUST, 'Transmission flags', 'BLOCK_STATUS_PAYLOAD comes only with extended headers')
def payload_flag(server):
    """Servers MUST NOT advertise this bit unless the client successfully negotiates extended headers
    via NBD_OPT_EXTENDED_HEADERS"""
    for style in styles(server):
        session = server.go(style)
        expect(style == 'extended' or not session.has(wire.BLOCK_STATUS_PAYLOAD),
               f'{style}: the flags are {session.flags:#x}')


@rule(MUST, 'Simple reply message', 'replies are simple without negotiation')
def simple_reply(server):
    """The simple reply message MUST be sent by the server in response to all requests if structured
    replies have not been negotiated: magic 0x67446698, error, cookie, and the data of a READ."""
    session = server.go()
    session.stream.send(session.encode(wire.READ, 0, 4096, cookie=0xa1b2c3d4e5f60718))
    head = session.stream.reply_head()
    expect(head == wire.ReplyHead('simple', 0xa1b2c3d4e5f60718), f'the header is {head}')
    session.stream.receive(4096)
    expect(session.stream.silent(), 'the reply is longer than requested')


@rule(MUST, 'Transmission', 'any cookie is echoed')
def cookies(server):
    """In each reply message (whether simple or structured), the server MUST use the same value for
    handle as was sent by the client in the corresponding request."""
    for style in styles(server):
        session = server.go(style)
        for cookie in (0, 1, (1 << 64) - 1, 1 << 63, wire.REQUEST_MAGIC << 32 | wire.SIMPLE_MAGIC, 0, 0):
            reply = session.ask(wire.READ, 0, 512 if session.size >= 512 else 1, cookie=cookie)
            expect(reply.request.cookie == cookie and not session.pending, f'{style}: {cookie:#x}')


@rule(MUST, 'Transmission', 'each of many requests in flight is answered once')
def in_flight(server):
    """the client submits requests and the server sends corresponding replies with either a single
    simple reply or a series of one or more structured reply chunks per request. (In any order.)"""
    for style in styles(server):
        session = server.go(style)
        blocks = min(session.size // 4096, 64)
        offered(blocks, 'a block of 4096 bytes')
        want = {block: session.read(block * 4096, 4096) for block in range(blocks)}
        session.stream.send(b''.join(session.prepare(wire.READ, index % blocks * 4096, 4096)
                                     for index in range(128)))
        for _ in range(128):
            reply = session.receive()
            expect(reply.ok, f'{style}: {reply.request.name} is answered with {reply.outcome}')
            expect(reply.contents() == want[reply.request.offset // 4096],
                   f'{style}: {reply.request.name} has the data of another block')
        expect(not session.pending and session.stream.silent(), f'{style}: more replies than requests')


@rule(MUST, 'Request message', 'requests may arrive byte by byte')
def request_byte_by_byte(server):
    """TCP is a byte stream: the specification defines messages, not packets."""
    session = server.go()
    for byte in session.prepare(wire.READ, 0, 4096):
        session.stream.send(bytes([byte]))
    expect(session.receive().ok, 'a READ sent byte by byte fails')


@rule(MUST, 'NBD_CMD_WRITE', 'written data are read back')
def write_and_read(server):
    """The server MUST write the data to disk, and then send the reply message."""
    for style in styles(server):
        session = server.writable(style)
        for seed, (offset, length) in enumerate((
                (0, 4096), (4096, 65536), (session.size // 4096 * 4096 - 4096, 4096),
                (512 * wire.KiB, 512 * wire.KiB))):
            data = pattern(length, seed)
            session.write(offset, data)
            expect(session.read(offset, length) == data, f'{style}: {offset:#x}+{length:#x} differs')
            other = server.go(style)
            expect(other.read(offset, length) == data or not session.has(wire.CAN_MULTI_CONN),
                   f'{style}: {offset:#x}+{length:#x} differs on another connection')


@rule(MUST, 'Block size constraints', 'with a minimum block of 1, any offset and length work')
def odd_sizes(server):
    """The minimum block size represents the smallest addressable length and alignment within the
    export [...] and MAY be as small as 1"""
    session = server.bytewise()
    around = bytearray(pattern(64 * wire.KiB, 3))
    session.write(0, bytes(around))
    for seed, (offset, length) in enumerate(((0, 1), (1, 1), (511, 2), (4095, 2), (4097, 4095),
                                             (513, 8191), (8191, 1), (12345, 23456))):
        data = pattern(length, seed + 10)
        session.write(offset, data)
        around[offset:offset + length] = data
        expect(session.read(offset, length) == data, f'{offset}+{length} differs')
    expect(session.read(0, len(around)) == bytes(around), 'a write changed its neighbours')
    last = session.size - 1
    session.write(last, b'z')
    expect(session.read(last, 1) == b'z', 'the last byte differs')


@rule(MUST, 'NBD_CMD_WRITE', 'a write does not change its neighbours')
def neighbours(server):
    """Length and offset define the location and amount of data to be written."""
    session = server.writable()
    before = pattern(3 * 65536, 5)
    session.write(0, before)
    session.write(65536, b'\xa5' * 65536)
    want = before[:65536] + b'\xa5' * 65536 + before[2 * 65536:]
    expect(session.read(0, len(want)) == want, 'the bytes around a write changed')


@rule(MUST, 'Block size constraints', 'payloads up to the advertised maximum, or 1 MiB, work')
def payloads(server):
    """The maximum block size represents the maximum length that the server is willing to handle in one
    request."""
    session = server.writable()
    most = session.block_sizes[2] if session.block_sizes else wire.MiB
    length = min(most, session.size, MAX_PORTABLE) // 4096 * 4096
    offered(length, 'a payload of 4096 bytes')
    data = pattern(length, 7)
    session.write(0, data)
    expect(session.read(0, length) == data, f'{length} bytes come back different')


@rule(SHOULD, 'Block size constraints', 'a request of 32 MiB is not treated as an attack')
def portable_payload(server):
    """for maximum portability, any length less than 2^25 (33,554,432) bytes SHOULD NOT be considered a
    denial of service attack (even if the advertised maximum block size is smaller)"""
    session = server.writable()
    length = min(MAX_PORTABLE - 4096, session.size // 4096 * 4096)
    most = session.block_sizes[2] if session.block_sizes else MAX_PORTABLE
    data = pattern(length, 8)
    try:
        reply = session.ask(wire.WRITE, 0, payload=data)
        expect(reply.ok or length > most, f'a WRITE of {length} bytes is {reply.outcome}')
        reply = session.ask(wire.READ, 0, length)
        expect(reply.ok or length > most, f'a READ of {length} bytes is {reply.outcome}')
        expect(session.alive(), 'the connection is lost')
    except wire.Closed as error:
        expect(False, f'{length} bytes: {error}')


@rule(MUST, 'NBD_CMD_FLUSH', 'an advertised FLUSH succeeds')
def flush(server):
    """bit 2, NBD_FLAG_SEND_FLUSH: exposes support for NBD_CMD_FLUSH."""
    session = server.go()
    offered(session.has(wire.SEND_FLUSH), 'FLUSH')
    reply = session.ask(wire.FLUSH)
    expect(reply.ok, f'FLUSH is answered with {reply.outcome}')


@rule(MUST, 'Command flags', 'FUA is accepted on every command')
def fua_everywhere(server):
    """This flag is valid for all commands, provided NBD_FLAG_SEND_FUA has been negotiated, in which
    case the server MUST accept all commands with this bit set (even by ignoring the bit)."""
    for style in styles(server):
        session = server.writable(style, wire.SEND_FUA)
        commands = [(wire.READ, 0, 4096, b''), (wire.WRITE, 0, None, pattern(4096))]
        commands += [(command, 0, length, b'') for command, length, flag in (
            (wire.FLUSH, 0, wire.SEND_FLUSH), (wire.TRIM, 4096, wire.SEND_TRIM),
            (wire.WRITE_ZEROES, 4096, wire.SEND_WRITE_ZEROES)) if session.has(flag)]
        for command, offset, length, payload in commands:
            reply = session.ask(command, offset, length, payload, flags=wire.FUA)
            expect(reply.ok, f'{style}: {reply.request.name} with FUA is {reply.outcome}')


@rule(MUST, 'Command flags', 'FUA is accepted on BLOCK_STATUS')
def fua_on_status(server):
    """in which case the server MUST accept all commands with this bit set (even by ignoring the bit)"""
    session = server.with_status()
    offered(session.has(wire.SEND_FUA), 'FUA')
    reply = session.ask(wire.BLOCK_STATUS, 0, 4096, flags=wire.FUA)
    expect(reply.ok, f'BLOCK_STATUS with FUA is answered with {reply.outcome}')


@rule(SHOULD, 'Command flags', 'FUA is accepted on CACHE')
def fua_on_cache(server):
    """the server MUST accept all commands with this bit set; but NBD_CMD_CACHE: if it advertised the
    command, the server MUST reject any command flags it does not recognize. FUA is one it recognises."""
    session = server.go()
    offered(session.has(wire.SEND_CACHE) and session.has(wire.SEND_FUA), 'CACHE and FUA')
    plain, forced = session.ask(wire.CACHE, 0, 4096), session.ask(wire.CACHE, 0, 4096, flags=wire.FUA)
    expect(plain.error == forced.error, f'CACHE is {plain.outcome}, with FUA {forced.outcome}')


@rule(MUST, 'NBD_CMD_TRIM', 'an advertised TRIM succeeds and does not exceed its range')
def trim(server):
    """A server MAY discard length bytes starting at offset [...]; and MAY round offset up and length
    down"""
    session = server.writable('simple', wire.SEND_TRIM)
    data = pattern(wire.MiB, 11)
    session.write(0, data)
    session.succeed(wire.TRIM, 65536, 131072)
    expect(session.read(0, 65536) == data[:65536], 'TRIM changed bytes before its range')
    expect(session.read(196608, wire.MiB - 196608) == data[196608:], 'TRIM changed bytes after its range')


def zeroes(server, flags, what):
    session = server.writable('simple', wire.SEND_WRITE_ZEROES)
    length = min(session.size, 4 * wire.MiB) // 4096 * 4096
    data = bytearray(pattern(length, 12))
    session.write(0, bytes(data))
    for offset, count in ((4096, 4096), (65536, 131072), (length - 4096, 4096), (0, length)):
        session.succeed(wire.WRITE_ZEROES, offset, count, flags=flags)
        data[offset:offset + count] = bytes(count)
        expect(session.read(0, length) == bytes(data), f'{what} {offset:#x}+{count:#x} left other bytes')


@rule(MUST, 'NBD_CMD_WRITE_ZEROES', 'zeroes are read exactly where they were written')
def write_zeroes(server):
    """The server MUST zero out the data on disk [...] it MUST ensure that the data reads back as
    zero."""
    zeroes(server, 0, 'WRITE_ZEROES')


@rule(MUST, 'Command flags', 'NO_HOLE is supported')
def no_hole(server):
    """The server MUST support the use of this flag if it advertises NBD_FLAG_SEND_WRITE_ZEROES."""
    zeroes(server, wire.NO_HOLE, 'WRITE_ZEROES with NO_HOLE')


@rule(MUST, 'NBD_CMD_WRITE_ZEROES', 'unaligned ranges are zeroed exactly')
def odd_zeroes(server):
    """Offset and length define the location and amount of data to be zeroed."""
    session = server.bytewise('simple', wire.SEND_WRITE_ZEROES)
    data = bytearray(pattern(65536, 13))
    session.write(0, bytes(data))
    for offset, length in ((1, 1), (511, 2), (4095, 4098), (12345, 23456)):
        session.succeed(wire.WRITE_ZEROES, offset, length)
        data[offset:offset + length] = bytes(length)
    expect(session.read(0, 65536) == bytes(data), 'bytes outside of the range were zeroed')


@rule(MUST, 'NBD_CMD_WRITE_ZEROES', 'FAST_ZERO succeeds or is ENOTSUP')
def fast_zero(server):
    """if NBD_CMD_FLAG_FAST_ZERO is set, the server MUST fail quickly with NBD_ENOTSUP unless the
    request can be serviced in less time than a corresponding NBD_CMD_WRITE"""
    session = server.writable('simple', wire.SEND_WRITE_ZEROES, wire.SEND_FAST_ZERO)
    session.write(0, pattern(65536, 14))
    reply = session.ask(wire.WRITE_ZEROES, 0, 65536, flags=wire.FAST_ZERO)
    expect(reply.error in (0, wire.ENOTSUP), f'it is answered with {reply.outcome}')
    expect(not reply.ok or session.read(0, 65536) == bytes(65536), 'it succeeds, but the data are not zero')


@rule(SHOULD, 'NBD_CMD_WRITE_ZEROES', 'a refused FAST_ZERO changes nothing')
def fast_zero_refused(server):
    """and SHOULD NOT alter the contents of the export when returning this failure"""
    session = server.writable('simple', wire.SEND_WRITE_ZEROES, wire.SEND_FAST_ZERO)
    data = pattern(65536, 15)
    session.write(0, data)
    reply = session.ask(wire.WRITE_ZEROES, 1024, 512, flags=wire.FAST_ZERO | wire.NO_HOLE)
    offered(reply.error == wire.ENOTSUP, 'a slow FAST_ZERO')
    expect(session.read(0, 65536) == data, 'the contents changed')


@rule(MUST, 'NBD_CMD_CACHE', 'CACHE changes nothing')
def cache(server):
    """other than any difference in performance, there MUST NOT be any difference in semantics compared
    to if the client had not used this command"""
    session = server.writable('simple', wire.SEND_CACHE)
    data = pattern(65536, 16)
    session.write(0, data)
    session.ask(wire.CACHE, 0, 65536)
    expect(session.read(0, 65536) == data, 'the contents changed')


@rule(MUST, 'NBD_CMD_CACHE', 'CACHE with an unknown flag is rejected')
def cache_flags(server):
    """if it advertised the command, the server MUST reject any command flags it does not recognize"""
    session = server.go()
    offered(session.has(wire.SEND_CACHE), 'CACHE')
    reply = session.ask(wire.CACHE, 0, 4096, flags=0x8000)
    expect(not reply.ok, 'CACHE with the flag 0x8000 succeeds')


@rule(SHOULD, 'NBD_CMD_READ', 'a request of length 0 does not end the connection')
def zero_length(server):
    """The client SHOULD NOT request a read length of 0; the behavior of a server on such a request is
    unspecified although the server SHOULD NOT disconnect. (The same applies to WRITE, TRIM, WRITE_ZEROES
    and BLOCK_STATUS.)"""
    for style in styles(server):
        for command in server.writable(style).advertised(wire.READ, wire.WRITE, wire.TRIM, wire.WRITE_ZEROES):
            session = server.writable(style)
            for offset in (0, 4096, session.size):
                if style == 'extended' and command == wire.WRITE:
                    continue  # PAYLOAD_LEN is for a nonzero payload
                answered(session, f'{wire.COMMAND_NAMES[command]} {offset:#x}+0, {style}', command, offset, 0)
            expect(session.alive(), f'{style}: {wire.COMMAND_NAMES[command]} of nothing')


@rule(SHOULD, 'NBD_CMD_BLOCK_STATUS', 'BLOCK_STATUS of length 0 does not end the connection')
def zero_length_status(server):
    """The client SHOULD NOT request a status length of 0; [...] the server SHOULD NOT disconnect."""
    session = server.with_status()
    answered(session, 'BLOCK_STATUS', wire.BLOCK_STATUS, 0, 0)
    expect(session.alive(), 'no request is answered afterwards')


@rule(MUST, 'NBD_CMD_DISC', 'DISC closes the connection, without a reply')
def disconnect(server):
    """The server MUST handle all outstanding requests, [...] and close the TCP session. There is no
    reply to an NBD_CMD_DISC."""
    for style in styles(server):
        session = server.go(style)
        session.bye()
        expect(session.stream.rest() == b'', f'{style}: bytes come after DISC')


def reads_before_disc(server, style):
    """The replies to 16 READs that are followed immediately by DISC."""
    session = server.go(style)
    length = min(session.size, wire.MiB) // 4096 * 4096
    session.stream.send(b''.join([session.prepare(wire.READ, 0, length) for _ in range(16)]
                                 + [session.encode(wire.DISC)]))
    for count in range(16):
        try:
            yield session.receive()
        except wire.Closed:
            expect(False, f'{style}: {count} of 16 requests were answered before the disconnect')
    expect(session.stream.rest() == b'', f'{style}: bytes come after the last reply')


@rule(MUST, 'NBD_CMD_DISC', 'requests in flight at DISC are still answered')
def disconnect_in_flight(server):
    """The server MUST handle all outstanding requests"""
    for style in styles(server):
        for reply in reads_before_disc(server, style):
            expect(not reply.ok or len(reply.contents()) == reply.request.length, f'{style}: cut short')


@rule(SHOULD, 'NBD_CMD_DISC', 'requests in flight at DISC succeed')
def disconnect_succeeds(server):
    """The server MUST handle all outstanding requests. (The specification does not say that an error is
    not handling; but ESHUTDOWN is for a "Server [...] in the process of being shut down", which this is not.)"""
    for _ in range(6):
        for style in styles(server):
            for reply in reads_before_disc(server, style):
                expect(reply.ok, f'{style}: {reply.request.name} is answered with {reply.outcome}')


@rule(MUST, 'NBD_CMD_DISC', 'writes acknowledged around DISC are complete')
def disconnect_writes(server):
    """The server MUST handle all outstanding requests"""
    session = server.writable()
    server.go().write(0, bytes(wire.MiB))
    data = pattern(wire.MiB, 17)
    session.stream.send(b''.join([session.prepare(wire.WRITE, start, payload=data[start:start + 65536])
                                  for start in range(0, wire.MiB, 65536)] + [session.encode(wire.DISC)]))
    done = []
    try:
        while session.pending:
            reply = session.receive()
            done += [reply.request.offset] if reply.ok else []
    except wire.Closed:
        pass  # another rule requires all replies
    offered(done, 'an acknowledgement before the disconnect')
    after = server.go().read(0, wire.MiB)
    for offset in done:
        expect(after[offset:offset + 65536] == data[offset:offset + 65536],
               f'WRITE {offset:#x} was acknowledged, but the data are missing')


@rule(MUST, 'Ordering of messages and writes', 'a flush on one connection covers all connections')
def multi_conn_flush(server):
    """if this flag (CAN_MULTI_CONN) is present, then the effects of NBD_CMD_FLUSH and
    NBD_CMD_FLAG_FUA MUST be visible across all connections when the server sends its reply to that
    command to the client"""
    writer, flusher, reader = server.writable('simple', wire.CAN_MULTI_CONN), server.go(), server.go()
    for seed in range(8):
        data = pattern(65536, seed + 20)
        writer.write(0, data)
        if flusher.has(wire.SEND_FLUSH):
            expect(flusher.ask(wire.FLUSH).ok, 'FLUSH fails')
        expect(reader.read(0, 65536) == data, 'a third connection does not see data after another one flushed')
        if writer.has(wire.SEND_FUA):
            writer.write(0, data[::-1], flags=wire.FUA)
            expect(reader.read(0, 65536) == data[::-1], 'another connection does not see data written with FUA')


@rule(MUST, 'Terminating the transmission phase', 'a disconnect inside a request does not affect other clients')
def hang_up(server):
    """The client and the server MUST NOT initiate any form of disconnect other than in one of the above
    circumstances; a disconnect of another client is not among them."""
    with server.bystander():
        for head in (wire.READ, wire.WRITE):
            for cut in (1, 4, 27, 28, 29, 5000):
                session = server.go()
                data = session.encode(head, 0, payload=bytes(wire.MiB) if head == wire.WRITE else b'',
                                      length=wire.MiB)
                session.stream.send(data[:cut])
                session.stream.close()
        session = server.go()
        session.stream.send(session.encode(wire.READ, 0, min(session.size, wire.MiB)) * 32)
        session.stream.close()


@rule(MUST, 'Terminating the transmission phase', 'a length without its payload does not affect other clients')
def absurd_write(server):
    """The client and the server MUST NOT initiate any form of disconnect other than [...]. Servers
    have allocated the length that a client claimed before they checked it."""
    with server.bystander():
        for length in (0xffffffff, 0x80000000, 0x7fffffff, 64 * wire.MiB + 1):
            for command in (wire.WRITE, wire.READ):
                session = server.go()
                session.stream.send(session.encode(command, 0, length))
                session.stream.close()


@rule(HOLE, 'Reserved Magic values', 'only the request magic starts a request')
def request_magics(server):
    """The following magic values are reserved and must not be used. (A server that accepts them probably
    accepts any magic.)"""
    good = Session(None, 0, 0).encode(wire.READ, 0, 512)
    for magic in (*wire.RESERVED_MAGICS, wire.EXTENDED_REQUEST_MAGIC, wire.SIMPLE_MAGIC, 0):
        session = server.go()
        session.stream.send(magic.to_bytes(4, 'big') + good[4:] + bytes(4))
        try:
            head = session.stream.reply_head()
        except (wire.Closed, wire.Late, wire.Broken):
            allowed()
            continue
        expect(head.style != 'simple' or head.error, f'a request with the magic {magic:#x} succeeds')


def read_only(server):
    """A connection to a read-only export, and its name."""
    name = server.export if server.read_only_export is None else server.read_only_export
    session = server.go(name=name)
    offered(session.has(wire.READ_ONLY), 'a read-only export (--read-only-export NAME)')
    return session


def changes(session):
    yield session.prepare(wire.WRITE, 0, payload=pattern(4096))
    yield session.prepare(wire.TRIM, 0, 4096)
    yield session.prepare(wire.WRITE_ZEROES, 0, 4096)


@rule(MUST, 'Transmission flags', 'a read-only export does not change')
def read_only_is(server):
    """If this flag is set, the server MUST error subsequent write operations to the export."""
    session = read_only(server)
    before = session.read(0, 4096)
    for data in changes(session):
        session.stream.send(data)
        reply = session.receive()
        expect(not reply.ok, f'{reply.request.name} succeeds')
        expect(session.read(0, 4096) == before, f'{reply.request.name} changed the export')


@rule(SHOULD, 'Error values', 'a write to a read-only export is EPERM')
def read_only_error(server):
    """it SHOULD return NBD_EPERM if it receives a write or trim request on a read-only export. (And
    NBD_CMD_WRITE_ZEROES: It SHOULD return NBD_EPERM.)"""
    session = read_only(server)
    for data in changes(session):
        session.stream.send(data)
        reply = session.receive()
        expect(reply.error == wire.EPERM, f'{reply.request.name} is answered with {reply.outcome}')
