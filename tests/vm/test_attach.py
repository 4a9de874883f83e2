"""gpunbd attach and detach with the kernel's NBD client: a QEMU guest mounts the device, swaps to it, and detaches it.

test_kernel_client.py describes the guest. It swaps to a server on the host, because a server in the guest would use the
guest's own memory."""
import os

import test_kernel_client as guest
import recipe
import server
from server import MiB

EXPECTED = ['no-module ok', 'attached ok', 'listed ok', 'mounted ok', 'resized ok', 'snapshotted ok', 'opened ok', 'swapped ok',
            'not-swap ok', 'forced ok', 'pressure ok']


class AttachedDevice(server.Test):
    def test_attached_device(self):
        one = self.serve(size=512 * MiB, tcp=True, unix=False)
        files = self.directory()
        initramfs = guest.Initramfs(os.path.join(files, 'root'), 'attach')
        initramfs.programs('mkfs.ext4', 'resize2fs', 'e2fsck')
        initramfs.program(server.PROGRAM, 'gpunbd')
        resize, grow = next(block for block in recipe.blocks('server/manual/exports-at-run-time.md', 'Resize') if block[-1].startswith('resize2fs'))
        initramfs.file('manual/resize', recipe.script([resize]).replace('fast 16G', 'disk 96M'))
        initramfs.file('manual/grow', recipe.script([grow]))
        initramfs.modules('virtio_pci', 'virtio_net', 'nbd', 'crc32c_generic', 'ext4')
        results = guest.run(self, initramfs, EXPECTED, append=f'nbd.nbds_max=2 port={one.port}', memory=448, seconds=840,
                            network=('-netdev', 'user,id=net', '-device', 'virtio-net-pci,netdev=net,romfile='))
        self.assertEqual(results, EXPECTED)


if __name__ == '__main__':
    server.main()
