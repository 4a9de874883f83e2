"""gpunbd kept lists and drops the contents that a server keeps, for its user only. Contents have the same id as long as
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

import admin
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
    """A server under gpunbd keep, with an interface like server.Server."""

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
        """Kills the server, and waits for the next one."""
        times = len(re.findall(r'info: ready', self.log()))
        os.kill(self.server_id(), signal.SIGKILL)
        self.ready(times + 1)

    def reload(self, exports):
        self.configure(exports)
        times = self.log().count('exports are offered now')
        os.kill(self.server_id(), signal.SIGHUP)
        server.wait_until(lambda: self.log().count('exports are offered now') > times, 60, 'the reload')

    def kept(self, *flags, status=0, environment=None):
        """The standard output, or the standard error if it fails."""
        done = subprocess.run([server.PROGRAM, 'kept', *flags], capture_output=True, text=True, check=False,
                              stdin=subprocess.DEVNULL, env={**os.environ, **(environment or {})})
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
    def test_the_id_belongs_to_the_contents(self):
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
    def test_list(self):
        self.start(ONE + TWO)
        self.write('one', 5 * MiB, b'x')
        one = self.listed()['one']
        self.assertEqual((one['size'], one['devices'], one['state']), (64 * MiB, 'host', 'in use'))
        self.assertEqual(one['used'], 2 * MiB)  # the written page, as in gpunbd status
        table = self.kept(self.file)
        self.assertEqual(len(table.splitlines()), 3)
        self.assertRegex(table.splitlines()[0], '^EXPORT +SIZE +USED +DEVICES +SINCE +INSTANCE +STATE$')
        self.assertRegex(table, r"'one' +64 MiB +[0-9.]+ MiB +host +20\d\d-\d\d-\d\d \d\d:\d\d:\d\d +" + one['instance'] +
                         ' +in use\n')
        self.assertIn('uses them', self.kept(self.file, '--drop', 'one', status=1))
        self.assertIn("nothing is kept under the name 'nowhere'", self.kept(self.file, '--drop', 'nowhere', status=1))
        self.assertEqual(set(self.listed()), {'one', 'two'})

    def test_access_is_limited_to_the_user(self):
        self.start(ONE)
        self.assertEqual(stat.S_IMODE(os.stat(self.keeping).st_mode), 0o600)
        if os.geteuid() != 0:
            return
        os.chmod(self.directory, 0o755)
        os.chmod(self.keeping, 0o666)

        def change_user():
            os.setgid(65534)
            os.setuid(65534)
        done = subprocess.run([os.path.realpath('/usr/bin/python3'), '-c', '''
import socket, sys
with socket.socket(socket.AF_UNIX) as one:
    one.connect(sys.argv[1])
    try:
        one.sendall(b"GET /api/v1/kept HTTP/1.1\\r\\nHost: h\\r\\n\\r\\n")
        print(len(one.recv(99)))
    except (BrokenPipeError, ConnectionResetError):
        print(0)
''', self.keeping], capture_output=True, text=True, check=False, preexec_fn=change_user)
        self.assertEqual((done.stdout, done.stderr), ('0\n', ''))
        server.wait_for_text('has no access to kept contents', self.log)

    def test_without_a_server(self):
        error = self.kept('--socket', self.keeping, status=1)
        self.assertIn(f'{self.keeping}: No such file or directory; start the server, or check the path\n', error)
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(self.keeping)
        error = self.kept('--socket', self.keeping, status=1)
        self.assertIn(f'{self.keeping}: Connection refused; no server listens on this socket; start one, or check the path\n', error)
        self.configure('  - {nam: one}\n')
        self.assertIn('unknown key', self.kept(self.file, status=2))

    def test_a_server_that_keeps_nothing(self):
        self.start('  - {name: one, size: 64M, devices: [host]}\n')
        self.assertEqual(self.listed(), {})
        self.assertEqual(self.kept(self.file), 'no contents are kept\n')
        self.reload('  - {name: one, size: 64M, devices: [host], keep: true}\n' + TWO)
        self.assertEqual({name: each['state'] for name, each in self.listed().items()}, {'two': 'in use'})
        server.wait_for_text("export 'one': its contents were made without keep", self.log)

    def test_an_invalid_path_prevents_the_start(self):
        self.configure(ONE)
        os.mkdir(self.keeping)
        done = subprocess.run([server.PROGRAM, 'keep', '--', 'serve', '--config', self.file], capture_output=True,
                              text=True, check=False, stdin=subprocess.DEVNULL, timeout=60)
        self.assertEqual(done.returncode, 1)
        self.assertIn('the path is a file that is not a socket', done.stderr)

    def test_default_socket(self):
        """The admin socket is found in the folder of the service, and among several servers the one that keeps contents."""
        self.configure(ONE, CONFIG.replace(", socket: '{directory}/keeping'", ''))
        folder = os.path.join(self.directory, 'run')
        os.mkdir(folder, 0o700)
        environment = {'RUNTIME_DIRECTORY': folder}
        self.assertIn('no server that keeps contents answers', self.kept(environment=environment, status=1))
        self.start_command('keep', '--', 'serve', '--config', self.file,
                           environment={'RUNTIME_DIRECTORY': folder + ':/elsewhere'})
        self.assertEqual(os.listdir(folder), [f'admin-{self.server_id()}.sock'])
        self.assertIn("'one'", self.kept(environment=environment))
        other = server.Server(environment=environment)
        self.addCleanup(other.stop)
        self.assertIn("'one'", self.kept(environment=environment))
        self.assertIn("'one'", self.kept('--socket', os.path.join(folder, f'admin-{self.server_id()}.sock')))
        error = self.kept('--socket', os.path.join(folder, f'admin-{other.process.pid}.sock'), status=1)
        self.assertIn('no supervisor keeps contents for this server', error)

    def test_the_configured_admin_socket(self):
        self.configure(ONE, CONFIG.replace(", socket: '{directory}/keeping'", '') .replace(
            'exports:', "admin: {socket: '{directory}/admin'}\nexports:"))
        self.start_command('keep', '--', 'serve', '--config', self.file)
        self.assertIn("'one'", self.kept(self.file))

    def test_without_an_admin_socket(self):
        """keeping.socket provides only the requests of gpunbd kept."""
        self.configure(ONE, CONFIG.replace('exports:', 'admin: {socket: none}\nexports:'))
        self.start_command('keep', '--', 'serve', '--config', self.file)
        self.assertIn("'one'", self.kept(self.file))
        for path in ('/', '/api/v1/status', '/metrics'):
            self.assertEqual(admin.ask(self.keeping, path)[0], 404, path)
        self.assertEqual(admin.ask(self.keeping, '/api/v1/read-only', {'export': 'one', 'read_only': True})[0], 404)


class Drop(Kept):
    def test_contents_without_an_export(self):
        self.start(ONE + TWO)
        self.write('one', 0, b'data')
        self.reload(TWO)
        self.assertEqual(self.listed()['one']['state'], 'no export has them')
        self.assertIn("'one': dropped", self.kept(self.file, '--drop', 'one'))
        self.assertEqual(set(self.listed()), {'two'})
        self.reload(ONE + TWO)
        self.assertEqual(self.read('one', 0, 4), bytes(4))

    def test_an_export_that_was_refused_is_created(self):
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
        server.wait_for_text('to free them, run gpunbd kept --drop', self.log)
        self.kept(self.file, '--drop', 'one')
        created = self.listed()['one']  # the reply comes after the export was created
        self.assertEqual((created['size'], created['state']), (128 * MiB, 'in use'))
        self.assertNotEqual(created['instance'], instance)
        self.assertEqual(self.read('one', 0, 4), bytes(4))
        self.assertEqual(self.read('two', 0, 4), b'also')

    def test_without_a_configuration_file(self):
        flags = ['-U', self.path, '--device', 'host', '--keep', '--keeping-socket', self.keeping]
        self.start_command('keep', '--', 'serve', '--size', '64M', *flags)
        self.write('', 0, b'data')
        self.assertEqual(set(self.listed()), {''})
        self.assertIn('uses them', self.kept('--socket', self.keeping, '--drop', '', status=1))


class Hostile(Kept):
    def test_names_are_escaped(self):
        self.start(ONE)
        status, value = admin.ask(self.keeping, '/api/v1/kept/drop', {'name': '\x1b[2J"\\\xfc'})
        self.assertEqual(status, 404)
        self.assertNotIn('\x1b', value['error'])
        self.assertEqual(set(self.listed()), {'one'})

    def test_silent_clients(self):
        """30 silent clients of the server's user do not block other clients of both sockets."""
        self.configure(ONE, CONFIG.replace('exports:', "admin: {socket: '{directory}/admin'}\nexports:"))
        self.start_command('keep', '--', 'serve', '--config', self.file)
        for path in (self.keeping, os.path.join(self.directory, 'admin')):
            with contextlib.ExitStack() as stack:
                for _ in range(30):
                    stack.enter_context(socket.socket(socket.AF_UNIX)).connect(path)
                for _ in range(20):
                    self.assertIn("'one'", self.kept('--socket', path))
        self.assertEqual(self.read('one', 0, 4), bytes(4))
        self.assertEqual(self.end(), 0)  # connected clients do not delay the end


if __name__ == '__main__':
    server.main()
