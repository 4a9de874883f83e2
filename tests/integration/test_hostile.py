"""Clients that stop, hang up or say nonsense at every stage: the server goes on and loses nothing."""
import os
import random
import signal
import socket
import struct
import time

import server
import wire
from server import MiB

SIZE = 64 * MiB


class Hostile(server.Test):
    def alive(self, one):
        with wire.connect(one.address) as client:
            client.write(77, b'alive')
            self.assertEqual(client.read(77, 5), b'alive')
            client.disconnect()

    def settled(self, one, descriptors):
        server.wait_until(lambda: one.descriptors() <= descriptors, 15, 'the connections to be closed')

    def baseline(self, one):
        self.alive(one)
        time.sleep(0.2)
        return one.descriptors()

    def test_connects_and_disconnects(self):
        for tcp in (False, True):
            one = self.serve(size=SIZE, tcp=tcp, unix=not tcp)
            before = self.baseline(one)
            for n in range(500):
                client = wire.Wire(one.address)
                if n % 3 == 1:
                    client.greeting()
                if n % 3 == 2:
                    client.greet()
                    client.go()
                client.close()
            self.alive(one)
            self.settled(one, before)

    def test_hang_up_after_every_byte_of_the_handshake(self):
        one = self.serve(size=SIZE)
        before = self.baseline(one)
        data = wire.info_data('')
        meta = wire.meta_data('', 'base:allocation')
        said = struct.pack('>I', 3) + struct.pack('>QII', wire.IHAVEOPT, wire.OPT_STRUCTURED_REPLY, 0)
        said += struct.pack('>QII', wire.IHAVEOPT, wire.OPT_SET_META_CONTEXT, len(meta)) + meta
        said += struct.pack('>QII', wire.IHAVEOPT, wire.OPT_GO, len(data)) + data
        said += struct.pack('>IHHQQI', wire.REQUEST, 0, wire.CMD_READ, 7, 0, MiB)
        for end in range(len(said) + 1):
            for listen in (False, True):
                client = wire.Wire(one.address)
                if listen:
                    client.greeting()
                client.send(said[:end])
                client.close()
        self.alive(one)
        self.settled(one, before)

    def test_reset_instead_of_close(self):
        one = self.serve(size=SIZE, tcp=True, unix=False)
        before = self.baseline(one)
        for n in range(60):
            client = wire.connect(one.address)
            client.request(wire.CMD_WRITE, 0, MiB, 0, b'r' * (n * 15000))
            client.request(wire.CMD_READ, 0, MiB)
            client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
            client.close()
        self.alive(one)
        self.settled(one, before)

    def test_half_sent_write(self):
        """What came of a payload may be written or not; what was there around it stays."""
        for tcp in (False, True):
            one = self.serve(size=SIZE, tcp=tcp, unix=not tcp)
            before = self.baseline(one)
            with wire.connect(one.address) as client:
                client.write(0, b'o' * 8 * MiB)
            for sent in (0, 1, 100, 4096, 65536, 1000000, 3 * MiB, 4 * MiB - 1):
                client = wire.connect(one.address)
                client.request(wire.CMD_WRITE, MiB, 4 * MiB, 0, b'n' * sent)
                client.close()
            self.settled(one, before)
            with wire.connect(one.address) as client:
                self.assertEqual(client.read(0, MiB), b'o' * MiB)
                self.assertLessEqual(set(client.read(MiB, 4 * MiB)), {ord('o'), ord('n')})
                self.assertEqual(client.read(5 * MiB, 3 * MiB), b'o' * 3 * MiB)

    def test_half_sent_write_into_a_hole(self):
        """No bytes of anyone else's show up where a payload never came."""
        one = self.serve(size=SIZE)
        with wire.connect(one.address) as client:
            for at in range(0, SIZE, 16 * MiB):
                client.write(at, b's' * 16 * MiB)
            client.trim(0, SIZE)
        for n, sent in enumerate((0, 1, 5000, 100000, 2 * MiB + 1)):
            client = wire.connect(one.address)
            client.request(wire.CMD_WRITE, n * 8 * MiB + 3, 4 * MiB, 0, b'n' * sent)
            client.close()
        time.sleep(0.3)
        with wire.connect(one.address) as client:
            for offset in range(0, SIZE, 8 * MiB):
                self.assertLessEqual(set(client.read(offset, 8 * MiB)), {0, ord('n')})

    def lazy(self, one):
        """A client that asks for gigabytes and reads nothing."""
        client = wire.connect(one.address, timeout=1)
        try:
            for n in range(100):
                client.request(wire.CMD_READ, n * 1000, 16 * MiB)
        except TimeoutError:
            pass  # the server has stopped to listen, which is its right
        return client

    def test_unread_replies(self):
        for tcp in (False, True):
            one = self.serve(size=SIZE, tcp=tcp, unix=not tcp)
            before = self.baseline(one)
            memory = one.memory()
            with wire.connect(one.address) as client:
                client.write(0, server.random_bytes(SIZE // 2, 1))
            for _ in range(10):
                self.lazy(one).close()
            lazy = self.lazy(one)
            self.alive(one)
            self.assertLess(one.memory() - memory, SIZE + 200 * MiB)
            lazy.close()
            self.settled(one, before)

    def test_killed_clients(self):
        """Processes that die in the midst of reading and writing with many requests in flight."""
        one = self.serve(size=SIZE)
        before = self.baseline(one)
        dice = random.Random(2)
        for _ in range(20):
            child = os.fork()
            if child == 0:
                try:
                    client = wire.connect(one.address)
                    while True:
                        for n in range(16):
                            client.request(wire.CMD_WRITE, n * MiB, MiB, 0, b'k' * MiB)
                        for n in range(8):
                            client.request(wire.CMD_READ, n * MiB, MiB)
                        client.socket.recv(100000)
                finally:
                    os._exit(0)
            time.sleep(dice.random() * 0.05)
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        self.alive(one)
        self.settled(one, before)

    def test_noise(self):
        one = self.serve(size=SIZE)
        before = self.baseline(one)
        dice = random.Random(3)
        for n in range(200):
            client = wire.Wire(one.address) if n % 2 else wire.connect(one.address)
            try:
                if n % 4 == 1:
                    client.greet()
                client.send(dice.randbytes(dice.randrange(1, 5000)))
            except wire.Closed:
                pass
            client.close()
        self.alive(one)
        self.settled(one, before)

    def test_mutated_requests(self):
        """Right magic, everything else at random, short payloads of writes included."""
        one = self.serve(size=SIZE)
        before = self.baseline(one)
        dice = random.Random(4)
        for _ in range(50):
            client = wire.connect(one.address, structured=bool(dice.getrandbits(1)))
            said = b''
            for _ in range(30):
                command, flags = dice.choice((0, 0, 3, 4, 5, 6, 7, 8, 99)), dice.choice((0, 0, 1, 2, 4, 8, 16, 32, 65535))
                offset = dice.choice((dice.getrandbits(64), dice.randrange(SIZE), SIZE))
                said += struct.pack('>IHHQQI', wire.REQUEST, flags, command, dice.getrandbits(64), offset,
                                    dice.choice((0, 1, 4096, 1 << 20, 1 << 31, dice.getrandbits(32))))
            try:
                client.send(said)
                client.socket.settimeout(0.05)
                client.rest()
            except (wire.Closed, TimeoutError):
                pass
            client.close()
        self.alive(one)
        self.settled(one, before)


class Deadline(server.Test):
    CONFIG = '''
listeners: {unix: [{path: '{socket}'}]}
exports: [{name: '', size: 64M, devices: [host]}]
limits: {handshake: 1, connections: 20, connections_per_peer: 20}
'''

    def test_handshake_deadline(self):
        one = self.serve(config=self.CONFIG)
        working = wire.connect(one.address)
        silent, slow = wire.Wire(one.address), wire.Wire(one.address)
        start = time.monotonic()
        silent.greeting()
        slow.greet()
        slow.send(struct.pack('>Q', wire.IHAVEOPT))
        for client in (silent, slow):
            self.assertEqual(client.rest(), b'')
        taken = time.monotonic() - start
        self.assertTrue(0.5 < taken < 5, taken)
        working.write(0, b'still here')  # the deadline is for negotiation alone
        working.close()

    # Two peers by TCP, and one by a Unix socket.
    PEERS = '''
listeners: {unix: [{path: '{socket}'}], tcp: [{address: 127.0.0.1, port: PORT}]}
exports: [{name: '', size: 64M, devices: [host]}]
limits: {handshake: 60, connections: 64, handshakes: 16}
'''

    def as_peer(self, port, source, speak=True):
        """A connection from that address of this machine; None: it was not let in."""
        client = wire.Wire.__new__(wire.Wire)
        client.socket = socket.create_connection(('127.0.0.1', port), 20, (source, 0))
        client.structured, client.cookie = False, 0
        self.addCleanup(client.close)
        try:
            if speak:
                client.greet()
                client.go()
            return client
        except wire.Closed:
            return None

    def served(self, client):
        self.assertIsNotNone(client, 'another peer was not let in')
        client.write(5, b'served')
        self.assertEqual(client.read(5, 6), b'served')

    def test_a_peer_that_takes_all_it_can(self):
        port = server.free_port()
        one = self.serve(config=self.PEERS.replace('PORT', str(port)))
        hostile = [self.as_peer(port, '127.0.0.2') for _ in range(100)]
        hostile += [self.as_peer(port, '127.0.0.2', speak=False) for _ in range(100)]
        self.assertEqual(sum(client is not None for client in hostile[:100]), 32)  # half of them
        self.served(self.as_peer(port, '127.0.0.3'))
        with wire.connect(one.path) as local:
            self.served(local)
        self.served(hostile[0])
        server.wait_for_text('this peer has 32 connections, the limit of each', one.log)

    def test_silent_handshakes(self):
        """From many addresses: they push each other out, and nobody else."""
        port = server.free_port()
        one = self.serve(config=self.PEERS.replace('PORT', str(port)))
        served = self.as_peer(port, '127.0.0.3')
        for n in range(300):
            self.as_peer(port, f'127.0.{1 + n // 100}.{4 + n % 100}', speak=False)
        late = []

        def let_in():
            late.append(self.as_peer(port, '127.0.9.9'))
            return late[-1] is not None
        server.wait_until(let_in, 20, 'another peer to be let in')
        self.served(late[-1])
        self.served(served)
        with wire.connect(one.path) as local:
            self.served(local)
        numbers = iter(range(4, 200))

        def told():
            """Of so many at once only some lines are logged: those of a few more come later."""
            if 'its handshake went for others' in one.log():
                return True
            time.sleep(0.2)
            self.as_peer(port, f'127.0.8.{next(numbers)}', speak=False)
            return False
        server.wait_until(told, 20, 'a line')

    def test_connection_cap(self):
        one = self.serve(config=self.CONFIG)
        clients = []
        for _ in range(20):
            clients.append(wire.connect(one.address))
        late = wire.Wire(one.address, timeout=1)
        try:
            late.greet()
            late.go()
            self.fail('a connection beyond the cap was served')
        except (wire.Closed, TimeoutError):
            pass
        late.close()
        clients[7].write(5, b'served')
        clients.pop().close()

        def served():
            try:
                wire.connect(one.address, timeout=1).close()
                return True
            except (wire.Closed, TimeoutError):
                return False
        server.wait_until(served, 10, 'a place to become free')
        for client in clients:
            client.close()


if __name__ == '__main__':
    server.main()
