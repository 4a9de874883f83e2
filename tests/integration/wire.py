"""The NBD protocol of all Python tests: its numbers and messages, a connection, and a client for tests of gpunbd.

Nothing here depends on gpunbd, and a message may be malformed. Standard library only. Numbers and layouts: doc/proto.md
of the NBD project.
"""
import socket
import ssl
import struct
import time
from dataclasses import dataclass

KiB, MiB, GiB = 1 << 10, 1 << 20, 1 << 30

INIT_MAGIC = 0x4E42444D41474943
OPTION_MAGIC = 0x49484156454F5054
OPTION_REPLY_MAGIC = 0x3E889045565A9
REQUEST_MAGIC = 0x25609513
SIMPLE_MAGIC = 0x67446698
STRUCTURED_MAGIC = 0x668E33EF
EXTENDED_REQUEST_MAGIC = 0x21E41C71
EXTENDED_MAGIC = 0x6E8A278C
RESERVED_MAGICS = (0x12560953, 0x96744668, 0x25609514)

# Handshake flags, and the client's answer.
FIXED_NEWSTYLE, NO_ZEROES = 1, 2

# Options.
(EXPORT_NAME, ABORT, LIST, PEEK_EXPORT, STARTTLS, INFO, GO, STRUCTURED_REPLY, LIST_META_CONTEXT,
 SET_META_CONTEXT, EXTENDED_HEADERS) = range(1, 12)
UNKNOWN_OPTION = 0x7654

# Replies to options.
REP_ACK, REP_SERVER, REP_INFO, REP_META_CONTEXT = range(1, 5)
REP_ERR = 1 << 31
(ERR_UNSUP, ERR_POLICY, ERR_INVALID, ERR_PLATFORM, ERR_TLS_REQD, ERR_UNKNOWN, ERR_SHUTDOWN,
 ERR_BLOCK_SIZE_REQD, ERR_TOO_BIG, ERR_EXT_HEADER_REQD) = range(REP_ERR + 1, REP_ERR + 11)
INFO_EXPORT, INFO_NAME, INFO_DESCRIPTION, INFO_BLOCK_SIZE = range(4)

# Transmission flags.
(HAS_FLAGS, READ_ONLY, SEND_FLUSH, SEND_FUA, ROTATIONAL, SEND_TRIM, SEND_WRITE_ZEROES, SEND_DF,
 CAN_MULTI_CONN, SEND_RESIZE, SEND_CACHE, SEND_FAST_ZERO, BLOCK_STATUS_PAYLOAD) = (1 << bit for bit in range(13))

# Commands and their flags.
READ, WRITE, DISC, FLUSH, TRIM, CACHE, WRITE_ZEROES, BLOCK_STATUS = range(8)
FUA, NO_HOLE, DF, REQ_ONE, FAST_ZERO, PAYLOAD_LEN = (1 << bit for bit in range(6))

# Chunks.
DONE = 1
CHUNK_NONE, CHUNK_DATA, CHUNK_HOLE = 0, 1, 2
CHUNK_STATUS, CHUNK_STATUS_EXT = 5, 6
CHUNK_ERROR, CHUNK_ERROR_OFFSET = 0x8001, 0x8002

# Errors.
OK, EPERM, EIO, ENOMEM, EINVAL, ENOSPC, EOVERFLOW, ENOTSUP, ESHUTDOWN = 0, 1, 5, 12, 22, 28, 75, 95, 108

STATE_HOLE, STATE_ZERO = 1, 2
MAX_STRING = 4096


def _names(words):
    return {globals()[word]: word for word in words.split()}


OPTION_NAMES = _names('EXPORT_NAME ABORT LIST PEEK_EXPORT STARTTLS INFO GO STRUCTURED_REPLY LIST_META_CONTEXT '
                      'SET_META_CONTEXT EXTENDED_HEADERS')
REPLY_NAMES = _names('REP_ACK REP_SERVER REP_INFO REP_META_CONTEXT ERR_UNSUP ERR_POLICY ERR_INVALID ERR_PLATFORM '
                     'ERR_TLS_REQD ERR_UNKNOWN ERR_SHUTDOWN ERR_BLOCK_SIZE_REQD ERR_TOO_BIG ERR_EXT_HEADER_REQD')
