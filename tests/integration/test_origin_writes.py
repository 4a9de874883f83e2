"""Exports that write to a file: what it has after requests, flushes, stops and kills; holes; the commands for it."""
import os
import random
import signal

import origin_export
import server
import stopped_thread
import wire
from server import MiB

SIZE = 40 * MiB
CONFIG = '''
listeners: {unix: [{path: '{socket}'}]}
admin: {socket: '{directory}/admin'}
exports:
  - name: disk
    devices: [{device}]
    page_size: 64K
    origin: {file: FILE, mode: MODE, cache: 8M}
'''


class OriginWrites(origin_export.Test):
    def setUp(self):
        self.path = os.path.join(self.directory(), 'origin.img')
        self.contents = bytearray(server.random_bytes(SIZE, 5))
        server.write_file(self.path, self.contents)

    def start(self, mode, text=CONFIG):
        self.one = self.serve(config=text.replace('FILE', self.path).replace('MODE', mode), name='disk')

    def change(self, client, choice, count=150, flags=0):
        """Writes, zeroes and reads at random, and checks what is read."""
        for _ in range(count):
            offset = choice.randrange(SIZE - 1)
            if choice.random() < 0.5:
                offset -= offset % 65536
            length = min(choice.choice((1, 512, 4096, 65536, 200_000, 3 * MiB)), SIZE - offset)
            kind = choice.random()
            if kind < 0.5:
                data = choice.randbytes(length)
                client.write(offset, data, flags)
                self.contents[offset:offset + length] = data
            elif kind < 0.6:
                (client.zero if kind < 0.55 else client.trim)(offset, length, flags)
                self.contents[offset:offset + length] = bytes(length)
            else:
                self.assertEqual(client.read(offset, length), self.contents[offset:offset + length], (offset, length))

    def test_an_orderly_stop_leaves_everything_in_the_file(self):
        for mode in ('write-through', 'write-back'):
            with self.subTest(mode=mode):
                self.start(mode)
                with wire.connect(self.one.address, 'disk') as client:
                    self.change(client, random.Random(1))
                self.assertGreater(self.origin_status()['written'], 0)
                self.one.stop()
                self.assertEqual(self.file(), self.contents)

    def test_a_killed_server_leaves_what_it_promised(self):
        for mode, flags, flushes in (('write-through', 0, False), ('write-back', wire.FUA, False), ('write-back', 0, True)):
            with self.subTest(mode=mode, flags=flags):
                self.start(mode)
                choice = random.Random(2)
                with wire.connect(self.one.address, 'disk') as client:
                    self.change(client, choice, flags=flags)
                    if flushes:
                        client.flush()
                    self.one.process.send_signal(signal.SIGKILL)
                    self.one.process.wait()
                self.assertEqual(self.file(), self.contents)

    def test_real_clients(self):
        self.start('write-back')
        self.command('qemu-io', '-f', 'raw', '-c', 'write -P 7 1M 3M', '-c', 'flush', self.one.uri())
        self.contents[MiB:4 * MiB] = b'\x07' * 3 * MiB
        self.assertEqual(self.file(), self.contents)
        source = os.path.join(self.directory(), 'source')
        self.contents = bytearray(server.random_bytes(SIZE, 9))
        server.write_file(source, self.contents)
        self.command('nbdcopy', '--flush', source, self.one.uri())
        self.assertEqual(self.file(), self.contents)

    def test_a_flush_of_a_read_only_origin_has_nothing_to_do(self):
        self.start('read-only')
        with wire.connect(self.one.address, 'disk') as client:
            client.flush()
        self.gpunbd('export', 'flush', 'disk')

    def test_flush_and_evict(self):
        # Nothing is written or read but for the commands.
        self.start('write-back', CONFIG.replace('cache: 8M', 'cache: 8M, max_age: 1h, prefetch: none'))
        with wire.connect(self.one.address, 'disk') as client:
            client.write(4096, b'x' * 8192)
            client.read(2 * MiB, 2 * MiB)
        self.assertEqual(self.origin_status()['unwritten'], 8192)
        self.assertIn('8 KiB unwritten', self.gpunbd('status'))
        self.gpunbd('export', 'evict', 'disk', '64M')
        self.assertEqual(self.exported()['used'], 65536)
        self.gpunbd('export', 'flush', 'disk')
        self.contents[4096:12288] = b'x' * 8192
        self.assertEqual(self.file(), self.contents)
        self.assertEqual(self.origin_status()['unwritten'], 0)

    def test_commands_do_not_wait_for_saves(self):
        self.start('write-back')
        with wire.connect(self.one.address, 'disk') as client:
            client.write(0, b'x')
        with stopped_thread.stopped(self.one.process.pid, 'saves'):
            self.gpunbd('export', 'flush', 'disk')
            self.gpunbd('export', 'evict', 'disk', '64M')
        self.assertEqual((self.file()[:1], self.exported()['used']), (b'x', 0))

    def test_the_file_has_one_writer(self):
        self.start('write-through')
        words = ('export', 'create', 'second', '--device', 'host', '--origin-file', self.path)
        for mode in ('write-back', 'read-only'):
            self.gpunbd(*words, '--origin-mode', mode, status=1)
            self.assertIn("it is the origin of the export 'disk', and a writable one has one cache", self.errors)
        other = self.path + '.other'
        os.link(self.path, other)
        self.gpunbd(*words[:-1], other, '--origin-mode', 'write-back', status=1)
        self.assertIn('has locked it', self.errors)
        self.assertIn('restart the server to change it',
                      self.one.reload(CONFIG.replace('8M', '9M').replace('FILE', self.path).replace('MODE', 'write-through')))
        self.one.stop()
        self.start('write-back', CONFIG.replace('name: disk', 'name: other').replace('FILE', '/dev/null').replace('MODE', 'none')
                   .split('    page_size')[0])
        words = ('export', 'create', 'disk', '--device', 'host', '--origin-file', self.path, '--origin-mode', 'write-back')
        for _ in range(3):
            self.gpunbd(*words)
            with wire.connect(self.one.address, 'disk') as client:
                client.write(0, self.contents[:MiB])
            self.gpunbd('export', 'remove', 'disk', '--force')
        server.wait_until(lambda: self.file() == self.contents)


if __name__ == '__main__':
    server.main()
