"""Exports with the contents of an export of another NBD server, which fails, is killed and returns."""
import contextlib
import os
import random
import re
import subprocess
import threading

import admin
import origin_export
import server
import wire
from server import MiB

server.need('nbdkit')
SIZE = 24 * MiB
CONFIG = '''
listeners: {unix: [{path: '{socket}'}]}
admin: {socket: '{directory}/admin'}
exports:
  - name: cached
    devices: [{device}]
    page_size: 64K
    origin: {nbd: 'URI', mode: MODE, cache: 4M}
'''


class OriginNbd(origin_export.Test):
    def setUp(self):
        folder = self.directory()
        self.socket, self.path, self.errors_on = (os.path.join(folder, each) for each in ('socket', 'image', 'fail'))
        self.uri = f'nbd+unix:///image?socket={self.socket}'
        with open(self.path, 'wb') as file:  # with a hole
            file.write(server.random_bytes(MiB, 3))
            file.seek(2 * MiB)
            file.write(server.random_bytes(SIZE - 2 * MiB, 4))
        self.contents = bytearray(self.file())
        self.nbdkit = None
        self.addCleanup(self.kill_nbdkit)

    def start_nbdkit(self, *words, filters=()):
        filters = [f'--filter={each}' for each in filters]
        command = ['nbdkit', '-f', '--exit-with-parent', '-U', self.socket, *filters, *(words or ('file', self.path))]
        self.nbdkit = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        server.wait_until(lambda: server.listens(self.socket))

    def kill_nbdkit(self):
        if self.nbdkit is not None:
            self.nbdkit.kill()
            self.nbdkit.wait()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.socket)

    def start(self, mode='read-only'):
        self.one = self.serve(config=CONFIG.replace('URI', self.uri).replace('MODE', mode), name='cached')
        return wire.connect(self.one.address, 'cached')

    def write(self, client, offset, data):
        client.write(offset, data)
        self.contents[offset:offset + len(data)] = data

    def test_reads(self):
        self.start_nbdkit(
            'file', self.path, 'rdelay=2ms', 'blocksize-minimum=4096', 'blocksize-preferred=4096',
            'blocksize-maximum=32768', 'blocksize-error-policy=error', filters=('blocksize-policy', 'delay'))
        with self.start() as client:
            self.check_reads(client, 1, 100)
        self.assertEqual(self.extents(self.one.uri()), [(0, MiB, 0), (MiB, MiB, 3), (2 * MiB, SIZE - 2 * MiB, 0)])
        reads, = self.origin_status()['requests']
        self.assertEqual(reads['operation'], 'read')
        self.assertGreaterEqual(reads['p50'], 0.002)
        self.assertRegex(self.gpunbd('status'), rf'(?m)^cached requests of {re.escape(self.uri)}: read p50 \S+, p99 \S+, longest \S+$')
        _, metrics = admin.request(f'{self.one.directory}/admin', '/metrics')
        series = f'gpunbd_origin_request_seconds_%s{{export="cached",path="{self.uri}",operation="read"'
        self.assertIn(series % 'bucket' + ',le="0.001"} 0\n', metrics.decode())
        self.assertRegex(metrics.decode(), re.escape(series % 'count') + '} [1-9]')

    def test_errors_of_reads(self):
        self.start_nbdkit('file', self.path, 'error-pread=EIO', 'error-pread-rate=100%',
                          f'error-pread-file={self.errors_on}', filters=('error',))
        with self.start() as client:
            self.check_reads(client, 2, 5)
            server.write_file(self.errors_on, '')
            with self.assertRaises(wire.Failed):
                self.check_reads(client, 3, 100)
            self.logged('its origin cannot be read', self.one)
            self.assertGreater(self.origin_status()['errors'], 0)
            os.unlink(self.errors_on)
            self.check_reads(client, 3, 20)

    def test_a_read_that_waits_for_the_origin_delays_no_other(self):
        self.start_nbdkit()
        with self.start(), wire.connect(self.one.address, 'cached', structured=False) as client:
            self.assertEqual(client.read(4096, 8192), self.contents[4096:12288])
            self.kill_nbdkit()
            waits = [(client.request(wire.READ, offset, 8192), offset) for offset in (9 * MiB, 8 * MiB, 16 * MiB)]
            self.assertEqual(client.read(4096, 8192), self.contents[4096:12288])
            self.start_nbdkit()
            expected = dict(waits)
            while expected:
                error, cookie = client.simple_reply()
                self.assertEqual(error, wire.OK)
                offset = expected.pop(cookie)
                self.assertEqual(client.receive(8192), self.contents[offset:offset + 8192])
            self.kill_nbdkit()
            server.write_file(self.errors_on, '')
            self.start_nbdkit('file', self.path, 'error-pread=EIO', 'error-pread-rate=100%',
                              f'error-pread-file={self.errors_on}', filters=('error',))
            with self.assertRaises(wire.Failed):
                client.read(20 * MiB, 8192)
            self.assertEqual(client.read(4096, 8192), self.contents[4096:12288])

    def test_a_write_that_waits_for_the_origin_delays_no_other_request(self):
        self.start_nbdkit()
        with self.start('write-back') as client:
            self.assertEqual(client.read(4096, 8192), self.contents[4096:12288])
            self.kill_nbdkit()
            choice = random.Random(7)
            waits = set()
            for number in range(8):
                offset, data = 8 * MiB + number * 200_000, choice.randbytes(choice.choice((512, 40_000, 130_000)))
                waits.add(client.request(wire.WRITE, offset, len(data), payload=data))
                self.contents[offset:offset + len(data)] = data
            self.assertEqual(client.read(4096, 8192), self.contents[4096:12288])
            self.start_nbdkit()
            while waits:
                head = client.reply_head()
                self.assertEqual(head.error, wire.OK)
                waits.remove(head.cookie)
            client.flush()
            self.assertEqual(self.file(), self.contents)

    def test_requests_share_the_connection_to_a_server_that_offers_one(self):
        """Reads of one MiB wait until there is a file. The answers to others do not."""
        waits = f'test "$4" -ge {8 * MiB} -a "$4" -lt {9 * MiB}'
        self.start_nbdkit(*origin_export.waiting_nbdkit(self.path, SIZE, self.errors_on, waits))
        with self.start('write-through') as client, wire.connect(self.one.address, 'cached', structured=False) as waiting:
            def wait():
                before = self.origin_status()['misses']
                offsets = [8 * MiB + number * 128 * 1024 for number in range(3)]
                waits.update((waiting.request(wire.READ, offset, 4096), offset) for offset in offsets)
                server.wait_until(lambda: self.origin_status()['misses'] == before + 3)

            def check_answers():
                while waits:
                    error, cookie = waiting.simple_reply()
                    self.assertEqual(error, wire.OK)
                    offset = waits.pop(cookie)
                    self.assertTrue(waiting.receive(4096) == self.contents[offset:offset + 4096], offset)
            waits = {}
            wait()
            for offset in range(10 * MiB, 12 * MiB, 200_000):
                self.assertEqual(client.read(offset, 8192), self.contents[offset:offset + 8192])
            self.write(client, 4 * MiB, server.random_bytes(8192, 6))
            client.flush()
            self.assertEqual(self.file(), self.contents)
            server.write_file(self.errors_on, '')
            check_answers()
            os.unlink(self.errors_on)
            self.gpunbd('export', 'evict', 'cached', '4M')
            wait()
            self.kill_nbdkit()
            self.start_nbdkit()
            check_answers()

    def change(self, client):
        choice = random.Random(4)
        for _ in range(60):
            offset = choice.randrange(SIZE // 512 - 128) * 512
            self.write(client, offset, choice.randbytes(choice.choice((512, 4096, 65536))))
        client.zero(12 * MiB, 3 * MiB)
        self.contents[12 * MiB:15 * MiB] = bytes(3 * MiB)

    def test_write_through(self):
        self.start_nbdkit()
        with self.start('write-through') as client:
            self.change(client)
            self.assertEqual(self.file(), self.contents)
            client.flush()
        self.assertLessEqual({'write', 'zero', 'flush'}, {each['operation'] for each in self.origin_status()['requests']})

    def test_write_back(self):
        self.start_nbdkit('file', self.path, 'rate=1G', 'zeromode=none', filters=('nozero', 'rate'))
        with self.start('write-back') as client:
            self.change(client)
            client.flush()
            self.assertEqual(self.file(), self.contents)

    def test_the_server_returns(self):
        self.start_nbdkit()
        with self.start('write-through') as client:
            self.write(client, 0, server.random_bytes(4096, 7))
            client.flush()
            self.kill_nbdkit()
            writer = threading.Thread(target=self.write, args=(client, 4 * MiB, server.random_bytes(MiB, 8)))
            writer.start()
            self.logged('the connection was lost', self.one)
            self.start_nbdkit()
            writer.join()
            client.flush()
            self.assertEqual(self.file(), self.contents)

    def test_writes_that_were_not_flushed_may_be_lost(self):
        self.start_nbdkit()
        with self.start('write-through') as client:
            self.write(client, 0, bytes(4096))
            self.kill_nbdkit()
            self.start_nbdkit()
            self.check_reads(client, 8, 20)
            with self.assertRaises(wire.Failed):
                client.flush()
            self.logged('writes that were not flushed', self.one)

    def test_another_export_is_not_used(self):
        self.start_nbdkit()
        with self.start() as client:
            client.read(0, 4096)
            self.kill_nbdkit()
            os.truncate(self.path, SIZE + MiB)
            self.start_nbdkit()
            with self.assertRaises(wire.Failed):
                client.read(8 * MiB, 4096)
            self.logged(f'its size was {SIZE} bytes, and is {SIZE + MiB} now', self.one)
            self.assertEqual(client.read(0, 4096), self.contents[:4096])

    def test_a_gpunbd_server_with_other_contents_is_not_used(self):
        config = (f"listeners: {{unix: [{{path: {self.socket}}}, {{path: '{{socket}}'}}]}}\n"
                  'exports: [{name: image, devices: [host], size: 24M}]')
        first = self.serve(config=config)
        wire.write_once(self.socket, 'image', 8 * MiB, b'data')
        with self.start() as client:
            self.assertEqual(client.read(0, 4096), bytes(4096))
            first.stop()
            self.serve(config=config)
            with self.assertRaises(wire.Failed):
                client.read(8 * MiB, 4096)
            self.logged('its description has changed', self.one)

    def test_tls_and_creation_at_run_time(self):
        keys = server.write_file(f'{self.path}.psk', f'alice:{"5c" * 32}\n', 0o600)
        self.start_nbdkit('--tls=require', f'--tls-psk={keys}', 'file', self.path)
        uri = f'nbds+unix://alice@/image?socket={self.socket}&tls-psk-file={keys}'
        self.one = self.serve(config=CONFIG[:CONFIG.index('exports')] + 'exports: [{devices: [host], size: 1M}]')
        words = ('create', 'cached')
        self.export(*words, '--origin-mode', 'read-only', '--origin-nbd', uri.replace('nbds', 'nbd'), status=1)
        self.assertIn('TLS', self.errors)
        self.export(*words, '--origin-mode', 'write-back', '--origin-nbd', uri)
        with wire.connect(self.one.address, 'cached') as client:
            self.check_reads(client, 9, 20)

    def test_a_server_is_no_origin_of_itself(self):
        port = server.free_port()
        listeners = f"listeners: {{unix: [{{path: '{{socket}}'}}], tcp: [{{address: 127.0.0.1, port: {port}}}]}}\n"
        listeners += "admin: {socket: '{directory}/admin'}\n"
        self.one = self.serve(config=f'{listeners}exports: [{{name: a, devices: [host], size: 1M}}]')
        for uri in (f'nbd+unix:///a?socket={self.one.path}', f'nbd://localhost:{port}/a'):
            with self.subTest(uri=uri):
                self.gpunbd('export', 'create', 'cached', '--origin-mode', 'read-only', '--origin-nbd', uri, status=1)
                self.assertIn(f"origin.nbd: {uri} is the export 'a' of this server, which would wait for itself; "
                              'name an export of another server', self.errors)
        text = f"listeners: {{unix: [{{path: {self.socket}}}]}}\nexports: [{{devices: [host], origin: {{nbd: '{self.uri}', mode: read-only}}}}]"
        config = server.write_file(f'{self.path}.yaml', text)
        for words in (('check',), ('serve', '--config')):
            self.command(server.PROGRAM, *words, config, status=1)
            self.assertIn(f"origin.nbd: {self.uri} is the export 'image' of this server", self.errors)

    def test_exports_that_cannot_be_one(self):
        def check(problem, uri=self.uri, mode='read-only', **kwargs):
            with self.subTest(problem=problem):
                text = f"exports: [{{devices: [host], origin: {{nbd: '{uri}', mode: {mode}}}}}]"
                config = server.write_file(f'{self.path}.yaml', text)
                self.command(server.PROGRAM, 'check', config, status=1, **kwargs)
                self.assertIn(f'origin: {uri}: ', self.errors)
                self.assertIn(problem, self.errors)

        folder = self.directory()
        os.symlink('/dev/null', f'{folder}/libnbd.so.0')
        check('libnbd.so.0 cannot be loaded', environment={'LD_LIBRARY_PATH': folder})
        check('start its server, or correct the address')
        check('write for example nbd://host/image', uri='nbd+unix:///image')
        for words, problem in (
                ('memory 0', 'it has 0 bytes; resize it on its server'),
                ('memory 1000', 'its size of 1000 bytes is not a multiple of 512'),
                ('-r memory 1M', 'it is read-only on its server'),
                ('--filter=exportname memory 1M exportname=a exportname-strict=true', 'correct its name'),
                ('--filter=blocksize-policy memory 1M blocksize-minimum=8K blocksize-preferred=8K', 'at least 8192'),
                ('eval get_size=echo+1M pread=exit pwrite=exit', 'has no FLUSH')):
            self.start_nbdkit(*(word.replace('+', ' ') for word in words.split()))
            check(problem, mode='write-through' if 'FLUSH' in problem or '-r' in words else 'read-only')
            self.kill_nbdkit()


if __name__ == '__main__':
    server.main()
