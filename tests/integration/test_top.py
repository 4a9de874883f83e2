"""gpunbd top on a terminal: pages, keys, resizing, a server that disappears; and the terminal is restored however it ends."""
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time

import server
import wire
from admin_endpoint import Endpoint

SEQUENCE = re.compile(r'\x1b\[([?0-9;]*)([A-Za-z])')


class Screen:
    """A terminal that supports the few sequences that `top` uses. Other sequences fail the test."""

    def __init__(self):
        self.text = ''  # the last complete page
        self.page = ''  # the page that is being drawn
        self.rest = ''  # an incomplete sequence
        self.other, self.cursor = False, True
        self.left = 0  # how often the alternate screen was left
        self.styles = set()

    def take(self, data):
        rest = self.rest + data
        while rest:
            match = SEQUENCE.match(rest)
            if match:
                self.execute(*match.groups())
                rest = rest[match.end():]
            elif rest[0] != '\x1b':
                self.page += rest[0].replace('\r', '')
                rest = rest[1:]
            elif len(rest) > 16:
                raise AssertionError(f'an unknown sequence: {rest[:20]!r}')
            else:
                break
        self.rest = rest

    def execute(self, numbers, letter):
        if letter in 'hl':
            if numbers == '?1049':
                self.other = letter == 'h'
                self.left += letter == 'l'
            if numbers == '?25':
                self.cursor = letter == 'h'
        elif letter == 'H':
            self.complete()
            self.page = ''
        elif letter == 'm':
            self.styles.add(numbers)
        elif letter not in 'JK':
            raise AssertionError(f'an unknown sequence: {numbers}{letter}')

    def complete(self):
        if self.page:
            self.text = self.page

    def lines(self):
        return self.text.split('\n')


class Top(server.Test):
    def endpoint(self, *args, **kwargs):
        made = Endpoint(*args, **kwargs)
        self.addCleanup(made.stop)
        return made

    def start(self, path, rows=24, columns=80, environment=None, command=None):
        """Starts `top`, or another command, as a session leader on a terminal of that size."""
        self.master, terminal = pty.openpty()
        self.addCleanup(os.close, self.master)
        self.resize(rows, columns)
        self.modes = termios.tcgetattr(terminal)
        command = command or [server.PROGRAM, 'top', *(('--socket', path) if path else ())]

        def lead():
            server.die_with_parent()
            os.setsid()
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        self.process = subprocess.Popen(command, stdin=terminal, stdout=terminal, stderr=terminal, preexec_fn=lead,
                                        env={**os.environ, 'TERM': 'xterm', **(environment or {})})
        self.terminal = terminal
        self.addCleanup(os.close, terminal)
        self.addCleanup(self.process.wait)
        self.addCleanup(self.process.kill)
        self.screen = Screen()

    def start_with_server(self):
        """Starts `top` for a fake server. Returns the path of its socket, and the server."""
        path = os.path.join(self.directory(), 'a')
        one = self.endpoint(path)
        self.start(path)
        self.shows('>fast')
        return path, one

    def resize(self, rows, columns):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack('HHHH', rows, columns, 0, 0))

    def read(self):
        ready, _, _ = select.select([self.master], [], [], 0.05)
        if ready:
            self.screen.take(os.read(self.master, 65536).decode())
        else:
            self.screen.complete()

    def until(self, condition, what):
        end = time.monotonic() + 30
        while not condition():
            self.assertLess(time.monotonic(), end, f'timeout, waiting for {what}; the screen:\n{self.screen.text}')
            self.read()

    def shows(self, text):
        self.until(lambda: text in self.screen.text, repr(text))

    def until_size(self, rows, columns):
        self.until(lambda: {(len(self.screen.lines()), len(line)) for line in self.screen.lines()} == {(rows, columns)},
                   f'{rows} rows of {columns} columns')

    def press(self, keys):
        os.write(self.master, keys.encode())

    def ends(self, status=0):
        self.until(lambda: self.process.poll() is not None, 'its end')
        self.assertEqual(self.process.returncode, status)
        # The kernel passes the last output on later.
        self.until(lambda: self.screen.cursor and not self.screen.other, 'the primary screen')
        self.assert_restored()

    def assert_restored(self):
        self.assertEqual(termios.tcgetattr(self.terminal), self.modes)
        self.assertFalse(self.screen.other, 'the alternate screen was not left')
        self.assertTrue(self.screen.cursor, 'the cursor is hidden')


