"""TLS clients that flood the server with records that contain little or no data, and reconnect when they are
disconnected: a client without TLS on the same worker is still served, also during an upgrade, watchdog notifications
continue, and the server stops in time. `python3 test_tls_floods.py --measure [ROUNDS]` prints that client's latencies with
and without the floods."""
import contextlib
import ctypes
import hmac
import json
import multiprocessing
import os
import signal
import ssl
import statistics
import struct
import subprocess
import sys
import threading
import time
from typing import Callable, NamedTuple

import server
import test_tls
import test_watchdog
import wire
from server import KiB, MiB

try:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM
except ImportError:
    server.skip('python3-cryptography is not installed')

server.need('openssl')

MEASURE = '--measure' in sys.argv

FLOODERS = 4
# Prepared in addition to what a flooder produces while it sends, which is slower than the server.
BACKLOG = MiB
BATCH = 64  # records
# The longest messages that the server accepts, so that there are few replies.
LONGEST = 32 * MiB
OPTION = wire.encode_option(77, length=MiB)
WRITE = wire.encode_request(wire.WRITE, 0, LONGEST)
DATA, ALERT, HANDSHAKE = 23, 21, 22
DRAIN = 1  # seconds
# What the server may take in addition, also on a busy machine, by RunningTime. It takes 0.05 s; without the bounds of
# tls_stream.cpp it takes 7 s and more under the flood of renegotiations.
MARGIN = 12 if server.SANITIZED else 4  # seconds; sanitizers slow both sides down
WATCHDOG = 4  # seconds
# More than a socket buffers, so that the server has received a part of it.
BUFFERED = 512 * KiB
CONFIG = '''
listeners: {unix: [{path: '{socket}'}]}
tls: {mode: optional, certificates: '{certificates}', verify_clients: false}
limits: {handshake: 3600, drain: {drain}}
threads: {threads}
exports:
  - {name: '', size: 64M, devices: [host], keep: true}
  - {name: refused, size: 64M, devices: [host], access: [{network: 127.0.0.1}]}
'''


class RunningTime(threading.Thread):
    """A clock that stands still while the machine does, or this process: limits of time do not include that."""
    STEP = 0.05  # seconds

    def __init__(self):
        super().__init__(daemon=True)
        self.seconds = 0
        self.start()

    def run(self):
        while True:
            time.sleep(self.STEP)
            self.seconds += self.STEP


def expand(secret, label, length):
    """HKDF-Expand-Label (RFC 8446, 7.1), for at most one block of SHA-256."""
    label = b'tls13 ' + label
    info = struct.pack('>HB', length, len(label)) + label + b'\0\1'
    return hmac.digest(secret, info, 'sha256')[:length]


def prf(secret, label, seed, length):
    """P_SHA256 of TLS 1.2 (RFC 5246, 5)."""
    seed, out, block = label + seed, b'', label + seed
    while len(out) < length:
        block = hmac.digest(secret, block, 'sha256')
        out += hmac.digest(secret, block + seed, 'sha256')
    return out[:length]


class Records:
    """Encrypts records with AES-128-GCM that no TLS library would send."""

    def __init__(self, tls_1_3, keys, randoms):
        self.tls_1_3 = tls_1_3
        if tls_1_3:
            self.use(bytes.fromhex(keys['CLIENT_TRAFFIC_SECRET_0']))
        else:
            client, server_random = randoms
            block = prf(bytes.fromhex(keys['CLIENT_RANDOM']), b'key expansion', server_random + client, 40)
            self.key, self.iv, self.number = AESGCM(block[:16]), block[32:36], 1

    def use(self, secret):
        self.secret, self.number = secret, 0
        self.key, self.iv_bits = AESGCM(expand(secret, b'key', 16)), int.from_bytes(expand(secret, b'iv', 12), 'big')

    def seal(self, kind, plain):
        number = self.number.to_bytes(8, 'big')
        if self.tls_1_3:
            header = struct.pack('>BHH', DATA, 0x303, len(plain) + 17)
            nonce = (self.iv_bits ^ self.number).to_bytes(12, 'big')
            self.number += 1
            return header + self.key.encrypt(nonce, plain + bytes([kind]), header)
        self.number += 1
        header = struct.pack('>BHH', kind, 0x303, len(plain) + 24)
        sealed = self.key.encrypt(self.iv + number, plain, number + header[:3] + struct.pack('>H', len(plain)))
        return header + number + sealed

    def key_update(self):
        record = self.seal(HANDSHAKE, b'\x18\0\0\1\0')
        self.use(expand(self.secret, b'traffic upd', 32))
        return record

    def renegotiation(self):
        return self.seal(HANDSHAKE, b'\1\0\0\0')


