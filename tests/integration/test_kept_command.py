"""gpunbd kept lists and drops the contents that a server keeps, for its user only. Contents have the same id as long as
they are the same."""
import json
import os
import re
import socket
import stat
import subprocess

import admin
import kept
import server
import wire

MiB = 1 << 20
CONFIG = '''
listeners: {unix: [{path: '{socket}'}]}
keeping: {grace: 600, socket: '{directory}/keeping'}
exports:
'''
ONE = '  - {name: one, size: 64M, devices: [{device}], keep: true}\n'
TWO = '  - {name: two, size: 32M, devices: [{device}], keep: true}\n'
OTHER_ONE = '  - {name: one, size: 128M, devices: [{device}], keep: true}\n'


class Kept(kept.Test):
    def start(self, exports, text=CONFIG):
        self.one = self.keep(config=text + exports)
        self.keeping = f'{self.one.directory}/keeping'

    def kept(self, *flags, status=0, environment=None):
        """The standard output, or the standard error if it fails."""
        out = self.command(server.PROGRAM, 'kept', *flags, status=status, environment=environment)
        return self.errors if status else out

    def listed(self):
        return {each['name']: each for each in json.loads(self.kept('--socket', self.keeping, '--json'))['kept']}

    def write(self, name, offset, data):
        wire.write_once(self.one.path, name, offset, data)

    def read(self, name, offset, length):
        return wire.read_once(self.one.path, name, offset, length)


class Identity(Kept):
    def test_the_id_belongs_to_the_contents(self):
        self.start(ONE + '  - {name: gone, size: 64M, devices: [{device}]}\n')
        first = self.listed()
        self.assertEqual(set(first), {'one'})
        instance = first['one']['instance']
        self.assertRegex(instance, '^[0-9a-f]{32}$')
        gone = re.search("export 'gone': .* instance ([0-9a-f]{32})", self.one.log()).group(1)
        self.write('one', 5, b'kept')
        self.one.kill_and_wait()
        self.assertEqual(self.listed()['one']['instance'], instance)
        self.assertEqual(self.read('one', 5, 4), b'kept')
        ids = re.findall("export 'gone': .* instance ([0-9a-f]{32})", self.one.log())
        self.assertEqual(len(ids), 2)
        self.assertNotEqual(ids[1], gone)
        self.assertEqual(self.one.log().count(f'instance {instance}'), 2)
        self.assertEqual(self.one.stop(), 0)


