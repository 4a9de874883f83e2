"""One GPU: gigabytes of contents, thin and full provisioning, trims, a full device, killed clients."""
import os
import random
import signal
import time

import gpu
import server
import wire
from server import MiB, PAGE

[DEVICE] = gpu.devices(1)
SIZE = gpu.SIZE


class OneGpu(gpu.Test):
    def one_export(self, size=SIZE, **options):
        return self.serve(config=gpu.config({'': {'devices': [DEVICE], 'size': size, **options}}))

    def test_gigabytes_thin(self):
        self.round_trip(self.one_export(), '', SIZE)

    def test_gigabytes_full(self):
        self.round_trip(self.one_export(provision='full'), '', SIZE)

    def test_command_line(self):
        one = self.serve(size='1G', device=DEVICE)
        self.round_trip(one, '', 1 << 30, seed=5)

    def test_fresh_memory_is_zero(self):
        for provision in ('thin', 'full'):
            one = self.one_export(provision=provision)
            client = self.client(one, structured=True)
            for at in range(0, SIZE, 32 * MiB):
                client.write(at + 12345, b'.')  # allocates the page, and covers one byte of it
                data = client.read(at, 32 * MiB)
                self.assertEqual(data.count(0), len(data) - 1, f'at {at}, {provision}')
            one.stop()

    def test_model(self):
        for page_size in ('64K', '2M', '64M'):
            one = self.one_export(size=256 * MiB, page_size=page_size)
            self.against_shadow(one, '', 256 * MiB, seed=3)

    def test_model_with_small_chunks(self):
        text = gpu.config({'': {'devices': [DEVICE], 'size': 256 * MiB}})
        for pipeline in ('{chunk_size: 64K, slots: 1}', '{chunk_size: 256K, slots: 8}', '{chunk_size: 4M, slots: 2}'):
            one = self.serve(config=text + f'pipeline: {pipeline}\n')
            self.against_shadow(one, '', 256 * MiB, seed=4, steps=200)

    def test_load(self):
        one = self.one_export()
        self.load(one, '--span', SIZE // 4)
        self.load(one, '--structured', '--connections', '4', '--qd', '64', '--span', SIZE // 4)
        self.load(one, '--size', '4k', '--connections', '8', '--qd', '32', '--span', '64M')
        self.load(one, '--size', '32M', '--connections', '4', '--qd', '4', '--span', SIZE // 2)

    def test_load_over_tcp(self):
        one = self.serve(size=SIZE, device=DEVICE, tcp=True, unix=False)
        self.load(one, '--structured', '--connections', '4', '--qd', '32', '--span', SIZE // 4)

    def test_trim_then_zero(self):
        one = self.one_export()
        client = self.client(one, structured=True)
        gigabyte = min(SIZE, 1 << 30)
        for at in range(0, gigabyte, 32 * MiB):
            client.write(at, b'\xee' * 32 * MiB)
        client.trim(PAGE + 1, gigabyte - 2 * PAGE)
        self.assertEqual(client.status(0, gigabyte)[1], [(2 * PAGE, 0), (gigabyte - 3 * PAGE, 3), (PAGE, 0)])
        self.assertEqual(client.read(PAGE, 10), b'\xee' + bytes(9))
        for at in range(4 * PAGE, gigabyte, 32 * MiB):
            client.write(at + 100, b'.')
            page = client.read(at, PAGE)
            self.assertEqual(page.count(0), PAGE - 1, f'at {at}')

    def test_two_exports_at_once(self):
        one = self.serve(config=gpu.config({'a': {'devices': [DEVICE], 'size': SIZE // 4},
                                            'b': {'devices': [DEVICE], 'size': SIZE // 4}}))
        children = []
        for name in ('a', 'b'):
            child = os.fork()
            if child == 0:
                status = 1
                try:
                    self.round_trip(one, name, SIZE // 4, seed=ord(name))
                    status = 0
                finally:
                    os._exit(status)
            children.append(child)
        for child in children:
            self.assertEqual(os.waitpid(child, 0)[1], 0)

    def test_full_device(self):
        one = self.serve(config=gpu.config({'a': {'devices': [DEVICE], 'size': '384M'},
                                            'b': {'devices': [DEVICE], 'size': '384M'}}, [(DEVICE, '512M')]))
        a, b = (self.client(one, name, structured=True) for name in ('a', 'b'))
        for at in range(0, 384 * MiB, 32 * MiB):
            a.write(at, b'a' * 32 * MiB)
        with self.assertRaises(wire.Failed) as caught:
            for at in range(0, 384 * MiB, 32 * MiB):
                b.write(at, b'b' * 32 * MiB)
        self.assertEqual(caught.exception.args[0], wire.ENOSPC)
        for at in range(0, 384 * MiB, 32 * MiB):
            self.assertEqual(a.read(at, 32 * MiB), b'a' * 32 * MiB)
        a.trim(0, 384 * MiB)
        for at in range(0, 384 * MiB, 32 * MiB):
            b.write(at, b'b' * 32 * MiB)
        self.assertEqual(b.read(5, 1000), b'b' * 1000)

    def test_killed_clients(self):
        """Clients are killed with partial payloads and unread replies, while copies run."""
        one = self.one_export()
        generator = random.Random(6)
        for _ in range(30):
            child = os.fork()
            if child == 0:
                try:
                    client = wire.connect(one.address, structured=bool(generator.getrandbits(1)))
                    while True:
                        for n in range(16):
                            client.request(wire.WRITE, n * 32 * MiB + 1, 4 * MiB, 0, b'k' * 4 * MiB)
                        for n in range(8):
                            client.request(wire.READ, n * 32 * MiB, 16 * MiB)
                        client.socket.recv(100000)
                finally:
                    os._exit(0)
            time.sleep(0.02 + generator.random() * 0.2)
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        self.round_trip(one, '', SIZE // 4, seed=7)

    def test_terminated_under_load(self):
        one = self.one_export()
        client = self.client(one)
        for n in range(12):
            client.request(wire.WRITE, n * 32 * MiB, 8 * MiB, 0, b't' * 8 * MiB)
        self.assertLess(one.stop(), 20)


if __name__ == '__main__':
    server.main()
