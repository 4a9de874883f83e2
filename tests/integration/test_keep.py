"""gpunbd keep: what outlives a server, when it is started again, and what a broken one cannot do to its keeper."""
import array
import ctypes
import os
import resource
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile

import server
import wire

PROGRAM = os.environ.get('GPUNBD_KEEPING_PROGRAM', os.path.join(os.path.dirname(server.PROGRAM), 'keeping_program'))

# What each child below begins with.
CHILD = r'''
import array, os, signal, socket, sys, time

def send(text, descriptors=()):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as way:
        control = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', descriptors))] if descriptors else []
        way.sendmsg([text if isinstance(text, bytes) else text.encode()], control, 0,
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

def handed():
    """(name, number) of each."""
    if 'LISTEN_FDS' not in os.environ:
        return []
    assert int(os.environ['LISTEN_PID']) == os.getpid()
    names = os.environ['LISTEN_FDNAMES'].split(':')
    assert len(names) == int(os.environ['LISTEN_FDS'])
    return [(name, 3 + i) for i, name in enumerate(names)]

def tell(*words):
    print(os.getpid(), *words, flush=True)

def lifeline():
    theirs, own = os.pipe()
    send('X_GPUNBD_LIFELINE=1', [theirs])
    os.close(theirs)
    return own

def turn():
    return dict(handed()).get('gpunbd/turn')

def serve():
    barrier()
    send('READY=1')
    barrier()
'''
ASLEEP = '\nwhile True: signal.pause()\n'


def no_more_forks():
    """From now on this process cannot fork: clone, clone3, fork and vfork give EAGAIN (a seccomp filter)."""
    server.die_with_parent()
    load, jump, give = 0x20, 0x15, 0x06
    errno, allow, eagain = 0x00050000, 0x7fff0000, 11
    calls = {'x86_64': (56, 57, 58, 435), 'aarch64': (220, 435)}[os.uname().machine]
    rules = [(load, 0, 0, 0)]
    for i, call in enumerate(calls):
        rules.append((jump, len(calls) - i, 0, call))
    rules += [(give, 0, 0, allow), (give, 0, 0, errno | eagain)]
    code = ctypes.create_string_buffer(b''.join(struct.pack('HBBI', *rule) for rule in rules))
    program = ctypes.create_string_buffer(struct.pack('HxxxxxxP', len(rules), ctypes.addressof(code)))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, program, 0, 0):
        raise OSError(ctypes.get_errno(), 'no seccomp filter')


def few_descriptors(count):
    def limit():
        server.die_with_parent()
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, count))
    return limit


def exists(pid):
    try:
        with open(f'/proc/{pid}/stat', encoding='ascii') as file:
            return file.read().rsplit(')', 1)[1].split()[0] != 'Z'
    except FileNotFoundError:
        return False


