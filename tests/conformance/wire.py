"""The bytes of NBD and sockets with a deadline: what every rule needs to speak to a server.

Nothing in here knows a rule; what is malformed beyond understanding is a Broken."""
import socket
import ssl
import struct
import time

KiB, MiB, GiB = 1 << 10, 1 << 20, 1 << 30

INIT_MAGIC = 0x4e42444d41474943
OPTION_MAGIC = 0x49484156454F5054
OPTION_REPLY_MAGIC = 0x3e889045565a9
REQUEST_MAGIC = 0x25609513
SIMPLE_MAGIC = 0x67446698
STRUCTURED_MAGIC = 0x668e33ef
EXTENDED_REQUEST_MAGIC = 0x21e41c71
EXTENDED_MAGIC = 0x6e8a278c
RESERVED_MAGICS = (0x12560953, 0x96744668, 0x25609514)

# Handshake flags, and the client's answer.
FIXED_NEWSTYLE, NO_ZEROES = 1, 2

# Options.
(EXPORT_NAME, ABORT, LIST, PEEK_EXPORT, STARTTLS, INFO, GO, STRUCTURED_REPLY, LIST_META_CONTEXT,
 SET_META_CONTEXT, EXTENDED_HEADERS) = range(1, 12)
UNKNOWN_OPTION = 0x7654

# Replies to options.
REP_ACK, REP_SERVER, REP_INFO, REP_META_CONTEXT = range(1, 5)
(ERR_UNSUP, ERR_POLICY, ERR_INVALID, ERR_PLATFORM, ERR_TLS_REQD, ERR_UNKNOWN, ERR_SHUTDOWN,
 ERR_BLOCK_SIZE_REQD, ERR_TOO_BIG, ERR_EXT_HEADER_REQD) = range((1 << 31) + 1, (1 << 31) + 11)
INFO_EXPORT, INFO_NAME, INFO_DESCRIPTION, INFO_BLOCK_SIZE = range(4)

# Transmission flags.
(HAS_FLAGS, READ_ONLY, SEND_FLUSH, SEND_FUA, ROTATIONAL, SEND_TRIM, SEND_WRITE_ZEROES, SEND_DF,
 CAN_MULTI_CONN, SEND_RESIZE, SEND_CACHE, SEND_FAST_ZERO, BLOCK_STATUS_PAYLOAD) = (
     1 << bit for bit in range(13))

# Commands and their flags.
READ, WRITE, DISC, FLUSH, TRIM, CACHE, WRITE_ZEROES, BLOCK_STATUS = range(8)
FUA, NO_HOLE, DF, REQ_ONE, FAST_ZERO, PAYLOAD_LEN = (1 << bit for bit in range(6))

# Chunks.
DONE = 1
CHUNK_NONE, CHUNK_DATA, CHUNK_HOLE = 0, 1, 2
CHUNK_STATUS, CHUNK_STATUS_EXT = 5, 6
CHUNK_ERROR, CHUNK_ERROR_OFFSET = 0x8001, 0x8002

# Errors.
OK, EPERM, EIO, ENOMEM, EINVAL, ENOSPC, EOVERFLOW, ENOTSUP, ESHUTDOWN = (
    0, 1, 5, 12, 22, 28, 75, 95, 108)

STATE_HOLE, STATE_ZERO = 1, 2
MAX_STRING = 4096


def _names(*prefixes):
    return {value: name for name, value in globals().items()
            if name.isupper() and isinstance(value, int) and name.startswith(prefixes)}


OPTION_NAMES = {globals()[name]: name for name in (
    'EXPORT_NAME ABORT LIST PEEK_EXPORT STARTTLS INFO GO STRUCTURED_REPLY LIST_META_CONTEXT '
    'SET_META_CONTEXT EXTENDED_HEADERS').split()}
