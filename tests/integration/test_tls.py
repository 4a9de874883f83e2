"""TLS 1.2 and 1.3 with real clients, by certificates and by shared keys: reads return what was written."""
import os
import subprocess

import admin
import server
import wire
from server import MiB

os.environ['PATH'] += ':/usr/sbin:/sbin'
server.need('openssl', 'nbdinfo', 'nbdcopy')

SIZE = 64 * MiB
KEYS = {'alice': '0123456789abcdef' * 4, 'bob': 'fedcba9876543210' * 4}


def openssl(*words):
    subprocess.run(['openssl', *words], check=True, stdin=subprocess.DEVNULL, capture_output=True)


def make_authority(folder):
    openssl('req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-days', '2',
            '-subj', '/CN=authority', '-keyout', f'{folder}/ca-key.pem', '-out', f'{folder}/ca-cert.pem')


def make_certificate(folder, name, common_name, alternatives='', days=2, into=None):
    """`into`: the folder for the certificate, if it is not that of the authority."""
    into = into or folder
    key, request, extensions = (f'{into}/{name}-{part}' for part in ('key.pem', 'request', 'extensions'))
    server.write_file(extensions, f'subjectAltName={alternatives}\n' if alternatives else '')
    openssl('req', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-subj', f'/CN={common_name}',
            '-keyout', key, '-out', request)
    openssl('x509', '-req', '-in', request, '-CA', f'{folder}/ca-cert.pem', '-CAkey', f'{folder}/ca-key.pem',
            '-CAcreateserial', '-days', str(days), '-extfile', extensions, '-out', f'{into}/{name}-cert.pem')


def make_folder(folder):
    os.makedirs(folder, exist_ok=True)
    make_authority(folder)
    make_certificate(folder, 'server', 'server', 'DNS:localhost,IP:127.0.0.1')
    make_certificate(folder, 'client', 'node-1', 'DNS:node-1.example')
    return folder


def write_keys(path, keys):
    with open(path, 'w', encoding='ascii') as file:
        file.writelines(f'{user}:{key}\n' for user, key in keys.items())
    os.chmod(path, 0o600)
    return path


class Tls(server.Test):
    @classmethod
    def setUpClass(cls):
        cls.files = server.tempfile.mkdtemp(prefix='gpunbd-')
        cls.addClassCleanup(server.shutil.rmtree, cls.files, True)
        cls.certificates = make_folder(f'{cls.files}/pki')
        cls.keys = write_keys(f'{cls.files}/keys.psk', KEYS)
        # The clients use GnuTLS, which takes the permitted versions from this file, and else uses the newest.
        server.write_file(f'{cls.files}/tls-1.2', '[overrides]\ndisabled-version = tls1.3\n')
        cls.image = f'{cls.files}/image'
        server.write_image(cls.image, SIZE, seed=5, data_every=1)

    def serve_tls(self, *flags, **kwargs):
        kwargs = {'size': SIZE, 'tcp': True, **kwargs}
        return self.serve(extra=('--tls-certificates', self.certificates, '--tls-psk', self.keys, *flags), **kwargs)

    @staticmethod
    def by_certificate(one, folder, unix=False, host='127.0.0.1'):
        if unix:
            return f'nbds+unix:///?socket={one.path}&tls-certificates={folder}'
        return f'nbds://{host}:{one.port}/?tls-certificates={folder}'

    @staticmethod
    def by_key(one, file, user='alice', unix=False):
        if unix:
            return f'nbds+unix://{user}@/?socket={one.path}&tls-psk-file={file}'
        return f'nbds://{user}@127.0.0.1:{one.port}/?tls-psk-file={file}'

    def version(self, version):
        return {'GNUTLS_SYSTEM_PRIORITY_FILE': f'{self.files}/tls-1.2'} if version == '1.2' else {}

    def all_ways(self, one):
        """Yields (description, URI, environment)."""
        for version in ('1.2', '1.3'):
            for unix in (False, True):
                where = 'unix' if unix else 'tcp'
                yield (f'{version} {where} certificate', self.by_certificate(one, self.certificates, unix),
                       self.version(version))
                yield f'{version} {where} key', self.by_key(one, self.keys, unix=unix), self.version(version)