class Keeper:
    """A keeper whose server tells lines on standard output, and whose own lines are in a file."""

    def __init__(self, command, **options):
        self.errors = tempfile.TemporaryFile()
        options.setdefault('preexec_fn', server.die_with_parent)
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self.errors,
                                        text=True, **options)

    def line(self):
        """The next line of a server: its process id, and the other words."""
        line = self.process.stdout.readline()
        assert line, f'no line came:\n{self.said()}'
        pid, *words = line.split()
        return int(pid), words

    def said(self):
        # Where the next line goes is the file's position, which is also that of who writes it.
        number = self.errors.fileno()
        return os.pread(number, os.fstat(number).st_size, 0).decode(errors='replace')

    def descriptors(self):
        return len(os.listdir(f'/proc/{self.process.pid}/fd'))

    def end(self, number=signal.SIGTERM):
        """Its exit status."""
        if number:
            self.process.send_signal(number)
        return self.process.wait(60)

    def clean_up(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        for report in server.REPORTS:
            assert report not in self.said(), self.said()
        self.errors.close()


class Test(server.Test):
    def started(self, command, **options):
        keeper = Keeper(command, **options)
        self.addCleanup(keeper.clean_up)
        return keeper

    def keep(self, script, restarts=10, within=60, descriptors=100, program=PROGRAM, before=(), **options):
        return self.started([*before, program, 'keep', str(restarts), str(within), str(descriptors), sys.executable,
                             '-c', CHILD + script], **options)


class Contents(Test):
    def test_they_outlive_the_server(self):
        keeper = self.keep('''
if not handed():
    store('gpunbd/one', memory(b'first'))
    store('gpunbd/two', memory(b'second'))
    store('gpunbd/two', memory(b'third'))
serve()
tell(os.environ['FDSTORE'], *(f'{name}={os.pread(number, 99, 0).decode()}' for name, number in sorted(handed())))
''' + ASLEEP, restarts=30)
        pid, words = keeper.line()
        self.assertEqual(words, ['100'])
        for _ in range(20):
            os.kill(pid, signal.SIGKILL)
            pid, words = keeper.line()
            self.assertEqual(words, ['100', 'gpunbd/one=first', 'gpunbd/two=second', 'gpunbd/two=third'])
        self.assertEqual(keeper.end(), 128 + signal.SIGTERM)

    def test_what_was_stored_just_before_the_death(self):
        """Without a barrier: what has been sent counts, even if nobody has read it yet."""
        keeper = self.keep('''
if len(handed()) < 5:
    store(f'gpunbd/{len(handed())}', memory(b'x'))
    send('READY=1')
    os.kill(os.getpid(), signal.SIGKILL)
tell(*(name for name, _ in sorted(handed())))
''' + ASLEEP)
        self.assertEqual(keeper.line()[1], [f'gpunbd/{n}' for n in range(5)])

    def test_what_is_removed_is_gone(self):
        keeper = self.keep('''
if not handed():
    for name in 'abab':
        store(name, memory(b'x'))
    send('FDSTOREREMOVE=1\\nFDNAME=a')
    send('FDSTOREREMOVE=1\\nFDNAME=unheard of')
serve()
tell(*(name for name, _ in handed()))
''' + ASLEEP)
        before = keeper.line()[0]
        count = keeper.descriptors()
        os.kill(before, signal.SIGKILL)
        self.assertEqual(keeper.line()[1], ['b', 'b'])
        self.assertEqual(keeper.descriptors(), count)

    def test_what_is_stored_again_is_kept_once(self):
        made, kcmp = os.memfd_create('probe'), {'x86_64': 312, 'aarch64': 272}[os.uname().machine]
        if ctypes.CDLL(None).syscall(kcmp, os.getpid(), os.getpid(), 0, made, made) != 0:
            server.skip('kcmp() is not allowed here')
        keeper = self.keep('''
for name, number in handed() or [('a', memory(b'x')), ('a', memory(b'y'))]:
    store(name, number)
    store(name, os.dup(number))
serve()
tell(len(handed()))
''' + ASLEEP)
        pid, _ = keeper.line()
        for _ in range(3):
            os.kill(pid, signal.SIGKILL)
            pid, words = keeper.line()
            self.assertEqual(words, ['2'])

    def test_without_a_name(self):
        keeper = self.keep('''
if not handed():
    send('FDSTORE=1', [memory(b'x'), memory(b'y')])
    serve()
    os.kill(os.getpid(), signal.SIGKILL)
tell(*(name for name, _ in handed()))
''' + ASLEEP)
        self.assertEqual(keeper.line()[1], ['stored', 'stored'])

    def test_thousands(self):
        """Their names fill the one variable that there is; as many as fit are kept, in their places."""
        keeper = self.keep('''
if not handed():
    for i in range(4000):
        made = memory(str(i).encode())
        store(f'gpunbd/a name of middling length {i:06}', made)
        os.close(made)
    serve()
    os.kill(os.getpid(), signal.SIGKILL)
wrong = [name for name, number in handed() if int(name[-6:]) != int(os.pread(number, 9, 0))]
tell(len(handed()), *wrong)
''' + ASLEEP, descriptors=10000, preexec_fn=few_descriptors(min(20000, resource.getrlimit(resource.RLIMIT_NOFILE)[1])))
        length = len('gpunbd/a name of middling length 000000:')
        self.assertEqual(keeper.line()[1], [str((128 * 1024 - len('LISTEN_FDNAMES=') - 1) // length)])
        self.assertIn('the names of what is kept fill one variable already', keeper.said())


class Hostile(Test):
    def test_other_processes_store_nothing(self):
        keeper = self.keep('''
made = memory(b'x')
if not handed():
    store('mine', made)
    if os.fork() == 0:
        store('of a child', made)
        send('FDSTOREREMOVE=1\\nFDNAME=mine')
        send('MAINPID=%d' % os.getpid())
        os._exit(0)
    os.wait()
serve()
tell(os.environ['NOTIFY_SOCKET'], *(name for name, _ in handed()))
''' + ASLEEP)
        pid, (address,) = keeper.line()
        count = keeper.descriptors()
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as way:
            for _ in range(50):
                way.sendmsg([b'FDSTORE=1\nFDNAME=foreign'],
                            [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [0] * 253))], 0,
                            '\0' + address[1:])
        os.kill(pid, signal.SIGKILL)
        self.assertEqual(keeper.line()[1][1:], ['mine'])
        self.assertEqual(keeper.descriptors(), count)
        self.assertIn('is refused: it is not the server', keeper.said())

    def test_a_server_that_sends_nonsense(self):
        keeper = self.keep('''
made = memory(b'x')
serve()
tell()
sys.stdin.read()
for text in (b'', b'\\n', b'\\0', b'=', b'FDSTORE=1\\nFDNAME=a:b', b'FDSTORE=1\\nFDNAME=' + b'x' * 256, b'x' * 5000,
             b'FDSTORE=1\\nFDNAME=\\xc3\\xa4', b'MAINPID=1', b'MAINPID=-1', b'MAINPID=', b'MAINPID=99999999999999999999',
             b'FDSTORE=2', b'FDSTORE=1 ', b'fdstore=1', b'FDSTOREREMOVE=1'):
    for number in (0, 1, 253):
        send(text, [made] * number)
for _ in range(2000):
    send('FDSTORE=1\\nFDNAME=a:b\\nc=' + 'x' * 4000, [made])
barrier()
tell()
''' + ASLEEP)
        keeper.line()
        count = keeper.descriptors()
        keeper.line()
        # Fewer: it had something open for a moment when they were counted first.
        server.wait_until(lambda: keeper.descriptors() <= count, 10, 'what nonsense brought to be closed')
        self.assertLess(len(keeper.said().splitlines()), 20)
        self.assertEqual(keeper.end(), 128 + signal.SIGTERM)

    def test_more_than_may_be_kept(self):
        keeper = self.keep('''
if not handed():
    send('FDSTORE=1\\nFDNAME=first', [memory(b'x') for _ in range(3)])
    send('FDSTORE=1\\nFDNAME=second', [memory(b'x') for _ in range(100)])
    serve()
    os.kill(os.getpid(), signal.SIGKILL)
tell(*(name for name, _ in sorted(handed())))
''' + ASLEEP, descriptors=5)
        self.assertEqual(keeper.line()[1], ['first'] * 3 + ['second'] * 2)
        self.assertIn('as many descriptors are kept as --max-descriptors says', keeper.said())

    def test_no_descriptors_are_left(self):
        """A message for whose descriptors there is no room is refused whole, and the next one is taken."""
        keeper = self.keep('''
if not handed():
    many = memory(b'x')
    send('FDSTORE=1\\nFDNAME=many', [many] * 253)
    store('one', many)
    serve()
tell(os.environ['FDSTORE'], resource.getrlimit(resource.RLIMIT_NOFILE)[0], *(name for name, _ in handed()))
'''.replace('if not', 'import resource\nif not', 1) + ASLEEP, preexec_fn=few_descriptors(80))
        pid, _ = keeper.line()
        os.kill(pid, signal.SIGKILL)
        self.assertEqual(keeper.line()[1], ['16', '80', 'one'])
        self.assertIn('keeps up to 16 descriptors, not 100: the limit of open files is 80', keeper.said())
        self.assertIn('there is no room for its descriptors', keeper.said())


class Restarts(Test):
    def test_the_limit(self):
        keeper = self.keep("serve()\ntell()\nos.kill(os.getpid(), signal.SIGSEGV)\n", restarts=3)
        for _ in range(4):
            keeper.line()
        self.assertEqual(keeper.end(None), 128 + signal.SIGSEGV)
        self.assertIn('was started again 3 times within 60 s: this is the end', keeper.said())
        self.assertEqual(keeper.said().count('was killed by signal 11 (SEGV); 0 descriptors are kept'), 4)

    def test_deaths_before_it_is_ready(self):
        keeper = self.keep("tell()\nos.kill(os.getpid(), signal.SIGKILL)\n", restarts=2)
        for _ in range(3):
            keeper.line()
        self.assertEqual(keeper.end(None), 128 + signal.SIGKILL)

    def test_unexpected_exit(self):
        keeper = self.keep("""
if not handed():
    store('a', memory(b'x'))
    serve()
    os._exit(1)
tell(*handed()[0])
sys.exit(0)
""")
        self.assertEqual(keeper.line()[1], ['a', '3'])
        self.assertEqual(keeper.end(None), 0)
        self.assertIn('ended with status 1; 1 descriptors are kept', keeper.said())

    def test_a_first_server_that_cannot_start(self):
        for status in (1, 2, 77):
            keeper = self.keep(f'tell()\nsys.exit({status})\n')
            keeper.line()
            self.assertEqual(keeper.end(None), status)
            self.assertEqual(keeper.process.stdout.read(), '')

    def test_wrong_configuration(self):
        keeper = self.keep('serve()\ntell()\nos._exit(2)\n')
        keeper.line()
        self.assertEqual(keeper.end(None), 2)
        self.assertEqual(keeper.process.stdout.read(), '')

    def test_wrong_configuration_while_contents_are_kept(self):
        """They stay until somebody has corrected it, or says that it is over."""
        folder = self.directory()
        right = os.path.join(folder, 'right')
        script = f'''
if not handed():
    store('a', memory(b'x'))
    serve()
    tell('stored')
    os.kill(os.getpid(), signal.SIGKILL)
tell('again')
if not os.path.exists({right!r}):
    os._exit(2)
''' + ASLEEP
        for corrected in (True, False):
            keeper = self.keep(script)
            self.assertEqual(keeper.line()[1], ['stored'])
            self.assertEqual(keeper.line()[1], ['again'])
            server.wait_until(lambda k=keeper: 'correct it and send SIGHUP' in k.said(), 30, 'the line')
            if corrected:
                keeper.process.send_signal(signal.SIGHUP)
                keeper.line()
                server.wait_until(lambda k=keeper: k.said().count('correct it') == 2, 30, 'another line')
                open(right, 'w').close()
                keeper.process.send_signal(signal.SIGHUP)
                keeper.line()
                self.assertEqual(keeper.end(), 128 + signal.SIGTERM)
                os.remove(right)
            else:
                self.assertEqual(keeper.end(), 2)

    def test_told_to_end_while_it_waits_to_start_again(self):
        keeper = self.keep("tell()\nos.kill(os.getpid(), signal.SIGKILL)\n", restarts=1000)
        for _ in range(4):
            keeper.line()
        self.assertIn(keeper.end(), (128 + signal.SIGKILL, 128 + signal.SIGTERM))

    def test_what_is_started_next_is_what_lies_there(self):
        """An upgrade replaces the file, or turns the symbolic link by which it was called."""
        for linked in (False, True):
            folder = self.directory()
            program = os.path.join(folder, 'program')
            if linked:
                os.symlink(PROGRAM, program)
            else:
                shutil.copy(PROGRAM, program)
            keeper = self.keep('serve()\ntell()\n' + ASLEEP, program=program)
            pid, _ = keeper.line()
            with open(program + '.new', 'w', encoding='ascii') as file:
                file.write('#!/bin/sh\necho $$ "$1"\n')
            os.chmod(program + '.new', 0o755)
            os.replace(program + '.new', program)
            os.kill(pid, signal.SIGKILL)
            self.assertEqual(keeper.line()[1], ['serve'])
            self.assertEqual(keeper.end(None), 0)

    def test_no_program_is_there(self):
        program = shutil.copy(PROGRAM, self.directory())
        keeper = self.keep('''
if not handed():
    store('a', memory(b'x'))
serve()
tell(len(handed()))
''' + ASLEEP, program=program, restarts=1000)
        pid, _ = keeper.line()
        os.rename(program, program + '.away')
        os.kill(pid, signal.SIGKILL)
        server.wait_until(lambda: keeper.said().count(f'{program}: No such file') >= 2, 30, 'two attempts')
        os.rename(program + '.away', program)
        self.assertEqual(keeper.line()[1], ['1'])

    def test_no_process_can_be_had(self):
        keeper = self.keep('tell()\n', restarts=2, preexec_fn=no_more_forks,
                           env={**os.environ, 'ASAN_OPTIONS': 'detect_leaks=0'})  # which would take a process, too
        self.assertEqual(keeper.end(None), 1)
        self.assertEqual(keeper.said().count('cannot start the server: Resource temporarily unavailable'), 3)

    def test_successor(self):
        """The server names a successor, which it has made a child of the keeper, and ends."""
        keeper = self.keep('''
if not handed():
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
            tell('successor')
            signal.pause()
        os._exit(0)
    os.wait()
    send('MAINPID=' + os.read(ours, 9).decode())
    os._exit(0)
tell(*sorted({name for name, _ in handed()}))
'''.replace('if not handed():', "os.environ.setdefault('KEEPER', str(os.getppid()))\nif not handed():", 1) + ASLEEP)
        pid, words = keeper.line()
        self.assertEqual(words, ['successor'])
        os.kill(pid, signal.SIGKILL)
        self.assertEqual(keeper.line()[1], ['a', 'b'])


class Signals(Test):
    def test_they_are_passed_on_once(self):
        keeper = self.keep('''
told = {signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGINT, signal.SIGTERM, signal.SIGQUIT}
signal.pthread_sigmask(signal.SIG_BLOCK, told)
serve()
tell()
for _ in range(7):
    tell(signal.sigwait(told).name)
sys.exit(42)
''')
        keeper.line()
        for name in ('SIGHUP', 'SIGUSR1', 'SIGUSR2', 'SIGINT', 'SIGTERM', 'SIGTERM', 'SIGQUIT'):
            keeper.process.send_signal(getattr(signal, name))
            self.assertEqual(keeper.line()[1], [name])
        self.assertEqual(keeper.end(None), 42)

    def test_a_group_of_processes_gets_each_once(self):
        """As by a terminal's Ctrl-C: the server is told by the keeper alone."""
        keeper = self.keep('''
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
serve()
tell(os.getpgrp() == os.getpid())
signal.sigwait({signal.SIGINT})
barrier()
sys.exit(signal.SIGINT in signal.sigpending())
''', start_new_session=True)
        self.assertEqual(keeper.line()[1], ['True'], 'the server is in the group of its keeper')
        os.killpg(keeper.process.pid, signal.SIGINT)
        self.assertEqual(keeper.end(None), 0)

    def test_the_server_ends_with_its_keeper(self):
        keeper = self.keep('''
signal.signal(signal.SIGTERM, lambda *_: (tell('told'), os._exit(0)))
serve()
tell()
''' + ASLEEP)
        pid, _ = keeper.line()
        keeper.process.kill()
        self.assertEqual(keeper.line()[1], ['told'])
        server.wait_until(lambda: not exists(pid), 30, 'the end of the server')

    def test_the_server_has_what_it_would_have_without(self):
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
        kept = self.keep(script, preexec_fn=unusual, pass_fds=[spare])
        self.assertEqual(kept.line()[1], plain.stdout.split()[1:])
        self.assertEqual(kept.end(None), 0)

    def test_as_process_1(self):
        """In a PID namespace of its own: signals reach the server all the same, and orphans are reaped."""
        probe = subprocess.run(['unshare', '-p', '-f', '--mount-proc', 'true'], capture_output=True, check=False)
        if probe.returncode != 0:
            server.skip('no PID namespace can be made here')
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
tell(os.getppid(), len(handed()))
if len(handed()) < 2:
    os.kill(os.getpid(), signal.SIGKILL)
''' + ASLEEP, before=('unshare', '-p', '-f', '--mount-proc', '--kill-child'))
        for count in range(3):
            self.assertEqual(keeper.line()[1], ['1', str(count)])
        with open(f'/proc/{keeper.process.pid}/task/{keeper.process.pid}/children', encoding='ascii') as file:
            os.kill(int(file.read()), signal.SIGTERM)
        self.assertEqual(keeper.end(None), 7)


class Dying(Test):
    """A server that is dying, as the keeper sees by its lifeline, and the one that is started beside its end."""

    FIRST = '''
if not handed():
    store('gpunbd/a', memory(b'x'))
    own = lifeline()
    serve()
    %s
    tell('first')
    os.close(own)
    signal.pause()
'''
    NEXT = '''
if turn():
    tell('waits', *sorted(name for name, _ in handed()))
    send('READY=1')
    store('gpunbd/too early', memory(b'x'))
    if os.read(turn(), 1) != b'!':
        sys.exit(9)
tell('begins', *sorted(name for name, _ in handed()))
'''

    def test_the_next_one_has_its_turn_when_it_is_dead(self):
        keeper = self.keep(self.FIRST % '' + self.NEXT + ASLEEP)
        dying, words = keeper.line()
        self.assertEqual(words, ['first'])
        following, words = keeper.line()
        self.assertEqual(words, ['waits', 'gpunbd/a', 'gpunbd/turn'])
        server.wait_until(lambda: 'it is not the server' in keeper.said(), 30, 'what it sent too early')
        os.kill(dying, signal.SIGKILL)
        self.assertEqual(keeper.line(), (following, ['begins', 'gpunbd/a', 'gpunbd/turn']))
        # That was once.
        os.kill(following, signal.SIGKILL)
        self.assertEqual(keeper.line()[1], ['begins', 'gpunbd/a'])
        self.assertEqual(keeper.end(), 128 + signal.SIGTERM)

    def test_all_that_it_sent_is_handed_over(self):
        keeper = self.keep(self.FIRST.replace("tell('first')", '''
    tell('first')
    for i in range(50):
        send(f'FDSTORE=1\\nFDNAME=gpunbd/{i}', [memory(b'x')])
''').replace('%s', '') + self.NEXT + ASLEEP)
        dying, _ = keeper.line()
        self.assertEqual(len(keeper.line()[1]), 1 + 51 + 1)
        os.kill(dying, signal.SIGKILL)
        keeper.line()

    def test_it_is_over_after_all(self):
        """Ended with 0, or for its configuration: then nobody is to follow."""
        keeper = self.keep(self.FIRST.replace('signal.pause()', 'time.sleep(0.5); os._exit(0)') % '' + self.NEXT)
        keeper.line()
        following, words = keeper.line()
        self.assertEqual(words[0], 'waits')
        self.assertEqual(keeper.end(None), 0)
        server.wait_until(lambda: not exists(following), 30, 'the one that waits to end')
        self.assertEqual(keeper.process.stdout.read(), '')

    def test_the_keeper_is_told_to_end(self):
        keeper = self.keep(self.FIRST % 'signal.signal(signal.SIGTERM, lambda *_: os._exit(7))' + self.NEXT)
        keeper.line()
        following, _ = keeper.line()
        self.assertEqual(keeper.end(), 7)
        server.wait_until(lambda: not exists(following), 30, 'the one that waits to end')

    def test_the_keeper_is_killed(self):
        keeper = self.keep(self.FIRST % '' + 'signal.signal(signal.SIGTERM, signal.SIG_IGN)' + self.NEXT)
        keeper.line()
        following, _ = keeper.line()
        keeper.end(signal.SIGKILL)
        server.wait_until(lambda: not exists(following), 30, 'the one that waits to end')
        self.assertEqual(keeper.process.stdout.read(), '')

    def test_none_is_started_beside_one_that_stops(self):
        keeper = self.keep(self.FIRST.replace('signal.pause()', "time.sleep(0.5); tell('ends'); os._exit(1)") %
                           "send('STOPPING=1'); barrier()" + self.NEXT)
        self.assertEqual([keeper.line()[1][0] for _ in range(3)], ['first', 'ends', 'begins'])

    def test_nor_beside_one_that_was_never_ready(self):
        keeper = self.keep(self.FIRST.replace('serve()', 'barrier()')
                           .replace('signal.pause()', "time.sleep(0.5); tell('ends'); os._exit(1)") % '' + self.NEXT)
        self.assertEqual([keeper.line()[1][0] for _ in range(3)], ['first', 'ends', 'begins'])

    def test_the_next_one_ends_before_its_turn(self):
        keeper = self.keep(self.FIRST % '' + '''
if turn():
    tell('waits')
    os.kill(os.getpid(), signal.SIGKILL)
''' + self.NEXT + ASLEEP)
        dying, _ = keeper.line()
        following, words = keeper.line()
        self.assertEqual(words, ['waits'])
        server.wait_until(lambda: not os.path.exists(f'/proc/{following}'), 30, 'the one that was killed to be reaped')
        os.kill(dying, signal.SIGKILL)
        self.assertEqual(keeper.line()[1], ['begins', 'gpunbd/a'])

    def test_lifelines_without_end(self):
        """A server that cuts one after the other, and lives: one other is started, and waits."""
        keeper = self.keep(self.FIRST.replace('signal.pause()', '''
    for _ in range(1000):
        os.close(lifeline())
    barrier()
    tell('lives')
    signal.pause()
''') % '' + self.NEXT)
        self.assertEqual(keeper.line()[1], ['first'])
        told = {keeper.line()[1][0], keeper.line()[1][0]}
        self.assertEqual(told, {'lives', 'waits'})
        count = keeper.descriptors()
        self.assertLess(count, 20)


class Supervised(Test):
    def supervisor(self):
        way = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.addCleanup(way.close)
        way.bind(os.path.join(self.directory(), 'notify'))
        way.settimeout(60)
        return way

    def test_the_own_supervisor_is_told(self):
        way = self.supervisor()
        keeper = self.keep('''
send('READY=1\\nSTATUS=all is well\\nMAINPID=%d\\nWATCHDOG=1' % os.getpid())
send('RELOADING=1\\nMONOTONIC_USEC=5')
send('FDSTORE=1\\nFDNAME=a', [memory(b'x')])
barrier()
tell('WATCHDOG_USEC' in os.environ, os.environ['FDSTORE'])
''' + ASLEEP, env={**os.environ, 'NOTIFY_SOCKET': way.getsockname(), 'WATCHDOG_USEC': '1000000', 'WATCHDOG_PID': '1'})
        self.assertEqual(way.recv(4096), b'READY=1\nSTATUS=all is well')
        self.assertEqual(way.recv(4096), b'RELOADING=1\nMONOTONIC_USEC=5')
        self.assertEqual(keeper.line()[1], ['False', '100'])
        self.assertEqual(keeper.end(), 128 + signal.SIGTERM)
        self.assertEqual(way.recv(4096), b'STOPPING=1')
        self.assertNotIn('needs no gpunbd keep', keeper.said())

    def test_a_supervisor_that_keeps_descriptors_itself(self):
        way = self.supervisor()
        keeper = self.keep('serve()\ntell(os.environ["FDSTORE"])\n' + ASLEEP,
                           env={**os.environ, 'NOTIFY_SOCKET': way.getsockname(), 'FDSTORE': '8'})
        self.assertEqual(keeper.line()[1], ['100'])
        self.assertEqual(keeper.said().count('gpunbd serve needs no gpunbd keep there'), 1)

    def test_a_supervisor_that_is_not_there(self):
        keeper = self.keep('serve()\ntell()\n' + ASLEEP, env={**os.environ, 'NOTIFY_SOCKET': '/no/such/socket'})
        keeper.line()
        self.assertIn('cannot be told: No such file or directory', keeper.said())
        self.assertEqual(keeper.end(), 128 + signal.SIGTERM)

    def test_sockets_handed_over_are_kept(self):
        listener = socket.create_server(('127.0.0.1', 0))
        self.addCleanup(listener.close)
        hand_over = ('import os, sys; os.dup2(int(sys.argv[1]), 3); '
                     'os.environ.update(LISTEN_FDS="1", LISTEN_PID=str(os.getpid())); os.execv(sys.argv[2], sys.argv[2:])')
        high = os.dup(listener.fileno())
        keeper = self.started([sys.executable, '-c', hand_over, str(high), server.PROGRAM, 'keep', '--', 'serve',
                               '--device', 'host', '--size', '64M'], pass_fds=[high])
        os.close(high)
        address = listener.getsockname()
        for _ in range(3):
            with wire.Wire(address) as client:
                client.greet()
            with open(f'/proc/{keeper.process.pid}/task/{keeper.process.pid}/children', encoding='ascii') as file:
                os.kill(int(file.read()), signal.SIGKILL)
        with wire.Wire(address) as client:
            client.greet()
        self.assertEqual(keeper.end(), 0)
        self.assertIn('listening on inherited socket 3', keeper.said())


class Serve(Test):
    """gpunbd keep around gpunbd serve."""

    def gpunbd(self, *arguments, flags=(), **options):
        return self.started([server.PROGRAM, 'keep', *flags, '--', 'serve', *map(str, arguments)], **options)

    def child(self, keeper):
        with open(f'/proc/{keeper.process.pid}/task/{keeper.process.pid}/children', encoding='ascii') as file:
            return int(file.read())

    def test_it_listens_again(self):
        path = os.path.join(self.directory(), 'socket')
        keeper = self.gpunbd('--device', 'host', '--size', '64M', '-U', path, flags=['--max-restarts', '3'])
        for count in range(1, 5):
            server.wait_until(lambda n=count: keeper.said().count('ready: nbd+unix') == n, 30, 'a server')
            with wire.Wire(path) as client:
                client.greet()
            os.kill(self.child(keeper), signal.SIGKILL)
        self.assertEqual(keeper.end(None), 128 + signal.SIGKILL)

    def test_it_drains(self):
        path = os.path.join(self.directory(), 'socket')
        keeper = self.gpunbd('--device', 'host', '--size', '64M', '-U', path)
        server.wait_until(lambda: 'ready: ' in keeper.said(), 30, 'the server')
        self.assertEqual(keeper.end(), 0)
        self.assertIn('stopping: answering what is in flight', keeper.said())
        self.assertFalse(os.path.exists(path))

    def test_wrong_usage_and_configuration(self):
        path = os.path.join(self.directory(), 'gpunbd.yaml')
        with open(path, 'w', encoding='ascii') as file:
            file.write('exports: [{sise: 1G}]\n')
        for arguments in (['--no-such-flag'], ['--config', path]):
            keeper = self.gpunbd(*arguments)
            self.assertEqual(keeper.end(None), 2)
            self.assertEqual(len(keeper.said().splitlines()), 1, keeper.said())

    def test_address_that_is_taken(self):
        with socket.create_server(('127.0.0.1', 0)) as taken:
            keeper = self.gpunbd('--device', 'host', '--size', '64M', '-b', '127.0.0.1', '-p', taken.getsockname()[1])
            self.assertEqual(keeper.end(None), 1)
            self.assertEqual(keeper.said().count('error: '), 1, keeper.said())

    def test_help(self):
        keeper = self.gpunbd('--help')
        self.assertEqual(keeper.end(None), 0)
        self.assertTrue(keeper.process.stdout.read().startswith('gpunbd serve - '))

    def test_usage(self):
        for arguments, told in (((), 'what to run is missing'), (('--',), 'what to run is missing'),
                                (('--', 'devices'), "'devices' cannot be kept"), (('--within', '0', 'serve'), '--within: '),
                                (('--max-restarts', 'x', '--', 'serve'), '--max-restarts: '),
                                (('--max-descriptors', '100001', '--', 'serve'), '--max-descriptors: '),
                                (('--', 'serve', '--run', 'true'), '--run ends the server'),
                                (('--frob', '--', 'serve'), "unknown flag '--frob'"),
                                (('x', '--', 'serve'), "unexpected argument 'x'")):
            with self.subTest(arguments=arguments):
                self.command(server.PROGRAM, 'keep', *arguments, status=2)
                self.assertIn(told, self.errors)
                self.assertEqual(len(self.errors.splitlines()), 1, self.errors)

    def test_it_waits_for_its_turn(self):
        """It touches nothing before, and goes when that never comes."""
        path = os.path.join(self.directory(), 'socket')
        hand_over = ('import os, sys; os.dup2(int(sys.argv[1]), 3); '
                     'os.environ.update(LISTEN_FDS="1", LISTEN_FDNAMES="gpunbd/turn", LISTEN_PID=str(os.getpid())); '
                     'os.execv(sys.argv[2], sys.argv[2:])')
        for comes in (True, False):
            place, end = os.pipe()
            waiting = self.started([sys.executable, '-c', hand_over, str(place), server.PROGRAM, 'serve', '--device', 'host',
                                    '--size', '64M', '-U', path], pass_fds=[place])
            os.close(place)

            def reads(pid=waiting.process.pid):
                with open(f'/proc/{pid}/syscall', encoding='ascii') as file:
                    return file.read().split()[:2] in (['0', '0x3'], ['63', '0x3'])

            server.wait_until(reads, 30, 'it to wait')
            self.assertFalse(os.path.exists(path))
            if comes:
                os.write(end, b'!')
                server.wait_until(lambda one=waiting: 'ready: ' in one.said(), 30, 'the server')
                self.assertEqual(waiting.end(), 0)
            else:
                os.close(end)
                self.assertEqual(waiting.end(None), 1)
                self.assertIn('nobody wants this server any more', waiting.said())

    def test_supervisor_sees_reloads(self):
        folder = self.directory()
        config = os.path.join(folder, 'gpunbd.yaml')
        with open(config, 'w', encoding='ascii') as file:
            file.write(f'listeners: {{unix: [{{path: {folder}/socket}}]}}\nexports: [{{size: 64M, devices: [host]}}]\n')
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as way:
            way.bind(os.path.join(folder, 'notify'))
            way.settimeout(60)
            keeper = self.gpunbd('--config', config, env={**os.environ, 'NOTIFY_SOCKET': way.getsockname()})
            self.assertEqual(way.recv(999), b'READY=1')
            keeper.process.send_signal(signal.SIGHUP)
            self.assertRegex(way.recv(999), rb'^RELOADING=1\nMONOTONIC_USEC=[0-9]+$')
            self.assertEqual(way.recv(999), b'READY=1')
            with open(config, 'w', encoding='ascii') as file:
                file.write('exports: 1\n')
            keeper.process.send_signal(signal.SIGHUP)
            self.assertRegex(way.recv(999), rb'^RELOADING=1\n')
            self.assertEqual(way.recv(999), b'READY=1')
            self.assertEqual(keeper.end(), 0)
            self.assertEqual(way.recv(999), b'STOPPING=1')


if __name__ == '__main__':
    server.main()
