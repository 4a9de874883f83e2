"""The clients of the soak test. Each class is one kind of client, and round() is one unit of its work. Each checks the
replies that it gets; a round that returns has lost no data."""
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

TIMEOUT = 60  # seconds for one reply: a sanitized server on a busy machine is slow


class Client:
    def __init__(self, deployment, number):
        self.deployment = deployment
        self.number = number
        self.random = random.Random(f'{type(self).__name__} {number}')

    def address(self):
        return self.random.choice(self.deployment.addresses)

    def connect(self, name, **options):
        return wire.connect(self.address(), name, timeout=TIMEOUT, **options)

    def forget(self):
        """All exports have been emptied: the client must discard its copy."""

    def expect(self, holds, problem):
        if not holds:
            raise AssertionError(f'{type(self).__name__} {self.number}: {problem}')


class Copying(Client):
    """A client with a copy of a region that no other client uses."""
    REGION = 4 * MiB

    def __init__(self, deployment, number):
        super().__init__(deployment, number)
        self.forget()

    def forget(self):
        self.copy = bytearray(self.REGION)

    def compare(self, offset, data):
        self.expect(data == self.copy[offset:offset + len(data)], f'{len(data)} bytes at {offset} differ from what was written')


class Verified(Copying):
    """Changes its region of an export, with every command, and compares it with the copy."""

    @property
    def start(self):
        return self.number * self.REGION

    def change(self, client):
        offset = self.random.randrange(self.REGION)
        length = min(self.random.choice((1, 512, 4 * KiB, 100_000, MiB, self.REGION)), self.REGION - offset)
        at, kind = self.start + offset, self.random.randrange(6)
        if kind < 4:
            data = self.random.randbytes(length)
            client.write(at, data)
        else:
            data = bytes(length)
            if kind == 4:
                client.trim(at, length)
            else:
                client.zero(at, length, self.random.choice((0, wire.NO_HOLE)))
        self.copy[offset:offset + length] = data

    def round(self):
        with self.connect('verified', structured=self.random.random() < 0.5) as client:
            for _ in range(40):
                self.change(client)
                offset = self.random.randrange(self.REGION)
                length = min(self.random.choice((1, 4 * KiB, 100_000, self.REGION)), self.REGION - offset)
                self.compare(offset, client.read(self.start + offset, length))
            self.compare(0, client.read(self.start, self.REGION))
            client.disconnect()


class Load(Client):
    """nbdload, which verifies its own export: deep queues, many lengths, several connections."""

    def round(self):
        address = self.address()
        name = f'load{self.number}'
        uri = (f'nbd+unix:///{name}?socket={address}' if isinstance(address, str)
               else f'nbd://{address[0]}:{address[1]}/{name}')
        command = [os.environ['GPUNBD_NBDLOAD'], '--uri', uri, '--verify', '--span', '16M', '--seconds', '3',
                   '--connections', str(self.random.randint(1, 4)), '--qd', str(self.random.choice((1, 8, 32))),
                   '--timeout', str(TIMEOUT), '--seed', str(self.random.randrange(1 << 30))]
        if self.random.random() < 0.5:
            command.append('--structured')
        done = subprocess.run(command, capture_output=True, text=True, check=False, preexec_fn=server.die_with_parent)
        self.expect(done.returncode == 0, f'{" ".join(command)}: {done.stdout} {done.stderr}')


class InTls(Copying):
    """libnbd, with a certificate or a shared key, on its own export. Some exports have rate limits, which must not lose data."""

    def __init__(self, deployment, number):
        super().__init__(deployment, number)
        self.nbd = server.need_libnbd()

    def round(self):
        handle = self.nbd.NBD()
        handle.set_tls(self.nbd.TLS_REQUIRE)
        if self.random.random() < 0.5:
            handle.set_tls_username('soak')
            handle.set_tls_psk_file(f'{self.deployment.pki}/clients/soak/keys.psk')
        else:
            handle.set_tls_certificates(f'{self.deployment.pki}/clients/soak')
        handle.set_export_name(f'tls{self.number}')
        address = self.address()
        if isinstance(address, str):
            handle.connect_unix(address)
        else:
            handle.connect_tcp('localhost', str(address[1]))
        for _ in range(20):
            length = self.random.choice((1, 512, 4 * KiB, 100_000))
            offset = self.random.randrange(self.REGION - length)
            data = self.random.randbytes(length)
            handle.pwrite(data, offset)
            self.copy[offset:offset + length] = data
            offset = self.random.randrange(self.REGION - length)
            self.compare(offset, handle.pread(length, offset))
        if self.random.random() < 0.8:
            handle.shutdown()


class AbortedTls(Client):
    """Disconnects anywhere in TLS: in the handshake, in a record, or after invalid bytes."""

    def round(self):
        context = ssl.create_default_context(cafile=f'{self.deployment.pki}/ca-cert.pem')
        context.load_cert_chain(*(f'{self.deployment.pki}/clients/soak/client-{part}.pem' for part in ('cert', 'key')))
        for _ in range(10):
            with wire.Wire(self.address(), TIMEOUT) as client:
                client.greet()
                client.option(wire.STARTTLS)
                self.expect(client.option_reply(wire.STARTTLS) == (wire.REP_ACK, b''), 'STARTTLS is refused')
                self.until_cut(client, context, self.random.randrange(3000))

    def until_cut(self, client, context, remaining):
        received, to_send = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = context.wrap_bio(received, to_send, server_hostname='localhost')
        while True:
            try:
                tls.do_handshake()
                done = True
            except ssl.SSLWantReadError:
                done = False
            if done:
                tls.write(wire.encode_handshake('storm', structured=False))
            data = to_send.read()
            client.send(data[:remaining])
            remaining -= len(data)
            if remaining <= 0 or done:
                break
            received.write(client.socket.recv(64 * KiB))
        if self.random.random() < 0.3:
            with contextlib.suppress(wire.Closed):  # the server may have closed the connection
                client.send(self.random.randbytes(100))


