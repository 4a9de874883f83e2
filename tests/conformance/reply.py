"""A request and its complete reply, simple or chunked."""
from dataclasses import dataclass, field

import wire
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
        """The data of a READ."""
        request = self.request
        if self.style == 'simple':
            return self.data
        return wire.contents(request.name, request.offset, request.length, self.chunks)

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
