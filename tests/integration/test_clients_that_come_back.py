"""Clients that continue while the server is killed repeatedly: acknowledged writes are not lost.

The server runs under gpunbd keep, and its export has keep. tests/vm/test_reconnect.py tests the kernel's client."""
import itertools
import os
import random
import subprocess
import threading

import kept
import server
import wire
from server import KiB, MiB

SIZE = 64 * MiB
PIECE = 64 * KiB
KILLS = 5
KILLS_PER_ROUND = 10  # at most, on average; more could prevent slow clients from finishing a round


class KilledServer(kept.Kept):
    """A thread kills the server at random times."""

    def __init__(self):
        super().__init__('--device', server.DEVICE, '--size', SIZE)
        self.kills = self.round = 0
        self.stopping = threading.Event()
        self.killer = threading.Thread(target=self.kill_repeatedly, daemon=True)

    def kill_repeatedly(self):
        generator = random.Random(1)
        while not self.stopping.wait(generator.uniform(0.02, 0.3)):
            if self.kills < (self.round + 1) * KILLS_PER_ROUND:
                self.kill_and_wait()
                self.kills += 1

    def rounds(self):
        """Yields numbers until the server has been killed often enough."""
        self.killer.start()
        for number in itertools.count():
            if self.kills >= KILLS and number >= KILLS:
                break
            self.round = number
            yield number
        self.stopping.set()
        self.killer.join()

    def stop(self):
        self.stopping.set()
        if self.killer.ident:
            self.killer.join()
        return super().stop()


class ClientsThatComeBack(server.Test):
    def kept(self):
        one = KilledServer()
        self.addCleanup(one.stop)
        return one

    def check(self, one, written):
        """`written`: {offset of a piece: byte that it was filled with}"""
        with wire.connect(one.path) as client:
            for offset, byte in written.items():
                self.assertEqual(client.read(offset, PIECE), bytes([byte]) * PIECE, offset)
        self.assertEqual(one.stop(), 0)

    def qemu_io(self, one, image, status=0):
        """Writes and reads continuously while the server is killed. Returns the output, and {offset: byte} of the writes."""
        with open(os.path.join(self.directory(), 'output'), 'w+', encoding='utf-8') as output:
            client = subprocess.Popen(['qemu-io', '--image-opts', image], stdin=subprocess.PIPE, stdout=output, stderr=output,
                                      text=True, bufsize=1, preexec_fn=server.die_with_parent)
            written = {}
            with client.stdin as commands:
                # The prompt shows that the client is connected: it would not repeat its first handshake.
                server.wait_until(lambda: os.path.getsize(output.name), 60, 'the prompt of qemu-io')
                for number in one.rounds():
                    for index in range(16):
                        offset, byte = (number * 16 + index) % 512 * PIECE, (number * 7 + index) % 255 + 1
                        commands.write(f'aio_write -q -P {byte} {offset} {PIECE}\n')
                        written[offset] = byte
                    commands.write('aio_flush\n')
                    offset, byte = random.choice(list(written.items()))
                    commands.write(f'read -q -P {byte} {offset} {PIECE}\n')
                commands.write('flush\n')
            client.wait(300)
            output.seek(0)
            lines = [line for line in output.read().replace('qemu-io> ', '').splitlines() if line.strip()]
        self.assertEqual(client.returncode, status, lines)
        return lines, written

    def test_qemu(self):
        server.need('qemu-io')
        one = self.kept()
        lines, written = self.qemu_io(one, f'driver=nbd,server.type=unix,server.path={one.path},reconnect-delay=60')
        self.assertEqual(lines, [])
        self.check(one, written)

    def test_qemu_without_reconnect_delay(self):
        """The manual documents I/O errors for this case."""
        server.need('qemu-io')
        one = self.kept()
        lines, _ = self.qemu_io(one, f'driver=nbd,server.type=unix,server.path={one.path}', status=1)
        self.assertTrue(any('Input/output error' in line for line in lines), lines)

    def test_nbdkit(self):
        """nbdkit between the server and a client that does not reconnect: its retry filter reopens the plugin."""
        server.need('nbdkit', 'nbdcopy')
        one = self.kept()
        files = self.directory()
        front, image, back = (os.path.join(files, name) for name in ('front', 'image', 'back'))
        with open(os.path.join(files, 'output'), 'wb') as output:
            self.run_beside(['nbdkit', '-f', '-U', front, '--filter=retry', 'nbd', f'socket={one.path}', 'retry=60',
                             'retry-delay=1'], front, stderr=output)
        for number in one.rounds():
            server.write_image(image, SIZE, seed=number, data_every=2)
            self.command('nbdcopy', image, f'nbd+unix:///?socket={front}')
            self.command('nbdcopy', f'nbd+unix:///?socket={front}', back)
            self.assertTrue(server.same_file(image, back))
        one.stop()

    def test_libnbd(self):
        """A libnbd program that repeats unanswered requests on a new handle."""
        nbd = server.need_libnbd()
        one = self.kept()
        handle, written = None, {}
        for number in one.rounds():
            offset, byte = number % 512 * PIECE, number % 255 + 1
            data = bytes([byte]) * PIECE
            while True:
                try:
                    if handle is None:
                        handle = nbd.NBD()
                        handle.connect_unix(one.path)
                    handle.pwrite(data, offset)
                    self.assertEqual(handle.pread(PIECE, offset), data)
                    break
                except nbd.Error:
                    handle = None
            written[offset] = byte
        self.check(one, written)


if __name__ == '__main__':
    server.main()
