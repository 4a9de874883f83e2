"""./dev, in a copy whose path has a space and no .git. Stand-ins replace the programs that it calls."""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, '../integration'))

import server  # noqa: E402

ROOT = os.path.realpath(os.path.join(HERE, '../..'))

# Each stand-in logs its arguments, and then runs this.
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
        fields = dict(line.rstrip().split('=', 1) for line in file if '=' in line)
    return f"{fields.get('ID', '')}-{fields.get('VERSION_ID', '')}".replace('"', '')


SUPPORTED = distribution() in ('debian-12', 'ubuntu-24.04')


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
        for name, commands in STAND_INS.items():
            self.stand_in(name, commands)
        self.kernel = os.path.join(folder.name, 'a kernel')
        os.makedirs(os.path.join(self.kernel, 'boot'))
        open(os.path.join(self.kernel, 'boot/vmlinuz-1'), 'w', encoding='ascii').close()

    def stand_in(self, name, commands):
        path = os.path.join(self.programs, name)
        with open(path, 'w', encoding='ascii') as file:
            file.write(f'#!/bin/sh\nprintf "%s\\n" "{name} $*" >>"$CALLS"\n{commands}\n')
        os.chmod(path, 0o755)

    def dev(self, *arguments, **environment):
        """Runs ./dev from another folder. By default no package is missing."""
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
        if not SUPPORTED:
            self.skipTest(f'./dev installs packages on Debian 12 and Ubuntu 24.04 only, this is {distribution()}')

    def test_help(self):
        self.assertEqual(self.dev('help'), 0)
        self.assertLessEqual(max(map(len, self.out.splitlines())), 80)
        self.assertEqual((self.dev(), self.out), (2, ''))
        self.assertIn('usage:', self.errors)

    def test_unknown_arguments(self):
        self.assertEqual(self.dev('biuld'), 2)
        self.assertEqual(self.errors, "dev: there is no command 'biuld' (./dev help lists the commands)\n")
        self.assertEqual(self.dev('test', 'release', 'relaese', LACKING='cmake'), 1)
        self.assertEqual(self.errors, "dev: no preset or test is called 'relaese'; presets: release debug asan tsan; "
                                      "tests: ctest --preset release -N\n")
        self.assertEqual(self.calls('apt-get') + self.calls('cmake'), [])

    def test_run(self):
        self.assertEqual(self.dev('run', '--config', 'my own.yaml'), 0)
        # A relative path refers to the folder of the caller.
        self.assertEqual(self.out, f'in {self.elsewhere}: serve --config my own.yaml\n')
        self.assertRegex(self.errors, r'\A== build, release \(.*minutes.*\)\n'
                                      r'dev: built build/release/gpunbd, starting: gpunbd serve --config my own\.yaml\n\Z')
        self.assertEqual(self.calls('apt-get') + self.calls('sudo'), [])

    def test_root_installs(self):
        self.need_packages()
        self.assertEqual(self.dev('run', LACKING='cmake ninja-build doctest-dev clang-16'), 0)
        self.assertIn(': serve\n', self.out)
        self.assertEqual(self.errors.splitlines()[:-2],
                         ['setup: building needs packages (3 MB to download), installing: cmake ninja-build'])
        self.assertTrue(self.calls('apt-get')[0].endswith('update'))
        self.assertTrue(self.calls('apt-get')[-1].endswith(' cmake ninja-build'))
        self.assertEqual(self.calls('sudo'), [])

    def test_sudo_installs(self):
        self.need_packages()
        self.assertEqual(self.dev('run', LACKING='cmake', UID_SAID='1000', SUDO_MAY='yes'), 0)
        self.assertEqual(len(self.calls('sudo')), 3)  # check, update, install
        self.assertTrue(self.calls('sudo')[-1].endswith(' cmake'))

    def test_not_root_and_no_sudo(self):
        self.need_packages()
        lacking = 'cmake doctest-dev fio clang-16 clang-tidy-16'
        for command, packages in (('run', 'cmake'), ('test', 'cmake doctest-dev fio'), ('bench', 'cmake doctest-dev'),
                                ('lint', 'clang-tidy-16 cmake doctest-dev'), ('fuzz', 'clang-16 cmake doctest-dev'),
                                ('gpu-test', 'cmake doctest-dev'),
                                ('setup', 'clang-16 clang-tidy-16 cmake doctest-dev fio')):
            with self.subTest(command):
                self.assertEqual(self.dev(command, LACKING=lacking, UID_SAID='1000'), 1)
                lines = self.errors.splitlines()
                self.assertEqual([line.strip() for line in lines[1:-2]], packages.split())
                self.assertEqual(lines[-1], '  apt-get update && apt-get install -y --no-install-recommends ' + packages)
        self.assertEqual(self.calls('apt-get') + self.calls('cmake'), [])

    def test_apt_fails(self):
        self.need_packages()
        self.assertEqual(self.dev('run', LACKING='cmake fio ninja-build', APT_FAILS='ninja-build'), 1)
        self.assertEqual(self.errors.splitlines()[-1],
                         'dev: apt-get could not install cmake ninja-build: E: Unable to locate package ninja-build '
                         '(GPUNBD_NO_SETUP=1 skips this)')
        self.assertEqual(self.calls('cmake'), [])

    def test_no_setup(self):
        self.assertEqual(self.dev('run', LACKING='cmake', UID_SAID='1000', GPUNBD_NO_SETUP='1'), 0)
        self.assertEqual(self.calls('dpkg-query') + self.calls('apt-get'), [])

    def test_no_kernel(self):
        """Setup continues if it cannot download the kernel of tests/vm, and leaves no files behind."""
        self.need_packages()
        before = os.listdir(self.path)
        for cache in ('/proc/gpunbd/kernel', '/dev/null/kernel'):
            self.assertEqual(self.dev('setup', GPUNBD_VM_CACHE=cache), 0)
            self.assertIn('kernel for tests/vm: ', self.errors)
            self.assertIn('setup: without this kernel, the tests in tests/vm are skipped\n', self.errors)
            self.assertEqual(self.out, 'setup: all packages are installed\n')
            self.assertEqual(os.listdir(self.path), before)

    def test_no_node(self):
        """Setup makes the system of diskless nodes if it is missing, and continues if that fails."""
        self.need_packages()
        self.assertEqual(self.dev('setup', 'packages'), 0)
        self.assertEqual(self.calls('node.sh'), [])
        self.assertEqual(self.dev('setup'), 0)
        self.assertEqual(self.calls('node.sh'), ['find'])
        self.assertEqual(self.dev('setup', NO_NODE='1'), 0)
        self.assertEqual(self.calls('node.sh'), ['find', 'find', 'make'])
        self.assertIn('setup: without this system, the test of diskless nodes is skipped\n', self.errors)

    def test_lint_without_git(self):
        for name in ('a b.cpp', 'tests/protocol/c.hpp', 'build/x/not.cpp', '.hidden/not.hpp', 'd.cu', 'e.txt'):
            with open(os.path.join(self.path, name), 'w', encoding='ascii') as file:
                file.write('\n')
        self.assertEqual(self.dev('lint'), 0, self.errors)
        formatted = [line.removeprefix('formatted: ') for line in self.out.splitlines() if line.startswith('formatted: ')]
        self.assertEqual(sorted(formatted[2:]), ['./a b.cpp', './d.cu', './tests/protocol/c.hpp'])

    def test_single_tests(self):
        self.stand_in('ctest', 'echo "1/1 Test #1: x ... Passed"')
        self.dev('test', 'asan', 'protocol.a (b)', 'summary')
        self.assertTrue(self.calls('ctest')[-1].startswith('--preset asan '))
        self.assertTrue(self.calls('ctest')[-1].endswith(r' -R (protocol\.a \(b\)|summary)'))
        self.dev('test', 'vm.attach')
        self.assertTrue(self.calls('ctest')[-1].startswith('--preset guests '))
        self.assertTrue(self.calls('ctest')[-1].endswith(r' -R (vm\.attach)'))

    def test_names_of_ctest(self):
        """Each name in the output of ctest -N is accepted; names of unit tests begin with the program's."""
        names = []
        for folder, _, files in os.walk(os.path.join(ROOT, 'tests')):
            os.makedirs(os.path.join(self.path, os.path.relpath(folder, ROOT)), exist_ok=True)
            if 'CMakeLists.txt' in files:
                with open(os.path.join(folder, 'CMakeLists.txt'), encoding='utf-8') as file:
                    text = file.read()
                names += [f'{name}.a part: a case' for name in re.findall(r'gpunbd_unit_tests\((\w+)_tests\)', text)]
                names += re.findall(r'add_test\(NAME ([\w.-]+)[ \n]', text)
        self.assertIn('admin.a part: a case', names)
        self.assertIn('bench-smoke', names)
        self.stand_in('ctest', 'echo "1/1 Test #1: x ... Passed"')
        for name in names:
            with self.subTest(name):
                self.dev('test', name)
                self.assertNotIn('no preset or test', self.errors)

    def test_progress(self):
        """Without a terminal, ./dev prints a line for each tenth of the build, and all other output."""
        self.stand_in('cmake', '''case "$*" in *--build*--preset*)
            for i in $(seq 200); do echo "${NINJA_STATUS%%%f*}$i of 200 Building $i"; done; echo "a warning"; [ "$BREAK" = "" ] ;; esac''')
        self.stand_in('ctest', 'echo "1/1 Test #1: x ... Passed"')
        self.dev('test')
        lines = self.out.splitlines()
        self.assertRegex(lines[0], r'^== build, release \(.*minutes')
        self.assertEqual(lines[1:11], [f'build, release: {i} of 200' for i in range(20, 201, 20)])
        self.assertEqual(lines[11], 'a warning')
        self.assertRegex(lines[12], r'^== tests, release \(.*minutes')
        self.assertEqual(self.dev('test', BREAK='yes'), 1)
        self.assertIn('the build of release failed', self.errors)

    def test_progress_while_nothing_is_finished(self):
        """A unit that takes long to compile does not look like a build that hangs."""
        line = 'build, release: 1 of 200, after '
        self.stand_in('cmake', f'''case "$*" in *--build*--preset*)
            echo "${{NINJA_STATUS%%%f*}}1 of 200 Building 1"; for i in $(seq 3000); do grep -q "{line}" "$SEEN" && break; sleep 0.01; done ;; esac''')
        seen = os.path.join(self.path, 'seen')
        with open(seen, 'wb') as output:
            subprocess.run([os.path.join(self.path, 'dev'), 'run'], stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                           env={'PATH': f'{self.programs}:/usr/bin:/bin', 'CALLS': self.calls_path, 'SEEN': seen,
                                'GPUNBD_PROGRESS_SECONDS': '0.1'}, check=False)
        with open(seen, encoding='utf-8') as output:
            self.assertRegex(output.read(), line + r'\d+ s\n')

    def test_editor(self):
        self.assertEqual(self.dev('editor'), 0)
        self.assertIn('--preset editor -DBUILD_TESTING=ON', self.calls('cmake'))
        self.assertEqual(os.readlink(os.path.join(self.path, 'build/compile_commands.json')), 'editor/compile_commands.json')

    def test_tests_that_did_not_run(self):
        """A preset without tests counts as a failure, and the last line still reports the numbers."""
        self.stand_in('ctest', 'echo no tests >&2\nexit 8')
        self.assertEqual(self.dev('test', 'release', 'asan'), 1)
        self.assertEqual(self.out.splitlines()[-1], '0 passed, 2 failed, 0 skipped')


if __name__ == '__main__':
    server.main()
