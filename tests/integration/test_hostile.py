"""Clients that stop, disconnect or send invalid data at every stage: the server continues and loses nothing."""
import os
import random
import signal
import socket
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
        server.wait_until(lambda: one.descriptors() <= descriptors, 60, 'the connections to be closed')

    def baseline(self, one):
        self.alive(one)
        time.sleep(0.2)
        return one.descriptors()

    def test_half_sent_write_into_a_hole(self):
        """Missing parts of a payload do not expose old contents of the memory."""
        one = self.serve(size=SIZE)
        before = self.baseline(one)
        with wire.connect(one.address) as client:
            for at in range(0, SIZE, 16 * MiB):
                client.write(at, b's' * 16 * MiB)
            client.trim(0, SIZE)
        for n, sent in enumerate((0, 1, 5000, 100000, 2 * MiB + 1)):
            client = wire.connect(one.address)
            client.request(wire.WRITE, n * 8 * MiB + 3, 4 * MiB, 0, b'n' * sent)
            client.close()
        self.settled(one, before)
        with wire.connect(one.address) as client:
            for offset in range(0, SIZE, 8 * MiB):
                self.assertLessEqual(set(client.read(offset, 8 * MiB)), {0, ord('n')})

    def test_killed_clients(self):
        """Processes that are killed with many reads and writes in flight."""
        one = self.serve(size=SIZE)
        before = self.baseline(one)
        generator = random.Random(2)
        for _ in range(20):
            child = os.fork()
            if child == 0:
                try:
                    client = wire.connect(one.address)
                    while True:
                        for n in range(16):
                            client.request(wire.WRITE, n * MiB, MiB, 0, b'k' * MiB)
                        for n in range(8):
                            client.request(wire.READ, n * MiB, MiB)
                        client.socket.recv(100000)
                finally:
                    os._exit(0)
            time.sleep(generator.random() * 0.05)
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        self.alive(one)
        self.settled(one, before)


class Deadline(server.Test):
    # Two TCP peers, and one Unix socket.
    PEERS = '''
listeners: {unix: [{path: '{socket}'}], tcp: [{address: 127.0.0.1, port: PORT}]}
exports: [{name: '', size: 64M, devices: [{device}]}]
limits: {handshake: 60, connections: 64, handshakes: 16}
'''

    def as_peer(self, port, source, speak=True):
        """A connection from that address of this machine, or None if the server refuses it."""
        client = wire.Wire(socket.create_connection(('127.0.0.1', port), 20, (source, 0)))
        self.addCleanup(client.close)
        try:
            if speak:
                client.greet()
                client.go()
            return client
        except wire.Closed:
            return None

    def served(self, client):
        self.assertIsNotNone(client, 'another peer was refused')
        client.write(5, b'served')
        self.assertEqual(client.read(5, 6), b'served')

    def test_a_peer_with_many_connections(self):
        port = server.free_port()
        one = self.serve(config=self.PEERS.replace('PORT', str(port)))
        hostile = [self.as_peer(port, '127.0.0.2') for _ in range(100)]
        hostile += [self.as_peer(port, '127.0.0.2', speak=False) for _ in range(100)]
        self.assertEqual(sum(client is not None for client in hostile[:100]), 32)  # half of the limit
        self.served(self.as_peer(port, '127.0.0.3'))
        with wire.connect(one.path) as local:
            self.served(local)
        self.served(hostile[0])
        server.wait_for_text('too many connections of this peer: 32', one.log)

    def test_silent_handshakes(self):
        """Silent handshakes from many addresses displace each other, but no other clients."""
        port = server.free_port()
        one = self.serve(config=self.PEERS.replace('PORT', str(port)))
        served = self.as_peer(port, '127.0.0.3')
        for n in range(300):
            self.as_peer(port, f'127.0.{1 + n // 100}.{4 + n % 100}', speak=False)
        late = []

        def let_in():
            late.append(self.as_peer(port, '127.0.9.9'))
            return late[-1] is not None
        server.wait_until(let_in, 20, 'a connection of another peer')
        self.served(late[-1])
        self.served(served)
        with wire.connect(one.path) as local:
            self.served(local)
        numbers = iter(range(4, 200))

        def logged():
            """The log leaves out lines in a flood, so a few more handshakes follow later."""
            if 'there were too many handshakes' in one.log():
                return True
            time.sleep(0.2)
            self.as_peer(port, f'127.0.8.{next(numbers)}', speak=False)
            return False
        server.wait_until(logged, 20, 'the line in the log')


if __name__ == '__main__':
    server.main()
