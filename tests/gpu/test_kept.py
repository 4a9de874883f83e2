"""Contents on GPUs that outlive the server: killed in the midst of large writes, it comes back with all of them."""
import os
import random
import re
import subprocess
import time

import gpu
import kept
import server
import wire
from server import GiB, MiB

DEVICES = gpu.devices(1)  # test_two_gpus.py has two
# What is in use when the time of coming back is taken; facts of one H200 are about 64 GiB.
LARGE = int(os.environ.get('GPUNBD_TEST_LARGE', 64 * GiB))
PIECE = 32 * MiB


def free_memory(device):
    """Bytes available of a device, to who asks now."""
    listed = subprocess.run([server.PROGRAM, 'devices'], capture_output=True, text=True, check=False).stdout
    found = re.search(rf'^{device}\n(?:  .*\n)*?  available +([0-9.]+) ([GMT])iB', listed, re.M)
    return float(found[1]) * {'M': MiB, 'G': GiB, 'T': 1024 * GiB}[found[2]]


def fill(client, size, seed):
    """Different everywhere, and cheap to make."""
    noise = bytearray(random.Random(seed).randbytes(PIECE))
    waiting = 0
    for at in range(0, size, PIECE):
        noise[0:8] = at.to_bytes(8, 'big')
        client.request(wire.CMD_WRITE, at, PIECE, 0, bytes(noise))
        waiting += 1
        if waiting == 4:
            waiting -= 1
            assert client.simple_reply()[0] == 0
    for _ in range(waiting):
        assert client.simple_reply()[0] == 0


def check(client, size, seed):
    noise = bytearray(random.Random(seed).randbytes(PIECE))
    for at in range(0, size, PIECE):
        noise[0:8] = at.to_bytes(8, 'big')
        assert client.read(at, PIECE) == noise, f'wrong bytes in {PIECE} from {at} on'


class Killed(kept.Test):
    def keep_one(self, devices=None, size=GiB, mapped=None, **options):
        devices = devices or DEVICES[:1]
        text = gpu.config({'': {'devices': devices, 'size': size, 'keep': 'true', **options}})
        if mapped is not None:
            text += 'devices:\n' + ''.join(f"  - {{id: '{each}', mapped: {mapped}}}\n" for each in devices)
        return self.keep(config=text)

    def load_and_kill(self, keeper, size=64 * MiB):
        kept.kill_under_load(keeper, kept.loads(keeper.client, 4, size), 8, 0.5)

    def test_thin(self):
        self.load_and_kill(self.keep_one())

    def test_full(self):
        self.load_and_kill(self.keep_one(provision='full'))

    def test_not_mapped(self):
        self.load_and_kill(self.keep_one(mapped=0))

    def test_slabs_come_and_go(self):
        self.load_and_kill(self.keep_one(page_size='64M'), size=128 * MiB)

    def test_striped(self):
        self.load_and_kill(self.keep_one([*DEVICES, 'host'], layout='stripe', stripe_size='2M'))

    def test_large(self):
        """Also the time from SIGKILL to the first answer, and that all of it is given back at the end."""
        before = free_memory(DEVICES[0])
        size = min(LARGE, int(before * 0.9) // PIECE * PIECE)
        keeper = self.keep_one(size=size)
        began = time.monotonic()
        with keeper.client() as client:
            fill(client, size, 1)
        print(f'filled in {time.monotonic() - began:.1f} s', flush=True)
        for _ in range(3):
            took = keeper.kill_until_answer(size - 4096)
            print(f'{size / GiB:.0f} GiB in use: {took:.3f} s from SIGKILL to the first answer', flush=True)
        with keeper.client() as client:
            check(client, size, 1)
            for at in range(0, size, GiB):
                client.trim(at, min(GiB, size - at))
        # Of a trimmed export one slab is left.
        server.wait_until(lambda: free_memory(DEVICES[0]) > before - 3 * GiB, 60, 'the memory to be given back')
        keeper.stop()
        server.wait_until(lambda: free_memory(DEVICES[0]) >= before - 64 * MiB, 60, 'all of the memory')


if __name__ == '__main__':
    server.main()