def key_update(records, _, __):
    return records.key_update()


def renegotiation(records, _, __):
    return records.renegotiation()


def byte(records, message, at):
    return records.seal(DATA, message[at:at + 1] or b'\0')


def byte_and_empty_record(records, message, at):
    return byte(records, message, at) + records.seal(DATA, b'')


class Flood(NamedTuple):
    record: Callable
    tls_1_3: bool = True
    go: str = None  # the name of the export that the client asks for


FLOODS = {
    'key updates': Flood(key_update, go=''),
    'renegotiations': Flood(renegotiation, go='', tls_1_3=False),
    'single bytes': Flood(byte, go=''),
    'single bytes before GO': Flood(byte, tls_1_3=False),
    'empty records before GO': Flood(byte_and_empty_record),
    'key updates before GO': Flood(key_update),
    'key updates, export refused': Flood(key_update, go='refused'),
}
# One flood for each part of the server that handles it, with a number of threads; 0: the default. server/net/transport/
# tls_flood_test.cpp has all floods.
CASES = [('key updates', 1), ('renegotiations', 1), ('single bytes', 1), ('single bytes', 0)]
# The server disconnects these clients; the others send data, and stay.
DISCONNECTED = [name for name, flood in FLOODS.items() if flood.record is not byte]


class Client(wire.Wire):
    """A client in TLS whose records are encrypted by `records`."""
    stream = None

    def __init__(self, address, context, log, go):
        super().__init__(address, None)
        self.greet()
        self.request_option(wire.STARTTLS)
        self.bare, out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.stream = context.wrap_bio(self.bare, out, server_hostname='localhost')
        before = log.seek(0, os.SEEK_END)
        received = b''
        while True:
            try:
                self.stream.do_handshake()
                break
            except ssl.SSLWantReadError:
                self.socket.sendall(out.read())
                received += self.feed()
        self.socket.sendall(out.read())
        log.seek(before)
        lines = [line.split() for line in log if not line.startswith('#')]
        # The random of the server follows 5 + 4 + 2 bytes of its first message.
        self.records = Records(context.maximum_version == ssl.TLSVersion.TLSv1_3, {line[0]: line[2] for line in lines},
                               (bytes.fromhex(lines[0][1]), received[11:43]))
        if go is not None:
            self.socket.sendall(self.records.seal(DATA, wire.encode_option(wire.GO, wire.info_request(go))))
            kind = wire.REP_INFO
            while kind == wire.REP_INFO:
                kind, _ = self.option_reply(wire.GO)

    def feed(self):
        piece = self.socket.recv(64 * KiB)
        if not piece:
            raise ConnectionResetError
        self.bare.write(piece)
        return piece

    def receive(self, count):
        if self.stream is None:
            return super().receive(count)
        got = b''
        while len(got) < count:
            try:
                got += self.stream.read(count - len(got))
            except ssl.SSLWantReadError:
                self.feed()
        return got


class Flooder:
    """A process that floods the server from begin() until stop(). It prepares a backlog of records first. `files`: the folder of
    ca-cert.pem."""

    def __init__(self, address, files, flood, backlog):
        self.address, self.files, self.flood, self.backlog = address, files, flood, backlog
        fork = multiprocessing.get_context('fork')
        self.ready, self.begun = fork.Event(), fork.Event()
        self.sent, self.disconnects = fork.Value('Q', 0), fork.Value('Q', 0)  # bytes, connections
        self.process = fork.Process(target=self.run, daemon=True)
        self.process.start()

    def context(self, log):
        context = ssl.create_default_context(cafile=f'{self.files}/ca-cert.pem')
        context.minimum_version = context.maximum_version = \
            ssl.TLSVersion.TLSv1_3 if self.flood.tls_1_3 else ssl.TLSVersion.TLSv1_2
        context.set_ciphers('ECDHE-ECDSA-AES128-GCM-SHA256')
        context.keylog_filename = log
        return context

    def run(self):
        server.die_with_parent()
        with server.tempfile.NamedTemporaryFile('r') as log:
            context = self.context(log.name)
            while True:
                try:
                    self.flood_once(Client(self.address, context, log, self.flood.go))
                except (FileNotFoundError, ConnectionRefusedError):
                    time.sleep(0.01)  # the server does not listen
                except (OSError, ssl.SSLError):
                    self.disconnects.value += 1

    def batches(self, records):
        message, length = (WRITE, LONGEST) if self.flood.go == '' else (OPTION, MiB)
        period, at = len(message) + length, 0
        while True:
            batch = []
            for _ in range(BATCH):
                batch.append(self.flood.record(records, message, at))
                at = (at + 1) % period
            yield b''.join(batch)

    def flood_once(self, client):
        with client.socket:
            batches, backlog = self.batches(client.records), []
            if not self.ready.is_set():
                length = 0
                while length < self.backlog:
                    backlog.append(next(batches))
                    length += len(backlog[-1])
                self.ready.set()
                self.begun.wait()
                if MEASURE:
                    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
                    os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
            for batch in backlog:
                self.send(client.socket, batch)
            for batch in batches:
                self.send(client.socket, batch)

    def send(self, to, batch):
        to.sendall(batch)
        self.sent.value += len(batch)

    def stop(self):
        self.process.kill()
        self.process.join()


