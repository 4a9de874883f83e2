"""The kernel's NBD client and a server that is killed: a QEMU guest in which `gpunbd attach` holds /dev/nbd0.

test_kernel_client.py describes the guest. The server also runs in the guest, under gpunbd keep."""
import test_kernel_client as guest
import server

EXPECTED = ['raw-1 ok', 'raw-4 ok', 'ext4 ok', 'unreachable ok', 'stopped ok', 'taken-over ok',
            'other-contents ok']


class Reconnect(server.Test):
    def test_reconnect(self):
        initramfs = guest.root(self, 'reconnect', ('mkfs.ext4', 'e2fsck', 'nbd-client'), ('nbd', 'crc32c_generic', 'ext4'))
        guest.run(self, initramfs, EXPECTED, append='nbd.nbds_max=2')


if __name__ == '__main__':
    server.main()
