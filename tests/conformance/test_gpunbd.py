"""gpunbd on `host`, over TCP and over a Unix socket, in the clear and in TLS, and through staging memory: it breaks no
rule of the suite."""
import contextlib
import os
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
STAGED_SERVER = os.environ.get('GPUNBD_STAGED_SERVER', os.path.join(ROOT, 'build/release/staged_server'))
PROGRAM = os.environ.get('GPUNBD_PROGRAM', os.path.join(ROOT, 'build/release/gpunbd'))
CONFIGURATION = '''
listeners:
  tcp: [{{address: 127.0.0.1, port: {port}}}]
  unix: [{{path: '{path}'}}]
exports:
  - {{name: disk, size: 64M, devices: [host]}}
  - {{name: large, size: 5G, devices: [host]}}
  - {{name: fixed, size: 64M, devices: [host], read_only: true}}
  - {{name: coarse, size: 64M, devices: [host], block_size: {{minimum: 4K}}}}
'''
SECRET = '  - {{name: secret, size: 64M, devices: [host], tls: required}}\ntls: {{mode: optional, certificates: {folder}}}\n'
REQUIRED = 'tls: {{mode: required, certificates: {folder}}}\n'


def free_port():
    with socket.socket() as probe:
        probe.bind(('127.0.0.1', 0))
        return probe.getsockname()[1]


def listens(path):
    """A socket is there before anybody can connect to it."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as probe:
        probe.connect(path)
        return True
    return False


@contextlib.contextmanager
def running(command, path, directory):
    """A server that listens at `path`, and ends with this."""
    log_name = os.path.join(directory, 'log')
    with open(log_name, 'wb') as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        end = time.monotonic() + 30
        while process.poll() is None and time.monotonic() < end and not listens(path):
            time.sleep(0.01)
        if not listens(path):
            with open(log_name, encoding='utf-8', errors='replace') as log:
                raise AssertionError(f'{command[0]} does not serve:\n{log.read()}')
        yield
        process.send_signal(signal.SIGTERM)
        status = process.wait(60)
        if status:
            raise AssertionError(f'{command[0]} ended with {status}')
    finally:
        process.kill()
        process.wait()


def make_certificates(folder):
    """What `gpunbd tls-setup` makes for the server, in `folder`, and for a client: (certificate, key) of that."""
    subprocess.run([PROGRAM, 'tls-setup', folder, '--host', '127.0.0.1', '--client', 'client'], check=True,
                   stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    return [os.path.join(folder, 'clients', 'client', name) for name in ('client-cert.pem', 'client-key.pem')]


@contextlib.contextmanager
def served(tls=''):
    """(URI over TCP, URI over the Unix socket) of a server that ends with this; with `tls`, what the configuration
    says of it, a third: the client's certificate and key."""
    with tempfile.TemporaryDirectory(prefix='gpunbd-') as directory:
        folder = os.path.join(directory, 'tls')
        certificate = make_certificates(folder) if tls else None
        path, port = os.path.join(directory, 'socket'), free_port()
        file_name = os.path.join(directory, 'gpunbd.yaml')
        with open(file_name, 'w', encoding='utf-8') as file:
            file.write((CONFIGURATION + tls).format(port=port, path=path, folder=folder))
        with running([PROGRAM, 'serve', '--config', file_name], path, directory):
            uris = f'nbd://127.0.0.1:{port}/disk', f'nbd+unix:///disk?socket={path}'
            yield (*uris, certificate) if tls else uris


@contextlib.contextmanager
def served_through_staging(tls=False):
    """(URI, certificate and key of a client, if it is in TLS)."""
    with tempfile.TemporaryDirectory(prefix='gpunbd-') as directory:
        folder = os.path.join(directory, 'tls')
        certificate = make_certificates(folder) if tls else None
        path = os.path.join(directory, 'socket')
        with running([STAGED_SERVER, *(['-t', folder] if tls else []), path], path, directory):
            yield f'nbd{"s" if tls else ""}+unix:///disk?socket={path}', certificate


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

    def test_staging(self):
        with served_through_staging() as (uri, _):
            self.judge(uri, run.chosen([]))

    def judge_tls(self, uri, rules, absent, **options):
        """`absent`: how many rules about TLS may be about another kind of it."""
        results = self.judge(uri, rules, **options)
        about = [result for result in results if 'TLS' in result.rule.name or 'TLS' in result.rule.chapter]
        self.assertGreater(len(about), 15)
        missing = [result.rule.name for result in about if result.outcome == suite.NOT_OFFERED]
        self.assertLessEqual(len(missing), absent, missing)

    def test_tls(self):
        with served(REQUIRED) as (tcp, unix, certificate):
            for uri in (tcp, unix):
                self.judge_tls(uri.replace('nbd', 'nbds', 1), run.chosen([]), 5, certificate=certificate)

    def test_tls_is_optional(self):
        with served(SECRET) as (tcp, unix, certificate):
            self.judge_tls(tcp, run.chosen([]), 3, certificate=certificate, tls_export='secret')
            self.judge_tls(unix.replace('nbd', 'nbds', 1).replace('/disk', '/secret'), run.chosen([]), 3,
                           certificate=certificate, tls_export='secret')

    def test_tls_through_staging(self):
        with served_through_staging(tls=True) as (uri, certificate):
            self.judge_tls(uri, run.chosen([]), 5, certificate=certificate)

    def judge_large(self, uri):
        extensions = [one for one in suite.rules if one.extension]
        results = self.judge(uri.replace('/disk?', '/large?'), extensions)
        absent = [result.rule.name for result in results if result.outcome == suite.NOT_OFFERED]
        self.assertEqual(absent, [], 'an extension was not judged')

    def test_large(self):
        with served() as (_, unix):
            self.judge_large(unix)

    def test_large_staging(self):
        with served_through_staging() as (uri, _):
            self.judge_large(uri)

    def judge_coarse(self, uri):
        results = self.judge(uri.replace('/disk?', '/coarse?'), run.chosen([]))
        aligned = [result.outcome for result in results if 'not aligned' in result.rule.name]
        self.assertEqual(aligned, [suite.PASS], 'the minimum block was not judged')

    def test_coarse(self):
        with served() as (_, unix):
            self.judge_coarse(unix)

    def test_coarse_staging(self):
        with served_through_staging() as (uri, _):
            self.judge_coarse(uri)


if __name__ == '__main__':
    unittest.main()
