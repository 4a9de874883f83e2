"""Swap on an export of a server in the same machine: a QEMU guest with a program that takes more memory than there is.

What the guest is made of is told in test_kernel_client.py. Its server has what protects it; without, the guest hangs.
The kernel's own client attaches /dev/nbd0 by a Unix socket, with two connections."""
import os
import shutil

import test_kernel_client as guest
import server

HOG = os.environ.get('GPUNBD_MEMORY_HOG', os.path.join(os.path.dirname(server.PROGRAM), 'memory_hog'))
# Another value, for whoever wants to see what is needed: GPUNBD_SWAP_FLAGS=--provision,full
FLAGS = os.environ.get('GPUNBD_SWAP_FLAGS', '--swap')
EXPECTED = ['protected ok', 'first ok', 'second ok', 'ending ok']

if server.SANITIZED:
    server.skip('a sanitizer needs more memory than the guest has')


class Swap(server.Test):
    def test_swap(self):
        files = self.directory()
        initramfs = guest.Initramfs(os.path.join(files, 'root'), 'init_swap')
        initramfs.program(shutil.which('nbd-client'))
        initramfs.program(server.PROGRAM, 'gpunbd')
        # Linked to nothing.
        shutil.copy(HOG, os.path.join(initramfs.root, 'bin/memory_hog'))
        initramfs.module('nbd')
        results = guest.run(self, initramfs, EXPECTED, append=f'nbd.nbds_max=2 flags={FLAGS}', memory=1024, seconds=540)
        self.assertEqual(results, EXPECTED)


if __name__ == '__main__':
    server.main()
