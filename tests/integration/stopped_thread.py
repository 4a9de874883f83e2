"""Stops one thread of a process with ptrace, while its other threads run."""
import contextlib
import ctypes
import os

import server

SEIZE, INTERRUPT, DETACH = 0x4206, 0x4207, 17
WALL = 0x40000000  # waitpid() waits for threads as well


def thread_named(pid, name):
    for thread in os.listdir(f'/proc/{pid}/task'):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended since the folder was listed
            with open(f'/proc/{pid}/task/{thread}/comm', encoding='ascii') as file:
                if file.read().strip() == name:
                    return int(thread)
    return None


@contextlib.contextmanager
def stopped(pid, name):
    """The thread is stopped inside of the `with` block. Killed there, it waits for waitpid() of its id with WALL."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    libc.ptrace.restype = ctypes.c_long
    # Some threads name themselves, which may be after the server is ready.
    server.wait_until(lambda: thread_named(pid, name), 60, f'a thread {name!r} of process {pid}')
    thread = thread_named(pid, name)
    if libc.ptrace(SEIZE, thread, None, None) != 0:
        server.skip(f'ptrace is not permitted: {os.strerror(ctypes.get_errno())}')
    libc.ptrace(INTERRUPT, thread, None, None)
    os.waitpid(thread, WALL)
    try:
        yield thread
    finally:
        libc.ptrace(DETACH, thread, None, None)
