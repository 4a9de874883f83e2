"""The admin endpoint: every path responds as described in openapi.yaml; its addresses, authorization, and that a client
cannot block other clients."""
import os
import re
import shutil
import signal
import socket
import ssl
import stat

import admin
import server
import stopped_thread
import test_shutdown
import wire
from server import MiB

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
QUESTIONS = {'export': '%3Cscript%3E', 'offset': '0', 'length': str(4 * MiB), 'cells': '2', 'after': '0', 'seconds': '3600'}
RATES = {'bytes_per_second': 1 << 30, 'iops': None, 'burst': 1}


class Description:
    """openapi.yaml, and validation of responses."""

    def __init__(self):
        self.all = yaml.safe_load(admin.openapi())

    def operations(self, method):
        """{path: operation}"""
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
        self.description = Description()

    def configured(self, config=CONFIG, **kwargs):
        """A server, and the address of its admin endpoint."""
        one = self.serve(config=config, **kwargs)
        return one, os.path.join(one.directory, 'admin')

    def test_every_get(self):
        one, address = self.configured()
        with wire.connect(one.path, name='<script>') as client:
            client.write(MiB, b'x' * 4096)
            client.read(0, 4096)
            operations = self.description.operations('get')
            self.assertGreater(len(operations), 8)
            for path, operation in operations.items():
                with self.subTest(path):
                    if path == '/stream':
                        self.description.check(operation, 200, admin.first_tick(address))
                        continue
                    names = [self.description.resolved(each)['name'] for each in operation.get('parameters', [])]
                    query = '&'.join(f'{name}={QUESTIONS[name]}' for name in names)
                    status, value = admin.request(address, API + path + ('?' + query if query else ''))
                    # 409 without a supervisor; integration.kept_command tests the others.
                    self.assertEqual(status, 409 if path == '/kept' else 200, value)
                    self.description.check(operation, status, value)
                    status, value = admin.request(address, API + path + '?no=thing')
                    self.assertEqual(status, 400)
                    self.description.check(operation, status, value)
        exports = admin.request(address, API + '/exports')[1]
        self.assertEqual([each['name'] for each in exports], ['<script>', 'other'])

    def test_every_post(self):
        spilling = CONFIG + "devices: [{id: host, spill: [{file: '{directory}/spill', size: 64M}]}]\n"
        one, address = self.configured(spilling)
        bodies = {'/connections/end': {'id': 1 << 63},
                  '/log-level': {'level': 'debug'},
                  '/rates': {'export': '<script>', 'rates': RATES},
                  '/read-only': {'export': '<script>', 'read_only': True},
                  '/exports/create': {'export': {'name': 'new', 'size': '1M', 'devices': ['host']}, 'persist': False},
                  '/exports/rename': {'name': 'new', 'new_name': 'renamed'},
                  '/exports/remove': {'name': 'renamed', 'force': False, 'keep_contents': False},
                  '/exports/restore': {'file': f'{one.directory}/image', 'export': {'name': 'restored', 'devices': ['host']},
                                       'persist': False},
                  '/exports/resize': {'name': 'other', 'size': '128M', 'discard': False, 'reconnect': False},
                  '/exports/flush': {'name': 'other'},
                  '/exports/evict': {'name': 'other', 'size': '4M'},
                  '/exports/snapshot': {'source': '<script>', 'name': 'snapshot'},
                  '/exports/clone': {'source': '<script>', 'name': 'clone'},
                  '/exports/save': {'name': '<script>', 'file': f'{one.directory}/image', 'compress': 'zstd', 'threads': 2},
                  '/kept/drop': {'name': '<script>'},
                  '/reclaim': {'device': 'host', 'bytes': None, 'seconds': 60},
                  '/reclaim/end': {'device': None, 'claim': None}}
        statuses = {'/connections/end': 404, '/kept/drop': 409, '/exports/flush': 409, '/exports/evict': 409}
        operations = self.description.operations('post')
        self.assertEqual(set(operations), set(bodies))
        for path, operation in operations.items():
            with self.subTest(path):
                status, value = admin.request(address, API + path, bodies[path])
                self.assertEqual(status, statuses.get(path, 200), value)
                self.description.check(operation, status, value)
                status, value = admin.request(address, API + path, {**bodies[path], 'more': 1})
                self.assertEqual(status, 400)
                self.assertIn('more', value['error'])
                self.description.check(operation, status, value)
                self.assertEqual(admin.request(address, API + path)[0], 405)
        self.assertEqual(admin.request(address, API + '/rates', {'export': 'none', 'rates': RATES})[0], 404)
        self.assertEqual(self.exported(address)['rates'], RATES)
        text = {'bytes_per_second': '10M', 'iops': None, 'burst': '2s'}
        self.assertEqual(admin.request(address, API + '/rates', {'export': '<script>', 'rates': text})[0], 200)
        self.assertEqual(self.exported(address)['rates'], {'bytes_per_second': 10 << 20, 'iops': None, 'burst': 2})

    def exported(self, address, name='<script>'):
        return next(each for each in admin.request(address, API + '/exports')[1] if each['name'] == name)

    def test_rates_and_read_only(self):
        """Changes apply until a reload, and contents are preserved."""
        one, address = self.configured()
        with wire.connect(one.path, name='<script>') as writer:
            writer.write(0, b'kept')
            self.assertEqual(admin.request(address, API + '/rates', {'export': '<script>', 'rates': RATES})[0], 200)
            self.assertEqual(self.exported(address)['rates']['bytes_per_second'], RATES['bytes_per_second'])
            writer.write(4096, b'more')
            self.assertEqual(admin.request(address, API + '/read-only', {'export': '<script>', 'read_only': True})[0], 200)
            server.wait_for_text('the export is now read-only', one.log)
            server.wait_for_text("'<script>' keeps its contents; read_only changed, for all clients", one.log)
        self.assertTrue(self.exported(address)['read_only'])
        with wire.connect(one.path, name='<script>') as reader:
            self.assertTrue(reader.flags & wire.READ_ONLY)
            self.assertEqual(reader.read(0, 4), b'kept')
        one.process.send_signal(signal.SIGHUP)
        server.wait_until(lambda: not self.exported(address)['read_only'], what=one.log)
        self.assertIsNone(self.exported(address)['rates']['bytes_per_second'])
        wire.write_once(one.path, '<script>', 0, b'again')

    def test_read_only_waits_for_all_workers(self):
        """An idle worker might still acknowledge a write. Other requests are answered meanwhile."""
        one, address = self.configured(extra=['--threads', '1'])
        with wire.connect(one.path, name='<script>') as writer:
            writer.write(0, b'x')
            # That of the readiness check may be there as well.
            number = next(each['id'] for each in admin.request(address, API + '/connections')[1] if each['export'] == '<script>')
            with stopped_thread.stopped(one.process.pid, 'worker 0'):
                change = admin.PendingRequest(address, API + '/read-only', {'export': '<script>', 'read_only': True})
                end = admin.PendingRequest(address, API + '/connections/end', {'id': number})
                server.wait_until(lambda: self.exported(address)['read_only'], what=one.log)
                self.assertFalse(change.answered(1))
                self.assertFalse(end.answered(0))
                self.assertEqual(admin.request(address, API + '/log-level', {'level': 'debug'})[0], 200)
            self.assertEqual(change.answer()[0], 200)
            self.assertEqual(end.answer()[0], 200)
            with self.assertRaises(wire.Closed):
                writer.write(0, b'x')

    def test_metrics_of_the_process(self):
        one, address = self.configured()
        text = admin.request(address, '/metrics')[1].decode()
        values = {name: float(value) for name, value in re.findall(r'^(\w+) (\S+)$', text, re.MULTILINE)}
        self.assertEqual(values['gpunbd_process_id'], one.process.pid)
        self.assertGreater(values['gpunbd_workers'], 0)
        self.assertGreater(values['process_resident_memory_bytes'], MiB)
        self.assertGreater(values['process_max_fds'], values['process_open_fds'])
        self.assertGreater(values['process_cpu_seconds_total'], 0)
        version = self.command(server.PROGRAM, '--version').split()[-1]
        self.assertRegex(text, rf'(?m)^gpunbd_build_info{{.*version="{re.escape(version)}.*"')

    def test_log(self):
        one, address = self.configured()
        with wire.connect(one.path, name='<script>'):
            pass

        def is_listed():  # the endpoint receives events shortly after their lines are logged
            events = admin.request(address, API + '/events')[1]
            return any(each['text'].startswith("export '<script>': 64 MiB") for each in events)
        server.wait_until(is_listed, what=one.log)
        self.assertEqual(admin.request(address, API + '/log-level', {'level': 'debug'})[0], 200)
        server.wait_until(lambda: re.search(r'unix:pid=\d+,uid=\d+: admin endpoint: ', one.log()), what=one.log)

    def test_default_socket(self):
        folder = self.directory()
        stale = os.path.join(folder, 'admin-4194304.sock')  # larger than any process id
        with socket.socket(socket.AF_UNIX) as gone:
            gone.bind(stale)
        server.write_file(os.path.join(folder, 'admin-x.sock'), '')
        one = self.serve(environment={'RUNTIME_DIRECTORY': folder})
        own = os.path.join(folder, f'admin-{one.process.pid}.sock')
        self.assertEqual(set(os.listdir(folder)), {os.path.basename(own), 'admin-x.sock'})
        self.assertEqual(stat.S_IMODE(os.stat(own).st_mode), 0o600)
        self.assertEqual(admin.request(own, API + '/status')[1]['process']['pid'], one.process.pid)
        one.stop()
        self.assertEqual(os.listdir(folder), ['admin-x.sock'])

    def test_no_socket(self):
        folder = self.directory()
        os.chmod(folder, 0o777)  # a folder that other users can write to is not used
        one = self.serve(environment={'RUNTIME_DIRECTORY': folder})
        server.wait_for_text('info: gpunbd status and gpunbd kept cannot reach this server: ', one.log)
        self.assertEqual(os.listdir(folder), [])
        os.chmod(folder, 0o700)
        none = self.serve(extra=['--admin-socket', 'none'], environment={'RUNTIME_DIRECTORY': folder})
        self.assertNotIn('admin', none.log())
        self.assertEqual(os.listdir(folder), [])
        self.command(server.PROGRAM, 'serve', '--device', 'host', '--size', '1M', '-U', os.path.join(folder, 's'),
                     '--admin-socket', os.path.join(folder, 'none/there'), status=1, seconds=60)
        self.assertIn('does not exist', self.errors)

    def test_draining(self):
        one, address = self.configured(CONFIG + 'limits: {drain: 300}\n')
        with wire.connect(one.path, name='other') as client:
            test_shutdown.begin_write(client)
            test_shutdown.stop(one)  # waits for the rest of the WRITE
            self.assertEqual(admin.request(address, API + '/status')[0], 200)
            client.send(b'h' * (MiB - 1000))
        self.assertEqual(one.process.wait(30), 0)
        one.stop()
        self.assertFalse(os.path.exists(address))

    def tcp(self, *flags):
        port = server.free_port()
        one = self.serve(extra=['--admin-socket', 'none', '--admin', f'127.0.0.1:{port}', *flags])
        return one, port

    def token(self, mode=0o600):
        return server.write_file(os.path.join(self.directory(), 'token'), '0123456789abcdef0123456789abcdef\n', mode)

    def test_loopback_is_read_only(self):
        one, port = self.tcp()
        self.logged(f'admin endpoint: http://127.0.0.1:{port}/\n', one)
        self.assertEqual(admin.request(port, API + '/access')[1]['steering'], False)
        self.assertEqual(admin.request(port, API + '/status')[0], 200)
        status, value = admin.request(port, API + '/log-level', {'level': 'debug'})
        self.assertEqual(status, 403)
        self.assertIn('admin.socket', value['error'])
        self.assertEqual(admin.request(port, API + '/status', Host='evil.example')[0], 421)
        self.assertEqual(admin.request(port, API + '/status', Sec_Fetch_Site='cross-site')[0], 403)

    def test_token(self):
        _, port = self.tcp('--admin-token', self.token())
        self.assertEqual(admin.request(port, '/')[0], 200)
        right = {'Authorization': 'Bearer 0123456789abcdef0123456789abcdef'}
        for path in ('/api/v1/status', '/metrics', '/api/v1/stream', '/api/v1/nothing'):
            self.assertEqual(admin.request(port, path)[0], 401, path)
        self.assertEqual(admin.request(port, API + '/status', Authorization='Bearer wrong')[0], 401)
        self.assertEqual(admin.request(port, API + '/log-level', {'level': 'debug'})[0], 401)
        self.assertEqual(admin.request(port, API + '/status', **right)[0], 200)
        self.assertEqual(admin.request(port, API + '/log-level', {'level': 'info'}, **right)[0], 200)
        self.command(server.PROGRAM, 'serve', '--device', 'host', '--size', '1M', '-U', os.path.join(self.directory(), 's'),
                     '--admin', f'127.0.0.1:{server.free_port()}', '--admin-token', self.token(0o644), status=1, seconds=60)
        self.assertIn('all users may open it', self.errors)

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
        without_certificate = ssl.create_default_context(cafile=os.path.join(alice, 'ca-cert.pem'))
        with self.assertRaises(OSError):
            admin.request(port, API + '/status', tls=without_certificate)
        with self.assertRaises((OSError, admin.http.client.HTTPException)):
            admin.request(port, API + '/status')
        known = ssl.create_default_context(cafile=os.path.join(alice, 'ca-cert.pem'))
        known.load_cert_chain(os.path.join(alice, 'client-cert.pem'), os.path.join(alice, 'client-key.pem'))
        self.assertEqual(admin.request(port, API + '/status', tls=known)[0], 200)
        self.assertEqual(admin.request(port, API + '/log-level', {'level': 'debug'}, tls=known)[0], 200)
        self.assertEqual(admin.request(port, API + '/status', tls=known, Origin=f'http://localhost:{port}')[0], 403)
        # Replace the certificate authority.
        shutil.rmtree(folder)
        self.command(server.PROGRAM, 'tls-setup', folder, '--host', 'localhost', '--client', 'alice')
        one.process.send_signal(signal.SIGHUP)
        server.wait_for_text('exports are offered now', one.log)
        with self.assertRaises(OSError):
            admin.request(port, API + '/status', tls=known)
        known = ssl.create_default_context(cafile=os.path.join(alice, 'ca-cert.pem'))
        known.load_cert_chain(os.path.join(alice, 'client-cert.pem'), os.path.join(alice, 'client-key.pem'))
        self.assertEqual(admin.request(port, API + '/status', tls=known)[0], 200)

    def test_unprotected_addresses(self):
        path = os.path.join(self.directory(), 'gpunbd.yaml')

        def checked(more, status):
            server.write_file(path, f'listeners: {{tcp: []}}\nexports: [{{size: 1M, devices: [host]}}]\n'
                              f'admin: {{socket: none, tcp: {more}}}\n')
            self.command(server.PROGRAM, 'check', path, status=status, seconds=60)
            return self.errors
        self.assertIn('admin.tcp.token', checked('{address: 0.0.0.0}', 2))
        self.assertIn('cannot be read', checked('{address: 127.0.0.1, token: /nowhere}', 1))
        with socket.create_server(('127.0.0.1', 0)) as other:
            port = other.getsockname()[1]
            self.assertIn('another port (admin.tcp.port)', checked(f'{{address: 127.0.0.1, port: {port}}}', 1))
            self.command(server.PROGRAM, 'serve', '--config', path, status=1, seconds=60)
            self.assertIn('another port (admin.tcp.port)', self.errors)
            self.command(server.PROGRAM, 'serve', '--config', path, '--admin', f'127.0.0.1:{port}', status=1, seconds=60)
            self.assertIn('another port (--admin ADDRESS:PORT)', self.errors)
            self.command(server.PROGRAM, 'serve', '--device', 'host', '--size', '1M', '-U', f'{self.directory()}/s',
                         '--admin', f'127.0.0.1:{port}', status=1, seconds=60)
            self.assertIn('or choose another port (--admin ADDRESS:PORT)', self.errors)
        self.command(server.PROGRAM, 'serve', '--device', 'host', '--size', '1M', '--admin', '0.0.0.0', status=2, seconds=60)
        self.assertIn('--admin-token', self.errors)


if __name__ == '__main__':
    server.main()
