"""The log: one line for a connection, as text or as JSON, whatever names clients and files bring."""
import codecs
import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess

import server
import wire
from server import KiB, MiB


TIME = re.compile(r'\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}[+-]\d\d:\d\d')
TEXT = re.compile(r'\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} ([+-]\d{4}) (\w+): (.*)')
NAMES = (b'plain', 'größe €'.encode(), b'"', b'\\', b'a"b\\c', b"it's", b'\n', b'a\r\nb', b'\x1b[31mred', b'\x7f',
         b'\xff\xfe', b'\xe2\x82', b'a\xc0b', b'a\0b', b'","level":"critical', b'{} %v %s', b' ', b'\xc2\x9b31m',
         b'x' * 1024, b'x' * 4096, b'\n' * 4096, b'\xff' * 4096, '€'.encode() * 1365)
MOST = 1024  # bytes of a name that are shown
CONFIG = '''
listeners: {unix: [{path: '{socket}'}]}
log: {format: json}
limits: {handshake: 1}
devices: [{id: host, capacity: 64M}]
exports:
  - {name: scratch, size: 64M, devices: [host]}
  - {name: "a\\"b\\\\c'€", size: 64M, devices: [host]}
'''
HOSTILE = 'a"b\\c\'€'

# Byte by byte, where Python's own takes several for one.
codecs.register_error('each', lambda error: ('\ufffd', error.start + 1))


def shown(name):
    if len(name) <= MOST:
        return name.decode(errors='each')
    end = MOST
    while end > MOST - 4 and name[end] & 0xC0 == 0x80:
        end -= 1
    return name[:end].decode(errors='each') + '...'


class Log(server.Test):
    def start(self, **options):
        """A server whose own first lines, of the test's look whether it listens too, have come."""
        one = self.serve(**options)
        self.wait_for_lines(one, 0, lambda lines: any('handshake' in line for line in lines))
        return one

    def wait_for_lines(self, one, skip, enough):
        def lines():
            return one.log().split('\n')[:-1][skip:]
        server.wait_until(lambda: enough(lines()), 10, 'lines in the log')
        return lines()

    def new_lines(self, one, act, count=1):
        """What is logged while and after `act` runs: exactly `count` lines."""
        before = one.log().count('\n')
        act()
        lines = self.wait_for_lines(one, before, lambda lines: len(lines) >= count)
        self.assertEqual(len(lines), count, lines)
        return lines

    def parsed(self, lines):
        """The lines as objects, each with what all have."""
        objects = [json.loads(line) for line in lines]
        for entry in objects:
            self.assertRegex(entry['time'], TIME)
            self.assertIn(entry['level'], ('debug', 'info', 'warning', 'error', 'critical'))
            self.assertIsInstance(entry['message'], str)
        return objects

    def one_entry(self, one, act):
        return self.parsed(self.new_lines(one, act))[0]


