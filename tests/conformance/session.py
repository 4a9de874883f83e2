"""A connection in transmission: sends requests and matches replies to them."""
import wire
from reply import Reply, Request
from wire import Broken, Chunk

_CONTENT = {wire.READ: (wire.CHUNK_DATA, wire.CHUNK_HOLE),
            wire.BLOCK_STATUS: (wire.CHUNK_STATUS, wire.CHUNK_STATUS_EXT)}
_FLAGS = {wire.FLUSH: wire.SEND_FLUSH, wire.TRIM: wire.SEND_TRIM, wire.CACHE: wire.SEND_CACHE,
          wire.WRITE_ZEROES: wire.SEND_WRITE_ZEROES}


class Session:
    def __init__(self, stream, size, flags, style='simple', block_sizes=None, contexts=()):
        self.stream = stream
        self.size = size
        self.flags = flags
        self.style = style  # the negotiated replies: simple, structured or extended
        self.block_sizes = block_sizes
        self.contexts = dict((name, identity) for identity, name in contexts)
        self.pending = {}
        self.parts = {}  # incomplete chunked replies, by cookie
        self.next_cookie = 0x1122334455667788

    def has(self, flag):
        return bool(self.flags & flag)

    def advertised(self, *commands):
        """Those of the commands that the server advertises; READ and WRITE always."""
        return [command for command in commands if command not in _FLAGS or self.has(_FLAGS[command])]

    def encode(self, command, offset=0, length=None, payload=b'', flags=0, cookie=0):
        """The bytes of a request, valid or not."""
        length = len(payload) if length is None else length
        magic = wire.EXTENDED_REQUEST_MAGIC if self.style == 'extended' else wire.REQUEST_MAGIC
        return wire.encode_request(command, offset, length, flags, payload, cookie, magic)

    def prepare(self, command, offset=0, length=None, payload=b'', flags=0, cookie=None):
        """The bytes of a request whose reply receive() will match."""
        if cookie is None:
            cookie = self.next_cookie
            self.next_cookie = (self.next_cookie + 0x9e3779b97f4a7c15) % (1 << 64)
        if self.style == 'extended' and command == wire.WRITE:
            flags |= wire.PAYLOAD_LEN
        data = self.encode(command, offset, length, payload, flags, cookie)
        length = len(payload) if length is None else length
        self.pending[cookie] = Request(cookie, command, flags, offset, length)
        return data

    def send(self, *args, **kwargs):
        self.stream.send(self.prepare(*args, **kwargs))

    def receive(self):
        """The next complete reply, to any request. Chunks of different replies may be interleaved."""
        while True:
            head = self.stream.reply_head()
            if head.style != self.style and head.style != 'simple':
                raise Broken(f'a chunk with {head.style} header, although {self.style} replies were '
                             'negotiated')
            if head.style == 'simple' and self.style == 'extended':
                raise Broken('a simple reply, although extended headers were negotiated')
            request, cookie = self.asked(head.cookie), head.cookie
            if head.style == 'simple':
                if request.command == wire.READ and self.style != 'simple':
                    raise Broken(f'{request.name}: a simple reply, although structured replies '
                                 'were negotiated')
                if self.parts.pop(cookie, None):
                    raise Broken(f'{request.name}: a simple reply among chunks')
                reads = request.command == wire.READ and not head.error
                data = self.stream.receive(request.length) if reads else b''
                del self.pending[cookie]
                return Reply(request, 'simple', head.error, data)
            if head.style == 'extended' and head.offset != request.offset:
                raise Broken(f'{request.name}: the reply has the offset {head.offset:#x}')
            chunk = self.chunk(request, head.flags, head.kind, head.length)
            reply = self.parts.setdefault(cookie, Reply(request, head.style))
            reply.chunks.append(chunk)
            if chunk.done:
                del self.pending[cookie], self.parts[cookie]
                return reply

    def asked(self, cookie):
        if cookie not in self.pending:
            raise Broken(f'a reply has the cookie {cookie:#x}, which belongs to no request in flight')
        return self.pending[cookie]

    def chunk(self, request, flags, kind, length):
        if flags & ~wire.DONE:
            raise Broken(f'{request.name}: a chunk has the flags {flags:#x}')
        known = _CONTENT.get(request.command, ())
        if kind != wire.CHUNK_NONE and not kind & 0x8000 and kind not in known:
            raise Broken(f'{request.name}: a chunk of type {kind}')
        if kind in (wire.CHUNK_STATUS, wire.CHUNK_STATUS_EXT) and (
                (kind == wire.CHUNK_STATUS_EXT) != (self.style == 'extended')):
            raise Broken(f'{request.name}: a status chunk of type {kind} over {self.style} headers')
        if length > 128 * wire.MiB:
            raise Broken(f'{request.name}: a chunk claims {length} bytes')
        chunk = Chunk(flags, kind, self.stream.receive(length))
        if kind == wire.CHUNK_NONE and (length or not chunk.done):
            raise Broken(f'{request.name}: NONE has {length} bytes and the flags {flags:#x}')
        if chunk.is_error:
            offset = chunk.error()[1]
            if offset is not None and not 0 <= offset - request.offset < max(request.length, 1):
                raise Broken(f'{request.name}: an error at {offset:#x}, outside of the request')
        return chunk

    def ask(self, *args, **kwargs):
        """Sends one request and receives its reply, with nothing else in flight."""
        self.send(*args, **kwargs)
        return self.receive()

    def succeed(self, *args, **kwargs):
        """Sends one request, which must succeed, and receives its reply."""
        reply = self.ask(*args, **kwargs)
        if not reply.ok:
            raise Broken(f'{reply.request.name} is answered with {reply.outcome}')
        return reply

    def read(self, offset, length, flags=0):
        return self.succeed(wire.READ, offset, length, flags=flags).contents()

    def write(self, offset, data, flags=0):
        self.succeed(wire.WRITE, offset, payload=data, flags=flags)

    def status(self, offset, length, flags=0, context='base:allocation'):
        """The extents of one context."""
        reply = self.succeed(wire.BLOCK_STATUS, offset, length, flags=flags)
        found = reply.statuses()
        if self.contexts[context] not in found:
            raise Broken(f'{reply.request.name}: no chunk for the context {context}')
        return found[self.contexts[context]]

    def alive(self):
        """Whether the server still answers a READ of the first block."""
        try:
            return len(self.read(0, 4096)) == 4096
        except wire.Closed:
            return False

    def bye(self):
        self.stream.send(self.encode(wire.DISC))
