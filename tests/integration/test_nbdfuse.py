"""A file system that e2fsprogs makes and checks through nbdfuse."""
import os
import stat
import subprocess

import server
from server import MiB

server.need('nbdfuse', 'mkfs.ext4', 'e2fsck', 'debugfs')
if not os.path.exists('/dev/fuse'):
    server.skip('there is no /dev/fuse')
SIZE = 512 * MiB


def can_mount():
    """Whether this machine permits FUSE mounts. Containers often do not."""
    import tempfile
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, 'probe')
        with open(path, 'wb'):
            pass
        child = subprocess.Popen(['nbdfuse', path, '[', 'nbdkit', '--exit-with-parent', 'null', '1M', ']'],
                                 stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        try:
            server.wait_until(lambda: child.poll() is not None or os.path.getsize(path) == MiB, 60, 'a mount')
        except AssertionError:
            pass
        mounted = child.poll() is None and os.path.getsize(path) == MiB
        if child.poll() is None:
            child.terminate()
        child.wait()
        return mounted, child.stderr.read().decode().strip()


MOUNTED, REASON = can_mount()
if not MOUNTED:
    server.skip(f'FUSE mounts are not permitted: {REASON}')


class NbdFuse(server.Test):
    def mount(self, one):
        path = os.path.join(self.directory(), 'disk')
        with open(path, 'wb'):
            pass
        self.run_beside(['nbdfuse', path, one.uri()])
        server.wait_until(lambda: os.path.getsize(path) == SIZE, 60, 'nbdfuse to mount')
        self.assertTrue(stat.S_ISREG(os.stat(path).st_mode))
        return path

    def test_file_system(self):
        disk = self.mount(self.serve(size=SIZE))
        self.command('mkfs.ext4', '-q', '-F', '-d', os.path.dirname(os.path.abspath(__file__)), disk)
        self.command('e2fsck', '-f', '-n', disk)
        listed = self.command('debugfs', '-R', 'ls -p /', disk)
        for name in ('server.py', 'wire.py'):
            self.assertIn(name, listed)
        back = os.path.join(self.directory(), 'back')
        self.command('debugfs', '-R', f'dump /server.py {back}', disk)
        self.assertTrue(server.same_file(back, server.__file__))


if __name__ == '__main__':
    server.main()
