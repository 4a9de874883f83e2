"""Structured replies: which requests get chunks, their format, DF and BLOCK_STATUS."""
import wire
from suite import MUST, SHOULD, expect, offered, rule
from transmission import pattern


def patchwork(server, style='structured', contexts=()):
    """A writable connection, and the contents of its first 4 MiB: data and possible holes."""
    session = server.writable(style, contexts=contexts)
    length = min(session.size, 4 * wire.MiB) // 65536 * 65536
    content = bytearray()
    for index in range(0, length, 65536):
        content += pattern(65536, index) if index // 65536 % 3 else bytes(65536)
    session.write(0, bytes(content))
    if session.has(wire.SEND_WRITE_ZEROES):
        for start in range(0, length, 3 * 65536):
            session.ask(wire.WRITE_ZEROES, start, 65536)
    return session, bytes(content)


def chunked(reply):
    expect(reply.style != 'simple', f'{reply.request.name} has a simple reply')
    return reply.chunks


@rule(MUST, 'Structured reply chunk message', 'READ is answered in chunks')
def read_in_chunks(server):
    """if structured replies are negotiated, the server MUST use a structured reply for any response
    with a payload, and MUST NOT use a simple reply for NBD_CMD_READ"""
    session = server.go('structured')
    session.stream.send(session.encode(wire.READ, 0, 4096, cookie=7))
    head = session.stream.reply_head()
    expect(head.style == 'structured', f'the reply is {head.style}')


@rule(MUST, 'Structured reply chunk message', 'a READ that fails early is answered in chunks')
def early_error_in_chunks(server):
    """MUST NOT use a simple reply for NBD_CMD_READ (even for the case of an early NBD_EINVAL due to bad
    flags)"""
    size = server.go('structured').size // 4096 * 4096
    for offset, flags, what in ((0, 0x8000, 'a bad flag'), (size, 0, 'past the end'),
                                (1 << 63, 0, 'far past the end'), (0, wire.NO_HOLE, 'a misplaced flag')):
        session = server.go('structured')
        session.stream.send(session.encode(wire.READ, offset, 4096, flags=flags))
        try:
            head = session.stream.reply_head()
        except wire.Closed:
            expect(server.go().alive(), 'a new client is not served')
            continue
        expect(head.style == 'structured', f'READ with {what}: the reply is {head.style}')


def coverage(server, style):
    session, content = patchwork(server, style)
    for offset, length in ((0, len(content)), (0, 4096), (65536 - 4096, 8192), (4096, 3 * 65536),
                           (len(content) - 65536, 65536)):
        reply = session.ask(wire.READ, offset, length)
        expect(reply.ok and chunked(reply), f'{reply.request.name} is {reply.outcome}')
        expect(reply.contents() == content[offset:offset + length], f'{reply.request.name} differs')
    least = session.block_sizes[0] if session.block_sizes else 1
    if least == 1:
        for offset, length in ((1, 1), (65535, 2), (65537, 131071), (196607, 3)):
            expect(session.read(offset, length) == content[offset:offset + length],
                   f'READ {offset}+{length} differs')


@rule(MUST, 'NBD_CMD_READ', 'chunks cover the request exactly, without overlap')
def exact_coverage(server):
    """the server MUST send enough data chunks to cover the entire region; MUST NOT send content chunks
    that overlap with any earlier content or error chunk, and MUST NOT send chunks that describe data
    outside the offset and length of the request"""
    coverage(server, 'structured')


@rule(MUST, 'Structured reply flags', 'DONE is set once, in the last chunk')
def done_last(server):
    """the server MUST clear this bit if more structured reply chunks will be sent for the same client
    request, and MUST set this bit if this is the final reply"""
    session, content = patchwork(server)
    for offset, length in ((0, len(content)), (0, 4096)):
        reply = session.ask(wire.READ, offset, length)
        expect([chunk.done for chunk in chunked(reply)].count(True) == 1, 'DONE more than once')
        expect(session.stream.silent(), f'{reply.request.name}: bytes follow DONE')


