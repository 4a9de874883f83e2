"""gpunbd keep: what survives a server, when the server is restarted, and that a faulty server cannot harm its supervisor."""
import array
import ctypes
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import time

import server
import wire

PROGRAM = os.environ.get('GPUNBD_KEEPING_PROGRAM', os.path.join(os.path.dirname(server.PROGRAM), 'keeping_program'))

# The start of every child script below.
CHILD = r'''
import array, os, signal, socket, sys, time

def send(text, descriptors=()):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        control = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', descriptors))] if descriptors else []
        channel.sendmsg([text if isinstance(text, bytes) else text.encode()], control, 0,
                        '\0' + os.environ['NOTIFY_SOCKET'][1:])

def store(name, descriptor):
    send(f'FDSTORE=1\nFDNAME={name}\nFDPOLL=0', [descriptor])

def barrier():
    ours, theirs = os.pipe()
    send('BARRIER=1', [theirs])
    os.close(theirs)
    assert os.read(ours, 1) == b''
    os.close(ours)

def memory(text):
    made = os.memfd_create('kept')
    os.write(made, text)
    return made

def inherited():
    """(name, number) of each inherited descriptor."""
    if 'LISTEN_FDS' not in os.environ:
        return []
    assert int(os.environ['LISTEN_PID']) == os.getpid()
    names = os.environ['LISTEN_FDNAMES'].split(':')
    assert len(names) == int(os.environ['LISTEN_FDS'])
    return [(name, 3 + i) for i, name in enumerate(names)]

# Two servers may write at the same time, so a line is one write. print() makes several with PYTHONUNBUFFERED.
def report(*words):
    os.write(1, (' '.join(map(str, (os.getpid(), *words))) + '\n').encode())

def exit_pipe():
    theirs, own = os.pipe()
    send('X_GPUNBD_LIFELINE=1', [theirs])
    os.close(theirs)
    return own

def start_gate():
    return dict(inherited()).get('gpunbd/turn')

def serve():
    barrier()
    send('READY=1')
    barrier()

# signal.pause() would not return if a signal with a handler arrives just before it.
def sleep_forever():
    while True:
        time.sleep(1)
'''
ASLEEP = '\nsleep_forever()\n'


def no_more_forks():
    """Makes clone, clone3, fork and vfork of this process fail with EAGAIN (a seccomp filter)."""
    server.die_with_parent()
    load, jump, ret = 0x20, 0x15, 0x06
    errno, allow, eagain = 0x00050000, 0x7fff0000, 11
    calls = {'x86_64': (56, 57, 58, 435), 'aarch64': (220, 435)}[os.uname().machine]
    rules = [(load, 0, 0, 0)]
    for i, call in enumerate(calls):
        rules.append((jump, len(calls) - i, 0, call))
    rules += [(ret, 0, 0, allow), (ret, 0, 0, errno | eagain)]
    server.filter_calls(rules)


def ignore_hangups():
    """A SIGHUP that arrives after the pause that it should end does not kill the next server, which inherits this."""
    server.die_with_parent()
    signal.signal(signal.SIGHUP, signal.SIG_IGN)


def few_descriptors(count):
    def limit():
        server.die_with_parent()
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, count))
    return limit


