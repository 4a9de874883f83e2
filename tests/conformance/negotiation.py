"""The client side of option negotiation: greeting, options and their replies."""
import struct

import wire
from wire import Broken, check_string


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
        self.flags = stream.greeting()
        if client_flags is not None:
            stream.send(wire.encode_flags(client_flags))

    def send(self, option, data=b'', length=None, magic=wire.OPTION_MAGIC):
        self.stream.send(wire.encode_option(option, data, length, magic))

    def reply(self, option):
        kind, data = self.stream.option_reply(option)
        name = wire.named(wire.OPTION_NAMES, option)
        if kind == wire.REP_ACK and data:
            raise Broken(f'the ACK of {name} has {len(data)} bytes of data')
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
