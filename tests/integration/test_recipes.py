"""The commands of the manual and of README, run line by line as a reader pastes them. Each recipe has its own /etc, /run,
/tmp and network, in which the hosts of the examples are this machine. Host memory replaces GPUs, large exports are smaller,
and a function stands for systemctl. A recipe that needs more than this machine belongs to another test, which reads it from
the manual.
"""
import glob
import os
import re
import shlex
import shutil
import subprocess
import sys

import server

sys.path.append(os.path.join(server.ROOT, 'tests/vm'))
import recipe  # noqa: E402

PAGES = ('README.md', 'config/CONFIGURATION.md', 'protocol/README.md', 'server/PERFORMANCE.md', 'docker/README.md',
         *sorted(glob.glob('server/manual/*.md', root_dir=server.ROOT)))
COMMANDS = re.compile(r'(gpunbd|nbd\w+|qemu-img|curl|mdadm|vgcreate|mkfs\.\w+|modprobe|systemctl|docker|kill|touch) |\./dev ')
STAYS = re.compile(r'gpunbd (serve|keep|attach) (?!.*--(systemd|list|run|background)\b)')
STARTS_SERVER = re.compile(r'gpunbd (serve|keep) (?!.*--run\b)|systemctl enable --now gpunbd')
# Recipes that no test can run as they stand: patterns of a line.
NOT_A_RECIPE = (
    (r'^\$ ', 'an example with output'),
    (r'\.\.\.', 'an incomplete command'),
    (r'^docker (build|run|compose) ', 'it needs the Docker daemon; docker.image builds and runs the same with buildah'),
)
# (page, heading, a word of the recipe): the test that runs the recipe.
ELSEWHERE = {
    ('README.md', 'Two commands', './dev run'): 'tests/fresh/run.sh',
    ('README.md', 'Two commands', './dev test'): 'tests/fresh/run.sh',
    ('README.md', 'Install', './dev package'): 'tests/fresh/run.sh',
    ('README.md', 'A mount in a minute', '/dev/nbd0'): 'tests/vm/test_kernel_client.py',
    ('README.md', 'A mount in a minute', 'modprobe ublk_drv'): 'tests/vm/test_ublk.py',
    ('server/manual/attach-and-mount.md', 'Local devices with ublk', 'modprobe ublk_drv'): 'tests/vm/test_ublk.py',
    ('server/manual/attach-and-mount.md', 'ublk by systemd', 'ublk.conf'): 'tests/vm/test_systemd.py',
    ('server/manual/exports-at-run-time.md', 'Resize', 'resize2fs'): 'tests/vm/test_attach.py',
    ('config/CONFIGURATION.md', 'Several GPUs', 'cuda:1'): 'tests/gpu/test_two_gpus.py',
    ('server/manual/attach-and-mount.md', 'Attached devices', '--list'): 'tests/vm/test_kernel_client.py',
    ('server/manual/attach-and-mount.md', 'Attached devices', 'fstab'): 'tests/vm/test_shutdown.py',
    ('server/manual/attach-and-mount.md', 'Remote node', '/dev/nbd0'): 'tests/vm/test_attach_tls.py',
    ('server/manual/diskless-nodes.md', 'Diskless nodes', 'debootstrap'): 'tests/vm/test_diskless.py',
    ('server/manual/diskless-nodes.md', 'Diskless nodes', 'nbdcopy'): 'tests/vm/test_diskless.py',
    ('server/manual/many-hosts.md', 'By md', '/dev/md0'): 'tests/vm/test_many_hosts.py',
    ('server/manual/many-hosts.md', 'By LVM', '/dev/nbd1'): 'tests/vm/test_many_hosts.py',
    ('server/manual/origins.md', 'With bcache instead', 'bcache'): 'tests/vm/test_ublk.py',
    ('server/manual/sharing-a-gpu.md', 'A stripe over GPUs', 'layout: stripe'): 'tests/vm/test_systemd.py',
    ('server/manual/sharing-a-gpu.md', 'Memory of a PCI card', 'pci:'): 'tests/vm/test_pci.py',
    ('server/manual/swap.md', 'Swap by systemd', '/proc/swaps'): 'tests/vm/test_systemd.py',
    ('server/manual/swap.md', 'Swap by hand', '--swap'): 'tests/vm/test_kernel_client.py',
}
SMALLER = ((r'\bcuda:0\b', 'host'), (r'\b(64|16|8|2)G\b', '64M'), (r'\b(1|4)G\b', '32M'), (r'/usr/bin/gpunbd\b', '/run/programs/gpunbd'),
           (r'/var/lib/gpunbd\b', '/run/state'), (r'/backup\b', '/tmp/backup'))