class Keeper(server.Process):
    """A supervisor. Its server reports lines on standard output. The log is that of the supervisor."""

    def __init__(self, command, **options):
        super().__init__()
        self.start(command, stdout=subprocess.PIPE, text=True, **options)

    def line(self):
        """The next line of a server: its process id, and the words."""
        line = self.process.stdout.readline()
        assert line, f'no line:\n{self.log()}'
        pid, *words = line.split()
        return int(pid), words

    def end(self, number=signal.SIGTERM):
        """Sends a signal, and returns the exit status."""
        if number:
            self.process.send_signal(number)
        return self.process.wait(60)

    def clean_up(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        self.remove_files()


class Test(server.Test):
    def started(self, command, **options):
        keeper = Keeper(command, **options)
        self.servers.append(keeper)
        self.addCleanup(keeper.clean_up)
        return keeper

    def keep(self, script, restarts=10, within=3600, descriptors=100, program=PROGRAM, prefix=(), **options):
        return self.started([*prefix, program, 'keep', str(restarts), str(within), str(descriptors), sys.executable,
                             '-c', CHILD + script], **options)


class Contents(Test):
    def test_contents_survive_the_server(self):
        keeper = self.keep('''
if not inherited():
    store('gpunbd/one', memory(b'first'))
    store('gpunbd/two', memory(b'second'))
    store('gpunbd/two', memory(b'third'))
serve()
report(os.environ['FDSTORE'], *(f'{name}={os.pread(number, 99, 0).decode()}' for name, number in sorted(inherited())))
''' + ASLEEP, restarts=30)
        pid, words = keeper.line()
        self.assertEqual(words, ['100'])
        for _ in range(20):
            os.kill(pid, signal.SIGKILL)
            pid, words = keeper.line()
            self.assertEqual(words, ['100', 'gpunbd/one=first', 'gpunbd/two=second', 'gpunbd/two=third'])
        self.assertEqual(keeper.end(), 128 + signal.SIGTERM)

    def test_descriptors_stored_just_before_a_crash(self):
        """Without a barrier: messages count when they are sent."""
        keeper = self.keep('''
if len(inherited()) < 5:
    store(f'gpunbd/{len(inherited())}', memory(b'x'))
    send('READY=1')
    os.kill(os.getpid(), signal.SIGKILL)
report(*(name for name, _ in sorted(inherited())))
''' + ASLEEP)
        self.assertEqual(keeper.line()[1], [f'gpunbd/{n}' for n in range(5)])

    def test_descriptors_are_stored_once(self):
        made, kcmp = os.memfd_create('probe'), {'x86_64': 312, 'aarch64': 272}[os.uname().machine]
        if ctypes.CDLL(None).syscall(kcmp, os.getpid(), os.getpid(), 0, made, made) != 0:
            server.skip('kcmp() is not permitted')
        keeper = self.keep('''
for name, number in inherited() or [('a', memory(b'x')), ('a', memory(b'y'))]:
    store(name, number)
    store(name, os.dup(number))
serve()
report(len(inherited()))
''' + ASLEEP)
        pid, _ = keeper.line()
        for _ in range(3):
            os.kill(pid, signal.SIGKILL)
            pid, words = keeper.line()
            self.assertEqual(words, ['2'])

    def test_default_name(self):
        keeper = self.keep('''
if not inherited():
    send('FDSTORE=1', [memory(b'x'), memory(b'y')])
    serve()
    os.kill(os.getpid(), signal.SIGKILL)
report(*(name for name, _ in inherited()))
''' + ASLEEP)
        self.assertEqual(keeper.line()[1], ['stored', 'stored'])


class Hostile(Test):
    def test_other_processes_cannot_store(self):
        keeper = self.keep('''
made = memory(b'x')
if not inherited():
    store('mine', made)
    if os.fork() == 0:
        store('of a child', made)
        send('FDSTOREREMOVE=1\\nFDNAME=mine')
        send('MAINPID=%d' % os.getpid())
        os._exit(0)
    os.wait()
serve()
report(os.environ['NOTIFY_SOCKET'], *(name for name, _ in inherited()))
''' + ASLEEP)
        pid, (address,) = keeper.line()
        count = keeper.descriptors()
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
            for _ in range(50):
                channel.sendmsg([b'FDSTORE=1\nFDNAME=foreign'],
                                [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [0] * 253))], 0,
                                '\0' + address[1:])
        os.kill(pid, signal.SIGKILL)
        self.assertEqual(keeper.line()[1][1:], ['mine'])
        self.assertEqual(keeper.descriptors(), count)
        self.logged('is refused: its sender is not the server', keeper)

    def test_a_server_that_sends_invalid_messages(self):
        start = time.monotonic()
        keeper = self.keep('''
made = memory(b'x')
serve()
report()
sys.stdin.read()
for text in (b'', b'\\n', b'\\0', b'=', b'FDSTORE=1\\nFDNAME=a:b', b'FDSTORE=1\\nFDNAME=' + b'x' * 256, b'x' * 5000,
             b'FDSTORE=1\\nFDNAME=\\xc3\\xa4', b'MAINPID=1', b'MAINPID=-1', b'MAINPID=', b'MAINPID=99999999999999999999',
             b'FDSTORE=2', b'FDSTORE=1 ', b'fdstore=1', b'FDSTOREREMOVE=1'):
    for number in (0, 1, 253):
        send(text, [made] * number)
for _ in range(2000):
    send('FDSTORE=1\\nFDNAME=a:b\\nc=' + 'x' * 4000, [made])
barrier()
report()
''' + ASLEEP)
        keeper.line()
        count = keeper.descriptors()
        keeper.line()
        # There may be fewer, because a descriptor was open briefly at the first count.
        server.wait_until(lambda: keeper.descriptors() <= count, 60, 'the closing of refused descriptors')
        lines = len(keeper.log().splitlines())
        self.assertLess(lines, 20 + time.monotonic() - start)  # there is at most one line a second
        self.assertEqual(keeper.end(), 128 + signal.SIGTERM)

    def test_the_limit_of_open_files(self):
        """A message whose descriptors do not fit is refused as a whole, and the next one is accepted."""
        keeper = self.keep('''
if not inherited():
    many = memory(b'x')
    send('FDSTORE=1\\nFDNAME=many', [many] * 253)
    store('one', many)
    serve()
report(os.environ['FDSTORE'], resource.getrlimit(resource.RLIMIT_NOFILE)[0], *(name for name, _ in inherited()))
'''.replace('if not', 'import resource\nif not', 1) + ASLEEP, before=few_descriptors(80))
        pid, _ = keeper.line()
        os.kill(pid, signal.SIGKILL)
        self.assertEqual(keeper.line()[1], ['16', '80', 'one'])
        self.logged('stores at most 16 descriptors instead of 100, because the limit of open files is 80', keeper)
        self.logged('there is no room for its descriptors', keeper)


