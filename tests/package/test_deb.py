"""The .deb that cpack makes of this build: files, owners, dependencies, scripts, lintian, and a system that installs it."""
import functools
import glob
import gzip
import os
import re
import shutil
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '../integration'))

import server  # noqa: E402

CPACK = os.environ.get('GPUNBD_CPACK', 'cpack')
BUILD = os.environ.get('GPUNBD_BUILD', os.path.dirname(server.PROGRAM))

for program in ('dpkg-deb', 'dpkg-shlibdeps', 'file'):
    server.need(program)

FILES = {  # path: mode
    './etc/gpunbd/gpunbd.yaml': '-rw-r--r--',
    './usr/bin/gpunbd': '-rwxr-xr-x',
    './usr/lib/gpunbd/preserve.conf': '-rw-r--r--',
    './usr/lib/gpunbd/reclaim-servers': '-rwxr-xr-x',
    './usr/lib/systemd/system-sleep/gpunbd': '-rwxr-xr-x',
    './usr/lib/systemd/system/gpunbd-swap@.service': '-rw-r--r--',
    './usr/lib/systemd/system/gpunbd.service': '-rw-r--r--',
    './usr/lib/systemd/system/gpunbd.socket': '-rw-r--r--',
    './usr/lib/sysusers.d/gpunbd.conf': '-rw-r--r--',
    './usr/lib/tmpfiles.d/gpunbd.conf': '-rw-r--r--',
    './usr/share/bash-completion/completions/gpunbd': '-rw-r--r--',
    './usr/share/doc/gpunbd/changelog.Debian.gz': '-rw-r--r--',
    './usr/share/doc/gpunbd/changelog.gz': '-rw-r--r--',
    './usr/share/doc/gpunbd/copyright': '-rw-r--r--',
    './usr/share/doc/gpunbd/examples/gamemode.ini': '-rw-r--r--',
    './usr/share/doc/gpunbd/examples/pci.conf': '-rw-r--r--',
    './usr/share/doc/gpunbd/examples/ublk.conf': '-rw-r--r--',
    './usr/share/doc/gpunbd/examples/slurm': '-rwxr-xr-x',
    './usr/share/doc/gpunbd/examples/swap.conf': '-rw-r--r--',
    './usr/share/doc/gpunbd/gpunbd.example.yaml': '-rw-r--r--',
    './usr/share/doc/gpunbd/openapi.yaml': '-rw-r--r--',
    './usr/share/fish/vendor_completions.d/gpunbd.fish': '-rw-r--r--',
    './usr/share/initramfs-tools/hooks/gpunbd': '-rwxr-xr-x',
    './usr/share/initramfs-tools/scripts/local-bottom/gpunbd': '-rwxr-xr-x',
    './usr/share/initramfs-tools/scripts/local-top/gpunbd': '-rwxr-xr-x',
    './usr/share/lintian/overrides/gpunbd': '-rw-r--r--',
    './usr/share/man/man5/gpunbd.yaml.5.gz': '-rw-r--r--',
    './usr/share/man/man8/gpunbd.8.gz': '-rw-r--r--',
    './usr/share/zsh/vendor-completions/_gpunbd': '-rw-r--r--',
}

PROGRAMS_OF_SCRIPTS = ('systemctl', 'systemd-sysusers', 'systemd-tmpfiles', 'deb-systemd-helper', 'deb-systemd-invoke')
DROP_INS = 'usr/lib/systemd/system/gpunbd.service.d'


