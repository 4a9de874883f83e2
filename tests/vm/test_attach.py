"""gpunbd attach and detach with the kernel's NBD client: a QEMU guest mounts the device, swaps to it, and detaches it.

test_kernel_client.py describes the guest. It swaps to a server on the host, because a server in the guest would use the
guest's own memory."""
import test_kernel_client as guest
import recipe
import server
from server import MiB

EXPECTED = ['no-module ok', 'attached ok', 'listed ok', 'mounted ok', 'resized ok', 'snapshotted ok', 'opened ok', 'swapped ok',
            'not-swap ok', 'forced ok', 'pressure ok']


class AttachedDevice(server.Test):
    def test_attached_device(self):
        one = self.serve(size=512 * MiB, tcp=True, unix=False)
        initramfs = guest.root(self, 'attach', ('mkfs.ext4', 'resize2fs', 'e2fsck'),
                               ('virtio_pci', 'virtio_net', 'nbd', 'crc32c_generic', 'ext4'))
        resize, grow = next(block for block in recipe.blocks('server/manual/exports-at-run-time.md', 'Resize') if block[-1].startswith('resize2fs'))
        initramfs.file('manual/resize', recipe.script([resize]).replace('fast 16G', 'disk 96M'))
        initramfs.file('manual/grow', recipe.script([grow]))
        guest.run(self, initramfs, EXPECTED, append=f'nbd.nbds_max=2 port={one.port}', memory=448, network=guest.NETWORK)


if __name__ == '__main__':
    server.main()
