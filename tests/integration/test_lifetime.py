"""The lifetime of a server: --background, --exit-with-parent, --pidfile and gpunbd stop."""
import contextlib
import os
import signal
import subprocess
import sys

import server
import wire


class Lifetime(server.Test):
    def test_pidfile_is_written_when_ready(self):
        """Clients are served as soon as the file exists."""
        one = self.run_server('-U', '{socket}', '--pidfile', '{directory}/pid')
        server.wait_until(lambda: os.path.exists(f'{one.directory}/pid'), 60, 'the file')
        self.assertEqual(wire.read_once(one.path, '', 0, 4), bytes(4))

    def test_exit_with_parent(self):
        path = os.path.join(self.directory(), 'socket')
        script = 'import subprocess, sys, time; subprocess.Popen(sys.argv[1:]); time.sleep(600)'
        parent = subprocess.Popen([sys.executable, '-c', script, server.PROGRAM, 'serve', '--device', 'host', '--size', '64M',
                                   '-U', path, '--exit-with-parent'], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                  preexec_fn=server.die_with_parent)

        def up():
            try:
                wire.connect(path).close()
                return True
            except OSError:
                return False
        server.wait_until(up, 60, 'the server')
        parent.kill()
        parent.wait()
        # The server shuts down as after SIGTERM, and removes its socket.
        server.wait_until(lambda: not os.path.exists(path), 60, 'the removal of the socket')


