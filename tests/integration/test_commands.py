"""The commands other than serve: devices, check, help, and the messages about wrong usage."""
import json
import os

import server
import wire


class Commands(server.Test):
    def gpunbd(self, *arguments, status=0):
        return self.command(server.PROGRAM, *arguments, status=status)

    def check(self, text, status):
        path = server.write_file(os.path.join(self.directory(), 'test.yaml'), text)
        out = self.gpunbd('check', path, status=status)
        return path, out

    def test_check_good(self):
        _, out = self.check("listeners: {tcp: [{address: '127.0.0.1', port: 10810}]}\n"
                            'exports: [{name: x, size: 64M, devices: [host]}]\n', 0)
        self.assertIn('x', out)
        self.assertIn('64M', out)
        # The output is a configuration with the same meaning.
        _, again = self.check(out, 0)
        self.assertEqual(out, again)

    def test_credentials_without_tls(self):
        """They have no effect with mode: off, which check and serve report."""
        text = "exports: [{name: '', size: 1M, devices: [host]}]\nlisteners: {unix: [{path: '{socket}'}]}\ntls: {mode: off, %s}\n"
        for key, words in (('certificates: /nowhere', 'certificates have no effect with mode: off; use mode: required'),
                           ('psk: /nowhere', 'psk has no effect with mode: off; use mode: required or optional')):
            with self.subTest(key=key):
                path, _ = self.check(text % key, 0)
                self.assertIn(f'{path}: tls: note: {words}', self.errors)
                one = self.serve(config=text % key)
                self.logged(f'tls: {words}', one)
                flag = self.serve(config=(text % key).replace('off', 'required'), extra=('--tls', 'off'))
                self.assertNotIn('no effect', flag.log())

    def test_check_of_a_running_server(self):
        """The file of a running server is valid: addresses in use are only noted."""
        port = server.free_port()
        one = self.serve(config=f"""listeners: {{tcp: [{{address: 127.0.0.1, port: {port}}}], unix: [{{path: '{{socket}}'}}]}}
exports: [{{name: '', size: 64M, devices: [host]}}]
""")
        self.gpunbd('check', one.config_path)
        for key in ('tcp[0]', 'unix[0].path'):
            self.assertIn(f'{one.config_path}: listeners.{key}: note: not tried: it is in use by gpunbd '
                          f'(pid {one.process.pid})', self.errors)

    def test_failed_output_is_an_error(self):
        path = server.write_file(os.path.join(self.directory(), 'good.yaml'),
                                 "listeners: {tcp: []}\nexports: [{size: 1M, devices: [host]}]\n")
        large = os.path.join(self.directory(), 'large.yaml')  # larger than any buffer
        with open(large, 'w', encoding='utf-8') as file:
            file.write('listeners: {tcp: []}\nexports:\n')
            file.writelines(f'  - {{name: x{n}, size: 1M, devices: [host]}}\n' for n in range(2000))
        for arguments in (['check', path], ['check', large], ['devices'], ['--help'], ['serve', '--help'], ['--version']):
            words = ' '.join([server.PROGRAM, *arguments])
            for where in ('>/dev/full', '>&-'):
                with self.subTest(arguments=arguments, where=where):
                    self.command('sh', '-c', f'{words} {where}', status=1)
                    self.assertIn('standard output', self.errors)
            # A closed pipe ends the program with SIGPIPE as usual.
            self.command('bash', '-c', f'set -o pipefail; ({words} 2>&1; echo $? >&2) | true', status=None)
            self.assertIn(self.errors.split()[-1], ('0', '141'))

    def test_closed_streams_are_no_sockets(self):
        """The log is not written to a connection that has the descriptor number of a closed stream."""
        closed = ('sh', '-c', 'exec "$@" <&- >&- 2>&-', 'sh')
        one = self.run_server('-U', '{socket}', '--log-level', 'debug', prefix=closed)
        server.wait_until(lambda: server.listens(one.path), 60, 'the socket')
        with wire.connect(one.path) as client:
            client.write(0, b'clean')
            self.assertEqual(client.read(0, 5), b'clean')
        for fd in '012':
            self.assertEqual(os.readlink(f'/proc/{one.process.pid}/fd/{fd}'), '/dev/null')

    def test_answers_as_json(self):
        one = self.serve(config="listeners: {unix: [{path: '{socket}'}]}\nexports: [{name: x, size: 64M, devices: [{device}]}]\n",
                         name='x')
        uri = f'nbd+unix:///x?socket={one.path}'
        answer = json.loads(self.gpunbd('ping', uri, '--json'))
        self.assertEqual((answer['name'], answer['size'], answer['read_only']), ('x', 64 << 20, False))
        refused = json.loads(self.gpunbd('ping', uri.replace('/x?', '/y?'), '--json', status=1))
        self.assertIn("'y'", refused['error'])
        self.assertEqual(self.errors, '')
        devices = json.loads(self.gpunbd('devices', '--json', status=None))
        host = next(each for each in devices['devices'] if each['id'] == 'host')
        self.assertGreater(host['total'], host['reserve'])
        path = os.path.join(self.directory(), 'test.yaml')

        def checked(text, *flags, status):
            server.write_file(path, text)
            return json.loads(self.gpunbd('check', path, '--json', *flags, status=status))
        good = 'listeners: {tcp: []}\nexports: [{name: x, size: 64M, devices: [host], access: [{network: 10.0.0.0/8}]}]\n'
        answer = checked('exports: [{name: x, size: 64M, colour: red}]', status=2)
        self.assertEqual((answer['valid'], answer['serves'], answer['problems'][0]['line']), (False, False, 1))
        self.assertIn('colour', answer['error'])
        access = checked(good, '--who', '10.1.2.3', status=0)['access']
        self.assertEqual([(each['export'], each['access'], each['line']) for each in access], [('x', 'read-write', 2)])
        answer = checked('exports: [{name: x, size: 1000T, devices: [host]}]', status=1)
        self.assertEqual((answer['valid'], answer['serves']), (True, False))
        self.assertIn('1000T', answer['configuration'])
        self.assertIn('exports[0]', answer['error'])
        wrong = json.loads(self.gpunbd('ping', '--json', status=2))
        self.assertIn('URI is missing', wrong['error'])

    def test_devices_fit_a_terminal(self):
        out = self.gpunbd('devices')
        for line in (out + self.errors).splitlines():
            if 'https://' not in line:
                self.assertLessEqual(len(line), 80, line)
        self.assertRegex(out, r'(?m)^  total +[0-9.]+ [KMGT]iB$')
        self.assertNotIn('no GPU', out)  # it belongs to standard error


if __name__ == '__main__':
    server.main()
