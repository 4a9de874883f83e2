"""Holds or fails a read or write of one file by a server, at the k-th call: a test does something in the middle of a
restore, or gets a disk that fails there. The kernel asks this process before each such call (seccomp_unotify(2))."""
import ctypes
import errno
import fcntl
import os
import select
import socket
import struct
import threading


CALLS = {'x86_64': (317, (17, 18, 327)), 'aarch64': (277, (67, 68, 286))}  # seccomp; pread64, pwrite64, preadv2
RECEIVE, SEND = 0xC0502100, 0xC0182101  # SECCOMP_IOCTL_NOTIF_RECV, SECCOMP_IOCTL_NOTIF_SEND
NEW_LISTENER, ALLOW, NOTIFY = 8, 0x7fff0000, 0x7fc00000
CONTINUE = 1


def is_main_thread(thread):
    with open(f'/proc/{thread}/status', encoding='ascii') as file:
        return f'\nTgid:\t{thread}\n' in file.read()


class HeldCalls:
    """Calls of main threads are not held. install() runs in the new process, which all processes of the server descend from."""

    def __init__(self):
        self.mine, self.other = socket.socketpair()
        self.lock = threading.Condition()
        self.path, self.left, self.error = None, 0, None
        self.works = None  # whether the kernel lets this process decide; known when the new one has started
        self.held = self.held_thread = None  # the id of the call that is held, and its thread
        self.calls = 0    # of the file since arm()

    def install(self):
        number, calls = CALLS.get(os.uname().machine, (None, ()))
        if number is None:
            return self.other.send(b'x')
        rules = [(0x20, 0, 0, 0)]  # load the number of the call
        rules += [(0x15, len(calls) - place, 0, call) for place, call in enumerate(calls)]
        rules += [(0x06, 0, 0, ALLOW), (0x06, 0, 0, NOTIFY)]
        code = ctypes.create_string_buffer(b''.join(struct.pack('HBBI', *rule) for rule in rules))
        program = ctypes.create_string_buffer(struct.pack('HxxxxxxP', len(rules), ctypes.addressof(code)))
        libc = ctypes.CDLL(None, use_errno=True)
        libc.prctl(38, 1, 0, 0, 0)  # NO_NEW_PRIVS
        listener = libc.syscall(number, 1, NEW_LISTENER, program)
        if listener < 0:
            return self.other.send(b'x')
        socket.send_fds(self.other, [b'f'], [listener])
        return os.close(listener)

    def start(self):
        """Before the process starts, which makes such calls at once."""
        threading.Thread(target=self.run, daemon=True).start()

    def arm(self, path, number, error=None):
        """The next call with this file, whose name may be longer, is number 0. The call fails, or is held without an error."""
        with self.lock:
            self.path, self.left, self.error, self.held, self.calls = path, number, error, None, 0

    def wait(self, other):
        """Waits until the call is held. Returns False if other() is true before."""
        with self.lock:
            while self.held is None:
                if other():
                    return False
                self.lock.wait(0.001)
            return True

    def release(self, error=None):
        with self.lock:
            held, self.held, self.path = self.held, None, None
        if held is not None:
            self.answer(held, error)

    def answer(self, call, error):
        try:
            fcntl.ioctl(self.listener, SEND, struct.pack('QqiI', call, 0, -error if error else 0, 0 if error else CONTINUE))
        except FileNotFoundError:
            pass  # the process has ended

    def run(self):
        _, files, _, _ = socket.recv_fds(self.mine, 1, 1)
        self.mine.close()
        self.other.close()
        self.works = bool(files)
        if not files:
            return
        self.listener, = files
        poll = select.poll()
        poll.register(self.listener, select.POLLIN)
        while not poll.poll()[0][1] & select.POLLHUP:
            request = bytearray(80)
            try:
                fcntl.ioctl(self.listener, RECEIVE, request)
            except OSError as problem:
                if problem.errno in (errno.ENOENT, errno.EINTR):  # the process has ended
                    continue
                raise
            call, thread = struct.unpack_from('QI', request)
            file, = struct.unpack_from('Q', request, 32)
            self.decide(call, thread, file)
        os.close(self.listener)

    def decide(self, call, thread, file):
        with self.lock:
            path = self.path
        try:
            matches = (path is not None and os.readlink(f'/proc/{thread}/fd/{file}').startswith(path)
                       and not is_main_thread(thread))
        except OSError:
            matches = False
        with self.lock:
            if matches and self.path == path and self.held is not None and thread == self.held_thread:
                self.held = call  # work of io_uring for the thread has interrupted the call, which begins again
                return
            if matches and self.path == path and self.held is None:
                self.calls += 1
                self.left -= 1
                if self.left == -1:
                    if not self.error:
                        self.held, self.held_thread = call, thread
                        self.lock.notify()
                        return
                    return self.answer(call, self.error)
        self.answer(call, None)