ERROR_NAMES = _names('OK EPERM EIO ENOMEM EINVAL ENOSPC EOVERFLOW ENOTSUP ESHUTDOWN')
COMMAND_NAMES = _names('READ WRITE DISC FLUSH TRIM CACHE WRITE_ZEROES BLOCK_STATUS')


def named(names, value):
    return names.get(value, hex(value) if value > 9 else str(value))


class Broken(Exception):
    """The server sent what cannot be a message of the protocol."""


class Closed(Exception):
    """The server closed the connection."""


class Late(TimeoutError):
    """Nothing came before the deadline."""


class Refused(Exception):
    """An option was answered with an error; args[0] is its number."""


class Failed(Exception):
    """A command was answered with an error; args[0] is its number."""


# Messages of the handshake.

def encode_greeting(flags=FIXED_NEWSTYLE | NO_ZEROES, magic=INIT_MAGIC, option_magic=OPTION_MAGIC):
    return struct.pack('>QQH', magic, option_magic, flags)


def encode_flags(flags=FIXED_NEWSTYLE | NO_ZEROES):
    return struct.pack('>I', flags)


def encode_option(option, data=b'', length=None, magic=OPTION_MAGIC):
    return struct.pack('>QII', magic, option, len(data) if length is None else length) + data


def encode_option_reply(option, kind, data=b'', length=None, magic=OPTION_REPLY_MAGIC):
    return struct.pack('>QIII', magic, option, kind, len(data) if length is None else length) + data


def pack_string(text):
    data = text.encode() if isinstance(text, str) else text
    return struct.pack('>I', len(data)) + data


def info_request(name, *infos):
    """Data of INFO and GO."""
    return pack_string(name) + struct.pack(f'>H{len(infos)}H', len(infos), *infos)


def context_query(name, *queries):
    """Data of LIST_META_CONTEXT and SET_META_CONTEXT."""
    return pack_string(name) + struct.pack('>I', len(queries)) + b''.join(map(pack_string, queries))


def encode_handshake(name='', structured=True, contexts=()):
    """All that a client sends up to and including GO."""
    message = encode_flags()
    if structured:
        message += encode_option(STRUCTURED_REPLY)
    if contexts:
        message += encode_option(SET_META_CONTEXT, context_query(name, *contexts))
    return message + encode_option(GO, info_request(name))


# Messages of the transmission phase.

def encode_request(command, offset=0, length=0, flags=0, payload=b'', cookie=0, magic=REQUEST_MAGIC):
    layout = '>IHHQQQ' if magic == EXTENDED_REQUEST_MAGIC else '>IHHQQI'
    return struct.pack(layout, magic, flags, command, cookie, offset, length) + payload


def encode_write(offset, data, cookie=0, flags=0):
    return encode_request(WRITE, offset, len(data), flags, data, cookie)


def encode_simple_reply(cookie, error=OK, data=b''):
    return struct.pack('>IIQ', SIMPLE_MAGIC, error, cookie) + data


def encode_chunk(flags, kind, cookie, payload=b'', offset=None):
    """`offset`: of the request, with extended headers."""
    if offset is None:
        return struct.pack('>IHHQI', STRUCTURED_MAGIC, flags, kind, cookie, len(payload)) + payload
    return struct.pack('>IHHQQQ', EXTENDED_MAGIC, flags, kind, cookie, offset, len(payload)) + payload


@dataclass
class ReplyHead:
    """The header of a simple reply, or of a chunk."""
    style: str  # simple, structured or extended
    cookie: int
    error: int = 0    # of a simple reply
    flags: int = 0    # of a chunk, like everything below
    kind: int = 0
    length: int = 0
    offset: int = None  # of the request, with extended headers


def check_string(data, what):
    """Conventions: "a sequence of UTF-8 code points, [...] MUST NOT contain NUL characters, [...]
    and MUST be no longer than 4096 bytes"."""
    if len(data) > MAX_STRING:
        raise Broken(f'{what} has {len(data)} bytes, a string has at most {MAX_STRING}')
    if b'\0' in data:
        raise Broken(f'{what} contains NUL: {data[:40]!r}')
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise Broken(f'{what} is not UTF-8: {data[:40]!r}') from error