# The configuration for recipes that do not start a server, and of the service.
STAGE = '''
listeners:
  tcp: [{address: 127.0.0.1}]
  unix: [{path: /tmp/gpunbd.sock}, {path: /run/gpunbd.sock}, {path: /run/gpunbd/gpunbd.sock}]
exports: [{name: "", size: 64M, devices: [host]}, {name: scratch, size: 64M, devices: [host], keep: true}, {name: name, size: 64M, devices: [host]},
          {name: debian, size: 64M, devices: [host]}, {name: node1, size: 64M, devices: [host]}, {name: node2, size: 64M, devices: [host]},
          {name: image, size: 64M, devices: [host]}, {name: monday, clone_of: image, read_only: true}]
'''
# For recipes with gpunbd reclaim. Kept contents cannot move to a file.
SPILLING = '''
devices: [{id: host, spill: [{file: /run/spill, size: 64M}]}]
exports: [{size: 64M, devices: [host]}]
'''
HOSTS = '127.0.0.1 localhost storage.example.org node-7 host'
# Runs before a recipe: makes files that the surrounding text expects.
BEFORE = '''
uri='nbd+unix:///?socket=/tmp/gpunbd.sock'
truncate -s 16M disk.img image.ext4 empty.ext4
mkdir /tmp/backup
cp /run/programs/gpunbd . # the checkout may be below /tmp, which is a new one here
hash fusermount3 2>/dev/null || fusermount3() { umount "$2"; } # the README's alternative for root
curl() { command curl -sS --fail-with-body "$@"; }
editor() { [ "$*" = /etc/gpunbd/gpunbd.yaml ]; } # it is there
start_service() { gpunbd keep --background -- serve --config /etc/gpunbd/gpunbd.yaml --pidfile /run/gpunbd/pid; }
systemctl() { # the service is a server under gpunbd keep
    case $* in
    daemon-reload) ;;
    'enable --now gpunbd') start_service ;;
    'reload gpunbd') kill -HUP "$(cat /run/gpunbd/pid)" ;;
    'kill -s USR2 --kill-whom=main gpunbd')
        old=$(cat /run/gpunbd/pid)
        kill -USR2 "$old"
        for _ in $(seq 300); do
            sleep 0.1
            [ "$(cat /run/gpunbd/pid)" = "$old" ] || return 0
        done
        return 1 ;;
    *) return 1 ;;
    esac
}
await_idle() { # a client may have ended before the server notices
    for _ in $(seq 600); do
        gpunbd status --json | grep -q '"connections":[1-9]' || return 0
        sleep 0.1
    done
    return 1
}
case $block in
*build/release*) # there alone
    mkdir -p build/release
    mv /run/programs/gpunbd build/release/ ;;
*/etc/gpunbd/alice*)
    gpunbd tls-setup /etc/gpunbd/tls --host node-7 --client alice >/dev/null
    cp -r /etc/gpunbd/tls/clients/alice /etc/gpunbd/alice ;;
*keys.psk*)
    gpunbd tls-setup /etc/gpunbd/psk --psk alice >/dev/null
    cp /etc/gpunbd/psk/keys.psk /etc/gpunbd/keys.psk ;;
esac
'''
# Runs as root in new namespaces, in a new folder below a new /tmp.
SYSTEM = r'''
set -e
mount -t tmpfs none /run
mkdir -p /run/etc /run/programs /run/gpunbd
cp -a --no-preserve=ownership /etc/. /run/etc 2>/dev/null || true # only root can read some of the files
cp "$GPUNBD_PROGRAM" /run/programs/gpunbd
mount --bind /run/etc /etc
mkdir -p /etc/gpunbd
echo "$HOSTS" >/etc/hosts
mount -t tmpfs none /tmp
mkdir /tmp/work
cd /tmp/work
export PATH=/run/programs:$PATH TMPDIR=/tmp RUNTIME_DIRECTORY=/run/gpunbd
/usr/bin/python3 - <<'END'
import fcntl, socket, struct
with socket.socket() as one:  # sets the loopback interface up
    fcntl.ioctl(one, 0x8914, struct.pack('16sh22x', b'lo', 1))
END
fail() {
    echo "FAILED: $*"
    exit 1
}
'''


