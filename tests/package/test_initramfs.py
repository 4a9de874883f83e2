"""Error handling of the hook and the scripts of config/packaging/initramfs, with stand-ins for the programs and functions of
an initramfs. vm.diskless shows that they boot a node."""
import os
import stat
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '../integration'))

import server  # noqa: E402

FOLDER = os.path.join(server.ROOT, 'config/packaging/initramfs')
PATHS = ('/scripts/functions', '/usr/share/initramfs-tools/hook-functions', '/proc/cmdline', '/run/initramfs',
         '/conf/param.conf', '/sbin/e2fsck')
FUNCTIONS = '''
panic() { echo "panic: $*"; [ -e "$HERE/repaired" ] || exit 1; TYPE=ext4 E2FSCK=0 FAILS=nothing; export TYPE E2FSCK FAILS; }
configure_networking() { echo configure_networking >>"$CALLS"; }
get_fstype() { echo "$TYPE"; [ "$TYPE" ]; }
manual_add_modules() { echo "modules $*" >>"$CALLS"; }
auto_add_modules() { echo "modules of $*" >>"$CALLS"; }
copy_exec() { echo "copy_exec ${1##*/}" >>"$CALLS"; }
'''
# Each stand-in logs its arguments, and then runs this.
PROGRAMS = {
    # The nth call exits with the nth status in $AWAY. A call after these succeeds.
    '@gpunbd': '''[ -e "$HERE/$3" ] || : >"$HERE/${3##*/}.attached"
        echo x >>"$HERE/${3##*/}.calls"; n=$(wc -l <"$HERE/${3##*/}.calls")
        for each in $AWAY; do n=$((n - 1)); if [ $n = 0 ]; then echo "no server: $each" >&2; exit "$each"; fi; done
        echo "gpunbd attach: $3 is ready" >&2
        while [ -e "$HERE" ]; do /bin/sleep 0.1; done''',  # the process runs until the end of the test
    'modprobe': '', 'mkdir': 'exec /bin/mkdir "$@"', 'sleep': 'exec /bin/sleep 0.1',
    'mount': 'case "$*" in *"$FAILS"*) exit 1 ;; esac', 'e2fsck': 'exit "${E2FSCK:-0}"',
}


