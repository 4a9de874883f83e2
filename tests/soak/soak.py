#!/usr/bin/python3
"""Runs clients of every kind against a server that was built with a sanitizer, for a number of minutes.

    ./dev soak MINUTES [asan|tsan]

The exit status is 1 after the first sanitizer report, wrong byte, missing reply or exit of the server, and if memory
has grown at the end."""
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(os.path.dirname(HERE), 'integration')]

import clients  # noqa: E402
import server  # noqa: E402
import wire  # noqa: E402
from server import KiB, MiB  # noqa: E402

# Memory is compared while no client is connected and every export is empty. What remains are the program and its
# bounded pools. Five minutes bring some 20,000 connections and two million requests: a leak of 1 KiB for each
# connection, or 10 bytes for each request, exceeds this limit. Allocators stop growing during the warm-up.
GROWTH = 16 * MiB
# Both sanitizers keep their shadow memory below this address, and everything that the program maps lies above it.
# Shadow memory does not count: TSan's grew by up to 16 MiB after a short warm-up, and by less in each later minute,
# while the program itself did not grow.
SHADOW_END = 0x5000_0000_0000
# ASan's default quarantine is so large that no soak test fills it.
# TSan cannot see that a client reads another connection's data only after the reply to its WRITE, because that order
# is established outside of the process. Payload is received into pages, sent from them and zeroed by intercepted
# calls, so these and the functions in tsan.supp are excluded. Suppressing reports of these calls by function instead
# takes seconds for each report, and the server stops answering.
ENVIRONMENT = {
    'ASAN_OPTIONS': 'quarantine_size_mb=16:thread_local_quarantine_size_kb=64:malloc_context_size=8',
    'TSAN_OPTIONS': f'halt_on_error=1:ignore_interceptors_accesses=1:suppressions={HERE}/tsan.supp',
    'UBSAN_OPTIONS': 'print_stacktrace=1',
}

EXPORTS = {'verified': '16M', 'load0': '16M', 'load1': '16M', 'tls0': '4M', 'tls1': '4M', 'tls2': '4M',
           'storm': '64M', 'quiet': '64M'}
RATED = ('tls0', 'tls1')
RATES = ', rates: {bytes_per_second: 8M, iops: 500, burst: 0s}, rates_per_peer: {iops: 300}'


class Deployment:
    """The server with its configuration and keys."""

    def __init__(self):
        self.port = server.free_port()
        self.pki = self.make_keys()
        self.server = server.Server(config=self.configuration(()), environment=ENVIRONMENT)
        self.path = self.server.path
        self.seen = 0  # bytes of the log
        self.addresses = (self.path, ('127.0.0.1', self.port))

    @staticmethod
    def make_keys():
        folder = tempfile.mkdtemp(prefix='gpunbd-soak-')
        for what in (('--host', 'localhost', '--host', '127.0.0.1', '--client', 'soak'), ('--psk', 'soak')):
            subprocess.run([server.PROGRAM, 'tls-setup', folder, *what], check=True, stdout=subprocess.DEVNULL)
        return folder

    def configuration(self, extras):
        exports = {**EXPORTS, **{f'extra{n}': '4M' for n in extras}}
        return (f'listeners: {{unix: [{{path: "{{socket}}"}}], tcp: [{{address: 127.0.0.1, port: {self.port}}}]}}\n'
                f'tls: {{mode: optional, certificates: "{self.pki}", psk: "{self.pki}/keys.psk"}}\n'
                'threads: 4\n'
                'exports:\n' + ''.join(f'  - {{name: {name}, size: {size}, devices: [host], page_size: 64K'
                                       f'{RATES if name in RATED else ""}}}\n'
                                       for name, size in exports.items()))

    def reload(self, extras, invalid=False):
        self.server.configure('exports: [}' if invalid else self.configuration(extras))
        self.server.process.send_signal(signal.SIGHUP)

    def check(self):
        status = self.server.process.poll()
        if status is not None:
            raise AssertionError(f'the server has ended with {status}')
        with open(self.server.log_path, encoding='utf-8', errors='replace') as log:
            log.seek(self.seen)
            new = log.read()
            self.seen = max(0, log.tell() - 100)  # a line may be read in two parts
        for report in server.REPORTS:
            if report in new:
                raise AssertionError(f'the server printed "{report}"')

    def empty_memory(self):
        """Resident bytes while no client is connected and nothing is stored."""
        for name, size in EXPORTS.items():
            with wire.connect(self.path, name, timeout=clients.TIMEOUT) as client:
                client.trim(0, int(size[:-1]) * MiB)
                client.disconnect()
        samples = []
        for _ in range(10):  # the server frees memory in the background
            time.sleep(1)
            samples.append(self.resident())
        return min(samples)

    def resident(self):
        """Resident bytes without shadow memory."""
        total = 0
        with open(f'/proc/{self.server.process.pid}/smaps', encoding='utf-8') as file:
            for line in file:
                first, *rest = line.split()
                if not first.endswith(':'):
                    counted = int(first.partition('-')[0], 16) >= SHADOW_END
                elif first == 'Rss:' and counted:
                    total += int(rest[0]) * KiB
        return total


