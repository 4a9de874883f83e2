"""systemd itself, in a QEMU guest, with the unit that server/OPERATION.md tells: contents over systemctl kill, restart
and stop. And with the units that `gpunbd attach --systemd` prints.

The guest is systemd and a few units in an initramfs; what else it is made of is told in test_kernel_client.py."""
import os
import re
import shutil

import test_kernel_client as guest
import server

SYSTEMD = '/usr/lib/systemd'
EXPECTED = ['killed ok', 'restarted ok', 'stopped ok', 'attached ok']

if not os.path.exists(f'{SYSTEMD}/systemd'):
    server.skip('systemd is not installed (./dev setup installs it)')


def documented(section):
    """The lines that the manual has for a section of the unit, in its chapter of what outlives the server."""
    with open(os.path.join(server.ROOT, 'server/OPERATION.md'), encoding='utf-8') as file:
        chapter = re.search(r'\n## What outlives the server\n(.*?)\n## ', file.read(), re.DOTALL)[1]
    lines = re.search(rf'\n    \[{section}\]\n((?:    [^\[\n]*\n)+)', chapter)[1]
    return [line.strip() for line in lines.splitlines()]


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
        for name, text in (('etc/machine-id', '1' * 32 + '\n'), ('etc/os-release', 'ID=guest\n')):
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
        self.unit(initramfs.root, 'gpunbd.service', Unit=[early, *documented('Unit')], Service=[
            'ExecStart=/bin/gpunbd serve --device host --size 16M --keep -U /run/gpunbd.sock',
            'StandardError=append:/run/gpunbd.log', *documented('Service')])
        self.unit(initramfs.root, 'check.service', Unit=[early, 'After=gpunbd.service'],
                  Service=['Type=oneshot', 'TimeoutStartSec=infinity', 'ExecStart=/init'])
        return initramfs

    def test_systemd(self):
        results = guest.run(self, self.root(self.directory()), EXPECTED, seconds=300,
                            append='systemd.show_status=no systemd.log_target=kmsg printk.devkmsg=on')
        self.assertEqual(results, EXPECTED)


if __name__ == '__main__':
    server.main()
