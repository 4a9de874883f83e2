"""gpunbd tls-setup: OpenSSL, nbdkit, libnbd and QEMU accept its files, and the commands that it prints work."""
import contextlib
import os
import re
import resource
import signal
import subprocess
import time
import urllib.parse

import server

NBDKIT = ['nbdkit', '--foreground', '--exit-with-parent', '--tls=require']


def files_of(folder):
    return {os.path.relpath(os.path.join(base, name), folder) for base, _, names in os.walk(folder) for name in names}


class TlsSetup(server.Test):
    def setUp(self):
        self.parent = self.directory()
        self.folder = os.path.join(self.parent, 'with space, and comma')

    def set_up(self, *arguments, folder=None, status=0, **kwargs):
        out = self.command(server.PROGRAM, 'tls-setup', folder or self.folder, *arguments, status=status, **kwargs)
        if status:
            self.assertEqual(out, '')
            self.assertEqual(self.errors.count('\n'), 1, self.errors)
        return out

    def openssl(self, *arguments):
        server.need('openssl')
        return subprocess.run(['openssl', *arguments], check=True, stdout=subprocess.PIPE, text=True).stdout

    def test_renewed_certificates_keep_their_keys_and_names(self):
        self.set_up('--host', 'a.example', '--host', '127.0.0.1', '--client', 'alice', '--client', 'bob', '--psk', 'carl',
                    '--days', '3')

        def contents():
            return {name: open(self.path(name), encoding='ascii').read() for name in files_of(self.folder)}
        before = contents()
        out = self.set_up('--renew', '--client', 'alice', '--days', '100')
        self.assertRegex(out, r'server-cert.pem\n +the server, valid until .*\n +Reload the server')
        self.assertRegex(out, r'alice/client-cert.pem\n +the client alice, .*\n +Copy this file to the client')
        after = contents()
        self.assertEqual({name for name in after if after[name] != before.get(name)},
                         {'server-cert.pem', 'clients/alice/client-cert.pem'})
        self.assertEqual(set(after), set(before))
        for cert, purpose in (('server-cert.pem', 'sslserver'), ('clients/alice/client-cert.pem', 'sslclient')):
            self.openssl('verify', '-CAfile', self.path('ca-cert.pem'), '-purpose', purpose, self.path(cert))
            self.openssl('x509', '-noout', '-checkend', str(90 * 86400), '-in', self.path(cert))
        self.assertIn('DNS:a.example, IP Address:127.0.0.1',
                      self.openssl('x509', '-noout', '-ext', 'subjectAltName', '-in', self.path('server-cert.pem')))
        self.set_up('--renew', '--client', 'nobody', status=1)
        self.assertIn('clients/nobody/client-cert.pem does not exist', self.errors)
        self.set_up('--renew', '--host', 'b.example', status=2)
        self.set_up('--renew', folder=self.directory(), status=1)
        self.assertIn('ca-key.pem does not exist', self.errors)

    def path(self, *parts):
        return os.path.join(self.folder, *parts)

    @contextlib.contextmanager
    def nbdkit(self, *arguments):
        """The port of an nbdkit that serves 1 MiB, with TLS only."""
        server.need('nbdkit')
        port = server.free_port()
        process = subprocess.Popen([*NBDKIT, '-i', '127.0.0.1', '-p', str(port), *arguments, 'memory', '1M'],
                                   stderr=subprocess.DEVNULL)
        try:
            def listens():
                self.assertIsNone(process.poll(), 'nbdkit ended')
                with contextlib.suppress(OSError), server.socket.create_connection(('127.0.0.1', port)):
                    return True
                return False
            server.wait_until(listens, 30, 'nbdkit')
            yield port
        finally:
            process.kill()
            process.wait()

    def printed(self, out, user, port):
        """The printed commands of a client, with this port: nbdinfo's and qemu-img's."""
        text = out.partition(f'{user}:\n\n')[2].partition('\n\n')[0].replace('\\\n', ' ')
        text = text.replace('127.0.0.1/?', f'127.0.0.1:{port}/?').replace('port=10809', f'port={port}')
        lines = text.splitlines()
        return (next(line for line in lines if line.startswith('nbdinfo ')),
                next(line for line in lines if line.startswith('qemu-img ')))

    def test_the_files(self):
        self.set_up('--host', 'localhost', '--host', '127.0.0.1', '--client', 'alice', '--psk', 'bob')
        keys = {'ca-key.pem', 'server-key.pem', 'clients/alice/client-key.pem', 'keys.psk', 'clients/bob/keys.psk'}
        rest = {'ca-cert.pem', 'server-cert.pem', 'clients/alice/ca-cert.pem', 'clients/alice/client-cert.pem'}
        self.assertEqual(files_of(self.folder), keys | rest)
        for name in keys:
            self.assertEqual(os.stat(self.path(name)).st_mode & 0o777, 0o600, name)
        for name in ('', 'clients', 'clients/alice', 'clients/bob'):
            self.assertEqual(os.stat(self.path(name)).st_mode & 0o777, 0o700, name)
        self.assertEqual(os.listdir(self.parent), [os.path.basename(self.folder)])
        for name in ('keys.psk', 'clients/bob/keys.psk'):
            self.assertRegex(server.read_file(self.path(name)), r'\Abob:[0-9a-f]{64}\n\Z')

    def test_openssl_accepts_the_files(self):
        server.need('openssl')
        hosts = ('storage.example.org', '*.example.net', '10.1.2.3', 'fe80::1')
        self.set_up(*(word for host in hosts for word in ('--host', host)), '--client', 'alice', '--days', '30')

        def verify(certificate, *arguments, status=0):
            self.command('openssl', 'verify', '-x509_strict', '-CAfile', self.path('ca-cert.pem'), *arguments,
                         self.path(certificate), status=status)
        for name in ('storage.example.org', 'x.example.net'):
            verify('server-cert.pem', '-purpose', 'sslserver', '-verify_hostname', name)
        for address in ('10.1.2.3', 'fe80::1'):
            verify('server-cert.pem', '-purpose', 'sslserver', '-verify_ip', address)
        verify('server-cert.pem', '-verify_hostname', 'other.example.org', status=2)
        verify('server-cert.pem', '-purpose', 'sslclient', status=2)
        verify('clients/alice/client-cert.pem', '-purpose', 'sslclient')
        verify('clients/alice/client-cert.pem', '-purpose', 'sslserver', status=2)
        for day, status in ((29, 0), (31, 2), (-1, 2)):
            verify('server-cert.pem', '-attime', int(time.time()) + day * 86400, status=status)
        text = self.command('openssl', 'x509', '-in', self.path('clients/alice/client-cert.pem'), '-noout', '-subject')
        self.assertEqual(text.strip().replace(' ', ''), 'subject=CN=alice')
        for key in ('ca-key.pem', 'server-key.pem', 'clients/alice/client-key.pem'):
            self.assertIn('NIST CURVE: P-256', self.command('openssl', 'pkey', '-in', self.path(key), '-noout', '-text'))
        authority = self.command('openssl', 'x509', '-in', self.path('ca-cert.pem'), '-noout', '-text')
        self.assertIn('CA:TRUE, pathlen:0', authority)
        self.assertIn('Certificate Sign, CRL Sign', authority)

    def test_certificates_with_nbdkit(self):
        server.need('nbdinfo')
        out = self.set_up('--host', '127.0.0.1', '--client', 'alice')
        out += self.set_up('--client', 'bob')  # with the same authority
        with self.nbdkit(f'--tls-certificates={self.folder}', '--tls-verify-peer') as port:
            for name in ('alice', 'bob'):
                info, qemu = self.printed(out.replace('HOST', '127.0.0.1'), name, port)
                self.assertIn('1048576', self.command('sh', '-c', info))
                server.need('qemu-img')
                self.assertIn('virtual size: 1 MiB', self.command('sh', '-c', qemu))
                self.assertNotIn('warning', self.errors)
            # Refused: a name that is not in the certificate, no certificate, and a certificate of another authority.
            good = f"nbds://127.0.0.1:{port}/?tls-certificates={urllib.parse.quote(self.path('clients/alice'))}"
            self.command('nbdinfo', good)
            self.command('nbdinfo', good.replace('127.0.0.1', '127.1'), status=1)
            os.unlink(self.path('clients/alice/client-cert.pem'))
            os.unlink(self.path('clients/alice/client-key.pem'))
            self.command('nbdinfo', good, status=1)
            other = os.path.join(self.parent, 'other')
            self.set_up('--host', '127.0.0.1', '--client', 'alice', folder=other)
            self.command('nbdinfo', f'nbds://127.0.0.1:{port}/?tls-certificates={other}/clients/alice', status=1)

    def test_shared_keys_with_nbdkit(self):
        server.need('nbdinfo')
        out = self.set_up('--psk', 'alice') + self.set_up('--psk', 'bob', '--psk', 'carol')
        with self.nbdkit(f"--tls-psk={self.path('keys.psk')}") as port:
            for name in ('alice', 'bob', 'carol'):
                info, qemu = self.printed(out.replace('HOST', '127.0.0.1'), name, port)
                self.assertIn('1048576', self.command('sh', '-c', info))
                server.need('qemu-img')
                self.assertIn('virtual size: 1 MiB', self.command('sh', '-c', qemu))
            stolen = f"nbds://alice@127.0.0.1:{port}/?tls-psk-file={urllib.parse.quote(self.path('clients/bob/keys.psk'))}"
            self.command('nbdinfo', stolen, status=1)

    def test_existing_files_are_not_replaced(self):
        self.set_up('--host', 'localhost', '--client', 'alice', '--psk', 'alice')
        before = {name: open(self.path(name), 'rb').read() for name in files_of(self.folder)}
        for arguments, message in ((('--host', 'other'), 'server-cert.pem exists already'),
                                   (('--client', 'alice'), 'clients/alice/client-cert.pem exists already'),
                                   (('--client', 'bob', '--client', 'alice'), 'clients/alice/client-cert.pem exists already'),
                                   (('--psk', 'alice'), 'keys.psk already has a key for alice'),
                                   (('--psk', 'bob', '--psk', 'alice'), 'keys.psk already has a key for alice')):
            self.set_up(*arguments, status=1)
            self.assertIn(message, self.errors)
            self.assertEqual({name: open(self.path(name), 'rb').read() for name in files_of(self.folder)}, before)

    def test_obstacles(self):
        self.set_up('--client', 'alice', status=1)
        self.assertIn('has no ca-cert.pem that could sign for clients; name the server as well', self.errors)
        self.assertFalse(os.path.exists(self.folder))
        self.set_up('--host', 'a', folder=f'{self.parent}/no/such', status=1)
        self.assertIn(f'the folder {self.parent}/no does not exist', self.errors)
        server.write_file(self.folder, '')
        self.set_up('--host', 'a', status=1)
        self.assertIn('exists and is not a folder', self.errors)
        os.unlink(self.folder)

        os.mkdir(self.folder, 0o777)
        os.chmod(self.folder, 0o777)
        self.set_up('--host', 'a', status=1)
        self.assertIn('other users may place keys there', self.errors)
        os.chmod(self.folder, 0o755)
        # The last file cannot be moved into place, because a file exists instead of a folder: the others are removed.
        server.write_file(self.path('clients'), '')
        self.set_up('--host', 'a', '--client', 'alice', '--psk', 'bob', status=1)
        self.assertIn('clients is not a folder', self.errors)
        self.assertEqual(os.listdir(self.folder), ['clients'])
        os.unlink(self.path('clients'))

        self.set_up('--host', 'a')
        os.rename(self.path('ca-key.pem'), self.path('kept'))
        self.set_up('--client', 'alice', status=1)
        self.assertIn('ca-cert.pem exists without its ca-key.pem', self.errors)
        server.write_file(self.path('ca-key.pem'), 'junk')
        self.set_up('--client', 'alice', status=1)
        self.assertIn('its key cannot be read', self.errors)
        os.replace(self.path('server-key.pem'), self.path('ca-key.pem'))
        self.set_up('--client', 'alice', status=1)
        self.assertIn('its key belongs to another certificate', self.errors)
        os.replace(self.path('kept'), self.path('ca-key.pem'))
        self.set_up('--client', 'alice')

    def test_no_space(self):
        """Incomplete files are removed."""
        def limit_file_size():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (300, 300))
        for exists in (False, True):
            if exists:
                os.mkdir(self.folder, 0o700)
            done = subprocess.run([server.PROGRAM, 'tls-setup', self.folder, '--host', 'a'], capture_output=True, text=True,
                                  preexec_fn=limit_file_size, check=False)
            self.assertEqual(done.returncode, 1)
            self.assertIn('File too large', done.stderr)
            self.assertEqual(os.listdir(self.parent), [os.path.basename(self.folder)] if exists else [])
            if exists:
                self.assertEqual(os.listdir(self.folder), [])

    def test_not_permitted(self):
        if os.geteuid() != 0:
            server.skip('only root can change the user')
        os.chmod(self.parent, 0o755)
        program = self.program_for_all_users()
        for exists in (False, True):
            if exists:
                os.mkdir(self.folder, 0o700)
            self.command(program, 'tls-setup', self.folder, '--host', 'a', status=1, user=65534, cwd='/')
            self.assertIn('uid 65534 may not create files in', self.errors)

    def test_wrong_usage(self):
        for arguments, message in ((('--host', 'a b'), "'a b' is not the name of a host"),
                                   (('--host', 'a:80'), 'without a port'),
                                   (('--host', 'a..b'), 'is not the name of a host'),
                                   (('--host', 'a', '--host', 'a'), 'is given twice'),
                                   (('--client', '../x'), 'is not a name for a client'),
                                   (('--client', ''), 'is not a name for a client'),
                                   (('--psk', 'a:b'), 'is not a name for a client'),
                                   (('--host', 'a', '--days', '0'), '--days: '),
                                   (('--host', 'a', '--days', '3651'), '--days: '),
                                   ((), 'nothing to create')):
            self.set_up(*arguments, status=2)
            self.assertIn(message, self.errors)
        self.assertEqual(os.listdir(self.parent), [])

    def test_certificates_expire_with_their_authority(self):
        out = self.set_up('--host', 'a', '--days', '3650')
        until = re.findall(r'until (\d{4}-\d\d-\d\d)', out)
        self.assertLessEqual(until[1], until[0])


if __name__ == '__main__':
    server.main()
