"""TLS clients that flood the server with records that contain little or no data: a client without TLS on the same worker
is still served, and the server stops in time. `python3 test_tls_floods.py --measure` prints the latencies of that client."""
import hashlib
import hmac
import os
import signal
import socket
import ssl
import struct
import sys
import threading
import time

import server
import test_tls
import wire
from server import KiB, MiB

try:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM
except ImportError:
    server.skip('python3-cryptography is not installed')

server.need('openssl')

MEASURE = '--measure' in sys.argv
if MEASURE:
    sys.argv.remove('--measure')
FLOOD = (4 if MEASURE else 1) * MiB

FLOODERS = 4
# The longest option that the server accepts, so that there are few replies.
OPTION_DATA = 1 << 20
OPTION = struct.pack('>QII', wire.IHAVEOPT, 77, OPTION_DATA)
DATA, ALERT, HANDSHAKE = 23, 21, 22
# Flooding clients encrypt all records before they send them, which may take long, so the handshake timeout is long.
CONFIG = '''
listeners: {unix: [{path: '{socket}'}]}
tls: {mode: optional, certificates: '{certificates}'}
limits: {handshake: 3600}
threads: 1
exports: [{name: '', size: 64M, devices: [host]}]
'''


def expand(secret, label, length):
    """HKDF-Expand-Label (RFC 8446, 7.1), for at most one block of SHA-256."""
    label = b'tls13 ' + label
    info = struct.pack('>HB', length, len(label)) + label + b'\0\1'
    return hmac.new(secret, info, hashlib.sha256).digest()[:length]


def prf(secret, label, seed, length):
    """P_SHA256 of TLS 1.2 (RFC 5246, 5)."""
    seed, out, block = label + seed, b'', label + seed
    while len(out) < length:
        block = hmac.new(secret, block, hashlib.sha256).digest()
        out += hmac.new(secret, block + seed, hashlib.sha256).digest()
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
        self.key, self.iv = AESGCM(expand(secret, b'key', 16)), expand(secret, b'iv', 12)

    def seal(self, kind, plain):
        number = struct.pack('>Q', self.number)
        self.number += 1
        if self.tls_1_3:
            header = struct.pack('>BHH', DATA, 0x303, len(plain) + 17)
            nonce = bytes(a ^ b for a, b in zip(self.iv, b'\0' * 4 + number))
            return header + self.key.encrypt(nonce, plain + bytes([kind]), header)
        header = struct.pack('>BHH', kind, 0x303, len(plain) + 24)
        sealed = self.key.encrypt(self.iv + number, plain, number + header[:3] + struct.pack('>H', len(plain)))
        return header + number + sealed

    def key_update(self):
        record = self.seal(HANDSHAKE, b'\x18\0\0\1\0')
        self.use(expand(self.secret, b'traffic upd', 32))
        return record

    def renegotiation(self):
        return self.seal(HANDSHAKE, b'\1\0\0\0')

    def byte(self, at):
        at %= len(OPTION) + OPTION_DATA
        return self.seal(DATA, OPTION[at:at + 1] or b'\0')