@dataclass
class Chunk:
    flags: int
    kind: int
    payload: bytes

    @property
    def done(self):
        return bool(self.flags & DONE)

    @property
    def is_error(self):
        return bool(self.kind & 0x8000)

    @property
    def is_content(self):
        return self.kind in (CHUNK_DATA, CHUNK_HOLE)

    def error(self):
        """(error, offset or None)"""
        least = 14 if self.kind == CHUNK_ERROR_OFFSET else 6
        if len(self.payload) < least:
            raise Broken(f'an error chunk has {len(self.payload)} bytes, it needs {least}')
        error, length = struct.unpack('>IH', self.payload[:6])
        if length > len(self.payload) - least:
            raise Broken(f'an error message of {length} bytes in {len(self.payload)} bytes')
        check_string(self.payload[6:6 + length], 'the message of an error chunk')
        if error == 0:
            raise Broken('an error chunk has the error 0')
        if self.kind == CHUNK_ERROR_OFFSET:
            return error, struct.unpack('>Q', self.payload[6 + length:14 + length])[0]
        return error, None

    def content(self):
        """(offset, length, data) of a content chunk. The data of a hole are zeroes."""
        if self.kind == CHUNK_DATA:
            if len(self.payload) < 9:
                raise Broken(f'OFFSET_DATA has {len(self.payload)} bytes, at least 9 are needed')
            data = self.payload[8:]
            return struct.unpack('>Q', self.payload[:8])[0], len(data), data
        if len(self.payload) != 12:
            raise Broken(f'OFFSET_HOLE has {len(self.payload)} bytes instead of 12')
        offset, length = struct.unpack('>QI', self.payload)
        if not length:
            raise Broken('OFFSET_HOLE of no bytes')
        return offset, length, bytes(min(length, GiB))

    def status(self):
        """(context id, [(length, flags)])"""
        extended = self.kind == CHUNK_STATUS_EXT
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


def contents(what, offset, length, chunks):
    """The data of a READ. Chunks "MUST lie within the bounds", "MUST NOT overlap", and "the server MUST send enough
    data chunks to cover the entire region"."""
    out, covered = bytearray(length), []
    for chunk in chunks:
        if not chunk.is_content:
            continue
        at, count, data = chunk.content()
        start = at - offset
        if start < 0 or start + count > length:
            raise Broken(f'{what}: a chunk for {at:#x}+{count:#x} is outside of it')
        if any(start < end and begin < start + count for begin, end in covered):
            raise Broken(f'{what}: chunks overlap at {at:#x}+{count:#x}')
        covered.append((start, start + count))
        out[start:start + count] = data
    if sum(end - begin for begin, end in covered) != length:
        raise Broken(f'{what}: success, but the chunks do not cover it')
    return bytes(out)


