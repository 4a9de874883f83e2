"""Contents on GPUs outlive the server: after kills during large writes it has all acknowledged data."""
import json
import os
import random
import re
import signal
import subprocess
import time
import unittest

import gpu
import kept
import server
from server import GiB, MiB

DEVICES = gpu.devices(1)  # test_two_gpus.py tests two
# The memory in use when the restart time is measured. The documented figures of an H200 are for 64 GiB.
LARGE = int(os.environ.get('GPUNBD_TEST_LARGE', 64 * GiB))
PIECE = 32 * MiB
CLIENTS = 8


def free_memory(device):
    """The available bytes of a device."""
    listed = subprocess.run([server.PROGRAM, 'devices'], capture_output=True, text=True, check=False).stdout
    found = re.search(rf'^{device}\n(?:  .*\n)*?  available +([0-9.]+) ([GMT])iB', listed, re.M)
    return float(found[1]) * {'M': MiB, 'G': GiB, 'T': 1024 * GiB}[found[2]]


def on_all_of(connect, size, piece_done):
    """Calls piece_done(client, at) for each piece, in several processes."""
    def each(first):
        with connect() as client:
            for at in range(first * PIECE, size, CLIENTS * PIECE):
                piece_done(client, at)

    kept.in_processes(CLIENTS, each)


def contents(noise, at):
    """Data that differ everywhere and are fast to generate."""
    return at.to_bytes(8, 'big') + noise[8:]


def fill(connect, size, seed):
    noise = random.Random(seed).randbytes(PIECE)
    on_all_of(connect, size, lambda client, at: client.write(at, contents(noise, at)))


def check(connect, size, seed):
    noise = random.Random(seed).randbytes(PIECE)

    def is_right(client, at):
        assert client.read(at, PIECE) == contents(noise, at), f'wrong data in {PIECE} bytes at {at}'

    on_all_of(connect, size, is_right)


def keep_one(test, devices=None, size=GiB, mapped=None, **options):
    devices = devices or DEVICES[:1]
    text = gpu.config({'': {'devices': devices, 'size': size, 'keep': 'true', **options}})
    if mapped is not None:
        text += 'devices:\n' + ''.join(f"  - {{id: '{each}', mapped: {mapped}}}\n" for each in devices)
    return test.keep(config=text)


def driver_files(pid):
    """The number of open files through which a process maps GPU memory."""
    return sum(re.fullmatch('/dev/nvidia[0-9]+', each) is not None for each in server.open_files(pid))


class Killed(kept.Test):
    def load_and_kill(self, keeper, size=64 * MiB):
        kept.kill_under_load(keeper, kept.loads(keeper.client, 4, size), 8, 0.5)

    def test_thin(self):
        self.load_and_kill(keep_one(self))

    def test_full(self):
        self.load_and_kill(keep_one(self, provision='full'))

    def test_not_mapped(self):
        self.load_and_kill(keep_one(self, mapped=0))

    def test_slabs_are_allocated_and_freed(self):
        self.load_and_kill(keep_one(self, page_size='64M'), size=128 * MiB)

    def test_striped(self):
        self.load_and_kill(keep_one(self, [*DEVICES, 'host'], layout='stripe', stripe_size='2M'))

    @unittest.skipUnless(DEVICES[0].startswith('cuda:'), 'only mapped memory of CUDA devices needs files of the driver')
    def test_driver_files_do_not_accumulate(self):
        keeper = keep_one(self)
        if 'not mapped' in keeper.log():
            self.skipTest('the server does not map the memory of the GPU; its log says why')
        fill(keeper.client, 256 * MiB, 2)
        kept_files = driver_files(keeper.process.pid)
        self.assertGreater(kept_files, 0)
        keeper.kill_until_answer(0)
        time.sleep(2)  # the server closes the files of its predecessor soon after the first replies
        own_files = driver_files(keeper.server())
        for _ in range(5):
            keeper.kill_until_answer(0)
            server.wait_until(lambda: driver_files(keeper.server()) == own_files, 10,
                              lambda: f'{own_files} files of the driver, not {driver_files(keeper.server())}')
            self.assertEqual(driver_files(keeper.process.pid), kept_files)
        check(keeper.client, 256 * MiB, 2)

    def test_large(self):
        """Also measures the time from SIGKILL to the first reply, and checks that all memory is freed."""
        before = free_memory(DEVICES[0])
        size = min(LARGE, int(before * 0.9) // PIECE * PIECE)
        keeper = keep_one(self, size=size)
        began = time.monotonic()
        fill(keeper.client, size, 1)
        print(f'filled in {time.monotonic() - began:.1f} s', flush=True)
        for _ in range(3):
            took = keeper.kill_until_answer(size - 4096)
            print(f'{size / GiB:.0f} GiB in use: {took:.3f} s from SIGKILL to the first reply', flush=True)
        check(keeper.client, size, 1)
        with keeper.client() as client:
            for at in range(0, size, GiB):
                client.trim(at, min(GiB, size - at))
        # A trimmed export keeps one slab.
        server.wait_until(lambda: free_memory(DEVICES[0]) > before - 3 * GiB, 60, 'the release of memory')
        keeper.stop()
        server.wait_until(lambda: free_memory(DEVICES[0]) >= before - 64 * MiB, 60, 'the release of all memory')


@unittest.skipUnless(DEVICES[0].startswith('cuda:'), 'the spill memory of a GPU')
class SpillIsAdded(kept.Test):
    USED = 512 * MiB

    def test_pages_outlive_the_server_there(self):
        plain = gpu.config({'': {'devices': DEVICES[:1], 'size': '1G', 'keep': 'true'}}) + "admin: {socket: '{directory}/admin'}\n"
        keeper = self.keep(config=plain)
        fill(keeper.client, self.USED, 5)
        keeper.reload(f"{plain}devices: [{{id: '{DEVICES[0]}', spill: [{{host: 1G}}]}}]\n")
        self.reclaim(keeper, '--all')
        check(keeper.client, self.USED, 5)
        keeper.kill_and_wait()
        check(keeper.client, self.USED, 5)
        keeper.upgrade()
        check(keeper.client, self.USED, 5)
        self.reclaim(keeper, '--end')
        keeper.kill_and_wait()
        check(keeper.client, self.USED, 5)

    def reclaim(self, keeper, *words):
        done = json.loads(self.command(server.PROGRAM, 'reclaim', *words, '--json', '--socket', f'{keeper.directory}/admin'))
        self.assertEqual([each['bytes'] for each in done['reclaimed'][0]['moved']], [self.USED])


class Upgraded(kept.Test):
    def test_clients_do_not_notice(self):
        for mapped in (None, 0):
            with self.subTest(mapped=mapped):
                self.upgrade_under_load(mapped)

    def upgrade_under_load(self, mapped):
        keeper = keep_one(self, size=64 * MiB, mapped=mapped)
        clients = kept.loads(keeper.path, 4, 16 * MiB, kind=kept.Undisturbed)
        for number in range(1, 6):
            os.kill(keeper.process.pid, signal.SIGUSR2)
            for text in ('serves now', 'is the server now'):
                server.wait_until(lambda: keeper.log().count(text) == number, 60, keeper.log)
            time.sleep(0.3)  # of load
        kept.finish(clients, keeper.client())
        self.assertGreater(min(each.answers for each in clients), 100)
        self.assertNotIn('error', keeper.log())


if __name__ == '__main__':
    server.main()