@contextlib.contextmanager
def flooded(address, files, flood, backlog=BACKLOG):
    """Floods the server meanwhile."""
    flooders = [Flooder(address, files, FLOODS[flood], backlog) for _ in range(FLOODERS)]
    try:
        for each in flooders:
            assert each.ready.wait(120), 'a flooder does not begin'
        for each in flooders:
            each.begun.set()
        server.wait_until(lambda: all(each.sent.value for each in flooders), 30, 'all flooders to send')
        yield flooders
    finally:
        for each in flooders:
            each.stop()


class Reader(threading.Thread):
    """A client without TLS that reads until finish(), and checks each answer."""
    AT = LONGEST  # after the range that flooders write

    def __init__(self, address, clock):
        super().__init__(daemon=True)
        self.clock = clock
        self.client = wire.connect(address)
        self.data = os.urandom(4 * KiB)
        self.client.write(self.AT, self.data)
        self.stopping, self.failure, self.longest, self.reads = False, None, 0, 0
        self.start()

    def run(self):
        try:
            while not self.stopping:
                begin = self.clock.seconds
                assert self.client.read(self.AT, 4 * KiB) == self.data, 'wrong data'
                self.longest = max(self.longest, self.clock.seconds - begin)
                self.reads += 1
        except BaseException as error:  # raised by finish()
            self.failure = error

    def wait_for_more(self, count=100):
        before = self.reads
        server.wait_until(lambda: self.reads >= before + count or self.failure, 60, 'answers')

    def finish(self):
        self.stopping = True
        self.join(60)
        if self.failure:
            raise self.failure
        self.client.close()


class Watchdog:
    """The end of systemd: takes all messages of the servers, with the times of WATCHDOG=1."""

    def __init__(self, clock):
        self.clock = clock
        self.supervisor = test_watchdog.Supervisor()
        self.messages, self.times = [], []
        threading.Thread(target=self.listen, daemon=True).start()

    def listen(self):
        with contextlib.suppress(OSError):
            while True:
                message = self.supervisor.next()
                if message[0] == 'WATCHDOG=1':
                    self.times.append(self.clock.seconds)
                self.messages.append(message)

    def find(self, prefix, begin=0):
        return next((message for message in self.messages[begin:] if message[0].startswith(prefix)), None)

    def wait_for(self, prefix, begin=0):
        server.wait_until(lambda: self.find(prefix, begin), 60, prefix)
        return self.find(prefix, begin)

    def longest_pause(self, begin):
        times = [begin, *(each for each in self.times if each > begin), self.clock.seconds]
        return max(after - before for before, after in zip(times, times[1:]))


