"""Host memory is given back when programs wait for memory, in a QEMU guest with control groups of version 2.

test_kernel_client.py describes the guest."""
import os
import shutil

import test_kernel_client as guest
import server

HOG = os.environ.get('GPUNBD_MEMORY_HOG', os.path.join(os.path.dirname(server.PROGRAM), 'memory_hog'))
EXPECTED = ['gone ok', 'back ok']
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
        files = self.directory()
        initramfs = guest.Initramfs(os.path.join(files, 'root'), 'pressure')
        initramfs.programs('nbdcopy', 'mkfs.ext4')
        initramfs.program(server.PROGRAM, 'gpunbd')
        # The program is linked statically.
        shutil.copy(HOG, os.path.join(initramfs.root, 'bin/memory_hog'))
        initramfs.file('gpunbd.yaml', CONFIGURATION)
        initramfs.modules('virtio_pci', 'virtio_blk', 'crc32c_generic', 'ext4')
        disk = os.path.join(files, 'disk')
        with open(disk, 'wb') as file:
            file.truncate(512 * server.MiB)
        results = guest.run(self, initramfs, EXPECTED, seconds=840, append='psi=1',
                            devices=('-drive', f'file={disk},format=raw,if=virtio'))
        self.assertEqual(results, EXPECTED)

    def test_a_disk_that_stalls(self):
        files = self.directory()
        initramfs = guest.Initramfs(os.path.join(files, 'root'), 'stalled_disk')
        initramfs.programs('nbd-client', 'nbdcopy', 'mkfs.ext4')
        initramfs.program(server.PROGRAM, 'gpunbd')
        initramfs.file('gpunbd.yaml', STALLED)
        initramfs.modules('nbd', 'crc32c_generic', 'ext4')
        expected = ['stalled ok', 'continued ok']
        self.assertEqual(guest.run(self, initramfs, expected, append='nbd.nbds_max=2', seconds=840), expected)


if __name__ == '__main__':
    server.main()
