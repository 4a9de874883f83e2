"""Notifications for systemd's watchdog (WATCHDOG=1): the main process sends them periodically, also after an upgrade."""
import array
import ctypes
import os
import signal
import socket
import struct
import subprocess
import tempfile

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

    def start(self, *flags, **environment):
        self.path = os.path.join(self.directory(), 'socket')
        self.log = tempfile.TemporaryFile()
        self.addCleanup(self.log.close)
        process = subprocess.Popen(
            [server.PROGRAM, 'serve', '--device', 'host', '--size', '16M', '--threads', '3', '-U', self.path, *flags],
            stdin=subprocess.DEVNULL, stderr=self.log, preexec_fn=server.die_with_parent,
            env={**os.environ, 'NOTIFY_SOCKET': self.supervisor.address, **environment})
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def output(self):
        self.log.seek(0)
        return self.log.read().decode()

    def test_notifications_while_draining(self):
        """A client that stays connected delays the shutdown; the watchdog must not end it."""
        process = self.start(WATCHDOG_USEC='400000')
        self.supervisor.until('READY=1')
        with wire.connect(self.path, structured=False) as client:
            client.request(wire.READ, 0, 16 << 20)
            client.peek(4)  # the reply has started, and is not read
            process.send_signal(signal.SIGTERM)
            self.supervisor.until('STOPPING=1')
            for _ in range(3):
                self.assertEqual(self.supervisor.next(), ('WATCHDOG=1', process.pid))
            process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(30), 0)

    def test_the_successor_notifies_after_an_upgrade(self):
        self.assertEqual(ctypes.CDLL(None).prctl(SUBREAPER, 1), 0)
        process = self.start('--keep', WATCHDOG_USEC='400000', FDSTORE='100')
        self.supervisor.until('READY=1')
        self.supervisor.until('WATCHDOG=1')
        process.send_signal(signal.SIGUSR2)
        main_pid = self.supervisor.until('MAINPID=')[-1][0]
        successor = int(main_pid.splitlines()[0].removeprefix('MAINPID='))
        self.assertNotEqual(successor, process.pid)
        self.supervisor.until('READY=1')
        self.assertEqual(process.wait(30), 0)
        of_successor = 0
        while of_successor != 5:
            of_successor += self.supervisor.until('WATCHDOG=1')[-1] == ('WATCHDOG=1', successor)
        os.kill(successor, signal.SIGTERM)
        self.supervisor.until('STOPPING=1')
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(successor, 0)[1]), 0)


if __name__ == '__main__':
    server.main()
