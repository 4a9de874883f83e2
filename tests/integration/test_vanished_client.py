"""TCP clients that vanish: they send neither FIN nor RST, and acknowledge nothing."""
import ctypes
import socket
import struct
import time

import server
import wire
from server import MiB

CONFIG = '''
listeners: {{tcp: [{{address: 127.0.0.1, port: {port}}}], unix: [{{path: "{{socket}}"}}]}}
exports: [{{size: 64M, devices: [host], max_connections: 1}}, {{name: other, size: 64M, devices: [host]}}]
limits: {{unreachable: 1s}}
'''
SO_ATTACH_FILTER = 26
GONE = 'the client was unreachable for too long'


def vanish(client):
    """Drops all packets to the client before TCP sees them, as if the machine were off."""
    drop_all = ctypes.create_string_buffer(struct.pack('HBBI', 0x06, 0, 0, 0))  # return 0
    client.socket.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, struct.pack('HP', 1, ctypes.addressof(drop_all)))


class VanishedClient(server.Test):
    def serve_exports(self):
        self.port = server.free_port()
        one = self.serve(config=CONFIG.format(port=self.port))
        return one

    def connect(self, name=''):
        client = wire.connect(('127.0.0.1', self.port), name, structured=False)
        self.addCleanup(client.close)
        return client

    def is_refused(self):
        """Whether the only connection that the export permits is in use. Takes a while: a server logs 10 lines a second about
        clients, and the line about the vanished one must be among them."""
        time.sleep(0.3)
        try:
            wire.connect(('127.0.0.1', self.port)).close()
        except wire.Refused:
            return True
        return False

    def vanish(self, client):
        self.assertTrue(self.is_refused())  # not later: the limit of the server is short
        vanish(client)

    def check_disconnected(self, one):
        server.wait_until(lambda: not self.is_refused(), 60, 'the end of the vanished connection')
        server.wait_for_text(GONE, one.log)

    def test_idle(self):
        one = self.serve_exports()
        client, other = self.connect(), self.connect('other')
        client.read(0, 512)
        self.vanish(client)
        self.check_disconnected(one)
        self.assertEqual(other.read(0, 512), bytes(512))

    def test_in_the_middle_of_a_write(self):
        one = self.serve_exports()
        client = self.connect()
        client.send(wire.encode_request(wire.WRITE, 0, 8 * MiB, payload=bytes(3 * MiB)))
        self.vanish(client)
        self.check_disconnected(one)

    def test_with_replies_in_flight(self):
        """A reachable client that does not read is not disconnected."""
        one = self.serve_exports()
        slow = self.connect('other')
        slow.request(wire.READ, 0, 16 * MiB)
        client = self.connect()
        client.request(wire.READ, 0, 16 * MiB)
        client.receive(MiB)
        self.vanish(client)
        self.check_disconnected(one)
        self.assertEqual(slow.simple_reply(), (0, 1))
        self.assertEqual(slow.receive(16 * MiB), bytes(16 * MiB))
        self.assertEqual(one.log().count(GONE), 1)


if __name__ == '__main__':
    server.main()
