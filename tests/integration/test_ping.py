"""gpunbd ping: it recognizes a server that serves an export, over every transport, and detects invalid and truncated
responses."""
import os
import subprocess
import tempfile

import server
import wire
from handshake_script import Answers, scripted_server

greeting = wire.encode_greeting
ANSWERS = Answers(wire.INFO)
reply, info, export = ANSWERS.reply, ANSWERS.info, ANSWERS.export
ACK = reply(wire.REP_ACK)
WHOLE = greeting() + info(wire.INFO_NAME, b'x') + export() + ACK


def revoke(folder, into):
    """Writes a revocation list of the authority with the server's certificate."""
    with tempfile.TemporaryDirectory() as files:
        config = server.write_file(f'{files}/config',
                                   f'[ca]\ndefault_ca=ca\n[ca]\ndatabase={files}/index\ndefault_md=sha256\ndefault_crl_days=2\n')
        server.write_file(f'{files}/index', '')
        ours = ('-config', config, '-cert', f'{folder}/ca-cert.pem', '-keyfile', f'{folder}/ca-key.pem')
        subprocess.run(['openssl', 'ca', *ours, '-revoke', f'{folder}/server-cert.pem'], check=True, capture_output=True)
        subprocess.run(['openssl', 'ca', *ours, '-gencrl', '-out', into], check=True, capture_output=True)


class Ping(server.Test):
    def ping(self, uri, *arguments, status=0):
        if '--timeout' not in arguments:
            arguments = (*arguments, '--timeout', '60')  # the default is too short for a busy machine
        out = self.command(server.PROGRAM, 'ping', uri, *arguments, status=status)
        if status:
            self.assertEqual(out, '')
            self.assertEqual(len(self.errors.splitlines()), 1, self.errors)
        return out

    def refused(self, uri, message, *arguments, status=1):
        self.ping(uri, *arguments, status=status)
        self.assertIn(message, self.errors)

    def ping_script(self, script, *, status=1, hang=False, listen_only=False, arguments=()):
        """The output for a server that sends that script, and then disconnects unless `hang` is set."""
        path = os.path.join(self.directory(), 'socket')
        with scripted_server(path, [] if listen_only else [script], hang):
            out = self.ping(f'nbd+unix:///?socket={path}', *arguments, status=status)
        return out or self.errors


