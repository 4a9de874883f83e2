"""SIGTERM and SIGINT: no new clients, replies to requests in flight, refusal of new requests, then the exit."""
import os
import signal
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
    """Sends 1000 bytes of a WRITE of 1 MiB. The reply to a FLUSH beside it shows that they were received."""
    client.send(wire.encode_request(wire.FLUSH, cookie=7),
                wire.encode_request(wire.WRITE, 0, MiB, payload=b'h' * 1000, cookie=8))
    client.done(7)
    return 8


def stop(one, number=signal.SIGTERM):
    """Returns when the server has received the signal. Its workers learn of it a little later."""
    one.process.send_signal(number)
    server.wait_for_text('stopping: ', one.log)
    time.sleep(0.2)


class Shutdown(server.Test):
    def test_without_clients(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            self.assertLess(self.serve().stop(number), 2)

    def test_idle_clients(self):
        """They do not extend the shutdown beyond the grace period."""
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
        """A client that does not send the rest cannot block the shutdown."""
        one = self.serve(config=CONFIG)
        client = wire.connect(one.address)
        begin_write(client)
        self.assertLess(one.stop(), 5)
        client.close()

    def test_write_that_is_completed_in_the_grace_period(self):
        one = self.serve(config=CONFIG)
        client = wire.connect(one.address, structured=False)
        cookie = begin_write(client)
        stop(one)
        client.send(b'h' * (MiB - 1000))
        self.assertEqual(client.simple_reply(), (0, cookie))
        self.assertLess(one.stop(), 4)

    def test_replies_in_flight(self):
        """A client that is receiving a reply gets all of it."""
        one = self.serve(config=CONFIG)
        client = wire.connect(one.address, structured=False)
        client.write(0, b'f' * 32 * MiB)
        cookie = client.request(wire.READ, 0, 32 * MiB)
        self.assertEqual(client.simple_reply(), (0, cookie))
        stop(one)
        self.assertEqual(client.receive(32 * MiB), b'f' * 32 * MiB)
        one.stop()

    def test_new_requests_are_refused(self):
        one = self.serve(config=CONFIG)
        client = wire.connect(one.address, structured=False)
        hold = begin_write(client)  # keeps the session busy
        stop(one)
        late = wire.encode_write(0, b'late', 99)
        # Sent together with the end of the payload: later requests would find the connection closed.
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
        stop(one)
        with self.assertRaises(FileNotFoundError):
            wire.connect(one.address)
        one.stop()

    def test_negotiating_clients(self):
        one = self.serve(config=CONFIG)
        client = wire.Wire(one.address)
        client.greet()
        stop(one)
        with self.assertRaises(wire.Refused) as refused:
            client.go()
        self.assertEqual(refused.exception.args[0], wire.ERR_SHUTDOWN)
        self.assertLess(one.stop(), 5)

    def test_second_signal(self):
        """The server waits for the client after the first signal; the second ends the grace period."""
        for first, second in ((signal.SIGTERM, signal.SIGTERM), (signal.SIGINT, signal.SIGTERM)):
            one = self.serve(config=CONFIG.replace('drain: 2', 'drain: 3600'))
            client = wire.connect(one.address)
            begin_write(client)
            stop(one, first)
            client.send(b'h' * 1000)
            self.assertIsNone(one.process.poll(), 'the server does not wait for the client')
            one.stop(second)
            server.wait_for_text('the grace period is over', one.log)
            self.assertEqual(client.rest(), b'')
            client.close()

    def test_signals_until_the_end(self):
        """Repeated signals do not change the exit, up to its last steps."""
        for _ in range(10):
            one = self.serve()
            while one.process.poll() is None:
                one.process.send_signal(signal.SIGTERM)
                time.sleep(0.0002)  # otherwise the server only handles signals
            one.stop()

    def test_busy_clients(self):
        """Every received reply is valid."""
        one = self.serve(config=CONFIG)
        clients = [wire.connect(one.address, structured=False) for _ in range(4)]
        for client in clients:
            for n in range(20):
                client.request(wire.WRITE, n * MiB, 65536, 0, b'b' * 65536)
        one.process.send_signal(signal.SIGTERM)
        for client in clients:
            with self.assertRaisesRegex(wire.Closed, 'after 0 of'):
                while True:
                    self.assertIn(client.simple_reply()[0], (0, wire.ESHUTDOWN))
        self.assertLess(one.stop(), 5)


if __name__ == '__main__':
    server.main()
