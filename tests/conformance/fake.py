"""A small in-memory NBD server that complies with every rule, except for one injected fault.

It tests the suite: each fault must make its rule fail. It also provides features that the installed
servers lack, such as extended headers and a small export."""
import select
import socket
import socketserver
import struct
import threading

import wire

SIZE = 8 * wire.MiB
BLOCK = 65536  # granularity of holes
MAXIMUM = 4 * wire.MiB  # data in one request
CONTEXTS = {b'base:allocation': 5, b'fake:zero': 9}
ALLOCATION_ID = CONTEXTS[b'base:allocation']
FLAGS = (wire.HAS_FLAGS | wire.SEND_FLUSH | wire.SEND_FUA | wire.SEND_TRIM | wire.SEND_WRITE_ZEROES
         | wire.CAN_MULTI_CONN | wire.SEND_CACHE | wire.SEND_FAST_ZERO)
KNOWN_FLAGS = {wire.READ: wire.DF, wire.WRITE: 0, wire.FLUSH: 0, wire.TRIM: 0, wire.CACHE: 0,
               wire.WRITE_ZEROES: wire.NO_HOLE | wire.FAST_ZERO, wire.BLOCK_STATUS: wire.REQ_ONE}

# Each fault, and the rule that must detect it.
FAULTS = {
    'greets twice': 'greeting',
    'sets a third handshake flag': 'no other handshake flag is set',
    'accepts unknown client flags': 'an unknown client flag ends the connection',
    'omits the zeroes': 'EXPORT_NAME without NO_ZEROES pads with 124 zeroes',
    'sends zeroes in spite of NO_ZEROES': 'EXPORT_NAME with NO_ZEROES pads with nothing',
    'sends zeroes after GO': 'no zeroes follow GO, with or without NO_ZEROES',
    'serves unknown exports': 'EXPORT_NAME of an unknown export ends the session',
    'closes at an unknown option': 'an unknown option is answered with ERR_UNSUP',
    'does not skip unknown data': 'the data of an unknown option are skipped',
    'echoes another option': 'each reply echoes its option',
    'refuses ABORT': 'ABORT is acknowledged',
    'acknowledges LIST with data': 'LIST with data is refused with ERR_INVALID',
    'acknowledges STRUCTURED_REPLY with data':
        'STRUCTURED_REPLY with data is refused with ERR_INVALID',
    'refuses unknown information': 'unknown information requests are ignored',
    'omits INFO_EXPORT': 'INFO_EXPORT comes before the ACK',
    'reads names past the option': 'contradicting lengths in INFO and GO are never accepted',
    'closes at long names': 'a name of 4096 bytes is accepted',
    'echoes long names': 'error messages are strings',
    'asks for TLS without supporting it': 'a server without TLS continues, and never asks for TLS',
    'acknowledges STARTTLS with data': 'STARTTLS with data is refused as permitted',
    'describes a TLS-only export': 'INFO and GO of a TLS-only export ask for TLS',
    'serves a TLS-only export by its name': 'EXPORT_NAME of a TLS-only export ends the session',
    'asks for TLS too often': 'only INFO and GO ask for TLS',
    'reports unknown contexts': 'queries of an unknown namespace are ignored',
    'accepts base: as a selection': 'SET ignores base: alone',
    'keeps the set when SET fails': 'a failed SET clears the set',
    'keeps the set for another export': 'GO for another name clears the set',
    'selects by LIST': 'LIST selects nothing',
    'selects by the beginning of a name': 'a query similar to a context name selects nothing',
    'selects a context twice': 'a context queried twice is selected once',
    'reads queries past the option': 'contradicting lengths in a query are ERR_INVALID',
    'sets SEND_DF always': 'SEND_DF is clear without structured replies',
    'clears HAS_FLAGS': 'HAS_FLAGS is set',
    'sends another cookie': 'any cookie is echoed',
    'mixes up two cookies': 'each of many requests in flight is answered once',
    'drops the end of a write': 'written data are read back',
    'writes a byte too much': 'a write does not change its neighbours',
    'writes no zeroes': 'zeroes are read exactly where they were written',
    'refuses FUA on READ': 'FUA is accepted on every command',
    'never answers FLUSH': 'an advertised FLUSH succeeds',
    'closes at length 0': 'a request of length 0 does not end the connection',
    'drops requests in flight at DISC': 'requests in flight at DISC are still answered',
    'refuses requests in flight at DISC': 'requests in flight at DISC succeed',
    'loses writes before DISC': 'writes acknowledged around DISC are complete',
    'answers DISC': 'DISC closes the connection, without a reply',
    'does not share writes between connections': 'a flush on one connection covers all connections',
    'writes to a read-only export': 'a read-only export does not change',
    'returns EIO instead of EPERM': 'a write to a read-only export is EPERM',
    'stops at a disconnect': 'a disconnect inside a request does not affect other clients',
    'sends simple replies to READ': 'READ is answered in chunks',
    'sends simple replies to READs that fail early': 'a READ that fails early is answered in chunks',
    'sends simple errors of WRITE': 'errors without a payload are sent in chunks as well',
    'overlaps chunks': 'chunks cover the request exactly, without overlap',
    'leaves a gap between chunks': 'chunks cover the request exactly, without overlap',
    'sends DONE early': 'DONE is set once, in the last chunk',
    'sets a second reply flag': 'no reply flag other than DONE is set',
    'sends error chunks of 4 bytes': 'error chunks are well formed',
    'fragments in spite of DF': 'DF: 64 KiB are sent as one chunk',
    'sends a hole in spite of DF': 'DF: data and a hole are sent as data',
    'ignores REQ_ONE': 'REQ_ONE: one extent, no longer than the request',
    'sends too many extents': 'extents are inside of the request, except for the last',
    'reports every extent as zero': 'extents reported as zero read as zero',
    'returns EIO instead of ENOSPC': 'WRITE past the end is ENOSPC',
    'truncates offsets': 'READ past the end is EINVAL',
    'does not consume the payload of a failed WRITE': 'the payload of a failed WRITE is consumed',
    'sends data after an error': 'a failed READ has no data',
    'accepts unknown commands': 'an unknown command is EINVAL',
    'accepts unknown flags': 'an unknown flag is EINVAL',
    'sends the error 71': 'only defined errors are used',
    'acknowledges EXTENDED_HEADERS with data':
        'EXTENDED_HEADERS with data is refused with ERR_INVALID',
    'switches back to structured replies': 'STRUCTURED_REPLY after EXTENDED_HEADERS is refused',
    'accepts EXPORT_NAME after EXTENDED_HEADERS': 'EXPORT_NAME after EXTENDED_HEADERS ends the session',
    'sends simple replies over extended headers': 'no reply is simple, and each echoes its offset',
    'echoes the offset 0': 'a reply has the right magic, cookie and offset',
    'accepts a WRITE without payload': 'WRITE without PAYLOAD_LEN never succeeds',
    'waits for a missing payload':
        'WRITE without PAYLOAD_LEN is refused without waiting',
    'does not consume an unexpected payload': 'an unexpected payload is consumed, then EINVAL',
    'truncates lengths to 32 bits': 'lengths have 64 bits',
    'sends 32-bit extents over extended headers': 'BLOCK_STATUS is answered with 64-bit extents',
    'miscounts descriptors': 'BLOCK_STATUS is answered with 64-bit extents',
    'accepts unknown ids': 'a wrong status payload is consumed, then EINVAL',
    'accepts a duplicate id': 'a wrong status payload is consumed, then EINVAL',
    'answers for contexts that were not selected': 'a status payload leaves out the other contexts',
    'answers for one context only': 'each listed context can be queried, alone and together',
    'gives all contexts one id': 'each selected context has an id of its own',
    'has no maximum': 'a request longer than the maximum payload is EINVAL',
    'uses the header length of a status payload':
        'the length in a status payload is the length of the range',
}


