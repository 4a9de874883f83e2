"""Exports with the contents of a file: real clients, memory for a part of it, errors of the file and of the configuration."""
import fcntl
import json
import os

import admin
import origin_export
import server
import wire
from server import MiB, PAGE

SIZE = 40 * MiB
CACHE = 16 * MiB
HOLE = 8 * MiB  # the first part of the file that is a hole
CONFIG = '''
listeners: {unix: [{path: '{socket}'}]}
admin: {socket: '{directory}/admin'}
exports:
  - name: cached
    devices: [{device}]
    origin: {file: FILE, mode: read-only, cache: 16M}
'''


class Origin(origin_export.Test):
    def setUp(self):
        self.path = os.path.join(self.directory(), 'origin.img')
        self.contents = bytearray(server.random_bytes(SIZE, 5))
        self.contents[HOLE:HOLE + 2 * PAGE] = bytes(2 * PAGE)
        with open(self.path, 'wb') as file:
            file.write(self.contents[:HOLE])
            file.seek(2 * PAGE, os.SEEK_CUR)
            file.write(self.contents[HOLE + 2 * PAGE:])

    def start(self, text=CONFIG):
        self.one = self.serve(config=text.replace('FILE', self.path), name='cached')

    def write_blocks(self, block, count):
        with open(self.path, 'wb') as file:
            for _ in range(count):
                file.write(block)

    def check(self, seed, count=200):
        with wire.connect(self.one.address, 'cached') as client:
            self.check_reads(client, seed, count)

    def test_clients_read_the_file(self):
        self.start()
        copy = os.path.join(self.directory(), 'copy')
        self.command('nbdcopy', self.one.uri(), copy)
        self.assertTrue(server.same_file(copy, self.path))
        self.check(1)
        self.assertLessEqual(self.exported()['used'], CACHE)
        origin = self.origin_status()
        self.assertGreater(origin['evicted'], 0)
        self.assertGreater(origin['prefetched'], 0)
        self.assertEqual(origin['errors'], 0)
        info = json.loads(self.command('nbdinfo', '--json', self.one.uri()))['exports'][0]
        self.assertEqual(info['export-size'], SIZE)
        self.assertTrue(info['is_read_only'])
        self.assertEqual(self.extents(self.one.uri()),
                         [(0, HOLE, 0), (HOLE, 2 * PAGE, 3), (HOLE + 2 * PAGE, SIZE - HOLE - 2 * PAGE, 0)])

    def test_a_client_can_ask_for_a_range(self):
        nbd = server.need_libnbd()
        self.start(CONFIG.replace('cache: 16M', 'cache: 16M, prefetch: none'))
        client = nbd.NBD()
        client.connect_uri(self.one.uri('cached'))
        client.cache(3 * PAGE - 4096, PAGE)
        server.wait_until(lambda: self.origin_status()['prefetched'] == 3)
        self.assertEqual(client.pread(3 * PAGE, PAGE), self.contents[PAGE:4 * PAGE])
        client.shutdown()
        status = self.origin_status()
        self.assertEqual((status['misses'], status['fetched']), (0, 0))

    def test_a_client_can_see_what_is_in_memory(self):
        self.start(CONFIG.replace('cache: 16M', 'cache: 16M, prefetch: none').rstrip() + '\n  - {name: node, clone_of: cached}\n')

        def cached():
            return self.extents(self.one.uri('cached'), '--map=gpunbd:cached')
        self.assertEqual(cached(), [(0, SIZE, 0)])
        with wire.connect(self.one.address, 'cached') as client:
            for page in (HOLE // PAGE, 9, 10, 19):
                client.read(page * PAGE, PAGE)
        self.assertEqual(cached(), [(0, 9 * PAGE, 0), (9 * PAGE, 2 * PAGE, 1), (11 * PAGE, 8 * PAGE, 0), (19 * PAGE, PAGE, 1)])
        self.gpunbd('export', 'evict', 'cached', '40M')
        self.assertEqual(cached(), [(0, SIZE, 0)])
        for name in ('cached', 'node'):
            info, = json.loads(self.command('nbdinfo', '--json', self.one.uri(name)))['exports']
            self.assertEqual('gpunbd:cached' in info['contexts'], name == 'cached')

    def test_memory_is_given_back_without_spill_memory(self):
        block = server.random_bytes(MiB, 9)
        self.write_blocks(block, 160)
        self.start(CONFIG.replace('cache: 16M', 'cache: 144M, prefetch: all'))
        server.wait_until(lambda: self.exported()['used'] == 144 * MiB)
        device = os.environ.get('GPUNBD_DEVICE', 'host')
        self.assertIn('of caches dropped', self.gpunbd('reclaim', device, '80M'))

        def read_all():
            with wire.connect(self.one.address, 'cached') as client:
                for page in range(80):
                    self.assertEqual(client.read(page * PAGE + 4096, 4096), block[4096:8192])
        read_all()
        self.assertLessEqual(self.exported()['used'], 64 * MiB)
        self.gpunbd('reclaim', device, '--end')
        read_all()
        self.assertGreater(self.exported()['used'], 64 * MiB)

    def test_clones_share_what_is_read(self):
        clones = "\n  - {name: node, clone_of: cached}\n  - {name: vm, clone_per_client: {of: cached, size: 48M, name: machine}}\n"
        self.start(CONFIG.rstrip() + clones)
        self.gpunbd('export', 'snapshot', 'cached', 'frozen')
        changed = bytearray(self.contents)
        with wire.connect(self.one.address, 'node') as node, wire.connect(self.one.address, 'vm/7') as vm:
            for at, data in ((4097, b'n' * 5000), (6 * PAGE, b'N' * 2 * PAGE), (SIZE - 700, b'z' * 700)):
                node.write(at, data)
                changed[at:at + len(data)] = data
            node.trim(9 * PAGE, PAGE)
            changed[9 * PAGE:10 * PAGE] = bytes(PAGE)
            for client, contents in ((node, changed), (vm, self.contents + bytes(8 * MiB))):
                for at in range(0, len(contents), 4 * MiB):
                    self.assertEqual(client.read(at, 4 * MiB), contents[at:at + 4 * MiB], at)
        for name in ('cached', 'frozen', 'vm/8'):
            copy = os.path.join(self.directory(), 'copy')
            self.command('nbdcopy', self.one.uri(name), copy)
            with open(copy, 'rb') as file:
                self.assertEqual(file.read(SIZE), self.contents, name)
        by_name = {each['name']: each for each in json.loads(self.gpunbd('status', '--json'))['exports']}
        self.assertEqual([by_name[name]['used'] for name in ('frozen', 'vm/7')], [0, 0])
        self.assertEqual(by_name['node']['used'], 4 * PAGE)
        self.gpunbd('export', 'clone', 'node', 'third', status=1)
        self.assertIn('only the export of the origin has clones', self.errors)
        self.assertEqual(server.read_file(self.path, 'rb'), self.contents)

    def test_refused_changes(self):
        self.start()
        for words in (('resize', 'cached', '80M'), ('save', 'cached', os.path.join(self.directory(), 'saved'))):
            with self.subTest(words=words):
                self.gpunbd('export', *words, status=1)
        with self.subTest('restore'):
            self.gpunbd('export', 'restore', self.path, 'cached', status=1)
            self.assertIn('its contents are those of its origin', self.errors)
        with self.subTest('writable'):
            _, answer = admin.request(self.admin, '/api/v1/read-only', {'export': 'cached', 'read_only': False})
            self.assertIn('its origin is read-only', answer['error'])
        self.check(5, 20)

    def test_created_at_run_time(self):
        self.start(CONFIG.replace('name: cached', 'name: other'))
        self.gpunbd('export', 'create', 'cached', '--origin-file', self.path, '--origin-mode', 'read-only', '--origin-cache', '16M')
        self.check(6)
        self.assertIn(f"cache of '{self.path}'", self.gpunbd('export', 'list'))
        self.gpunbd('export', 'remove', 'cached')

    def test_a_reload_with_another_file(self):
        self.start()
        self.check(7, 20)
        other = self.path + '.other'
        self.contents = bytearray(server.random_bytes(SIZE, 6))
        server.write_file(other, self.contents)
        self.one.reload(CONFIG.replace('FILE', other))
        self.check(8, 20)

    def test_files_that_cannot_be_one(self):
        locked = os.path.join(self.directory(), 'locked')
        config = os.path.join(self.directory(), 'gpunbd.yaml')
        with open(locked, 'wb') as lock:
            lock.write(bytes(4096))
            lock.flush()
            fcntl.flock(lock, fcntl.LOCK_EX)
            for origin, problem in ((f'device: {self.path}', 'it is a file; write file: before it'),
                                    ('file: /nonexistent/file', '/nonexistent/file: No such file or directory'),
                                    (f'file: {locked}', f'{locked}: another program has locked it')):
                with self.subTest(problem=problem):
                    text = f'exports: [{{devices: [host], origin: {{{origin}, mode: read-only}}}}]\n'
                    server.write_file(config, text)
                    self.command(server.PROGRAM, 'check', config, status=1)
                    self.assertIn(problem, self.errors)
                    self.command(server.PROGRAM, 'serve', '--config', config, status=1)
                    self.assertIn(problem, self.errors)


if __name__ == '__main__':
    server.main()