class Killed(Client):
    """nbdload that is killed under full load, with or without TLS."""

    def round(self):
        host, port = self.deployment.addresses[1]
        target = self.random.choice(((f'nbd+unix:///storm?socket={self.deployment.path}',),
                                     (f'nbds://{host}:{port}/storm', '--tls-certificates', f'{self.deployment.pki}/clients/soak')))
        command = [os.environ['GPUNBD_NBDLOAD'], '--uri', *target, '--op', 'rw', '--connections', '4',
                   '--size', self.random.choice(('4k', '64k', '1M')), '--seconds', '60']
        load = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                preexec_fn=server.die_with_parent)
        time.sleep(self.random.uniform(0.1, 1))
        ended = load.poll()
        load.send_signal(signal.SIGKILL)
        load.wait()
        self.expect(ended is None, f'it exited by itself with {ended}')


class Aborted(Client):
    """Disconnects anywhere: in the handshake, in a header or in a payload, with or without a reset."""

    def round(self):
        for _ in range(20):
            stream = wire.encode_handshake('storm') + wire.encode_write(0, bytes(9000))
            client = wire.Wire(self.address(), TIMEOUT)
            client.greeting()
            client.send(stream[:self.random.randrange(len(stream))])
            if self.random.random() < 0.5 and client.socket.family != socket.AF_UNIX:
                client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
            client.close()


class Storm(Client):
    """Sends thousands of TRIM and WRITE_ZEROES requests at once, and either reads all replies or disconnects."""
    SIZE = 64 * MiB

    def round(self):
        client = self.connect('storm', structured=False)
        with client:
            count = 2000
            requests = b''.join(
                wire.encode_request(wire.WRITE_ZEROES if n % 50 == 0 else wire.TRIM, 0,
                                    self.random.choice((64 * KiB, MiB, self.SIZE)),
                                    self.random.choice((0, wire.NO_HOLE)) if n % 50 == 0 else 0, cookie=n)
                for n in range(count))
            client.send(requests)
            if self.random.random() < 0.5:
                return
            answers = [client.simple_reply() for _ in range(count)]
            self.expect({error for error, _ in answers} == {wire.OK}, 'TRIM or WRITE_ZEROES fails')
            self.expect(len(set(answers)) == count, 'a request was answered twice')
            client.disconnect()


class Stalled(Client):
    """Requests many data and does not read for a while."""

    def round(self):
        with self.connect('quiet', structured=False) as client:
            for n in range(16):
                client.request(wire.READ, 0, 8 * MiB, cookie=n)
            time.sleep(self.random.uniform(0.5, 3))
            if self.random.random() < 0.5:
                return
            for _ in range(16):
                error, _ = client.simple_reply()
                self.expect(error == 0, f'a READ: error {error}')
                self.expect(client.receive(8 * MiB) == bytes(8 * MiB), 'unwritten data are not zero')


class Trickling(Client):
    """A WRITE whose payload arrives slowly, in small pieces, is complete."""

    def round(self):
        data = self.random.randbytes(32 * KiB)
        at = MiB * (16 + self.number)
        with self.connect('quiet', structured=False) as client:
            cookie = client.request(wire.WRITE, at, len(data))
            for start in range(0, len(data), KiB):
                client.send(data[start:start + KiB])
                time.sleep(0.02)
            client.done(cookie)
            self.expect(client.read(at, len(data)) == data, 'a slow WRITE lost data')
            client.trim(at, len(data))


class Reloading(Client):
    """Sends SIGHUP with exports added and removed, and with invalid files. Remaining exports are served meanwhile."""

    def round(self):
        extras = [n for n in range(4) if self.random.random() < 0.5]
        invalid = self.random.random() < 0.2
        self.deployment.reload(extras, invalid)
        if invalid or not extras:
            time.sleep(0.3)
            return
        name = f'extra{self.random.choice(extras)}'
        data = self.random.randbytes(100_000)
        with self.connect_when_added(name) as client:
            client.write(5, data)
            self.expect(client.read(5, len(data)) == data, f'{name} differs from what was written')
        time.sleep(0.5)

    def connect_when_added(self, name):
        limit = time.monotonic() + TIMEOUT
        while True:
            try:
                return self.connect(name)
            except wire.Refused:
                if time.monotonic() > limit:
                    raise
                time.sleep(0.1)


class Probe(Client):
    """Connects to each address every second, and reads."""

    def round(self):
        for address in self.deployment.addresses:
            with wire.connect(address, 'quiet', timeout=TIMEOUT) as client:
                self.expect(client.read(48 * MiB, 4096) == bytes(4096), 'unwritten data are not zero')
                client.disconnect()
        time.sleep(1)


ALL = ((Verified, 3), (Load, 2), (InTls, 3), (AbortedTls, 1), (Killed, 1), (Aborted, 2), (Storm, 2), (Stalled, 2), (Trickling, 2),
       (Reloading, 1), (Probe, 1))
