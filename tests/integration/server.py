"""The server under test. It runs with its own socket directory and log, and is checked when it stops.

The program is $GPUNBD_PROGRAM, which CTest sets, or else build/release/gpunbd. These tests check exact behaviour of
gpunbd; tests/conformance tests any server against the specification. Tests that need no particular device use
$GPUNBD_DEVICE, `host` by default; `lavapipe` is Vulkan's driver on the CPU, which looks like a GPU (discrete_layer.cpp).
"""
import atexit
import contextlib
import ctypes
import fcntl
import json
import os
import random
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import unittest

import lavapipe

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PROGRAM = os.environ.get('GPUNBD_PROGRAM', os.path.join(ROOT, 'build/release/gpunbd'))
NBDLOAD = os.environ.get('GPUNBD_NBDLOAD', os.path.join(os.path.dirname(PROGRAM), 'nbdload'))
LAVAPIPE = os.environ.get('GPUNBD_DEVICE') == 'lavapipe'
DEVICE = 'vulkan:0' if LAVAPIPE else os.environ.get('GPUNBD_DEVICE') or 'host'
SANITIZED = bool(os.environ.get('GPUNBD_SANITIZE'))
SKIP = 77

KiB, MiB, GiB = 1 << 10, 1 << 20, 1 << 30
PAGE = 2 * MiB  # the default page of an export


def use_private_folder():
    """Moves all files of this process and its children below one folder, which is removed at the end: $TMPDIR, and the
    folder that servers use instead of /run/gpunbd."""
    folder = tempfile.mkdtemp(prefix='gpunbd-')
    os.chmod(folder, 0o711)  # for programs that run as other users
    owner = os.getpid()
    atexit.register(lambda: os.getpid() == owner and shutil.rmtree(folder, ignore_errors=True))
    os.mkdir(f'{folder}/run', 0o700)
    os.environ.update(TMPDIR=folder, RUNTIME_DIRECTORY=f'{folder}/run')
    tempfile.tempdir = folder


def restore_signals():
    """Restores the default actions of signals. A shell that starts the tests in the background ignores SIGINT and SIGQUIT,
    and nohup ignores SIGHUP; servers would inherit this and not end."""
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)


use_private_folder()
restore_signals()

REPORTS = ('AddressSanitizer', 'LeakSanitizer', 'ThreadSanitizer', 'runtime error:',
           'Assertion', 'terminate called')


def skip(reason):
    """Skips the running case, or the whole file if no case is running."""
    if Test.running:
        raise unittest.SkipTest(reason)
    print(f'SKIPPED: {os.path.basename(sys.argv[0])}: {reason}')
    sys.exit(SKIP)


def need(*programs):
    """Skips the test if a program is not installed."""
    for program in programs:
        if not shutil.which(program):
            skip(f'{program} is not installed (./dev setup installs it)')


def need_lavapipe(discrete_folder=None):
    """Uses lavapipe, or skips the test. Its messages in the log of a server are failures."""
    global REPORTS
    reason = lavapipe.use(discrete_folder)
    if reason:
        skip(reason)
    REPORTS += lavapipe.REPORTS


def need_libnbd():
    try:
        import nbd
    except ImportError:
        skip('the Python module nbd is missing (python3-libnbd, for /usr/bin/python3)')
    return nbd


def has_ipv6():
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET6) as probe:
        probe.bind(('::1', 0))
        return True
    return False


HAS_IPV6 = has_ipv6()


def die_with_parent():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


RESERVATIONS = []  # sockets that this process holds until its end


def free_port(address='127.0.0.1'):
    """A free port that no other running test gets: a name in the abstract namespace reserves it for this process. The
    kernel does not choose such a port for other programs, because it is below the usual range."""
    family = socket.AF_INET6 if ':' in address else socket.AF_INET
    for _ in range(1000):
        port = random.randrange(12000, 32768)
        reservation = socket.socket(socket.AF_UNIX)
        with contextlib.suppress(OSError), socket.socket(family) as probe:
            reservation.bind(f'\0gpunbd-test-port-{port}')
            probe.bind((address, port))
            RESERVATIONS.append(reservation)
            return port
        reservation.close()
    raise AssertionError(f'no port of {address} is free')