class OnATerminal(Top):
    def test_a_page(self):
        path = os.path.join(self.directory(), 'a')
        one = self.endpoint(path)
        one.read_at(3 << 20)
        self.start(path)
        self.shows('gpunbd 0.1.0  pid 4711  serving 1h0')
        self.shows('  3.0M       0    768')  # read and write rates, requests
        self.shows('CLIENTS READ/s WRITE/s REQS/s   P50   P99 QUEUE ERRORS')
        self.shows('READ/s WRITE/s REQS/s QUEUE ERRORS    AGE  IDENTITY')
        self.until_size(24, 80)
        for text in ('cuda:0', '>fast', 'slow', '192.0.2.2:40002', 'CN=node1', 'sort: rate'):
            self.assertIn(text, self.screen.text)
        self.assertTrue(self.screen.other)
        self.assertFalse(self.screen.cursor)
        self.assertNotEqual(termios.tcgetattr(self.terminal), self.modes)
        self.assertLess({'0;1', '0;7'}, self.screen.styles)
        self.press('q')
        self.ends()
        self.assertIn('/api/v1/stream', [path for path, _ in one.requests])

    def test_resizing(self):
        self.start_with_server()
        for rows, columns in ((40, 132), (5, 30), (1, 1), (24, 80)):
            self.resize(rows, columns)
            self.until_size(rows, columns)
        self.press('q')
        self.ends()

    def test_signals(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            with self.subTest(number=number):
                self.start_with_server()
                self.process.send_signal(number)
                self.ends()
        self.start_with_server()
        self.press('\x03')  # the terminal sends SIGINT
        self.ends()

    def test_suspend_and_resume(self):
        self.start_with_server()
        # The session has no shell that could resume it, so the kernel does not stop it.
        self.process.send_signal(signal.SIGTSTP)
        self.until(lambda: self.screen.left == 1, 'the primary screen')
        self.until(lambda: self.screen.other, 'the alternate screen')
        self.process.send_signal(signal.SIGCONT)
        self.press('s')
        self.shows('sort: requests')
        self.press('q')
        self.ends()

    def test_suspend_in_a_shell(self):
        server.need('bash')
        path = os.path.join(self.directory(), 'a')
        self.endpoint(path)
        self.start(None, command=['bash', '--norc', '--noediting', '-i'], environment={'PS1': 'ready: '})
        self.shows('ready: ')
        self.press(f'{server.PROGRAM} top --socket {path}\n')
        self.shows('>fast')
        self.press('\x1a')
        self.shows('Stopped')
        self.assert_restored()
        self.press('fg\n')
        self.until(lambda: self.screen.other, 'the alternate screen')
        self.shows('sort: rate')
        self.screen.text = self.screen.page = ''  # they may contain an earlier prompt
        self.press('q')
        self.until(lambda: not self.screen.other, 'the primary screen')
        self.shows('ready: ')  # until then, `top` has the terminal
        self.press('exit 7\n')
        self.ends(7)

    def test_status_watch_shows_one_page(self):
        path = os.path.join(self.directory(), 'a')
        one = self.endpoint(path)
        self.start(None, command=[server.PROGRAM, 'status', '--watch', '--socket', path])
        self.until(lambda: len(one.requests) > 2, 'the third request')
        self.shows('fast')
        self.assertEqual(self.screen.text.count('EXPORT'), 1, self.screen.text)
        self.press('\x03')
        self.ends(-signal.SIGINT)

    def test_a_server_without_a_free_stream(self):
        for code in (404, 503):
            with self.subTest(code=code):
                path = os.path.join(self.directory(), 'a')
                one = self.endpoint(path, stream=code)
                one.read_at(2 << 20)
                self.start(path)
                self.shows('  2.0M       0    512')
                self.shows('192.0.2.1:40001')
                one.stop()
                self.shows('NOT ANSWERING for ')
                os.unlink(path)
                self.endpoint(path, pid=4712)
                self.shows('pid 4712 ')
                self.press('q')
                self.ends()

    def test_a_server_that_becomes_hostile(self):
        path, one = self.start_with_server()
        one.stop()
        for raw, message in ((b'\x1b[2Jnonsense\r\n\r\n', 'is not HTTP'),
                             (b'HTTP/1.1 200 OK\r\n\r\nevent: tick\ndata: {"status":7}\n\n', 'is not the status'),
                             (b'HTTP/1.1 200 OK\r\n\r\nevent: tick\ndata: [[[\n\n', 'is not JSON'),
                             (b'HTTP/1.1 500 Oops\r\n\r\n\x1b[2J', 'HTTP status 500')):
            os.unlink(path)
            other = Endpoint(path, raw=raw)
            self.shows(message)
            other.stop()
        self.press('q')
        self.ends()


class WithoutTerminal(Top):
    def test_a_complete_page_each_second(self):
        path = os.path.join(self.directory(), 'a')
        self.endpoint(path, names=[f'export-{number:02}' for number in range(40)])
        process = subprocess.Popen([server.PROGRAM, 'top', '--socket', path], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   stdin=subprocess.DEVNULL, text=True, preexec_fn=server.die_with_parent)
        try:
            text, pages = '', 0
            while pages < 3:
                line = process.stdout.readline()
                self.assertNotEqual(line, '', process.stderr)
                text += line
                self.assertLessEqual(len(line), 81)
                pages += line.startswith('gpunbd 0.1.0  pid 4711')
            self.assertNotIn('\x1b', text)
            for number in range(40):
                self.assertEqual(text.count(f'export-{number:02} '), 2, text)
            process.send_signal(signal.SIGTERM)
            self.assertEqual(process.communicate(timeout=30)[1], '')
            self.assertEqual(process.returncode, 0)
        finally:
            process.kill()
            process.communicate()

    def test_no_server(self):
        path = os.path.join(self.directory(), 'a')
        self.assertEqual(self.command(server.PROGRAM, 'top', '--socket', path, status=1), '')
        self.assertEqual(self.errors, f'gpunbd top: {path}: No such file or directory; start the server, or check the path\n')
        self.start(path)
        self.until(lambda: self.process.poll() is not None, 'its end')
        self.assertEqual(self.process.returncode, 1)
        self.assert_restored()

    def test_a_closed_pipe(self):
        path = os.path.join(self.directory(), 'a')
        self.endpoint(path)
        out, into = os.pipe()
        os.close(out)
        process = subprocess.Popen([server.PROGRAM, 'top', '--socket', path], stdout=into, stderr=subprocess.DEVNULL,
                                   preexec_fn=server.die_with_parent)
        os.close(into)
        self.assertNotEqual(process.wait(30), 0)


class RealServer(Top):
    def test_a_server_and_its_successor(self):
        folder = {'RUNTIME_DIRECTORY': self.directory()}
        one = self.serve(name='real', size='8M', environment=folder)
        self.start(None, environment=folder)
        self.shows(f'pid {one.process.pid} ')
        self.shows('>real')
        with wire.connect(one.path, 'real') as client:
            self.assertEqual(client.read(0, 4096), b'\0' * 4096)
            self.shows('connections: 1 now')
        one.stop()
        self.shows('NOT ANSWERING for ')
        other = self.serve(name='other', environment=folder)
        self.shows(f'pid {other.process.pid} ')
        self.shows('>other')
        self.press('q')
        self.ends()


if __name__ == '__main__':
    server.main()
