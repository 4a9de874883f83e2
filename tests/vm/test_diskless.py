"""Diskless nodes according to server/manual/diskless-nodes.md: two nodes boot Debian with systemd from one image. The first
has a writable overlay, the second a clone of the image. The server is killed repeatedly while they boot and shut down.

The test runs the code blocks of the manual's chapter; `Recipe` makes the necessary changes."""
import os
import re
import shlex
import subprocess
import threading
import time

import test_kernel_client as guest
import kept
from recipe import texts
import server

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.environ.get('GPUNBD_BUILD', os.path.dirname(server.PROGRAM))
KERNEL = os.path.basename(guest.IMAGE).removeprefix('vmlinuz-')
MODULES = guest.MODULES['nbd'].split(f'/{KERNEL}/')[0] + f'/{KERNEL}'

server.need('chroot', 'depmod', 'cmake', 'zstd')
if os.geteuid() != 0:
    server.skip('needs root, for chroot')
FOUND = subprocess.run([os.path.join(HERE, 'node.sh'), 'find'], capture_output=True, text=True, check=False)
if FOUND.returncode:
    server.skip(FOUND.stderr.strip())


class Recipe:
    """The chapter with these changes: the system comes from an archive, the program and the kernel are those of the
    tests, the server runs under `gpunbd keep`, and the guests reach this machine as 10.0.2.2."""

    def __init__(self, test, port):
        self.test = test
        self.port = port
        self.folder = test.directory()
        self.making, self.configuration, self.filling, self.command_line = texts('server/manual/diskless-nodes.md', 'Diskless nodes')
        self.cloning, _, self.clone_command_line = texts('server/manual/diskless-nodes.md', 'A clone for each node')

    def run(self, commands, replaced):
        """`replaced`: {start of a line: replacement of the line}. Each line must exist."""
        lines = commands.splitlines()
        for start, instead in replaced.items():
            assert [line for line in lines if line.startswith(start)], f'{start!r} is not in the chapter'
            lines = [instead if line.startswith(start) else line for line in lines]
        self.test.command('/bin/bash', '-euxc', '\n'.join(lines), cwd=self.folder, seconds=540)

    def make(self):
        archive, boot, modules, build = (
            shlex.quote(word) for word in (FOUND.stdout.strip(), os.path.dirname(guest.IMAGE), MODULES, BUILD))
        with open(os.path.join(HERE, 'node.sh'), encoding='utf-8') as file:
            packages = re.search(r'^packages=(\S+)$', file.read(), re.MULTILINE)[1]
        self.run(self.making, {
            f'debootstrap --variant=minbase --include={packages},linux-image-amd64 bookworm node':
                f'mkdir node; tar -C node --zstd -xf {archive}; cp {boot}/vmlinuz-{KERNEL} {boot}/config-{KERNEL} node/boot/\n'
                f'mkdir -p node/lib/modules; cp -a {modules} node/lib/modules/; chroot node depmod {KERNEL}',
            'cp gpunbd_': f'cmake --install {build} --prefix "$PWD/node/usr" --strip >/dev/null',
            'chroot node apt-get install': '! chroot node ldd /usr/bin/gpunbd | grep "not found"',
            'chroot node update-initramfs -u': f'chroot node update-initramfs -c -k {KERNEL} 2>&1'})

    def config(self):
        template = [line for line in self.cloning.splitlines() if 'clone_per_client' in line]
        assert len(template) == 1
        text = self.configuration.rstrip('\n') + '\n' + template[0] + '\n'
        text = text.replace('/run/gpunbd/gpunbd.sock', '{socket}')
        text = text.replace('{address: 10.1.0.1}', f'{{address: 127.0.0.1, port: {self.port}}}')
        return re.sub(r'10\.1\.0\.[0-9/]+', '127.0.0.1', text)

    def fill(self, socket):
        self.run(self.filling.replace('/run/gpunbd/gpunbd.sock', socket), {'systemctl restart gpunbd': ':'})

    def boot(self, node):
        if node == 'node1':
            words = self.command_line.strip()
        else:
            words = f'{self.clone_command_line.strip()} systemd.hostname={node}'
        words = words.replace('10.1.0.1', f'10.0.2.2:{self.port}')
        return Node(words, os.path.join(self.folder, f'node/boot/initrd.img-{KERNEL}'))