def listens(path):
    """Whether a server listens on this Unix socket. The file exists earlier."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as probe:
        probe.connect(path)
        return True
    return False


def open_files(pid):
    """What each descriptor of a process refers to, as /proc shows it."""
    folder, files = f'/proc/{pid}/fd', []
    for number in os.listdir(folder):
        with contextlib.suppress(FileNotFoundError):  # closed since the folder was listed
            files.append(os.readlink(f'{folder}/{number}'))
    return files


def wait_for_text(text, source, seconds=60):
    """Waits for text in the result of source(), such as a log, which may be written after the reply that it is about."""
    wait_until(lambda: text in source(), seconds, lambda: f'{text!r} in:\n{source()}')


def wait_until(condition, seconds=60, what='a condition'):
    """`what` describes the condition. It may be a function, which is called after a timeout."""
    end = time.monotonic() + seconds
    while True:
        late = time.monotonic() > end  # before the condition, because this process may be stopped in between
        if condition():
            return
        if late:
            raise AssertionError(f'timeout after {seconds} s, waiting for {what() if callable(what) else what}')
        time.sleep(0.01)


def children(pid):
    """The process ids of the children of a process without threads."""
    with open(f'/proc/{pid}/task/{pid}/children', encoding='ascii') as file:
        return [int(each) for each in file.read().split()]


def process_state(pid):
    """The state of a process as /proc shows it, such as S, T and Z; X if it does not exist."""
    try:
        with open(f'/proc/{pid}/stat', encoding='ascii') as file:
            return file.read().rsplit(')', 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):  # it has ended before open() or before read()
        return 'X'


def is_running(pid):
    return process_state(pid) not in 'ZX'


@contextlib.contextmanager
def passing(files, names=None):
    """The start of a command that gets these files as descriptors 3, 4, ..., as systemd passes them, and the `pass_fds`
    of that command."""
    start = ('import os, sys; count = int(sys.argv[2]); '
             '[os.dup2(int(sys.argv[3 + n]), 3 + n) for n in range(count)]; '
             'os.environ.update(LISTEN_FDS=str(count), LISTEN_PID=str(os.getpid())); '
             'sys.argv[1] and os.environ.update(LISTEN_FDNAMES=sys.argv[1]); '
             'os.execv(sys.argv[3 + count], sys.argv[3 + count:])')
    high = [fcntl.fcntl(each, fcntl.F_DUPFD, 100) for each in files]
    try:
        yield [sys.executable, '-c', start, names or '', str(len(high)), *map(str, high)], high
    finally:
        for descriptor in high:
            os.close(descriptor)


def filter_calls(rules):
    """Installs a seccomp filter of BPF rules in this process."""
    code = ctypes.create_string_buffer(b''.join(struct.pack('HBBI', *rule) for rule in rules))
    program = ctypes.create_string_buffer(struct.pack('HxxxxxxP', len(rules), ctypes.addressof(code)))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, program, 0, 0):  # NO_NEW_PRIVS, SECCOMP
        raise OSError(ctypes.get_errno(), 'seccomp')


class Process:
    """A program with a folder of its own: `path` is for its Unix socket, and its log and its configuration are there."""

    def __init__(self):
        self.directory = tempfile.mkdtemp(prefix='gpunbd-')
        self.path = os.path.join(self.directory, 'socket')
        self.config_path = os.path.join(self.directory, 'gpunbd.yaml')
        self.log_path = os.path.join(self.directory, 'log')

    def start(self, command, environment=None, before=die_with_parent, **options):
        self.command = command
        with open(self.log_path, 'wb') as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, preexec_fn=before, stderr=log,
                                            env={**os.environ, **(environment or {})}, **{'stdout': log, **options})

    def with_own(self, text):
        """The text with {device}, and {socket} and {directory} of this server, replaced."""
        return text.replace('{device}', DEVICE).replace('{socket}', self.path).replace('{directory}', self.directory)

    def configure(self, text):
        """Writes the configuration."""
        write_file(self.config_path, self.with_own(text))

    def log(self):
        with open(self.log_path, encoding='utf-8', errors='replace') as file:
            return file.read()

    def descriptors(self):
        return len(os.listdir(f'/proc/{self.process.pid}/fd'))

    def stop(self, number=signal.SIGTERM, seconds=60, status=0):
        """Stops the server, and checks its exit status and its log. Returns the duration."""
        start = time.monotonic()
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired as error:
            self.process.kill()
            self.process.wait()
            raise AssertionError(f'the server still runs {seconds} s after signal {number}') from error
        taken = time.monotonic() - start
        self.remove_files()
        assert self.process.returncode == status, f'the server ended with {self.process.returncode}'
        return taken

    def remove_files(self):
        text = self.log()
        shutil.rmtree(self.directory, ignore_errors=True)
        self.log = lambda: text
        for report in REPORTS:
            assert report not in text, f'the server printed "{report}"'


class Server(Process):
    """A running server. `port` is its TCP port if `tcp` is set."""

    def __init__(self, size='64M', name='', read_only=False, tcp=False, bind='127.0.0.1', unix=True,
                 device=DEVICE, config=None, extra=(), environment=None):
        super().__init__()
        self.bind = bind
        self.port = free_port(bind) if tcp else None
        self.name = name
        unix = unix or config is not None
        if config is not None:
            self.configure(config)
            command = [PROGRAM, 'serve', '--config', self.config_path]
        else:
            command = [PROGRAM, 'serve', '--device', device, '--size', str(size), '--name', name]
            if unix:
                command += ['-U', self.path]
            if tcp:
                command += ['-p', str(self.port), '-b', bind]
            if read_only:
                command += ['--read-only']
        self.start([*command, *extra], environment)
        try:
            wait_until(lambda: self.listening(unix), 60, f'{command} to listen')
        except BaseException:
            self.process.kill()
            self.process.wait()
            print(self.log(), file=sys.stderr)
            raise

    def reload(self, text=None):
        """Sends SIGHUP, with a new configuration if given. Returns the new lines of the log."""
        if text is not None:
            self.configure(text)
        before = len(self.log())
        self.process.send_signal(signal.SIGHUP)
        # The whole line, and not the one that announces a reload after the current one.
        end = re.compile('SIGHUP: (?!the file will be read).*\n')
        wait_until(lambda: end.search(self.log(), before), 60, 'the end of the reload in the log')
        return self.log()[before:]

    def listening(self, unix):
        if self.process.poll() is not None:
            raise AssertionError(f'{self.command} ended with {self.process.returncode} before it was ready')
        try:
            # A listening socket accepts connections before the server is ready. Only then it sends the greeting.
            if unix:
                with socket.socket(socket.AF_UNIX) as probe:
                    probe.connect(self.path)
                    probe.recv(1)
            if self.port:
                with socket.create_connection((self.bind, self.port)) as probe:
                    probe.recv(1)
            return True
        except OSError:
            return False

    @property
    def address(self):
        """The address for wire.Wire."""
        return (self.bind, self.port) if self.port else self.path

    def uri(self, name=None):
        name = self.name if name is None else name
        if self.port:
            host = f'[{self.bind}]' if ':' in self.bind else self.bind
            return f'nbd://{host}:{self.port}/{name}'
        return f'nbd+unix:///{name}?socket={self.path}'

    def memory(self):
        """Resident memory in bytes."""
        with open(f'/proc/{self.process.pid}/status', encoding='ascii') as file:
            for line in file:
                if line.startswith('VmRSS:'):
                    return int(line.split()[1]) * KiB
        raise AssertionError('no VmRSS')


class Test(unittest.TestCase):
    """A test whose servers are stopped and checked at its end. Their logs are printed if it fails."""
    running = False

    def logged(self, text, one, seconds=60):
        """Waits for a text in the log of a running server: the server writes its log on a separate thread."""
        wait_until(lambda: text in one.log(), seconds, lambda: f'{text!r} in the log: {one.log()[-5000:]}')

    def run(self, result=None):
        self.servers = []
        before = len(result.failures) + len(result.errors)
        Test.running = True
        super().run(result)
        Test.running = False
        if len(result.failures) + len(result.errors) > before:
            for server in self.servers:
                print(f'--- {" ".join(server.command)}\n{server.log()[-20000:]}---', file=sys.stderr)
        return result

    def serve(self, *args, **kwargs):
        server = Server(*args, **kwargs)
        self.servers.append(server)
        self.addCleanup(self.finish, server)
        return server

    def run_server(self, *arguments, config=None, prefix=(), **options):
        """A server that is not waited for: it may end before it is ready. Without `config` it has 64 MiB of host
        memory. `prefix`: a command that runs it."""
        one = Process()
        self.servers.append(one)
        source = ('--device', 'host', '--size', '64M')
        if config is not None:
            one.configure(config)
            source = ('--config', one.config_path)
        one.start([*prefix, PROGRAM, 'serve', *source, *(one.with_own(str(word)) for word in arguments)], **options)
        self.addCleanup(self.finish, one)
        return one

    def run_beside(self, command, path=None, **options):
        """Another program, which is terminated at the end of the case. Waits until it listens on `path`, if given."""
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, preexec_fn=die_with_parent, **options)
        self.addCleanup(process.wait)
        self.addCleanup(process.terminate)
        if path:
            wait_until(lambda: listens(path) or process.poll() is not None, 60, command[0])
            self.assertIsNone(process.poll(), f'{command[0]} ended')
        return process

    def begin_load(self, one, name, *options):
        """A load that nbdload puts on an export."""
        load = subprocess.Popen([NBDLOAD, '--uri', one.uri(name), *options], stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, text=True, preexec_fn=die_with_parent)
        self.addCleanup(lambda: (load.kill(), load.wait(), load.stdout.close()))
        return load

    def end_load(self, load):
        """Its output, after it has succeeded."""
        output, _ = load.communicate(timeout=300)
        self.assertEqual(load.returncode, 0, output)
        return output

    def shortDescription(self):
        return None

    @staticmethod
    def finish(server):
        if server.process.returncode is None:
            server.stop()
        elif os.path.exists(server.directory):
            server.remove_files()

    def command(self, *command, status=0, seconds=300, environment=None, **kwargs):
        """Runs a command, and returns its standard output. Fails if the exit status is not `status`."""
        done = subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=seconds,
                              env={**os.environ, **(environment or {})}, check=False,
                              preexec_fn=die_with_parent, **kwargs)
        self.errors = done.stderr
        if status is not None:
            self.assertEqual(done.returncode, status,
                             f'{command}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}')
        self.status = done.returncode
        return done.stdout

    def extents(self, uri, map_='--map'):
        """[(offset, length, type)] of a map as nbdinfo shows it."""
        parts = json.loads(self.command('nbdinfo', '--json', map_, uri))
        return [(part['offset'], part['length'], part['type']) for part in parts]

    def check_finds(self, problem, config):
        """Expects that gpunbd check reports this problem of a configuration, a YAML text."""
        path = write_file(os.path.join(self.directory(), 'gpunbd.yaml'), config)
        out = self.command(PROGRAM, 'check', path, status=2)
        self.assertIn(problem, out + self.errors)

    def program_for_all_users(self):
        """A copy of the program that other users can execute. They may not have access to the checkout, as in /root."""
        folder = self.directory()
        path = shutil.copy2(PROGRAM, os.path.join(folder, 'gpunbd'))
        os.chmod(path, 0o755)
        os.chmod(folder, 0o755)
        return path

    def directory(self):
        path = tempfile.mkdtemp(prefix='gpunbd-')
        self.addCleanup(shutil.rmtree, path, True)
        return path


def random_bytes(size, seed):
    generator = random.Random(seed)
    return b''.join(generator.randbytes(min(16 * MiB, size - start)) for start in range(0, size, 16 * MiB))


def read_file(path, mode='r'):
    with open(path, mode, encoding=None if 'b' in mode else 'utf-8') as file:
        return file.read()


def write_file(path, text, mode=None):
    """Writes text or bytes, with this mode if one is given. Returns the path."""
    binary = not isinstance(text, str)
    with open(path, 'wb' if binary else 'w', encoding=None if binary else 'utf-8') as file:
        file.write(text)
    if mode is not None:
        os.chmod(path, mode)
    return path


def write_image(path, size, seed=1, data_every=4):
    """Writes an image with holes: every `data_every`th MiB starts with random bytes of any length."""
    generator = random.Random(seed)
    with open(path, 'wb') as file:
        for start in range(0, size, data_every * MiB):
            length = min(generator.randrange(1, MiB), size - start)
            file.seek(start)
            file.write(generator.randbytes(length))
        file.truncate(size)


def same_file(one, other):
    with open(one, 'rb') as first, open(other, 'rb') as second:
        while True:
            a, b = first.read(MiB), second.read(MiB)
            if a != b:
                return False
            if not a:
                return True


class Result(unittest.TextTestResult):
    """Prints each skipped case for tests/summary.py, whatever the results of the others are."""
    passed = 0

    def addSuccess(self, test):
        super().addSuccess(test)
        self.passed += 1

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        print(f'\nSKIPPED CASE: {test}: {reason}')


class Runner(unittest.TextTestRunner):
    def __init__(self, **options):
        super().__init__(**{**options, 'resultclass': Result, 'stream': sys.stdout, 'warnings': 'ignore'})


def main():
    """Runs the tests of the calling module. The exit status is 0, 1, or 77 if all cases were skipped."""
    if LAVAPIPE:
        need_lavapipe(os.path.join(os.path.dirname(PROGRAM), 'vulkan_layers'))
    result = unittest.main(exit=False, verbosity=2, testRunner=Runner).result
    sys.exit(1 if not result.wasSuccessful() else SKIP if result.skipped and not result.passed else 0)
