#!/usr/bin/python3
"""Soaks a server that was built with a sanitizer: clients of every kind, for so many minutes.

    ./dev soak MINUTES [asan|tsan]

It ends with 1 at the first of these: a report of the sanitizer, a byte that is not what it should be, an
answer that does not come, a server that has ended; and at the end, memory that has grown."""
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
from server import MiB  # noqa: E402

# Memory is compared when nobody is connected and every export is empty: what is left is the program, its
# pools, which are bounded, and what the sanitizer keeps. Five minutes bring some 20,000 connections and two
# million requests: 1 KiB lost with each connection, or 10 bytes with each request, is more than this. What
# allocators and sanitizers keep has come by the end of the warm-up: afterwards it was within 1 MiB.
GROWTH = 16 * MiB
# ASan keeps what was freed: by default so much that no soak is long enough to fill it.
# TSan does not see that who reads what another connection has written waits for its answer: that order is
# made outside of the process. Payload is received into pages, sent from them and zeroed by calls that TSan
# intercepts, so these are left out, and the few functions in tsan.supp. Suppressing by function what the
# calls do takes seconds for each report: the server then answers nobody.
ENVIRONMENT = {
    'ASAN_OPTIONS': 'quarantine_size_mb=16:thread_local_quarantine_size_kb=64:malloc_context_size=8',
    'TSAN_OPTIONS': f'halt_on_error=1:ignore_interceptors_accesses=1:suppressions={HERE}/tsan.supp',
    'UBSAN_OPTIONS': 'print_stacktrace=1',
}

EXPORTS = {'verified': '16M', 'load0': '16M', 'load1': '16M', 'tls0': '4M', 'tls1': '4M', 'tls2': '4M',
           'storm': '64M', 'quiet': '64M'}
RATED = ('tls0', 'tls1')
RATES = ', rates: {bytes_per_second: 8M, iops: 500, burst: 0s}, rates_per_peer: {iops: 300}'


class Place:
    """The server, and what is done to it as a whole."""

    def __init__(self):
        self.port = server.free_port()
        self.pki = self.make_keys()
        self.server = server.Server(config=self.configuration(()), environment=ENVIRONMENT)
        self.path = self.server.path
        self.seen = 0  # of the log, bytes
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

    def reload(self, extras, wrong=False):
        self.server.configure('exports: [}' if wrong else self.configuration(extras))
        self.server.process.send_signal(signal.SIGHUP)

    def check(self):
        status = self.server.process.poll()
        if status is not None:
            raise AssertionError(f'the server has ended with {status}')
        with open(self.server.log_path, encoding='utf-8', errors='replace') as log:
            log.seek(self.seen)
            new = log.read()
            self.seen = max(0, log.tell() - 100)  # a line may come in two parts
        for report in server.REPORTS:
            if report in new:
                raise AssertionError(f'the server printed "{report}"')

    def empty_memory(self):
        """Resident bytes once nobody is connected and nothing is stored."""
        for name, size in EXPORTS.items():
            with wire.connect(self.path, name, timeout=clients.PATIENCE) as client:
                client.trim(0, int(size[:-1]) * MiB)
                client.disconnect()
        time.sleep(2)
        return self.server.memory()


class Crowd:
    """All clients, each in a thread; they can be held between two rounds."""

    def __init__(self, place):
        self.gate = threading.Event()
        self.problems = []
        self.rounds = {}
        self.clients = [kind(place, number) for kind, count in clients.ALL for number in range(count)]
        self.threads = [threading.Thread(target=self.go_on, args=(client,), daemon=True) for client in self.clients]
        self.resting = set()

    def go_on(self, client):
        name = type(client).__name__
        try:
            while True:
                self.rest_at_the_gate()
                client.round()
                self.rounds[name] = self.rounds.get(name, 0) + 1
        except BaseException as error:  # whatever it is, the soak ends with it
            self.problems.append(f'{name} {client.number}: {type(error).__name__}: {error}')
        finally:
            self.resting.add(threading.get_ident())

    def rest_at_the_gate(self):
        if not self.gate.is_set():
            self.resting.add(threading.get_ident())
            self.gate.wait()
            self.resting.discard(threading.get_ident())

    def run(self, seconds, check):
        end = time.monotonic() + seconds
        self.gate.set()
        while time.monotonic() < end and not self.problems:
            time.sleep(0.5)
            check()
        self.gate.clear()
        server.wait_until(lambda: len(self.resting) == len(self.threads), 3 * clients.PATIENCE,
                          'all clients to come to the end of their rounds')
        check()
        if self.problems:
            raise AssertionError('; '.join(self.problems))


def soak(minutes, place):
    crowd = Crowd(place)
    for thread in crowd.threads:
        thread.start()
    warm_up = min(60 * minutes / 2, 120)
    crowd.run(warm_up, place.check)
    before = place.empty_memory()
    for client in crowd.clients:
        client.forget()
    crowd.run(60 * minutes - warm_up, place.check)
    place.reload(())
    after = place.empty_memory()
    print('soak: rounds: ' + ', '.join(f'{name} {count}' for name, count in sorted(crowd.rounds.items())))
    print(f'soak: memory at rest: {before // MiB} MiB after the warm-up, {after // MiB} MiB at the end')
    missing = [kind.__name__ for kind, _ in clients.ALL if not crowd.rounds.get(kind.__name__)]
    if missing:
        raise AssertionError(f'no round was finished by: {", ".join(missing)}')
    if after - before > GROWTH:
        raise AssertionError(f'memory grew by {(after - before) // MiB} MiB, which is more than {GROWTH // MiB} MiB')
    place.server.stop()


def main():
    place = Place()
    status = 0
    try:
        soak(float(sys.argv[1]), place)
        print('soak: nothing found', flush=True)
    except AssertionError as error:
        print(f'{place.server.log()[-20000:]}\nsoak: FAILED: {error}', flush=True)
        place.server.process.kill()
        status = 1
    shutil.rmtree(place.pki)
    os._exit(status)  # some clients may be waiting for an answer still


if __name__ == '__main__':
    main()