REPLY_NAMES = _names('REP_', 'ERR_')
ERROR_NAMES = {globals()[name]: name for name in (
    'OK EPERM EIO ENOMEM EINVAL ENOSPC EOVERFLOW ENOTSUP ESHUTDOWN').split()}
COMMAND_NAMES = {globals()[name]: name for name in (
    'READ WRITE DISC FLUSH TRIM CACHE WRITE_ZEROES BLOCK_STATUS').split()}


def named(names, value):
    return names.get(value, hex(value) if value > 9 else str(value))


class Broken(Exception):
    """The server sent what cannot be a message of the protocol."""


class Closed(Exception):
    """The server closed the connection."""


class Late(Exception):
    """Nothing came before the deadline."""


class Unreachable(Exception):
    """There is no connection to be had."""


class Stream:
    """A socket on which every wait ends at `deadline`."""

    def __init__(self, address, deadline):
        self.deadline = deadline
        try:
            if isinstance(address, str):
                self.socket = socket.socket(socket.AF_UNIX)
                self.connect_unix(address)
            else:
                self.socket = socket.create_connection(address, self.left())
                self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError as error:
            raise Unreachable(f'cannot connect: {error}') from error

    def connect_unix(self, path):
        while True:
            self.socket.settimeout(self.left())
            try:
                return self.socket.connect(path)
            except BlockingIOError:  # its backlog is full: TCP waits by itself
                time.sleep(0.01)

    def left(self):
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise Late('the time for this rule is up')
        return left

    def send(self, *parts):
        data = b''.join(parts)
        try:
            self.socket.settimeout(self.left())
            self.socket.sendall(data)
        except TimeoutError as error:
            raise Late(f'the server did not take {len(data)} bytes in time') from error
        except OSError as error:
            raise Closed(f'the server closed while {len(data)} bytes were sent to it') from error

    def receive(self, length):
        data = bytearray(length)
        view, have = memoryview(data), 0
        while have < length:
            try:
                self.socket.settimeout(self.left())
                got = self.socket.recv_into(view[have:])
            except TimeoutError as error:
                raise Late(f'the server sent {have} of {length} bytes, then nothing') from error
            except OSError as error:
                raise Closed(f'the server reset the connection: {error}') from error
            if not got:
                raise Closed(f'the server closed after {have} of {length} bytes')
            have += got
        return bytes(data)

    def unpack(self, layout):
        layout = '>' + layout
        return struct.unpack(layout, self.receive(struct.calcsize(layout)))

    def silent(self, seconds=0.15):
        """True where nothing at all comes for a while; what comes is lost."""
        try:
            self.socket.settimeout(min(seconds, self.left()))
            self.socket.recv(1)
            return False
        except (TimeoutError, ssl.SSLWantReadError):
            return True
        except OSError:
            return False

    def wait_closed(self):
        """Returns how many bytes still came before the server closed; Late where it does not."""
        count = 0
        while True:
            try:
                self.socket.settimeout(self.left())
                got = self.socket.recv(64 * KiB)
            except TimeoutError as error:
                raise Late('the server did not close the connection') from error
            except OSError:
                return count
            if not got:
                return count
            count += len(got)

    def start_tls(self, context, hostname):
        """The socket is TLS from here on; raises ssl.SSLError."""
        self.socket.settimeout(self.left())
        self.socket = context.wrap_socket(self.socket, server_hostname=hostname)

    def close(self):
        self.socket.close()


def pack_string(text):
    data = text.encode() if isinstance(text, str) else text
    return struct.pack('>I', len(data)) + data


def info_request(name, *infos):
    """Data of INFO and GO."""
    return pack_string(name) + struct.pack('>H', len(infos)) + b''.join(
        struct.pack('>H', info) for info in infos)


def context_query(name, *queries):
    """Data of LIST_META_CONTEXT and SET_META_CONTEXT."""
    return pack_string(name) + struct.pack('>I', len(queries)) + b''.join(map(pack_string, queries))