class TlsFloods(server.Test):
    @classmethod
    def setUpClass(cls):
        cls.files = server.tempfile.mkdtemp(prefix='gpunbd-')
        cls.addClassCleanup(server.shutil.rmtree, cls.files, True)
        cls.certificates = test_tls.make_folder(f'{cls.files}/pki')
        cls.clock = RunningTime()

    @contextlib.contextmanager
    def within(self, seconds):
        """Fails if what is inside takes longer."""
        begin = self.clock.seconds
        yield
        self.assertLess(self.clock.seconds - begin, seconds)

    def start(self, threads=1, drain=DRAIN, **options):
        config = CONFIG.replace('{certificates}', self.certificates)
        return self.serve(config=config.replace('{drain}', str(drain)).replace('{threads}', str(threads)), **options)

    def test_sigterm_under_a_flood(self):
        """A client in the middle of a request is waited for until the end of limits.drain."""
        one = self.start()
        with flooded(one.address, self.certificates, 'single bytes') as flooders:
            server.wait_until(lambda: all(each.sent.value > BUFFERED for each in flooders), 60, 'requests of all flooders')
            with self.within(DRAIN + MARGIN):
                took = one.stop(signal.SIGTERM)
        self.assertGreaterEqual(took, DRAIN)

    def test_second_sigterm_under_a_flood(self):
        one = self.start(threads=0, drain=3600)
        with flooded(one.address, self.certificates, 'single bytes'):
            with self.within(MARGIN):
                one.process.send_signal(signal.SIGTERM)
                server.wait_for_text('stopping: ', one.log, 60)
            with self.within(MARGIN):
                one.stop(signal.SIGTERM)

    def test_watchdog_upgrade_and_sigterm_under_each_flood(self):
        self.assertEqual(ctypes.CDLL(None).prctl(test_watchdog.SUBREAPER, 1), 0)
        for flood, threads in CASES:
            with self.subTest(flood=flood, threads=threads):
                self.upgrade_under(flood, threads)

    def upgrade_under(self, flood, threads):
        watchdog = Watchdog(self.clock)
        self.addCleanup(watchdog.supervisor.close)
        one = self.start(threads, environment={'NOTIFY_SOCKET': watchdog.supervisor.address, 'FDSTORE': '100',
                                               'WATCHDOG_USEC': str(WATCHDOG * 1_000_000)})
        watchdog.wait_for('WATCHDOG=1')
        reader = Reader(one.address, self.clock)
        with flooded(one.address, self.certificates, flood):
            flooded_at = self.clock.seconds
            reader.wait_for_more()
            watchdog.wait_for('WATCHDOG=1', len(watchdog.messages))
            begin = len(watchdog.messages)
            with self.within(DRAIN + MARGIN):
                one.process.send_signal(signal.SIGUSR2)
                successor = int(watchdog.wait_for('MAINPID=', begin)[0].splitlines()[0].removeprefix('MAINPID='))
                self.addCleanup(self.end, successor)
                self.assertEqual(one.process.wait(60), 0)
            reader.wait_for_more()
            # The last messages of the predecessor may still be in the socket.
            begin = len(watchdog.messages)
            server.wait_until(lambda: ('WATCHDOG=1', successor) in watchdog.messages[begin:], 60, 'the successor')
            self.assertLess(watchdog.longest_pause(flooded_at), WATCHDOG)
            reader.finish()
            with self.within(DRAIN + MARGIN):
                os.kill(successor, signal.SIGTERM)
                self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(successor, 0)[1]), 0)
        self.assertLess(reader.longest, DRAIN + MARGIN)

    @staticmethod
    def end(pid):
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def nbdload(address):
    """The result of one sequential reader of 4 KiB with priority over the flooders, which use the same core."""
    command = ['chrt', '-f', '2', server.NBDLOAD, '--size', '4k', '--qd', '1',
               '--warmup', '0.1', '--seconds', '1', '--uri', f'nbd+unix:///?socket={address}']
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)


def measure(rounds):
    """Prints the median p99 alone and under each flood. The server has one core and the clients have another, all
    with real-time priority, so that other programs on the machine do not delay them."""
    server_core, client_core = both = sorted(os.sched_getaffinity(0))[:2]
    files = test_tls.make_folder(f'{server.tempfile.mkdtemp()}/pki')
    results = {name: [] for name in ('alone', *FLOODS)}
    for _ in range(rounds):
        for name, of_name in results.items():
            os.sched_setaffinity(0, {server_core})
            config = CONFIG.replace('{certificates}', files).replace('{drain}', '0').replace('{threads}', '1')
            one = server.Server(config=config)
            subprocess.run(['chrt', '-a', '-r', '-p', '1', str(one.process.pid)], check=True)
            os.sched_setaffinity(0, both)
            with contextlib.ExitStack() as stack:
                flooders = [] if name == 'alone' else stack.enter_context(
                    flooded(one.address, files, name, 16 * MiB if name not in DISCONNECTED else 64 * KiB))
                os.sched_setaffinity(0, {client_core})
                before = [(each.sent.value, each.disconnects.value) for each in flooders]
                result = nbdload(one.address)
                sent = sum(each.sent.value - then for each, (then, _) in zip(flooders, before))
                ended = sum(each.disconnects.value - then for each, (_, then) in zip(flooders, before))
            of_name.append((result['p50_us'], result['p99_us'], sent / MiB, ended))
            one.stop()
    alone = statistics.median(each[1] for each in results['alone'])
    print('| | p50, us | p99, us | of alone | MiB of the flood | disconnects |\n|---|---:|---:|---:|---:|---:|')
    for name, of_name in results.items():
        p50, p99, sent, ended = (statistics.median(each) for each in zip(*of_name))
        print(f'| {name} | {p50:.0f} | {p99:.0f} | {p99 / alone:.1f}x | {sent:.1f} | {ended:.0f} |')


if __name__ == '__main__':
    if MEASURE:
        measure(int(sys.argv[2]) if len(sys.argv) > 2 else 3)
    else:
        server.main()