class Crowd:
    """All clients, each in its own thread. They can be paused between two rounds."""

    def __init__(self, deployment):
        self.gate = threading.Event()
        self.problems = []
        self.rounds = {}
        self.clients = [kind(deployment, number) for kind, count in clients.ALL for number in range(count)]
        self.threads = [threading.Thread(target=self.run_client, args=(client,), daemon=True) for client in self.clients]
        self.paused = set()

    def run_client(self, client):
        name = type(client).__name__
        try:
            while True:
                self.wait_at_the_gate()
                client.round()
                self.rounds[name] = self.rounds.get(name, 0) + 1
        except BaseException as error:  # any error ends the soak test
            self.problems.append(f'{name} {client.number}: {type(error).__name__}: {error}')
        finally:
            self.paused.add(threading.get_ident())

    def wait_at_the_gate(self):
        if not self.gate.is_set():
            self.paused.add(threading.get_ident())
            self.gate.wait()
            self.paused.discard(threading.get_ident())

    def run(self, seconds, check):
        end = time.monotonic() + seconds
        self.gate.set()
        while time.monotonic() < end and not self.problems:
            time.sleep(0.5)
            check()
        self.gate.clear()
        server.wait_until(lambda: len(self.paused) == len(self.threads), 3 * clients.TIMEOUT,
                          'the end of the rounds of all clients')
        check()
        if self.problems:
            raise AssertionError('; '.join(self.problems))


def soak(minutes, deployment):
    crowd = Crowd(deployment)
    for thread in crowd.threads:
        thread.start()
    warm_up = min(60 * minutes / 2, 120)
    crowd.run(warm_up, deployment.check)
    before = deployment.empty_memory()
    for client in crowd.clients:
        client.forget()
    crowd.run(60 * minutes - warm_up, deployment.check)
    deployment.reload(())
    after = deployment.empty_memory()
    print('soak: rounds: ' + ', '.join(f'{name} {count}' for name, count in sorted(crowd.rounds.items())))
    print(f'soak: idle memory: {before // MiB} MiB after the warm-up, {after // MiB} MiB at the end')
    missing = [kind.__name__ for kind, _ in clients.ALL if not crowd.rounds.get(kind.__name__)]
    if missing:
        raise AssertionError(f'no finished round of: {", ".join(missing)}')
    if after - before > GROWTH:
        raise AssertionError(f'memory grew by {(after - before) // MiB} MiB; the limit is {GROWTH // MiB} MiB')
    deployment.server.stop()


def main():
    deployment = Deployment()
    status = 0
    try:
        soak(float(sys.argv[1]), deployment)
        print('soak: no problems found', flush=True)
    except AssertionError as error:
        print(f'{deployment.server.log()[-20000:]}\nsoak: FAILED: {error}', flush=True)
        deployment.server.process.kill()
        status = 1
    shutil.rmtree(deployment.pki)
    os._exit(status)  # client threads may still wait for replies


if __name__ == '__main__':
    main()
