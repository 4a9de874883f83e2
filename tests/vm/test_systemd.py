"""systemd itself, in a QEMU guest, with the unit of the package: contents over systemctl kill, restart and stop, as its
user, within what it may. And with the units that `gpunbd attach --systemd` prints.

The guest is systemd and a few units in an initramfs; what else it is made of is told in test_kernel_client.py."""
import os
import re
import shutil

import test_kernel_client as guest
import server

SYSTEMD = '/usr/lib/systemd'
EXPECTED = ['killed ok', 'restarted ok', 'stopped ok', 'attached ok', 'watched ok']

if not os.path.exists(f'{SYSTEMD}/systemd'):
    server.skip('systemd is not installed (./dev setup installs it)')


# What the guest has none of: networks, modules of GPUs.
LEFT_OUT = ('Wants=', 'After=', 'Documentation=', 'ExecStartPre=')
CONFIG = '''
listeners: {unix: [{path: /run/gpunbd/gpunbd.sock, mode: 0660}]}
exports: [{name: scratch, size: 16M, devices: [host], keep: true}]
'''
USERS = {'etc/passwd': 'root:x:0:0::/:/bin/sh\ngpunbd:x:10809:10809::/run/gpunbd:/bin/false\n',
         'etc/group': 'root:x:0:\ngpunbd:x:10809:\n'}


def packaged(section):
    """The lines that the package's unit has in a section."""
    with open(os.path.join(server.ROOT, 'config/systemd/gpunbd.service'), encoding='utf-8') as file:
        lines = re.search(rf'\n\[{section}\]\n([^[]*)', file.read())[1].splitlines()
    return [line for line in lines if line and not line.startswith(LEFT_OUT)]


class Systemd(server.Test):
    def unit(self, root, name, **sections):
        path = os.path.join(root, 'etc/systemd/system', name)
        with open(path, 'w', encoding='utf-8') as file:
            for section, lines in sections.items():
                file.write(f'[{section}]\n' + ''.join(f'{line}\n' for line in lines))

    def root(self, files):
        initramfs = guest.Initramfs(os.path.join(files, 'root'), 'init_systemd')
        initramfs.program(server.PROGRAM, 'gpunbd')
        for program in (shutil.which('nbdcopy'), shutil.which('systemctl')):
            initramfs.program(program)
        for program in ('systemd', 'systemd-executor'):  # the latter came with 254
            if os.path.exists(f'{SYSTEMD}/{program}'):
                initramfs.program(f'{SYSTEMD}/{program}')
                os.makedirs(initramfs.root + '/lib/systemd', exist_ok=True)
                for place in ('/lib/systemd', SYSTEMD):
                    os.makedirs(initramfs.root + place, exist_ok=True)
                    os.symlink(f'/bin/{program}', f'{initramfs.root}{place}/{program}')
        for directory in ('proc', 'sys', 'dev', 'run', 'tmp', 'etc/systemd/system'):
            os.makedirs(os.path.join(initramfs.root, directory))
        for folder in ('etc/gpunbd', 'usr/bin', 'home', 'root', 'var/tmp'):
            os.makedirs(os.path.join(initramfs.root, folder), exist_ok=True)
        os.symlink('/bin/gpunbd', os.path.join(initramfs.root, 'usr/bin/gpunbd'))
        for name, text in (('etc/machine-id', '1' * 32 + '\n'), ('etc/os-release', 'ID=guest\n'),
                           ('etc/gpunbd/gpunbd.yaml', CONFIG), *USERS.items()):
            with open(os.path.join(initramfs.root, name), 'w', encoding='ascii') as file:
                file.write(text)
        initramfs.module('nbd')
        os.makedirs(os.path.join(initramfs.root, 'sbin'), exist_ok=True)
        for program in ('swapon', 'swapoff'):  # where systemd calls them
            os.symlink('/bin/busybox', os.path.join(initramfs.root, 'sbin', program))
        early = 'DefaultDependencies=no'
        for target in ('sysinit', 'basic', 'shutdown', 'swap', 'umount'):
            self.unit(initramfs.root, f'{target}.target', Unit=[early])
        self.unit(initramfs.root, 'default.target', Unit=[early, 'Wants=gpunbd.service check.service'])
        self.unit(initramfs.root, 'gpunbd.service', Unit=[early, *packaged('Unit')], Service=[
            'StandardError=append:/run/gpunbd.log', *packaged('Service')])
        self.unit(initramfs.root, 'check.service', Unit=[early, 'After=gpunbd.service'],
                  Service=['Type=oneshot', 'TimeoutStartSec=infinity', 'ExecStart=/init'])
        return initramfs

    def test_systemd(self):
        results = guest.run(self, self.root(self.directory()), EXPECTED, seconds=300,
                            append='systemd.show_status=no systemd.log_target=kmsg printk.devkmsg=on')
        self.assertEqual(results, EXPECTED)


if __name__ == '__main__':
    server.main()