class Initramfs(server.Test):
    def setUp(self):
        self.here = self.directory()
        for folder in ('programs', 'scripts', 'proc', 'run/initramfs', 'conf/conf.d', 'sbin', 'image/usr/bin',
                       'usr/share/initramfs-tools'):
            os.makedirs(os.path.join(self.here, folder))
        for path in ('scripts/functions', 'usr/share/initramfs-tools/hook-functions'):
            self.write(path, FUNCTIONS)
        for name, commands in PROGRAMS.items():
            self.write(f'programs/{name}', f'#!/bin/sh\necho "{name} $*" >>"$CALLS"\n{commands}\n')
        self.write('sbin/e2fsck', '')

    def write(self, path, text):
        server.write_file(os.path.join(self.here, path), text, 0o755)

    def read(self, path):
        path = os.path.join(self.here, path)
        return server.read_file(path) if os.path.exists(path) else ''

    def run_script(self, name, line='', status=0, argument='', **environment):
        """The output of a script, whose absolute paths are moved below `here`."""
        path = os.path.join(FOLDER, name)
        self.assertTrue(os.stat(path).st_mode & stat.S_IXUSR)
        text = server.read_file(path)
        for path in PATHS:
            text = text.replace(path, self.here + path)
        self.write('script', text)
        self.write('proc/cmdline', f'quiet {line}\n')
        self.write('calls', '')
        environment = {'HERE': self.here, 'CALLS': os.path.join(self.here, 'calls'), 'FAILS': 'nothing', 'TYPE': 'ext4',
                       'ROOT': '', 'rootmnt': '/root', 'CONFDIR': os.path.join(self.here, 'conf'),
                       'DESTDIR': os.path.join(self.here, 'image'),
                       'PATH': f'{self.here}/programs:/usr/bin:/bin', **environment}
        words = [argument] if argument else []
        output = self.command('/bin/sh', os.path.join(self.here, 'script'), *words, status=status,
                              environment=environment)
        self.calls = self.read('calls').splitlines()
        return output

    def test_disabled_by_default(self):
        for script in ('scripts/local-top/gpunbd', 'scripts/local-bottom/gpunbd', 'hooks/gpunbd'):
            self.assertEqual((self.run_script(script, 'root=/dev/sda1 ip=dhcp'), self.calls), ('', []))
        self.assertEqual(self.run_script('scripts/local-top/gpunbd', argument='prereqs'), 'udev\n')
        self.assertEqual(self.run_script('scripts/local-bottom/gpunbd', argument='prereqs'), '')

    def test_hook(self):
        self.write('conf/conf.d/gpunbd', 'MODULES=netboot\n')
        self.run_script('hooks/gpunbd')
        self.assertEqual(self.calls, ['modules nbd overlay ext4', 'modules of net', 'copy_exec gpunbd', 'copy_exec e2fsck'])
        self.assertEqual(os.readlink(os.path.join(self.here, 'image/usr/bin/@gpunbd')), 'gpunbd')
        os.remove(os.path.join(self.here, 'image/usr/bin/@gpunbd'))
        os.remove(os.path.join(self.here, 'sbin/e2fsck'))
        self.run_script('hooks/gpunbd')
        self.assertNotIn('copy_exec e2fsck', self.calls)

    def test_root_and_overlay_are_attached(self):
        output = self.run_script('scripts/local-top/gpunbd', 'gpunbd.root=nbd://a/b gpunbd.overlay=nbd://a/c=d')
        self.assertEqual(output, '')
        self.assertEqual([call for call in self.calls if not call.startswith('sleep')], [
            'modprobe nbd', 'configure_networking', '@gpunbd attach nbd://a/b /dev/nbd0 --dead-timeout 86400',
            '@gpunbd attach nbd://a/c=d /dev/nbd1 --dead-timeout 86400'])
        self.assertEqual(self.read('conf/param.conf'), 'ROOT=/dev/nbd0\n')

    def test_root_option_takes_precedence(self):
        self.run_script('scripts/local-top/gpunbd', 'gpunbd.root=nbd://a/b', ROOT='/dev/nbd0p2')
        self.assertEqual(self.read('conf/param.conf'), '')

    def test_an_unreachable_server_is_retried(self):
        output = self.run_script('scripts/local-top/gpunbd', 'gpunbd.root=nbd://a/b', AWAY='1 1 3 1')
        self.assertEqual(output.splitlines(), [f'no server: {each} (retrying every second)' for each in (1, 3, 1)])
        self.assertEqual(len([call for call in self.calls if call.startswith('@gpunbd')]), 5)
        self.assertEqual(self.read('conf/param.conf'), 'ROOT=/dev/nbd0\n')

    def test_an_invalid_uri_starts_a_shell(self):
        output = self.run_script('scripts/local-top/gpunbd', 'gpunbd.root=wrong', AWAY='1 2', status=1)
        self.assertEqual(output.splitlines()[-1], 'panic: no server: 2')
        self.assertEqual(self.read('conf/param.conf'), '')

    def mount_overlay(self, status=0, **environment):
        return self.run_script('scripts/local-bottom/gpunbd', 'gpunbd.root=a gpunbd.overlay=nbd://a/c', status=status,
                               **environment)

    def test_the_overlay_is_checked_and_mounted_over_the_root(self):
        below = f'{self.here}/run/initramfs/gpunbd'
        self.assertEqual(self.mount_overlay(E2FSCK='1'), '')  # 1: e2fsck has repaired errors
        self.assertEqual([call for call in self.calls if not call.startswith('mkdir')], [
            'e2fsck -p /dev/nbd1', f'mount -t ext4 /dev/nbd1 {below}/writable', 'modprobe overlay',
            f'mount -n -o move /root {below}/image',
            f'mount -t overlay -o lowerdir={below}/image,upperdir={below}/writable/upper,workdir={below}/writable/work '
            'overlay /root'])
        self.mount_overlay(TYPE='xfs')
        self.assertIn(f'mount -t xfs /dev/nbd1 {below}/writable', self.calls)
        self.assertNotIn('e2fsck -p /dev/nbd1', self.calls)

    def test_an_unusable_overlay_starts_a_shell(self):
        for environment, message in (({'TYPE': ''}, 'nbd://a/c has no file system; to make one, run: mkfs.ext4 /dev/nbd1'),
                                     ({'E2FSCK': '4'}, 'the file system of nbd://a/c has errors; run: e2fsck /dev/nbd1'),
                                     ({'FAILS': '-t ext4'}, 'cannot mount nbd://a/c'),
                                     ({'FAILS': '-t overlay'}, 'cannot mount nbd://a/c over the root')):
            with self.subTest(message):
                self.assertEqual(self.mount_overlay(status=1, **environment).splitlines()[-1], f'panic: {message}')

    def test_repairs_in_the_shell_are_retried(self):
        self.write('repaired', '')
        for environment in ({'TYPE': ''}, {'E2FSCK': '4'}, {'FAILS': '-t ext4'}):
            with self.subTest(environment):
                self.assertEqual(self.mount_overlay(**environment).count('panic: '), 1)
                self.assertTrue(self.calls[-1].startswith('mount -t overlay '))


if __name__ == '__main__':
    server.main()