def recipes():
    """Yields (page, heading, lines) for each block of commands."""
    for page in PAGES:
        headings = re.findall(r'^#+ (.*)$', server.read_file(os.path.join(server.ROOT, page)), re.MULTILINE)
        for heading in headings:
            for text in [part for text in recipe.texts(page, heading) for part in text.split('\n\n')]:
                lines = [re.sub(r'  +# .*', '', line).rstrip() for line in text.splitlines()]
                if any(COMMANDS.search(line.removeprefix('$ ')) for line in lines):
                    yield page, heading, lines


def other_test(page, heading, lines):
    """The test that runs this recipe, if this one cannot."""
    for (its_page, its_heading, word), test in ELSEWHERE.items():
        if (page, heading) == (its_page, its_heading) and any(word in line for line in lines):
            return test
    return None


def skip_reason(page, heading, lines):
    test = other_test(page, heading, lines)
    if test:
        return f'it belongs to {test}'
    return next((reason for pattern, reason in NOT_A_RECIPE if any(re.search(pattern, line) for line in lines)), None)


def reads_recipe(test, page, heading):
    """Whether a test takes this section of the manual; that of ./dev has the commands themselves."""
    text = server.read_file(os.path.join(server.ROOT, test))
    if test.endswith('.sh'):
        return './dev run' in text and './dev test' in text
    return re.search(rf"""['/]{re.escape(os.path.basename(page))}', '{re.escape(heading)}'""", text) is not None