class List(Kept):
    def test_list(self):
        self.start(ONE + TWO)
        self.write('one', 5 * MiB, b'x')
        one = self.listed()['one']
        self.assertEqual((one['size'], one['devices'], one['state']), (64 * MiB, 'host', 'in use'))
        self.assertEqual(one['used'], 2 * MiB)  # the written page, as in gpunbd status
        table = self.kept(self.one.config_path)
        self.assertEqual(len(table.splitlines()), 3)
        self.assertRegex(table.splitlines()[0], '^EXPORT +SIZE +USED +DEVICES +SINCE +INSTANCE +STATE$')
        self.assertRegex(table, r"'one' +64 MiB +[0-9.]+ MiB +host +20\d\d-\d\d-\d\d \d\d:\d\d:\d\d +" + one['instance'] +
                         ' +in use\n')
        self.assertIn('uses them', self.kept(self.one.config_path, '--drop', 'one', status=1))
        self.assertIn("nothing is kept under the name 'nowhere'", self.kept(self.one.config_path, '--drop', 'nowhere', status=1))
        self.assertEqual(set(self.listed()), {'one', 'two'})

    def test_access_is_limited_to_the_user(self):
        self.start(ONE)
        self.assertEqual(stat.S_IMODE(os.stat(self.keeping).st_mode), 0o600)
        if os.geteuid() != 0:
            return
        os.chmod(self.one.directory, 0o755)
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
        server.wait_for_text('has no access to kept contents', self.one.log)

    def test_without_a_server(self):
        path = f'{self.directory()}/keeping'
        error = self.kept('--socket', path, status=1)
        self.assertIn(f'{path}: No such file or directory; start the server, or check the path\n', error)
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(path)
        error = self.kept('--socket', path, status=1)
        self.assertIn(f'{path}: Connection refused; no server listens on this socket; start one, or check the path\n', error)
        config = server.write_file(f'{self.directory()}/gpunbd.yaml', 'exports: [{nam: one}]\n')
        self.assertIn('unknown key', self.kept(config, status=2))

    def test_a_server_that_keeps_nothing(self):
        self.start('  - {name: one, size: 64M, devices: [{device}]}\n')
        self.assertEqual(self.listed(), {})
        self.assertEqual(self.kept(self.one.config_path), 'no contents are kept\n')
        self.one.reload(CONFIG + '  - {name: one, size: 64M, devices: [{device}], keep: true}\n' + TWO)
        self.assertEqual({name: each['state'] for name, each in self.listed().items()}, {'two': 'in use'})
        server.wait_for_text("export 'one': its contents were made without keep", self.one.log)

    def test_default_socket(self):
        """The admin socket is found in the folder of the service, and among several servers the one that keeps contents."""
        folder = self.directory()
        environment = {'RUNTIME_DIRECTORY': folder}
        self.assertIn('no server that keeps contents answers', self.kept(environment=environment, status=1))
        self.one = self.keep(config=CONFIG.replace(", socket: '{directory}/keeping'", '') + ONE,
                             environment={'RUNTIME_DIRECTORY': folder + ':/elsewhere'})
        self.assertEqual(os.listdir(folder), [f'admin-{self.one.server()}.sock'])
        self.assertIn("'one'", self.kept(environment=environment))
        other = server.Server(environment=environment)
        self.addCleanup(other.stop)
        self.assertIn("'one'", self.kept(environment=environment))
        self.assertIn("'one'", self.kept('--socket', os.path.join(folder, f'admin-{self.one.server()}.sock')))
        error = self.kept('--socket', os.path.join(folder, f'admin-{other.process.pid}.sock'), status=1)
        self.assertIn('no supervisor keeps contents for this server', error)

    def test_a_configuration_without_a_socket(self):
        """It does not name a server, so that contents of another server are not dropped."""
        folder = self.directory()
        self.one = self.keep(config=CONFIG.replace(", socket: '{directory}/keeping'", '') + ONE,
                             environment={'RUNTIME_DIRECTORY': folder})
        for more in ((), ('--drop', 'one')):
            error = self.kept(self.one.config_path, *more, environment={'RUNTIME_DIRECTORY': folder}, status=2)
            self.assertEqual(error, f'gpunbd kept: {self.one.config_path}: names neither keeping.socket nor admin.socket; '
                             'add one, or use --socket PATH\n')

    def test_the_configured_admin_socket(self):
        self.start(ONE, CONFIG.replace(", socket: '{directory}/keeping'", '').replace(
            'exports:', "admin: {socket: '{directory}/admin'}\nexports:"))
        self.assertIn("'one'", self.kept(self.one.config_path))

    def test_without_an_admin_socket(self):
        """keeping.socket provides only the requests of gpunbd kept."""
        self.start(ONE, CONFIG.replace('exports:', 'admin: {socket: none}\nexports:'))
        self.assertIn("'one'", self.kept(self.one.config_path))
        for path in ('/', '/api/v1/status', '/metrics'):
            self.assertEqual(admin.request(self.keeping, path)[0], 404, path)
        self.assertEqual(admin.request(self.keeping, '/api/v1/read-only', {'export': 'one', 'read_only': True})[0], 404)


class Drop(Kept):
    def test_an_export_that_was_refused_is_created(self):
        self.start(ONE + TWO)
        self.write('one', 0, b'data')
        self.write('two', 0, b'also')
        instance = self.listed()['one']['instance']
        self.one.configure(CONFIG + OTHER_ONE + TWO)
        self.one.kill_and_wait()
        refused = self.listed()['one']
        self.assertEqual(refused['instance'], instance)
        self.assertIn('they were made for size 64M', refused['state'])
        self.assertEqual(refused['used'], 2 * MiB)
        server.wait_for_text('to free them, run gpunbd kept --drop', self.one.log)
        self.assertIn("'one': dropped", self.kept(self.one.config_path, '--drop', 'one'))
        created = self.listed()['one']  # the reply comes after the export was created
        self.assertEqual((created['size'], created['state']), (128 * MiB, 'in use'))
        self.assertNotEqual(created['instance'], instance)
        self.assertEqual(self.read('one', 0, 4), bytes(4))
        self.assertEqual(self.read('two', 0, 4), b'also')

    def test_without_a_configuration_file(self):
        self.one = self.keep('--size', '64M', '--device', server.DEVICE, '--keeping-socket', '{directory}/keeping')
        self.keeping = f'{self.one.directory}/keeping'
        self.write('', 0, b'data')
        self.assertEqual(set(self.listed()), {''})
        self.assertIn('uses them', self.kept('--socket', self.keeping, '--drop', '', status=1))


class Hostile(Kept):
    def test_names_are_escaped(self):
        self.start(ONE)
        status, value = admin.request(self.keeping, '/api/v1/kept/drop', {'name': '\x1b[2J"\\\xfc'})
        self.assertEqual(status, 404)
        self.assertNotIn('\x1b', value['error'])
        self.assertEqual(set(self.listed()), {'one'})


if __name__ == '__main__':
    server.main()
