"""An NBD client that sends exactly the given bytes, valid or not.

Standard library only, so that it also runs where libnbd is not installed.
Numbers and layouts: doc/proto.md of the NBD project.
"""
import socket
import ssl
import struct

NBDMAGIC = 0x4E42444D41474943
IHAVEOPT = 0x49484156454F5054
OPTION_REPLY = 0x3E889045565A9
REQUEST = 0x25609513
SIMPLE_REPLY = 0x67446698
STRUCTURED_REPLY = 0x668E33EF

FIXED_NEWSTYLE, NO_ZEROES = 1, 2

(OPT_EXPORT_NAME, OPT_ABORT, OPT_LIST, OPT_PEEK, OPT_STARTTLS, OPT_INFO, OPT_GO,
 OPT_STRUCTURED_REPLY, OPT_LIST_META_CONTEXT, OPT_SET_META_CONTEXT) = range(1, 11)

REP_ACK, REP_SERVER, REP_INFO, REP_META_CONTEXT = 1, 2, 3, 4
REP_ERR = 1 << 31
(ERR_UNSUP, ERR_POLICY, ERR_INVALID, ERR_PLATFORM, ERR_TLS_REQD, ERR_UNKNOWN, ERR_SHUTDOWN,
 ERR_BLOCK_SIZE_REQD, ERR_TOO_BIG) = range(REP_ERR + 1, REP_ERR + 10)

INFO_EXPORT, INFO_NAME, INFO_DESCRIPTION, INFO_BLOCK_SIZE = range(4)

CMD_READ, CMD_WRITE, CMD_DISC, CMD_FLUSH, CMD_TRIM, CMD_CACHE, CMD_ZEROES, CMD_STATUS = range(8)
FUA, NO_HOLE, DF, REQ_ONE, FAST_ZERO, PAYLOAD_LEN = (1 << n for n in range(6))

CHUNK_NONE, CHUNK_DATA, CHUNK_HOLE, CHUNK_STATUS = 0, 1, 2, 5
CHUNK_ERROR, CHUNK_ERROR_OFFSET = 0x8001, 0x8002
DONE = 1

EPERM, EIO, ENOMEM, EINVAL, ENOSPC, EOVERFLOW, ENOTSUP, ESHUTDOWN = 1, 5, 12, 22, 28, 75, 95, 108

FLAG = {name: 1 << bit for bit, name in enumerate((
    'has_flags', 'read_only', 'flush', 'fua', 'rotational', 'trim', 'zeroes', 'df', 'multi_conn',
    'resize', 'cache', 'fast_zero'))}


class Closed(Exception):
    """The server hung up."""


class Refused(Exception):
    """An option was answered with an error; args[0] is its number."""


class Failed(Exception):
    """A command was answered with an error; args[0] is its number."""