class Restarts(Test):
    def test_the_limit_of_restarts(self):
        keeper = self.keep("serve()\nreport()\nos.kill(os.getpid(), signal.SIGSEGV)\n", restarts=3)
        for _ in range(4):
            keeper.line()
        self.assertEqual(keeper.end(None), 128 + signal.SIGSEGV)
        self.assertIn('was restarted 3 times within 3600 s; giving up', keeper.log())
        self.assertEqual(keeper.log().count('was killed by signal 11 (SEGV); 0 descriptors are kept'), 4)

    def test_crashes_before_ready(self):
        """They count, and what such a server stored is not passed on."""
        keeper = self.keep('''
report(*(name for name, _ in inherited()))
store('a', memory(b'x'))
barrier()
os.kill(os.getpid(), signal.SIGKILL)
''', restarts=2)
        for _ in range(3):
            self.assertEqual(keeper.line()[1], [])
        self.assertEqual(keeper.end(None), 128 + signal.SIGKILL)

    def test_a_first_server_that_does_not_start(self):
        """Or that keeps nothing and has an invalid configuration."""
        stored = "store('a', memory(b'x'))\nbarrier()\n"
        for before, status in ((stored, 1), (stored, 2), (stored, 77), ('serve()\n', 2)):
            with self.subTest(before=before, status=status):
                keeper = self.keep(f'{before}report()\nsys.exit({status})\n')
                keeper.line()
                self.assertEqual(keeper.end(None), status)
                self.assertEqual(keeper.process.stdout.read(), '')

    def test_invalid_configuration_with_supervisor_parts(self):
        """The contents stay, and the server is restarted until the configuration is valid; SIGHUP restarts it at once."""
        right = os.path.join(self.directory(), 'right')
        script = f'''
if not inherited():
    store('a', memory(b'x'))
    serve()
    report('stored')
    os.kill(os.getpid(), signal.SIGKILL)
if not os.path.exists({right!r}):
    report('wrong')
    os._exit(2)
report('right', *(name for name, _ in inherited()))
''' + ASLEEP
        for corrected in (True, False):
            keeper = self.keep(script, restarts=2, before=ignore_hangups)
            self.assertEqual(keeper.line()[1], ['stored'])
            for _ in range(4):
                self.assertEqual(keeper.line()[1], ['wrong'])
            server.wait_until(lambda k=keeper: f'correct it and send SIGHUP to process {k.process.pid}' in k.log(), 30, 'the line')
            if corrected:
                open(right, 'w').close()
                keeper.process.send_signal(signal.SIGHUP)
                while (words := keeper.line()[1]) == ['wrong']:
                    pass
                self.assertEqual(words, ['right', 'a'])
                self.assertEqual(keeper.end(), 128 + signal.SIGTERM)
                os.remove(right)
            else:
                # The signal arrives during a pause, or in the next server.
                self.assertIn(keeper.end(), (2, 128 + signal.SIGTERM))

    def test_restarts_run_the_current_program(self):
        """An upgrade replaces the program file, or the symbolic link to it."""
        for linked in (False, True):
            folder = self.directory()
            program = os.path.join(folder, 'program')
            if linked:
                os.symlink(PROGRAM, program)
            else:
                shutil.copy(PROGRAM, program)
            keeper = self.keep('serve()\nreport()\n' + ASLEEP, program=program)
            pid, _ = keeper.line()
            server.write_file(program + '.new', '#!/bin/sh\necho $$ "$1"\n', 0o755)
            os.replace(program + '.new', program)
            os.kill(pid, signal.SIGKILL)
            self.assertEqual(keeper.line()[1], ['serve'])
            self.assertEqual(keeper.end(None), 0)

    def test_missing_program(self):
        program = shutil.copy(PROGRAM, self.directory())
        keeper = self.keep('''
if not inherited():
    store('a', memory(b'x'))
serve()
report(len(inherited()))
''' + ASLEEP, program=program, restarts=1000)
        pid, _ = keeper.line()
        os.rename(program, program + '.away')
        os.kill(pid, signal.SIGKILL)
        server.wait_until(lambda: keeper.log().count(f'{program}: No such file') >= 2, 30, 'two attempts')
        os.rename(program + '.away', program)
        self.assertEqual(keeper.line()[1], ['1'])

    def test_fork_fails(self):
        keeper = self.keep('report()\n', restarts=2, before=no_more_forks,
                           environment={'ASAN_OPTIONS': 'detect_leaks=0'})  # leak detection would fork as well
        self.assertEqual(keeper.end(None), 1)
        self.assertEqual(keeper.log().count('cannot start the server: Resource temporarily unavailable'), 3)

    def test_successor(self):
        """The server makes its successor a child of the supervisor, announces it, and exits."""
        keeper = self.keep('''
if not inherited():
    store('a', memory(b'x'))
    serve()
    ours, theirs = os.pipe()
    if os.fork() == 0:
        if os.fork() == 0:
            while os.getppid() != int(os.environ['KEEPER']):
                time.sleep(0.001)
            os.write(theirs, str(os.getpid()).encode())
            while True:
                try:
                    barrier()
                    store('b', memory(b'y'))
                    break
                except AssertionError:
                    pass
            while 'is the server now' not in open(f'/proc/{os.environ["KEEPER"]}/fd/2').read():
                time.sleep(0.001)
            store('b', memory(b'y'))
            barrier()
            report('successor')
            sleep_forever()
        os._exit(0)
    os.wait()
    send('MAINPID=' + os.read(ours, 9).decode())
    os._exit(0)
report(*sorted({name for name, _ in inherited()}))
'''.replace('if not inherited():', "os.environ.setdefault('KEEPER', str(os.getppid()))\nif not inherited():", 1) + ASLEEP)
        pid, words = keeper.line()
        self.assertEqual(words, ['successor'])
        os.kill(pid, signal.SIGKILL)
        self.assertEqual(keeper.line()[1], ['a', 'b'])