class Node:
    """A machine without a disk, and the output of its serial console."""

    def __init__(self, command_line, initramfs):
        self.said = ''
        self.lock = threading.Lock()
        self.process = subprocess.Popen(
            ['qemu-system-x86_64', '-accel', 'tcg,thread=multi', '-cpu', 'Nehalem', '-m', '768', '-smp', '1', '-nodefaults',
             '-no-reboot', '-display', 'none', '-serial', 'stdio',
             '-netdev', 'user,id=net', '-device', 'virtio-net-pci,netdev=net,romfile=',
             '-kernel', guest.IMAGE, '-initrd', initramfs, '-append',
             f'console=ttyS0 loglevel=4 panic=-1 mitigations=off cryptomgr.notests no_timer_check {command_line}'],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, preexec_fn=server.die_with_parent)
        self.reader = threading.Thread(target=self.read)
        self.reader.start()

    def read(self):
        while part := os.read(self.process.stdout.fileno(), 65536):
            with self.lock:
                self.said += part.decode('utf-8', 'replace')

    def type(self, text):
        """Sends a line. Output before it is discarded."""
        with self.lock:
            self.said = ''
        os.write(self.process.stdin.fileno(), text.encode() + b'\r')

    def wait(self, pattern, seconds=400):
        end = time.monotonic() + seconds
        while not (found := re.search(pattern, self.said)):
            if time.monotonic() > end or self.process.poll() is not None:
                raise AssertionError(f'timeout for {pattern!r}:\n{self.said[-6000:]}')
            time.sleep(0.05)
        return found

    def log_in(self, name):
        self.wait(rf'{name} login: ')
        self.type('root')
        self.wait('Password: ')
        self.type('secret')
        self.wait(rf'root@{name}:~# ')

    def run(self, command):
        """The output of a command, which must succeed."""
        self.type(f'{command}; echo "<"ended $?">"')
        ended = self.wait(r'(?s)\n(.*)<ended (\d+)>')
        if ended[2] != '0':
            raise AssertionError(f'{command}: {self.said}')
        self.wait(r'root@\w+:~# ')
        return re.sub(r'\r|\x1b\[[?0-9;]*[A-Za-z]', '', ended[1])

    def power_off(self, late):
        """`late` is called when all units have stopped, and before file systems are unmounted."""
        self.type('systemctl poweroff')
        self.wait('Reached target .*poweroff.target')
        late()
        self.process.wait(400)
        self.reader.join()
        return self.said

    def end(self):
        self.process.kill()
        self.process.wait()
        self.reader.join()


class Diskless(kept.Test):
    def boot(self, recipe, name):
        node = recipe.boot(name)
        self.addCleanup(node.end)
        return node

    def contents(self, one, name):
        path = os.path.join(self.directory(), 'contents')
        self.command('nbdcopy', f'nbd+unix:///{name}?socket={one.path}', path)
        return path

    def power_off(self, node, late):
        said = node.power_off(late)
        self.assertRegex(said, 'reboot: Power down')
        self.assertNotRegex(said, 'I/O error|EXT4-fs error|[Ff]ailed to unmount|[Ff]ailed to remount|Waiting for process')

    def test_two_nodes(self):
        recipe = Recipe(self, server.free_port())
        recipe.make()
        one = self.keep(config=recipe.config())
        recipe.fill(one.path)
        nodes = {name: self.boot(recipe, name) for name in ('node1', 'node2')}
        # In the initramfs, at the start of systemd, and while units run.
        for stage in ('Begin: Mounting root file system', 'Welcome to ', 'Reached target .*sysinit.target'):
            for node in nodes.values():
                node.wait(stage)
                one.kill_and_wait()
        for name, node in nodes.items():
            node.log_in(name)
            self.assertIn('dead: 1 of 1 connections', node.run('cat /run/initramfs/gpunbd-nbd0.log'))
            node.run(f'echo of {name} >/root/file; rm /etc/debian_version')
        nodes['node1'].run('findmnt -no FSTYPE / | grep overlay')
        self.assertRegex(nodes['node1'].run('cat /proc/mounts'), r'/dev/nbd0 /run/initramfs/gpunbd/image ext4 ro,')
        nodes['node2'].run('findmnt -no FSTYPE / | grep ext4; test $(blockdev --getsize64 /dev/nbd0) = $((4 << 30)); resize2fs /dev/nbd0')
        for node in nodes.values():
            self.power_off(node, one.kill_and_wait)
        self.assertTrue(server.same_file(self.contents(one, 'debian'), os.path.join(recipe.folder, 'image.ext4')))
        for name in ('node1', 'node/127.0.0.1'):
            path = self.contents(one, name)
            # The journal needs no replay, and the file system no repair.
            self.assertNotIn('needs_recovery', self.command('dumpe2fs', '-h', path))
            self.command('e2fsck', '-fn', path)
        node = self.boot(recipe, 'node2')
        node.log_in('node2')
        self.assertEqual(node.run('cat /root/file'), 'of node2\n')
        node.run('test ! -e /etc/debian_version')
        self.power_off(node, one.kill_and_wait)


if __name__ == '__main__':
    server.main()
