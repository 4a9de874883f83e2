"""The error of each request that cannot succeed, and that the connection still works afterwards."""
import wire
from suite import MUST, SHOULD, expect, offered, rule
from transmission import answered, pattern, styles

DEFINED = (wire.EPERM, wire.EIO, wire.ENOMEM, wire.EINVAL, wire.ENOSPC, wire.EOVERFLOW, wire.ENOTSUP,
           wire.ESHUTDOWN)


def past_the_end(size):
    """Ranges of whole blocks that extend beyond the export."""
    end = size // 4096 * 4096
    return ((end, 4096), (end - 4096, 8192), (end + wire.GiB, 4096), (1 << 63, 4096),
            ((1 << 64) - 4096, 4096), ((1 << 64) - 4096, 8192))


def ask_all(session, command, ranges, want):
    """Expects the error `want` for each range, and a working connection afterwards."""
    for offset, length in ranges:
        payload = pattern(length) if command == wire.WRITE else b''
        what = f'{wire.COMMAND_NAMES[command]} {offset:#x}+{length:#x}'
        reply = answered(session, what, command, offset, length, payload)
        expect(reply.error == want, f'{reply.request.name} is answered with {reply.outcome}')
    expect(session.alive(), 'no request is answered afterwards')


@rule(SHOULD, 'Error values', 'READ past the end is EINVAL')
def read_past(server):
    """It SHOULD return NBD_EINVAL if it receives a read or trim request including one or more sectors
    beyond the size of the device"""
    for style in styles(server):
        session = server.go(style)
        ask_all(session, wire.READ, past_the_end(session.size), wire.EINVAL)


@rule(SHOULD, 'Error values', 'WRITE past the end is ENOSPC')
def write_past(server):
    """The server SHOULD return NBD_ENOSPC if it receives a write request including one or more sectors
    beyond the size of the device."""
    for style in styles(server):
        session = server.writable(style)
        ask_all(session, wire.WRITE, past_the_end(session.size), wire.ENOSPC)


@rule(SHOULD, 'NBD_CMD_WRITE_ZEROES', 'WRITE_ZEROES past the end is ENOSPC')
def zeroes_past(server):
    """The server SHOULD return NBD_ENOSPC if it receives a write zeroes request including one or more
    sectors beyond the size of the device."""
    session = server.writable('simple', wire.SEND_WRITE_ZEROES)
    ranges = past_the_end(session.size) + ((4096, 0xfffff000),)
    ask_all(session, wire.WRITE_ZEROES, ranges, wire.ENOSPC)


@rule(SHOULD, 'Error values', 'TRIM past the end is EINVAL')
def trim_past(server):
    """It SHOULD return NBD_EINVAL if it receives a read or trim request including one or more sectors
    beyond the size of the device"""
    session = server.writable('simple', wire.SEND_TRIM)
    ranges = past_the_end(session.size) + ((4096, 0xfffff000),)
    ask_all(session, wire.TRIM, ranges, wire.EINVAL)


@rule(SHOULD, 'Block size constraints', 'CACHE past the end is EINVAL')
def cache_past(server):
    """For those requests, the client MUST NOT use a length which, when added to offset, would exceed
    the export size. (The specification does not name the error of CACHE; that of READ is expected.)"""
    session = server.go()
    offered(session.has(wire.SEND_CACHE), 'CACHE')
    ask_all(session, wire.CACHE, past_the_end(session.size), wire.EINVAL)


@rule(SHOULD, 'NBD_CMD_BLOCK_STATUS', 'BLOCK_STATUS past the end is EINVAL')
def status_past(server):
    """The server SHOULD return NBD_EINVAL if it receives a NBD_CMD_BLOCK_STATUS request including one
    or more sectors beyond the size of the device."""
    session = server.with_status()
    ask_all(session, wire.BLOCK_STATUS, past_the_end(session.size), wire.EINVAL)


@rule(MUST, 'NBD_CMD_WRITE', 'a request past the end never succeeds')
def past_never_succeeds(server):
    """If an error occurs, the server MUST set the appropriate error code in the error field. (It MAY
    disconnect, as the client broke a MUST NOT.)"""
    for command in server.writable().advertised(wire.READ, wire.WRITE, wire.TRIM, wire.WRITE_ZEROES):
        session = server.writable()
        for offset, length in past_the_end(session.size):
            payload = pattern(length) if command == wire.WRITE else b''
            try:
                reply = session.ask(command, offset, length, payload)
            except wire.Closed:
                session = server.writable()
                continue
            expect(not reply.ok, f'{reply.request.name} succeeds')


