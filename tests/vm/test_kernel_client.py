"""The kernel's NBD client: a QEMU guest attaches /dev/nbd0, partitions it, makes file systems on it and uses them.

The guest consists of a kernel that `./dev setup` has unpacked, and an initramfs with busybox, coreutils' dd, nbd-client
and file system tools. Over TCP, the server runs on the host; over a Unix socket and over vsock (with libnbd's programs as
clients) it runs in the guest.
"""
import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '../integration'))
os.environ['PATH'] += ':/usr/sbin:/sbin'

import recipe  # noqa: E402
import server  # noqa: E402
import wire  # noqa: E402
from server import MiB  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
SIZE = 512 * MiB
EXPECTED = ['tcp-1-4096-xfs ok', 'tcp-4-512-ext4 ok', 'unix-1-512-ext4 ok', 'unix-4-4096-xfs ok', 'README ok',
            'server ended with 0', 'manual ok', 'vsock ok']
NETWORK = ('-netdev', 'user,id=net', '-device', 'virtio-net-pci,netdev=net,romfile=')
PROGRAMS = ('dd', 'nbd-client', 'mkfs.ext4', 'e2fsck', 'mkfs.xfs', 'xfs_repair', 'sfdisk', 'nbdinfo', 'nbdcopy')

server.need('qemu-system-x86_64', 'busybox', 'cpio', 'modinfo', *PROGRAMS)


def kernel():
    """(image, {module: path}) of the newest unpacked kernel."""
    found = subprocess.run([os.path.join(HERE, 'kernel.sh'), 'find'], capture_output=True, text=True, check=False)
    if found.returncode:
        server.skip(found.stderr.strip())
    folder = found.stdout.rstrip('\n')
    boot = os.path.join(folder, 'boot')
    images = sorted(name for name in os.listdir(boot) if name.startswith('vmlinuz-'))
    modules = {}
    for directory in ('lib/modules', 'usr/lib/modules'):
        for base, _, files in os.walk(os.path.join(folder, directory, images[-1].removeprefix('vmlinuz-'))):
            for name in files:
                if '.ko' in name:
                    modules[name.split('.ko')[0].replace('-', '_')] = os.path.join(base, name)
    for module in ('nbd', 'vsock_loopback'):
        if module not in modules:
            server.skip(f'no module {module} in {folder}')
    return os.path.join(boot, images[-1]), modules


IMAGE, MODULES = kernel()
BUSYBOX = shutil.which('busybox')
if 'dynamically linked' in subprocess.run(['file', '-L', BUSYBOX], capture_output=True, text=True, check=False).stdout:
    server.skip('busybox is not static (busybox-static is needed)')


class Initramfs:
    """A folder that becomes the guest's root file system."""

    def __init__(self, root, init):
        self.root = root
        self.order = []
        for directory in ('bin', 'lib', 'lib64', 'modules'):
            os.makedirs(os.path.join(root, directory))
        shutil.copy(BUSYBOX, os.path.join(root, 'bin/busybox'))
        shutil.copy(os.path.join(HERE, 'init/begin.sh'), root)
        shutil.copy(os.path.join(HERE, 'init', init), os.path.join(root, 'init'))
        os.chmod(os.path.join(root, 'init'), 0o755)

    def file(self, path, text):
        path = os.path.join(self.root, path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, 'w', encoding='ascii') as file:
            file.write(text)

    def program(self, path, name=None):
        """Adds a program and the shared libraries that it needs."""
        shutil.copy(path, os.path.join(self.root, 'bin', name or os.path.basename(path)))
        self.libraries(path)

    def programs(self, *names):
        """Adds programs of this machine."""
        for name in names:
            self.program(shutil.which(name))

    def libraries(self, path):
        linked = subprocess.run(['ldd', path], capture_output=True, text=True, check=True).stdout
        for library in re.findall(r'(/\S+) \(0x', linked):
            target = self.root + library
            os.makedirs(os.path.dirname(target), exist_ok=True)
            shutil.copy(library, target)

    def module(self, name):
        """Adds a module after its dependencies. A name that is not a module is built into the kernel."""
        if name not in MODULES or name in self.order:
            return
        path = MODULES[name]
        plain = os.path.join(self.root, 'modules', name)
        if path.endswith('.zst'):
            subprocess.run(['zstd', '-q', '-d', path, '-o', plain], check=True)
        elif path.endswith('.xz'):
            with open(plain, 'wb') as file:
                subprocess.run(['xz', '-dc', path], stdout=file, check=True)
        else:
            shutil.copy(path, plain)
        needs = subprocess.run(['modinfo', '-F', 'depends', path], capture_output=True, text=True, check=True).stdout
        for need in needs.strip().split(','):
            self.module(need.replace('-', '_'))
        self.order.append(name)

    def modules(self, *names):
        for name in names:
            self.module(name)

    def pack(self, path):
        with open(os.path.join(self.root, 'modules/order'), 'w', encoding='ascii') as file:
            file.writelines(f'{name}\n' for name in self.order)
        subprocess.run(['/bin/sh', '-c', 'find . | cpio --quiet -o -H newc -R 0:0 >"$0"', path], check=True, cwd=self.root)


