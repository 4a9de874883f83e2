"""--run: the server runs as long as a command, and returns its exit status."""
import fcntl
import os
import pathlib
import select
import signal
import subprocess
import tempfile
import termios
import time

import server


class Run(server.Test):
    def serve_run(self, command, status=0, extra=()):
        return self.command(server.PROGRAM, 'serve', '--device', 'host', '--size', '64M', *extra, '--run', command,
                            status=status)

    def test_client(self):
        server.need('nbdinfo')
        out = self.serve_run('nbdinfo --size "$uri"')
        self.assertIn('67108864', out.split())
        self.assertIn('67108864', self.serve_run('nbdinfo --size "$uri"', extra=('--name', 'x y')).split())

    def test_standard_streams(self):
        out = self.serve_run('echo to-stdout; echo to-stderr >&2')
        self.assertIn('to-stdout', out)
        self.assertIn('to-stderr', self.errors)

    def test_command_that_ends_with_requests_in_flight(self):
        server.need('nbdcopy')
        start = time.monotonic()
        self.serve_run("timeout 0.3 sh -c 'while nbdcopy \"$uri\" null:; do :; done'; exit 3", 3)
        self.assertGreater(time.monotonic() - start, 0.3, 'nbdcopy failed')

    def background(self, command, stderr=subprocess.DEVNULL):
        """A server with --run whose command prints a line when it runs. Returns the process, and the words of that line."""
        child = subprocess.Popen([server.PROGRAM, 'serve', '--device', 'host', '--size', '64M', '--run', command],
                                 stdout=subprocess.PIPE, stderr=stderr, text=True)
        self.addCleanup(child.stdout.close)
        self.addCleanup(child.wait)
        self.addCleanup(child.kill)
        return child, child.stdout.readline().split()

    # Prints the process ids of the shell and of its child, and the path of the socket.
    PROCESSES = 'sleep 600 & echo $$ $! "$unixsocket"; wait; exit 9'

    def test_signal_reaches_all_processes_of_the_command(self):
        child, (shell, sleeper, path) = self.background(self.PROCESSES)
        child.send_signal(signal.SIGTERM)
        self.assertEqual(child.wait(60), 128 + signal.SIGTERM)
        self.wait_for_end(shell, sleeper)
        self.assertFalse(os.path.exists(os.path.dirname(path)))

    @staticmethod
    def wait_for_end(*processes):
        server.wait_until(lambda: not any(map(server.is_running, processes)), 60, 'the command to end')

    def test_killed_server(self):
        """After SIGKILL of the server, the command is ended and the folder is removed all the same."""
        for before in ('', "trap '' TERM; "):
            with self.subTest(before=before):
                child, (shell, sleeper, path) = self.background(before + self.PROCESSES)
                self.assertTrue(os.path.exists(path))
                child.kill()
                child.wait(60)
                self.wait_for_end(shell, sleeper)
                server.wait_until(lambda folder=os.path.dirname(path): not os.path.exists(folder), 60, 'the removal of the folder')

    def test_command_that_exceeds_the_grace_period(self):
        """The command is killed when the server ends, and the exit status reports this."""
        with tempfile.NamedTemporaryFile() as log:
            child, (shell, sleeper, path) = self.background("trap '' TERM; " + self.PROCESSES, stderr=log)
            child.send_signal(signal.SIGTERM)
            # The kernel merges equal signals that are pending.
            server.wait_for_text('stopping: ', lambda: pathlib.Path(log.name).read_text(encoding='utf-8'), 60)
            child.send_signal(signal.SIGTERM)  # ends the grace period
            self.assertEqual(child.wait(60), 128 + signal.SIGKILL)
        self.wait_for_end(shell, sleeper)
        self.assertFalse(os.path.exists(os.path.dirname(path)))

    def test_on_a_terminal(self):
        """The command is in the foreground: it reads from the terminal and receives Ctrl-C. Then the shell gets it back."""
        master, slave = os.openpty()
        self.addCleanup(os.close, master)
        program = [server.PROGRAM, 'serve', '--device', 'host', '--size', '64M', '--log-level', 'error', '--run',
                   # Only builtins: dash loses a SIGINT that arrives while it forks.
                   'echo ready; read line; echo "got $line"; read line']
        script = 'trap : INT; "$@"; echo "status $?"; read line; echo "then $line"'

        def start():
            server.die_with_parent()
            os.setsid()
            fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
        child = subprocess.Popen(['sh', '-c', script, 'sh', *program], stdin=slave, stdout=slave, stderr=slave,
                                 preexec_fn=start)
        self.addCleanup(child.wait)
        self.addCleanup(child.kill)
        os.close(slave)
        output = b''

        def wait_for(words):
            nonlocal output
            while words not in output:
                self.assertTrue(select.select([master], [], [], 60)[0], output)
                output += os.read(master, 4096)
        wait_for(b'ready')
        os.write(master, b'words\n')
        wait_for(b'got words')
        os.write(master, b'\x03')
        wait_for(b'status 130')
        os.write(master, b'more\n')
        wait_for(b'then more')
        self.assertEqual(child.wait(60), 0)


if __name__ == '__main__':
    server.main()