class Stream:
    """A connected socket. Each wait ends after `timeout` seconds (None: never), or all of them at `deadline`.

    `address`: the path of a Unix socket, (host, port), or a connected socket."""

    def __init__(self, address, timeout=30, deadline=None):
        self.deadline = deadline
        timeout = timeout if deadline is None else self.left()
        if isinstance(address, socket.socket):
            self.socket = address
        elif isinstance(address, str):
            self.socket = socket.socket(socket.AF_UNIX)
            # Blocking: a connect with a timeout of Python fails at once where many wait to be accepted.
            limit = timeout or 0
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO,
                                   struct.pack('ll', int(limit), int(limit % 1 * 1e6)))
            self.socket.connect(address)
        else:
            self.socket = socket.create_connection(address, timeout)
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.settimeout(timeout)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.socket.close()

    def left(self):
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise Late('the deadline has passed')
        return left

    def wait(self):
        """Bounds the next wait."""
        if self.deadline is not None:
            self.socket.settimeout(self.left())

    def send(self, *parts):
        data = b''.join(parts)
        try:
            self.wait()
            self.socket.sendall(data)
        except TimeoutError as error:
            raise Late(f'the server did not take {len(data)} bytes in time') from error
        except OSError as error:
            raise Closed(f'the server closed while {len(data)} bytes were sent to it: {error}') from error

    def receive(self, size):
        data = bytearray(size)
        view, have = memoryview(data), 0
        while have < size:
            try:
                self.wait()
                got = self.socket.recv_into(view[have:])
            except TimeoutError as error:
                raise Late(f'the server sent {have} of {size} bytes, then nothing') from error
            except OSError as error:
                raise Closed(f'the server reset the connection after {have} of {size} bytes: {error}') from error
            if not got:
                raise Closed(f'the server closed after {have} of {size} bytes')
            have += got
        return bytes(data)

    def rest(self):
        """Everything that the server still sends until it disconnects."""
        data = bytearray()
        while True:
            try:
                self.wait()
                piece = self.socket.recv(64 * KiB)
            except TimeoutError as error:
                raise Late('the server did not close the connection') from error
            except OSError:
                return bytes(data)
            if not piece:
                return bytes(data)
            data += piece

    def peek(self, size):
        try:
            self.wait()
            data = self.socket.recv(size, socket.MSG_PEEK | socket.MSG_WAITALL)
        except ConnectionError as error:
            raise Closed(str(error)) from error
        if len(data) < size:
            raise Closed(f'after {len(data)} bytes')
        return data

    def silent(self, seconds=0.15):
        """Whether nothing arrives for a while; what arrives is lost."""
        try:
            self.socket.settimeout(min(seconds, self.left()))
            self.socket.recv(1)
            return False
        except (TimeoutError, ssl.SSLWantReadError):
            return True
        except OSError:
            return False

    def start_tls(self, context, hostname):
        """Raises ssl.SSLError."""
        self.wait()
        self.socket = context.wrap_socket(self.socket, server_hostname=hostname)

    def unpack(self, layout):
        return struct.unpack('>' + layout, self.receive(struct.calcsize('>' + layout)))

    def greeting(self):
        """The server's handshake flags."""
        magic, option_magic, flags = self.unpack('QQH')
        if magic != INIT_MAGIC:
            raise Broken(f'the greeting starts with {magic:#x} instead of NBDMAGIC')
        if option_magic != OPTION_MAGIC:
            raise Broken(f'NBDMAGIC is followed by {option_magic:#x} instead of IHAVEOPT')
        return flags

    def option_reply(self, option):
        """(type, data) of the next reply, which must be one to this option."""
        magic, echoed, kind, length = self.unpack('QIII')
        name = named(OPTION_NAMES, option)
        if magic != OPTION_REPLY_MAGIC:
            raise Broken(f'the reply to {name} starts with {magic:#x}')
        if echoed != option:
            raise Broken(f'the reply to {name} says that it is for option {echoed}')
        if length > MiB:
            raise Broken(f'the reply to {name} claims {length} bytes')
        return kind, self.receive(length)

    def reply_head(self):
        magic, = self.unpack('I')
        if magic == SIMPLE_MAGIC:
            error, cookie = self.unpack('IQ')
            return ReplyHead('simple', cookie, error)
        if magic == STRUCTURED_MAGIC:
            flags, kind, cookie, length = self.unpack('HHQI')
            return ReplyHead('structured', cookie, 0, flags, kind, length)
        if magic == EXTENDED_MAGIC:
            flags, kind, cookie, offset, length = self.unpack('HHQQQ')
            return ReplyHead('extended', cookie, 0, flags, kind, length, offset)
        raise Broken(f'a reply starts with {magic:#x}')


