#!/usr/bin/env python3
"""Reads and writes a file by fio: itself, and as the origin of an export of gpunbd on host memory by fio's NBD engine, in
turn. Reads of the export miss its cache, which has a quarter of the file. Writes are write-through, and with --fsync each
is followed by a flush. It prints medians and their ratios to the file itself.

usage: tests/bench/origin_beside_fio.py [--rounds N] [--seconds N] [--folder FOLDER]
"""
import argparse
import json
import os
import statistics
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '../integration'))

import server  # noqa: E402

parser = argparse.ArgumentParser(description='an origin beside the file itself')
parser.add_argument('--rounds', type=int, default=3)
parser.add_argument('--seconds', type=int, default=2, help='of each measurement')
parser.add_argument('--folder', default='/dev/shm', help='of the file')
arguments = parser.parse_args()

SIZE = 1 << 30
CONFIG = """
listeners: {{unix: [{{path: "{{socket}}"}}]}}
exports:
- {{name: disk, devices: [host], origin: {{file: '{file}', mode: {mode}, cache: {cache}, prefetch: {prefetch}}}}}
"""
# The mode and prefetch of the origin, and fio's options.
CELLS = [('read-only', 'sequential', '--rw=read --bs=1M --iodepth=8'),
         ('read-only', 'none', '--rw=randread --bs=4k --iodepth=1'),
         ('read-only', 'none', '--rw=randread --bs=4k --iodepth=32'),
         ('write-through', 'all', '--rw=randwrite --bs=4k --iodepth=1 --fsync=1'),
         ('write-through', 'all', '--rw=randwrite --bs=4k --iodepth=32 --fsync=1'),
         ('write-through', 'all', '--rw=randwrite --bs=4k --iodepth=32'),
         ('write-through', 'all', '--rw=randwrite --bs=1M --iodepth=1 --fsync=1'),
         ('write-through', 'all', '--rw=randwrite --bs=1M --iodepth=8')]


class BesideFio(server.Test):
    def runTest(self):
        file = os.path.join(arguments.folder, f'gpunbd-origin-{os.getpid()}')
        self.addCleanup(os.unlink, file)
        server.write_file(file, '')
        subprocess.run(['fio', '--name=fill', f'--filename={file}', '--rw=write', '--bs=1M', f'--size={SIZE}', '--fsync_on_close=1'],
                       stdout=subprocess.DEVNULL, check=True)
        for mode, prefetch, words in CELLS:
            of_file, of_export = [], []
            cache = '256M' if mode == 'read-only' else '1G'
            for _ in range(arguments.rounds):
                engine = 'psync' if '--iodepth=1 ' in words + ' ' else 'libaio'
                of_file.append(self.fio(words, f'--ioengine={engine}', f'--filename={file}'))
                one = self.serve(config=CONFIG.format(file=file, mode=mode, prefetch=prefetch, cache=cache), name='disk')
                if mode != 'read-only':
                    self.command('nbdcopy', one.uri(), 'null:')
                of_export.append(self.fio(words, '--ioengine=nbd', f'--uri={one.uri()}'))
                one.stop()
            print(f'{mode:14} {words:46} {statistics.median(of_file):9.0f} {statistics.median(of_export):9.0f} '
                  f'{statistics.median(of_export) / statistics.median(of_file):6.2f}x', flush=True)

    def fio(self, words, *target):
        """Requests a second."""
        done = self.command('fio', '--name=cell', *words.split(), *target, f'--size={SIZE}', f'--runtime={arguments.seconds}',
                            '--time_based', '--output-format=json')
        job, = json.loads(done[done.index('{'):])['jobs']
        return job['read']['iops'] + job['write']['iops']


if __name__ == '__main__':
    sys.argv = sys.argv[:1]
    server.main()
