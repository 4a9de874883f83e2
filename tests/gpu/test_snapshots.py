"""Snapshots of an export on a GPU, under verified load. GPUNBD_SNAPSHOT_GIB is its size; the default is 6.

The longest request with and without snapshots is printed.
"""
import json
import os
import struct
import threading
import time

import gpu
from server import MiB

import admin

DEVICE = gpu.devices(1)[0]
SIZE = int(os.environ.get('GPUNBD_SNAPSHOT_GIB', 6))  # GiB
COUNT = 8          # snapshots
BLOCKS = 64        # of the writer
BLOCK = MiB
BEGIN = SIZE * 1024 * MiB - BLOCKS * BLOCK  # of its range, which follows that of the verified load


def block(version, number):
    return struct.pack('>QQ', version, number) * (BLOCK // 16)


class Writer(threading.Thread):
    """Writes version after version of all blocks."""

    def __init__(self, client):
        super().__init__(daemon=True)
        self.client = client
        self.sent, self.acknowledged = [0] * BLOCKS, [0] * BLOCKS
        self.stopping = threading.Event()
        self.failure = None

    def run(self):
        try:
            version = 0
            while not self.stopping.is_set():
                version += 1
                for number in range(BLOCKS):
                    self.sent[number] = version
                    self.client.write(BEGIN + number * BLOCK, block(version, number))
                    self.acknowledged[number] = version
        except BaseException as error:  # checked by the test
            self.failure = error


class Snapshots(admin.Commands, gpu.Test):
    def begin(self, *options):
        return self.begin_load(self.one, 'a', *options)

    def reads(self, seconds):
        return self.begin('--op', 'read', '--qd', '1', '--warmup', '0.5', '--seconds', str(seconds))

    def report(self, what, reader):
        result = json.loads(self.end_load(reader))
        print(f'4 KiB reads {what}:', {key: result[key] for key in ('iops', 'p50_us', 'p99_us', 'p999_us', 'max_us')},
              flush=True)

    def test_a_snapshot_has_the_contents_of_one_instant(self):
        text = gpu.config({'a': {'devices': [DEVICE], 'size': f'{SIZE}G'}})
        self.one = self.serve(config=text + "admin: {socket: '{directory}/admin'}\n")
        # The first connection of a worker opens its channels, which delays the requests of other workers.
        self.end_load(self.begin('--op', 'write', '--size', '1M', '--qd', '8', '--connections', str(os.cpu_count()), '--pattern', 'sequential',
                           '--prefill', '--span', str(BEGIN), '--warmup', '0', '--seconds', '0.1'))
        # What is written again needs new memory while a snapshot exists.
        verified = self.begin('--verify', '--connections', '4', '--span', str(BEGIN // 5), '--seconds', '22')
        reader = self.reads(5)
        self.report('without snapshots', reader)
        writer = Writer(self.client(self.one, 'a'))
        writer.start()
        reader = self.reads(13)
        time.sleep(1)
        for _ in range(COUNT):
            acknowledged = writer.acknowledged.copy()
            begin = time.monotonic()
            self.export('snapshot', 'a', 's')
            print(f'snapshot: {1000 * (time.monotonic() - begin):.1f} ms', flush=True)
            sent = writer.sent.copy()
            versions = self.versions('s', acknowledged, sent)
            time.sleep(1)
            self.assertEqual(self.versions('s', acknowledged, sent), versions)
            self.export('remove', 's', '--force')  # otherwise the memory ends
        self.report('while snapshots are made', reader)
        self.end_load(verified)
        writer.stopping.set()
        writer.join(60)
        self.assertEqual((writer.is_alive(), writer.failure), (False, None))
        self.versions('a', writer.acknowledged, writer.sent)

    def versions(self, export, least, most):
        """The versions of each block, between two others. Only a block with a write in flight may have two."""
        with self.client(self.one, export, structured=True) as client:
            found = []
            for number in range(BLOCKS):
                units = set(struct.iter_unpack('>QQ', client.read(BEGIN + number * BLOCK, BLOCK)))
                versions = sorted(version for version, _ in units)
                self.assertTrue(all(unit in ((0, 0), (unit[0], number)) for unit in units), (number, units))
                self.assertTrue(least[number] <= versions[0] <= versions[-1] <= most[number], (number, versions))
                self.assertLessEqual(versions[-1] - versions[0], 1, number)
                found.append(versions)
        self.assertLessEqual(sum(len(versions) > 1 for versions in found), 1)
        return found


if __name__ == '__main__':
    gpu.server.main()
