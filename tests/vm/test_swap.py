"""Swap on an export of a server in the same machine: a QEMU guest with a program that uses more memory than there is.

test_kernel_client.py describes the guest. Without the server's swap protection the guest would hang."""
import os
import re
import shutil
import subprocess

import test_kernel_client as guest
import server
from swapping_guest import CARD, Swapping

if server.SANITIZED:
    server.skip('a sanitizer needs more memory than the guest has')

# The ways to attach the export of a card.
WAYS = ('tcp-4-discard', 'unix-1', 'unix-4-discard', 'tcp-1', 'unix-4', 'tcp-1-discard', 'unix-1-discard', 'tcp-4')
RUNS = int(os.environ.get('GPUNBD_SWAP_RUNS', '1'))
INTEGRATION = os.path.dirname(server.__file__)
PYTHON = '/usr/bin/python3'


def add_cases(initramfs):
    """Adds the cases of integration.swap and the parts of Python that they need. Returns the number of cases."""
    initramfs.program(PYTHON)
    initramfs.programs('setpriv', 'prlimit')
    tests = os.path.join(initramfs.root, 'tests/integration')
    os.makedirs(tests)
    for name in ('test_swap.py', 'lavapipe.py', 'server.py', 'wire.py'):
        shutil.copy(os.path.join(INTEGRATION, name), tests)
    loaded = subprocess.run([PYTHON, '-B', '-c', 'import sys, server, wire, encodings.ascii, encodings.idna, pprint, difflib\n'
                             'for each in list(sys.modules.values()): print(getattr(each, "__file__", None) or "")'],
                            capture_output=True, text=True, check=True, cwd=INTEGRATION).stdout.split()
    for path in loaded:
        if not path.startswith('/usr/lib'):
            continue
        os.makedirs(initramfs.root + os.path.dirname(path), exist_ok=True)
        shutil.copy(path, initramfs.root + path)
        if path.endswith('.so'):
            initramfs.libraries(path)
    with open(os.path.join(tests, 'test_swap.py'), encoding='utf-8') as file:
        return len(re.findall(r'^    def test_', file.read(), re.MULTILINE))


class Swap(Swapping):
    def test_memory_of_the_guest(self):
        self.swap('host', 256, 640, ('host',), memory=1024, seconds=540)

    def test_memory_of_a_card(self):
        """The memory of a PCI card stands for that of a GPU: it is not part of the guest's memory."""
        ways = [WAYS[i % len(WAYS)] for i in range(RUNS)]
        self.swap('pci:00:04.0/2', 448, 180, ways, memory=256, devices=CARD, seconds=540 * max(1, RUNS / 5))

    def test_reclaim(self):
        self.swap_with_spill_memory('unix-2')

    def test_killed(self):
        """The root is a ramfs: unlike a tmpfs, it cannot be swapped out with the server and its programs."""
        initramfs = guest.root(self, 'swap_killed', modules=('nbd',))
        guest.add_hog(initramfs)
        guest.run(self, initramfs, ['killed ok'], append='rootfstype=ramfs hog=250', memory=512, seconds=540)

    def test_rights(self):
        """The swap protection with and without each capability. In the guest, root has all of them."""
        initramfs = guest.root(self, 'swap_rights')
        guest.run(self, initramfs, [f'{add_cases(initramfs)} cases passed, status 0'], memory=1024, seconds=540)


if __name__ == '__main__':
    server.main()