class Json(Log):
    def test_fields_of_a_connection(self):
        one = self.start(config=CONFIG)

        def work():
            with wire.connect(one.address, 'scratch') as client:
                client.write(0, b'w' * (MiB + 512 * KiB))
                client.read(0, 100)
                client.disconnect()
        entry = self.one_entry(one, work)
        self.assertEqual(entry['level'], 'info')
        self.assertEqual(entry['export'], 'scratch')
        self.assertRegex(entry['peer'], r'^unix:pid=\d+,uid=\d+$')
        self.assertEqual(entry['requests'], 3)
        self.assertEqual(entry['bytes_read'], 100)
        self.assertEqual(entry['bytes_written'], MiB + 512 * KiB)
        self.assertIsInstance(entry['seconds'], float)
        self.assertEqual(entry['reason'], 'the client disconnected')
        self.assertNotIn('error', entry)
        self.assertIn("export 'scratch': 3 requests, 100 bytes read, 1.5 MiB written; closed after ", entry['message'])

    def test_an_export_with_a_hostile_name(self):
        one = self.start(config=CONFIG)
        entry = self.one_entry(one, lambda: wire.connect(one.address, HOSTILE).disconnect())
        self.assertEqual(entry['export'], HOSTILE)
        self.assertNotIn('\n', entry['message'])

    def ask(self, one, option, name):
        """Asks for an export that is not there, and hangs up."""
        client = wire.Wire(one.address)
        client.greet()
        if option == wire.OPT_EXPORT_NAME:
            client.option(option, name)
            self.assertEqual(client.rest(), b'')
        else:
            client.option(option, struct.pack('>I', len(name)) + name + struct.pack('>H', 0))
            self.assertTrue(client.option_reply()[1] & wire.REP_ERR)
        client.close()

    def test_names_asked_for(self):
        one = self.start(config=CONFIG)
        for option in (wire.OPT_GO, wire.OPT_INFO, wire.OPT_EXPORT_NAME):
            for name in NAMES:
                with self.subTest(option=option, name=name[:40], length=len(name)):
                    entry = self.one_entry(one, lambda o=option, n=name: self.ask(one, o, n))
                    self.assertEqual(entry['export'], shown(name))
                    self.assertEqual(entry['level'], 'info')
                    self.assertTrue(entry['error'])
                    self.assertTrue(entry['message'].isascii() and entry['message'].isprintable(), entry['message'])
                    self.assertLess(len(entry['message']), 500)

    def test_a_name_that_is_not_offered(self):
        one = self.start(config=CONFIG)
        entry = self.one_entry(one, lambda: self.ask(one, wire.OPT_GO, b'foo'))
        self.assertEqual(entry['error'], 'unknown export')
        self.assertIn("asked for export 'foo', which is not offered; offered: 'scratch', 'a\"b\\c????'", entry['message'])
        self.assertIn('hung up during the handshake', entry['reason'])

    def test_too_slow_after_asking(self):
        one = self.start(config=CONFIG)

        def dawdle():
            with wire.Wire(one.address) as client:
                client.greet()
                client.info('scratch')
                self.assertEqual(client.rest(), b'')
        entry = self.one_entry(one, dawdle)
        self.assertEqual(entry['export'], 'scratch')
        self.assertEqual(entry['reason'], 'the handshake took too long')
        self.assertIn("asked about export 'scratch'; closed after ", entry['message'])
        self.assertGreater(entry['seconds'], 0.5)

    def test_a_listing(self):
        one = self.start(config=CONFIG)

        def look():
            with wire.Wire(one.address) as client:
                client.greet()
                client.ask(wire.OPT_LIST)
                client.ask(wire.OPT_ABORT)
        entry = self.one_entry(one, look)
        self.assertIn(': listed the exports; closed after ', entry['message'])
        self.assertEqual(entry['reason'], 'the client left the handshake')
        self.assertNotIn('export', entry)
        self.assertNotIn('error', entry)

    def test_a_request_that_fails(self):
        one = self.start(config=CONFIG)
        client = wire.connect(one.address, 'scratch')
        other = wire.connect(one.address, HOSTILE)
        for at in range(0, 32 * MiB, 4 * MiB):
            client.write(at, b'1' * 4 * MiB)

        def overfill():
            with self.assertRaises(wire.Failed):
                for at in range(0, 64 * MiB, 4 * MiB):
                    other.write(at, b'2' * 4 * MiB)
        entry = self.one_entry(one, overfill)
        self.assertEqual(entry['level'], 'warning')
        self.assertEqual(entry['export'], HOSTILE)
        self.assertEqual(entry['request'], 'WRITE')
        self.assertEqual(entry['length'], 4 * MiB)
        self.assertEqual(entry['offset'] % (4 * MiB), 0)
        self.assertEqual(entry['error'], 'ENOSPC')
        self.assertEqual(entry['device'], 'host')
        self.assertIn(f'WRITE of 4 MiB at offset {entry["offset"]} failed: ENOSPC: no space left on host',
                      entry['message'])

    def test_every_line_of_a_life(self):
        """From the start to the stop, with a reload that fails over names nobody should give."""
        one = self.serve(config=CONFIG + 'trace: true\n')
        wire.connect(one.address, 'scratch').disconnect()
        with open(one.config_path, 'ab') as file:
            file.write(b'"\\e[31m\\x07": 1\n')
        one.process.send_signal(signal.SIGHUP)
        one.process.send_signal(signal.SIGUSR1)
        server.wait_for_text('READ', one.log)
        one.stop()
        entries = self.parsed(one.log().split('\n')[:-1])
        tables = [entry for entry in entries if 'READ' in entry['message']]
        self.assertEqual(len(tables), 2)  # asked for, and at the end
        for table in tables:
            self.assertEqual(table['level'], 'info')
            self.assertGreater(table['message'].count('\n'), 6)

    def test_a_path_that_is_not_utf8(self):
        path = os.fsencode(self.directory()) + b'/s\xff"'
        child = subprocess.Popen(
            [server.PROGRAM, 'serve', '--device', 'host', '--size', '1M', '--log-format', 'json', '-U', path],
            stderr=subprocess.PIPE, preexec_fn=server.die_with_parent)
        self.addCleanup(child.stderr.close)
        for line in child.stderr:
            entry = self.parsed([line.decode()])[0]  # valid UTF-8, and JSON
            if entry['message'].endswith('/s\ufffd"'):
                child.terminate()
                break
        else:
            self.fail('it does not say where it listens')
        self.assertEqual(child.wait(30), 0)