def root(test, init, programs=(), modules=()):
    """The root file system of a guest that runs `init`, with gpunbd, programs of this machine, and modules."""
    initramfs = Initramfs(os.path.join(test.directory(), 'root'), init)
    initramfs.programs(*programs)
    initramfs.program(server.PROGRAM, 'gpunbd')
    initramfs.modules(*modules)
    return initramfs


def add_hog(initramfs):
    """Adds memory_hog, which is linked statically."""
    path = os.environ.get('GPUNBD_MEMORY_HOG', os.path.join(os.path.dirname(server.PROGRAM), 'memory_hog'))
    shutil.copy(path, os.path.join(initramfs.root, 'bin/memory_hog'))


def machine(test, initramfs, append='', network=('-net', 'none'), devices=(), memory=1536):
    """The command that starts a guest. The guest's console is the command's input and output."""
    image = os.path.join(test.directory(), 'initramfs')
    initramfs.pack(image)
    # One thread executes both CPUs in turn. With a thread for each, guests take twice as long, and a CPU sometimes executes an
    # instruction that the other one is patching, which ends the guest with "Oops: int3".
    # To speed up emulation: a simple CPU model, no mitigations, no self-tests of the guest's cryptography.
    return ['qemu-system-x86_64', '-accel', 'tcg,thread=single', '-cpu', 'Nehalem', '-m', str(memory), '-smp', '2',
            '-nodefaults', '-no-reboot', '-display', 'none', '-serial', 'stdio', *network, *devices,
            '-kernel', IMAGE, '-initrd', image,
            '-append', f'console=ttyS0 quiet panic=-1 mitigations=off cryptomgr.notests no_timer_check {append}']


def console(test, command, seconds):
    """What the guest of this command prints until it powers off, or until a time limit ends it."""
    try:
        return test.command(*command, seconds=seconds)
    except subprocess.TimeoutExpired as late:
        return f'{(late.stdout or b"").decode(errors="replace")}\nThe guest was still running after {seconds} s.'


def run(test, initramfs, expected, seconds=840, **guest):
    """A guest must print these results. If it does not, also prints its console."""
    done = console(test, machine(test, initramfs, **guest), seconds)
    results = re.findall(r'RESULT ([^\r\n]*)', done)
    for figure in re.findall(r'FIGURE [^\r\n]*', done):
        print(figure)
    if results != expected:
        print(done[-12000:], file=sys.stderr)
    test.assertEqual(results, expected)


def add(archive, name, content):
    member = tarfile.TarInfo(name)
    member.size = len(content)
    archive.addfile(member, io.BytesIO(content))


def pack_tree(path, folders):
    """Writes a tar archive for init: the regular files of {name: folder}, and their checksums."""
    sums = []
    with tarfile.open(path, 'w', format=tarfile.GNU_FORMAT) as tree:
        for name, folder in folders.items():
            for base, _, files in os.walk(folder):
                for file in sorted(files):
                    source = os.path.join(base, file)
                    if not os.path.isfile(source) or os.path.islink(source):
                        continue
                    inside = os.path.join('tree', name, os.path.relpath(source, folder))
                    with open(source, 'rb') as opened:
                        content = opened.read()
                    sums.append(f'{hashlib.md5(content).hexdigest()}  {inside}\n')
                    add(tree, inside, content)
        add(tree, 'sums', ''.join(sums).encode())


class KernelClient(server.Test):
    def boot(self, port):
        tree = os.path.join(self.directory(), 'tree.tar')
        pack_tree(tree, {'gone': os.path.dirname(os.path.dirname(MODULES['nbd'])), 'kept': os.path.dirname(os.__file__)})
        initramfs = root(self, 'kernel_client', PROGRAMS,
                         ('virtio_pci', 'virtio_net', 'virtio_blk', 'nbd', 'crc32c_generic', 'ext4', 'xfs', 'vsock_loopback'))
        modprobe, *mount, unmount = recipe.blocks('README.md', 'A mount in a minute')[2]
        self.assertEqual(modprobe, 'modprobe nbd')  # done by init
        initramfs.file('manual/mount', recipe.script(mount))
        initramfs.file('manual/unmount', recipe.script([unmount]))
        modprobe, *attached = recipe.blocks('server/manual/attach-and-mount.md', 'Attached devices')[0]
        self.assertEqual(modprobe, 'modprobe nbd')
        (serve, *swap), (keep,) = recipe.blocks('server/manual/swap.md', 'Swap by hand')[:2]
        for name, lines in (('attached', attached), ('swap', [serve, *swap]), ('kept_swap', [keep, *swap])):
            text = recipe.script(lines).replace('cuda:0', 'host').replace('8G', '32M')
            initramfs.file(f'manual/{name}', text.replace('gpunbd doctor swap', '{ gpunbd doctor swap || [ $? = 1 ]; }'))
        run(self, initramfs, EXPECTED, append=f'nbd.nbds_max=2 port={port}', network=NETWORK,
            devices=('-drive', f'file={tree},format=raw,if=virtio,readonly=on'))

    def test_tcp_and_unix(self):
        """One guest for both transports, because booting takes longest."""
        one = self.serve(size=SIZE, tcp=True, unix=False)
        self.boot(one.port)
        # The guest has discarded all data at its end, so no memory is allocated.
        with wire.connect(one.address) as client:
            self.assertEqual(client.status(0, SIZE)[1], [(SIZE, 3)])


if __name__ == '__main__':
    server.main()
