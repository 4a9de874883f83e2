"""The admin endpoint: every path of openapi.yaml answers as it says there; where it is, who may ask, and that nobody who
asks keeps others waiting."""
import os
import re
import shutil
import signal
import socket
import ssl
import stat
import subprocess

import admin
import server
import wire

try:
    import jsonschema
    import yaml
except ImportError:
    server.skip('the Python modules jsonschema and yaml are missing (python3-jsonschema, python3-yaml, for '
                '/usr/bin/python3; ./dev setup installs them)')

API = '/api/v1'
CONFIG = '''
listeners: {unix: [{path: '{socket}'}]}
admin: {socket: '{directory}/admin'}
exports:
  - {name: '<script>', size: 64M, devices: [host]}
  - {name: other, size: 16M, devices: [host], rates: {iops: 100000}}
'''
QUESTIONS = {'export': '%3Cscript%3E', 'offset': '0', 'length': str(4 * server.MiB), 'cells': '2', 'after': '0'}
RATES = {'bytes_per_second': 1 << 30, 'iops': None, 'burst': 1}


class Described:
    """openapi.yaml, and what it says of an answer."""

    def __init__(self):
        with open(os.path.join(server.ROOT, 'server/admin/openapi.yaml'), encoding='utf-8') as file:
            self.all = yaml.safe_load(file)

    def operations(self, method):
        """Paths, each with what is described there."""
        return {path: item[method] for path, item in self.all['paths'].items() if method in item}

    def resolved(self, item):
        while '$ref' in item:
            value = self.all
            for part in item['$ref'].removeprefix('#/').split('/'):
                value = value[part]
            item = value
        return item

    def check(self, operation, status, value):
        answers = operation['responses']
        answer = self.resolved(answers.get(str(status), answers['default']))
        kind = next(iter(answer['content'].values()))
        schema = {**kind['schema'], 'components': self.all['components']}
        jsonschema.Draft202012Validator(schema).validate(value)


