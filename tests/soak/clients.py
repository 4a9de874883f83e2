"""The clients of the soak: each class is one kind, and round() one thing that it does. What the server
owes it is held against what it knows; a round that ends well has lost nothing."""
import contextlib
import os
import random
import signal
import socket
import ssl
import struct
import subprocess
import time

import server
import wire
from server import KiB, MiB

PATIENCE = 60  # seconds for any one answer: a sanitized server on a busy machine is slow, not dead


class Client:
    def __init__(self, place, number):
        self.place = place  # where the server is
        self.number = number
        self.dice = random.Random(f'{type(self).__name__} {number}')

    def address(self):
        return self.dice.choice(self.place.addresses)

    def connect(self, name, **options):
        return wire.connect(self.address(), name, timeout=PATIENCE, **options)

    def forget(self):
        """All exports have been emptied."""

    def expect(self, holds, what):
        if not holds:
            raise AssertionError(f'{type(self).__name__} {self.number}: {what}')


class Verified(Client):
    """Everything that changes a region of its own, beside others in theirs, against a copy."""
    REGION = 4 * MiB

    def __init__(self, place, number):
        super().__init__(place, number)
        self.copy = bytearray(self.REGION)
        self.start = number * self.REGION

    def forget(self):
        self.copy = bytearray(self.REGION)

    def change(self, client):
        offset = self.dice.randrange(self.REGION)
        length = min(self.dice.choice((1, 512, 4 * KiB, 100_000, MiB, self.REGION)), self.REGION - offset)
        at, kind = self.start + offset, self.dice.randrange(6)
        if kind < 4:
            data = self.dice.randbytes(length)
            client.write(at, data)
        else:
            data = bytes(length)
            if kind == 4:
                client.trim(at, length)
            else:
                client.zero(at, length, self.dice.choice((0, wire.NO_HOLE)))
        self.copy[offset:offset + length] = data

    def compare(self, client):
        offset = self.dice.randrange(self.REGION)
        length = min(self.dice.choice((1, 4 * KiB, 100_000, self.REGION)), self.REGION - offset)
        self.expect(client.read(self.start + offset, length) == self.copy[offset:offset + length],
                    f'{length} bytes at {self.start + offset} are not what was written')

    def round(self):
        with self.connect('verified', structured=self.dice.random() < 0.5) as client:
            for _ in range(40):
                self.change(client)
                self.compare(client)
            self.expect(client.read(self.start, self.REGION) == self.copy, 'the region is not what was written')
            client.disconnect()


class Load(Client):
    """nbdload, which verifies an export of its own: deep queues, every length, several connections."""

    def round(self):
        address = self.address()
        name = f'load{self.number}'
        uri = (f'nbd+unix:///{name}?socket={address}' if isinstance(address, str)
               else f'nbd://{address[0]}:{address[1]}/{name}')
        command = [os.environ['GPUNBD_NBDLOAD'], '--uri', uri, '--verify', '--span', '16M', '--seconds', '3',
                   '--connections', str(self.dice.randint(1, 4)), '--qd', str(self.dice.choice((1, 8, 32))),
                   '--timeout', str(PATIENCE), '--seed', str(self.dice.randrange(1 << 30))]
        if self.dice.random() < 0.5:
            command.append('--structured')
        done = subprocess.run(command, capture_output=True, text=True, check=False, preexec_fn=server.die_with_parent)
        self.expect(done.returncode == 0, f'{" ".join(command)}: {done.stdout} {done.stderr}')


