"""The word that systemd's watchdog waits for (WATCHDOG=1): it comes again and again, from whom it is due, also after
an upgrade."""
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
    """systemd's side: what was said, by whom; a barrier ends once it was read."""

    def __init__(self):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self.socket.bind('')  # the kernel chooses a name
        self.socket.settimeout(60)
        self.address = '@' + self.socket.getsockname()[1:].decode()
        self.kept = []

    def next(self):
        text, control, _, _ = self.socket.recvmsg(4096, 4096)
        sender = None
        for _, kind, data in control:
            if kind == socket.SCM_RIGHTS:
                descriptors = array.array('i', data)
                self.keep(text, descriptors)
            else:
                sender = struct.unpack('iII', data)[0]
        return text.decode(), sender

    def keep(self, text, descriptors):
        if text.startswith(b'FDSTORE=1'):
            self.kept += descriptors
        else:
            for each in descriptors:
                os.close(each)

    def until(self, wanted):
        """All messages up to the one that is wanted, which begins like that: [(text, sender)]."""
        heard = [self.next()]
        while not heard[-1][0].startswith(wanted):
            heard.append(self.next())
        return heard

    def close(self):
        self.socket.close()
        for each in self.kept:
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

    def said(self):
        self.log.seek(0)
        return self.log.read().decode()

    def test_it_comes_again_and_again(self):
        process = self.start(WATCHDOG_USEC='400000')
        self.supervisor.until('READY=1')
        for _ in range(5):
            self.assertEqual(self.supervisor.next(), ('WATCHDOG=1', process.pid))
        process.send_signal(signal.SIGTERM)
        self.supervisor.until('STOPPING=1')
        self.assertEqual(process.wait(30), 0)

    def test_also_while_it_drains(self):
        """A client that does not go keeps a draining server: it is not the watchdog that ends it."""
        process = self.start(WATCHDOG_USEC='400000')
        self.supervisor.until('READY=1')
        with wire.connect(self.path, structured=False) as client:
            client.request(wire.CMD_READ, 0, 16 << 20)
            client.peek(4)  # the beginning of an answer that nobody takes
            process.send_signal(signal.SIGTERM)
            self.supervisor.until('STOPPING=1')
            for _ in range(3):
                self.assertEqual(self.supervisor.next(), ('WATCHDOG=1', process.pid))
            process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(30), 0)

    def test_not_where_another_process_is_watched(self):
        for environment in ({'WATCHDOG_USEC': '8', 'WATCHDOG_PID': '1'}, {'WATCHDOG_PID': '1'}, {}):
            process = self.start(**environment)
            self.supervisor.until('READY=1')
            with wire.connect(self.path) as client:
                client.read(0, 4096)
            process.send_signal(signal.SIGTERM)
            self.assertEqual([text for text, _ in self.supervisor.until('STOPPING=1')], ['STOPPING=1'])
            self.assertEqual(process.wait(30), 0)

    def test_a_time_that_makes_no_sense(self):
        for time in ('x', '0', '-5', ''):
            process = self.start(WATCHDOG_USEC=time)
            self.assertEqual(process.wait(30), 1)
            self.assertIn('is not a time in microseconds; unset it', self.said())

    def test_after_an_upgrade_the_new_one_is_watched(self):
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
