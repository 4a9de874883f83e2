"""GPU memory is given back to other programs while clients use the export, and no client sees an error.

GPUNBD_RECLAIM_GIB is how much of the GPU the export fills; the default is 6. GPUNBD_RECLAIM_KEEP_FREE is how many GiB stay
free for another program; the default is 3. The figures are printed.
"""
import json
import os
import subprocess
import time
import unittest

import gpu
from server import GiB, MiB, NBDLOAD

import admin

LOAD = os.environ.get('GPUNBD_GPU_LOAD', '')
VULKAN_LOAD = os.environ.get('GPUNBD_VULKAN_LOAD', '')
DEVICE = gpu.devices(1)[0]
SIZE = int(os.environ.get('GPUNBD_RECLAIM_GIB', 6))  # GiB
KEEP_FREE = int(os.environ.get('GPUNBD_RECLAIM_KEEP_FREE', 3))  # GiB
SPILL = f'[{{host: {SIZE}G}}]'


class Base(admin.Commands, gpu.Test):
    def start(self, **device):
        text = gpu.config({'a': {'devices': [DEVICE], 'size': f'{SIZE}G'}})
        settings = ''.join(f', {key}: {value}' for key, value in device.items())
        text += f"admin: {{socket: '{{directory}}/admin'}}\ndevices: [{{id: '{DEVICE}'{settings}}}]\n"
        self.one = self.serve(config=text)
        self.run_load('--op', 'write', '--size', '1M', '--qd', '8', '--connections', '4', '--pattern', 'sequential',
                      '--prefill', '--warmup', '0', '--seconds', '0.1')

    def run_load(self, *options):
        return json.loads(self.command(NBDLOAD, '--uri', self.one.uri('a'), *options, seconds=300))

    def reclaim(self, *words):
        result = json.loads(self.gpunbd('reclaim', DEVICE, *words, '--json'))['reclaimed'][0]
        moved = sum(each['bytes'] for each in result['moved'])
        print(f"{' '.join((DEVICE, *words))}: {result['released'] / GiB:.1f} GiB given back, {moved / GiB:.1f} GiB "
              f"moved in {result['seconds']:.2f} s, {result['why_not']}", flush=True)
        return result

    def device(self):
        return next(each for each in self.devices() if each['id'] == DEVICE)


class Reclaim(Base):
    def test_memory_is_reclaimed_under_verified_load(self):
        self.start(spill=SPILL)
        verified = self.begin_load(self.one, 'a', '--verify', '--connections', '4', '--seconds', '25')
        # The first request of a worker waits until its channels are open.
        reader = self.begin_load(self.one, 'a', '--op', 'read', '--qd', '1', '--warmup', '0.5', '--seconds', '20')
        time.sleep(0.5)
        for words in (f'{min(4, SIZE // 6)}G',), (f'{SIZE * 6 // 10}G',):
            result = self.reclaim(*words)
            self.assertIsNone(result['why_not'])
            self.assertGreaterEqual(result['released'], result['wanted'])
        self.reclaim('--end')
        latency = json.loads(self.end_load(reader))
        print('4 KiB reads meanwhile:', {key: latency[key] for key in latency if 'us' in key or 'iops' in key}, flush=True)
        self.end_load(verified)
        self.reclaim('--end')
        self.assertEqual(self.device()['spilled'], 0)


