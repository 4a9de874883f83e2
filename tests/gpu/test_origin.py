"""The cache of a file on a GPU: another program takes its memory, and writes reach the file.

GPUNBD_ORIGIN_GIB is the size of the file in GiB, which the cache holds; the default is 6. The figures are printed.
"""
import json
import os
import random
import unittest

import gpu
import server
import wire
from server import GiB, MiB

import admin

LOAD = os.environ.get('GPUNBD_GPU_LOAD', '')
DEVICE = gpu.devices(1)[0]
SIZE = int(os.environ.get('GPUNBD_ORIGIN_GIB', 6))  # GiB


class Origin(admin.Commands, gpu.Test):
    def start(self, size, page_size, settings='', **origin):
        self.path = os.path.join(self.directory(), 'origin.img')
        self.block = server.random_bytes(64 * MiB, 3)
        with open(self.path, 'wb') as file:
            for number in range(size // len(self.block)):
                file.write(number.to_bytes(8, 'big') + self.block[8:])
        keys = ', '.join(f'{key}: {value}' for key, value in {'file': self.path, **origin}.items())
        text = gpu.config({'a': {'devices': [DEVICE], 'page_size': page_size, 'origin': f'{{{keys}}}'}})
        text += f"admin: {{socket: '{{directory}}/admin'}}\n{settings}"
        self.one = self.serve(config=text)

    def exported(self):
        return self.exports()['a']

    def free(self):
        device = next(each for each in self.devices() if each['id'] == DEVICE)
        return device['available'] + device['reserve']

    def check_reads(self, count=200):
        choice = random.Random(1)
        with wire.connect(self.one.address, 'a') as client:
            for _ in range(count):
                offset = choice.randrange(SIZE * GiB - MiB)
                number, at = divmod(offset, len(self.block))
                length = min(choice.choice((4096, 700_000)), len(self.block) - at)
                expected = (number.to_bytes(8, 'big') + self.block[8:])[at:at + length]
                self.assertEqual(client.read(offset, length), expected, offset)

    @unittest.skipUnless(DEVICE.startswith('cuda:') and os.path.exists(LOAD), 'needs a GPU, and gpu_load')
    def test_another_program_takes_the_memory_of_the_cache(self):
        """It takes what is free and most of what the cache has, without spill memory. Clients see no error."""
        self.start(SIZE * GiB, '1M', f"devices: [{{id: '{DEVICE}', keep_free: 3G}}]\n", mode='read-only', cache=f'{SIZE}G', prefetch='all')
        server.wait_until(lambda: self.exported()['used'] >= SIZE * GiB * 99 // 100, 300)
        reader = self.begin_load(self.one, 'a', '--op', 'read', '--qd', '4', '--connections', '2', '--seconds', '20')
        rest = self.free() // GiB - 4
        print('free memory:', flush=True)
        self.take(LOAD, DEVICE, 1024, rest, 0)
        print('memory of the cache, 1 GiB every 60 ms:', flush=True)
        self.take(LOAD, DEVICE, 1024, SIZE * 5 // 6 - 1, 60)
        self.check_reads()
        latency = json.loads(self.end_load(reader))
        print('4 KiB reads meanwhile:', {key: latency[key] for key in latency if 'us' in key or 'iops' in key}, flush=True)
        print('origin:', self.exported()['origins'][0], flush=True)
        self.assertEqual(self.exported()['origins'][0]['errors'], 0)

    def test_written_data_reach_the_file(self):
        for mode in ('write-through', 'write-back'):
            with self.subTest(mode=mode):
                self.start(256 * MiB, '64K', mode=mode, cache='128M')
                self.load(self.one, '--connections', '4', '--seconds', '5', name='a')
                pattern = server.random_bytes(64 * MiB, 4)
                with wire.connect(self.one.address, 'a') as client:
                    for at in range(0, len(pattern), 4 * MiB):
                        client.write(100_000 + at, pattern[at:at + 4 * MiB])
                    client.flush()
                    self.one.process.kill()
                    self.one.process.wait()
                with open(self.path, 'rb') as file:
                    file.seek(100_000)
                    self.assertTrue(file.read(len(pattern)) == pattern)


if __name__ == '__main__':
    gpu.server.main()
