"""The kernel's NBD client and a server that is killed: a QEMU guest in which `gpunbd attach` holds /dev/nbd0.

test_kernel_client.py describes the guest. The server also runs in the guest, under gpunbd keep."""
import os

import test_kernel_client as guest
import server

EXPECTED = ['raw-1 ok', 'raw-4 ok', 'ext4 ok', 'unreachable ok', 'stopped ok', 'taken-over ok',
            'other-contents ok']


class Reconnect(server.Test):
    def test_reconnect(self):
        files = self.directory()
        initramfs = guest.Initramfs(os.path.join(files, 'root'), 'reconnect')
        initramfs.programs('mkfs.ext4', 'e2fsck', 'nbd-client')
        initramfs.program(server.PROGRAM, 'gpunbd')
        initramfs.modules('nbd', 'crc32c_generic', 'ext4')
        self.assertEqual(guest.run(self, initramfs, EXPECTED, append='nbd.nbds_max=2', seconds=840), EXPECTED)


if __name__ == '__main__':
    server.main()
