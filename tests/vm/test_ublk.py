"""Block devices that the server makes by ublk: a QEMU guest with a kernel that has ublk, which Debian 12 has beside its own
kernel.

test_kernel_client.py describes the guest. The server, its NBD clients and the programs that use the device run in it."""
import os
import shutil

os.environ['GPUNBD_VM_KERNEL'] = 'ublk'  # before the next import, which looks for the kernel

import test_kernel_client as guest  # noqa: E402
import recipe  # noqa: E402
import server  # noqa: E402
import swapping_guest  # noqa: E402

EXPECTED = ['no module ok', 'unprivileged ok', 'device ok', 'both ways ok', 'xfs ok', 'ext4 ok', 'fio ok', 'no space ok', 'limits ok', 'reload ok', 'in use ok',
            'manual ok', 'killed ok', 'upgraded ok', 'keeper ends ok', 'upgraded without it ok', 'contents gone ok',
            'write-through ok', 'mounted origin ok', 'same disk ok', 'write-back ok', 'same file ok',
            'bcache ok', 'new cache ok', 'restarted machine ok', 'lost cache ok', 'unloaded ok']

server.need('fio', 'mkfs.ext4', 'e2fsck', 'mkfs.xfs', 'xfs_repair', 'nbdcopy', 'nbdinfo', 'blkdiscard', 'make-bcache', 'bcache-super-show')
for module in ('ublk_drv', 'bcache'):
    if module not in guest.MODULES:
        server.skip(f'no module {module} for {os.path.basename(guest.IMAGE)}')


class Ublk(swapping_guest.Swapping):
    def test_swap(self):
        """Without the kernel's NBD client."""
        self.swap_with_spill_memory('ublk', flags='--swap,--ublk', driver='ublk_drv')

    def test_ublk(self):
        initramfs = guest.root(self, 'ublk', ('fio', 'mkfs.ext4', 'e2fsck', 'mkfs.xfs', 'xfs_repair', 'nbdcopy', 'nbdinfo',
                                            'make-bcache', 'bcache-super-show'),
                               ('crc32c_generic', 'ext4', 'xfs', 'loop', 'bcache'))
        initramfs.program(shutil.which('blkdiscard'), 'zeroout')  # that of busybox cannot write zeroes
        for name, (page, heading) in {'readme': ('README.md', 'A mount in a minute'),
                                      'manual': ('server/manual/attach-and-mount.md', 'Local devices with ublk')}.items():
            _, *lines = next(block for block in recipe.blocks(page, heading) if block[0] == 'modprobe ublk_drv')
            text = recipe.script(lines).replace('cuda:0', 'host').replace('8G', '64M').replace('1G', '64M')
            initramfs.file(f'manual/{name}', text)
        blocks = recipe.blocks('server/manual/origins.md', 'With bcache instead')
        for name, block in zip(('disk', 'cache', 'stop', 'restart'), blocks, strict=True):
            text = recipe.script(line for line in block if not line.startswith('modprobe '))
            initramfs.file(f'manual/bcache_{name}', text.replace('cuda:0', 'host').replace('8G', '1100M').replace('sdb', 'loop0'))
        order = list(initramfs.order)
        initramfs.module('ublk_drv')
        initramfs.order = order  # the guest loads it later
        guest.run(self, initramfs, EXPECTED, memory=2048)  # bcache prepares more buckets at a time if its cache is larger


if __name__ == '__main__':
    server.main()