class Servers(Ping):
    def test_each_transport(self):
        one = self.serve(size='3M', name='a b/c', tcp=True)
        name = 'a%20b/c'
        for uri in (f'nbd+unix:///{name}?socket={one.path}', f'nbd://127.0.0.1:{one.port}/{name}',
                    f'nbd://localhost:{one.port}/{name}', f'nbd://127.0.0.1:{one.port}',  # the default export
                    f'nbd+unix:///?socket={one.path.replace("/", "%2F")}'):
            self.assertRegex(self.ping(uri), r"^export '(a b/c)?' answers: 3 MiB\n$")
        self.refused(f'nbd://127.0.0.1:{one.port}/other', 'there is no such export')
        server.wait_for_text('the client aborted the handshake', one.log)

    def test_read_only_and_no_connection_counted(self):
        config = '''
listeners: {unix: [{path: '{socket}'}]}
exports: [{name: one, size: 1M, devices: [host], read_only: true, max_connections: 1}]
'''
        one = self.serve(config=config)
        with wire.connect(one.path, 'one'):
            for _ in range(3):
                self.assertEqual(self.ping(one.uri('one')), "export 'one' answers: 1 MiB, read-only\n")
        self.assertNotIn('warn', one.log())

    def test_other_servers(self):
        server.need('nbdkit')
        path = os.path.join(self.directory(), 'socket')
        self.run_beside(['nbdkit', '--foreground', '-U', path, 'memory', '5M'], path)
        self.assertIn('answers: 5 MiB', self.ping(f'nbd+unix:///?socket={path}'))

    def test_tls(self):
        folder = os.path.join(self.directory(), 'tls')
        self.command(server.PROGRAM, 'tls-setup', folder, '--host', 'localhost', '--host', 'other.example', '--client', 'c')
        one = self.serve(tcp=True, extra=['--tls-certificates', folder])
        client = f'tls-certificates={folder}/clients/c'
        at = f'127.0.0.1:{one.port}/'
        for uri in (f'nbds://localhost:{one.port}/?{client}', f'nbds+unix:///?socket={one.path}&{client}',
                    f'nbds://{at}?{client}&tls-hostname=other.example',
                    f'nbds://{at}?{client}&tls-verify-peer=false'):
            self.assertIn('answers: 64 MiB', self.ping(uri))
        self.refused(f'nbd://{at}', 'it requires TLS; write nbds instead of nbd')
        self.refused(f'nbds://{at}?{client}', 'IP address mismatch')
        self.refused(f'nbds://localhost:{one.port}/?{client}&tls-hostname=third.example', 'hostname mismatch')
        self.refused(f'nbds://localhost:{one.port}/', 'certificate')
        other = os.path.join(self.directory(), 'tls')
        self.command(server.PROGRAM, 'tls-setup', other, '--host', 'localhost', '--client', 'c')
        self.refused(f'nbds://localhost:{one.port}/?tls-certificates={other}/clients/c', 'certificate')
        self.refused(f'nbds://localhost:{one.port}/?tls-certificates=/no/such', "/no/such/ca-cert.pem: cannot be read: there is no folder '/no/such'; gpunbd tls-setup makes")
        plain = self.serve(tcp=True)
        self.refused(f'nbds://localhost:{plain.port}/?{client}', 'the server does not support TLS; write nbd instead of nbds')


    def test_shared_keys(self):
        folder = os.path.join(self.directory(), 'tls')
        self.command(server.PROGRAM, 'tls-setup', folder, '--psk', 'alice', '--psk', 'b@b')
        one = self.serve(tcp=True, extra=['--tls-psk', f'{folder}/keys.psk'])

        def uri(user, keys):
            return f'nbds://{user}@localhost:{one.port}/?tls-psk-file={keys}'
        for user, file in (('alice', 'alice/keys.psk'), ('b%40b', 'b@b/keys.psk')):
            self.assertIn('answers: 64 MiB', self.ping(uri(user, f'{folder}/clients/{file}')))
        self.assertIn('answers', self.ping(f'nbds+unix://alice@/?socket={one.path}&tls-psk-file={folder}/keys.psk'))
        self.refused(uri('carol', f'{folder}/keys.psk'), "keys.psk: has no key for the user 'carol'")
        keys = server.write_file(os.path.join(self.directory(), 'keys.psk'), 'alice:' + '01' * 32 + '\n')
        self.refused(uri('alice', keys), 'all users may open it')
        os.chmod(keys, 0o600)
        self.refused(uri('alice', keys), "check that the server has the same key for 'alice'")

    def test_a_revoked_certificate(self):
        server.need('openssl')
        folder = os.path.join(self.directory(), 'tls')
        self.command(server.PROGRAM, 'tls-setup', folder, '--host', 'localhost', '--client', 'c')
        one = self.serve(tcp=True, extra=['--tls-certificates', folder])
        client = f'{folder}/clients/c'
        self.assertIn('answers', self.ping(f'nbds://localhost:{one.port}/?tls-certificates={client}'))
        revoke(folder, f'{client}/ca-crl.pem')
        self.refused(f'nbds://localhost:{one.port}/?tls-certificates={client}', 'certificate revoked')

    def test_a_key_that_other_users_can_read(self):
        folder = os.path.join(self.directory(), 'tls')
        self.command(server.PROGRAM, 'tls-setup', folder, '--host', 'localhost', '--client', 'c')
        os.chmod(f'{folder}/clients/c/client-key.pem', 0o644)
        self.refused(f'nbds://localhost/?tls-certificates={folder}/clients/c', 'client-key.pem: contains a secret, and all users')


