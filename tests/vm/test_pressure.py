"""Host memory is given back when programs wait for memory, in a QEMU guest with control groups of version 2.

test_kernel_client.py describes the guest."""
import os

import test_kernel_client as guest
import server

CONFIGURATION = '''
listeners: {unix: [{path: /tmp/socket}]}
admin: {socket: /tmp/admin}
devices: [{id: host, reserve: 0, spill: [{file: /spill/pages, size: 256M}]}]
exports: [{name: '', size: 128M, devices: [host]}]
'''
STALLED = '''
threads: 1
listeners: {unix: [{path: /tmp/socket}]}
admin: {socket: /tmp/admin}
devices: [{id: host, reserve: 0, spill: [{file: /spill/pages, size: 32M}]}]
exports: [{name: pages, size: 16M, devices: [host]}, {name: holes, size: 4M, devices: [host]}]
'''
if server.SANITIZED:
    server.skip('a sanitizer needs more memory than the group has')


class Pressure(server.Test):
    def test_pages_leave_and_return(self):
        initramfs = guest.root(self, 'pressure', ('nbdcopy', 'mkfs.ext4'), ('virtio_pci', 'virtio_blk', 'crc32c_generic', 'ext4'))
        guest.add_hog(initramfs)
        initramfs.file('gpunbd.yaml', CONFIGURATION)
        disk = os.path.join(self.directory(), 'disk')
        with open(disk, 'wb') as file:
            file.truncate(512 * server.MiB)
        guest.run(self, initramfs, ['gone ok', 'back ok'], append='psi=1', devices=('-drive', f'file={disk},format=raw,if=virtio'))

    def test_a_disk_that_stalls(self):
        initramfs = guest.root(self, 'stalled_disk', ('nbd-client', 'nbdcopy', 'mkfs.ext4'), ('nbd', 'crc32c_generic', 'ext4'))
        initramfs.file('gpunbd.yaml', STALLED)
        guest.run(self, initramfs, ['stalled ok', 'continued ok'], append='nbd.nbds_max=2')


if __name__ == '__main__':
    server.main()
