#!/usr/bin/python3
"""Runs the suite against gpunbd and the other installed servers, and stores the scores for RESULTS.md.

    tests/conformance/scores.py            # writes tests/bench/results/conformance.json"""
import datetime
import json
import os
import pathlib
import re
import shutil
import signal
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / 'integration'), str(HERE.parent / 'bench')]

import compare  # noqa: E402
import run  # noqa: E402
import suite  # noqa: E402
import target  # noqa: E402

OUTPUT = HERE.parent / 'bench' / 'results' / 'conformance.json'
SIZE = 64 << 20
NBD_SERVER = '''[generic]
listenaddr = 127.0.0.1
port = {port}
unixsock = {endpoint}
[{export}]
exportname = {image}
'''


class NbdServer(compare.Server):
    """nbd-server, which either daemonizes or serves one client only."""
    export = 'disk'

    def command(self, transport, endpoint, size, folder):
        image, file = folder / 'nbd-server.raw', folder / 'nbd-server.conf'
        with open(image, 'wb') as raw:
            raw.truncate(size)
        file.write_text(NBD_SERVER.format(port=compare.free_port(), endpoint=endpoint, export=self.export,
                                          image=image))
        self.pid_file = folder / 'nbd-server.pid'
        return [self.program, '-C', file, '-p', self.pid_file]

    def wait_until_it_listens(self, transport, endpoint):
        end = time.monotonic() + compare.START_LIMIT
        while time.monotonic() < end and not self.process.poll():
            if os.path.exists(endpoint) and self.pid_file.exists():
                return True
            time.sleep(0.05)
        return False

    def stop(self):
        if self.process is not None and self.pid_file.exists():
            os.kill(int(self.pid_file.read_text()), signal.SIGTERM)


def servers(folder):
    yield compare.Gpunbd('gpunbd', os.environ.get('GPUNBD_PROGRAM', str(compare.BUILD / 'gpunbd')), ['host'], [])
    if program := shutil.which('nbdkit'):
        yield compare.Nbdkit('nbdkit', program)
    if program := shutil.which('qemu-nbd'):
        yield compare.QemuNbd('qemu-nbd', program, folder)
    if program := shutil.which('nbd-server'):
        yield NbdServer('nbd-server', program)


def outcomes(server, folder):
    """Yields each rule's result and the exit status of the server. A server is restarted after a failed rule."""
    rules = run.select([])
    while rules:
        server.start('unix', SIZE, pathlib.Path(tempfile.mkdtemp(dir=folder)))
        try:
            target_server = target.Server(server.uri)
            with target_server.watch(20):
                target_server.stream()
            result = None
            while rules and (result is None or result.outcome != suite.FAIL):
                result = suite.run(rules.pop(0), target_server, 20)
                yield result, server.process.poll()
        finally:
            server.stop()


def evaluate(server, folder):
    results = list(outcomes(server, folder))
    summary = run.as_json(server.uri, [result for result, _ in results])['summary']
    broken = [result.rule.name + (f' (killed by signal {-status})' if (status or 0) < 0 else '')
              for result, status in results
              if result.outcome == suite.FAIL and result.rule.level == suite.MUST and not result.rule.extension]
    version = re.search(r'\d[\w.]*', compare.version_of(server.program))
    return {'server': f'{server.name} {version[0] if version else "of unknown version"}', 'summary': summary,
            'broken': broken}


def main():
    if len(sys.argv) > 1:
        print(__doc__, file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix='gpunbd-') as name:
        folder = pathlib.Path(name)
        evaluated = [evaluate(server, folder) for server in servers(folder)]
    header = {'date': datetime.datetime.now(datetime.timezone.utc).strftime('%Y-%m-%d %H:%M UTC'),
              'command': '`tests/conformance/scores.py`', 'commit': compare.commit(), **compare.hardware(),
              'notes': ['Passed of evaluated: a rule about a feature that a server does not offer is not counted. '
                        'Another server that is killed by a signal is not killed in every run.']}
    lines = ',\n  '.join(json.dumps(server) for server in evaluated)
    OUTPUT.write_text(f'{{\n "header": {json.dumps(header)},\n "servers": [\n  {lines}\n ]\n}}\n')
    for server in evaluated:
        print(server['server'], server['summary'], *server['broken'], sep='; ')
    return 0


if __name__ == '__main__':
    sys.exit(main())
