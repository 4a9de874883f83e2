"""Guests that boot a complete Debian 12 with systemd, LVM, md, dm-crypt and the installed gpunbd package. Each guest boots
a snapshot of the same disk, so no boot sees the changes of another one.

test_kernel_client.py describes the other parts of the guests."""
import os
import shlex
import subprocess

import running_guest
import server
import test_kernel_client as guest

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.environ.get('GPUNBD_BUILD', os.path.dirname(server.PROGRAM))
KERNEL = os.path.basename(guest.IMAGE).removeprefix('vmlinuz-')

server.need('chroot', 'depmod', 'cmake', 'zstd', 'mkfs.ext4')
if os.geteuid() != 0:
    server.skip('needs root, for chroot')
FOUND = subprocess.run([os.path.join(HERE, 'node.sh'), 'find', 'disks'], capture_output=True, text=True, check=False)
if FOUND.returncode:
    server.skip(FOUND.stderr.strip())

NETWORK = '[Match]\nName=e*\n[Network]\nDHCP=ipv4\n'
SCENARIO = '''[Unit]
After=network-online.target
Wants=network-online.target
[Service]
Type=exec
ExecStart=/bin/bash /scenario
StandardOutput=file:/dev/ttyS0
StandardError=file:/dev/ttyS0
[Install]
WantedBy=multi-user.target
'''


class Disk:
    """The root file system of the guests."""

    def __init__(self, test, files):
        """`files`: {path: text} of additional files; a guest runs /scenario."""
        folder = test.directory()
        self.root = os.path.join(folder, 'root')
        self.image = os.path.join(folder, 'image')
        modules = os.path.join(guest.MODULES['nbd'].split(f'/{KERNEL}/')[0], KERNEL)
        commands = f'''
mkdir {self.root}
tar -C {self.root} --zstd -xf {shlex.quote(FOUND.stdout.strip())}
mkdir -p {self.root}/lib/modules
cp -a {modules} {self.root}/lib/modules/
chroot {self.root} depmod {KERNEL}
cmake --install {BUILD} --prefix {self.root}/usr --strip >/dev/null
chroot {self.root} systemd-sysusers gpunbd.conf
'''
        test.command('/bin/bash', '-eux', '-c', commands, seconds=300)
        for path, text in {'etc/systemd/network/dhcp.network': NETWORK, 'etc/systemd/system/scenario.service': SCENARIO,
                           'etc/modules-load.d/nbd.conf': 'nbd\n', 'etc/modprobe.d/nbd.conf': 'options nbd nbds_max=8\n',
                           'etc/machine-id': '1' * 32 + '\n', **files}.items():
            path = os.path.join(self.root, path)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, 'w', encoding='ascii') as file:
                file.write(text)
        # Units that slow down the boot and have no use here.
        test.command('chroot', self.root, 'systemctl', 'mask', 'apt-daily.timer', 'apt-daily-upgrade.timer', 'dpkg-db-backup.timer',
                     'e2scrub_all.timer', 'e2scrub_reap.service', 'fstrim.timer', 'getty@tty1.service', 'serial-getty@ttyS0.service')
        test.command('chroot', self.root, 'systemctl', 'enable', 'systemd-networkd', 'scenario')
        test.command('mkfs.ext4', '-q', '-d', self.root, self.image, '900M', seconds=300)

    def boot(self, test, append='', memory=512, drive='', **options):
        """A running guest. `append`: parameters on the kernel's command line, which /scenario reads. `drive`: QEMU's, of a
        copy of the image."""
        initramfs = guest.Initramfs(os.path.join(test.directory(), 'root'), 'switch_root')
        initramfs.modules('virtio_pci', 'virtio_blk', 'virtio_net', 'crc32c_generic', 'ext4')
        return running_guest.RunningGuest(
            test, initramfs, append=f'systemd.show_status=yes systemd.log_color=no systemd.journald.forward_to_console=1 {append}', memory=memory,
            network=guest.NETWORK,
            devices=('-drive', drive or f'file={self.image},format=raw,if=virtio,snapshot=on'), **options)