class Text(Log):
    def test_lines(self):
        zone = {'TZ': 'HERE-5:30'}
        one = self.start(size='16M', name='it', environment=zone)

        def work():
            with wire.connect(one.address, 'it') as client:
                client.write(0, b'w' * MiB)
                client.disconnect()
        line = TEXT.fullmatch(self.new_lines(one, work)[0])
        self.assertEqual(line[1], '+0530')
        self.assertEqual(line[2], 'info')
        self.assertRegex(line[3], r"^unix:pid=\d+,uid=\d+: export 'it': 2 requests, 0 bytes read, 1 MiB written; "
                                  r'closed after \d+\.\d s: the client disconnected$')

    def test_names_asked_for(self):
        """None forges a line or reaches the terminal as anything but text."""
        one = self.start(size='16M')
        for name in NAMES:
            with self.subTest(name=name[:40]):
                line = self.new_lines(one, lambda n=name: Json.ask(self, one, wire.OPT_GO, n))[0]
                self.assertTrue(line.isascii() and line.isprintable(), line)
                self.assertEqual(TEXT.fullmatch(line)[2], 'info')
                self.assertIn('asked for export ', line)

    def test_debug_tells_more(self):
        one = self.start(size='16M', extra=('--log-level', 'debug'))

        def work():
            with wire.connect(one.address) as client:
                with self.assertRaises(wire.Failed):
                    client.read(1 << 40, 1)
                client.disconnect()
        lines = self.new_lines(one, work, 3)
        self.assertIn("debug: ", lines[0])
        self.assertIn("serving export '', structured replies, base:allocation", lines[0])
        self.assertIn('refused a request: EINVAL', lines[1])
        self.assertIn("info: ", lines[2])

    def test_the_trace(self):
        one = self.start(size='16M', extra=('--trace',))
        wire.connect(one.address).disconnect()
        one.process.send_signal(signal.SIGUSR1)
        lines = self.wait_for_lines(one, 0, lambda lines: any(line.startswith('WRITE') for line in lines))
        at = next(n for n, line in enumerate(lines) if line.startswith('stage '))
        self.assertEqual(TEXT.fullmatch(lines[at - 1])[2], 'info')
        table = lines[at:at + 8]
        self.assertEqual([line.split()[0] for line in table],
                         ['stage', 'received', 'payload', 'queued', 'submitted', 'sent', 'READ', 'WRITE'])
        for line in table:
            self.assertLessEqual(len(line), 80)