class Close(Exception):
    pass


class Export:
    def __init__(self, read_only=False, tls_only=False):
        self.data = bytearray(SIZE)
        self.tls_only = tls_only
        self.read_only = read_only


class Connection(socketserver.BaseRequestHandler):
    def handle(self):
        self.fault = self.server.fault
        self.out = []
        stream = wire.Stream(self.request, None)
        self.receive, self.unpack = stream.receive, stream.unpack
        try:
            self.greet()
            self.negotiate()
            self.transmit()
        except (Close, wire.Closed, OSError):
            if self.fault == 'stops at a disconnect' and getattr(self, 'style', None):
                self.server.dead = True

    def faulty(self, fault):
        return self.fault == fault

    # Handshake.

    def greet(self):
        if self.server.dead:
            raise Close
        flags = 7 if self.faulty('sets a third handshake flag') else 3
        self.request.sendall(wire.encode_greeting(flags) * (2 if self.faulty('greets twice') else 1))
        self.client_flags, = self.unpack('I')
        if self.client_flags & ~3 and not self.faulty('accepts unknown client flags'):
            raise Close

    def reply(self, kind, data=b''):
        option = 77 if self.faulty('echoes another option') else self.option
        self.request.sendall(wire.encode_option_reply(option, kind, data))

    def find(self, name):
        if self.faulty('serves unknown exports') and self.option == wire.EXPORT_NAME:
            return self.server.exports['x']
        return self.server.exports.get(name.decode('utf-8', 'replace'))

    def transmission_flags(self, export):
        flags = FLAGS | (wire.READ_ONLY if export.read_only else 0)
        if self.style != 'simple' or self.faulty('sets SEND_DF always'):
            flags |= wire.SEND_DF
        if self.style == 'extended':
            flags |= wire.BLOCK_STATUS_PAYLOAD
        return flags & ~1 if self.faulty('clears HAS_FLAGS') else flags

    def negotiate(self):
        self.style, self.contexts, self.context_name = 'simple', [], None
        while True:
            magic, self.option, length = self.unpack('QII')
            if magic != wire.OPTION_MAGIC or length > 65536:
                raise Close
            if not self.client_flags & wire.FIXED_NEWSTYLE and self.option != wire.EXPORT_NAME:
                raise Close
            known = wire.EXPORT_NAME <= self.option <= wire.EXTENDED_HEADERS
            data = (b'' if not known and self.faulty('does not skip unknown data')
                    else self.receive(length))
            if self.on_option(data):
                return

    def on_option(self, data):
        option = self.option
        if option == wire.EXPORT_NAME:
            return self.on_export_name(data)
        if option == wire.ABORT:
            self.reply(wire.ERR_UNSUP if self.faulty('refuses ABORT') else wire.REP_ACK)
            raise Close
        if option in (wire.INFO, wire.GO):
            return self.on_info(data)
        if option in (wire.LIST_META_CONTEXT, wire.SET_META_CONTEXT):
            self.on_context(data)
        elif option in (wire.LIST, wire.STRUCTURED_REPLY, wire.EXTENDED_HEADERS):
            name = wire.OPTION_NAMES[option]
            if data and not self.faulty(f'acknowledges {name} with data'):
                self.reply(wire.ERR_INVALID, b'no data, please')
            elif option == wire.LIST:
                for export in self.server.exports:
                    self.reply(wire.REP_SERVER, wire.pack_string(export))
                self.reply(wire.REP_ACK)
            elif (option == wire.STRUCTURED_REPLY and self.style == 'extended'
                  and not self.faulty('switches back to structured replies')):
                self.reply(wire.ERR_EXT_HEADER_REQD)
            else:
                self.style = 'structured' if option == wire.STRUCTURED_REPLY else 'extended'
                self.reply(wire.REP_ACK)
        elif option == wire.STARTTLS and data and self.faulty('acknowledges STARTTLS with data'):
            self.reply(wire.REP_ACK)
        elif self.faulty('closes at an unknown option'):
            raise Close
        elif option != wire.STARTTLS and self.fault in ('asks for TLS without supporting it', 'asks for TLS too often'):
            self.reply(wire.ERR_TLS_REQD)
        else:
            self.reply(wire.ERR_UNSUP)
        return False

    def on_export_name(self, name):
        self.export = self.find(name)
        if self.export and self.export.tls_only and not self.faulty('serves a TLS-only export by its name'):
            raise Close
        if not self.export or (self.style == 'extended' and not self.faulty(
                'accepts EXPORT_NAME after EXTENDED_HEADERS')):
            raise Close
        zeroes = b'' if self.client_flags & wire.NO_ZEROES else bytes(124)
        if self.faulty('omits the zeroes'):
            zeroes = b''
        if self.faulty('sends zeroes in spite of NO_ZEROES'):
            zeroes = bytes(124)
        if self.context_name != name:
            self.contexts = []
        self.request.sendall(struct.pack('>QH', SIZE, self.transmission_flags(self.export)) + zeroes)
        return True

    def on_info(self, data):
        if self.faulty('closes at long names') and len(data) > 1024:
            raise Close
        length = struct.unpack('>I', data[:4])[0] if len(data) >= 6 else -1
        if self.faulty('reads names past the option') and length > len(data) - 6:
            data, length = wire.info_request('x'), 1
        if not 0 <= length <= len(data) - 6:
            return self.reply(wire.ERR_INVALID)
        name, rest = data[4:4 + length], data[4 + length:]
        if len(rest) != 2 + 2 * struct.unpack('>H', rest[:2])[0]:
            return self.reply(wire.ERR_INVALID)
        requested = [one for one, in struct.iter_unpack('>H', rest[2:])]
        if self.faulty('refuses unknown information') and any(one > 3 for one in requested):
            return self.reply(wire.ERR_INVALID)
        export = self.find(name)
        if export and export.tls_only and not self.faulty('describes a TLS-only export'):
            return self.reply(wire.ERR_TLS_REQD)
        if not export:
            echoed = name + b' is unknown' if self.faulty('echoes long names') else b'unknown'
            return self.reply(wire.ERR_UNKNOWN, echoed)
        if not self.faulty('omits INFO_EXPORT'):
            self.reply(wire.REP_INFO, struct.pack('>HQH', wire.INFO_EXPORT, SIZE,
                                                  self.transmission_flags(export)))
        if wire.INFO_BLOCK_SIZE in requested:
            self.reply(wire.REP_INFO, struct.pack('>HIII', wire.INFO_BLOCK_SIZE, 1, 4096, MAXIMUM))
        self.reply(wire.REP_ACK)
        if self.option == wire.INFO:
            return False
        if self.faulty('sends zeroes after GO'):
            self.request.sendall(bytes(124))
        self.export = export
        if self.context_name != name and not self.faulty('keeps the set for another export'):
            self.contexts = []
        return True

    def on_context(self, data):
        setting = self.option == wire.SET_META_CONTEXT
        if setting and not self.faulty('keeps the set when SET fails'):
            self.contexts = []
        if setting and self.style == 'simple':
            return self.reply(wire.ERR_INVALID)
        try:
            name, queries = self.parse_query(data)
        except (struct.error, ValueError):
            return self.reply(wire.ERR_INVALID)
        if not self.find(name) and not self.faulty('keeps the set for another export'):
            return self.reply(wire.ERR_UNKNOWN)
        if self.faulty('reports unknown contexts') and any(not q.startswith((b'base:', b'fake:')) for q in queries):
            return self.reply(wire.ERR_INVALID)
        wildcard = not setting or self.faulty('accepts base: as a selection')
        found = []
        for context in CONTEXTS:
            namespace = context.partition(b':')[0] + b':'
            by_wildcard = wildcard and (namespace in queries or (not queries and not setting))
            count = queries.count(context) if self.faulty('selects a context twice') else (
                context in queries or by_wildcard)
            if self.faulty('selects by the beginning of a name') and setting:
                count = any(context.startswith(query) for query in queries)
            found += [context] * count
        if setting or self.faulty('selects by LIST'):
            self.contexts, self.context_name = found, name
        for context in found:
            identity = ALLOCATION_ID if self.faulty('gives all contexts one id') else CONTEXTS[context]
            self.reply(wire.REP_META_CONTEXT, struct.pack('>I', identity if setting else 0) + context)
        self.reply(wire.REP_ACK)

    def parse_query(self, data):
        def take(length):
            nonlocal data
            if length > len(data) and not self.faulty('reads queries past the option'):
                raise ValueError
            taken, data = data[:length], data[length:]
            return taken
        name = take(struct.unpack('>I', take(4))[0])
        queries = []
        for _ in range(struct.unpack('>I', take(4))[0]):
            queries.append(take(struct.unpack('>I', take(4))[0]))
        if data:
            raise ValueError
        return name, queries

    # Transmission.

    def transmit(self):
        private = self.faulty('does not share writes between connections') or self.faulty('loses writes before DISC')
        self.data = bytearray(self.export.data) if private else self.export.data
        while True:
            if self.out and not select.select([self.request], [], [], 0)[0]:
                self.flush()
            if self.style == 'extended':
                magic, flags, command, cookie, offset, length = self.unpack('IHHQQQ')
                payload = length if flags & wire.PAYLOAD_LEN or (
                    command == wire.WRITE
                    and self.faulty('waits for a missing payload')) else 0
            else:
                magic, flags, command, cookie, offset, length = self.unpack('IHHQQI')
                payload = length if command == wire.WRITE else 0
            if magic != (wire.EXTENDED_REQUEST_MAGIC if self.style == 'extended' else wire.REQUEST_MAGIC):
                raise Close
            if payload > 64 * wire.MiB:
                raise Close
            if command == wire.DISC:
                if self.faulty('answers DISC'):
                    self.out.append(wire.encode_simple_reply(cookie))
                if self.faulty('refuses requests in flight at DISC') and self.out:
                    self.out.pop()
                    self.fail(wire.ESHUTDOWN, 0)
                if not self.faulty('drops requests in flight at DISC'):
                    self.flush()
                raise Close
            self.command, self.cookie, self.offset = command, cookie, offset
            self.serve(flags, offset, length, payload)

    def flush(self):
        self.request.sendall(b''.join(self.out))
        self.out.clear()

    def serve(self, flags, offset, length, payload):
        command = self.command
        if (self.faulty('does not consume the payload of a failed WRITE') and offset >= SIZE) or (
                self.faulty('does not consume an unexpected payload') and command != wire.WRITE):
            payload = 0
        data = self.receive(payload)
        if self.faulty('truncates lengths to 32 bits'):
            length &= 0xffffffff
        if self.faulty('truncates offsets'):
            offset &= 0xffffff
        if self.faulty('closes at length 0') and not length and command != wire.FLUSH:
            raise Close
        if self.faulty('never answers FLUSH') and command == wire.FLUSH:
            return
        status_payload = (command == wire.BLOCK_STATUS and self.style == 'extended'
                          and flags & wire.PAYLOAD_LEN)
        error = self.validate(flags, offset, length, status_payload)
        selected = self.contexts
        if not error and status_payload:
            if len(data) < 12 or (len(data) - 8) % 4:
                error = wire.EINVAL
            else:
                if not self.faulty('uses the header length of a status payload'):
                    length, = struct.unpack('>Q', data[:8])
                ids = [one for one, in struct.iter_unpack('>I', data[8:])]
                selected = [context for context in self.contexts if CONTEXTS[context] in ids]
                twice = len(set(ids)) != len(ids) and not self.faulty('accepts a duplicate id')
                if (len(selected) != len(set(ids)) and not self.faulty('accepts unknown ids')) or twice:
                    error = wire.EINVAL
                elif offset + length > SIZE:
                    error = wire.EINVAL
        if error:
            return self.fail(71 if self.faulty('sends the error 71') else error, length)
        if self.faulty('answers for contexts that were not selected'):
            selected = self.contexts
        self.perform(flags, offset, length, data, selected)

    def validate(self, flags, offset, length, status_payload):
        command = self.command
        writes = command in (wire.WRITE, wire.WRITE_ZEROES, wire.TRIM)
        if command not in KNOWN_FLAGS:
            return 0 if self.faulty('accepts unknown commands') else wire.EINVAL
        allowed = KNOWN_FLAGS[command] | wire.FUA
        if self.faulty('refuses FUA on READ') and command == wire.READ:
            allowed &= ~wire.FUA
        if self.style == 'simple':
            allowed &= ~wire.DF
        if self.style == 'extended' and (command == wire.WRITE or status_payload):
            allowed |= wire.PAYLOAD_LEN
        if flags & ~allowed and not self.faulty('accepts unknown flags'):
            return wire.EINVAL
        if (self.style == 'extended' and command == wire.WRITE and not flags & wire.PAYLOAD_LEN
                and not self.faulty('accepts a WRITE without payload')):
            return wire.EINVAL
        if (command in (wire.READ, wire.WRITE) and length > MAXIMUM and not self.faulty('has no maximum')):
            return wire.EINVAL
        if command == wire.BLOCK_STATUS and not self.contexts:
            return wire.EINVAL
        if writes and self.export.read_only and not self.faulty('writes to a read-only export'):
            return wire.EIO if self.faulty('returns EIO instead of EPERM') else wire.EPERM
        if command != wire.FLUSH and not status_payload and offset + length > SIZE:
            if command in (wire.WRITE, wire.WRITE_ZEROES):
                return wire.EIO if self.faulty('returns EIO instead of ENOSPC') else wire.ENOSPC
            return wire.EINVAL
        return 0

    def perform(self, flags, offset, length, data, contexts):
        command = self.command
        if command == wire.READ:
            return self.read(flags, offset, length)
        if command == wire.BLOCK_STATUS:
            return self.status(flags, offset, length, contexts)
        if command == wire.WRITE:
            data = data or bytes(length)
            if self.faulty('drops the end of a write'):
                data = data[:-1]
            if self.faulty('writes a byte too much'):
                data += b'!'
            self.data[offset:offset + len(data)] = data[:SIZE - offset]
        elif command in (wire.WRITE_ZEROES, wire.TRIM) and not self.faulty('writes no zeroes'):
            self.data[offset:offset + length] = bytes(length)
        self.succeed()

    def simple(self, error=0, data=b''):
        cookie = self.cookie
        if self.faulty('sends another cookie'):
            cookie ^= 1 << 40
        if self.faulty('mixes up two cookies') and self.out:
            data = data[:-1] + b'?'
        self.out.append(wire.encode_simple_reply(cookie, error, data))

    def chunk(self, flags, kind, payload=b''):
        if self.faulty('sets a second reply flag'):
            flags |= 4
        cookie = self.cookie ^ (1 << 40 if self.faulty('sends another cookie') else 0)
        offset = None
        if self.style == 'extended':
            offset = 0 if self.faulty('echoes the offset 0') else self.offset
        self.out.append(wire.encode_chunk(flags, kind, cookie, payload, offset))

    def succeed(self):
        if self.style == 'simple' or (
                self.style == 'extended' and self.faulty('sends simple replies over extended headers')):
            self.simple()
        else:
            self.chunk(wire.DONE, wire.CHUNK_NONE)

    def fail(self, error, length):
        early = self.faulty('sends simple replies to READs that fail early') and self.command == wire.READ
        if self.style == 'simple' or early or (
                self.faulty('sends simple errors of WRITE') and self.command == wire.WRITE):
            data = self.faulty('sends data after an error') and self.command == wire.READ
            return self.simple(error, bytes(length) if data else b'')
        payload = struct.pack('>IH', error, 2) + b'no'
        if self.faulty('sends error chunks of 4 bytes'):
            payload = payload[:4]
        self.chunk(wire.DONE, wire.CHUNK_ERROR, payload)

    def extents(self, offset, length):
        """(length, is zero) of each extent."""
        runs, end = [], offset + length
        while offset < end:
            stop = min(end, offset // BLOCK * BLOCK + BLOCK)
            zero = not any(self.data[offset:stop])
            if runs and runs[-1][1] == zero:
                runs[-1][0] += stop - offset
            else:
                runs.append([stop - offset, zero])
            offset = stop
        return runs

    def read(self, flags, offset, length):
        data = bytes(self.data[offset:offset + length])
        if self.style == 'simple' or self.faulty('sends simple replies to READ'):
            return self.simple(0, data)
        runs = self.extents(offset, length)
        if flags & wire.DF and not self.faulty('fragments in spite of DF'):
            hole = self.faulty('sends a hole in spite of DF')
            runs = [[length, hole or all(zero for _, zero in runs)]] if length else []
        start = 0
        for index, (count, zero) in enumerate(runs):
            done = wire.DONE if index == 0 and self.faulty('sends DONE early') else 0
            at = offset + start
            if index and self.faulty('overlaps chunks'):
                at -= 1
            if index == 1 and self.faulty('leaves a gap between chunks'):
                start += count
                continue
            if zero:
                self.chunk(done, wire.CHUNK_HOLE, struct.pack('>QI', at, count))
            else:
                self.chunk(done, wire.CHUNK_DATA, struct.pack('>Q', at) + data[start:start + count])
            start += count
        self.chunk(wire.DONE, wire.CHUNK_NONE)

    def status(self, flags, offset, length, contexts):
        runs = self.extents(offset, length)
        if not runs:
            return self.fail(wire.EINVAL, 0)
        if flags & wire.REQ_ONE and not self.faulty('ignores REQ_ONE'):
            runs = runs[:1]
        if self.faulty('sends too many extents'):
            runs += [[512, False], [512, True]]
        if self.faulty('answers for one context only'):
            contexts = contexts[:1]
        for context in contexts:
            zero_flags = 3 if context == b'base:allocation' else 1
            all_zero = self.faulty('reports every extent as zero')
            extents = [(count, zero_flags if zero or all_zero else 0) for count, zero in runs]
            last = wire.DONE if context == contexts[-1] else 0
            if self.style == 'extended' and not self.faulty('sends 32-bit extents over extended headers'):
                count = len(extents) + (1 if self.faulty('miscounts descriptors') else 0)
                payload = struct.pack('>II', CONTEXTS[context], count)
                payload += b''.join(struct.pack('>QQ', *extent) for extent in extents)
                self.chunk(last, wire.CHUNK_STATUS_EXT, payload)
            else:
                payload = struct.pack('>I', CONTEXTS[context])
                payload += b''.join(struct.pack('>II', *extent) for extent in extents)
                self.chunk(last, wire.CHUNK_STATUS, payload)


class Fake(socketserver.ThreadingTCPServer):
    """Serves the exports x, ro and tls on a free loopback port until it is closed."""
    daemon_threads = True
    block_on_close = False
    request_queue_size = 256

    def __init__(self, fault=None):
        assert fault is None or fault in FAULTS, fault
        super().__init__(('127.0.0.1', 0), Connection)
        self.fault = fault
        self.dead = False
        self.exports = {'x': Export(), 'ro': Export(read_only=True), 'tls': Export(tls_only=True)}
        threading.Thread(target=self.serve_forever, kwargs={'poll_interval': 0.01}, daemon=True).start()

    def get_request(self):
        connection, address = super().get_request()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection, address

    @property
    def uri(self):
        return f'nbd://127.0.0.1:{self.server_address[1]}/x'

    def close(self):
        self.shutdown()
        self.server_close()
