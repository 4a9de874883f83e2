"""The commands of the manual and of README, run line by line. Each recipe has its own /etc, /run, /tmp and network, in
which the hosts of the examples are this machine. Host memory replaces GPUs, and large exports are smaller. A recipe that
needs the kernel's NBD client, systemd or similar is skipped with a reason that names the test in a virtual machine.
"""
import glob
import os
import re
import shlex
import subprocess
import sys

import server

sys.path.append(os.path.join(server.ROOT, 'tests/vm'))
import recipe  # noqa: E402

PAGES = ('README.md', 'config/CONFIGURATION.md', 'protocol/README.md', 'server/PERFORMANCE.md', 'docker/README.md',
         *sorted(glob.glob('server/manual/*.md', root_dir=server.ROOT)))
COMMANDS = re.compile(r'(gpunbd|nbd\w+|qemu-img|curl|mdadm|vgcreate|mkfs\.\w+|modprobe|systemctl|docker|kill|touch) |\./dev ')
STAYS = re.compile(r'gpunbd (serve|keep|attach) (?!.*--(systemd|list|run|background)\b)')
# Patterns of lines that cannot run here, and the reason. The first match counts.
ELSEWHERE = (
    (r'^\$ ', 'an example with output'),
    (r'\.\.\.', 'an incomplete command'),
    (r'^\./dev ', 'it builds gpunbd: tests/fresh/run.sh'),
    (r'^docker ', 'it needs Docker: docker.image'),
    (r'^debootstrap ', 'it makes a system: vm.diskless'),
    (r'systemctl |^editor ', 'it needs systemd: vm.systemd'),
    (r'vsock', 'it needs a guest with vsocks: vm.kernel_client'),
    (r'pci:', 'it needs a PCI card: vm.pci'),
    (r'/dev/nbd|^modprobe |hosts/', 'it needs the nbd module: tests/vm'),
    (r'cuda:1', 'it needs two GPUs: gpu.two_gpus'),
    (r'admin-4711|pidof', 'it contains a process id'),
    (r'--swap', 'it needs capabilities: vm.swap'),
)
SMALLER = ((r'\bcuda:0\b', 'host'), (r'\b(64|8|2)G\b', '64M'), (r'\b1G\b', '32M'))
# The configuration for recipes that do not start a server.
STAGE = '''
listeners:
  tcp: [{address: 127.0.0.1}]
  unix: [{path: /tmp/gpunbd.sock}, {path: /run/gpunbd.sock}, {path: /run/gpunbd/gpunbd.sock}]
exports: [{name: "", size: 64M, devices: [host]}, {name: scratch, size: 64M, devices: [host]}, {name: name, size: 64M, devices: [host]},
          {name: debian, size: 64M, devices: [host]}, {name: node1, size: 64M, devices: [host]}, {name: node2, size: 64M, devices: [host]}]
'''
HOSTS = '127.0.0.1 localhost storage.example.org node-7 host'
# Runs before a recipe: makes files that the surrounding text expects.
BEFORE = '''
uri='nbd+unix:///?socket=/tmp/gpunbd.sock'
truncate -s 16M disk.img image.ext4 empty.ext4
printf 'exports: [{name: a, size: 16M, devices: [host]}]\\n' >/etc/gpunbd.yaml
hash fusermount3 2>/dev/null || fusermount3() { umount "$2"; } # the README's alternative for root
case $block in
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
await_server() { # $1: log, $2: process id
    until grep -qs 'ready: ' "$1"; do
        kill -0 "$2" 2>/dev/null || fail "the server has ended: $(cat "$1")"
        sleep 0.05
    done
}
'''


def recipes():
    """Yields (page, heading, lines) for each block of commands."""
    for page in PAGES:
        with open(os.path.join(server.ROOT, page), encoding='utf-8') as file:
            headings = re.findall(r'^#+ (.*)$', file.read(), re.MULTILINE)
        for heading in headings:
            for text in [part for text in recipe.texts(page, heading) for part in text.split('\n\n')]:
                lines = [re.sub(r'  +# .*', '', line).rstrip() for line in text.splitlines()]
                if any(COMMANDS.search(line.removeprefix('$ ')) for line in lines):
                    yield page, heading, lines


def skip_reason(lines):
    return next((reason for pattern, reason in ELSEWHERE if any(re.search(pattern, line) for line in lines)), None)


def script_of(lines):
    """Yields the lines of a script that runs these commands, and waits until each started server is ready."""
    starts_server = any(STAYS.match(line) for line in lines)
    yield SYSTEM + f'block={shlex.quote(chr(10).join(lines))}' + BEFORE
    if not starts_server:
        yield f"cat >/tmp/stage.yaml <<'END'{STAGE}END"
        lines = ['gpunbd serve --config /tmp/stage.yaml', *lines]
    for number, line in enumerate(lines):
        for original, replacement in SMALLER:
            line = re.sub(original, replacement, line)
        if STAYS.match(line):
            yield f'{line.removesuffix("&")} 2>/tmp/log.{number} &\nawait_server /tmp/log.{number} $!'
        elif line.endswith('&'):
            yield line
        else:
            may_fail = ' || [ $? = 1 ]' if line.startswith('gpunbd doctor') else ''  # 1: doctor reports a problem
            yield f'{line}{may_fail} || fail {shlex.quote(line)}'
    yield 'echo recipe completed'


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
            reason = skip_reason(lines)
            if reason is None and any(line.startswith('nbdfuse ') for line in lines) and not os.access('/dev/fuse', os.W_OK):
                reason = 'there is no /dev/fuse'
            if reason:
                print(f'not run: {page}, {heading}: {lines[0]}: {reason}')
                continue
            with self.subTest(page=page, heading=heading, first=lines[0]):
                done = self.run_isolated('\n'.join(script_of(lines)))
                self.assertEqual((done.returncode, done.stdout.splitlines()[-1:]), (0, ['recipe completed']), done.stdout)
                ran += 1
        self.assertGreaterEqual(ran, 9)

    def test_failures_are_detected(self):
        """Includes a server that does not start."""
        if self.run_isolated('mount -t tmpfs none /run').returncode:
            server.skip('mount namespaces are not permitted')
        for lines in (['nbdinfo nbd://localhost:1/'], ['gpunbd serve --no-such-flag &', 'true'], ['false', 'true']):
            with self.subTest(lines=lines):
                done = self.run_isolated('\n'.join(script_of(lines)))
                self.assertEqual(done.returncode, 1, done.stdout)
                self.assertIn('FAILED: ', done.stdout)

    def test_servers_run_in_the_background(self):
        """A server in a recipe ends with & or has --background, or the next command would not run."""
        for page, heading, lines in recipes():
            for line in lines:
                if len(lines) > 1 and STAYS.match(line) and '...' not in line:
                    self.assertRegex(line, r'&$', f'{page}, {heading}')

    def test_paths(self):
        """Debian has no /etc/pki."""
        for page in PAGES:
            with open(os.path.join(server.ROOT, page), encoding='utf-8') as file:
                self.assertNotIn('/etc/pki', file.read(), page)


if __name__ == '__main__':
    server.main()