class Wire:
    """One connection. `address`: the path of a Unix socket, or (host, port)."""

    def __init__(self, address, timeout=30):
        if isinstance(address, str):
            self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            # Blocking: else it fails at once where many wait to be accepted.
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack('ll', timeout, 0))
            self.socket.connect(address)
            self.socket.settimeout(timeout)
        else:
            self.socket = socket.create_connection(address, timeout)
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.structured = False
        self.cookie = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.socket.close()

    # Bytes.

    def send(self, data):
        try:
            self.socket.sendall(data)
        except (ConnectionError, ssl.SSLEOFError, ssl.SSLZeroReturnError) as error:
            raise Closed(f'while sending: {error}') from error

    def receive(self, size):
        data = bytearray(size)
        view, got = memoryview(data), 0
        while got < size:
            try:
                count = self.socket.recv_into(view[got:])
            except ConnectionError as error:
                raise Closed(f'after {got} of {size} bytes: {error}') from error
            if count == 0:
                raise Closed(f'after {got} of {size} bytes')
            got += count
        return bytes(data)

    def unpack(self, layout):
        return struct.unpack('>' + layout, self.receive(struct.calcsize('>' + layout)))

    def rest(self):
        """Everything the server still says until it hangs up."""
        data = bytearray()
        while True:
            try:
                piece = self.socket.recv(1 << 16)
            except ConnectionError:
                return bytes(data)
            if not piece:
                return bytes(data)
            data += piece

    # Negotiation.

    def greeting(self):
        """The server's first 18 bytes, checked; its handshake flags."""
        magic, option_magic, flags = self.unpack('QQH')
        assert magic == NBDMAGIC and option_magic == IHAVEOPT, (hex(magic), hex(option_magic))
        return flags

    def greet(self, flags=FIXED_NEWSTYLE | NO_ZEROES):
        server = self.greeting()
        self.send(struct.pack('>I', flags))
        return server

    def option(self, option, data=b'', length=None, magic=IHAVEOPT):
        self.send(struct.pack('>QII', magic, option, len(data) if length is None else length) + data)

    def option_reply(self):
        magic, option, kind, length = self.unpack('QIII')
        assert magic == OPTION_REPLY, hex(magic)
        return option, kind, self.receive(length)

    def option_replies(self, option):
        """[(type, data)] up to the ACK, which is left out; an error raises Refused."""
        replies = []
        while True:
            answered, kind, data = self.option_reply()
            assert answered == option, (answered, option)
            if kind == REP_ACK:
                assert data == b'', data
                return replies
            if kind & REP_ERR:
                raise Refused(kind, data.decode())
            replies.append((kind, data))

    def ask(self, option, data=b''):
        self.option(option, data)
        return self.option_replies(option)

    def ask_structured(self):
        assert self.ask(OPT_STRUCTURED_REPLY) == []
        self.structured = True

    def meta_context(self, name, *queries, option=OPT_SET_META_CONTEXT):
        """{context: id}."""
        replies = self.ask(option, meta_data(name, *queries))
        assert all(kind == REP_META_CONTEXT for kind, _ in replies), replies
        return {data[4:].decode(): struct.unpack('>I', data[:4])[0] for _, data in replies}

    def info(self, name='', infos=(), option=OPT_INFO):
        """The information of INFO or GO: {info: its data after the number}."""
        told = {}
        for kind, data in self.ask(option, info_data(name, *infos)):
            assert kind == REP_INFO, kind
            told[struct.unpack('>H', data[:2])[0]] = data[2:]
        self.size, self.flags = struct.unpack('>QH', told[INFO_EXPORT])
        return told

    def go(self, name='', infos=()):
        return self.info(name, infos, OPT_GO)

    # Transmission.

    def request(self, command, offset=0, length=0, flags=0, payload=b'', cookie=None, magic=REQUEST):
        if cookie is None:
            self.cookie += 1
            cookie = self.cookie
        header = struct.pack('>IHHQQI', magic, flags, command, cookie, offset, length)
        self.send(header + payload)
        return cookie

    def simple_reply(self):
        """(error, cookie)"""
        magic, error, cookie = self.unpack('IIQ')
        assert magic == SIMPLE_REPLY, hex(magic)
        return error, cookie

    def chunk(self):
        """(flags, type, cookie, payload)"""
        magic, flags, kind, cookie, length = self.unpack('IHHQI')
        assert magic == STRUCTURED_REPLY, hex(magic)
        return flags, kind, cookie, self.receive(length)

    def chunks(self, cookie):
        """[(type, payload)] of one structured reply."""
        chunks = []
        while True:
            flags, kind, answered, payload = self.chunk()
            assert answered == cookie, (answered, cookie)
            assert flags in (0, DONE), flags
            chunks.append((kind, payload))
            if flags & DONE:
                return chunks

    def done(self, cookie):
        """The end of a command that brings no data; an error raises Failed."""
        magic = struct.unpack('>I', self.peek(4))[0]
        if magic == SIMPLE_REPLY:
            error, answered = self.simple_reply()
            assert answered == cookie, (answered, cookie)
            if error:
                raise Failed(error)
            return
        for kind, payload in self.chunks(cookie):
            if kind & 0x8000:
                raise Failed(struct.unpack('>I', payload[:4])[0])
            assert kind == CHUNK_NONE and payload == b'', (kind, payload)

    def peek(self, size):
        try:
            data = self.socket.recv(size, socket.MSG_PEEK | socket.MSG_WAITALL)
        except ConnectionError as error:
            raise Closed(str(error)) from error
        if len(data) < size:
            raise Closed(f'after {len(data)} bytes')
        return data

    def do(self, command, offset=0, length=0, flags=0, payload=b''):
        self.done(self.request(command, offset, length, flags, payload))

    def write(self, offset, data, flags=0):
        self.do(CMD_WRITE, offset, len(data), flags, data)

    def flush(self):
        self.do(CMD_FLUSH)

    def trim(self, offset, length, flags=0):
        self.do(CMD_TRIM, offset, length, flags)

    def zero(self, offset, length, flags=0):
        self.do(CMD_ZEROES, offset, length, flags)

    def read(self, offset, length, flags=0):
        return self.read_answer(self.request(CMD_READ, offset, length, flags), offset, length)

    def read_answer(self, cookie, offset, length):
        """The bytes of a READ, after a check that its chunks cover it once."""
        if not self.structured:
            error, answered = self.simple_reply()
            assert answered == cookie, (answered, cookie)
            if error:
                raise Failed(error)
            return self.receive(length)
        data, covered = bytearray(length), 0
        for kind, payload in self.chunks(cookie):
            if kind & 0x8000:
                raise Failed(struct.unpack('>I', payload[:4])[0])
            if kind == CHUNK_NONE:
                assert payload == b'', payload
                continue
            start = struct.unpack('>Q', payload[:8])[0] - offset
            if kind == CHUNK_HOLE:
                size = struct.unpack('>I', payload[8:])[0]
            else:
                assert kind == CHUNK_DATA, kind
                size = len(payload) - 8
                data[start:start + size] = payload[8:]
            assert size > 0 and start >= 0 and start + size <= length, (start, size, length)
            covered += size
        assert covered == length, (covered, length)
        return bytes(data)

    def status(self, offset, length, flags=0):
        """BLOCK_STATUS: (context id, [(length, state)])"""
        answers = self.chunks(self.request(CMD_STATUS, offset, length, flags))
        assert len(answers) == 1, answers
        kind, payload = answers[0]
        if kind & 0x8000:
            raise Failed(struct.unpack('>I', payload[:4])[0])
        assert kind == CHUNK_STATUS, kind
        words = struct.unpack(f'>{len(payload) // 4}I', payload)
        return words[0], list(zip(words[1::2], words[2::2]))

    def disconnect(self):
        self.request(CMD_DISC)
        left = self.rest()
        assert left == b'', left
        self.close()


def info_data(name, *infos):
    name = name.encode()
    return struct.pack('>I', len(name)) + name + struct.pack(f'>H{len(infos)}H', len(infos), *infos)


def meta_data(name, *queries):
    name = name.encode()
    data = struct.pack('>I', len(name)) + name + struct.pack('>I', len(queries))
    for query in queries:
        data += struct.pack('>I', len(query)) + query.encode()
    return data


def connect(address, name='', structured=True, contexts=('base:allocation',), timeout=30):
    """A connection that has come as far as the transmission phase."""
    wire = Wire(address, timeout)
    wire.greet()
    if structured:
        wire.ask_structured()
        if contexts:
            wire.meta_context(name, *contexts)
    wire.go(name)
    return wire
