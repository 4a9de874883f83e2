"""gpunbd doctor: its report about this machine, as text and as JSON."""
import json
import os

import server

TOPICS = ('swap', 'remote', 'gpu', 'keep')


class Doctor(server.Test):
    def found(self, *arguments, program=server.PROGRAM, **options):
        out = self.command(program, 'doctor', *arguments, '--json', status=None, **options)
        return self.status, json.loads(out)['diagnoses']

    def test_exit_status(self):
        for topic in ((), *((topic,) for topic in TOPICS)):
            status, diagnoses = self.found(*topic)
            self.assertTrue(diagnoses)
            self.assertEqual(status, int(any(each['verdict'] == 'fail' for each in diagnoses)))
            for each in diagnoses:
                self.assertIn(each['verdict'], ('ok', 'warn', 'fail'))
                self.assertTrue(each['what'] and each['is'], each)
                if each['verdict'] == 'ok':
                    self.assertEqual(each['remedy'], '')

    def test_a_user_without_privileges(self):
        """A missing privilege is a failure for swap, with a remedy."""
        if os.getuid() != 0:
            server.skip('only root can give up privileges')
        status, diagnoses = self.found('swap', program=self.program_for_all_users(), user=65534, group=65534, cwd='/')
        lacking = [each for each in diagnoses if each['what'] == 'protection for --swap']
        self.assertEqual(status, 1)
        self.assertTrue(lacking)
        for each in lacking:
            self.assertEqual(each['verdict'], 'fail')
            self.assertRegex(each['remedy'], 'CAP_|Limit|OOMScore')

    def test_wrong_usage(self):
        self.command(server.PROGRAM, 'doctor', 'memory', status=2)
        self.assertIn("'memory' is none of the topics swap, remote, gpu, keep or ublk", self.errors)


if __name__ == '__main__':
    server.main()