class Clients(Tls):
    def test_nbdinfo(self):
        one = self.serve_tls()
        for name, uri, environment in self.all_ways(one):
            with self.subTest(name):
                self.assertIn('with TLS', self.command('nbdinfo', uri, environment=environment))
        for text in ('TLS 1.2, TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256', 'TLS 1.3, TLS_AES_128_GCM_SHA256',
                     "certificate 'node-1', 'node-1.example'; export", "user 'alice'; export"):
            server.wait_for_text(text, one.log)

    def test_nbdcopy(self):
        for number, version in enumerate(('1.2', '1.3')):
            one = self.serve_tls()
            ways = [way for way in self.all_ways(one) if way[0].startswith(version)]
            for name, uri, environment in ways[number::2]:
                for options in (('--connections=4', '--request-size=4096'), ('--request-size=33554432',), ()):
                    with self.subTest(name, options=options):
                        back = f'{self.files}/back'
                        self.command('nbdcopy', *options, self.image, uri, environment=environment)
                        self.command('nbdcopy', *options, uri, back, environment=environment)
                        self.assertTrue(server.same_file(self.image, back))

    def test_qemu_img(self):
        server.need('qemu-img')
        one = self.serve_tls()
        os.makedirs(f'{self.files}/psk', exist_ok=True)
        write_keys(f'{self.files}/psk/keys.psk', KEYS)
        target = f'driver=nbd,host=127.0.0.1,port={one.port},tls-creds=tls'
        for name, credentials in (('certificate', f'tls-creds-x509,id=tls,endpoint=client,dir={self.certificates}'),
                                  ('key', f'tls-creds-psk,id=tls,endpoint=client,username=bob,dir={self.files}/psk')):
            with self.subTest(name):
                self.command('qemu-img', 'convert', '-n', '--object', credentials, '--image-opts', '--target-image-opts',
                             f'driver=raw,file.driver=file,file.filename={self.image}', f'driver=raw,file.driver=nbd,file.host='
                             f'127.0.0.1,file.port={one.port},file.tls-creds=tls')
                self.command('qemu-img', 'compare', '--object', credentials, '--image-opts',
                             f'driver=raw,file.driver=file,file.filename={self.image}', target)

    def test_nbdkit(self):
        """nbdkit's nbd plugin is a TLS client, and serves without TLS."""
        server.need('nbdkit')
        one = self.serve_tls()
        for number, options in enumerate((('tls-username=bob', f'tls-psk={self.keys}'),
                                          (f'tls-certificates={self.certificates}', 'tls-verify=true'))):
            with self.subTest(options):
                back = f'{self.files}/nbdkit-{number}'
                self.command('nbdkit', '-U', '-', 'nbd', 'hostname=127.0.0.1', f'port={one.port}', 'tls=require', *options,
                             '--run', f'nbdcopy {self.image} "$uri" && nbdcopy "$uri" {back}')
                self.assertTrue(server.same_file(self.image, back))

    def test_nbd_client(self):
        """Listing exports uses the same handshake as attaching a device, and does not need the kernel's nbd module."""
        server.need('nbd-client')
        one = self.serve_tls(name='vram')
        listed = self.command('nbd-client', '-l', '127.0.0.1', '-p', one.port, '-certfile',
                              f'{self.certificates}/client-cert.pem', '-keyfile', f'{self.certificates}/client-key.pem',
                              '-cacertfile', f'{self.certificates}/ca-cert.pem', '-tlshostname', 'localhost')
        self.assertIn('vram:', listed.split())  # the description follows
        server.wait_for_text("certificate 'node-1', 'node-1.example'; listed the exports", one.log)

    def test_run(self):
        output = self.command(server.PROGRAM, 'serve', '--size', '1M', '--device', 'host', '--tls-psk', self.keys, '--run',
                              f'echo "$uri"; nbdinfo --size "nbds+unix://bob@/?socket=$unixsocket&tls-psk-file={self.keys}"')
        self.assertTrue(output.startswith('nbds+unix:///?socket='), output)
        self.assertIn('1048576', output)


class Refused(Tls):
    def test_unauthorized_server(self):
        """Clients can detect a wrong server by its certificate."""
        other = make_folder(f'{self.files}/others')
        one = self.serve_tls()
        server.shutil.copy(f'{self.certificates}/client-cert.pem', other)
        server.shutil.copy(f'{self.certificates}/client-key.pem', other)
        self.command('nbdinfo', self.by_certificate(one, other), status=1)  # another authority
        two = self.serve_tls(bind='127.0.0.2')
        self.command('nbdinfo', self.by_certificate(two, self.certificates, host='127.0.0.2'), status=1)  # another name
        self.command('nbdinfo', self.by_certificate(one, self.certificates))

    def test_invalid_files(self):
        folder = make_folder(f'{self.files}/open')
        os.chmod(f'{folder}/server-key.pem', 0o644)
        for flags, message in ((('--tls-certificates', folder),
                                f'{folder}/server-key.pem: contains a secret, and all users may open it (mode 0644); run: '
                                f'chmod o= {folder}/server-key.pem'),
                               (('--tls-psk', '/nowhere'),
                                '/nowhere: cannot be read: there is no such file; gpunbd tls-setup DIR --psk USER makes one')):
            self.command(server.PROGRAM, 'serve', '--size', '1M', '--device', 'host', *flags, '--run', 'true', status=1)
            self.assertIn(message, self.errors)
        config = server.write_file(f'{self.files}/open.yaml',
                                   f'tls: {{certificates: {folder}}}\nexports: [{{size: 1M, devices: [host]}}]\n')
        self.command(server.PROGRAM, 'check', config, status=1)
        self.assertIn(f'{config}: tls: {folder}/server-key.pem: contains a secret', self.errors)


