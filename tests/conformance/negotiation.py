"""The client side of option negotiation: greeting, options and their replies."""
import struct

import wire
from wire import Broken


def check_string(data, what):
    """Conventions: "a sequence of UTF-8 code points, [...] MUST NOT contain NUL characters, [...]
    and MUST be no longer than 4096 bytes"."""
    if len(data) > wire.MAX_STRING:
        raise Broken(f'{what} has {len(data)} bytes, a string has at most {wire.MAX_STRING}')
    if b'\0' in data:
        raise Broken(f'{what} contains NUL: {data[:40]!r}')
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise Broken(f'{what} is not UTF-8: {data[:40]!r}') from error


class Answer:
    """All replies to one option. The last one is final."""

    def __init__(self, replies):
        self.replies = replies
        self.final, self.data = replies[-1]

    @property
    def ok(self):
        return self.final == wire.REP_ACK

    @property
    def name(self):
        return wire.named(wire.REPLY_NAMES, self.final)

    def of(self, kind):
        return [data for reply, data in self.replies if reply == kind]

    def exports(self):
        names = []
        for data in self.of(wire.REP_SERVER):
            if len(data) < 4:
                raise Broken(f'REP_SERVER has {len(data)} bytes')
            length, = struct.unpack('>I', data[:4])
            if length > len(data) - 4:
                raise Broken(f'REP_SERVER: a name of {length} bytes in {len(data)} bytes')
            check_string(data[4 + length:], 'the description of an export')
            names.append(check_string(data[4:4 + length], 'the name of an export'))
        return names

    def infos(self):
        """(type, payload) of each REP_INFO. Checks the payload lengths that the specification fixes."""
        found = []
        for data in self.of(wire.REP_INFO):
            if len(data) < 2:
                raise Broken(f'REP_INFO has {len(data)} bytes')
            kind, = struct.unpack('>H', data[:2])
            fixed = {wire.INFO_EXPORT: 12, wire.INFO_BLOCK_SIZE: 14}.get(kind)
            if fixed and len(data) != fixed:
                raise Broken(f'information {kind} has {len(data)} bytes instead of {fixed}')
            if kind in (wire.INFO_NAME, wire.INFO_DESCRIPTION):
                check_string(data[2:], f'information {kind}')
            found.append((kind, data[2:]))
        return found

    def export(self):
        """(size, transmission flags), or None."""
        for kind, payload in self.infos():
            if kind == wire.INFO_EXPORT:
                return struct.unpack('>QH', payload)
        return None

    def block_sizes(self):
        """(minimum, preferred, maximum), or None."""
        for kind, payload in self.infos():
            if kind == wire.INFO_BLOCK_SIZE:
                return struct.unpack('>III', payload)
        return None

    def contexts(self):
        """(id, name) of each metadata context."""
        found = []
        for data in self.of(wire.REP_META_CONTEXT):
            if len(data) < 5:
                raise Broken(f'REP_META_CONTEXT has {len(data)} bytes')
            name = check_string(data[4:], 'the name of a metadata context')
            if not name.partition(':')[1]:
                raise Broken(f'the metadata context {name!r} has no namespace')
            found.append((struct.unpack('>I', data[:4])[0], name))
        return found


class Negotiation:
    """A connection before transmission. Tests send malformed bytes through `stream`."""

    def __init__(self, stream, client_flags):
        self.stream = stream
        magic, options, self.flags = stream.unpack('QQH')
        if magic != wire.INIT_MAGIC:
            raise Broken(f'the greeting starts with {magic:#x} instead of NBDMAGIC')
        if options != wire.OPTION_MAGIC:
            raise Broken(f'NBDMAGIC is followed by {options:#x} instead of IHAVEOPT')
        if client_flags is not None:
            stream.send(struct.pack('>I', client_flags))

    def send(self, option, data=b'', length=None, magic=wire.OPTION_MAGIC):
        length = len(data) if length is None else length
        self.stream.send(struct.pack('>QII', magic, option, length), data)

    def reply(self, option):
        magic, echoed, kind, length = self.stream.unpack('QIII')
        name = wire.named(wire.OPTION_NAMES, option)
        if magic != wire.OPTION_REPLY_MAGIC:
            raise Broken(f'the reply to {name} starts with {magic:#x}')
        if echoed != option:
            raise Broken(f'the reply to {name} says that it is for option {echoed}')
        if length > wire.MiB:
            raise Broken(f'the reply to {name} claims {length} bytes')
        data = self.stream.receive(length)
        if kind == wire.REP_ACK and data:
            raise Broken(f'the ACK of {name} has {length} bytes of data')
        if kind >= 1 << 31:
            check_string(data, f'the error message to {name}')
        elif kind not in wire.REPLY_NAMES:
            raise Broken(f'{name} is answered by the unknown reply type {kind}')
        return kind, data

    def answer(self, option):
        replies = [self.reply(option)]
        while replies[-1][0] != wire.REP_ACK and replies[-1][0] < 1 << 31:
            replies.append(self.reply(option))
        return Answer(replies)

    def option(self, option, data=b''):
        self.send(option, data)
        return self.answer(option)

    def info(self, name, *infos):
        return self.option(wire.INFO, wire.info_request(name, *infos))

    def go(self, name, *infos):
        return self.option(wire.GO, wire.info_request(name, *infos))

    def in_step(self):
        """Whether the server still parses options: it refuses an unknown one with the specified error."""
        try:
            return self.option(wire.UNKNOWN_OPTION).final in (wire.ERR_UNSUP, wire.ERR_TLS_REQD)
        except (wire.Closed, Broken):
            return False
