#!/usr/bin/env python3
"""Measures block devices in a QEMU guest of 2 CPUs, in turn: a RAM disk (brd), and one export of one server over the kernel's
NBD client on a Unix socket (gpunbd attach) and over ublk. It prints medians and their ratios to NBD and to the RAM disk.

usage: tests/bench/ublk_in_guest.py [--rounds N] [--seconds N] [--serve FLAG,...]
"""
import argparse
import os
import re
import statistics

os.environ['GPUNBD_VM_KERNEL'] = 'ublk'  # before the next import, which looks for the kernel

import in_guest  # noqa: E402

parser = argparse.ArgumentParser(description='ublk in a guest, beside the kernel\'s NBD client and a RAM disk')
parser.add_argument('--rounds', type=int, default=3)
parser.add_argument('--seconds', type=int, default=3, help='of each cell')
parser.add_argument('--serve', default='', help='more flags of gpunbd serve, separated by commas')
arguments = parser.parse_args()


class Guest(in_guest.Guest):
    init, programs, modules = 'ublk_speed', ('dd', 'fio'), ('nbd', 'ublk_drv', 'brd')
    parameters = vars(arguments)

    def report(self, done):
        figures = {}
        for device, cell, rate, cpu in re.findall(r'FIGURE (\S+) (.*): (\S+) a second, (\S+) us of CPU', done):
            figures.setdefault(cell, {}).setdefault(device, []).append((float(rate), float(cpu)))
        print(f'{"":22}{"brd":>10}{"nbd":>10}{"ublk":>10}   ublk/nbd  its CPU  ublk/brd')
        for cell, devices in figures.items():
            rate, cpu = ({name: statistics.median(one[i] for one in rounds) for name, rounds in devices.items()}
                         for i in (0, 1))
            print(f'{cell:22}{rate["brd"]:10.0f}{rate["nbd"]:10.0f}{rate["ublk"]:10.0f}   {rate["ublk"] / rate["nbd"]:7.2f}x '
                  f'{cpu["ublk"] / cpu["nbd"]:7.2f}x {rate["ublk"] / rate["brd"]:8.2f}x')


if __name__ == '__main__':
    in_guest.main()