class InTls(Client):
    """libnbd, by certificate or shared key, in an export of its own; some have rates, and who waits loses nothing."""
    SIZE = 4 * MiB

    def __init__(self, place, number):
        super().__init__(place, number)
        self.nbd = server.need_libnbd()
        self.copy = bytearray(self.SIZE)

    def forget(self):
        self.copy = bytearray(self.SIZE)

    def round(self):
        handle = self.nbd.NBD()
        handle.set_tls(self.nbd.TLS_REQUIRE)
        if self.dice.random() < 0.5:
            handle.set_tls_username('soak')
            handle.set_tls_psk_file(f'{self.place.pki}/clients/soak/keys.psk')
        else:
            handle.set_tls_certificates(f'{self.place.pki}/clients/soak')
        handle.set_export_name(f'tls{self.number}')
        address = self.address()
        if isinstance(address, str):
            handle.connect_unix(address)
        else:
            handle.connect_tcp('localhost', str(address[1]))
        for _ in range(20):
            length = self.dice.choice((1, 512, 4 * KiB, 100_000))
            offset = self.dice.randrange(self.SIZE - length)
            data = self.dice.randbytes(length)
            handle.pwrite(data, offset)
            self.copy[offset:offset + length] = data
            offset = self.dice.randrange(self.SIZE - length)
            self.expect(handle.pread(length, offset) == self.copy[offset:offset + length],
                        f'{length} bytes at {offset} are not what was written')
        if self.dice.random() < 0.8:
            handle.shutdown()


class CutInTls(Client):
    """Ends anywhere in TLS: in a handshake, in a record, or after bytes that are none."""

    def round(self):
        context = ssl.create_default_context(cafile=f'{self.place.pki}/ca-cert.pem')
        context.load_cert_chain(*(f'{self.place.pki}/clients/soak/client-{part}.pem' for part in ('cert', 'key')))
        for _ in range(10):
            with wire.Wire(self.address(), PATIENCE) as client:
                client.greet()
                client.option(wire.OPT_STARTTLS)
                self.expect(client.option_reply()[1] == wire.REP_ACK, 'STARTTLS is refused')
                self.until_cut(client, context, self.dice.randrange(3000))

    def until_cut(self, client, context, left):
        came, to_go = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = context.wrap_bio(came, to_go, server_hostname='localhost')
        while True:
            try:
                tls.do_handshake()
                done = True
            except ssl.SSLWantReadError:
                done = False
            if done:
                tls.write(struct.pack('>I', 3) + struct.pack('>QII', wire.IHAVEOPT, wire.OPT_GO, 11)
                          + wire.info_data('storm'))
            data = to_go.read()
            client.send(data[:left])
            left -= len(data)
            if left <= 0 or done:
                break
            came.write(client.socket.recv(64 * KiB))
        if self.dice.random() < 0.3:
            with contextlib.suppress(wire.Closed):  # it may have been left already
                client.send(self.dice.randbytes(100))


class Killed(Client):
    """A client that is killed while it reads and writes with all its might, in TLS or not."""

    def round(self):
        host, port = self.place.addresses[1]
        where = self.dice.choice(((f'nbd+unix:///storm?socket={self.place.path}',),
                                  (f'nbds://{host}:{port}/storm', '--tls-certificates', f'{self.place.pki}/clients/soak')))
        command = [os.environ['GPUNBD_NBDLOAD'], '--uri', *where, '--op', 'rw', '--connections', '4',
                   '--size', self.dice.choice(('4k', '64k', '1M')), '--seconds', '60']
        load = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                preexec_fn=server.die_with_parent)
        time.sleep(self.dice.uniform(0.1, 1))
        ended = load.poll()
        load.send_signal(signal.SIGKILL)
        load.wait()
        self.expect(ended is None, f'it had ended by itself with {ended}')


class Cut(Client):
    """Connections that end anywhere: in the handshake, in a header, in a payload, politely or by a reset."""

    def round(self):
        for _ in range(20):
            said = (struct.pack('>I', 3) + struct.pack('>QII', wire.IHAVEOPT, wire.OPT_STRUCTURED_REPLY, 0)
                    + struct.pack('>QII', wire.IHAVEOPT, wire.OPT_GO, 11) + wire.info_data('storm')
                    + struct.pack('>IHHQQI', wire.REQUEST, 0, wire.CMD_WRITE, 1, 0, 9000) + bytes(9000))
            client = wire.Wire(self.address(), PATIENCE)
            client.greeting()
            client.send(said[:self.dice.randrange(len(said))])
            if self.dice.random() < 0.5 and client.socket.family != socket.AF_UNIX:
                client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
            client.close()