def has_vulkan():
    devices = subprocess.run([server.PROGRAM, 'devices'], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
    return 'vulkan:0' in devices.stdout.splitlines()


def script_of(lines):
    """Yields the lines of a script that runs these commands. Unless they start a server, one runs before them."""
    yield SYSTEM + f'block={shlex.quote(chr(10).join(lines))}' + BEFORE
    stage = SPILLING if any('gpunbd reclaim' in line for line in lines) else STAGE
    yield f"cat >/etc/gpunbd/gpunbd.yaml <<'END'{stage}END"
    if any('USR2' in line or 'systemctl reload' in line for line in lines):
        yield 'start_service'
    elif not any(STARTS_SERVER.match(line) for line in lines):
        yield 'gpunbd serve --background --config /etc/gpunbd/gpunbd.yaml'
    if any(re.match('gpunbd export (resize|snapshot|save)', line) for line in lines):
        yield 'gpunbd export create fast --size 32M --device host'
    for line in re.sub(r'\\\n *', '', '\n'.join(lines)).split('\n'):
        for original, replacement in SMALLER:
            line = re.sub(original, replacement, line)
        if line.startswith('gpunbd export remove '):  # it refuses an export with clients
            yield 'await_idle || fail "clients are connected"'
        if line.endswith('&'):
            yield line
        else:
            may_fail = ' || [ $? = 1 ]' if line.startswith('gpunbd doctor') else ''  # 1: doctor reports a problem
            yield f'{line}{may_fail} || fail {shlex.quote(line)}'
    yield 'echo; echo recipe completed'


class Recipes(server.Test):
    def run_isolated(self, script):
        as_root = [] if os.geteuid() == 0 else ['--user', '--map-root-user']
        return subprocess.run(['unshare', *as_root, '--mount', '--net', '--pid', '--fork', '--kill-child', '--mount-proc',
                               'bash', '-c', script], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, check=False, timeout=300,
                              env={**os.environ, 'HOSTS': HOSTS, 'GPUNBD_PROGRAM': os.path.abspath(server.PROGRAM)})

    def test_recipes(self):
        server.need('unshare', 'nbdinfo', 'nbdcopy', 'nbdfuse', 'qemu-img', 'mkfs.ext4')
        if self.run_isolated('mount -t tmpfs none /run').returncode:
            server.skip('mount namespaces are not permitted')
        ran = 0
        for page, heading, lines in recipes():
            reason = skip_reason(page, heading, lines)
            if reason is None and any(line.startswith('nbdfuse ') for line in lines) and not os.access('/dev/fuse', os.W_OK):
                reason = 'there is no /dev/fuse'
            if reason is None and any(line.startswith('curl ') for line in lines) and not shutil.which('curl'):
                reason = 'curl is not installed'
            if reason is None and any('vulkan:0' in line for line in lines) and not has_vulkan():
                reason = 'there is no Vulkan driver'
            if reason:
                print(f'not run: {page}, {heading}: {lines[0]}: {reason}')
                continue
            with self.subTest(page=page, heading=heading, first=lines[0]):
                done = self.run_isolated('\n'.join(script_of(lines)))
                self.assertEqual((done.returncode, 'recipe completed' in done.stdout.splitlines()), (0, True), done.stdout)
                ran += 1
        self.assertGreaterEqual(ran, 20)

    def test_the_first_page_in_its_order(self):
        """README's recipes also work one after the other, in the same shell and on the same servers."""
        if self.run_isolated('mount -t tmpfs none /run').returncode:
            server.skip('mount namespaces are not permitted')
        lines = [line for page, heading, block in recipes() if heading == 'A mount in a minute' for line in block
                 if not skip_reason(page, heading, block) and (os.access('/dev/fuse', os.W_OK) or 'nbdfuse disk "$uri" &' not in block)]
        done = self.run_isolated('\n'.join(script_of(lines)))
        self.assertEqual((done.returncode, 'recipe completed' in done.stdout.splitlines()), (0, True), done.stdout)

    def test_recipes_of_other_tests(self):
        """Each entry of ELSEWHERE is a recipe, and the test reads it from the manual."""
        blocks = list(recipes())
        for (page, heading, word), test in ELSEWHERE.items():
            with self.subTest(page=page, heading=heading, word=word):
                self.assertTrue(any((page, heading) == block[:2] and any(word in line for line in block[2]) for block in blocks))
                self.assertTrue(reads_recipe(test, page, heading), f'{test} does not run it')

    def test_failures_are_detected(self):
        """Includes a server that does not start."""
        if self.run_isolated('mount -t tmpfs none /run').returncode:
            server.skip('mount namespaces are not permitted')
        for lines in (['nbdinfo nbd://localhost:1/'], ['gpunbd serve --background --no-such-flag', 'true'], ['false', 'true']):
            with self.subTest(lines=lines):
                done = self.run_isolated('\n'.join(script_of(lines)))
                self.assertEqual(done.returncode, 1, done.stdout)
                self.assertIn('FAILED: ', done.stdout)

    def test_servers_run_in_the_background(self):
        """A server in a recipe has --background, or the next command would not run, or run too early."""
        for page, heading, lines in recipes():
            for line in lines:
                if len(lines) > 1 and '...' not in line:
                    self.assertIsNone(STAYS.match(line), f'{page}, {heading}: {line}')

    def test_paths(self):
        """Debian has no /etc/pki."""
        for page in PAGES:
            self.assertNotIn('/etc/pki', server.read_file(os.path.join(server.ROOT, page)), page)


if __name__ == '__main__':
    server.main()
