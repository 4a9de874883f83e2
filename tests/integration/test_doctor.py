"""gpunbd doctor: its report about this machine, as text and as JSON."""
import json

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

    def test_wrong_usage(self):
        self.command(server.PROGRAM, 'doctor', 'memory', status=2)
        self.assertIn("'memory' is none of the topics swap, remote, gpu, keep or ublk", self.errors)


if __name__ == '__main__':
    server.main()
