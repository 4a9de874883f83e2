"""SIGTERM and SIGINT: no new clients, a grace period, then the exit. server/nbd/shutdown_test.cpp tests the sessions."""
import os
import signal
import time

import server
import wire
from server import MiB

CONFIG = '''
listeners: {unix: [{path: '{socket}'}]}
exports: [{name: '', size: 64M, devices: [{device}]}]
limits: {drain: 3600}
'''


def begin_write(client):
    """Sends 1000 bytes of a WRITE of 1 MiB. The reply to a FLUSH beside it shows that they were received."""
    client.send(wire.encode_request(wire.FLUSH, cookie=7),
                wire.encode_request(wire.WRITE, 0, MiB, payload=b'h' * 1000, cookie=8))
    client.done(7)


def stop(one, number=signal.SIGTERM):
    """Returns when the server has received the signal."""
    one.process.send_signal(number)
    server.wait_for_text('stopping: ', one.log)


class Shutdown(server.Test):
    def test_without_clients(self):
        """The server does not wait for the end of the grace period."""
        for number in (signal.SIGTERM, signal.SIGINT):
            self.serve(config=CONFIG).stop(number)

    def test_new_clients_are_refused(self):
        one = self.serve(config=CONFIG)
        client = wire.connect(one.address)
        begin_write(client)
        stop(one)
        server.wait_until(lambda: not os.path.exists(one.path), 10, 'the removal of the socket')
        client.send(b'h' * 1000)
        self.assertIsNone(one.process.poll(), 'the server does not wait for the client')
        one.stop()

    def test_second_signal(self):
        """The server waits for the client after the first signal; the second ends the grace period."""
        for first, second in ((signal.SIGTERM, signal.SIGTERM), (signal.SIGINT, signal.SIGTERM)):
            one = self.serve(config=CONFIG)
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


if __name__ == '__main__':
    server.main()
