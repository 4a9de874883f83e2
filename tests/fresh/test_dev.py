"""./dev itself, in a copy of its own whose path has a space and no .git, with stand-ins for the programs it calls."""
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, '../integration'))

import server  # noqa: E402

ROOT = os.path.realpath(os.path.join(HERE, '../..'))

# Each writes down how it was called, then does this.
STAND_INS = {
    'id': 'echo ${UID_SAID:-0}',
    'sudo': '[ "$SUDO_MAY" ] || exit 1; [ "$1" = -n ] && shift; exec "$@"',
    'dpkg-query': 'for word; do case " $LACKING " in *" $word "*) ;; *) echo "installed $word" ;; esac; done',
    'apt-get': '''case "$*" in *--print-uris*) echo "'http://x/y.deb' y.deb 3000000 MD5:0"; exit ;; esac
                  if [ "$APT_FAILS" ]; then echo "E: Unable to locate package $APT_FAILS"; exit 100; fi''',
    'cmake': '''case "$*" in
                  *--build*) mkdir -p build/release
                     printf '#!/bin/sh\\necho "in $PWD:" "$@"\\n' >build/release/gpunbd; chmod +x build/release/gpunbd ;;
                  esac''',
    'clang-format-16': 'printf "formatted: %s\\n" "$@"',
    'shellcheck': '', 'clang-tidy-16': '', 'run-clang-tidy-16': '',
}


def distribution():
    with open('/etc/os-release', encoding='utf-8') as file:
        told = dict(line.rstrip().split('=', 1) for line in file if '=' in line)
    return f"{told.get('ID', '')}-{told.get('VERSION_ID', '')}".replace('"', '')


SET_UP_HERE = distribution() in ('debian-12', 'ubuntu-24.04')