class Storm(Client):
    """Thousands of TRIMs and zeroes at once; then all are answered, or the client is gone."""
    SIZE = 64 * MiB

    def round(self):
        client = self.connect('storm', structured=False)
        with client:
            count = 2000
            requests = b''.join(
                struct.pack('>IHHQQI', wire.REQUEST, self.dice.choice((0, wire.NO_HOLE)) if n % 50 == 0 else 0,
                            wire.CMD_ZEROES if n % 50 == 0 else wire.CMD_TRIM, n, 0,
                            self.dice.choice((64 * KiB, MiB, self.SIZE)))
                for n in range(count))
            client.send(requests)
            if self.dice.random() < 0.5:
                return
            answers = client.receive(16 * count)
            cookies = set()
            for magic, error, cookie in struct.iter_unpack('>IIQ', answers):
                self.expect((magic, error) == (wire.SIMPLE_REPLY, 0), f'TRIM or zeroes: error {error}')
                cookies.add(cookie)
            self.expect(len(cookies) == count, 'one of them was answered twice')
            client.disconnect()


class Stalled(Client):
    """Asks for much and reads nothing for a while."""

    def round(self):
        with self.connect('quiet', structured=False) as client:
            for n in range(16):
                client.request(wire.CMD_READ, 0, 8 * MiB, cookie=n)
            time.sleep(self.dice.uniform(0.5, 3))
            if self.dice.random() < 0.5:
                return
            for _ in range(16):
                error, _ = client.simple_reply()
                self.expect(error == 0, f'a READ: error {error}')
                self.expect(client.receive(8 * MiB) == bytes(8 * MiB), 'what nobody has written is zero')


class Trickling(Client):
    """A write whose payload comes in drops, and which then has to be there."""

    def round(self):
        data = self.dice.randbytes(32 * KiB)
        at = MiB * (16 + self.number)
        with self.connect('quiet', structured=False) as client:
            cookie = client.request(wire.CMD_WRITE, at, len(data))
            for start in range(0, len(data), KiB):
                client.send(data[start:start + KiB])
                time.sleep(0.02)
            client.done(cookie)
            self.expect(client.read(at, len(data)) == data, 'a write in drops is not what was sent')
            client.trim(at, len(data))


class Reloading(Client):
    """SIGHUP with exports that come and go, and with files that are wrong; an export that stays is served."""

    def round(self):
        extras = [n for n in range(4) if self.dice.random() < 0.5]
        wrong = self.dice.random() < 0.2
        self.place.reload(extras, wrong)
        if wrong or not extras:
            time.sleep(0.3)
            return
        name = f'extra{self.dice.choice(extras)}'
        data = self.dice.randbytes(100_000)
        with self.connect_once_there(name) as client:
            client.write(5, data)
            self.expect(client.read(5, len(data)) == data, f'{name} is not what was written')
        time.sleep(0.5)

    def connect_once_there(self, name):
        limit = time.monotonic() + PATIENCE
        while True:
            try:
                return self.connect(name)
            except wire.Refused:
                if time.monotonic() > limit:
                    raise
                time.sleep(0.1)


class Probe(Client):
    """Does it still answer? A new connection each second, over each of its addresses."""

    def round(self):
        for address in self.place.addresses:
            with wire.connect(address, 'quiet', timeout=PATIENCE) as client:
                self.expect(client.read(48 * MiB, 4096) == bytes(4096), 'what nobody has written is zero')
                client.disconnect()
        time.sleep(1)


ALL = ((Verified, 3), (Load, 2), (InTls, 3), (CutInTls, 1), (Killed, 1), (Cut, 2), (Storm, 2), (Stalled, 2), (Trickling, 2), (Reloading, 1),
       (Probe, 1))
