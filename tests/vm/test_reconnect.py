"""The kernel's own NBD client over a server that dies: a QEMU guest in which nbd_attach holds /dev/nbd0.

What the guest is made of is told in test_kernel_client.py. The server runs in the guest as well, under gpunbd keep,
and is killed there."""
import os
import re
import shutil
import sys

import test_kernel_client as guest
import server

ATTACH = os.environ.get('GPUNBD_ATTACH', os.path.join(os.path.dirname(server.PROGRAM), 'nbd_attach'))
EXPECTED = ['raw-1 ok', 'raw-4 ok', 'ext4 ok', 'nobody-listens ok', 'stands-still ok', 'other-contents ok']


class Reconnect(server.Test):
    def test_reconnect(self):
        files = self.directory()
        initramfs = guest.Initramfs(os.path.join(files, 'root'), 'init_reconnect')
        for program in ('mkfs.ext4', 'e2fsck', 'nbd-client'):
            initramfs.program(shutil.which(program))
        initramfs.program(server.PROGRAM, 'gpunbd')
        initramfs.program(ATTACH, 'nbd_attach')
        for module in ('nbd', 'crc32c_generic', 'ext4'):
            initramfs.module(module)
        image = os.path.join(files, 'initramfs')
        initramfs.pack(image)
        done = self.command('qemu-system-x86_64', '-accel', 'tcg,thread=multi', '-cpu', 'Nehalem', '-m', '1536', '-smp', '2',
                            '-nodefaults', '-no-reboot', '-display', 'none', '-serial', 'stdio', '-net', 'none',
                            '-kernel', guest.IMAGE, '-initrd', image, '-append',
                            'console=ttyS0 quiet panic=-1 mitigations=off cryptomgr.notests nbd.nbds_max=2', seconds=540)
        results = re.findall(r'RESULT ([^\r\n]*)', done)
        if results != EXPECTED:
            print(done[-12000:], file=sys.stderr)
        self.assertEqual(results, EXPECTED)


if __name__ == '__main__':
    server.main()
