"""gpunbd on `host` complies with every rule: over TCP and a Unix socket, with and without TLS, and through staging
memory; and on `vulkan:0`, with a driver on the CPU and validation layers."""
import os
import unittest

import run  # before server: it adds the folder of that module
import server
import suite
import target

STAGED_SERVER = os.environ.get('GPUNBD_STAGED_SERVER', os.path.join(server.ROOT, 'build/release/staged_server'))
CONFIGURATION = '''
listeners:
  tcp: [{address: 127.0.0.1, port: PORT}]
  unix: [{path: '{socket}'}]
exports:
  - {name: disk, size: 64M, devices: [DEVICE]}
  - {name: large, size: 5G, devices: [host]}
  - {name: fixed, size: 64M, devices: [DEVICE], read_only: true}
  - {name: coarse, size: 64M, devices: [DEVICE], block_size: {minimum: 4K}}
'''
SECRET = '  - {name: secret, size: 64M, devices: [host], tls: required}\ntls: {mode: optional, certificates: FOLDER}\n'
REQUIRED = 'tls: {mode: required, certificates: FOLDER}\n'


class StagedServer(server.Server):
    def __init__(self, *flags):
        server.Process.__init__(self)
        self.name, self.port = 'disk', None
        self.start([STAGED_SERVER, *flags, self.path])


def about_tls(rule):
    return 'TLS' in rule.name or 'TLS' in rule.chapter


class Gpunbd(server.Test):
    def serve_exports(self, more='', device='host'):
        """The TCP URI and the Unix socket URI of a server. Small exports are on `device`."""
        port = server.free_port()
        text = (CONFIGURATION + more).replace('PORT', str(port)).replace('DEVICE', device)
        one = self.serve(config=text, name='disk')
        return f'nbd://127.0.0.1:{port}/disk', one.uri()

    def serve_through_staging(self, *flags):
        staged = StagedServer(*flags)
        self.servers.append(staged)
        self.addCleanup(self.finish, staged)
        server.wait_until(lambda: staged.listening(unix=True), 60, f'{STAGED_SERVER} to listen')
        return staged.uri()

    def make_certificates(self):
        """The folder of a server's files, and the certificate and the key of a client."""
        folder = os.path.join(self.directory(), 'tls')
        self.command(server.PROGRAM, 'tls-setup', folder, '--host', '127.0.0.1', '--client', 'client')
        return folder, [os.path.join(folder, 'clients', 'client', name) for name in ('client-cert.pem', 'client-key.pem')]

    def evaluate(self, uri, rules, **options):
        tested = target.Server(uri, read_only_export='fixed', **options)
        results = [suite.run(one, tested, 60) for one in rules]
        for result in results:
            one = result.rule
            print(run.line(one.kind, result.outcome, one.chapter, one.name, result.reason))
        print(f'{uri.partition("?")[0]}: {run.summary(results)}')
        broken = [f'{result.rule.name}: {result.reason}' for result in results
                  if result.outcome == suite.FAIL and
                  (result.rule.level != suite.SHOULD or result.rule.extension)]
        self.assertEqual(broken, [], 'failed rules')
        absent = [result.rule.name for result in results
                  if result.outcome == suite.NOT_OFFERED and 'read-only' in result.rule.name]
        self.assertEqual(absent, [], 'no rule was evaluated on the read-only export')
        return results

    def test_tcp(self):
        tcp, _ = self.serve_exports()
        self.evaluate(tcp, run.select([]))

    def test_unix(self):
        _, unix = self.serve_exports()
        self.evaluate(unix, run.select([]))

    def test_staging(self):
        self.evaluate(self.serve_through_staging(), run.select([]))

    def test_vulkan(self):
        server.need_lavapipe()
        _, unix = self.serve_exports('devices: [{id: DEVICE, mapped: 0, reserve: 0}]\n', device='vulkan:0')
        self.evaluate(unix, run.select([]))

    def evaluate_tls(self, uri, rules, absent, **options):
        """`absent`: the highest number of TLS rules that may not apply to this server."""
        about = [result for result in self.evaluate(uri, rules, **options) if about_tls(result.rule)]
        self.assertGreater(len(about), 15)
        missing = [result.rule.name for result in about if result.outcome == suite.NOT_OFFERED]
        self.assertLessEqual(len(missing), absent, missing)

    def test_tls(self):
        folder, certificate = self.make_certificates()
        tcp, _ = self.serve_exports(REQUIRED.replace('FOLDER', folder))
        self.evaluate_tls(tcp.replace('nbd', 'nbds', 1), run.select([]), 5, certificate=certificate)

    def test_tls_is_optional(self):
        folder, certificate = self.make_certificates()
        tcp, unix = self.serve_exports(SECRET.replace('FOLDER', folder))
        # Without TLS, this server differs from that of test_tcp in nothing else.
        self.evaluate_tls(tcp, filter(about_tls, run.select([])), 3, certificate=certificate, tls_export='secret')
        self.evaluate_tls(unix.replace('nbd', 'nbds', 1).replace('/disk', '/secret'), run.select([]), 3,
                          certificate=certificate, tls_export='secret')

    def test_tls_through_staging(self):
        folder, certificate = self.make_certificates()
        uri = self.serve_through_staging('-t', folder).replace('nbd', 'nbds', 1)
        self.evaluate_tls(uri, run.select([]), 5, certificate=certificate)

    def evaluate_large(self, uri):
        extensions = [one for one in suite.rules if one.extension]
        results = self.evaluate(uri.replace('/disk?', '/large?'), extensions)
        absent = [result.rule.name for result in results if result.outcome == suite.NOT_OFFERED]
        self.assertEqual(absent, [], 'an extension was not evaluated')

    def test_large(self):
        _, unix = self.serve_exports()
        self.evaluate_large(unix)

    def test_large_staging(self):
        self.evaluate_large(self.serve_through_staging())

    def evaluate_coarse(self, uri):
        results = self.evaluate(uri.replace('/disk?', '/coarse?'), run.select([]))
        aligned = [result.outcome for result in results if 'not aligned' in result.rule.name]
        self.assertEqual(aligned, [suite.PASS], 'the minimum block was not evaluated')

    def test_coarse(self):
        _, unix = self.serve_exports()
        self.evaluate_coarse(unix)

    def test_coarse_staging(self):
        self.evaluate_coarse(self.serve_through_staging())


if __name__ == '__main__':
    unittest.main()
