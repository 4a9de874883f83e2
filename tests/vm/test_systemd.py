"""systemd in a QEMU guest with the unmodified files of the package: contents survive systemctl kill, restart and stop;
user and privileges; socket activation; swap, also during sleep and shutdown; a PCI card; and a device by ublk, if there
is a kernel that has it.

The guest is systemd with a few units in an initramfs; test_kernel_client.py describes the other parts."""
import os
import shutil
import subprocess

import ublk_kernel  # noqa: F401
import test_kernel_client as guest
import recipe
import server

SYSTEMD = '/usr/lib/systemd'
UNITS = os.path.join(server.ROOT, 'config/packaging/systemd')
EXPECTED = [f'{part} ok' for part in ('killed', 'restarted', 'stopped', 'refused-start', 'attached', 'watched', 'socketed', 'swapped', 'slept',
                                      'ended', 'striped')]
if 'ublk_drv' in guest.MODULES:
    EXPECTED.append('ublk ok')

if not os.path.exists(f'{SYSTEMD}/systemd'):
    server.skip('systemd is not installed (./dev setup installs it)')


CONFIGURATION = '''
listeners: {unix: [{path: /run/gpunbd/gpunbd.sock, mode: 0660}]}
exports: [{name: scratch, size: 8M, devices: [host], keep: true}]
'''
CARD = ('-object', f'memory-backend-ram,id=bar,share=on,size={16 * server.MiB}', '-device', 'ivshmem-plain,memdev=bar,addr=04.0')
USERS = {'etc/passwd': 'root:x:0:0::/:/bin/sh\ngpunbd:x:10809:10809::/run/gpunbd:/bin/false\n',
         'etc/group': 'root:x:0:\ngpunbd:x:10809:\n'}


def commands(page, heading, replacements):
    """The first code block below a heading of the manual, with replacements for what the guest lacks."""
    text = recipe.texts(f'server/manual/{page}', heading)[0]
    for word, other in replacements.items():
        assert word in text, (heading, word)
        text = text.replace(word, other)
    return text


def recipes():
    return {'recipes/swap': commands('swap.md', 'Swap by systemd', {'cuda:0': 'host', '8G': '32M'}),
            'recipes/stripe': commands('sharing-a-gpu.md', 'A stripe over GPUs',
                                        {'cuda:0': 'pci:0000:00:04.0/2', 'cuda:1': 'host', '64G': '8M'}),
            'recipes/ublk': commands('attach-and-mount.md', 'ublk by systemd', {'cuda:0': 'host', '64G': '8M'})}


class Systemd(server.Test):
    def unit(self, root, name, **sections):
        path = os.path.join(root, 'etc/systemd/system', name)
        with open(path, 'w', encoding='utf-8') as file:
            for section, lines in sections.items():
                file.write(f'[{section}]\n' + ''.join(f'{line}\n' for line in lines))

    def packaged(self, root):
        """Installs the files of the .deb."""
        for folder in ('usr/lib/gpunbd', 'usr/lib/systemd/system', 'lib/systemd/system-sleep', 'usr/share/doc/gpunbd/examples'):
            os.makedirs(os.path.join(root, folder))
        for name, folder in (('gpunbd.service', 'usr/lib/systemd/system'), ('gpunbd.socket', 'usr/lib/systemd/system'),
                             ('gpunbd-swap@.service', 'usr/lib/systemd/system'), ('system-sleep', 'lib/systemd/system-sleep/gpunbd'),
                             ('../reclaim/reclaim-servers', 'usr/lib/gpunbd'),
                             *((example, 'usr/share/doc/gpunbd/examples') for example in ('swap.conf', 'pci.conf', 'ublk.conf'))):
            shutil.copy(os.path.join(UNITS, name), os.path.join(root, folder))
        if int(subprocess.check_output(['systemctl', '--version'], text=True).split()[1]) >= 254:
            os.makedirs(os.path.join(root, 'usr/lib/systemd/system/gpunbd.service.d'))
            shutil.copy(os.path.join(UNITS, 'preserve.conf'), os.path.join(root, 'usr/lib/systemd/system/gpunbd.service.d'))

    def units(self, root):
        """The units of a Debian system that the units of the package need."""
        early = 'DefaultDependencies=no'
        for target in ('sysinit', 'basic', 'shutdown', 'swap', 'umount', 'network-online'):
            self.unit(root, f'{target}.target', Unit=[early])
        self.unit(root, 'end.target', Unit=[early, 'Requires=shutdown.target umount.target', 'After=shutdown.target umount.target'])
        self.unit(root, 'modprobe@.service', Unit=[early], Service=['Type=oneshot', 'ExecStart=-/bin/insmod /modules/%i'])
        self.unit(root, 'default.target', Unit=[early, 'Wants=gpunbd.service check.service'])
        self.unit(root, 'check.service', Unit=[early, 'After=gpunbd.service'],
                  Service=['Type=oneshot', 'TimeoutStartSec=infinity', 'ExecStart=/init', 'MemoryAccounting=yes'])
        # The order on Debian, where a mount without _netdev is a part of local-fs.target.
        os.makedirs(f'{root}/etc/systemd/system/mnt.mount.d')
        self.unit(root, 'mnt.mount.d/order.conf', Unit=['Before=gpunbd.service'])
        os.makedirs(f'{root}/etc/systemd/system/gpunbd.service.d')
        self.unit(root, 'gpunbd.service.d/log.conf', Service=['StandardError=append:/log/gpunbd.log'])

    def root(self):
        initramfs = guest.root(self, 'systemd', ('nbdcopy', 'nbdinfo', 'systemctl', 'install', 'umount'),
                               ('nbd', 'ublk_drv', 'crc32c_generic', 'ext4'))
        for program in ('systemd', 'systemd-executor'):  # systemd-executor exists since version 254
            if os.path.exists(f'{SYSTEMD}/{program}'):
                initramfs.program(f'{SYSTEMD}/{program}')
                for place in ('/lib/systemd', SYSTEMD):
                    os.makedirs(initramfs.root + place, exist_ok=True)
                    os.symlink(f'/bin/{program}', f'{initramfs.root}{place}/{program}')
        for folder in ('proc', 'sys', 'dev', 'run', 'tmp', 'etc/systemd/system', 'usr/bin', 'sbin', 'home', 'root', 'var/tmp'):
            os.makedirs(os.path.join(initramfs.root, folder), exist_ok=True)
        os.symlink('/bin/gpunbd', os.path.join(initramfs.root, 'usr/bin/gpunbd'))
        for program in ('swapon', 'swapoff'):  # the paths that systemd calls
            os.symlink('/bin/busybox', os.path.join(initramfs.root, 'sbin', program))
        for name, text in (('etc/machine-id', '1' * 32 + '\n'), ('etc/os-release', 'ID=guest\n'),
                           ('etc/gpunbd/gpunbd.yaml', CONFIGURATION), *USERS.items(), *recipes().items()):
            initramfs.file(name, text)
        self.packaged(initramfs.root)
        self.units(initramfs.root)
        return initramfs

    def test_systemd(self):
        guest.run(self, self.root(), EXPECTED, devices=CARD,
                  append='systemd.show_status=no systemd.log_target=kmsg printk.devkmsg=on')


if __name__ == '__main__':
    server.main()
