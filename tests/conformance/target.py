"""The server under test: its URI and the connections that rules open."""
import contextlib
import ssl
import time
import urllib.parse

import wire
from negotiation import Negotiation
from session import Session
from suite import NotOffered, Unreachable, expect, offered

DEFAULT_PORT = 10809
STYLES = {'structured': wire.STRUCTURED_REPLY, 'extended': wire.EXTENDED_HEADERS}  # replies, and the option that asks for them


class BadUri(Exception):
    pass


def parse(uri):
    """(address for a socket, export name, TLS from the start)"""
    parts = urllib.parse.urlsplit(uri)
    name = urllib.parse.unquote(parts.path[1:])
    secure = parts.scheme in ('nbds', 'nbds+unix')
    if parts.scheme in ('nbd+unix', 'nbds+unix'):
        path = urllib.parse.parse_qs(parts.query).get('socket')
        if not path:
            raise BadUri(f'{uri}: {parts.scheme} needs ?socket=PATH')
        return path[0], name, secure
    if parts.scheme in ('nbd', 'nbds'):
        if not parts.hostname:
            raise BadUri(f'{uri}: the host is missing')
        try:
            return (parts.hostname, parts.port or DEFAULT_PORT), name, secure
        except ValueError as error:
            raise BadUri(f'{uri}: {error}') from error
    raise BadUri(f'{uri}: a URI must start with nbd://, nbds://, nbd+unix:// or nbds+unix://')


class Server:
    def __init__(self, uri, read_only_export=None, certificate=None, tls_export=None):
        self.address, self.export, self.secure = parse(uri)
        self.read_only_export = read_only_export
        self.certificate = certificate  # (certificate, key) of the client
        self.tls_export = tls_export
        self.deadline = 0
        self.streams = []

    @contextlib.contextmanager
    def watch(self, seconds):
        """Closes all connections opened inside when it ends. None waits longer than `seconds` in total."""
        self.deadline = time.monotonic() + seconds
        try:
            yield
        finally:
            for stream in self.streams:
                stream.close()
            self.streams.clear()

    def stream(self):
        try:
            stream = wire.Stream(self.address, deadline=self.deadline)
        except wire.Late:
            raise
        except OSError as error:
            raise Unreachable(f'cannot connect: {error}') from error
        self.streams.append(stream)
        return stream

    def tls(self, version=None):
        """A context that accepts any certificate: the suite does not test the identity of the server."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        if version:
            context.set_ciphers('ALL:@SECLEVEL=0')
            context.minimum_version = context.maximum_version = version
        if self.certificate:
            context.load_cert_chain(*self.certificate)
        return context

    def start_tls(self, negotiation, version=None):
        negotiation.stream.start_tls(self.tls(version), None)

    def connect(self, client_flags=None, plain=False):
        """A connection that has exchanged flags. `plain`: without TLS, even for nbds://."""
        flags = wire.FIXED_NEWSTYLE | wire.NO_ZEROES if client_flags is None else client_flags
        negotiation = Negotiation(self.stream(), None)
        if client_flags is None:
            flags &= negotiation.flags
        negotiation.stream.send(wire.encode_flags(flags))
        if self.secure and not plain:
            if not negotiation.option(wire.STARTTLS).ok:
                raise NotOffered('the server does not support TLS')
            self.start_tls(negotiation)
        return negotiation

    def connect_for(self, style):
        """A connection in the handshake that has negotiated replies of this style."""
        negotiation = self.connect()
        if style in STYLES:
            answer = negotiation.option(STYLES[style])
            offered(answer.ok, f'{style} replies: {answer.name}')
        return negotiation

    def go(self, style='simple', contexts=(), name=None, negotiation=None):
        """A connection in transmission, entered with GO. `negotiation`: one that has negotiated this style."""
        name = self.export if name is None else name
        negotiation = negotiation or self.connect_for(style)
        chosen = []
        if contexts:
            answer = negotiation.option(wire.SET_META_CONTEXT, wire.context_query(name, *contexts))
            offered(answer.ok, f'metadata contexts: {answer.name}')
            chosen = answer.contexts()
            offered(chosen, f'the context {contexts[0]}')
        answer = negotiation.go(name, wire.INFO_BLOCK_SIZE)
        offered(answer.final != wire.ERR_UNSUP, 'GO')
        expect(answer.ok and answer.export(), f'GO for {name!r} is answered with {answer.name}')
        size, flags = answer.export()
        return Session(negotiation.stream, size, flags, style, answer.block_sizes(), chosen)

    def writable(self, style='simple', *flags, contexts=(), least=wire.MiB):
        """A connection to a writable export that has all these transmission flags."""
        session = self.go(style, contexts)
        offered(not session.has(wire.READ_ONLY), 'the export is read-only')
        offered(session.size >= least, f'the export is smaller than {least} bytes')
        for flag in flags:
            offered(session.has(flag), f'transmission flag {flag.bit_length() - 1}')
        return session

    def with_status(self, style='structured'):
        return self.go(style, ('base:allocation',))

    def listed_contexts(self):
        """The names of all metadata contexts of the server."""
        negotiation = self.connect_for('structured')
        answer = negotiation.option(wire.LIST_META_CONTEXT, wire.context_query(self.export))
        offered(answer.ok and answer.contexts(), f'metadata contexts: {answer.name}')
        return [name for _, name in answer.contexts()]

    def bytewise(self, *args, **kwargs):
        """A writable connection whose minimum block is one byte."""
        session = self.writable(*args, **kwargs)
        offered(not session.block_sizes or session.block_sizes[0] == 1,
                f'requests of any alignment: the minimum block is {session.block_sizes}')
        return session

    def unknown_export(self):
        """A name that the server does not serve. Some servers accept any name."""
        name = 'no-such-export-9f2c'
        if self.connect().info(name).ok:
            raise NotOffered('the server accepts any export name')
        return name

    @contextlib.contextmanager
    def bystander(self):
        """Fails if the actions inside affect another client, connected before or after them."""
        other = self.go()
        yield
        expect(other.alive(), 'an unrelated client lost its connection')
        expect(self.go().alive(), 'a new client is not served')