class Signals(Test):
    def test_signals_are_forwarded_once(self):
        keeper = self.keep('''
received = {signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGINT, signal.SIGTERM, signal.SIGQUIT}
signal.pthread_sigmask(signal.SIG_BLOCK, received)
serve()
report()
for _ in range(7):
    report(signal.sigwait(received).name)
sys.exit(42)
''')
        keeper.line()
        for name in ('SIGHUP', 'SIGUSR1', 'SIGUSR2', 'SIGINT', 'SIGTERM', 'SIGTERM', 'SIGQUIT'):
            keeper.process.send_signal(getattr(signal, name))
            self.assertEqual(keeper.line()[1], [name])
        self.assertEqual(keeper.end(None), 42)

    def test_a_signal_to_the_process_group_arrives_once(self):
        """For example Ctrl-C: only the supervisor forwards it to the server."""
        keeper = self.keep('''
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
serve()
report(os.getpgrp() == os.getpid())
signal.sigwait({signal.SIGINT})
barrier()
sys.exit(signal.SIGINT in signal.sigpending())
''', start_new_session=True)
        self.assertEqual(keeper.line()[1], ['True'], 'the server is in the process group of the supervisor')
        os.killpg(keeper.process.pid, signal.SIGINT)
        self.assertEqual(keeper.end(None), 0)

    def test_the_server_ends_with_the_supervisor(self):
        keeper = self.keep('''
signal.signal(signal.SIGTERM, lambda *_: (report('terminated'), os._exit(0)))
serve()
report()
''' + ASLEEP)
        pid, _ = keeper.line()
        keeper.process.kill()
        self.assertEqual(keeper.line()[1], ['terminated'])
        server.wait_until(lambda: not server.is_running(pid), 30, 'the end of the server')

    def test_the_environment_of_the_server_is_unchanged(self):
        script = r'''
import resource
status = dict(line.split(':', 1) for line in open('/proc/self/status'))
print(os.getpid(), *(status[key].strip() for key in ('SigBlk', 'SigIgn', 'NoNewPrivs')),
      *resource.getrlimit(resource.RLIMIT_NOFILE), sorted(os.listdir('/proc/self/fd')),
      sorted(set(os.environ) - {'NOTIFY_SOCKET', 'FDSTORE'}), flush=True)
'''

        def unusual():
            server.die_with_parent()
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})
            resource.setrlimit(resource.RLIMIT_NOFILE, (100, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
        spare = os.open('/dev/null', os.O_RDONLY)
        self.addCleanup(os.close, spare)
        plain = subprocess.run([sys.executable, '-c', CHILD + script], stdin=subprocess.DEVNULL, capture_output=True,
                               text=True, preexec_fn=unusual, check=True)
        kept = self.keep(script, before=unusual, pass_fds=[spare])
        self.assertEqual(kept.line()[1], plain.stdout.split()[1:])
        self.assertEqual(kept.end(None), 0)

    def test_as_process_1(self):
        """In a PID namespace: signals reach the server, and orphans are reaped."""
        probe = subprocess.run(['unshare', '-p', '-f', '--mount-proc', 'true'], capture_output=True, check=False)
        if probe.returncode != 0:
            server.skip('no PID namespace can be created')
        keeper = self.keep('''
signal.signal(signal.SIGTERM, lambda *_: os._exit(7))
if os.fork() == 0:
    for _ in range(20):
        if os.fork() == 0:
            os._exit(0)
    os._exit(0)
os.wait()
def others():
    return [pid for pid in os.listdir('/proc') if pid.isdigit() and int(pid) not in (1, os.getpid())]
while others():
    time.sleep(0.01)
store('a', memory(b'x'))
serve()
report(os.getppid(), len(inherited()))
if len(inherited()) < 2:
    os.kill(os.getpid(), signal.SIGKILL)
''' + ASLEEP, prefix=('unshare', '-p', '-f', '--mount-proc', '--kill-child'))
        for count in range(3):
            self.assertEqual(keeper.line()[1], ['1', str(count)])
        os.kill(*server.children(keeper.process.pid), signal.SIGTERM)
        self.assertEqual(keeper.end(None), 7)


class Dying(Test):
    """A server closes its exit pipe when it crashes. The supervisor then starts the next server before the crash is over."""

    FIRST = '''
if not inherited():
    store('gpunbd/a', memory(b'x'))
    own = exit_pipe()
    serve()
    %s
    report('first')
    os.close(own)
    sleep_forever()
'''
    NEXT = '''
if start_gate():
    send('READY=1')
    store('gpunbd/too early', memory(b'x'))
    report('waits', *sorted(name for name, _ in inherited()))
    if os.read(start_gate(), 1) != b'!':
        sys.exit(9)
report('begins', *sorted(name for name, _ in inherited()))
'''

    def test_the_next_server_starts_after_the_exit(self):
        keeper = self.keep(self.FIRST % '' + self.NEXT + ASLEEP)
        dying, words = keeper.line()
        self.assertEqual(words, ['first'])
        following, words = keeper.line()
        self.assertEqual(words, ['waits', 'gpunbd/a', 'gpunbd/turn'])
        self.logged('its sender is not the server', keeper, 30)
        os.kill(dying, signal.SIGKILL)
        self.assertEqual(keeper.line(), (following, ['begins', 'gpunbd/a', 'gpunbd/turn']))
        # Only the first crash was detected early.
        os.kill(following, signal.SIGKILL)
        self.assertEqual(keeper.line()[1], ['begins', 'gpunbd/a'])
        self.assertEqual(keeper.end(), 128 + signal.SIGTERM)

    def test_all_sent_descriptors_are_passed_on(self):
        keeper = self.keep(self.FIRST.replace("report('first')", '''
    report('first')
    for i in range(50):
        send(f'FDSTORE=1\\nFDNAME=gpunbd/{i}', [memory(b'x')])
''').replace('%s', '') + self.NEXT + ASLEEP)
        dying, _ = keeper.line()
        self.assertEqual(len(keeper.line()[1]), 1 + 51 + 1)
        os.kill(dying, signal.SIGKILL)
        keeper.line()

    def test_no_restart_after_all(self):
        """After exit status 0, or after an invalid configuration, the waiting server ends."""
        keeper = self.keep(self.FIRST % 'signal.signal(signal.SIGUSR1, lambda *_: os._exit(0))' + self.NEXT)
        dying, _ = keeper.line()
        following, words = keeper.line()
        self.assertEqual(words[0], 'waits')
        os.kill(dying, signal.SIGUSR1)
        self.assertEqual(keeper.end(None), 0)
        server.wait_until(lambda: not server.is_running(following), 30, 'the end of the waiting server')
        self.assertEqual(keeper.process.stdout.read(), '')

    def test_the_supervisor_is_killed(self):
        keeper = self.keep(self.FIRST % '' + 'signal.signal(signal.SIGTERM, signal.SIG_IGN)' + self.NEXT)
        keeper.line()
        following, _ = keeper.line()
        keeper.end(signal.SIGKILL)
        server.wait_until(lambda: not server.is_running(following), 30, 'the end of the waiting server')
        self.assertEqual(keeper.process.stdout.read(), '')

    def test_no_early_start_during_shutdown(self):
        keeper = self.keep(self.FIRST.replace('sleep_forever()', "time.sleep(0.5); report('ends'); os._exit(1)") %
                           "send('STOPPING=1'); barrier()" + self.NEXT)
        self.assertEqual([keeper.line()[1][0] for _ in range(3)], ['first', 'ends', 'begins'])

    def test_the_waiting_server_is_killed(self):
        keeper = self.keep(self.FIRST % '' + '''
if start_gate():
    report('waits')
    os.kill(os.getpid(), signal.SIGKILL)
''' + self.NEXT + ASLEEP)
        dying, _ = keeper.line()
        following, words = keeper.line()
        self.assertEqual(words, ['waits'])
        server.wait_until(lambda: not os.path.exists(f'/proc/{following}'), 30, 'the reaping of the killed server')
        os.kill(dying, signal.SIGKILL)
        self.assertEqual(keeper.line()[1], ['begins', 'gpunbd/a'])

    def test_many_exit_pipes(self):
        """A server that closes many pipes and lives on: only one other server is started, and waits."""
        keeper = self.keep(self.FIRST.replace('sleep_forever()', '''
    for _ in range(1000):
        os.close(exit_pipe())
    barrier()
    report('lives')
    sleep_forever()
''') % '' + self.NEXT)
        self.assertEqual(keeper.line()[1], ['first'])
        words = {keeper.line()[1][0], keeper.line()[1][0]}
        self.assertEqual(words, {'lives', 'waits'})
        count = keeper.descriptors()
        self.assertLess(count, 20)


class Again(Test):
    """The supervisor resets its state for each server."""

    def test_ready_is_reset(self):
        """The next server crashes before it is ready: no other server is started early."""
        keeper = self.keep('''
if not inherited():
    store('gpunbd/a', memory(b'x'))
    serve()
    report('ready')
    os.kill(os.getpid(), signal.SIGKILL)
elif start_gate():
    report('waits')
    sleep_forever()
elif len(inherited()) == 1:
    store('gpunbd/b', memory(b'x'))
    own = exit_pipe()
    barrier()
    report('not ready')
    os.close(own)
    time.sleep(0.5)
    report('ends')
    os._exit(1)
report('begins')
''' + ASLEEP)
        self.assertEqual([keeper.line()[1] for _ in range(4)], [['ready'], ['not', 'ready'], ['ends'], ['begins']])

    def test_stopping_is_reset(self):
        """The next server crashes without announcing a stop: another server is started early."""
        keeper = self.keep('''
if not inherited():
    store('gpunbd/a', memory(b'x'))
    serve()
    send('STOPPING=1')
    barrier()
    report('stopping')
    os._exit(1)
elif start_gate():
    report('waits')
    os.read(start_gate(), 1)
    report('begins')
else:
    own = exit_pipe()
    serve()
    report('serves')
    os.close(own)
''' + ASLEEP)
        self.assertEqual([keeper.line()[1] for _ in range(2)], [['stopping'], ['serves']])
        self.assertIn('ended with status 1; 1 descriptors are kept', keeper.log())
        following, words = keeper.line()
        self.assertEqual(words, ['waits'])
        self.assertEqual(keeper.end(), 128 + signal.SIGTERM)
        server.wait_until(lambda: not server.is_running(following), 30, 'the end of the waiting server')

    def test_the_waiting_server_is_reset(self):
        """The server exits because of its configuration: the waiting server ends, or starts at once."""
        keeper = self.keep(Dying.FIRST % 'signal.signal(signal.SIGUSR1, lambda *_: os._exit(2))' + Dying.NEXT)
        dying, words = keeper.line()
        self.assertEqual(words, ['first'])
        following, words = keeper.line()
        self.assertEqual(words[0], 'waits')
        os.kill(dying, signal.SIGUSR1)
        server.wait_until(lambda: not server.is_running(following), 30, 'the end of the waiting server')
        self.assertEqual(keeper.line()[1][0], 'begins')
        self.assertEqual(keeper.end(), 0)


class Supervised(Test):
    def supervisor(self):
        channel = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.addCleanup(channel.close)
        channel.bind(os.path.join(self.directory(), 'notify'))
        channel.settimeout(60)
        return channel

    def test_notifications_are_forwarded(self):
        channel = self.supervisor()
        keeper = self.keep('''
send('READY=1\\nSTATUS=all is well\\nMAINPID=%d\\nWATCHDOG=1' % os.getpid())
send('RELOADING=1\\nMONOTONIC_USEC=5')
send('FDSTORE=1\\nFDNAME=a', [memory(b'x')])
barrier()
report('WATCHDOG_USEC' in os.environ, os.environ['FDSTORE'])
''' + ASLEEP, environment={'NOTIFY_SOCKET': channel.getsockname(), 'WATCHDOG_USEC': '1000000', 'WATCHDOG_PID': '1'})
        self.assertEqual(channel.recv(4096), b'READY=1\nSTATUS=all is well')
        self.assertEqual(channel.recv(4096), b'RELOADING=1\nMONOTONIC_USEC=5')
        self.assertEqual(keeper.line()[1], ['False', '100'])
        self.assertEqual(keeper.end(), 128 + signal.SIGTERM)
        self.assertEqual(channel.recv(4096), b'STOPPING=1')
        self.assertNotIn('run gpunbd serve without gpunbd keep', keeper.log())

    def test_a_supervisor_with_a_descriptor_store(self):
        channel = self.supervisor()
        keeper = self.keep('serve()\nreport(os.environ["FDSTORE"])\n' + ASLEEP,
                           environment={'NOTIFY_SOCKET': channel.getsockname(), 'FDSTORE': '8'})
        self.assertEqual(keeper.line()[1], ['100'])
        self.assertEqual(keeper.log().count('run gpunbd serve without gpunbd keep'), 1)

    def test_a_missing_supervisor(self):
        keeper = self.keep('serve()\nreport()\n' + ASLEEP, environment={'NOTIFY_SOCKET': '/no/such/socket'})
        keeper.line()
        self.logged('cannot be notified: No such file or directory', keeper)
        self.assertEqual(keeper.end(), 128 + signal.SIGTERM)

    def test_inherited_sockets_are_kept(self):
        listener = socket.create_server(('127.0.0.1', 0))
        self.addCleanup(listener.close)
        with server.passing([listener]) as (start, passed):
            keeper = self.started([*start, server.PROGRAM, 'keep', '--max-descriptors', '7', '--',
                                   'serve', '--device', 'host', '--size', '64M'], pass_fds=passed)
        address = listener.getsockname()
        for _ in range(3):
            with wire.Wire(address) as client:
                client.greet()
            pid, = server.children(keeper.process.pid)
            self.assertIn('FDSTORE=7', server.read_file(f'/proc/{pid}/environ').split('\0'))
            os.kill(pid, signal.SIGKILL)
        with wire.Wire(address) as client:
            client.greet()
        self.assertEqual(keeper.end(), 0)
        self.assertIn('listening on inherited socket 3', keeper.log())


class Serve(Test):
    """gpunbd keep with gpunbd serve."""

    def gpunbd(self, *arguments, flags=(), **options):
        return self.started([server.PROGRAM, 'keep', *flags, '--', 'serve', *map(str, arguments)], **options)

    def test_a_server_waits_at_its_start_gate(self):
        """Before the gate opens it changes nothing. If the gate is closed, it exits."""
        path = os.path.join(self.directory(), 'socket')
        for opens in (True, False):
            gate, end = os.pipe()
            with server.passing([gate], 'gpunbd/turn') as (start, passed):
                waiting = self.started([*start, server.PROGRAM, 'serve', '--device', 'host', '--size', '64M', '-U', path],
                                       pass_fds=passed)
            os.close(gate)

            def reads(pid=waiting.process.pid):
                return server.read_file(f'/proc/{pid}/syscall').split()[:2] in (['0', '0x3'], ['63', '0x3'])

            server.wait_until(reads, 30, 'the server to wait')
            self.assertFalse(os.path.exists(path))
            if opens:
                os.write(end, b'!')
                server.wait_until(lambda one=waiting: 'ready: ' in one.log(), 30, 'the server')
                self.assertEqual(waiting.end(), 0)
            else:
                os.close(end)
                self.assertEqual(waiting.end(None), 1)
                self.assertIn('this pre-started server is not needed any more', waiting.log())

    def test_reloads_are_announced(self):
        folder = self.directory()
        config = server.write_file(os.path.join(folder, 'gpunbd.yaml'),
                                   f'listeners: {{unix: [{{path: {folder}/socket}}]}}\nexports: [{{size: 64M, devices: [host]}}]\n')
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
            channel.bind(os.path.join(folder, 'notify'))
            channel.settimeout(60)
            keeper = self.gpunbd('--config', config, environment={'NOTIFY_SOCKET': channel.getsockname()})
            self.assertEqual(channel.recv(999), b'READY=1')
            keeper.process.send_signal(signal.SIGHUP)
            self.assertRegex(channel.recv(999), rb'^RELOADING=1\nMONOTONIC_USEC=[0-9]+$')
            self.assertEqual(channel.recv(999), b'READY=1')
            server.write_file(config, 'exports: 1\n')
            keeper.process.send_signal(signal.SIGHUP)
            self.assertRegex(channel.recv(999), rb'^RELOADING=1\n')
            self.assertEqual(channel.recv(999), b'READY=1')
            self.assertEqual(keeper.end(), 0)
            self.assertEqual(channel.recv(999), b'STOPPING=1')


if __name__ == '__main__':
    server.main()