class Dev(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix='gpunbd dev ')
        self.addCleanup(folder.cleanup)
        self.path = os.path.join(folder.name, 'check out')
        self.elsewhere = os.path.join(folder.name, 'elsewhere')
        self.programs = os.path.join(folder.name, 'programs')
        self.calls_path = os.path.join(folder.name, 'calls')
        for path in ('tests/vm', 'tests/protocol', 'build/x', '.hidden', '.ci'):
            os.makedirs(os.path.join(self.path, path))
        os.mkdir(self.elsewhere)
        os.mkdir(self.programs)
        for name in ('dev', 'tests/vm/kernel.sh', 'tests/summary.py'):
            shutil.copy(os.path.join(ROOT, name), os.path.join(self.path, name))
        with open(os.path.join(self.path, 'tests/vm/node.sh'), 'w', encoding='ascii') as file:
            file.write('#!/bin/sh\necho "node.sh $1" >>"$CALLS"\nexit "${NO_NODE:-0}"\n')
        os.chmod(file.name, 0o755)
        for name, does in STAND_INS.items():
            path = os.path.join(self.programs, name)
            with open(path, 'w', encoding='ascii') as file:
                file.write(f'#!/bin/sh\nprintf "%s\\n" "{name} $*" >>"$CALLS"\n{does}\n')
            os.chmod(path, 0o755)
        self.kernel = os.path.join(folder.name, 'a kernel')
        os.makedirs(os.path.join(self.kernel, 'boot'))
        open(os.path.join(self.kernel, 'boot/vmlinuz-1'), 'w', encoding='ascii').close()

    def dev(self, *arguments, **environment):
        """Runs ./dev from another folder; without an environment of its own nothing is missing."""
        environment = {'PATH': f'{self.programs}:/usr/bin:/bin', 'CALLS': self.calls_path,
                       'GPUNBD_VM_CACHE': self.kernel, **environment}
        done = subprocess.run([os.path.join(self.path, 'dev'), *arguments], capture_output=True, text=True,
                              stdin=subprocess.DEVNULL, env=environment, cwd=self.elsewhere, check=False)
        self.out, self.errors = done.stdout, done.stderr
        return done.returncode

    def calls(self, program):
        if not os.path.exists(self.calls_path):
            return []
        with open(self.calls_path, encoding='utf-8') as file:
            lines = file.read().splitlines()
        return [line.removeprefix(f'{program} ') for line in lines if line.split(' ')[0] == program]

    def need_packages(self):
        if not SET_UP_HERE:
            self.skipTest(f'packages are installed on Debian 12 and Ubuntu 24.04 only, this is {distribution()}')

    def test_help(self):
        self.assertEqual(self.dev('help'), 0)
        self.assertLessEqual(max(map(len, self.out.splitlines())), 80)
        self.assertEqual((self.dev(), self.out), (2, ''))
        self.assertIn('usage:', self.errors)

    def test_what_is_not_known(self):
        self.assertEqual(self.dev('biuld'), 2)
        self.assertEqual(self.errors, "dev: there is no command 'biuld' (./dev help lists them)\n")
        self.assertEqual(self.dev('test', 'release', 'relaese', LACKING='cmake'), 1)
        self.assertEqual(self.errors, "dev: there is no preset 'relaese'; there are: release debug asan tsan\n")
        self.assertEqual(self.calls('apt-get') + self.calls('cmake'), [])

    def test_run(self):
        self.assertEqual(self.dev('run', '--config', 'my own.yaml'), 0)
        # Relative paths are those of the folder in which it was typed.
        self.assertEqual(self.out, f'in {self.elsewhere}: serve --config my own.yaml\n')
        self.assertEqual(self.errors.splitlines(),
                         ['dev: built build/release/gpunbd, starting: gpunbd serve --config my own.yaml'])
        self.assertEqual(self.calls('apt-get') + self.calls('sudo'), [])

    def test_root_installs(self):
        self.need_packages()
        self.assertEqual(self.dev('run', LACKING='cmake ninja-build doctest-dev clang-16'), 0)
        self.assertIn(': serve\n', self.out)
        self.assertEqual(self.errors.splitlines()[:-1],
                         ['setup: building needs packages (3 MB to fetch), installing: cmake ninja-build'])
        self.assertTrue(self.calls('apt-get')[0].endswith('update'))
        self.assertTrue(self.calls('apt-get')[-1].endswith(' cmake ninja-build'))
        self.assertEqual(self.calls('sudo'), [])

    def test_sudo_installs(self):
        self.need_packages()
        self.assertEqual(self.dev('run', LACKING='cmake', UID_SAID='1000', SUDO_MAY='yes'), 0)
        self.assertEqual(len(self.calls('sudo')), 3)  # may it, update, install
        self.assertTrue(self.calls('sudo')[-1].endswith(' cmake'))

    def test_nobody_installs(self):
        self.need_packages()
        lacking = 'cmake doctest-dev fio clang-16 clang-tidy-16'
        for command, wanted in (('run', 'cmake'), ('test', 'cmake doctest-dev fio'), ('bench', 'cmake doctest-dev'),
                                ('lint', 'clang-tidy-16 cmake doctest-dev'), ('fuzz', 'clang-16 cmake doctest-dev'),
                                ('gpu-test', 'cmake doctest-dev'),
                                ('setup', 'clang-16 clang-tidy-16 cmake doctest-dev fio')):
            with self.subTest(command):
                self.assertEqual(self.dev(command, LACKING=lacking, UID_SAID='1000'), 1)
                lines = self.errors.splitlines()
                self.assertEqual([line.strip() for line in lines[1:-2]], wanted.split())
                self.assertEqual(lines[-1], '  apt-get update && apt-get install -y --no-install-recommends ' + wanted)
        self.assertEqual(self.calls('apt-get') + self.calls('cmake'), [])

    def test_apt_fails(self):
        self.need_packages()
        self.assertEqual(self.dev('run', LACKING='cmake fio ninja-build', APT_FAILS='ninja-build'), 1)
        self.assertEqual(self.errors.splitlines()[-1],
                         'dev: apt-get could not install cmake ninja-build: E: Unable to locate package ninja-build '
                         '(GPUNBD_NO_SETUP=1 goes on without)')
        self.assertEqual(self.calls('cmake'), [])

    def test_no_setup(self):
        self.assertEqual(self.dev('run', LACKING='cmake', UID_SAID='1000', GPUNBD_NO_SETUP='1'), 0)
        self.assertEqual(self.calls('dpkg-query') + self.calls('apt-get'), [])

    def test_no_kernel(self):
        """The kernel of tests/vm that cannot be had stops nothing, and leaves nothing behind."""
        self.need_packages()
        before = os.listdir(self.path)
        for cache in ('/proc/gpunbd/kernel', '/dev/null/kernel'):
            self.assertEqual(self.dev('setup', GPUNBD_VM_CACHE=cache), 0)
            self.assertIn('kernel for tests/vm: ', self.errors)
            self.assertIn('setup: without that kernel, the tests in tests/vm are skipped\n', self.errors)
            self.assertEqual(self.out, 'setup: everything is there\n')
            self.assertEqual(os.listdir(self.path), before)

    def test_no_node(self):
        """The system of diskless nodes: made where it is missing, and nothing stops where it cannot be."""
        self.need_packages()
        self.assertEqual(self.dev('setup'), 0)
        self.assertEqual(self.calls('node.sh'), ['find'])
        self.assertEqual(self.dev('setup', NO_NODE='1'), 0)
        self.assertEqual(self.calls('node.sh'), ['find', 'find', 'make'])
        self.assertIn('setup: without that system, the test of diskless nodes is skipped\n', self.errors)

    def test_lint_without_git(self):
        for name in ('a b.cpp', 'tests/protocol/c.hpp', 'build/x/not.cpp', '.hidden/not.hpp', 'd.cu', 'e.txt'):
            with open(os.path.join(self.path, name), 'w', encoding='ascii') as file:
                file.write('\n')
        self.assertEqual(self.dev('lint'), 0, self.errors)
        formatted = [line.removeprefix('formatted: ') for line in self.out.splitlines() if line.startswith('formatted: ')]
        self.assertEqual(sorted(formatted[2:]), ['./a b.cpp', './d.cu', './tests/protocol/c.hpp'])

    def test_tests_that_did_not_run(self):
        """A build that gives no tests is a failure, and the last line still has the numbers."""
        ctest = os.path.join(self.programs, 'ctest')
        with open(ctest, 'w', encoding='ascii') as file:
            file.write('#!/bin/sh\necho no tests >&2\nexit 8\n')
        os.chmod(ctest, 0o755)
        self.assertEqual(self.dev('test', 'release', 'asan'), 1)
        self.assertEqual(self.out.splitlines()[-1], '0 passed, 2 failed, 0 skipped')


if __name__ == '__main__':
    server.main()
