#!/usr/bin/env python3
"""Brings swapped-out memory back from a server in the same QEMU guest of 2 CPUs, in several ways, in turn: `gpunbd detach`, as
the sleep hook does; swapoff alone with vm.page-cluster=3 (the default) and 5; and for comparison a sequential read of the
device. It prints medians.

usage: tests/bench/swapoff_in_guest.py [--rounds N] [--megabytes N] [--connections N] [--ways WAY,WAY,...]
"""
import argparse
import re
import statistics

import in_guest

parser = argparse.ArgumentParser(description='swapoff in a guest')
parser.add_argument('--rounds', type=int, default=5)
parser.add_argument('--megabytes', type=int, default=163, help='of memory that is swapped out')
parser.add_argument('--connections', type=int, default=1, help='of the NBD client')
parser.add_argument('--ways', default='device,swapoff_3,swapoff_5,detach', help='functions of tests/vm/init/swapoff')
arguments = parser.parse_args()


class Guest(in_guest.Guest):
    init, programs, modules = 'swapoff', ('dd',), ('nbd',)
    memory = arguments.megabytes * 4 + 256
    parameters = vars(arguments)

    def report(self, done):
        figures = {}
        for name, size, time, requests in re.findall(r'FIGURE (\w+ \w+): (\d+) bytes in (\d+) cs, (-?\d+) requests', done):
            figures.setdefault(name, []).append((int(size) / 1e4 / max(int(time), 1), int(size) / 1024 / max(int(requests), 1)))
        for name, found in figures.items():
            rates = [rate for rate, _ in found]
            print(f'{name:20} {statistics.median(rates):7.1f} MB/s  ({min(rates):.1f} to {max(rates):.1f}, {len(rates)} rounds), '
                  f'{statistics.median(size for _, size in found):.0f} KiB in a request')


if __name__ == '__main__':
    in_guest.main()