FLOODS = {
    'key updates': (True, lambda records, at: records.key_update()),
    'renegotiations': (False, lambda records, at: records.renegotiation()),
    'single bytes, 1.3': (True, lambda records, at: records.byte(at)),
    'single bytes, 1.2': (False, lambda records, at: records.byte(at)),
    'empty records': (True, lambda records, at: records.byte(at // 2) if at % 2 else records.seal(DATA, b'')),
}


class Flooder:
    """A client in TLS that is still in the NBD handshake, with its prepared records. `files`: folder of certificates."""

    def __init__(self, address, files, flood, size=FLOOD):
        tls_1_3, make = FLOODS[flood]
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(address)
        greeting = self.take(18)
        assert greeting.startswith(b'NBDMAGIC')
        self.socket.sendall(struct.pack('>IQII', 1, wire.IHAVEOPT, wire.OPT_STARTTLS, 0))
        self.take(20)
        context = ssl.create_default_context(cafile=f'{files}/ca-cert.pem')
        context.load_cert_chain(f'{files}/client-cert.pem', f'{files}/client-key.pem')
        context.minimum_version = context.maximum_version = \
            ssl.TLSVersion.TLSv1_3 if tls_1_3 else ssl.TLSVersion.TLSv1_2
        context.set_ciphers('ECDHE-ECDSA-AES128-GCM-SHA256')
        log = f'{files}/keys-{id(self)}'
        context.keylog_filename = log
        bare, out = ssl.MemoryBIO(), ssl.MemoryBIO()
        stream = context.wrap_bio(bare, out, server_hostname='localhost')
        received = b''
        while True:
            try:
                stream.do_handshake()
                break
            except ssl.SSLWantReadError:
                self.socket.sendall(out.read())
                piece = self.socket.recv(65536)
                received += piece
                bare.write(piece)
        self.socket.sendall(out.read())
        with open(log, encoding='ascii') as file:
            lines = [line.split() for line in file if not line.startswith('#')]
        os.unlink(log)
        # The random of the server follows 5 + 4 + 2 bytes of its first message.
        randoms = bytes.fromhex(lines[0][1]), received[11:43]
        records = Records(tls_1_3, {line[0]: line[2] for line in lines}, randoms)
        self.flood = b''
        pieces, total, at = [], 0, 0
        while total < size:
            pieces.append(make(records, at))
            total += len(pieces[-1])
            at += 1
        self.flood = b''.join(pieces)
        self.sent = 0

    def take(self, count):
        got = b''
        while len(got) < count:
            piece = self.socket.recv(count - len(got))
            assert piece, 'the server disconnected'
            got += piece
        return got

    def run(self):
        """Sends all records, and waits until the server disconnects, which it does after the last record at the latest."""
        try:
            while self.sent < len(self.flood):
                self.sent += self.socket.send(self.flood[self.sent:self.sent + 64 * KiB])
            self.socket.shutdown(socket.SHUT_WR)
            while self.socket.recv(65536):
                pass
        except OSError:
            pass  # disconnected


def latencies(client, busy):
    out = []
    while busy() or len(out) < 200:
        start = time.monotonic()
        client.read(0, 4 * KiB)
        out.append(time.monotonic() - start)
    return sorted(out)


def p99(values):
    return values[len(values) * 99 // 100] * 1000


class TlsFloods(server.Test):
    @classmethod
    def setUpClass(cls):
        cls.files = server.tempfile.mkdtemp(prefix='gpunbd-')
        cls.addClassCleanup(server.shutil.rmtree, cls.files, True)
        cls.certificates = test_tls.make_folder(f'{cls.files}/pki')

    def start(self):
        return self.serve(config=CONFIG.replace('{certificates}', self.certificates))

    def flooders(self, one, flood, size=FLOOD):
        return [Flooder(one.address, self.certificates, flood, size) for _ in range(FLOODERS)]

    def run_floods(self, one, flood, during):
        flooders = self.flooders(one, flood)
        threads = [threading.Thread(target=each.run, daemon=True) for each in flooders]
        for thread in threads:
            thread.start()
        result = during(lambda: any(thread.is_alive() for thread in threads))
        for thread in threads:
            thread.join(60)
        for each in flooders:
            each.socket.close()
        return result, sum(each.sent for each in flooders)

    def test_other_clients_are_served(self):
        for flood in FLOODS:
            with self.subTest(flood=flood):
                one = self.start()
                client = wire.connect(one.address)
                took, sent = self.run_floods(one, flood, lambda busy: latencies(client, busy))
                if MEASURE:
                    alone = latencies(client, lambda: False)
                    print(f'{flood}: idle p99 {p99(alone):.2f} ms, max {alone[-1] * 1000:.2f} ms; during the flood '
                          f'p99 {p99(took):.2f} ms, max {took[-1] * 1000:.1f} ms, {len(took)} reads; {sent} bytes accepted',
                          flush=True)
                if flood in ('key updates', 'renegotiations', 'empty records'):
                    server.wait_until(lambda: one.log().count('more TLS records without data') == FLOODERS, 30,
                                      'the end of the flooding clients')
                client.close()
                one.stop()

    def test_sigterm_under_each_flood(self):
        for flood in FLOODS:
            with self.subTest(flood=flood):
                one = self.start()
                flooders = self.flooders(one, flood)
                for each in flooders:
                    threading.Thread(target=each.run, daemon=True).start()
                start = time.monotonic()
                one.stop(signal.SIGTERM)
                if MEASURE:
                    print(f'{flood}: ended {time.monotonic() - start:.2f} s after SIGTERM', flush=True)
                for each in flooders:
                    each.socket.close()


if __name__ == '__main__':
    server.main()
