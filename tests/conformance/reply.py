"""Decodes one reply of the transmission phase, simple or chunked, and checks its format."""
import struct
from dataclasses import dataclass, field

import wire
from negotiation import check_string
from wire import Broken


@dataclass
class Request:
    cookie: int
    command: int
    flags: int
    offset: int
    length: int

    @property
    def name(self):
        return f'{wire.named(wire.COMMAND_NAMES, self.command)} {self.offset:#x}+{self.length:#x}'


@dataclass
class Chunk:
    flags: int
    kind: int
    payload: bytes

    @property
    def done(self):
        return bool(self.flags & wire.DONE)

    @property
    def is_error(self):
        return bool(self.kind & 0x8000)

    def error(self):
        """(error, offset or None)"""
        least = 14 if self.kind == wire.CHUNK_ERROR_OFFSET else 6
        if len(self.payload) < least:
            raise Broken(f'an error chunk has {len(self.payload)} bytes, it needs {least}')
        error, length = struct.unpack('>IH', self.payload[:6])
        if length > len(self.payload) - least:
            raise Broken(f'an error message of {length} bytes in {len(self.payload)} bytes')
        check_string(self.payload[6:6 + length], 'the message of an error chunk')
        if error == 0:
            raise Broken('an error chunk has the error 0')
        if self.kind == wire.CHUNK_ERROR_OFFSET:
            return error, struct.unpack('>Q', self.payload[6 + length:14 + length])[0]
        return error, None

    def content(self):
        """(offset, length, data) of a content chunk. The data of a hole are zeroes."""
        if self.kind == wire.CHUNK_DATA:
            if len(self.payload) < 9:
                raise Broken(f'OFFSET_DATA has {len(self.payload)} bytes, at least 9 are needed')
            data = self.payload[8:]
            return struct.unpack('>Q', self.payload[:8])[0], len(data), data
        if len(self.payload) != 12:
            raise Broken(f'OFFSET_HOLE has {len(self.payload)} bytes instead of 12')
        offset, length = struct.unpack('>QI', self.payload)
        if not length:
            raise Broken('OFFSET_HOLE of no bytes')
        return offset, length, bytes(min(length, 1 << 30))

    def status(self):
        """(context id, [(length, flags)])"""
        extended = self.kind == wire.CHUNK_STATUS_EXT
        head, layout = (8, '>QQ') if extended else (4, '>II')
        size = struct.calcsize(layout)
        if len(self.payload) < head + size or (len(self.payload) - head) % size:
            raise Broken(f'BLOCK_STATUS chunk of {len(self.payload)} bytes, not {head} + n * {size}')
        context, = struct.unpack('>I', self.payload[:4])
        extents = list(struct.iter_unpack(layout, self.payload[head:]))
        if extended:
            count, = struct.unpack('>I', self.payload[4:8])
            if count not in (0, len(extents)):
                raise Broken(f'{len(extents)} descriptors, but the descriptor count is {count}')
            if any(flags >> 32 for _, flags in extents):
                raise Broken('a 32-bit context has a status of more than 32 bits')
        if any(length == 0 for length, _ in extents):
            raise Broken('an extent of length 0')
        return context, extents


@dataclass
class Reply:
    """The complete reply to one request."""
    request: Request
    style: str = ''   # simple, structured or extended
    simple_error: int = 0
    data: bytes = b''  # payload of a simple reply
    chunks: list = field(default_factory=list)

    @property
    def errors(self):
        if self.style == 'simple':
            return [self.simple_error] if self.simple_error else []
        return [chunk.error()[0] for chunk in self.chunks if chunk.is_error]

    @property
    def error(self):
        return self.errors[0] if self.errors else 0

    @property
    def ok(self):
        return not self.errors

    @property
    def outcome(self):
        return wire.named(wire.ERROR_NAMES, self.error)

    def contents(self):
        """The data of a READ. Chunks "MUST lie within the bounds", "MUST NOT overlap", and "the server
        MUST send enough data chunks to cover the entire region"."""
        request = self.request
        if self.style == 'simple':
            return self.data
        out, covered = bytearray(request.length), []
        for chunk in self.chunks:
            if chunk.kind not in (wire.CHUNK_DATA, wire.CHUNK_HOLE):
                continue
            offset, length, data = chunk.content()
            start = offset - request.offset
            if start < 0 or start + length > request.length:
                raise Broken(f'{request.name}: a chunk for {offset:#x}+{length:#x} is outside of it')
            if any(start < end and begin < start + length for begin, end in covered):
                raise Broken(f'{request.name}: chunks overlap at {offset:#x}+{length:#x}')
            covered.append((start, start + length))
            out[start:start + length] = data
        if sum(end - begin for begin, end in covered) != request.length:
            raise Broken(f'{request.name}: success, but the chunks do not cover it')
        return bytes(out)

    def statuses(self):
        """{context id: [(length, flags)]}, one chunk for each context."""
        found = {}
        for chunk in self.chunks:
            if chunk.kind in (wire.CHUNK_STATUS, wire.CHUNK_STATUS_EXT):
                context, extents = chunk.status()
                if context in found:
                    raise Broken(f'{self.request.name}: two chunks for context {context}')
                found[context] = extents
        return found
