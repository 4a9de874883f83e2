#!/usr/bin/env python3
"""Writes and reads a file of 250 MB on a mounted device, in a QEMU guest of 2 CPUs: a RAM disk (brd) and the kernel's NBD
client with several numbers of connections, in turn. It prints medians and their ratios to the RAM disk.

usage: tests/bench/file_in_guest.py [--rounds N] [--connections N,N,...] [--serve FLAG,...] [--queue FILE:VALUE,...]
"""
import argparse
import re
import statistics

import in_guest

parser = argparse.ArgumentParser(description='dd of 250 MB in a guest, beside a RAM disk')
parser.add_argument('--rounds', type=int, default=5)
parser.add_argument('--connections', default='1,2,4', help='of the NBD client, in turn')
parser.add_argument('--serve', default='', help='more flags of gpunbd serve, separated by commas')
parser.add_argument('--queue', default='', help='settings of /sys/block/nbd0/queue, such as max_sectors_kb:1024')
arguments = parser.parse_args()


class Guest(in_guest.Guest):
    init, programs, modules = 'file_copy', ('dd', 'mkfs.ext4'), ('crc32c_generic', 'ext4', 'nbd', 'brd')
    parameters = vars(arguments)

    def report(self, done):
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
    in_guest.main()
