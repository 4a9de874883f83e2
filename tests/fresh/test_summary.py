"""tests/summary.py with results of ctest: it counts and reports every possible outcome of a test."""
import os
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
SUMMARY = os.path.join(HERE, '../summary.py')
CMAKE = os.environ.get('GPUNBD_CMAKE', 'cmake')

ALL = {
    'fine': ('add_test(NAME fine COMMAND sh -c "echo SKIPPED: not really, it passed")', 'passed'),
    'other': ('add_test(NAME other COMMAND true)', 'passed'),
    'bad': ('add_test(NAME bad COMMAND sh -c "seq 1 2000; exit 3")', 'failed'),
    'slow': ('add_test(NAME slow COMMAND sleep 60)\nset_tests_properties(slow PROPERTIES TIMEOUT 1)', 'failed'),
    'crash': ('add_test(NAME crash COMMAND sh -c "kill -SEGV $$")', 'failed'),
    'gone': ('add_test(NAME gone COMMAND /nonexistent/program)', 'failed'),
    'python': ('add_test(NAME python COMMAND sh -c "echo SKIPPED: x.py: no fio; exit 77")', 'skipped'),
    'cases': ('add_test(NAME cases COMMAND sh -c "echo SKIPPED: one: no IPv6; echo SKIPPED: two: no root; exit 77")', 'skipped'),
    'part': ('add_test(NAME part COMMAND sh -c "echo SKIPPED CASE: three: no nbdinfo; echo ok")', 'passed'),
    'gpu': ('add_test(NAME gpu COMMAND sh -c "echo skipped: there is no GPU; exit 77")', 'skipped'),
    'mute': ('add_test(NAME mute COMMAND sh -c "exit 77")', 'skipped'),
    'off': ('add_test(NAME off COMMAND true)\nset_tests_properties(off PROPERTIES DISABLED ON)', 'skipped'),
}


class Summary(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix='gpunbd summary ')
        self.addCleanup(folder.cleanup)
        self.path = folder.name

    def results(self, preset, names):
        """Runs these tests with ctest. Returns the path of the results."""
        build = os.path.join(self.path, preset)
        os.makedirs(os.path.join(self.path, 'source', preset))
        with open(os.path.join(self.path, 'source', preset, 'CMakeLists.txt'), 'w', encoding='ascii') as file:
            file.write('cmake_minimum_required(VERSION 3.25)\nproject(summary NONE)\nenable_testing()\n')
            for name in names:
                skip = f'\nset_tests_properties({name} PROPERTIES SKIP_RETURN_CODE 77)\n'
                file.write(ALL[name][0] + skip)
        subprocess.run([CMAKE, '-G', 'Ninja', '-S', os.path.dirname(file.name), '-B', build], check=True, stdout=subprocess.DEVNULL)
        subprocess.run([os.path.join(os.path.dirname(CMAKE), 'ctest'), '--test-dir', build, '-Q', '-j', '4',
                        '--output-junit', 'tests.xml', '--test-output-size-failed', '1000000'], check=False,
                       stderr=subprocess.DEVNULL)
        return os.path.join(build, 'tests.xml')

    def summary(self, *files):
        done = subprocess.run([sys.executable, '-B', SUMMARY, *files], capture_output=True, text=True, check=False)
        self.assertEqual(done.stderr, '')
        return done.returncode, done.stdout.splitlines()

    def test_every_outcome(self):
        results = self.results('release', ALL)
        status, lines = self.summary(results)
        self.assertEqual(status, 1)
        self.assertEqual(lines[-1], '3 passed, 4 failed, 6 skipped')
        for line in ('skipped, release: python: x.py: no fio', 'skipped, release: cases: one: no IPv6',
                     'skipped, release: cases: two: no root', 'skipped, release: part: three: no nbdinfo',
                     'skipped, release: gpu: there is no GPU',
                     'skipped, release: mute: no reason given', 'skipped, release: off: no reason given'):
            self.assertEqual(lines.count(line), 1, line)
        self.assertEqual(sum(line.startswith('skipped, ') for line in lines), 7)
        for name, (_, outcome) in ALL.items():
            count = sum(line.startswith(f'==== failed, release: {name}, ') for line in lines)
            self.assertEqual(count, outcome == 'failed', name)
        # Failed tests are listed again at the end.
        failed = sorted(name for name, (_, outcome) in ALL.items() if outcome == 'failed')
        self.assertEqual(lines[-2 - len(failed)], 'failed:')
        self.assertEqual(sorted(lines[-1 - len(failed):-1]), [f'  release: {name}' for name in failed])
        # The complete output of the failed test.
        self.assertTrue({str(number) for number in range(1, 2001)} <= set(lines))
        # Its last 40 lines: the record of a long run may keep only the end.
        status, counts = self.summary('--count', results)
        self.assertEqual(status, 1)
        self.assertEqual([line for line in counts if line.isdigit()], [str(number) for number in range(1961, 2001)])
        self.assertEqual(counts[-2 - len(failed):], lines[-2 - len(failed):])

    def test_all_passed(self):
        status, lines = self.summary(self.results('release', ['fine', 'other']))
        self.assertEqual((status, lines), (0, ['2 passed, 0 failed, 0 skipped']))

    def test_two_presets(self):
        files = self.results('release', ['fine', 'gpu']), self.results('asan', ['fine', 'other'])
        status, lines = self.summary(*files)
        self.assertEqual(status, 0)
        self.assertEqual(lines, ['skipped, release: gpu: there is no GPU', 'release: 1 passed, 0 failed, 1 skipped',
                                 'asan: 2 passed, 0 failed, 0 skipped', '3 passed, 0 failed, 1 skipped'])
        self.assertEqual(self.summary('--count', *files), (0, lines[1:]))

    def test_no_results(self):
        broken = os.path.join(self.path, 'tests.xml')
        with open(broken, 'w', encoding='ascii') as file:
            file.write('<testsuite>')
        for missing in (os.path.join(self.path, 'nothing/tests.xml'), broken):
            status, lines = self.summary(self.results(f'release{len(missing)}', ['fine']), missing)
            self.assertEqual(status, 1)
            self.assertEqual(lines[-1], '1 passed, 1 failed, 0 skipped')
            self.assertIn('no test ran', lines[-2])


SCRIPT = """
import sys, unittest
sys.path.insert(0, {integration!r})
import server


class Cases(server.Test):
    def test_fine(self):
        {fine}

    def test_needs(self):
        server.need('no-such-program')

    @unittest.skip('never')
    def test_never(self):
        pass


server.main()
"""


class Runner(unittest.TestCase):
    """tests/integration/server.py: a skipped case is reported, and does not change the results of the others."""

    def status(self, fine):
        script = SCRIPT.format(integration=os.path.join(HERE, '../integration'), fine=fine)
        done = subprocess.run([sys.executable, '-B', '-c', script], capture_output=True, text=True, check=False)
        skipped = [line for line in done.stdout.splitlines() if line.startswith('SKIPPED CASE: ')]
        self.assertTrue(any('test_never' in line and line.endswith(': never') for line in skipped), done)
        self.assertTrue(any('test_needs' in line and 'no-such-program is not' in line for line in skipped), done)
        return done.returncode

    def test_statuses(self):
        self.assertEqual(self.status('pass'), 0)
        self.assertEqual(self.status('self.fail()'), 1)
        self.assertEqual(self.status("self.skipTest('too')"), 77)


if __name__ == '__main__':
    unittest.main(verbosity=2)
