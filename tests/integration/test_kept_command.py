"""gpunbd kept: what a server keeps is listed and ended, by its user alone; and contents have the same id as long as
they are the same."""
import contextlib
import json
import os
import re
import signal
import socket
import stat
import subprocess
import tempfile

import server
import wire

MiB = 1 << 20
CONFIG = '''
listeners: {unix: [{path: '{socket}'}]}
keeping: {grace: 600, socket: '{directory}/keeping'}
exports:
'''
ONE = '  - {name: one, size: 64M, devices: [host], keep: true}\n'
TWO = '  - {name: two, size: 32M, devices: [host], keep: true}\n'
OTHER_ONE = '  - {name: one, size: 128M, devices: [host], keep: true}\n'


class Kept(server.Test):
    """A keeper with its server, as one of server.Server."""

    def setUp(self):
        self.directory = self.temporary()
        self.path = os.path.join(self.directory, 'socket')
        self.keeping = os.path.join(self.directory, 'keeping')
        self.file = os.path.join(self.directory, 'gpunbd.yaml')
        self.log_path = os.path.join(self.directory, 'log')
        self.process = None

    def temporary(self):
        folder = tempfile.TemporaryDirectory(prefix='gpunbd-')
        self.addCleanup(folder.cleanup)
        return folder.name

    def configure(self, exports, text=CONFIG):
        with open(self.file, 'w', encoding='utf-8') as file:
            file.write(text.replace('{socket}', self.path).replace('{directory}', self.directory) + exports)

    def start(self, exports, *flags, **options):
        self.configure(exports)
        return self.start_command('keep', '--', 'serve', '--config', self.file, *flags, **options)

    def start_command(self, *words, environment=None):
        with open(self.log_path, 'ab') as log:
            self.process = subprocess.Popen([server.PROGRAM, *words], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                            preexec_fn=server.die_with_parent,
                                            env={**os.environ, **(environment or {})})
        self.addCleanup(self.end)
        self.ready(1)

    def end(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(60)
        for report in server.REPORTS:
            self.assertNotIn(report, self.log())
        return status

    def log(self):
        with open(self.log_path, encoding='utf-8') as log:
            return log.read()

    def ready(self, times):
        server.wait_until(lambda: len(re.findall(r'info: ready', self.log())) >= times or
                          self.process.poll() is not None, 60, 'the server')
        self.assertIsNone(self.process.poll(), self.log())

    def server_id(self):
        with open(f'/proc/{self.process.pid}/task/{self.process.pid}/children', encoding='ascii') as file:
            return int(file.read().split()[0])

    def kill_server(self):
        """And waits for the next one."""
        times = len(re.findall(r'info: ready', self.log()))
        os.kill(self.server_id(), signal.SIGKILL)
        self.ready(times + 1)

    def reload(self, exports):
        self.configure(exports)
        times = self.log().count('exports are offered now')
        os.kill(self.server_id(), signal.SIGHUP)
        server.wait_until(lambda: self.log().count('exports are offered now') > times, 60, 'the reload')

    def kept(self, *flags, status=0):
        """Standard output, or standard error where it fails."""
        done = subprocess.run([server.PROGRAM, 'kept', *flags], capture_output=True, text=True, check=False,
                              stdin=subprocess.DEVNULL)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done.stderr if status else done.stdout

    def listed(self):
        return {each['name']: each for each in json.loads(self.kept('--socket', self.keeping, '--json'))['kept']}

    def write(self, name, offset, data):
        with wire.connect(self.path, name=name) as client:
            client.write(offset, data)

    def read(self, name, offset, length):
        with wire.connect(self.path, name=name) as client:
            return client.read(offset, length)


class Identity(Kept):
    def test_the_id_is_that_of_the_contents(self):
        self.start(ONE + '  - {name: gone, size: 64M, devices: [host]}\n')
        first = self.listed()
        self.assertEqual(set(first), {'one'})
        instance = first['one']['instance']
        self.assertRegex(instance, '^[0-9a-f]{32}$')
        gone = re.search("export 'gone': .* instance ([0-9a-f]{32})", self.log()).group(1)
        self.write('one', 5, b'kept')
        self.kill_server()
        self.assertEqual(self.listed()['one']['instance'], instance)
        self.assertEqual(self.read('one', 5, 4), b'kept')
        ids = re.findall("export 'gone': .* instance ([0-9a-f]{32})", self.log())
        self.assertEqual(len(ids), 2)
        self.assertNotEqual(ids[1], gone)
        self.assertEqual(self.log().count(f'instance {instance}'), 2)
        self.assertEqual(self.end(), 0)


class List(Kept):
    def test_what_is_listed(self):
        self.start(ONE + TWO)
        self.write('one', 5 * MiB, b'x')
        one = self.listed()['one']
        self.assertEqual((one['size'], one['devices'], one['state']), (64 * MiB, 'host', 'in use'))
        self.assertGreaterEqual(one['used'], 2 * MiB)
        table = self.kept(self.file)
        self.assertEqual(len(table.splitlines()), 3)
        self.assertRegex(table.splitlines()[0], '^EXPORT +SIZE +USED +DEVICES +SINCE +INSTANCE +STATE$')
        self.assertRegex(table, r"'one' +64 MiB +[0-9.]+ MiB +host +20\d\d-\d\d-\d\d \d\d:\d\d:\d\d +" + one['instance'] +
                         ' +in use\n')
        self.assertIn('has them', self.kept(self.file, '--drop', 'one', status=1))
        self.assertIn("nothing is kept under the name 'nowhere'", self.kept(self.file, '--drop', 'nowhere', status=1))
        self.assertEqual(set(self.listed()), {'one', 'two'})

    def test_it_is_there_for_its_user_only(self):
        self.start(ONE)
        self.assertEqual(stat.S_IMODE(os.stat(self.keeping).st_mode), 0o600)
        if os.geteuid() != 0:
            return
        os.chmod(self.directory, 0o755)
        os.chmod(self.keeping, 0o666)

        def nobody():
            os.setgid(65534)
            os.setuid(65534)
        done = subprocess.run([os.path.realpath('/usr/bin/python3'), '-c', '''
import socket, sys
with socket.socket(socket.AF_UNIX) as one:
    one.connect(sys.argv[1])
    try:
        one.sendall(b"list\\n")
        print(len(one.recv(99)))
    except (BrokenPipeError, ConnectionResetError):
        print(0)
''', self.keeping], capture_output=True, text=True, check=False, preexec_fn=nobody)
        self.assertEqual((done.stdout, done.stderr), ('0\n', ''))
        server.wait_for_text('may not ask what is kept', self.log)

    def test_without_a_server(self):
        said = self.kept('--socket', self.keeping, status=1)
        self.assertIn(f'no server that keeps contents can be asked: {self.keeping}: No such file', said)
        self.configure('  - {nam: one}\n')
        self.assertIn('unknown key', self.kept(self.file, status=2))

    def test_a_server_that_keeps_nothing_has_no_socket(self):
        self.start('  - {name: one, size: 64M, devices: [host]}\n')
        self.assertFalse(os.path.exists(self.keeping))
        self.reload('  - {name: one, size: 64M, devices: [host], keep: true}\n' + TWO)
        self.assertEqual({name: each['state'] for name, each in self.listed().items()}, {'two': 'in use'})
        server.wait_for_text("export 'one': its contents were made without keep", self.log)

    def test_a_path_that_cannot_be_had_ends_the_start(self):
        self.configure(ONE)
        os.mkdir(self.keeping)
        done = subprocess.run([server.PROGRAM, 'keep', '--', 'serve', '--config', self.file], capture_output=True,
                              text=True, check=False, stdin=subprocess.DEVNULL, timeout=60)
        self.assertEqual(done.returncode, 1)
        self.assertIn('is in the way', done.stderr)

    def test_the_usual_place(self):
        """The folder that systemd makes; one that others can write to is not used."""
        self.configure(ONE, CONFIG.replace(", socket: '{directory}/keeping'", ''))
        folder = os.path.join(self.directory, 'run')
        os.mkdir(folder, 0o700)
        self.start_command('keep', '--', 'serve', '--config', self.file,
                           environment={'RUNTIME_DIRECTORY': folder + ':/elsewhere'})
        self.assertIn("'one'", self.kept('--socket', os.path.join(folder, 'keeping.sock')))
        self.assertEqual(self.end(), 0)
        os.chmod(folder, 0o777)
        os.unlink(self.log_path)
        self.start_command('keep', '--', 'serve', '--config', self.file, environment={'RUNTIME_DIRECTORY': folder})
        server.wait_for_text('others can write to it', self.log)
        self.assertFalse(os.path.exists(os.path.join(folder, 'keeping.sock')))


class Drop(Kept):
    def test_what_no_export_has(self):
        self.start(ONE + TWO)
        self.write('one', 0, b'data')
        self.reload(TWO)
        self.assertEqual(self.listed()['one']['state'], 'no export has them')
        self.assertIn("'one': ended", self.kept(self.file, '--drop', 'one'))
        self.assertEqual(set(self.listed()), {'two'})
        self.reload(ONE + TWO)
        self.assertEqual(self.read('one', 0, 4), bytes(4))

    def test_an_export_that_was_refused_is_made_anew(self):
        self.start(ONE + TWO)
        self.write('one', 0, b'data')
        self.write('two', 0, b'also')
        instance = self.listed()['one']['instance']
        self.configure(OTHER_ONE + TWO)
        self.kill_server()
        refused = self.listed()['one']
        self.assertEqual(refused['instance'], instance)
        self.assertIn('they were made for size 64M', refused['state'])
        self.assertIsNone(refused['used'])
        server.wait_for_text('stay until they are given up', self.log)
        self.kept(self.file, '--drop', 'one')
        anew = self.listed()['one']  # answered once it is made
        self.assertEqual((anew['size'], anew['state']), (128 * MiB, 'in use'))
        self.assertNotEqual(anew['instance'], instance)
        self.assertEqual(self.read('one', 0, 4), bytes(4))
        self.assertEqual(self.read('two', 0, 4), b'also')

    def test_without_a_configuration_file(self):
        flags = ['-U', self.path, '--device', 'host', '--keep', '--keeping-socket', self.keeping]
        self.start_command('keep', '--', 'serve', '--size', '64M', *flags)
        self.write('', 0, b'data')
        self.assertEqual(set(self.listed()), {''})
        self.assertIn('has them', self.kept('--socket', self.keeping, '--drop', '', status=1))


class Hostile(Kept):
    def ask(self):
        one = socket.socket(socket.AF_UNIX)
        self.addCleanup(one.close)
        one.settimeout(60)
        one.connect(self.keeping)
        return one

    def test_requests_that_are_none(self):
        self.start(ONE)
        for request in (b'\n', b'lists\n', b'drop\n', b'list \n', b'\0' * 100 + b'\n', b'\xff\xfe\n', b'LIST\n'):
            with self.ask() as one:
                one.sendall(request)
                self.assertIn('error', json.loads(one.makefile().read()), request)
        for junk in (b'x' * 100_000, b'drop ' + b'y' * 9000 + b'\n', b'list'):
            with self.ask() as one, contextlib.suppress(BrokenPipeError, ConnectionResetError):
                one.sendall(junk)
                one.shutdown(socket.SHUT_WR)
                self.assertEqual(one.recv(99), b'')
        self.assertEqual(set(self.listed()), {'one'})

    def test_names_are_told_as_they_may_be_shown(self):
        self.start(ONE)
        with self.ask() as one:
            one.sendall(b'drop \x1b[2J"\\\xc3\xbc\n')
            said = json.loads(one.makefile().read())['error']
        self.assertNotIn('\x1b', said)

    def test_many_who_ask_nothing(self):
        """Eight may wait; others are turned away, and the server goes on."""
        self.start(ONE)
        idle = [self.ask() for _ in range(8)]
        server.wait_until(lambda: self.turned_away(), 30, 'one to be turned away')
        server.wait_for_text('while so many do', self.log, 30)
        idle.pop().close()
        server.wait_until(lambda: not self.turned_away(), 30, 'a place')
        self.assertEqual(self.read('one', 0, 4), bytes(4))
        self.assertEqual(self.end(), 0)  # at once, whoever is connected

    def turned_away(self):
        with self.ask() as one:
            try:
                one.sendall(b'list\n')
                return one.recv(1) == b''
            except (BrokenPipeError, ConnectionResetError):
                return True


if __name__ == '__main__':
    server.main()
