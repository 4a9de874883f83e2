#!/usr/bin/env python3
"""Writes and reads a file of 250 MB on a mounted device, in a QEMU guest of 2 CPUs: a RAM disk (brd) and the kernel's NBD
client with several numbers of connections, in turn. It prints medians and their ratios to the RAM disk.

usage: tests/bench/file_in_guest.py [--rounds N] [--connections N,N,...] [--serve FLAG,...] [--queue FILE:VALUE,...]
"""
import argparse
import os
import re
import shutil
import statistics
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '../vm'))

import test_kernel_client as vm  # noqa: E402
import server  # noqa: E402

parser = argparse.ArgumentParser(description='dd of 250 MB in a guest, beside a RAM disk')
parser.add_argument('--rounds', type=int, default=5)
parser.add_argument('--connections', default='1,2,4', help='of the NBD client, in turn')
parser.add_argument('--serve', default='', help='more flags of gpunbd serve, separated by commas')
parser.add_argument('--queue', default='', help='settings of /sys/block/nbd0/queue, such as max_sectors_kb:1024')
arguments = parser.parse_args()


class Guest(server.Test):
    def runTest(self):
        initramfs = vm.Initramfs(os.path.join(self.directory(), 'root'), 'file_copy')
        for program in ('dd', 'mkfs.ext4'):
            initramfs.program(shutil.which(program))
        initramfs.program(server.PROGRAM, 'gpunbd')
        for module in ('crc32c_generic', 'ext4', 'nbd', 'brd'):
            initramfs.module(module)
        settings = {'rounds': arguments.rounds, 'connections': arguments.connections, 'serve': arguments.serve,
                    'queue': arguments.queue}
        append = ' '.join(f'{name}={value}' for name, value in settings.items() if value)
        done = self.command(*vm.machine(self, initramfs, append=append, memory=3072), seconds=3600)
        if 'RESULT figures ok' not in done:
            self.fail(done[-4000:])
        figures = {}
        for name, seconds in re.findall(r'FIGURE (\S+ \w+): [^\r\n]* copied, ([\d.]+) s', done):
            figures.setdefault(name, []).append(250 * 1.048576 / float(seconds))
        figures = {name: rates[1:] for name, rates in figures.items()}  # without the round that allocates memory
        for name, rates in figures.items():
            disk = statistics.median(figures['brd ' + name.split()[1]])
            median = statistics.median(rates)
            print(f'{name:16} {median:7.1f} MB/s  {median / disk:5.2f}x of brd  ({min(rates):.1f} to {max(rates):.1f}, '
                  f'{len(rates)} rounds)')


if __name__ == '__main__':
    sys.argv = sys.argv[:1]
    server.main()