class Admin(server.Test):
    def setUp(self):
        self.described = Described()

    def configured(self, config=CONFIG, **kwargs):
        """A server, and the path of its admin endpoint."""
        one = self.serve(config=config, **kwargs)
        return one, os.path.join(one.directory, 'admin')

    def test_each_question(self):
        one, place = self.configured()
        with wire.connect(one.path, name='<script>') as client:
            client.write(server.MiB, b'x' * 4096)
            client.read(0, 4096)
            operations = self.described.operations('get')
            self.assertGreater(len(operations), 8)
            for path, operation in operations.items():
                with self.subTest(path):
                    if path == '/stream':
                        self.described.check(operation, 200, admin.first_tick(place))
                        continue
                    names = [self.described.resolved(each)['name'] for each in operation.get('parameters', [])]
                    query = '&'.join(f'{name}={QUESTIONS[name]}' for name in names)
                    status, value = admin.ask(place, API + path + ('?' + query if query else ''))
                    self.assertEqual(status, 200, value)
                    self.described.check(operation, status, value)
                    status, value = admin.ask(place, API + path + '?no=thing')
                    self.assertEqual(status, 400)
                    self.described.check(operation, status, value)
        exports = admin.ask(place, API + '/exports')[1]
        self.assertEqual([each['name'] for each in exports], ['<script>', 'other'])

    def test_each_demand(self):
        _, place = self.configured()
        bodies = {'/connections/end': {'id': 1 << 63},
                  '/log-level': {'level': 'debug'},
                  '/rates': {'export': '<script>', 'rates': RATES},
                  '/read-only': {'export': '<script>', 'read_only': True}}
        operations = self.described.operations('post')
        self.assertEqual(set(operations), set(bodies))
        for path, operation in operations.items():
            with self.subTest(path):
                status, value = admin.ask(place, API + path, bodies[path])
                self.assertEqual(status, 404 if path == '/connections/end' else 200, value)
                self.described.check(operation, status, value)
                status, value = admin.ask(place, API + path, {**bodies[path], 'more': 1})
                self.assertEqual(status, 400)
                self.assertIn('more', value['error'])
                self.described.check(operation, status, value)
                self.assertEqual(admin.ask(place, API + path)[0], 405)
        self.assertEqual(admin.ask(place, API + '/connections/end', {'id': 1 << 63})[0], 404)
        self.assertEqual(admin.ask(place, API + '/rates', {'export': 'none', 'rates': RATES})[0], 404)

    def exported(self, place, name='<script>'):
        return next(each for each in admin.ask(place, API + '/exports')[1] if each['name'] == name)

    def test_a_load_of_known_size(self):
        one, place = self.configured()
        with wire.connect(one.path, name='<script>') as client:
            for i in range(10):
                client.write(i * 4096, b'x' * 4096)
            for i in range(7):
                client.read(i * 512, 512)
            client.trim(2 * server.MiB, 2 * server.MiB)
            with self.assertRaises(wire.Failed):
                client.read(1 << 40, 512)
            connection, = admin.ask(place, API + '/connections')[1]
            self.assertEqual((connection['export'], connection['serving'], connection['read'], connection['written']),
                             ('<script>', True, 7 * 512, 10 * 4096))
        by_type = {each['type']: each for each in self.exported(place)['requests']}
        counted = {name: (each['requests'], each['bytes'], each['in_flight'], each['errors'])
                   for name, each in by_type.items()}
        self.assertEqual(counted, {'write': (10, 10 * 4096, 0, {}), 'read': (8, 7 * 512, 0, {'EINVAL': 1}),
                                   'trim': (1, 2 * server.MiB, 0, {})})
        self.assertEqual(by_type['write']['latency']['count'], 10)
        self.assertEqual(self.exported(place)['used'], 2 * server.MiB)
        status = admin.ask(place, API + '/status')[1]
        self.assertEqual((status['handshakes'], status['process']['state']), (1, 'serving'))
        self.assertGreaterEqual(status['accepted'], 1)
        self.assertEqual(status['devices'][0]['used'], 2 * server.MiB)
        pages = admin.ask(place, API + '/pages?export=%3Cscript%3E')[1]
        self.assertEqual(pages['runs'], [{'offset': 0, 'length': 2 * server.MiB, 'device': 'host'},
                                         {'offset': 2 * server.MiB, 'length': 62 * server.MiB, 'device': None}])

    def test_a_connection_is_ended(self):
        one, place = self.configured()
        with wire.connect(one.path, name='<script>') as client, wire.connect(one.path, name='other') as other:
            client.write(0, b'x')
            other.write(0, b'x')
            connections = admin.ask(place, API + '/connections')[1]
            ended = next(each['id'] for each in connections if each['export'] == '<script>')
            self.assertEqual(admin.ask(place, API + '/connections/end', {'id': ended})[0], 200)
            with self.assertRaises(wire.Closed):
                client.read(0, 1)
            self.assertEqual(other.read(0, 1), b'x')
        server.wait_for_text('the administrator ended it', one.log)

    def test_rates_and_read_only(self):
        """Until the configuration is read again; contents stay."""
        one, place = self.configured()
        with wire.connect(one.path, name='<script>') as writer:
            writer.write(0, b'kept')
            self.assertEqual(admin.ask(place, API + '/rates', {'export': '<script>', 'rates': RATES})[0], 200)
            self.assertEqual(self.exported(place)['rates']['bytes_per_second'], RATES['bytes_per_second'])
            writer.write(4096, b'more')
            self.assertEqual(admin.ask(place, API + '/read-only', {'export': '<script>', 'read_only': True})[0], 200)
            server.wait_for_text('the export is read-only from now on', one.log)
            server.wait_for_text("'<script>' keeps its contents; read_only changed, for all clients", one.log)
        self.assertTrue(self.exported(place)['read_only'])
        with wire.connect(one.path, name='<script>') as reader:
            self.assertTrue(reader.flags & wire.FLAG['read_only'])
            self.assertEqual(reader.read(0, 4), b'kept')
        one.process.send_signal(signal.SIGHUP)
        server.wait_until(lambda: not self.exported(place)['read_only'], what=one.log)
        self.assertIsNone(self.exported(place)['rates']['bytes_per_second'])
        with wire.connect(one.path, name='<script>') as writer:
            writer.write(0, b'again')

    def test_what_is_answered_is_done(self):
        """And the next demand finds nobody at work on the one before."""
        one, place = self.configured()
        for iops in range(100, 160):
            self.assertEqual(admin.ask(place, API + '/rates', {'export': '<script>', 'rates': {**RATES, 'iops': iops}})[0], 200)
            self.assertEqual(self.exported(place)['rates']['iops'], iops)
        server.wait_until(lambda: one.log().count("keeps its contents; rates changed") == 60, what=one.log)

    def test_log(self):
        one, place = self.configured()
        with wire.connect(one.path, name='<script>'):
            pass
        said = [each['text'] for each in admin.ask(place, API + '/events')[1]]
        self.assertTrue(any(text.startswith("export '<script>': 64 MiB") for text in said), said)
        self.assertEqual(admin.ask(place, API + '/log-level', {'level': 'debug'})[0], 200)
        server.wait_until(lambda: re.search(r'unix:pid=\d+,uid=\d+: admin endpoint: ', one.log()), what=one.log)

    def test_page_and_metrics(self):
        _, place = self.configured()
        status, page = admin.ask(place, '/')
        self.assertEqual((status, page[:15].lower()), (200, b'<!doctype html>'))
        status, metrics = admin.ask(place, '/metrics')
        self.assertEqual(status, 200)
        self.assertIn(b'# TYPE gpunbd_', metrics)
        self.assertTrue(admin.ask(place, '/metrics', Accept='application/openmetrics-text')[1].endswith(b'# EOF\n'))

    def test_silent_clients(self):
        one, place = self.configured()
        silent = []
        for _ in range(200):
            each = socket.socket(socket.AF_UNIX)
            each.connect(place)
            silent.append(each)
            self.addCleanup(each.close)
        self.assertEqual(admin.ask(place, API + '/status')[0], 200)
        with wire.connect(one.path, name='other') as client:
            client.write(0, b'x')
        # All but the newest have been sent away.
        ended = sum(1 for each in silent[:150] if each.recv(1) == b'')
        self.assertEqual(ended, 150)

    def test_place_of_its_own(self):
        folder = self.directory()
        stale = os.path.join(folder, 'admin-4194304.sock')  # more than a process's number can be
        with socket.socket(socket.AF_UNIX) as gone:
            gone.bind(stale)
        kept = os.path.join(folder, 'admin-x.sock')
        with open(kept, 'w', encoding='ascii'):
            pass
        one = self.serve(environment={'RUNTIME_DIRECTORY': folder})
        own = os.path.join(folder, f'admin-{one.process.pid}.sock')
        self.assertEqual(set(os.listdir(folder)), {os.path.basename(own), 'admin-x.sock'})
        self.assertEqual(stat.S_IMODE(os.stat(own).st_mode), 0o600)
        self.assertEqual(admin.ask(own, API + '/status')[1]['process']['pid'], one.process.pid)
        one.stop()
        self.assertEqual(os.listdir(folder), ['admin-x.sock'])

    def test_no_place(self):
        folder = self.directory()
        os.chmod(folder, 0o777)  # others could put something there
        one = self.serve(environment={'RUNTIME_DIRECTORY': folder})
        server.wait_for_text('info: gpunbd status cannot ask this server: ', one.log)
        self.assertEqual(os.listdir(folder), [])
        os.chmod(folder, 0o700)
        none = self.serve(extra=['--admin-socket', 'none'], environment={'RUNTIME_DIRECTORY': folder})
        self.assertNotIn('admin', none.log())
        self.assertEqual(os.listdir(folder), [])
        self.command(server.PROGRAM, 'serve', '--device', 'host', '--size', '1M', '-U', os.path.join(folder, 's'),
                     '--admin-socket', os.path.join(folder, 'none/there'), status=1, seconds=60)
        self.assertIn('does not exist', self.errors)

    def test_draining(self):
        one, place = self.configured()
        with wire.connect(one.path, name='other') as client:
            # Half a write keeps it waiting.
            client.request(wire.CMD_WRITE, 0, 4096)
            client.send(b'x' * 100)
            server.wait_until(lambda: admin.ask(place, API + '/status')[0] == 200)
            one.process.send_signal(signal.SIGTERM)
            server.wait_for_text('stopping: ', one.log)
            self.assertEqual(admin.ask(place, API + '/status')[0], 200)
            client.send(b'x' * 3996)
        self.assertEqual(one.process.wait(30), 0)
        one.stop()
        self.assertFalse(os.path.exists(place))

    def tcp(self, *flags):
        port = server.free_port()
        one = self.serve(extra=['--admin-socket', 'none', '--admin', f'127.0.0.1:{port}', *flags])
        return one, port

    def token(self, mode=0o600):
        path = os.path.join(self.directory(), 'token')
        with open(path, 'w', encoding='ascii') as file:
            file.write('0123456789abcdef0123456789abcdef\n')
        os.chmod(path, mode)
        return path

    def test_loopback_only_tells(self):
        _, port = self.tcp()
        self.assertEqual(admin.ask(port, API + '/status')[0], 200)
        status, value = admin.ask(port, API + '/log-level', {'level': 'debug'})
        self.assertEqual(status, 403)
        self.assertIn('admin.socket', value['error'])
        self.assertEqual(admin.ask(port, API + '/status', Host='evil.example')[0], 421)
        self.assertEqual(admin.ask(port, API + '/status', Host=f'evil.example:{port}')[0], 421)
        self.assertEqual(admin.ask(port, API + '/status', Origin='http://evil.example')[0], 403)
        self.assertEqual(admin.ask(port, API + '/status', Origin=f'http://localhost:{port}')[0], 200)

    def test_token(self):
        _, port = self.tcp('--admin-token', self.token())
        self.assertEqual(admin.ask(port, '/')[0], 200)
        right = {'Authorization': 'Bearer 0123456789abcdef0123456789abcdef'}
        for path in ('/api/v1/status', '/metrics', '/api/v1/stream', '/api/v1/nothing'):
            self.assertEqual(admin.ask(port, path)[0], 401, path)
        self.assertEqual(admin.ask(port, API + '/status', Authorization='Bearer wrong')[0], 401)
        self.assertEqual(admin.ask(port, API + '/log-level', {'level': 'debug'})[0], 401)
        self.assertEqual(admin.ask(port, API + '/status', **right)[0], 200)
        self.assertEqual(admin.ask(port, API + '/log-level', {'level': 'info'}, **right)[0], 200)
        self.command(server.PROGRAM, 'serve', '--device', 'host', '--size', '1M', '-U', os.path.join(self.directory(), 's'),
                     '--admin', f'127.0.0.1:{server.free_port()}', '--admin-token', self.token(0o644), status=1, seconds=60)
        self.assertIn('everybody may open it', self.errors)

    def test_tls(self):
        folder = os.path.join(self.directory(), 'tls')
        self.command(server.PROGRAM, 'tls-setup', folder, '--host', 'localhost', '--client', 'alice')
        port = server.free_port()
        one = self.serve(config=f'''
listeners: {{unix: [{{path: '{{socket}}'}}]}}
tls: {{mode: off, certificates: {folder}}}
admin: {{socket: none, tcp: {{address: 127.0.0.1, port: {port}, tls: true}}}}
exports: [{{size: 16M, devices: [host]}}]
''')
        alice = os.path.join(folder, 'clients/alice')
        stranger = ssl.create_default_context(cafile=os.path.join(alice, 'ca-cert.pem'))
        with self.assertRaises(OSError):
            admin.ask(port, API + '/status', tls=stranger)
        with self.assertRaises((OSError, admin.http.client.HTTPException)):
            admin.ask(port, API + '/status')
        known = ssl.create_default_context(cafile=os.path.join(alice, 'ca-cert.pem'))
        known.load_cert_chain(os.path.join(alice, 'client-cert.pem'), os.path.join(alice, 'client-key.pem'))
        self.assertEqual(admin.ask(port, API + '/status', tls=known)[0], 200)
        self.assertEqual(admin.ask(port, API + '/log-level', {'level': 'debug'}, tls=known)[0], 200)
        self.assertEqual(admin.ask(port, API + '/status', tls=known, Origin=f'http://localhost:{port}')[0], 403)
        # Another authority in its place.
        shutil.rmtree(folder)
        self.command(server.PROGRAM, 'tls-setup', folder, '--host', 'localhost', '--client', 'alice')
        one.process.send_signal(signal.SIGHUP)
        server.wait_for_text('exports are offered now', one.log)
        with self.assertRaises(OSError):
            admin.ask(port, API + '/status', tls=known)
        known = ssl.create_default_context(cafile=os.path.join(alice, 'ca-cert.pem'))
        known.load_cert_chain(os.path.join(alice, 'client-cert.pem'), os.path.join(alice, 'client-key.pem'))
        self.assertEqual(admin.ask(port, API + '/status', tls=known)[0], 200)

    def test_exposed(self):
        path = os.path.join(self.directory(), 'gpunbd.yaml')

        def checked(more, status):
            with open(path, 'w', encoding='utf-8') as file:
                file.write(f'exports: [{{size: 1M, devices: [host]}}]\nadmin: {{socket: none, tcp: {more}}}\n')
            self.command(server.PROGRAM, 'check', path, status=status, seconds=60)
            return self.errors
        self.assertIn('admin.tcp.token', checked('{address: 0.0.0.0}', 2))
        self.assertIn('tls.certificates', checked('{address: 0.0.0.0, tls: true}', 2))
        self.assertIn('admin.tcp.address', checked('{token: /x}', 2))
        self.assertIn('address: 127.0.0.1', checked('{port: 9809}', 2))
        self.assertIn('cannot be read', checked('{address: 127.0.0.1, token: /nowhere}', 1))
        with socket.create_server(('127.0.0.1', 0)) as other:
            taken = other.getsockname()[1]
            self.assertIn('is taken', checked(f'{{address: 127.0.0.1, port: {taken}}}', 1))
        self.command(server.PROGRAM, 'serve', '--device', 'host', '--size', '1M', '--admin', '0.0.0.0', status=2, seconds=60)
        self.assertIn('--admin-token', self.errors)


if __name__ == '__main__':
    server.main()