@rule(MUST, 'Structured reply flags', 'no reply flag other than DONE is set')
def reply_flags(server):
    """The server MUST NOT set any other flags without first negotiating the extension with the
    client"""
    session, content = patchwork(server)
    for request in ((0, len(content)), (session.size // 4096 * 4096, 4096)):
        session.stream.send(session.encode(wire.READ, *request))
        done = False
        while not done:
            head = session.stream.reply_head()
            expect(head.style == 'structured' and not head.flags & ~wire.DONE, f'flags {head.flags:#x}')
            session.stream.receive(head.length)
            done = head.flags & wire.DONE


@rule(MUST, 'NBD_REPLY_TYPE_ERROR', 'error chunks are well formed')
def error_chunks(server):
    """32 bits: error (MUST be nonzero); 16 bits: message length (no more than header length - 6);
    length MUST be at least 6; message length MUST NOT exceed the 4096 bytes string length limit"""
    session = server.go('structured')
    reply = session.ask(wire.READ, session.size // 4096 * 4096, 4096)
    errors = [chunk for chunk in chunked(reply) if chunk.is_error]
    expect(errors, 'a READ past the end has no error chunk')
    for chunk in errors:
        error, offset = chunk.error()
        expect(error and (offset is None or offset >= session.size // 4096 * 4096), f'{error} {offset}')


@rule(SHOULD, 'Structured reply chunk message', 'errors without a payload are sent in chunks as well')
def errors_in_chunks(server):
    """MAY use either a simple reply or a structured reply to all other requests. The server SHOULD
    prefer sending errors via a structured reply, as the error can then be accompanied by a string
    payload to present to a human user."""
    session = server.writable('structured')
    end = session.size // 4096 * 4096
    for reply in (session.ask(wire.WRITE, end, payload=pattern(4096)), session.ask(99, 0, 0),
                  session.ask(wire.WRITE, 0, payload=pattern(4096), flags=0x8000)):
        expect(not reply.ok, f'{reply.request.name} succeeds')
        expect(reply.style != 'simple', f'{reply.outcome} for {reply.request.name} is a simple reply')


@rule(MUST, 'Structured reply chunk message', 'commands without a payload are answered either way')
def other_commands(server):
    """MAY use either a simple reply or a structured reply to all other requests"""
    session = server.writable('structured')
    for command in session.advertised(wire.WRITE, wire.FLUSH, wire.TRIM, wire.WRITE_ZEROES):
        length = 0 if command == wire.FLUSH else 4096
        payload = bytes(4096) if command == wire.WRITE else b''
        reply = session.succeed(command, 0, length, payload)
        expect(all(chunk.kind == wire.CHUNK_NONE for chunk in reply.chunks),
               f'{reply.request.name}: chunks {[chunk.kind for chunk in reply.chunks]}')


def content_chunks(reply):
    return [chunk for chunk in reply.chunks if chunk.kind in (wire.CHUNK_DATA, wire.CHUNK_HOLE)]


@rule(MUST, 'NBD_CMD_READ', 'DF: 64 KiB are sent as one chunk')
def df_small(server):
    """the server MUST support unfragmented reads in which the client's request length does not exceed
    65,536 bytes; the server MUST send at most one content chunk"""
    session, content = patchwork(server)
    offered(session.has(wire.SEND_DF), 'DF')
    for offset in range(0, len(content) - 65536, 32768):
        reply = session.ask(wire.READ, offset, 65536, flags=wire.DF)
        expect(reply.ok, f'{reply.request.name} with DF is {reply.outcome}')
        expect(len(content_chunks(reply)) == 1, f'{len(content_chunks(reply))} content chunks')
        expect(reply.contents() == content[offset:offset + 65536], f'{reply.request.name} differs')


@rule(MUST, 'NBD_CMD_READ', 'DF: data and a hole are sent as data')
def df_mixed(server):
    """If the area being read contains both data and a hole, the server MUST use
    NBD_REPLY_TYPE_OFFSET_DATA with the zeroes explicitly present."""
    session, content = patchwork(server)
    offered(session.has(wire.SEND_DF), 'DF')
    reply = session.ask(wire.READ, 65536 - 4096, 8192, flags=wire.DF)
    kinds = [chunk.kind for chunk in content_chunks(reply)]
    expect(kinds == [wire.CHUNK_DATA], f'the content chunks are {kinds}')
    expect(reply.contents() == content[65536 - 4096:65536 + 4096], 'it differs')


@rule(MUST, 'NBD_CMD_READ', 'DF: a long READ is one chunk, or EOVERFLOW without a chunk')
def df_long(server):
    """A server MAY reject a client's request with the error NBD_EOVERFLOW if the length is too large to
    send without fragmentation, in which case it MUST NOT send a content chunk"""
    session = server.go('structured')
    offered(session.has(wire.SEND_DF), 'DF')
    most = session.block_sizes[2] if session.block_sizes else 32 * wire.MiB
    length = min(session.size, most, 32 * wire.MiB) // 4096 * 4096
    reply = session.ask(wire.READ, 0, length, flags=wire.DF)
    count = len(content_chunks(reply))
    expect(reply.error in (0, wire.EOVERFLOW), f'{reply.request.name} is {reply.outcome}')
    expect(count == (1 if reply.ok else 0), f'{reply.outcome} with {count} content chunks')


@rule(SHOULD, 'NBD_CMD_READ', 'chunks are aligned to 512 bytes')
def chunk_alignment(server):
    """the server SHOULD use chunks with lengths and offsets as an integer multiple of 512 bytes, where
    possible"""
    session, content = patchwork(server)
    for chunk in content_chunks(session.ask(wire.READ, 0, len(content))):
        offset, length, _ = chunk.content()
        expect(offset % 512 == 0 and length % 512 == 0, f'a chunk for {offset}+{length}')


def extents_ok(session, offset, length, extents, flags=0):
    """Checks the lengths of the extents. Returns the number of bytes that they describe."""
    shown = f'{offset:#x}+{length:#x}: {extents[:4]}'
    expect(extents and all(count for count, _ in extents), shown)
    if flags & wire.REQ_ONE:
        expect(len(extents) == 1 and extents[0][0] <= length, f'REQ_ONE, {shown}')
    expect(sum(count for count, _ in extents[:-1]) < length, f'extents beyond the request, {shown}')
    least = session.block_sizes[0] if session.block_sizes else 1
    expect(all(count % least == 0 for count, _ in extents), f'minimum block {least}, {shown}')
    total = sum(count for count, _ in extents)
    expect(offset + total <= session.size, f'extents beyond the export of {session.size}, {shown}')
    return total


@rule(MUST, 'NBD_CMD_BLOCK_STATUS', 'one status chunk for each context')
def status_chunks(server):
    """For a successful return, the server MUST use a structured reply, containing exactly one chunk of
    type NBD_REPLY_TYPE_BLOCK_STATUS per selected context id"""
    session = server.with_status()
    reply = session.ask(wire.BLOCK_STATUS, 0, session.size if session.size < 1 << 32 else wire.GiB)
    expect(reply.ok and reply.style == 'structured', f'{reply.style}: {reply.outcome}')
    expect(set(reply.statuses()) == set(session.contexts.values()),
           f'contexts {session.contexts}, chunks for {list(reply.statuses())}')


@rule(MUST, 'NBD_OPT_LIST_META_CONTEXT', 'each listed context can be queried, alone and together')
def status_of_each(server):
    """the server MUST return all the metadata contexts that are available to the client to select on the
    given export; and: containing exactly one chunk of type NBD_REPLY_TYPE_BLOCK_STATUS per selected
    context id"""
    names = server.listed_contexts()
    for chosen in [[name] for name in names] + [names, names[::-1]]:
        session = server.go('structured', chosen)
        expect(set(session.contexts) == set(chosen), f'of {chosen}, {list(session.contexts)} are selected')
        length = min(session.size, wire.GiB) // 65536 * 65536
        for flags in (0, wire.REQ_ONE):
            reply = session.ask(wire.BLOCK_STATUS, 0, length, flags=flags)
            statuses = reply.statuses()
            expect(reply.ok and set(statuses) == set(session.contexts.values()),
                   f'{chosen}: {reply.outcome}, chunks for {list(statuses)} of {session.contexts}')
            for extents in statuses.values():
                extents_ok(session, 0, length, extents, flags)


@rule(MUST, 'NBD_REPLY_TYPE_BLOCK_STATUS', 'extents are inside of the request, except for the last')
def status_lengths(server):
    """if the server replies with N extents, then the sum of the length fields of the first N-1 extents
    (if any) MUST be less than the requested length; length (unsigned, MUST be nonzero); MUST use
    descriptor lengths that are an integer multiple of any advertised minimum block size"""
    session, content = patchwork(server, contexts=('base:allocation',))
    for offset, length in ((0, len(content)), (0, 4096), (65536 - 4096, 8192), (65536, 65536),
                           (session.size // 4096 * 4096 - 4096, 4096), (4096, len(content) - 8192)):
        extents_ok(session, offset, length, session.status(offset, length))


@rule(MUST, 'NBD_REPLY_TYPE_BLOCK_STATUS', 'REQ_ONE: one extent, no longer than the request')
def status_one(server):
    """every reply chunk MUST contain exactly one descriptor, and that descriptor MUST NOT exceed the
    length of the original request"""
    session, content = patchwork(server, contexts=('base:allocation',))
    for offset, length in ((0, len(content)), (0, 4096), (65536 - 4096, 8192), (65536, 4096)):
        extents_ok(session, offset, length, session.status(offset, length, wire.REQ_ONE), wire.REQ_ONE)


@rule(MUST, 'NBD_CMD_BLOCK_STATUS', 'repeated requests reach the end of the export')
def status_progress(server):
    """the server MUST return at least one status descriptor (and since each status descriptor has a
    non-zero length, a client can always make progress on a successful return)"""
    session, _ = patchwork(server, contexts=('base:allocation',))
    end = session.size // 4096 * 4096
    for flags in (0, wire.REQ_ONE):
        offset = 0
        for _ in range(20000):
            length = min(end - offset, 0xfffff000)
            offset += extents_ok(session, offset, length, session.status(offset, length, flags), flags)
            if offset >= end:
                break
        expect(offset >= end, f'after 20000 requests at {offset:#x} of {end:#x}')


@rule(MUST, 'base:allocation metadata context', 'extents reported as zero read as zero')
def status_truth(server):
    """NBD_STATE_ZERO (bit 1): if set, the block contents read as all zeroes"""
    session, content = patchwork(server, contexts=('base:allocation',))
    offset = 0
    while offset < len(content):
        for count, state in session.status(offset, len(content) - offset):
            count = min(count, len(content) - offset)
            expect(not state & wire.STATE_ZERO or content[offset:offset + count].count(0) == count,
                   f'{offset:#x}+{count:#x} is reported as zero, but contains data')
            offset += count


@rule(MUST, 'base:allocation metadata context', 'unaligned ranges have a correct status')
def status_odd(server):
    """Length and offset define the range of interest. (Servers have had off-by-one errors at the edge of
    an extent, and 32-bit overflows.)"""
    session, _ = patchwork(server, contexts=('base:allocation',))
    offered(not session.block_sizes or session.block_sizes[0] == 1, 'a minimum block of 1')
    for offset, length in ((65535, 1), (65536, 1), (65535, 2), (65537, 65535), (session.size - 1, 1),
                           (1, session.size - 1 if session.size < 1 << 32 else 0xffffffff)):
        for flags in (0, wire.REQ_ONE):
            extents_ok(session, offset, length, session.status(offset, length, flags), flags)


@rule(SHOULD, 'base:allocation metadata context', 'reserved status bits are clear')
def status_bits(server):
    """For the base:allocation context, the remainder of the flags field is reserved. Servers SHOULD set
    it to all-zero"""
    session, content = patchwork(server, contexts=('base:allocation',))
    extents = session.status(0, len(content))
    expect(not any(state & ~3 for _, state in extents), f'{extents[:4]}')


@rule(SHOULD, 'NBD_CMD_BLOCK_STATUS', 'neighbouring extents differ in their status')
def status_merged(server):
    """The server SHOULD use different status values between consecutive descriptors where feasible"""
    session, content = patchwork(server, contexts=('base:allocation',))
    extents = session.status(0, len(content))
    expect(all(one[1] != other[1] for one, other in zip(extents, extents[1:])), f'{extents[:6]}')
