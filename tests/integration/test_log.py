"""The log: one line for each connection, as text or as JSON, with any names of clients and files."""
import json
import os
import pty
import re
import signal
import subprocess

import server
import wire


TIME = re.compile(r'\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}[+-]\d\d:\d\d')
CONFIG = '''
listeners: {unix: [{path: '{socket}'}]}
log: {format: json}
devices: [{id: host, capacity: 64M}]
exports:
  - {name: scratch, size: 64M, devices: [host]}
  - {name: "a\\"b\\\\c'€", size: 64M, devices: [host]}
'''
HOSTILE = 'a"b\\c\'€'


class Log(server.Test):
    def start(self, **options):
        """A server that has logged its start and the connection of the readiness check."""
        one = self.serve(**options)
        self.wait_for_lines(one, 0, lambda lines: any('handshake' in line for line in lines))
        return one

    def wait_for_lines(self, one, skip, enough):
        def lines():
            return one.log().split('\n')[:-1][skip:]
        server.wait_until(lambda: enough(lines()), 60, 'lines in the log')
        return lines()

    def new_lines(self, one, act, count=1):
        """The lines that are logged by `act`: exactly `count`."""
        before = one.log().count('\n')
        act()
        lines = self.wait_for_lines(one, before, lambda lines: len(lines) >= count)
        self.assertEqual(len(lines), count, lines)
        return lines

    def parsed(self, lines):
        """The lines as objects. Checks their common fields."""
        objects = [json.loads(line) for line in lines]
        for entry in objects:
            self.assertRegex(entry['time'], TIME)
            self.assertIn(entry['level'], ('debug', 'info', 'warning', 'error', 'critical'))
            self.assertIsInstance(entry['message'], str)
        return objects

    def one_entry(self, one, act):
        return self.parsed(self.new_lines(one, act))[0]


class Json(Log):
    def test_an_export_with_a_hostile_name(self):
        one = self.start(config=CONFIG)
        entry = self.one_entry(one, lambda: wire.connect(one.address, HOSTILE).disconnect())
        self.assertEqual(entry['export'], HOSTILE)
        self.assertNotIn('\n', entry['message'])

    def test_handshake_timeout_after_a_request(self):
        one = self.start(config=CONFIG + 'limits: {handshake: 5}\n')  # enough for a slow client to ask

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

    def test_every_line_is_valid(self):
        """From the start to the end of a server, with a failed reload and unprintable names."""
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
        self.assertEqual(len(tables), 2)  # after SIGUSR1, and at the end
        for table in tables:
            self.assertEqual(table['level'], 'info')
            self.assertGreater(table['message'].count('\n'), 6)


class Colour(Log):
    def first_lines(self, terminal, **environment):
        """The standard error of the server until it listens."""
        reader, writer = pty.openpty() if terminal else os.pipe()
        path = os.path.join(self.directory(), 'socket')
        inherited = {key: value for key, value in os.environ.items()
                     if key not in ('NO_COLOR', 'COLORTERM', 'TERM')}
        child = subprocess.Popen([server.PROGRAM, 'serve', '--device', 'host', '--size', '1M', '-U', path,
                                  *environment.pop('extra', ())],
                                 stderr=writer, stdin=subprocess.DEVNULL, preexec_fn=server.die_with_parent,
                                 env={**inherited, 'TERM': 'xterm', **environment})
        os.close(writer)
        output = b''
        while b'listening' not in output or not output.endswith(b'\n'):
            output += os.read(reader, 4096)
        child.terminate()
        self.assertEqual(child.wait(60), 0)
        os.close(reader)
        return output

    def test_on_a_terminal(self):
        output = self.first_lines(True)
        self.assertRegex(output, rb'^\d{4}-\S+ \S+ [+-]\d{4} \x1b\[32minfo\x1b\[m: export')

    def test_no_colour(self):
        for case in ({'terminal': False}, {'terminal': True, 'NO_COLOR': '1'}, {'terminal': True, 'TERM': 'dumb'},
                     {'terminal': True, 'extra': ('--log-format', 'json')}):
            with self.subTest(case=case):
                output = self.first_lines(**case)
                self.assertNotIn(b'\x1b', output)
                self.assertIn(b'info', output)

    def test_an_empty_no_color_is_ignored(self):
        self.assertIn(b'\x1b[32m', self.first_lines(True, NO_COLOR=''))


if __name__ == '__main__':
    server.main()
