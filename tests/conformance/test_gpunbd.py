"""gpunbd on `host`, over TCP and over a Unix socket: it breaks no MUST, and what it owes is listed."""
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


def free_port():
    with socket.socket() as probe:
        probe.bind(('127.0.0.1', 0))
        return probe.getsockname()[1]


@contextlib.contextmanager
def served():
    """(URI over TCP, URI over the Unix socket) of a server that ends with this."""
    with tempfile.TemporaryDirectory(prefix='gpunbd-') as directory:
        path, port = os.path.join(directory, 'socket'), free_port()
        file_name, log_name = os.path.join(directory, 'gpunbd.yaml'), os.path.join(directory, 'log')
        with open(file_name, 'w', encoding='utf-8') as file:
            file.write(CONFIGURATION.format(port=port, path=path))
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
            yield f'nbd://127.0.0.1:{port}/disk', f'nbd+unix:///disk?socket={path}'
            process.send_signal(signal.SIGTERM)
            status = process.wait(60)
            if status:
                raise AssertionError(f'gpunbd ended with {status}')
        finally:
            process.kill()
            process.wait()


class Gpunbd(unittest.TestCase):
    def judge(self, uri, rules):
        server = target.Server(uri, read_only_export='fixed')
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

    def test_large(self):
        extensions = [one for one in suite.rules if one.extension]
        with served() as (_, unix):
            results = self.judge(unix.replace('/disk?', '/large?'), extensions)
        absent = [result.rule.name for result in results if result.outcome == suite.NOT_OFFERED]
        self.assertEqual(absent, [], 'an extension was not judged')


if __name__ == '__main__':
    unittest.main()
