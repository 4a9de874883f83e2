"""Tests the suite itself: a compliant server passes, and every injected fault makes its rule fail."""
import json
import os
import subprocess
import sys
import tempfile
import unittest

import run  # first: it sets the path
import fake
import suite
import target

RUN = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'run.py')
# Features that the fake server lacks: TLS, a minimum block size, slow zeroing, and more than 4 GiB.
NOT_OFFERED = {
    'a client flag that was not advertised ends the connection', 'TLS 1.2 works', 'TLS 1.3 works',
    'older versions of TLS are off', 'a second STARTTLS is ERR_INVALID',
    'no option asks for TLS inside TLS', 'STARTTLS discards what was negotiated before',
    'bytes sent in the clear after STARTTLS are never executed',
    'a failed TLS handshake ends the session', 'with mandatory TLS, every option asks for TLS',
    'with mandatory TLS, EXPORT_NAME ends the session', 'a TLS-only export is served in TLS',
    'a command beyond 4 GiB succeeds for its whole range',
    'a request not aligned to the minimum block is EINVAL', 'a refused FAST_ZERO changes nothing'}


class Suite(unittest.TestCase):
    def serve(self, fault=None):
        server = fake.Fake(fault)
        self.addCleanup(server.close)
        return server

    def evaluate(self, rules, fault=None, seconds=20):
        server = target.Server(self.serve(fault).uri, read_only_export='ro', tls_export='tls')
        return [suite.run(one, server, seconds) for one in rules]

    def command(self, *words):
        done = subprocess.run([sys.executable, '-B', RUN, *words], capture_output=True, text=True,
                              check=False)
        return done.returncode, done.stdout, done.stderr

    def test_a_compliant_server_passes(self):
        results = self.evaluate(run.select([]))
        failed = [f'{result.rule.name}: {result.reason}' for result in results
                  if result.outcome == suite.FAIL]
        self.assertEqual(failed, [])
        absent = {result.rule.name for result in results if result.outcome == suite.NOT_OFFERED}
        self.assertEqual(absent, NOT_OFFERED)

    def test_each_fault_is_detected(self):
        for fault, name in fake.FAULTS.items():
            with self.subTest(fault=fault):
                rules = [one for one in suite.rules if one.name == name]
                self.assertEqual(len(rules), 1, name)
                # Most rules fail when the time is over, but this one permits a server that does not answer.
                seconds = 20 if fault == 'accepts a WRITE without payload' else 2
                result, = self.evaluate(rules, fault, seconds)
                self.assertEqual(result.outcome, suite.FAIL, f'"{name}" does not detect it')
                self.assertNotIn('error in the suite', result.reason)

    def test_a_rule_without_an_expectation_fails(self):
        empty = suite.Rule(suite.MUST, '', 'empty', False, lambda server: None, 'none')
        result, = self.evaluate([empty])
        self.assertEqual(result.outcome, suite.FAIL)

    def test_exit_status(self):
        compliant, faulty = self.serve(), self.serve('clears HAS_FLAGS')
        lenient = self.serve('acknowledges LIST with data')
        self.assertEqual(self.command(compliant.uri, '--only', 'HAS_FLAGS is set')[0], 0)
        self.assertEqual(self.command(faulty.uri, '--only', 'HAS_FLAGS is set')[0], 1)
        status, output, _ = self.command(lenient.uri, '--only', 'LIST with data')
        self.assertEqual((status, 'SHOULD 0/1' in output), (0, True), output)
        for words in ((), ('http://127.0.0.1/',), ('nbd+unix:///x',), (compliant.uri, '--only', 'nosuchrule'),
                      ('nbd+unix:///x?socket=/nonexistent/socket',), (compliant.uri, '--timeout', '0'),
                      (compliant.uri, '--unknown')):
            status, _, errors = self.command(*words)
            self.assertEqual(status, 2, words)
            self.assertTrue(errors.strip(), words)

    def test_json(self):
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, 'results.json')
            self.command(self.serve('clears HAS_FLAGS').uri, '--only', 'Transmission flags', '--json', path)
            with open(path, encoding='utf-8') as file:
                found = json.load(file)
        broken = [one['name'] for one in found['rules'] if one['outcome'] == 'fail']
        self.assertEqual(broken, ['HAS_FLAGS is set'])
        self.assertEqual(found['summary']['MUST']['passed'], found['summary']['MUST']['judged'] - 1)

    def test_scores_imports_its_modules(self):
        done = subprocess.run([sys.executable, '-B', '-c', 'import scores'], capture_output=True, text=True,
                              cwd=os.path.dirname(os.path.abspath(__file__)), check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ''))


if __name__ == '__main__':
    unittest.main()