class DropIn(server.Test):
    """preserve.conf has a key that systemd before 254 logs as unknown, so postinst enables it by version."""

    def setUp(self):
        self.root = self.directory()
        self.link = os.path.join(self.root, DROP_INS, 'preserve.conf')
        self.target = os.path.join(self.root, 'usr/lib/gpunbd/preserve.conf')
        os.makedirs(os.path.dirname(self.target))
        with open(self.target, 'wb'):
            pass
        self.programs = self.directory()
        for name in PROGRAMS_OF_SCRIPTS:
            self.stand_in(name, '')

    def stand_in(self, name, text):
        server.write_file(os.path.join(self.programs, name), f'#!/bin/sh\n{text}\n', 0o755)

    def script(self, name, *arguments, systemd=''):
        """`systemd`: the installed version; empty: none."""
        self.stand_in('dpkg-query', f'echo {systemd}' if systemd else 'exit 1')
        self.command('sh', os.path.join(server.ROOT, 'config/packaging/debian', name), *arguments,
                     environment={'DPKG_ROOT': self.root, 'PATH': f'{self.programs}:{os.environ["PATH"]}'})

    def test_versions(self):
        for version, enabled in (('252.39-1~deb12u1', False), ('253.5-1', False), ('254~rc3-3', False), ('', False),
                                 ('254-1', True), ('254.26-1', True), ('257.9-1~deb13u1', True),
                                 ('252.39-1~deb12u1', False)):
            with self.subTest(version=version):
                self.script('postinst', 'configure', '', systemd=version)
                self.assertEqual(os.path.lexists(self.link), enabled)
                if enabled:
                    self.assertTrue(os.path.samefile(self.link, self.target))

    def test_upgrade_and_removal(self):
        for version in ('252.39-1~deb12u1', '254.26-1'):
            with self.subTest(version=version):
                enabled = version.startswith('254')
                self.script('postinst', 'configure', '', systemd=version)
                self.script('prerm', 'upgrade', '0.2.0-1', systemd=version)
                self.assertEqual(os.path.lexists(self.link), enabled)
                self.script('postinst', 'configure', '0.1.0-1', systemd=version)
                self.assertEqual(os.path.lexists(self.link), enabled)
                self.script('prerm', 'remove', systemd=version)
                self.assertFalse(os.path.exists(os.path.dirname(self.link)))

    def test_other_drop_ins_stay(self):
        self.script('postinst', 'configure', '', systemd='254.26-1')
        other = os.path.join(self.root, DROP_INS, 'other.conf')
        with open(other, 'wb'):
            pass
        self.script('prerm', 'remove', systemd='254.26-1')
        self.assertEqual(os.listdir(os.path.dirname(other)), ['other.conf'])


@functools.cache
def deb():
    """The path of the package, which the first call makes."""
    folder = os.path.join(BUILD, 'Testing', 'package')
    shutil.rmtree(folder, ignore_errors=True)
    unittest.addModuleCleanup(shutil.rmtree, folder, ignore_errors=True)
    # Modes must not depend on the umask of the builder.
    made = subprocess.run([CPACK, '-G', 'DEB', '-B', folder, '--config', os.path.join(BUILD, 'CPackConfig.cmake')],
                          capture_output=True, text=True, check=False, umask=0o077)
    assert made.returncode == 0, made.stdout + made.stderr
    return glob.glob(os.path.join(folder, '*.deb'))[0]


class Package(server.Test):
    @classmethod
    def setUpClass(cls):
        cls.file = deb()

    def field(self, name):
        return self.command('dpkg-deb', '--field', self.file, name).strip()

    def extracted(self):
        folder = self.directory()
        self.command('dpkg-deb', '--raw-extract', self.file, folder)
        return folder

    def test_files_modes_and_owners(self):
        lines = [line.split(None, 5) for line in self.command('dpkg-deb', '--contents', self.file).splitlines()]
        self.assertEqual({line[5]: line[0] for line in lines if not line[5].endswith('/')}, FILES)
        self.assertEqual({line[1] for line in lines}, {'root/root'})
        self.assertEqual({line[0] for line in lines if line[5].endswith('/')}, {'drwxr-xr-x'})

    def test_dependencies(self):
        self.assertEqual(self.field('Package'), 'gpunbd')
        self.assertRegex(self.field('Version'), r'^\d+\.\d+\.\d+-1$')
        self.assertRegex(self.field('Depends'), r'\blibc6 \(>= .*\blibssl3')
        self.assertIn('systemd-standalone-sysusers | systemd-sysusers', self.field('Depends'))

    def test_maintainer_scripts(self):
        folder = os.path.join(self.extracted(), 'DEBIAN')
        with open(os.path.join(folder, 'conffiles'), encoding='utf-8') as file:
            self.assertEqual(file.read(), '/etc/gpunbd/gpunbd.yaml\n')
        for script in ('postinst', 'prerm', 'postrm'):
            self.assertEqual(os.stat(os.path.join(folder, script)).st_mode & 0o777, 0o755)
            self.command('sh', '-n', os.path.join(folder, script))

    def test_the_program_is_this_build_and_stripped(self):
        folder = self.extracted()
        program = os.path.join(folder, 'usr/bin/gpunbd')
        self.assertEqual(self.command(program, '--version'), self.command(server.PROGRAM, '--version'))
        self.assertIn(', stripped', self.command('file', program))
        with gzip.open(os.path.join(folder, 'usr/share/doc/gpunbd/changelog.Debian.gz'), 'rt', encoding='utf-8') as file:
            first = file.readline()
        self.assertEqual(re.match(r'gpunbd \((.*)\) ', first)[1], self.field('Version'))
        with gzip.open(os.path.join(folder, 'usr/share/man/man8/gpunbd.8.gz'), 'rt', encoding='utf-8') as file:
            self.assertIn('.Cm ping', file.read())

    def test_lintian(self):
        if not shutil.which('lintian'):
            server.skip('lintian is not installed (./dev setup installs it)')
        out = self.command('lintian', '--allow-root', '--fail-on', 'error,warning', '--tag-display-limit', '0', self.file, status=None)
        self.assertEqual((out, self.status), ('', 0))


