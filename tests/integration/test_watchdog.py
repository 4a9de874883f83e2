"""Notifications for systemd's watchdog (WATCHDOG=1): the main process sends them periodically."""
import array
import contextlib
import ctypes
import os
import signal
import socket
import struct

import server
import wire

SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER


class Supervisor:
    """systemd's end: receives messages with their senders. A received barrier is closed."""

    def __init__(self):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self.socket.bind('')  # the kernel chooses a name
        self.socket.settimeout(60)
        self.address = '@' + self.socket.getsockname()[1:].decode()
        self.stored = []

    def next(self):
        text, control, _, _ = self.socket.recvmsg(4096, 4096)
        sender = None
        for _, kind, data in control:
            if kind == socket.SCM_RIGHTS:
                descriptors = array.array('i', data)
                self.store(text, descriptors)
            else:
                sender = struct.unpack('iII', data)[0]
        return text.decode(), sender

    def store(self, text, descriptors):
        if text.startswith(b'FDSTORE=1'):
            self.stored += descriptors
        else:
            for each in descriptors:
                os.close(each)

    def until(self, prefix):
        """All messages up to the first one with this prefix: [(text, sender)]."""
        messages = [self.next()]
        while not messages[-1][0].startswith(prefix):
            messages.append(self.next())
        return messages

    def close(self):
        self.socket.close()
        for each in self.stored:
            os.close(each)


class Watchdog(server.Test):
    def setUp(self):
        self.supervisor = Supervisor()
        self.addCleanup(self.supervisor.close)

    def test_notifications_while_draining(self):
        """A client that stays connected delays the shutdown; the watchdog must not end it."""
        one = self.run_server('--threads', '3', '-U', '{socket}', environment={
            'NOTIFY_SOCKET': self.supervisor.address, 'WATCHDOG_USEC': '400000'})
        process = one.process
        self.supervisor.until('READY=1')
        with wire.connect(one.path, structured=False) as client:
            client.request(wire.READ, 0, 16 << 20)
            client.peek(4)  # the reply has started, and is not read
            process.send_signal(signal.SIGTERM)
            self.supervisor.until('STOPPING=1')
            for _ in range(3):
                self.assertEqual(self.supervisor.next(), ('WATCHDOG=1', process.pid))
            process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(30), 0)

    def test_notifications_after_an_upgrade(self):
        """The successor sends them."""
        self.assertEqual(ctypes.CDLL(None).prctl(SUBREAPER, 1), 0)
        process = self.run_server('-U', '{socket}', '--keep', environment={
            'NOTIFY_SOCKET': self.supervisor.address, 'FDSTORE': '100', 'WATCHDOG_USEC': '400000'}).process
        self.supervisor.until('READY=1')
        process.send_signal(signal.SIGUSR2)
        pid = int(self.supervisor.until('MAINPID=')[-1][0].splitlines()[0].removeprefix('MAINPID='))
        self.addCleanup(self.end, pid)
        while self.supervisor.next() != ('WATCHDOG=1', pid):
            pass
        self.assertEqual(process.wait(60), 0)
        os.kill(pid, signal.SIGTERM)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 0)

    @staticmethod
    def end(pid):
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


if __name__ == '__main__':
    server.main()
