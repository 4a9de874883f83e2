"""gpunbd on `host` complies with every rule: over TCP and a Unix socket, with and without TLS, and through staging
memory; and on `vulkan:0`, with a driver on the CPU and validation layers."""
import contextlib
import os
import signal
import socket
import subprocess
import tempfile
import time
import unittest

import run  # before lavapipe: it adds the folder of that module
import lavapipe
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
    """Whether a connection succeeds. The socket file exists before the server listens."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as probe:
        probe.connect(path)
        return True
    return False


@contextlib.contextmanager
def running(command, path, directory):
    """A server that listens at `path` and is stopped at the end. All its files are in `directory`."""
    log_name = os.path.join(directory, 'log')
    with open(log_name, 'wb') as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                   env={**os.environ, 'RUNTIME_DIRECTORY': directory})
    try:
        end = time.monotonic() + 30
        while process.poll() is None and time.monotonic() < end and not listens(path):
            time.sleep(0.01)
        if not listens(path):
            with open(log_name, encoding='utf-8', errors='replace') as log:
                raise AssertionError(f'{command[0]} does not listen:\n{log.read()}')
        yield
        process.send_signal(signal.SIGTERM)
        status = process.wait(60)
        if status:
            raise AssertionError(f'{command[0]} exited with {status}')
        with open(log_name, encoding='utf-8', errors='replace') as log:
            text = log.read()
        if any(report in text for report in lavapipe.REPORTS):
            raise AssertionError(f'the validation layers of Vulkan report:\n{text}')
    finally:
        process.kill()
        process.wait()


def make_certificates(folder):
    """Runs `gpunbd tls-setup` in `folder`. Returns the certificate and the key of a client."""
    subprocess.run([PROGRAM, 'tls-setup', folder, '--host', '127.0.0.1', '--client', 'client'], check=True,
                   stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    return [os.path.join(folder, 'clients', 'client', name) for name in ('client-cert.pem', 'client-key.pem')]


@contextlib.contextmanager
def served(tls='', device=None):
    """(TCP URI, Unix socket URI) of a server that is stopped at the end. `tls` is added to the configuration; with
    it, the certificate and the key of the client are a third value. Small exports are on `device`, without a mapping."""
    with tempfile.TemporaryDirectory(prefix='gpunbd-') as directory:
        folder = os.path.join(directory, 'tls')
        certificate = make_certificates(folder) if tls else None
        path, port = os.path.join(directory, 'socket'), free_port()
        file_name = os.path.join(directory, 'gpunbd.yaml')
        with open(file_name, 'w', encoding='utf-8') as file:
            text = (CONFIGURATION + tls).format(port=port, path=path, folder=folder)
            if device:
                text = text.replace('64M, devices: [host]', f'64M, devices: [{device}]')
                text += f'devices: [{{id: {device}, mapped: 0, reserve: 0}}]\n'
            file.write(text)
        with running([PROGRAM, 'serve', '--config', file_name], path, directory):
            uris = f'nbd://127.0.0.1:{port}/disk', f'nbd+unix:///disk?socket={path}'
            yield (*uris, certificate) if tls else uris


@contextlib.contextmanager
def served_through_staging(tls=False):
    """(URI, certificate and key of a client if the server uses TLS)."""
    with tempfile.TemporaryDirectory(prefix='gpunbd-') as directory:
        folder = os.path.join(directory, 'tls')
        certificate = make_certificates(folder) if tls else None
        path = os.path.join(directory, 'socket')
        with running([STAGED_SERVER, *(['-t', folder] if tls else []), path], path, directory):
            yield f'nbd{"s" if tls else ""}+unix:///disk?socket={path}', certificate


def about_tls(rule):
    return 'TLS' in rule.name or 'TLS' in rule.chapter


class Gpunbd(unittest.TestCase):
    def evaluate(self, uri, rules, **options):
        server = target.Server(uri, read_only_export='fixed', **options)
        results = [suite.run(one, server, 60) for one in rules]
        for result in results:
            one = result.rule
            print(run.line(one.kind, result.outcome, one.chapter, one.name, result.reason))
        print(f'{uri.partition("?")[0]}: {run.summary(results)}')
        broken = [f'{result.rule.name}: {result.reason}' for result in results
                  if result.outcome == suite.FAIL and
                  (result.rule.level != suite.SHOULD or result.rule.extension)]
        self.assertEqual(broken, [], 'failed rules')
        absent = [result.rule.name for result in results
                  if result.outcome == suite.NOT_OFFERED and 'read-only' in result.rule.name]
        self.assertEqual(absent, [], 'no rule was evaluated on the read-only export')
        return results

    def test_tcp(self):
        with served() as (tcp, _):
            self.evaluate(tcp, run.select([]))

    def test_unix(self):
        with served() as (_, unix):
            self.evaluate(unix, run.select([]))

    def test_staging(self):
        with served_through_staging() as (uri, _):
            self.evaluate(uri, run.select([]))

    def test_vulkan(self):
        reason = lavapipe.use()
        if reason:
            self.skipTest(reason)
        with served(device='vulkan:0') as (_, unix):
            self.evaluate(unix, run.select([]))

    def evaluate_tls(self, uri, rules, absent, **options):
        """`absent`: the highest number of TLS rules that may not apply to this server."""
        about = [result for result in self.evaluate(uri, rules, **options) if about_tls(result.rule)]
        self.assertGreater(len(about), 15)
        missing = [result.rule.name for result in about if result.outcome == suite.NOT_OFFERED]
        self.assertLessEqual(len(missing), absent, missing)

    def test_tls(self):
        with served(REQUIRED) as (tcp, _, certificate):
            self.evaluate_tls(tcp.replace('nbd', 'nbds', 1), run.select([]), 5, certificate=certificate)

    def test_tls_is_optional(self):
        with served(SECRET) as (tcp, unix, certificate):
            # Without TLS, this server differs from that of test_tcp in nothing else.
            self.evaluate_tls(tcp, filter(about_tls, run.select([])), 3, certificate=certificate, tls_export='secret')
            self.evaluate_tls(unix.replace('nbd', 'nbds', 1).replace('/disk', '/secret'), run.select([]), 3,
                              certificate=certificate, tls_export='secret')

    def test_tls_through_staging(self):
        with served_through_staging(tls=True) as (uri, certificate):
            self.evaluate_tls(uri, run.select([]), 5, certificate=certificate)

    def evaluate_large(self, uri):
        extensions = [one for one in suite.rules if one.extension]
        results = self.evaluate(uri.replace('/disk?', '/large?'), extensions)
        absent = [result.rule.name for result in results if result.outcome == suite.NOT_OFFERED]
        self.assertEqual(absent, [], 'an extension was not evaluated')

    def test_large(self):
        with served() as (_, unix):
            self.evaluate_large(unix)

    def test_large_staging(self):
        with served_through_staging() as (uri, _):
            self.evaluate_large(uri)

    def evaluate_coarse(self, uri):
        results = self.evaluate(uri.replace('/disk?', '/coarse?'), run.select([]))
        aligned = [result.outcome for result in results if 'not aligned' in result.rule.name]
        self.assertEqual(aligned, [suite.PASS], 'the minimum block was not evaluated')

    def test_coarse(self):
        with served() as (_, unix):
            self.evaluate_coarse(unix)

    def test_coarse_staging(self):
        with served_through_staging() as (uri, _):
            self.evaluate_coarse(uri)


if __name__ == '__main__':
    unittest.main()