class Unread(Log):
    """Nobody reads the log: neither a client nor the end of the server waits for that."""

    def start_unread(self, *extra):
        path = os.path.join(self.directory(), 'socket')
        reader, writer = os.pipe()
        fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
        child = subprocess.Popen([server.PROGRAM, 'serve', '--device', 'host', '--size', '1M', '-U', path, *extra],
                                 stderr=writer, stdin=subprocess.DEVNULL, preexec_fn=server.die_with_parent)
        os.close(writer)
        self.addCleanup(os.close, reader)
        self.addCleanup(child.wait)
        self.addCleanup(child.kill)
        said = b''
        while b'ready' not in said:
            said += os.read(reader, 4096)
        return child, path, reader

    def test_clients_are_served_on(self):
        child, path, reader = self.start_unread()
        for _ in range(3000):
            with wire.connect(path, timeout=20) as client:
                client.disconnect()
        with wire.connect(path, timeout=20) as client:
            client.write(0, b'served')
            self.assertEqual(client.read(0, 6), b'served')
        child.terminate()
        self.assertEqual(child.wait(30), 0)
        said = b''
        while piece := os.read(reader, 4096):
            said += piece
        self.assertLessEqual(len(said), 4096)  # all that there was room for

    def test_read_again(self):
        """What was held back comes when somebody reads on, in whole lines."""
        child, path, reader = self.start_unread()
        for _ in range(100):
            wire.connect(path, timeout=20).disconnect()
        child.terminate()
        said = b''
        while piece := os.read(reader, 4096):
            said += piece
        self.assertEqual(child.wait(30), 0)
        lines = said.decode().splitlines()
        self.assertEqual(sum('the client disconnected' in line for line in lines), 100)
        for line in lines:
            self.assertTrue(TEXT.fullmatch(line), line)


class Limited(Log):
    def test_connects(self):
        """A client cannot fill the disk with lines; the log says how many it left out."""
        one = self.serve(size='16M')
        for _ in range(2000):
            with wire.Wire(one.address) as client:
                client.greeting()
        left_out = re.compile(r'warning: (\d+) lines about clients were left out')

        def told():
            return sum(int(count) for count in left_out.findall(one.log()))
        server.wait_until(told, 20, 'a line about what was left out')
        one.process.send_signal(signal.SIGTERM)
        one.process.wait(30)
        written = one.log().count('during the handshake')
        self.assertLess(written, 1000)
        self.assertGreaterEqual(told() + written, 2000)
        server.wait_for_text('stopping', one.log)


class Colour(Log):
    def first_lines(self, terminal, **environment):
        """What the server writes to its standard error until it listens."""
        reader, writer = pty.openpty() if terminal else os.pipe()
        path = os.path.join(self.directory(), 'socket')
        inherited = {key: value for key, value in os.environ.items()
                     if key not in ('NO_COLOR', 'COLORTERM', 'TERM')}
        child = subprocess.Popen([server.PROGRAM, 'serve', '--device', 'host', '--size', '1M', '-U', path,
                                  *environment.pop('extra', ())],
                                 stderr=writer, stdin=subprocess.DEVNULL, preexec_fn=server.die_with_parent,
                                 env={**inherited, 'TERM': 'xterm', **environment})
        os.close(writer)
        said = b''
        while b'listening' not in said or not said.endswith(b'\n'):
            said += os.read(reader, 4096)
        child.terminate()
        self.assertEqual(child.wait(30), 0)
        os.close(reader)
        return said

    def test_on_a_terminal(self):
        said = self.first_lines(True)
        self.assertRegex(said, rb'^\d{4}-\S+ \S+ [+-]\d{4} \x1b\[32minfo\x1b\[m: export')

    def test_not_where_it_is_not_wanted(self):
        for case in ({'terminal': False}, {'terminal': True, 'NO_COLOR': '1'}, {'terminal': True, 'TERM': 'dumb'},
                     {'terminal': True, 'extra': ('--log-format', 'json')}):
            with self.subTest(case=case):
                said = self.first_lines(**case)
                self.assertNotIn(b'\x1b', said)
                self.assertIn(b'info', said)

    def test_an_empty_no_color_says_nothing(self):
        self.assertIn(b'\x1b[32m', self.first_lines(True, NO_COLOR=''))


if __name__ == '__main__':
    server.main()
