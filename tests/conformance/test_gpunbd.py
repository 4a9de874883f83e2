"""gpunbd on `host`, over TCP and over a Unix socket, in the clear and in TLS: it breaks no MUST, and what it owes
is listed."""
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import unittest

import run
import suite
import target

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PROGRAM = os.environ.get('GPUNBD_PROGRAM', os.path.join(ROOT, 'build/release/gpunbd'))
CONFIGURATION = '''
listeners:
  tcp: [{{address: 127.0.0.1, port: {port}}}]
  unix: [{{path: '{path}'}}]
exports:
  - {{name: disk, size: 64M, devices: [host]}}
  - {{name: large, size: 5G, devices: [host]}}
  - {{name: fixed, size: 64M, devices: [host], read_only: true}}
'''
SECRET = '  - {{name: secret, size: 64M, devices: [host], tls: required}}\ntls: {{mode: optional, certificates: {folder}}}\n'
REQUIRED = 'tls: {{mode: required, certificates: {folder}}}\n'


def free_port():
    with socket.socket() as probe:
        probe.bind(('127.0.0.1', 0))
        return probe.getsockname()[1]


def make_certificates(folder):
    """An authority, and what it has signed for the server and for a client: (certificate, key) of that."""
    def openssl(*words):
        subprocess.run(['openssl', *words], check=True, stdin=subprocess.DEVNULL, capture_output=True)

    def path(name):
        return os.path.join(folder, name)
    key = ('-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-keyout')
    openssl('req', '-x509', *key, path('ca-key.pem'), '-out', path('ca-cert.pem'), '-days', '2', '-subj', '/CN=authority')
    for name in ('server', 'client'):
        openssl('req', *key, path(f'{name}-key.pem'), '-out', path('request'), '-subj', f'/CN={name}')
        openssl('x509', '-req', '-in', path('request'), '-CA', path('ca-cert.pem'), '-CAkey', path('ca-key.pem'),
                '-CAcreateserial', '-days', '2', '-out', path(f'{name}-cert.pem'))
    return path('client-cert.pem'), path('client-key.pem')


@contextlib.contextmanager
def served(tls=''):
    """(URI over TCP, URI over the Unix socket) of a server that ends with this; with `tls`, what the configuration
    says of it, a third: the client's certificate and key."""
    with tempfile.TemporaryDirectory(prefix='gpunbd-') as directory:
        certificate = make_certificates(directory) if tls else None
        path, port = os.path.join(directory, 'socket'), free_port()
        file_name, log_name = os.path.join(directory, 'gpunbd.yaml'), os.path.join(directory, 'log')
        with open(file_name, 'w', encoding='utf-8') as file:
            file.write((CONFIGURATION + tls).format(port=port, path=path, folder=directory))
        with open(log_name, 'wb') as log:
            process = subprocess.Popen([PROGRAM, 'serve', '--config', file_name],
                                       stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            end = time.monotonic() + 30
            while process.poll() is None and time.monotonic() < end and not os.path.exists(path):
                time.sleep(0.01)
            if not os.path.exists(path):
                with open(log_name, encoding='utf-8', errors='replace') as log:
                    raise AssertionError(f'gpunbd does not serve:\n{log.read()}')
            uris = f'nbd://127.0.0.1:{port}/disk', f'nbd+unix:///disk?socket={path}'
            yield (*uris, certificate) if tls else uris
            process.send_signal(signal.SIGTERM)
            status = process.wait(60)
            if status:
                raise AssertionError(f'gpunbd ended with {status}')
        finally:
            process.kill()
            process.wait()


class Gpunbd(unittest.TestCase):
    def judge(self, uri, rules, **options):
        server = target.Server(uri, read_only_export='fixed', **options)
        results = [suite.run(one, server, 60) for one in rules]
        for result in results:
            one = result.rule
            print(run.line(one.kind, result.outcome, one.chapter, one.name, result.reason))
        print(f'{uri.partition("?")[0]}: {run.summary(results)}')
        broken = [f'{result.rule.name}: {result.reason}' for result in results
                  if result.outcome == suite.FAIL and
                  (result.rule.level != suite.SHOULD or result.rule.extension)]
        self.assertEqual(broken, [], 'broken')
        absent = [result.rule.name for result in results
                  if result.outcome == suite.NOT_OFFERED and 'read-only' in result.rule.name]
        self.assertEqual(absent, [], 'the read-only export was not judged')
        return results

    def test_tcp(self):
        with served() as (tcp, _):
            self.judge(tcp, run.chosen([]))

    def test_unix(self):
        with served() as (_, unix):
            self.judge(unix, run.chosen([]))

    def judge_tls(self, uri, rules, absent, **options):
        """`absent`: how many rules about TLS may be about another kind of it."""
        results = self.judge(uri, rules, **options)
        about = [result for result in results if 'TLS' in result.rule.name or 'TLS' in result.rule.chapter]
        self.assertGreater(len(about), 15)
        missing = [result.rule.name for result in about if result.outcome == suite.NOT_OFFERED]
        self.assertLessEqual(len(missing), absent, missing)

    @unittest.skipUnless(shutil.which('openssl'), 'openssl is not installed')
    def test_tls(self):
        with served(REQUIRED) as (tcp, unix, certificate):
            for uri in (tcp, unix):
                self.judge_tls(uri.replace('nbd', 'nbds', 1), run.chosen([]), 5, certificate=certificate)

    @unittest.skipUnless(shutil.which('openssl'), 'openssl is not installed')
    def test_tls_is_optional(self):
        with served(SECRET) as (tcp, unix, certificate):
            self.judge_tls(tcp, run.chosen([]), 3, certificate=certificate, tls_export='secret')
            self.judge_tls(unix.replace('nbd', 'nbds', 1).replace('/disk', '/secret'), run.chosen([]), 3,
                           certificate=certificate, tls_export='secret')

    def test_large(self):
        extensions = [one for one in suite.rules if one.extension]
        with served() as (_, unix):
            results = self.judge(unix.replace('/disk?', '/large?'), extensions)
        absent = [result.rule.name for result in results if result.outcome == suite.NOT_OFFERED]
        self.assertEqual(absent, [], 'an extension was not judged')


if __name__ == '__main__':
    unittest.main()
