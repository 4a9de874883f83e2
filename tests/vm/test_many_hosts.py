"""Exports of three servers as one device, by the kernel's md in a QEMU guest: one server dies under load.

What the guest is made of is told in test_kernel_client.py."""
import os
import shutil

import test_kernel_client as guest
import server

EXPECTED = ['raid1 ok', 'raid10 ok', 'raid0 ok']
MDADM = shutil.which('mdadm') or shutil.which('mdadm', path='/usr/sbin:/sbin')

if MDADM is None:
    server.skip('mdadm is not installed (./dev setup installs it)')


class ManyHosts(server.Test):
    def test_md(self):
        files = self.directory()
        initramfs = guest.Initramfs(os.path.join(files, 'root'), 'init_many_hosts')
        for program in (MDADM, shutil.which('mkfs.ext4'), shutil.which('e2fsck')):
            initramfs.program(program)
        initramfs.program(server.PROGRAM, 'gpunbd')
        for module in ('nbd', 'crc32c_generic', 'ext4', 'raid0', 'raid1', 'raid10'):
            initramfs.module(module)
        self.assertEqual(guest.run(self, initramfs, EXPECTED, append='nbd.nbds_max=4', seconds=540), EXPECTED)


if __name__ == '__main__':
    server.main()