class Background(server.Test):
    """--background returns once clients can connect, or with the status of the start."""

    def setUp(self):
        self.folder = self.directory()
        self.path = os.path.join(self.folder, 'socket')
        self.pidfile = os.path.join(self.folder, 'pid')
        self.addCleanup(lambda: os.path.exists(self.pidfile) and self.stop())

    def run_command(self, *words, status=0, environment=None, pass_fds=()):
        """Its standard error is a file: the server that stays also writes to it. Its standard output is a pipe, which the
        server closes."""
        with open(os.path.join(self.folder, 'log'), 'w+b') as log:
            done = subprocess.run([server.PROGRAM, *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log,
                                  timeout=60, check=False, pass_fds=pass_fds,
                                  env={**os.environ, **(environment or {})})
        self.assertEqual((done.returncode, done.stdout), (status, b''), self.log())

    def log(self):
        return server.read_file(os.path.join(self.folder, 'log'))

    def flags(self, *more):
        return ('serve', '--device', 'host', '--size', '64M', '-U', self.path, '--pidfile', self.pidfile, *more)

    def stop(self):
        os.kill(self.pid(), signal.SIGTERM)
        server.wait_until(lambda: not os.path.exists(self.pidfile), 60, 'the end of the server')

    def check(self):
        with wire.connect(self.path) as client:
            client.write(0, b'here')
            self.assertEqual(client.read(0, 4), b'here')
        pid = self.pid()
        self.assertEqual(os.getsid(pid), os.getpgid(pid))
        self.assertNotEqual(os.getsid(pid), os.getsid(0))
        for stream in (0, 1):
            self.assertEqual(os.readlink(f'/proc/{pid}/fd/{stream}'), '/dev/null')
        self.assertNotIn(self.folder + '/inherited', server.open_files(pid))
        server.wait_for_text('ready: ', self.log)
        return pid

    def test_serve(self):
        with open(self.folder + '/inherited', 'wb') as inherited:
            self.run_command(*self.flags('--background'), pass_fds=[inherited.fileno()])
        self.check()
        self.stop()
        server.wait_for_text('stopping', self.log)

    def pid(self):
        return int(server.read_file(self.pidfile))

    def test_keep(self):
        """Contents outlive a server that is killed, and an upgrade."""
        self.run_command('keep', '--background', '--', *self.flags('--keep'))
        wire.write_once(self.path, '', 0, b'kept')
        for number in (signal.SIGKILL, signal.SIGUSR2):
            before = self.pid()
            os.kill(before, number)
            server.wait_until(lambda: os.path.exists(self.pidfile) and self.pid() != before, 60, 'the next server')
            self.assertEqual(wire.read_once(self.path, '', 0, 4), b'kept')
        self.stop()

    def gpunbd_stop(self, *words, status=0):
        """The output of gpunbd stop: to standard error if it fails, to standard output otherwise."""
        out = self.command(server.PROGRAM, 'stop', *words, status=status)
        self.assertEqual(out if status else self.errors, '')
        return self.errors if status else out

    def test_stop(self):
        """The server and its supervisor have ended when gpunbd stop returns."""
        for words in (), ('--pidfile', self.pidfile), ('--socket', '{admin}'), ('--socket', self.path):
            for keep in (), ('keep', '--background', '--'):
                with self.subTest(words=words, keep=keep):
                    self.run_command(*keep, *self.flags(*(('--keep',) if keep else ('--background',))))
                    pid = self.pid()
                    parent = int(server.read_file(f'/proc/{pid}/stat').rsplit(')', 1)[1].split()[1])
                    admin = f'{os.environ["RUNTIME_DIRECTORY"]}/admin-{pid}.sock'
                    self.assertEqual(self.gpunbd_stop(*(each.format(admin=admin) for each in words)),
                                     f'the server, process {pid}, has ended\n')
                    self.assertFalse(server.is_running(pid) or keep and server.is_running(parent))

    def test_stop_of_no_server(self):
        """Another process whose id is in an old file is not ended."""
        self.assertIn('no server was found in ', self.gpunbd_stop(status=1))
        for text, problem in ('x', 'contains no process id'), (str(os.getpid()), "is 'python3' and not a gpunbd server"):
            path = server.write_file(os.path.join(self.folder, 'old'), text)
            self.assertRegex(self.gpunbd_stop('--pidfile', path, status=1), f'^gpunbd stop: --pidfile {path}: .*{problem}\n$')

    def test_stop_of_a_server_that_does_not_end(self):
        one = self.serve()
        server.wait_until(lambda: os.listdir(os.environ['RUNTIME_DIRECTORY']), 60, 'the admin socket')
        one.process.send_signal(signal.SIGSTOP)
        try:
            self.assertIn(f'process {one.process.pid}, has not ended within 0 s', self.gpunbd_stop('--timeout', '0', status=1))
        finally:
            one.process.send_signal(signal.SIGCONT)
        self.assertEqual(one.process.wait(60), 0)

    def test_failed_starts(self):
        for words, status, message in (
                (('serve', '--background', '--device', 'host', '--size', '1000T', '-U', self.path), 1, '1000T do not fit on host'),
                (('serve', '--background', '--config', '/nowhere'), 2, '/nowhere: cannot be read'),
                (('keep', '--background', '--', 'serve', '--device', 'host', '--size', '1000T', '-U', self.path), 1, 'do not fit'),
                (('serve', '--background', '--run', 'true'), 2, '--background and --run exclude each other')):
            with self.subTest(words=words):
                self.run_command(*words, status=status)
                self.assertIn(message, self.log())
                self.assertFalse(os.path.exists(self.path))

    def test_supervisors(self):
        for variable in ('NOTIFY_SOCKET', 'LISTEN_FDS'):
            for words in (self.flags('--background'), ('keep', '--background', '--', *self.flags())):
                with self.subTest(variable=variable, words=words):
                    self.run_command(*words, status=2, environment={variable: '1'})
                    self.assertEqual(self.log(), f'gpunbd {words[0]}: --background: {variable} is set, so a supervisor waits for '
                                                 f'this process; leave --background out, or unset {variable}\n')

    def test_a_caller_that_is_killed(self):
        """Before the server is ready, it ends with its caller."""
        config = server.write_file(os.path.join(self.folder, 'gpunbd.yaml'),
                                   f"listeners: {{unix: [{{path: '{self.path}'}}]}}\n"
                                   "exports: [{name: '', size: 40%, devices: [host], provision: full}]\n")
        while True:
            child = subprocess.Popen([server.PROGRAM, 'serve', '--background', '--config', config, '--pidfile', self.pidfile],
                                     stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            server.wait_until(lambda one=child: os.path.exists(self.path) or one.poll() is not None, 60, 'the socket')
            one = self.stopped_child(child.pid)
            if one and not os.path.exists(self.pidfile):
                break
            # The server was ready before it was stopped, because this process was slow.
            if one:
                os.kill(one, signal.SIGCONT)
            self.assertEqual(child.wait(60), 0)
            self.stop()
            server.wait_until(lambda: not os.path.exists(self.path), 60, 'the end of the server')
        child.kill()
        child.wait()
        os.kill(one, signal.SIGCONT)
        server.wait_until(lambda: not os.path.exists(self.path), 60, 'the end of the server')

    @staticmethod
    def stopped_child(pid):
        """The process id of the child of a process, after it was stopped. None if there is none any more."""
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            for child in server.children(pid):
                os.kill(child, signal.SIGSTOP)
                server.wait_until(lambda one=child: server.process_state(one) in 'TZX', 60, 'the stop')
                return child
        return None


if __name__ == '__main__':
    server.main()
