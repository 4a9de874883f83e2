"""The server's own memory: the cost of idle connections, and that TRIM and WRITE_ZEROES return pages to the system."""
import resource

import server
import wire
from server import KiB, MiB

COUNT = 1000
HARD = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
if HARD < 4 * COUNT:
    server.skip(f'only {HARD} descriptors allowed')


def allow(descriptors):
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(HARD, descriptors), HARD))


STATUS = '''
listeners: {unix: [{path: '{socket}'}]}
threads: 2
exports: [{name: '', size: 256M, devices: [host], page_size: 64K}]
'''


class Memory(server.Test):
    def serve(self, *args, **kwargs):
        """Starts the server with the usual limit of descriptors, which it must raise itself."""
        allow(1024)
        one = super().serve(*args, **kwargs)
        allow(65536)
        return one

    def test_a_thousand_idle_connections(self):
        for tcp in (False, True):
            one = self.serve(tcp=tcp, unix=not tcp)
            warm = [wire.connect(one.address) for _ in range(20)]
            for client in warm:
                client.write(0, b'w' * 5000)
                client.read(0, 5000)
            before = one.memory()
            clients = [wire.connect(one.address) for _ in range(COUNT)]
            for client in clients:  # each has been used once
                client.write(0, b'i' * 5000)
                client.read(0, 5000)

            def each(one=one, before=before):
                return (one.memory() - before) / COUNT
            if not server.SANITIZED:
                server.wait_until(lambda: each() < 256 * KiB, 60, lambda: f'less than {each() / KiB:.1f} KiB for a connection')
            print(f'{"TCP" if tcp else "Unix"}: {each() / KiB:.1f} KiB of resident memory for an idle connection')
            self.assertEqual(clients[-1].read(0, 5000), b'i' * 5000)
            self.assertEqual(clients[0].read(0, 5000), b'i' * 5000)
            for client in clients + warm:
                client.close()
            server.wait_until(lambda: one.descriptors() < 60, 60, 'the connections to be closed')

    def test_after_large_requests(self):
        """Buffers of large requests are freed when the connection is idle."""
        if server.SANITIZED:
            self.skipTest('memory is measured without sanitizers')
        one = self.serve()
        first = wire.connect(one.address)
        first.write(0, bytes(32 << 20))
        before = one.memory()
        clients = [wire.connect(one.address) for _ in range(50)]
        for client in clients:
            client.write(0, bytes(8 << 20))
            client.read(0, 8 << 20)
        server.wait_until(lambda: (one.memory() - before) / len(clients) < 1024 * KiB, 60, 'the release of buffers')
        for client in clients:
            client.close()

    def test_after_unread_replies(self):
        """The memory of unread replies is returned to the system after the clients have disconnected."""
        if server.SANITIZED:
            self.skipTest('memory is measured without sanitizers')
        bound = 32 * MiB
        one = self.serve(config=STATUS)
        with wire.connect(one.address) as client:
            for page in range(0, 4096, 2):  # each page is an extent
                client.write(page * 64 * KiB, b'x')
        before = one.memory()
        for pages, count in ((4096, 40), (64, 100)):  # replies of 32 KiB, and of less than a page
            with self.subTest(pages=pages):
                block = b''.join(wire.encode_request(wire.BLOCK_STATUS, 0, pages * 64 * KiB, cookie=number)
                                 for number in range(500))
                clients = [wire.connect(one.address) for _ in range(count)]
                self.send_until(clients, block, lambda: one.memory() - before > 2 * bound)
                for client in clients:
                    client.close()
                server.wait_until(lambda: one.memory() - before < bound, 60,
                                  lambda: f'the release of {(one.memory() - before) / MiB:.0f} MiB')

    @staticmethod
    def send_until(clients, block, enough):
        """Sends the block repeatedly without reading replies, until enough() is true."""
        for client in clients:
            client.socket.setblocking(False)
        sent = [0] * len(clients)

        def send():
            for number, client in enumerate(clients):
                try:
                    sent[number] += client.socket.send(block[sent[number] % len(block):])
                except BlockingIOError:
                    pass
            return enough()
        server.wait_until(send, 60, 'an increase of memory')

    def test_freed_pages_return_to_the_system(self):
        if server.SANITIZED:
            self.skipTest('memory is measured without sanitizers')
        size = 256 * MiB
        one = self.serve(size=size)
        client = wire.connect(one.address)
        client.write(0, b'x')
        client.trim(0, size)
        before = one.memory()
        for free in (client.trim, client.zero):
            for at in range(0, size, 16 * MiB):
                client.write(at, b'm' * 16 * MiB)
            self.assertGreater(one.memory() - before, size - 8 * MiB)
            free(0, size)
            server.wait_until(lambda: one.memory() - before < 24 * MiB, 60, 'the release of the memory')


if __name__ == '__main__':
    server.main()
