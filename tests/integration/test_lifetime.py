"""The lifetime of a server: --exit-with-parent and --pidfile."""
import os
import signal
import subprocess
import sys
import time

import server
import wire



class Lifetime(server.Test):
    def test_pidfile(self):
        path = os.path.join(self.directory(), 'gpunbd.pid')
        one = self.serve(extra=('--pidfile', path))
        with open(path, encoding='ascii') as file:
            self.assertEqual(file.read(), f'{one.process.pid}\n')
        one.stop()
        self.assertFalse(os.path.exists(path))
        self.assertEqual(os.listdir(os.path.dirname(path)), [])

    def test_pidfile_of_a_server_that_does_not_start(self):
        folder = self.directory()
        path = os.path.join(folder, 'gpunbd.pid')
        self.command(server.PROGRAM, 'serve', '--device', 'host', '--size', '1000T', '-U', f'{folder}/socket',
                     '--pidfile', path, status=1)
        self.assertEqual(os.listdir(folder), [])

    def test_invalid_pidfile(self):
        """The error is reported before memory is allocated."""
        folder = self.directory()
        missing = os.path.join(folder, 'missing')
        for path, message in ((f'{missing}/pid', f'the folder {missing} does not exist; create it'),
                              (folder, 'is not a regular file')):
            self.command(server.PROGRAM, 'serve', '--device', 'host', '--size', '1000T', '-U', f'{folder}/socket',
                         '--pidfile', path, status=1)
            self.assertIn(f'--pidfile {path}: ', self.errors)
            self.assertIn(message, self.errors)
        self.assertEqual(os.listdir(folder), [])

    def test_pidfile_is_written_when_ready(self):
        """Clients are served as soon as the file exists."""
        folder = self.directory()
        path, pid = os.path.join(folder, 'socket'), os.path.join(folder, 'pid')
        child = subprocess.Popen([server.PROGRAM, 'serve', '--device', 'host', '--size', '64M', '-U', path,
                                  '--pidfile', pid], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                 preexec_fn=server.die_with_parent)
        try:
            server.wait_until(lambda: os.path.exists(pid), 10, 'the file')
            with wire.connect(path) as client:
                self.assertEqual(client.read(0, 4), bytes(4))
        finally:
            child.terminate()
            self.assertEqual(child.wait(10), 0)

    def orphan(self, *arguments):
        """The process id and the socket of a server whose parent is killed after the server is ready."""
        path = os.path.join(self.directory(), 'socket')
        script = ('import subprocess, sys, time; child = subprocess.Popen(sys.argv[1:]); '
                  'print(child.pid, flush=True); time.sleep(60)')
        parent = subprocess.Popen([sys.executable, '-c', script, server.PROGRAM, 'serve', '--device', 'host',
                                   '--size', '64M', '-U', path, *arguments], stdout=subprocess.PIPE,
                                  stderr=subprocess.DEVNULL, preexec_fn=server.die_with_parent)
        child = int(parent.stdout.readline())

        def up():
            try:
                wire.connect(path).close()
                return True
            except OSError:
                return False
        server.wait_until(up, 10, 'the server')
        parent.kill()
        parent.wait()
        parent.stdout.close()
        return child, path

    def test_exit_with_parent(self):
        _, path = self.orphan('--exit-with-parent')
        # The server shuts down as after SIGTERM, and removes its socket.
        server.wait_until(lambda: not os.path.exists(path), 10, 'the removal of the socket')

    def test_without_exit_with_parent_a_server_continues(self):
        child, path = self.orphan()
        try:
            time.sleep(0.5)
            with wire.connect(path) as client:
                self.assertEqual(client.read(0, 4), bytes(4))
        finally:
            os.kill(child, signal.SIGTERM)
            server.wait_until(lambda: not os.path.exists(path), 10, 'the end of the server')


if __name__ == '__main__':
    server.main()