class InvalidServers(Ping):
    def test_invalid_responses(self):
        """Those that test_attach.py does not send to the same parser."""
        for script, message in ((b'HTTP/1.1 400 Bad Request\r\n\r\n', 'its greeting is invalid'),
                                (greeting() + reply(wire.ERR_UNSUP), 'supports neither GO nor INFO'),
                                (greeting() + reply(wire.ERR_SHUTDOWN), 'is shutting down'),
                                (greeting() + reply(wire.ERR_BLOCK_SIZE_REQD), 'request its block sizes'),
                                (greeting() + info(wire.INFO_NAME, b'') * 64, 'does not end'),
                                (greeting() + ACK, 'no information about the export')):
            with self.subTest(message=message):
                self.assertIn(message, self.ping_script(script))

    def test_timeout(self):
        for script in (b'', WHOLE[:17], WHOLE[:-1]):
            self.assertIn('within the time limit', self.ping_script(script, hang=True, arguments=('--timeout', '1')))
        self.assertIn('within the time limit', self.ping_script(b'', listen_only=True, arguments=('--timeout', '1')))

    def test_no_timeout_after_the_answer(self):
        """A server that does not close the connection has answered nevertheless."""
        # ping waits for the end of the connection. The time is enough for a slow server to answer.
        self.assertIn('answers: 1 MiB', self.ping_script(WHOLE, hang=True, status=0, arguments=('--timeout', '6')))

    def test_invalid_uris_are_wrong_usage(self):
        for uri, message in (('127.0.0.1:10809', 'is not one of nbd, nbds'), ('http://a/', "'http' is not one of"),
                             ('nbd+vsock://2:10809/', 'is not one of nbd'), ('nbd:///', 'the host is missing'),
                             ('nbd://:10809/', 'the host is missing'), ('nbd://a:0/', 'is not a port'), ('nbd://a:x/', 'is not a port'),
                             ('nbd://::1/', 'needs brackets'), ('nbd://a:65536/', 'is not a port'), ('nbd://[::1/', 'has no matching ]'),
                             ('nbd://[::1]x/', 'follows the address'), ('nbds://u@a/', 'add tls-psk-file=FILE'), ('nbds://a/?tls-psk-file=/k', 'the user of the shared key is missing'),
                             ('nbd://u@a/?tls-psk-file=/k', 'write nbds instead of nbd'), ('nbds://u@a/?tls-psk-file=/k&tls-hostname=a', 'leave one of the two out'),
                             ('nbds://u@a/?tls-psk-file=/k&tls-verify-peer=false', 'leave one of the two out'),
                             ('nbds+unix:///?socket=/s&tls-psk-file=/k', 'the user of the shared key is missing'),
                             ('nbd+unix:///', 'requires socket=PATH'), ('nbd+unix://host/?socket=/a', 'takes no host'),
                             ('nbd://a/?socket=/a', 'requires nbd+unix'), ('nbd://a/%zz', 'hexadecimal'),
                             ('nbd://a/%4', 'hexadecimal'), ('nbd://a/%00', 'other than 00'), ('nbd://a/?frob=1', "parameter 'frob'"),
                             ('nbd://a/?tls-certificates=/a', 'write nbds instead of nbd'),
                             ('nbds://a/?tls-verify-peer=1', 'is true or false'),
                             ('nbd://a/' + 'x' * 4097, 'exceeds 4096 bytes'),
                             ('nbd+unix:///?socket=/' + 'x' * 107, '107 bytes')):
            with self.subTest(uri=uri):
                self.refused(uri, message, status=2)

    def test_missing_files_and_hosts_are_failures(self):
        for uri, message in (('nbds://u@a/?tls-psk-file=/no/key', '/no/key: cannot be read: there is no folder'),
                             ('nbd://no-such-host.invalid/', 'check the name, or write the numeric address')):
            with self.subTest(uri=uri):
                self.refused(uri, message)

    def test_usage(self):
        for arguments, message in (((), 'URI is missing'), (('',), 'the URI is empty'), (('a', 'b'), 'one URI at a time'),
                                   (('a', '--timeout', '0'), '--timeout'), (('a', '--timeout', 'x'), '--timeout')):
            with self.subTest(arguments=arguments):
                self.command(server.PROGRAM, 'ping', *arguments, status=2)
                self.assertIn(message, self.errors)


if __name__ == '__main__':
    server.main()