class Installed(server.Test):
    """The package on a Debian 12 that has its dependencies and no network."""

    def setUp(self):
        if os.geteuid() != 0:
            server.skip('chroot needs root')
        if subprocess.run(['unshare', '--mount', '--pid', '--net', '--fork', 'true'], capture_output=True, check=False).returncode:
            server.skip('namespaces are not permitted')
        found = subprocess.run([os.path.join(server.ROOT, 'tests/vm/node.sh'), 'find', 'disks'],
                               capture_output=True, text=True, check=False)
        if found.returncode:
            server.skip(found.stderr.strip())
        self.root = self.directory()
        self.command('tar', '-C', self.root, '--exclude=./dev/*', '-xf', found.stdout.strip())
        shutil.copy(deb(), os.path.join(self.root, 'gpunbd.deb'))

    def within(self, script):
        """Runs a script in the system. Processes and mounts that it leaves end with it."""
        enter = 'mount -t proc proc "$1/proc"; mount --rbind /dev "$1/dev"; exec chroot "$@"'
        return self.command('unshare', '--mount', '--pid', '--net', '--fork', '--kill-child', 'sh', '-ec', enter, 'sh', self.root,
                            '/usr/bin/env', '-i', 'HOME=/root', 'LANG=C.UTF-8', 'DEBIAN_FRONTEND=noninteractive',
                            'PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin', 'sh', '-ec', script)

    def files(self):
        """The files of the package that exist."""
        return {path for path in FILES if os.path.lexists(os.path.join(self.root, path))}

    def test_install_use_upgrade_and_remove(self):
        self.within('dpkg -i /gpunbd.deb')
        self.assertEqual(self.files(), set(FILES))
        self.within("""
            systemd-tmpfiles --create gpunbd.conf
            export RUNTIME_DIRECTORY=/run/gpunbd  # as the unit does
            gpunbd check /etc/gpunbd/gpunbd.yaml
            setpriv --reuid gpunbd --regid gpunbd --init-groups gpunbd serve --background --config /etc/gpunbd/gpunbd.yaml
            test "$(stat -c '%U %G %a' /run/gpunbd/gpunbd.sock)" = 'gpunbd gpunbd 660'
            uri='nbd+unix:///?socket=/run/gpunbd/gpunbd.sock'
            nbdcopy /gpunbd.deb "$uri"
            nbdcopy "$uri" - | cmp -n "$(stat -c %s /gpunbd.deb)" - /gpunbd.deb
            gpunbd stop""")
        self.within('echo "# mine" >>/etc/gpunbd/gpunbd.yaml; dpkg -i /gpunbd.deb; grep -qx "# mine" /etc/gpunbd/gpunbd.yaml')
        self.within('dpkg --remove gpunbd')
        self.assertEqual(self.files(), {'./etc/gpunbd/gpunbd.yaml'})
        # The user remains, as with every package: it may own files.
        self.assertEqual(self.within('dpkg --purge gpunbd >/dev/null; find / -xdev -path "*gpunbd*" ! -path /gpunbd.deb ! -path "/run/*"'),
                         '')


if __name__ == '__main__':
    server.main()