@unittest.skipUnless(DEVICE.startswith('cuda:') and os.path.exists(LOAD), 'needs a GPU, and gpu_load')
class Neighbour(Base):
    def take(self, mib, blocks, *pause, load=LOAD):
        return super().take(load, DEVICE, mib, blocks, *pause)

    def free(self):
        device = self.device()
        return device['available'] + device['reserve']

    def wait_for_return(self, key, seconds):
        """How long it takes. Each query makes the server look through its spill memory, which slows the return."""
        begin = time.monotonic()
        while self.device()[key] != 0:
            self.assertLess(time.monotonic() - begin, seconds)
            time.sleep(0.25)
        return f'{time.monotonic() - begin:.1f} s'

    def end(self, *programs):
        for program in filter(None, programs):
            program.stdin.close()
            program.wait()

    def test_another_program_finds_memory_that_the_export_used(self):
        """It takes all memory that is free, and then half of what the export uses, 1 GiB every 150 ms."""
        self.start(spill=SPILL, keep_free=f'{KEEP_FREE}G')
        verified = self.begin_load(self.one, 'a', '--verify', '--connections', '4', '--seconds', '20')
        rest = max(0, self.free() - (KEEP_FREE + 1) * GiB)
        first = self.take(rest // 64 // MiB, 64, 0) if rest else None
        second = self.take(1024, SIZE // 2, 150)
        print('moved out:', self.device()['moved_out'] / GiB, 'GiB', flush=True)
        self.assertGreater(self.device()['moved_out'], 0)
        self.end_load(verified)
        self.end(second, first)
        print('pages were back after', self.wait_for_return('spilled', 60), flush=True)

    def test_another_program_takes_revocable_memory(self):
        """It takes half of the revocable memory, in blocks of 1 GiB without a pause, in one block, and by Vulkan."""
        self.start(revocable=f'{SIZE * 2 // 3}G')
        computing = self.rate_of_another_program()
        rate = self.rate_of_reads()
        half = SIZE // 3
        ways = {'blocks of 1 GiB': lambda: self.take(1024, self.free() // GiB + half, 0),
                'one block': lambda: self.take((self.free() // GiB + half) * 1024, 1, 0)}
        if os.path.exists(VULKAN_LOAD):
            ways['Vulkan'] = lambda: self.take(256, (self.free() // GiB + half) * 4, load=VULKAN_LOAD)
        else:
            print('skipped: no vulkan_load, the program that takes memory by Vulkan', flush=True)
        for name, take in ways.items():
            before = self.device()['evictions']
            verified = self.begin_load(self.one, 'a', '--verify', '--connections', '2', '--seconds', '15')
            measured = self.begin_load(self.one, 'a', '--op', 'read', '--qd', '4', '--connections', '2', '--warmup', '0.5', '--seconds', '14')
            time.sleep(1)
            program = take()
            print(f'{name}: {self.device()["yielded"] / GiB:.1f} GiB stay', flush=True)
            if name == 'one block':
                during = self.rate_of_another_program()
                print(f'a program that computes keeps {during / computing:.2f} of its speed', flush=True)
            latency = json.loads(self.end_load(measured))
            print(f'{name}:', {key: latency[key] for key in latency if 'us' in key or 'iops' in key}, flush=True)
            self.end_load(verified)
            self.assertEqual(self.device()['evictions'], before + 1)
            self.end(program)
            print(f'{name}: pages were back after', self.wait_for_return('yielded', 120), flush=True)
        print(f'4 KiB reads afterwards: {self.rate_of_reads() / rate:.2f}x of before', flush=True)

    def test_pages_in_use_move_out_of_revocable_memory(self):
        """A client that uses a part of the export keeps the GPU's speed while another program has the revocable memory."""
        self.start(revocable=f'{SIZE // 2}G')
        used = max(1, SIZE // 20)  # GiB
        load = '--op', 'read', '--qd', '32', '--connections', '4', '--span', f'{used}G', '--seconds'
        self.run_load(*load, str(60 + 10 * used))  # the rest is unused after 40 s; then 1 GiB moves every 10 s
        before = self.run_load(*load, '3')
        program = self.take(1024, self.free() // GiB + SIZE // 4, 0)
        self.assertGreater(self.device()['yielded'], 0)
        during = self.run_load(*load, '3')
        self.end(program)
        print(f'reads of pages in use: {during["iops"] / before["iops"]:.2f}x of before, p99', before['p99_us'], during['p99_us'], flush=True)
        self.wait_for_return('yielded', 120)

    def rate_of_reads(self):
        return self.run_load('--op', 'read', '--qd', '32', '--connections', '4', '--seconds', '3')['iops']

    def rate_of_another_program(self):
        """In TFLOP/s."""
        program = subprocess.Popen([LOAD, 'compute', DEVICE.split(':')[1]], stdout=subprocess.PIPE, text=True)
        rates = [float(program.stdout.readline().split()[2]) for _ in range(30)]
        program.kill()
        program.wait()
        program.stdout.close()
        return sorted(rates)[len(rates) // 2]


if __name__ == '__main__':
    gpu.server.main()