@rule(MUST, 'NBD_CMD_READ', 'a failed READ has no data')
def failed_read_is_bare(server):
    """The server MAY then initiate a hard disconnect. If it chooses not to, it MUST NOT send any
    payload for this request."""
    session = server.go()
    session.send(wire.READ, session.size // 4096 * 4096, 65536)
    try:
        reply = session.receive()
        expect(not reply.ok, 'a READ past the end succeeds')
        expect(session.stream.silent(), 'data follow the error')
    except wire.Closed:
        expect(server.go().alive(), 'a new client is not served')


@rule(MUST, 'NBD_CMD_WRITE', 'the payload of a failed WRITE is consumed')
def payload_consumed(server):
    """The client MUST follow the request header with length number of bytes. (A server that does not
    disconnect must skip them to find the next request. Here the payload looks like requests.)"""
    for style in styles(server):
        session = server.writable(style)
        bait = session.encode(wire.READ, 0, 4096, cookie=0xbad)
        payload = (bait * (65536 // len(bait) + 1))[:65536]
        session.send(wire.WRITE, session.size // 4096 * 4096, payload=payload)
        session.send(wire.READ, 0, 4096)
        try:
            for _ in range(2):
                reply = session.receive()
                expect(reply.ok == (reply.request.command == wire.READ),
                       f'{style}: {reply.request.name} is answered with {reply.outcome}')
            expect(session.stream.silent(), f'{style}: the payload is executed as requests')
        except wire.Closed:
            expect(server.go().alive(), 'a new client is not served')


@rule(SHOULD, 'Error values', 'an unknown command is EINVAL')
def unknown_command(server):
    """The server SHOULD return NBD_EINVAL if it receives an unknown command."""
    for style in styles(server):
        session = server.go(style)
        for command in (9, 100, 0x7fff, 0xffff):
            reply = answered(session, f'command {command}, {style}', command, 0, 512)
            expect(reply.error == wire.EINVAL, f'{style}: command {command} is {reply.outcome}')
        expect(session.alive(), f'{style}: no request is answered afterwards')


def ask_with_flags(session, requests):
    for command, flags, what in requests:
        payload = pattern(4096) if command == wire.WRITE else b''
        reply = answered(session, what, command, 0, 4096, payload, flags=flags)
        expect(reply.error == wire.EINVAL, f'{what} is answered with {reply.outcome}')
    expect(session.alive(), 'no request is answered afterwards')


@rule(SHOULD, 'Error values', 'an unknown flag is EINVAL')
def unknown_flag(server):
    """The server SHOULD return NBD_EINVAL if it receives an unknown command flag."""
    for style in styles(server):
        session = server.writable(style)
        ask_with_flags(session, [
            (command, 1 << bit, f'{style}: {wire.COMMAND_NAMES[command]} with flag {bit}')
            for command in (wire.READ, wire.WRITE) for bit in (6, 8, 15)])


@rule(SHOULD, 'Error values', 'a flag that belongs to another command is EINVAL')
def misplaced_flag(server):
    """It also SHOULD return NBD_EINVAL if it receives a request with a flag not explicitly documented
    as applicable to the given request."""
    for style in styles(server):
        session = server.writable(style)
        ask_with_flags(session, [
            (wire.READ, wire.NO_HOLE, f'{style}: READ with NO_HOLE'),
            (wire.READ, wire.REQ_ONE, f'{style}: READ with REQ_ONE'),
            (wire.READ, wire.FAST_ZERO, f'{style}: READ with FAST_ZERO'),
            (wire.WRITE, wire.NO_HOLE, f'{style}: WRITE with NO_HOLE'),
            (wire.WRITE, wire.DF, f'{style}: WRITE with DF'),
            (wire.WRITE, wire.FAST_ZERO, f'{style}: WRITE with FAST_ZERO')])


@rule(SHOULD, 'Error values', 'a flag that was not negotiated is EINVAL')
def unnegotiated_flag(server):
    """whether a flag is valid may depend on negotiation during the handshake phase: DF without
    structured replies, PAYLOAD_LEN without extended headers, FAST_ZERO or FUA that is not advertised"""
    session = server.writable()
    requests = [(wire.READ, wire.DF, 'READ with DF over simple replies'),
                (wire.READ, wire.PAYLOAD_LEN, 'READ with PAYLOAD_LEN over compact headers')]
    if not session.has(wire.SEND_FUA):
        requests.append((wire.WRITE, wire.FUA, 'WRITE with FUA'))
    if session.has(wire.SEND_WRITE_ZEROES) and not session.has(wire.SEND_FAST_ZERO):
        requests.append((wire.WRITE_ZEROES, wire.FAST_ZERO, 'WRITE_ZEROES with FAST_ZERO'))
    ask_with_flags(session, requests)


@rule(SHOULD, 'Block size constraints', 'a request not aligned to the minimum block is EINVAL')
def unaligned(server):
    """The server SHOULD report an NBD_EINVAL error if the client's request is not aligned to advertised
    minimum block size boundaries"""
    session = server.writable()
    least = session.block_sizes[0] if session.block_sizes else 1
    offered(least > 1, 'a minimum block larger than 1')
    for command in (wire.READ, wire.WRITE):
        for offset, length in ((1, least), (0, least - 1), (0, least + 1), (least // 2, least)):
            payload = pattern(length) if command == wire.WRITE else b''
            reply = session.ask(command, offset, length, payload)
            expect(reply.error == wire.EINVAL, f'{reply.request.name} is {reply.outcome}')


@rule(SHOULD, 'Block size constraints', 'a request longer than the maximum payload is EINVAL')
def too_long(server):
    """The server SHOULD report an NBD_EINVAL error if the client's request [...] is larger than the
    advertised maximum payload size. (A disconnect is permitted only from 2^25 bytes on.)"""
    for style in styles(server):
        session = server.writable(style)
        most = session.block_sizes[2] if session.block_sizes else 0
        offered(most, 'a maximum payload')
        offered(most + 65536 <= session.size, 'an export that is larger than its maximum payload')
        for command in (wire.READ, wire.WRITE):
            payload = bytes(most + 65536) if command == wire.WRITE else b''
            try:
                reply = session.ask(command, 0, most + 65536, payload)
            except wire.Closed:
                expect(most + 65536 >= 1 << 25, f'{style}: a disconnect for {most + 65536} bytes')
                session = server.writable(style)
                continue
            expect(reply.error == wire.EINVAL, f'{style}: {reply.request.name} is {reply.outcome}')
        expect(session.alive(), f'{style}: no request is answered afterwards')


def provoke(server):
    """Yields the error replies to many kinds of invalid requests."""
    for style in styles(server):
        session = server.writable(style)
        for command in (wire.READ, wire.WRITE, wire.TRIM, wire.CACHE, wire.WRITE_ZEROES,
                        wire.BLOCK_STATUS, 99):
            for (offset, length), flags in ((past_the_end(session.size)[0], 0),
                                            (past_the_end(session.size)[3], 0), ((0, 4096), 0x8000)):
                payload = pattern(length) if command == wire.WRITE else b''
                try:
                    reply = session.ask(command, offset, length, payload, flags=flags)
                except wire.Closed:
                    session = server.writable(style)
                    continue
                if not reply.ok:
                    yield reply


@rule(MUST, 'Error values', 'only defined errors are used')
def defined_errors(server):
    """the allowed values for the error field have been restricted to set of possibilities. The
    following error values are defined: EPERM, EIO, ENOMEM, EINVAL, ENOSPC, EOVERFLOW, ENOTSUP,
    ESHUTDOWN"""
    for reply in provoke(server):
        expect(all(error in DEFINED for error in reply.errors),
               f'{reply.request.name} is answered with {reply.errors}')


@rule(SHOULD, 'Error values', 'EOVERFLOW, ENOTSUP and ENOMEM are used only where specified')
def reserved_errors(server):
    """SHOULD NOT return NBD_EOVERFLOW except as documented in response to NBD_CMD_READ when
    NBD_CMD_FLAG_DF is supported; SHOULD NOT return NBD_ENOTSUP except as documented in response to
    NBD_CMD_WRITE_ZEROES when NBD_CMD_FLAG_FAST_ZERO is supported; SHOULD NOT return NBD_ENOMEM if at
    all possible"""
    for reply in provoke(server):
        expect(reply.error not in (wire.EOVERFLOW, wire.ENOTSUP, wire.ENOMEM),
               f'{reply.request.name} is answered with {reply.outcome}')
