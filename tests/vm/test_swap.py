"""Swap on an export of a server in the same machine: a QEMU guest with a program that takes more memory than there is.

What the guest is made of is told in test_kernel_client.py. Its server has what protects it; without, the guest hangs."""
import os
import shutil

import test_kernel_client as guest
import server

HOG = os.environ.get('GPUNBD_MEMORY_HOG', os.path.join(os.path.dirname(server.PROGRAM), 'memory_hog'))
# Another value, for whoever wants to see what is needed: GPUNBD_SWAP_FLAGS=--provision,full
FLAGS = os.environ.get('GPUNBD_SWAP_FLAGS', '--swap')
if server.SANITIZED:
    server.skip('a sanitizer needs more memory than the guest has')


class Swap(server.Test):
    def swap(self, device, hog, expected, memory, **options):
        files = self.directory()
        initramfs = guest.Initramfs(os.path.join(files, 'root'), 'init_swap')
        initramfs.program(shutil.which('nbd-client'))
        initramfs.program(server.PROGRAM, 'gpunbd')
        # Linked to nothing.
        shutil.copy(HOG, os.path.join(initramfs.root, 'bin/memory_hog'))
        initramfs.module('nbd')
        append = f'nbd.nbds_max=2 flags={FLAGS} device={device} hog={hog}'
        self.assertEqual(guest.run(self, initramfs, expected, append=append, memory=memory, seconds=540, **options), expected)

    def test_memory_of_the_guest(self):
        self.swap('host', 640, ['protected ok', 'first ok', 'second ok', 'ending ok'], memory=1024)

    def test_memory_of_a_card(self):
        """It is not the guest's: a stand-in for that of a GPU."""
        card = ('-object', 'memory-backend-ram,id=bar,share=on,size=512M', '-device', 'ivshmem-plain,memdev=bar,addr=04.0')
        self.swap('pci:00:04.0/2', 400, ['protected ok', 'unix ok', 'tcp ok', 'ending ok'], memory=384, devices=card)


if __name__ == '__main__':
    server.main()