CONFIG = """
listeners:
  unix: [{{path: '{{socket}}'}}]
tls: {{mode: {mode}, certificates: {folder}}}
exports:
  - {{name: open, size: 8M, devices: [host]}}
  - {{name: secret, size: 8M, devices: [host], tls: required}}
"""


class Selective(Tls):
    def config(self, mode, folder=None):
        return CONFIG.format(mode=mode, folder=folder or self.certificates)

    def names(self, one, tls):
        uri = self.by_certificate(one, self.certificates, unix=True) if tls else one.uri('')
        return [line.split('"')[1] for line in self.command('nbdinfo', '--list', uri).splitlines()
                if line.startswith('export=')]

    def test_optional(self):
        one = self.serve(config=self.config('optional'))
        self.assertEqual(self.names(one, False), ['open'])
        self.assertEqual(self.names(one, True), ['open', 'secret'])
        self.command('nbdinfo', '--size', one.uri('open'))
        self.command('nbdinfo', '--size', one.uri('secret'), status=1)
        self.command('nbdinfo', '--size', self.by_certificate(one, self.certificates, unix=True).replace('?', 'secret?'))

    def test_an_expired_certificate(self):
        """What needs no TLS is served."""
        folder = make_folder(f'{self.files}/expired')
        make_certificate(folder, 'server', 'server', 'DNS:localhost', days=-1)
        one = self.serve(config=self.config('optional', folder) + f"admin: {{socket: '{self.files}/expired.sock'}}\n")
        self.command('nbdinfo', '--size', one.uri('open'))
        self.assertRegex(one.log(), rf'error: tls: {folder}/server-cert.pem: expired on .*, so connections in TLS fail')
        metrics = admin.request(f'{self.files}/expired.sock', '/metrics')[1].decode()
        self.assertIn(f'gpunbd_certificate_expiry_timestamp_seconds{{file="{folder}/server-cert.pem"}} 1', metrics)

    def test_ready_line(self):
        for mode, scheme in (('optional', 'nbd+unix'), ('required', 'nbds+unix')):
            one = self.serve(config=self.config(mode))
            server.wait_for_text(f'ready: {scheme}:///open?socket=', one.log)

    def test_reload(self):
        """New certificates with the same file names: existing connections continue, new ones use the new certificates."""
        nbd = server.need_libnbd()
        folder = make_folder(f'{self.files}/changing')
        old = f'{self.files}/before'
        server.shutil.copytree(folder, old)
        one = self.serve(config=self.config('required', folder))
        handle = nbd.NBD()
        handle.set_uri_allow_local_file(True)
        handle.connect_uri(self.by_certificate(one, old, unix=True))
        handle.pwrite(b'kept' * 1000, 0)
        make_folder(folder)
        self.assertIn('SIGHUP: 2 exports are offered now', one.reload())
        self.assertEqual(handle.pread(4000, 0), bytearray(b'kept' * 1000))
        self.command('nbdinfo', self.by_certificate(one, old, unix=True), status=1)
        self.command('nbdinfo', self.by_certificate(one, folder, unix=True))
        # Invalid files change nothing.
        server.write_file(f'{folder}/server-cert.pem', 'no certificate\n')
        log = one.reload()
        self.assertIn(f'{folder}/server-cert.pem: is not a usable PEM certificate', log)
        self.assertIn('SIGHUP: the configuration is unchanged', log)
        self.command('nbdinfo', self.by_certificate(one, folder, unix=True))
        self.assertEqual(handle.pread(4, 0), bytearray(b'kept'))
        # TLS cannot be disabled while an export requires it.
        one.configure(self.config('off', folder))
        self.assertIn("export 'secret': it requires TLS, but TLS is off", one.reload())
        one.configure(self.config('off', folder).replace(', tls: required', ''))
        one.reload()
        self.assertEqual(wire.read_once(one.address, 'open', 0, 4), b'kept')
        self.assertEqual(handle.pread(4, 0), bytearray(b'kept'))
        handle.shutdown()

    def test_reload_warns(self):
        """A reload logs the same warnings as a start, once."""
        one = self.serve(config=self.config('required'))
        self.assertNotIn('tls.verify_clients is false', one.log() + one.reload())
        one.configure(self.config('required').replace('tls: {', 'tls: {verify_clients: false, ', 1))
        self.assertIn("tls.verify_clients is false: every client that can reach a listener may open export "
                      "'open'", one.reload())
        self.assertNotIn('tls.verify_clients is false', one.reload())


if __name__ == '__main__':
    server.main()
