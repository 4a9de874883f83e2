"""The kernel's own NBD client over a server that dies: a QEMU guest in which `gpunbd attach` holds /dev/nbd0.

What the guest is made of is told in test_kernel_client.py. The server runs in the guest as well, under gpunbd keep,
and is killed there."""
import os
import shutil

import test_kernel_client as guest
import server

EXPECTED = ['raw-1 ok', 'raw-4 ok', 'ext4 ok', 'nobody-listens ok', 'stands-still ok', 'taken-over ok',
            'other-contents ok']


class Reconnect(server.Test):
    def test_reconnect(self):
        files = self.directory()
        initramfs = guest.Initramfs(os.path.join(files, 'root'), 'reconnect')
        for program in ('mkfs.ext4', 'e2fsck', 'nbd-client'):
            initramfs.program(shutil.which(program))
        initramfs.program(server.PROGRAM, 'gpunbd')
        for module in ('nbd', 'crc32c_generic', 'ext4'):
            initramfs.module(module)
        self.assertEqual(guest.run(self, initramfs, EXPECTED, append='nbd.nbds_max=2', seconds=540), EXPECTED)


if __name__ == '__main__':
    server.main()
