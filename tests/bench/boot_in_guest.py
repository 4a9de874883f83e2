#!/usr/bin/env python3
"""Boots Debian in a QEMU guest: from a local image, and from clones of a read-only export of an NBD server that answers
after a delay. The first boot from a clone fills the cache, the others find it. It prints the seconds until a service runs
that is started last.

usage: tests/bench/boot_in_guest.py [--rounds N] [--delay MILLISECONDS]
"""
import argparse
import os
import statistics
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '../vm'))

import debian_guest  # noqa: E402
import server  # noqa: E402

parser = argparse.ArgumentParser(description='boots from a local image, and from clones of a cached one')
parser.add_argument('--rounds', type=int, default=3)
parser.add_argument('--delay', type=int, default=20, help='of each answer of the NBD server, in milliseconds')
arguments = parser.parse_args()

SCENARIO = """#!/bin/bash
exec >/dev/ttyS0 2>&1
echo STEP booted
echo RESULT boot ok
systemctl poweroff -ff
"""
CONFIG = """
listeners: {{unix: [{{path: "{{socket}}"}}]}}
exports:
- {{name: image, devices: [host], origin: {{nbd: 'nbd+unix:///?socket={origin}', mode: read-only}}}}
- {{name: node, clone_per_client: {{of: image, name: machine, max: 100}}}}
"""


class Boots(server.Test):
    def runTest(self):
        disk = debian_guest.Disk(self, {'scenario': SCENARIO})
        origin = os.path.join(self.directory(), 'origin')
        image = subprocess.Popen(['nbdkit', '-f', '--exit-with-parent', '-U', origin, '--filter=delay', 'file', disk.image,
                                  f'rdelay={arguments.delay}ms'])
        self.addCleanup(image.kill)
        server.wait_until(lambda: server.listens(origin))
        one = self.serve(config=CONFIG.format(origin=origin), name='image')
        local = self.boots('a local image', disk, lambda number: '')

        def clone(number):
            return f'driver=raw,file.driver=nbd,file.server.type=unix,file.server.path={one.path},file.export=node/{number},if=virtio'
        cold, *warm = self.boots('a clone', disk, clone)
        print(f'first boot of a clone {cold / statistics.median(local):.2f}x of a local image, '
              f'later ones {statistics.median(warm) / statistics.median(local):.2f}x')

    def boots(self, name, disk, drive):
        """The seconds of each boot."""
        times = []
        for number in range(arguments.rounds + 1):
            begin = time.monotonic()
            machine = disk.boot(self, drive=drive(number))
            machine.wait_for('STEP booted')
            times.append(time.monotonic() - begin)
            machine.results()
            print(f'{name}, boot {number + 1}: {times[-1]:.1f} s', flush=True)
        return times


if __name__ == '__main__':
    sys.argv = sys.argv[:1]
    server.main()
