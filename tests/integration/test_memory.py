"""The server's own memory: what idle connections cost, and that TRIM and WRITE_ZEROES give pages back to the system."""
import resource
import time

import server
import wire
from server import KiB, MiB

COUNT = 1000
HARD = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
if HARD < 4 * COUNT:
    server.skip(f'only {HARD} descriptors allowed')


def allow(descriptors):
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(HARD, descriptors), HARD))


class Memory(server.Test):
    def serve(self, *args, **kwargs):
        """Started with the usual limit, which a server for many clients has to raise itself."""
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
            for client in clients:  # each has worked once, then idles
                client.write(0, b'i' * 5000)
                client.read(0, 5000)
            time.sleep(0.5)
            each = (one.memory() - before) / COUNT
            print(f'{"TCP" if tcp else "Unix"}: {each / KiB:.1f} KiB of resident memory for an idle connection')
            if not server.SANITIZED:
                self.assertLess(each, 256 * KiB)
            self.assertEqual(clients[-1].read(0, 5000), b'i' * 5000)
            self.assertEqual(clients[0].read(0, 5000), b'i' * 5000)
            for client in clients + warm:
                client.close()
            server.wait_until(lambda: one.descriptors() < 60, 20, 'the connections to be closed')

    def test_after_large_requests(self):
        """Buffers that a large request needed are given back once the connection idles."""
        if server.SANITIZED:
            self.skipTest('measured on a plain gpunbd')
        one = self.serve()
        first = wire.connect(one.address)
        first.write(0, bytes(32 << 20))
        before = one.memory()
        clients = [wire.connect(one.address) for _ in range(50)]
        for client in clients:
            client.write(0, bytes(8 << 20))
            client.read(0, 8 << 20)
        time.sleep(0.5)
        self.assertLess((one.memory() - before) / len(clients), 1024 * KiB)
        for client in clients:
            client.close()

    def test_memory_goes_back_to_the_system(self):
        if server.SANITIZED:
            self.skipTest('measured on a plain gpunbd')
        size = 256 * MiB
        one = self.serve(size=size)
        client = wire.connect(one.address)
        client.write(0, b'x')
        client.trim(0, size)
        before = one.memory()
        for give_back in (client.trim, client.zero):
            for at in range(0, size, 16 * MiB):
                client.write(at, b'm' * 16 * MiB)
            self.assertGreater(one.memory() - before, size - 8 * MiB)
            give_back(0, size)
            server.wait_until(lambda: one.memory() - before < 24 * MiB, 5, 'the memory to be given back')


if __name__ == '__main__':
    server.main()