class Wire(Stream):
    """A client without extended headers that sends what a test wants, by default one request at a time."""

    structured = False
    cookie = 0  # of the last request

    # Negotiation.

    def greet(self, flags=FIXED_NEWSTYLE | NO_ZEROES):
        server = self.greeting()
        self.send(encode_flags(flags))
        return server

    def option(self, option, data=b'', length=None, magic=OPTION_MAGIC):
        self.send(encode_option(option, data, length, magic))

    def option_replies(self, option):
        """[(type, data)] up to the ACK, which is left out; an error raises Refused."""
        replies = []
        while True:
            kind, data = self.option_reply(option)
            if kind == REP_ACK:
                assert data == b'', data
                return replies
            if kind & REP_ERR:
                raise Refused(kind, data.decode())
            replies.append((kind, data))

    def request_option(self, option, data=b''):
        self.option(option, data)
        return self.option_replies(option)

    def request_structured_replies(self):
        assert self.request_option(STRUCTURED_REPLY) == []
        self.structured = True

    def meta_context(self, name, *queries, option=SET_META_CONTEXT):
        """{context: id}."""
        replies = self.request_option(option, context_query(name, *queries))
        assert all(kind == REP_META_CONTEXT for kind, _ in replies), replies
        return {data[4:].decode(): struct.unpack('>I', data[:4])[0] for _, data in replies}

    def info(self, name='', infos=(), option=INFO):
        """The information of INFO or GO: {info: its data after the number}."""
        told = {}
        for kind, data in self.request_option(option, info_request(name, *infos)):
            assert kind == REP_INFO, kind
            told[struct.unpack('>H', data[:2])[0]] = data[2:]
        self.size, self.flags = struct.unpack('>QH', told[INFO_EXPORT])
        return told

    def go(self, name='', infos=()):
        return self.info(name, infos, GO)

    def listed(self):
        """The names of LIST."""
        return [data[4:4 + int.from_bytes(data[:4], 'big')].decode() for _, data in self.request_option(LIST)]

    # Transmission.

    def request(self, command, offset=0, length=0, flags=0, payload=b'', cookie=None, magic=REQUEST_MAGIC):
        if cookie is None:
            self.cookie += 1
            cookie = self.cookie
        self.send(encode_request(command, offset, length, flags, payload, cookie, magic))
        return cookie

    def simple_reply(self):
        """(error, cookie)"""
        head = self.reply_head()
        assert head.style == 'simple', head
        return head.error, head.cookie

    def part(self):
        """(header, chunk) of a reply, or (header, None) of a simple one. The data of a simple READ are not received."""
        head = self.reply_head()
        return head, None if head.style == 'simple' else Chunk(head.flags, head.kind, self.receive(head.length))

    def chunks(self, cookie):
        """The chunks of one structured reply, successful or not."""
        chunks = []
        while not chunks or not chunks[-1].done:
            head, chunk = self.part()
            assert head.style == 'structured' and head.cookie == cookie, (head, cookie)
            assert head.flags in (0, DONE), head
            assert chunk.kind != CHUNK_NONE or chunk.payload == b'', chunk
            chunks.append(chunk)
        return chunks

    def successful_chunks(self, cookie):
        chunks = self.chunks(cookie)
        for chunk in chunks:
            if chunk.is_error:
                raise Failed(chunk.error()[0])
        return chunks

    def simple_success(self, cookie):
        error, answered = self.simple_reply()
        assert answered == cookie, (answered, cookie)
        if error:
            raise Failed(error)

    def done(self, cookie):
        """The end of a command that brings no data; an error raises Failed."""
        if struct.unpack('>I', self.peek(4))[0] == SIMPLE_MAGIC:
            self.simple_success(cookie)
        else:
            assert [chunk.kind for chunk in self.successful_chunks(cookie)] == [CHUNK_NONE]

    def do(self, command, offset=0, length=0, flags=0, payload=b''):
        self.done(self.request(command, offset, length, flags, payload))

    def write(self, offset, data, flags=0):
        self.do(WRITE, offset, len(data), flags, data)

    def flush(self):
        self.do(FLUSH)

    def trim(self, offset, length, flags=0):
        self.do(TRIM, offset, length, flags)

    def zero(self, offset, length, flags=0):
        self.do(WRITE_ZEROES, offset, length, flags)

    def read(self, offset, length, flags=0):
        return self.read_answer(self.request(READ, offset, length, flags), offset, length)

    def read_answer(self, cookie, offset, length):
        """The bytes of a READ, after a check that its chunks cover it once."""
        if self.structured:
            return contents('READ', offset, length, self.successful_chunks(cookie))
        self.simple_success(cookie)
        return self.receive(length)

    def status(self, offset, length, flags=0):
        """BLOCK_STATUS: (context id, [(length, state)])"""
        answer, = self.successful_chunks(self.request(BLOCK_STATUS, offset, length, flags))
        assert answer.kind == CHUNK_STATUS, answer
        return answer.status()

    def disconnect(self):
        self.request(DISC)
        left = self.rest()
        assert left == b'', left
        self.close()


def connect(address, name='', structured=True, contexts=('base:allocation',), timeout=30):
    """A connection that has come as far as the transmission phase."""
    wire = Wire(address, timeout)
    wire.greet()
    if structured:
        wire.request_structured_replies()
        if contexts:
            wire.meta_context(name, *contexts)
    wire.go(name)
    return wire


def read_once(address, name, offset, length):
    """The bytes that a connection of its own reads."""
    with connect(address, name) as client:
        return client.read(offset, length)


def write_once(address, name, offset, data):
    with connect(address, name) as client:
        client.write(offset, data)
