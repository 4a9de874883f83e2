"""Privileges that the server gives up: new privileges, and core dumps with clients' data."""
import contextlib
import os
import resource
import signal
import subprocess

import server
import wire
from server import read_file


def new_privileges(pid):
    """{thread: whether it may gain privileges}"""
    found = {}
    for task in os.listdir(f'/proc/{pid}/task'):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # the thread has ended meanwhile
            found[task] = 'NoNewPrivs:\t0' in read_file(f'/proc/{pid}/task/{task}/status')
    return found


def core_limit(pid):
    line = next(line for line in read_file(f'/proc/{pid}/limits').splitlines() if line.startswith('Max core file size'))
    return line.split()[4]


class Privileges(server.Test):
    def test_no_new_privileges(self):
        one = self.serve()
        with wire.connect(one.address) as client:
            client.write(0, b'all threads are there')
            # A thread may have to give up its privileges itself once it runs.
            server.wait_until(lambda: not any(new_privileges(one.process.pid).values()), 60,
                              lambda: f'threads without new privileges: {new_privileges(one.process.pid)}')
            self.assertGreater(len(new_privileges(one.process.pid)), 2)

    def test_the_command_inherits_the_restrictions(self):
        out = self.command(server.PROGRAM, 'serve', '--device', 'host', '--size', '1M', '--run',
                           'grep NoNewPrivs /proc/self/status; cat /proc/self/coredump_filter; ulimit -S -c')
        self.assertEqual(out.split()[:3], ['NoNewPrivs:', '1', '00000000'])
        self.assertIn(out.split()[3], ('0', '1'))

    def test_core_dumps_contain_no_memory(self):
        one = self.serve()
        pid = one.process.pid
        self.assertEqual(int(read_file(f'/proc/{pid}/coredump_filter'), 16), 0)
        self.assertIn(core_limit(pid), ('0', '1'))

    def test_core_dumps_on_request(self):
        one = self.serve(extra=('--core-dumps',))
        pid = one.process.pid
        self.assertEqual(read_file(f'/proc/{pid}/coredump_filter'), read_file('/proc/self/coredump_filter'))
        soft = resource.getrlimit(resource.RLIMIT_CORE)[0]
        self.assertEqual(core_limit(pid), 'unlimited' if soft == resource.RLIM_INFINITY else str(soft))

    def test_crash(self):
        """No core is dumped, even with unlimited core dumps and any core pattern."""
        folder = self.directory()
        hard = resource.getrlimit(resource.RLIMIT_CORE)[1]

        def prepare():
            server.die_with_parent()
            os.chdir(folder)
            resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))
        path = os.path.join(folder, 'socket')
        child = subprocess.Popen([server.PROGRAM, 'serve', '--device', 'host', '--size', '1M', '-U', path],
                                 stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, preexec_fn=prepare)
        self.addCleanup(child.stderr.close)
        while b'ready' not in child.stderr.readline():
            pass
        os.kill(child.pid, signal.SIGQUIT)
        status = os.waitpid(child.pid, 0)[1]
        child.returncode = -os.WTERMSIG(status)
        self.assertEqual(os.WTERMSIG(status), signal.SIGQUIT)
        self.assertFalse(os.WCOREDUMP(status))


if __name__ == '__main__':
    server.main()
