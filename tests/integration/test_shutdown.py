"""SIGTERM and SIGINT: no new clients, what is in flight is answered, new requests are refused, then the end."""
import os
import signal
import struct
import time

import server
import wire
from server import MiB

CONFIG = '''
listeners: {unix: [{path: '{socket}'}]}
exports: [{name: '', size: 64M, devices: [host]}]
limits: {drain: 2}
'''


def begin_write(client):
    """A WRITE of 1 MiB, of which 1000 bytes come. The FLUSH beside it tells that they have been taken."""
    client.send(struct.pack('>IHHQQI', wire.REQUEST, 0, wire.CMD_FLUSH, 7, 0, 0)
                + struct.pack('>IHHQQI', wire.REQUEST, 0, wire.CMD_WRITE, 8, 0, MiB) + b'h' * 1000)
    client.done(7)
    return 8


def tell_to_stop(one, number=signal.SIGTERM):
    """Returns once it has heard; its workers hear of it a little later."""
    one.process.send_signal(number)
    server.wait_for_text('stopping: ', one.log)
    time.sleep(0.2)


class Shutdown(server.Test):
    def test_nobody_there(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            self.assertLess(self.serve().stop(number), 2)

    def test_idle_clients(self):
        """They are not waited for longer than the grace, if at all, and the end is a clean one."""
        one = self.serve(config=CONFIG)
        clients = [wire.connect(one.address) for _ in range(10)] + [wire.Wire(one.address) for _ in range(5)]
        self.assertLess(one.stop(), 4)
        for client in clients[:10]:
            client.rest()

    def test_socket_is_removed(self):
        one = self.serve()
        path = one.path
        self.assertTrue(os.path.exists(path))
        one.process.send_signal(signal.SIGTERM)
        one.process.wait(10)
        self.assertFalse(os.path.exists(path))

    def test_half_received_write(self):
        """A client that never sends the rest does not keep the server."""
        one = self.serve(config=CONFIG)
        client = wire.connect(one.address)
        begin_write(client)
        self.assertLess(one.stop(), 5)
        client.close()

    def test_write_that_is_finished_in_the_grace(self):
        one = self.serve(config=CONFIG)
        client = wire.connect(one.address, structured=False)
        cookie = begin_write(client)
        tell_to_stop(one)
        client.send(b'h' * (MiB - 1000))
        self.assertEqual(client.simple_reply(), (0, cookie))
        self.assertLess(one.stop(), 4)

    def test_replies_in_flight(self):
        """A client that is still reading what it asked for gets all of it."""
        one = self.serve(config=CONFIG)
        client = wire.connect(one.address, structured=False)
        client.write(0, b'f' * 32 * MiB)
        cookie = client.request(wire.CMD_READ, 0, 32 * MiB)
        self.assertEqual(client.simple_reply(), (0, cookie))
        tell_to_stop(one)
        self.assertEqual(client.receive(32 * MiB), b'f' * 32 * MiB)
        one.stop()

    def test_new_requests_are_refused(self):
        one = self.serve(config=CONFIG)
        client = wire.connect(one.address, structured=False)
        hold = begin_write(client)  # keeps the session busy
        tell_to_stop(one)
        late = struct.pack('>IHHQQI', wire.REQUEST, 0, wire.CMD_WRITE, 99, 0, 4) + b'late'
        # The end of the payload brings it along: what comes later finds the connection closed.
        client.send(b'h' * (MiB - 2000))
        client.send(b'h' * 1000 + late)
        self.assertEqual(client.simple_reply(), (0, hold))
        self.assertEqual(client.simple_reply(), (wire.ESHUTDOWN, 99))
        self.assertEqual(client.rest(), b'')
        one.stop()

    def test_new_clients_are_refused(self):
        one = self.serve(config=CONFIG)
        client = wire.connect(one.address)
        begin_write(client)
        tell_to_stop(one)
        with self.assertRaises(FileNotFoundError):
            wire.connect(one.address)
        one.stop()

    def test_negotiating_clients(self):
        one = self.serve(config=CONFIG)
        client = wire.Wire(one.address)
        client.greet()
        tell_to_stop(one)
        with self.assertRaises(wire.Refused) as refused:
            client.go()
        self.assertEqual(refused.exception.args[0], wire.ERR_SHUTDOWN)
        self.assertLess(one.stop(), 5)

    def test_second_signal(self):
        """The first waits for the client; the second ends the grace period at once."""
        for first, second in ((signal.SIGTERM, signal.SIGTERM), (signal.SIGINT, signal.SIGTERM)):
            one = self.serve(config=CONFIG.replace('drain: 2', 'drain: 3600'))
            client = wire.connect(one.address)
            begin_write(client)
            tell_to_stop(one, first)
            client.send(b'h' * 1000)
            self.assertIsNone(one.process.poll(), 'it does not wait for the client')
            one.stop(second)
            server.wait_for_text('the grace period is over', one.log)
            self.assertEqual(client.rest(), b'')
            client.close()

    def test_signals_until_the_end(self):
        """However often it is told: it ends as it would have, and is not killed on its last steps."""
        for _ in range(10):
            one = self.serve()
            while one.process.poll() is None:
                one.process.send_signal(signal.SIGTERM)
                time.sleep(0.0002)  # else it does nothing but hear of them
            one.stop()

    def test_busy_clients(self):
        """Every answer that came is true: what was acknowledged before the end had been taken."""
        one = self.serve(config=CONFIG)
        clients = [wire.connect(one.address, structured=False) for _ in range(4)]
        for client in clients:
            for n in range(20):
                client.request(wire.CMD_WRITE, n * MiB, 65536, 0, b'b' * 65536)
        one.process.send_signal(signal.SIGTERM)
        for client in clients:
            answers = client.rest()
            self.assertEqual(len(answers) % 16, 0)
            for at in range(0, len(answers), 16):
                magic, error, _ = struct.unpack('>IIQ', answers[at:at + 16])
                self.assertEqual(magic, wire.SIMPLE_REPLY)
                self.assertIn(error, (0, wire.ESHUTDOWN))
        self.assertLess(one.stop(), 5)


if __name__ == '__main__':
    server.main()
