"""--run: a server for the time of one command, whose exit status it takes over."""
import signal
import subprocess
import time

import server



class Run(server.Test):
    def serve_run(self, command, status=0, extra=()):
        return self.command(server.PROGRAM, 'serve', '--device', 'host', '--size', '64M', *extra, '--run', command,
                            status=status)

    def test_exit_status(self):
        for status in (0, 1, 7, 77, 255):
            self.serve_run(f'exit {status}', status)

    def test_variables(self):
        out = self.serve_run('echo "uri=$uri"; echo "socket=$unixsocket"; test -S "$unixsocket" && echo there')
        words = dict(line.split('=', 1) for line in out.splitlines() if '=' in line)
        self.assertTrue(words['uri'].startswith('nbd+unix://'), out)
        self.assertTrue(words['socket'].startswith('/'), out)
        self.assertIn('there', out.splitlines())

    def test_client(self):
        server.need('nbdinfo')
        out = self.serve_run('nbdinfo --size "$uri"')
        self.assertIn('67108864', out.split())
        self.assertIn('67108864', self.serve_run('nbdinfo --size "$uri"', extra=('--name', 'x y')).split())

    def test_socket_is_removed(self):
        out = self.serve_run('echo "$unixsocket"')
        path = [line for line in out.splitlines() if line.startswith('/')][0]
        import os
        self.assertFalse(os.path.exists(path))
        self.assertFalse(os.path.exists(os.path.dirname(path)) and os.path.dirname(path) != '/tmp')

    def test_unknown_command(self):
        self.serve_run('no-such-command-anywhere', 127)

    def test_killed_command(self):
        self.serve_run('kill -9 $$', 128 + 9)

    def test_standard_streams(self):
        out = self.serve_run('echo to-stdout; echo to-stderr >&2')
        self.assertIn('to-stdout', out)
        self.assertIn('to-stderr', self.errors)

    def test_command_that_ends_with_requests_in_flight(self):
        server.need('nbdcopy')
        self.serve_run('timeout 0.2 nbdcopy -- [ nbdkit pattern 1T ] "$uri"; exit 3', 3)

    def test_signal(self):
        """SIGTERM to the server ends the command too."""
        child = subprocess.Popen([server.PROGRAM, 'serve', '--device', 'host', '--size', '64M', '--run', 'sleep 60; exit 9'],
                                 stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(0.5)
        start = time.monotonic()
        child.send_signal(signal.SIGTERM)
        self.assertEqual(child.wait(20), 128 + signal.SIGTERM)
        self.assertLess(time.monotonic() - start, 15)

    def test_signal_that_the_command_handles(self):
        """What the command makes of SIGTERM is the exit status."""
        command = "trap 'sleep 0.3; exit 5' TERM; echo ready; while :; do sleep 0.1; done"
        child = subprocess.Popen([server.PROGRAM, 'serve', '--device', 'host', '--size', '64M', '--run', command],
                                 stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.assertEqual(child.stdout.readline(), b'ready\n')
        child.send_signal(signal.SIGTERM)
        self.assertEqual(child.wait(20), 5)
        child.stdout.close()


if __name__ == '__main__':
    server.main()
