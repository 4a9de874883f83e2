"""gpunbd export changes the exports of a running server, which clients then open or lose."""
import json
import os
import re
import signal
import subprocess
import time

import admin
import kept
import server
import stopped_thread
import wire
from server import KiB, MiB

CONFIG = '''
listeners: {unix: [{path: '{socket}'}]}
admin: {socket: '{directory}/admin'}
state: '{directory}/state'
exports: [{name: configured, size: 64M, devices: [{device}]}]
'''


class Commands(admin.Commands):
    def create(self, name, *flags, **options):
        return self.export('create', name, '--size', '32M', '--device', server.DEVICE, *flags, **options)

    def allocated(self):
        """The memory of all devices that exports have, in bytes."""
        return sum(device['allocated'] for device in self.devices())

    def wait_until_unused(self, name):
        """The server notices the end of a connection later than the client."""
        server.wait_until(lambda: self.exports()[name]['connections'] == 0, 60, f'the end of the connections to {name}')

    def refused(self, name):
        with wire.Wire(self.one.path) as client:
            client.greet()
            with self.assertRaises((wire.Refused, wire.Closed)):
                client.go(name)


class Export(Commands, server.Test):
    def start(self, text=CONFIG):
        self.one = self.serve(config=text, name='configured')


class Create(Export):
    def test_clients_use_it_at_once_and_its_memory_is_freed_when_it_is_removed(self):
        self.start()
        self.assertEqual(self.create('new'), "Export 'new' is created.\n")
        with wire.connect(self.one.path, name='new') as client:
            client.write(MiB, b'data')
            self.assertEqual(client.read(MiB, 4), b'data')
            self.export('remove', 'new', status=1)
            self.assertIn('1 client is connected; --force disconnects it', self.errors)
        self.wait_until_unused('new')
        table = self.export('list')
        self.assertRegex(table, r"(?m)^'new' +32 MiB +2 MiB +0 bytes +2 MiB +" + server.DEVICE + " +0 +[0-9]+ (s|min) +run-time$")
        self.assertRegex(table, r"(?m)^'configured' +64 MiB +0 bytes +0 bytes +0 bytes +" + server.DEVICE + " +0 +- +-$")
        self.assertEqual(json.loads(self.export('remove', 'new', '--json')), {'removed': ['new'], 'failed': []})
        self.logged("export 'new' is removed; its contents are lost now", self.one)
        server.wait_until(lambda: self.allocated() == 0, what='the memory to be freed')
        self.refused('new')
        self.assertEqual(set(self.exports()), {'configured'})
        self.create('new')  # with new, empty contents
        self.assertEqual(wire.read_once(self.one.path, 'new', MiB, 4), bytes(4))

    def test_what_cannot_be_created(self):
        self.start()
        new = ('--size', '32M', '--device', server.DEVICE)
        for words, status, why in (
                (('configured', *new), 1, "there is an export 'configured' already; choose another name"),
                (('huge', '--size', '4000T', '--device', server.DEVICE, '--provision', 'full'), 1, "export 'huge'"),
                (('uneven', *new, '--stripe-size', '3M', '--layout', 'stripe'), 1, 'export.stripe_size:'),
                (('sizeless',), 2, '--size is missing'),
                (('kept', *new, '--keep'), 1, 'no supervisor keeps contents for this server; leave keep out'),
                (('striped', *new, '--layout', 'stripe'), 1, 'layout: stripe needs two or more devices'),
                (('x', '--clone-of', 'configured', '--persist'), 1,
                 'a snapshot or clone can only be persistent if its contents are kept'),
                (('x', '--clone-of', 'configured', '--keep'), 1,
                 "export 'configured' has no keep, so its clone cannot have it"),
                (('x', '--clone-of', 'configured', '--page-size', '1M'), 1, 'export.page_size: '),
                (('x', '--clone-per-client-of', 'configured', '--clone-per-client-name', 'tls_name'), 1,
                 'tls_name needs verified client certificates')):
            with self.subTest(why):
                self.export('create', *words, status=status)
                self.assertIn(why, self.errors)
                self.assertEqual(self.errors.count('\n'), 1)
        self.assertEqual(set(self.exports()), {'configured'})


class Json(Export):
    def test_answers_are_data_and_failures_have_an_error(self):
        self.start()
        self.assertEqual(json.loads(self.create('new', '--json'))['size'], 32 * MiB)
        self.assertEqual(json.loads(self.export('resize', 'new', '64M', '--json'))['size'], 64 * MiB)
        self.assertEqual(json.loads(self.export('clone', 'new', 'copy', '--json'))['clone_of'], 'new')
        file = f'{self.one.directory}/file'
        self.assertEqual(json.loads(self.export('save', 'new', file, '--json')), {'name': 'new', 'file': file})
        self.assertEqual(json.loads(self.export('restore', file, 'again', '--json'))['name'], 'again')
        self.assertIn('already', json.loads(self.create('new', '--json', status=1))['error'])
        self.assertEqual(self.errors, '')

    def test_a_socket_for_clients_is_not_the_admin_socket(self):
        self.start()
        for command in (['export', 'list'], ['status'], ['reclaim', '--all']):
            self.command(server.PROGRAM, *command, '--socket', self.one.path, status=1)
            self.assertIn(f'{self.one.path}: is a socket for NBD clients; the admin socket of this server is '
                          f'{self.one.directory}/admin', self.errors)


class Remove(Export):
    def test_force_disconnects_clients(self):
        self.start()
        self.create('new')
        with wire.connect(self.one.path, name='new') as client, wire.connect(self.one.path, name='configured') as other:
            client.write(0, b'x')
            self.export('remove', 'new', '--force')
            with self.assertRaises(wire.Closed):
                client.read(0, 1)
            self.assertEqual(other.read(0, 1), b'\0')
        self.refused('new')

    def test_several_at_once(self):
        self.start()
        for name in 'abc':
            self.create(name)
        self.assertEqual(self.export('remove', 'a', 'configured', 'b', status=1),
                         "Export 'a' is removed.\nExport 'b' is removed.\n")
        self.assertIn("export 'configured' is in the configuration of the server; remove it there", self.errors)
        self.assertEqual(set(self.exports()), {'configured', 'c'})
        answer = json.loads(self.export('remove', 'unknown', 'c', '--json', status=1))
        self.assertEqual(answer['removed'], ['c'])
        self.assertEqual([each['name'] for each in answer['failed']], ['unknown'])
        self.assertIn("there is no export 'unknown'", answer['error'])


class Disconnect(Export):
    def test_one_client_or_all(self):
        self.start()
        self.gpunbd('disconnect', 'configured', status=1)
        self.assertIn("export 'configured' has no clients", self.errors)
        self.gpunbd('disconnect', 'unknown', status=1)
        self.assertIn("there is no export 'unknown'", self.errors)
        with wire.connect(self.one.path, name='configured') as client, \
                wire.connect(self.one.path, name='configured') as other:
            self.gpunbd('disconnect', 'configured', '10.1.2.3', status=1)
            self.assertIn("has no client '10.1.2.3'; its clients are ", self.errors)
            status, connections = admin.request(self.admin, '/api/v1/connections')
            self.assertEqual(status, 200)
            first = min(each['id'] for each in connections)
            answer = json.loads(self.gpunbd('disconnect', 'configured', str(first), '--json'))
            self.assertEqual([each['id'] for each in answer['disconnected']], [first])
            with self.assertRaises(wire.Closed):
                client.read(0, 1)
            self.logged('closed by the administrator', self.one)
            self.assertEqual(other.read(0, 1), b'\0')
            self.assertRegex(self.gpunbd('disconnect', 'configured'), r'^.* is disconnected\n$')
            with self.assertRaises(wire.Closed):
                other.read(0, 1)


class Save(Export):
    def fill(self, name='new', seed=1):
        """Data with holes; returns the contents."""
        data = bytearray(32 * MiB)
        with wire.connect(self.one.path, name=name) as client:
            for page in (0, 3, 4, 11, 15):
                part = server.random_bytes(MiB, seed + page) + b'text' * (MiB // 8)
                client.write(2 * MiB * page + 512, part)
                data[2 * MiB * page + 512:2 * MiB * page + 512 + len(part)] = part
        return bytes(data)

    def contents(self, name, size=32 * MiB):
        with wire.connect(self.one.path, name=name) as client:
            return b''.join(client.read(at, 16 * MiB) for at in range(0, size, 16 * MiB))

    def test_raw_files_are_sparse_and_other_programs_read_them(self):
        self.start()
        self.create('new')
        data = self.fill()
        path = f'{self.directory()}/new.img'
        self.assertEqual(self.export('save', 'new', path), f"Export 'new' is saved to {path}.\n")
        self.assertEqual(server.read_file(path, 'rb'), data)
        self.assertLess(os.stat(path).st_blocks * 512, 12 * MiB)
        self.assertEqual(os.stat(path).st_mode & 0o777, 0o600)
        self.command('qemu-img', 'compare', '-f', 'raw', '-F', 'raw', path, self.one.uri('new'))
        self.command('nbdcopy', path, self.one.uri('configured'))
        self.assertEqual(self.contents('configured')[:32 * MiB], data)
        self.export('restore', path, 'again', '--device', server.DEVICE)
        self.assertEqual(self.contents('again'), data)
        found = self.exports()
        self.assertEqual([found['again'][key] for key in ('size', 'used')], [32 * MiB, 10 * MiB])
        self.assertEqual(os.listdir(os.path.dirname(path)), ['new.img'])

    def test_compressed_files_are_read_by_zstd_and_damage_is_found(self):
        self.start()
        self.create('new')
        data = self.fill()
        path = f'{self.directory()}/new.zst'
        self.export('save', 'new', path, '--compress', 'zstd', '--threads', '2')
        self.assertEqual(subprocess.run(['zstd', '-dc', path], check=True, capture_output=True).stdout, data)
        self.assertLess(os.path.getsize(path), 6 * MiB)
        self.create('empty')
        self.export('restore', path, 'empty')
        self.assertEqual(self.contents('empty'), data)
        self.assertEqual(self.exports()['empty']['used'], 10 * MiB)
        good = server.read_file(path, 'rb')
        for at in (100, len(good) // 2):
            server.write_file(path, good[:at] + bytes([good[at] ^ 1]) + good[at + 1:])
            self.export('restore', path, 'damaged', '--device', server.DEVICE, status=1)
            self.assertIn(f"export 'damaged': restore: {path}: it is damaged", self.errors)
            self.assertEqual(self.errors.count('\n'), 1)
        self.assertNotIn('damaged', self.exports())

    def test_what_cannot_be_saved_or_restored(self):
        self.start()
        self.create('new')
        self.fill()
        folder = self.directory()
        image = f'{folder}/new.img'
        self.export('save', 'new', image)
        self.export('create', 'small', '--size', '1M', '--device', server.DEVICE)
        self.wait_until_unused('new')  # otherwise the error would be that clients are connected
        with wire.connect(self.one.path, name='configured'):
            for words, why in (
                    (('save', 'new', f'{folder}/none/new.img'), f'{folder}/none/new.img: No such file or directory'),
                    (('save', 'new', '/dev/null'), '/dev/null: it exists and is not a regular file'),
                    (('save', 'unknown', f'{folder}/x'), "there is no export 'unknown'"),
                    (('restore', image, 'new'), "export 'new': it is not empty: 10 MiB are in use"),
                    (('restore', image, 'configured'), '1 client is connected; disconnect all clients first'),
                    (('restore', image, 'small'), 'it has 33554432 bytes, and the export only 1048576'),
                    (('restore', image, 'small', '--keep'),
                     "there is an export 'small' already, so its keys cannot be given"),
                    (('restore', f'{folder}/missing', 'other'), f'{folder}/missing: No such file or directory')):
                with self.subTest(why):
                    self.export(*words, status=1)
                    self.assertIn(why, self.errors)
        self.assertEqual(set(self.exports()), {'configured', 'new', 'small'})
        self.assertEqual(self.exports()['configured']['used'], 0)

    def test_files_need_the_admin_socket(self):
        token = server.write_file(f'{self.directory()}/token', '0123456789abcdef0123\n', 0o600)
        port = server.free_port()
        self.start(CONFIG.replace("admin'}", f"admin', tcp: {{address: 127.0.0.1, port: {port}, token: '{token}'}}}}"))
        url = ('--url', f'http://127.0.0.1:{port}', '--token', token)
        create = (server.PROGRAM, 'export', 'create', 'new', '--size', '1M', '--device', server.DEVICE)
        self.command(*create, *url)
        for words in (('save', 'new', '/tmp/x'), ('restore', '/tmp/x', 'y'), ('create', 'y', '--restore', '/tmp/x'),
                      ('create', 'y', '--size', '1M', '--save-path', '/tmp/x', '--save-at', 'stop')):
            self.command(server.PROGRAM, 'export', *words, *url, status=1)
            self.assertIn('use its admin socket instead of TCP', self.errors)

    def test_it_is_saved_in_time_and_at_the_stop_and_restored_at_the_start(self):
        path = f'{self.directory()}/image.zst'
        text = CONFIG.replace('size: 64M', f"size: 32M, restore: '{path}', save: {{path: '{path}', every: 1, at: stop}}")
        first = CONFIG.replace('size: 64M', f"size: 32M, save: {{path: '{path}', every: 1, at: stop}}")
        self.start(first)
        server.wait_until(lambda: os.path.exists(path), 30, 'a first save')
        data = self.fill('configured')
        self.one.stop()
        self.start(text)
        self.assertEqual(self.contents('configured'), data)

    def test_the_contents_are_those_of_one_instant_while_clients_write(self):
        self.start(CONFIG.replace('64M', '256M'))
        with wire.connect(self.one.path, name='configured') as client:
            for at in range(0, 256 * MiB, 16 * MiB):
                client.write(at, bytes([1]) * (16 * MiB))
            path = f'{self.directory()}/image'
            saving = subprocess.Popen([server.PROGRAM, 'export', 'save', 'configured', path, '--socket', self.admin],
                                      stdout=subprocess.DEVNULL)
            writes = 0
            while writes == 0 or saving.poll() is None:
                client.write(writes * 64 * KiB % (256 * MiB), b'\2' * (64 * KiB))
                writes += 1
        self.assertEqual(saving.wait(60), 0)
        data = server.read_file(path, 'rb')
        # Blocks were written in order: those of one instant are a prefix.
        changed = sum(data[at] == 2 for at in range(0, 256 * MiB, 64 * KiB))
        self.assertEqual(data, b'\2' * (changed * 64 * KiB) + b'\1' * (256 * MiB - changed * 64 * KiB))


class Resize(Export):
    def test_it_grows_for_later_clients(self):
        self.start()
        self.create('new')
        with wire.connect(self.one.path, name='new') as client:
            client.write(31 * MiB, b'end')
            self.assertEqual(self.export('resize', 'new', '96M'),
                             "Export 'new' has 96 MiB now; clients see it when they connect again.\n")
            with self.assertRaises(wire.Failed):
                client.read(32 * MiB, 1)
            self.assertEqual(client.read(31 * MiB, 3), b'end')
            self.assertEqual(self.command('nbdinfo', '--size', self.one.uri('new')), f'{96 * MiB}\n')
            with wire.connect(self.one.path, name='new') as later:
                self.assertEqual(later.read(32 * MiB, 4), bytes(4))
                for at in range(0, 96 * MiB, 16 * MiB):
                    later.write(at, bytes([at // MiB]) * (16 * MiB))
                self.assertEqual(later.read(80 * MiB, 16 * MiB), bytes([80]) * (16 * MiB))
            self.assertEqual(client.read(16 * MiB, 4), bytes([16]) * 4)
        self.assertEqual([self.exports()['new'][key] for key in ('size', 'used')], [96 * MiB, 96 * MiB])

    def test_it_shrinks_if_its_end_is_a_hole(self):
        self.start()
        self.create('new')
        with wire.connect(self.one.path, name='new') as client:
            client.write(0, b'begin')
            client.write(20 * MiB, b'data')
            self.export('resize', 'new', '16M', status=1)
            self.assertIn("export 'new' has data beyond that size; --discard drops it", self.errors)
            self.export('resize', 'new', '17M', '--discard', status=1)
            self.assertIn('a smaller size has to be a multiple of the page size of 2097152 bytes', self.errors)
            self.export('resize', 'new', '16M', '--discard')
            for request in (lambda: client.read(20 * MiB, 1), lambda: client.write(20 * MiB, b'x')):
                with self.assertRaises(wire.Failed):
                    request()
            self.assertEqual(client.read(0, 5), b'begin')
            self.assertEqual([self.exports()['new'][key] for key in ('size', 'used')], [16 * MiB, 2 * MiB])
            self.export('resize', 'new', '64M')
        with wire.connect(self.one.path, name='new') as client:
            self.assertEqual(client.read(20 * MiB, 4), bytes(4))
            self.assertEqual(client.read(0, 5), b'begin')

    def test_clients_can_be_made_to_connect_again(self):
        self.start()
        with wire.connect(self.one.path, name='configured') as client:
            self.export('resize', 'configured', '128M', '--reconnect')
            with self.assertRaises(wire.Closed):
                client.read(0, 1)
        with wire.connect(self.one.path, name='configured') as client:
            self.export('resize', 'configured', '160M')
            self.assertEqual(client.read(0, 1), b'\0')

    def test_a_reload_keeps_the_size_and_the_contents(self):
        self.start()
        wire.write_once(self.one.path, 'configured', 0, b'data')
        self.assertIn('Set this size in the configuration as well', self.export('resize', 'configured', '128M'))
        self.one.reload()
        self.one.reload(CONFIG.replace('64M', '128M'))
        self.assertEqual(self.exports()['configured']['size'], 128 * MiB)
        self.assertEqual(wire.read_once(self.one.path, 'configured', 0, 4), b'data')
        self.one.reload(CONFIG.replace('64M', '32M'))  # as before: a new, empty export
        self.assertEqual([self.exports()['configured'][key] for key in ('size', 'used')], [32 * MiB, 0])

    def test_under_load(self):
        self.start()
        seconds = 4 if server.SANITIZED else 2
        load = self.begin_load(self.one, 'configured', '--verify', '--connections', '2', '--seconds', str(seconds))
        # Otherwise it would use a size of which a part is removed later. On a slow machine the load may be over already.
        server.wait_until(lambda: load.poll() is not None or self.exports()['configured']['connections'] == 2, 60,
                          'the connections of the load')
        for size in (128, 256, 64, 512, 64):
            self.export('resize', 'configured', f'{size}M')
        self.end_load(load)


class Rename(Export):
    def test_what_cannot_be_renamed(self):
        self.start()
        self.create('old')
        self.create('base')
        self.export('create', 'node', '--clone-per-client-of', 'base', '--clone-per-client-name', 'machine')
        for old, new, why in (
                ('none', 'new', "there is no export 'none'; gpunbd export list lists them"),
                ('old', 'old', "export 'old' has this name already; choose another one"),
                ('old', 'base', "there is an export 'base' already; choose another name"),
                ('old', 'node', "there is an export 'node' already; choose another name"),
                ('configured', 'new', "export 'configured' is in the configuration of the server; rename it there, and reload"),
                ('base', 'new', "export 'node' makes clones of it; remove that one first"),
                ('node', 'new', "export 'node' has no contents, and its clients find their clones by its name")):
            with self.subTest(why):
                self.export('rename', old, new, status=1)
                self.assertIn(why, self.errors)
        with wire.connect(self.one.path, name='node/7c2f'):
            self.export('rename', 'node/7c2f', 'new', status=1)
            self.assertIn("export 'node/7c2f' is the clone of a client, which finds it by its name", self.errors)
        self.export('snapshot', 'old', 'before')
        self.export('rename', 'old', 'new', status=1)
        self.assertIn("export 'before' is a snapshot or clone of it; remove that one first", self.errors)
        self.export('clone', 'old', 'copy')
        self.export('rename', 'old', 'new', status=1)
        self.assertIn("2 exports are snapshots or clones of it, such as 'before'; remove those first", self.errors)
        for name, new in (('before', 'snapshot'), ('copy', 'clone')):
            self.export('rename', name, new)
        self.assertEqual({name: each['clone_of'] for name, each in self.exports().items() if each['clone_of'] == 'old'},
                         {'snapshot': 'old', 'clone': 'old'})
        for words, why in ((('old', ''), 'the NEW is empty'), (('old', 'a\nb'), 'control character'), (('old',), 'NEW is missing')):
            self.export('rename', *words, status=2)
            self.assertIn(why, self.errors)


class Clone(Export):
    def test_snapshots_and_clones_share_memory_until_they_are_written(self):
        self.start()
        with wire.connect(self.one.path, name='configured') as client:
            client.write(0, b'first' * MiB)
            self.assertEqual(self.export('snapshot', 'configured', 'before'), "Export 'before' is created.\n")
            self.export('clone', 'configured', 'copy')
            client.write(0, b'second')
        with wire.connect(self.one.path, name='before') as client:
            self.assertEqual(client.read(0, 10), b'firstfirst')
            with self.assertRaises(wire.Failed):
                client.write(0, b'x')
            self.export('resize', 'before', '128M', status=1)
            self.assertIn('it is a snapshot, and has a fixed size; resize a clone of it', self.errors)
            writable = {'export': 'before', 'read_only': False}
            self.assertEqual(admin.request(self.admin, '/api/v1/read-only', writable)[0], 409)
            self.export('resize', 'configured', '128M')
            self.export('resize', 'copy', '2M', '--discard')
            self.export('resize', 'copy', '64M')
            self.assertEqual(client.read(4 * MiB, 5), b'first'[4 * MiB % 5:] + b'first'[:4 * MiB % 5])
        with wire.connect(self.one.path, name='copy') as client:
            client.write(0, b'third')
            self.assertEqual(client.read(0, 10), b'thirdfirst')
        found = self.exports()
        self.assertEqual([found['before'][key] for key in ('used', 'shared', 'own', 'clone_of', 'read_only')],
                         [6 * MiB, 4 * MiB, 2 * MiB, 'configured', True])
        self.assertRegex(self.export('list'), r"(?m)^'before' .* read-only run-time snapshot of 'configured'$")
        self.assertRegex(self.export('list'), r"(?m)^'copy' .* run-time clone of 'configured'$")
        self.one.reload()


class Reload(Export):
    def test_it_stays_and_a_conflict_of_names_is_reported(self):
        self.start()
        self.create('new')
        with wire.connect(self.one.path, name='new') as client:
            client.write(0, b'data')
            self.assertIn('2 exports are offered now', self.one.reload())
            both = CONFIG.replace('exports: [', 'exports: [{name: new, size: 8M, devices: [{device}]}, ')
            log = self.one.reload(both)
            self.assertIn("export 'new' was created at run time, and the file has one of this name as well", log)
            self.assertIn('the configuration is unchanged', log)
            self.assertEqual(client.read(0, 4), b'data')
        self.export('remove', 'new', '--force')
        self.assertIn('2 exports are offered now', self.one.reload())
        self.assertEqual(self.exports()['new']['size'], 8 * MiB)


class Persist(Export):
    def restart(self):
        folder = self.directory()
        text = CONFIG.replace('{directory}/state', f'{folder}/state')
        self.start(text)
        return folder, text

    def test_it_is_created_with_its_new_name_at_the_next_start(self):
        folder, text = self.restart()
        self.create('a/b', '--persist', '--page-size', '1M')
        self.create('gone')
        created = self.exports()['a/b']['created']
        self.assertLess(abs(created - time.time()), 600)
        self.export('rename', 'a/b', 'c/d')
        self.assertEqual(os.listdir(f'{folder}/state'), ['c%2Fd.yaml'])
        os.rename(f'{folder}/state', f'{folder}/elsewhere')
        self.export('rename', 'c/d', 'e', status=1)
        self.assertIn(f'the state folder {folder}/state: No such file or directory', self.errors)
        os.rename(f'{folder}/elsewhere', f'{folder}/state')
        self.one.stop()
        self.start(text)
        self.assertEqual(set(self.exports()), {'configured', 'c/d'})
        self.assertEqual([self.exports()['c/d'][key] for key in ('page_size', 'persistent', 'created')],
                         [MiB, True, created])
        self.export('remove', 'c/d')
        self.assertEqual(os.listdir(f'{folder}/state'), [])

    def test_damaged_files_are_errors_with_their_position(self):
        folder, text = self.restart()
        self.create('new', '--persist')
        self.one.stop()
        path = f'{folder}/state/new.yaml'
        good = server.read_file(path)
        config = server.write_file(f'{folder}/config.yaml',
                                   text.replace('{device}', server.DEVICE).replace('{socket}', f'{folder}/socket')
                                   .replace('{directory}', folder))
        line = good[:good.index('page_size')].count('\n') + 1
        for bad, why in ((good.replace('page_size: 2M', 'page_size: 3M'), f'{path}:{line}:12: page_size: '),
                         ('', f'{path}:1:1: name: is missing'), (good[:50] + '\0\1', f'{path}:')):
            server.write_file(path, bad)
            self.command(server.PROGRAM, 'serve', '--config', config, status=2)
            self.assertIn(why, self.errors)
        os.rename(path, f'{folder}/state/configured.yaml')
        server.write_file(f'{folder}/state/configured.yaml', re.sub('name: .new.', 'name: configured', good))
        self.command(server.PROGRAM, 'serve', '--config', config, status=2)
        self.assertIn("name: the configuration has an export 'configured' as well", self.errors)

    def test_a_folder_that_cannot_be_written_leaves_nothing_behind(self):
        folder, _ = self.restart()
        os.rename(f'{folder}/state', f'{folder}/elsewhere')
        self.create('new', '--persist', status=1)
        self.assertIn(f'the state folder {folder}/state: No such file or directory', self.errors)
        self.assertEqual(set(self.exports()), {'configured'})
        self.one.stop()
        self.start(CONFIG.replace("state: '{directory}/state'", ''))
        self.create('new', '--persist', status=1)
        self.assertIn('start it with --state DIR', self.errors)

    def test_a_resize_that_cannot_be_stored_is_in_effect(self):
        folder, _ = self.restart()
        self.create('new', '--persist')
        os.rename(f'{folder}/state', f'{folder}/elsewhere')
        self.export('resize', 'new', '16M', status=1)
        self.assertIn("export 'new' has 16 MiB now, but this is not stored for the next server: the state folder",
                      self.errors)
        self.assertEqual(self.exports()['new']['size'], 16 * MiB)
        with wire.connect(self.one.path, name='new') as client, self.assertRaises(wire.Failed):
            client.write(20 * MiB, b'x')


class Supervised(Commands, kept.Test):
    def start(self):
        self.one = self.keep(config=CONFIG.replace('size: 64M', 'size: 64M, keep: true'))

    def check_data(self, expected):
        for name, data in expected.items():
            self.assertEqual(wire.read_once(self.one.path, name, 0, 6 * MiB), data, name)

    def test_renamed_contents_survive_all_ends_of_the_server(self):
        self.start()
        self.create('persistent', '--keep', '--persist')
        self.create('new', '--keep')
        self.export('snapshot', 'configured', 'before')
        self.create('removed', '--keep')
        self.assertIn('Its contents are kept for 300 s', self.export('remove', 'removed', '--keep-contents'))
        expected = {}
        for name in ('persistent', 'new'):
            expected[name] = server.random_bytes(6 * MiB, len(expected))
            wire.write_once(self.one.path, name, 0, expected[name])
        self.export('rename', 'new', 'removed', status=1)
        self.assertIn("contents of a removed export are kept under the name 'removed'; free them by gpunbd kept --drop "
                      "'removed', or choose another name", self.errors)
        for end in (self.one.kill_and_wait, self.one.upgrade, self.one.kill_and_wait):
            with wire.connect(self.one.path, name=next(iter(expected))) as client:
                for name in list(expected):
                    new = name + '+'
                    self.assertEqual(self.export('rename', name, new), f"Export '{name}' has the name '{new}' now.\n")
                    expected[new] = expected.pop(name)
                end()
                if end == self.one.upgrade:
                    self.assertEqual(client.read(0, 6 * MiB), next(iter(expected.values())))
            self.check_data(expected)
            self.assertEqual(set(self.exports()), {'configured', 'before', *expected})
        self.export('rename', 'before', 'after')
        self.one.kill_and_wait()
        self.assertEqual([self.exports()['after'][key] for key in ('clone_of', 'keep')], ['configured', True])

    def test_a_server_that_is_killed_while_clones_come_and_go_loses_nothing(self):
        self.start()
        clients = kept.loads(lambda: self.one.client('configured'), 2, 8 * MiB)
        for count in range(8):
            self.export('snapshot', 'configured', f'snapshot {count}')
            with wire.connect(self.one.path, name=f'snapshot {count}') as client:
                data = client.read(0, 16 * MiB)
            self.one.kill_and_wait()
            self.assertEqual(wire.read_once(self.one.path, f'snapshot {count}', 0, 16 * MiB), data)
            if count >= 2:
                self.export('remove', f'snapshot {count - 2}')
        kept.finish(clients, self.one.client('configured'))

    def test_configured_and_persistent_clones_take_over_their_contents(self):
        config = CONFIG.replace('size: 64M, devices: [{device}]}',
                                'size: 64M, devices: [{device}], keep: true}, {name: node, clone_of: configured, keep: true}')
        self.one = self.keep(config=config)
        self.export('create', 'a', '--clone-of', 'node', '--persist')
        expected = {'configured': bytes(6 * MiB), 'node': b'node' + bytes(6 * MiB - 4), 'a': b'a' + bytes(6 * MiB - 1)}
        for name in ('node', 'a'):
            wire.write_once(self.one.path, name, 0, name.encode())
        for _ in range(2):
            self.one.kill_and_wait()
            self.check_data(expected)
        self.assertTrue(self.exports()['a']['persistent'])
        self.export('snapshot', 'a', 'run-time')
        self.export('create', 'x', '--clone-of', 'run-time', '--persist', status=1)
        self.assertIn("export 'run-time' is not persistent", self.errors)


class Restored(Commands, kept.Test):
    """The thread that restores is stopped, so that nothing depends on how fast it is."""

    KEPT = CONFIG.replace('[{device}]', '[{device}], keep: true')

    def start(self):
        self.one = self.keep(config=self.KEPT)

    def image(self, text):
        path = f'{self.directory()}/image'
        with open(path, 'wb') as file:
            file.write(text)
            file.truncate(4 * MiB)
        return path

    def begins(self, name):
        return wire.read_once(self.one.path, name, 0, 5)

    def test_an_export_is_closed_until_it_is_whole_and_made_again_after_a_kill(self):
        self.start()
        first = self.image(b'first')
        with stopped_thread.stopped(self.one.server(), 'saves') as thread:
            asked = admin.PendingRequest(self.admin, '/api/v1/exports/restore', {
                'file': first, 'export': {'name': 'new', 'keep': True, 'devices': [server.DEVICE]}, 'persist': False})
            server.wait_until(lambda: 'new' in self.exports(), 60, 'the export')
            for words in (('snapshot', 'new', 'x'), ('clone', 'new', 'x'), ('save', 'new', f'{first}.2'),
                          ('resize', 'new', '8M'), ('restore', first, 'new'), ('remove', 'new'), ('remove', 'new', '--force')):
                self.export(*words, status=1)
                self.assertIn('is being restored; try again later', self.errors)
            # Nothing else waits for it.
            self.export('create', 'node', '--clone-per-client-of', 'new', '--clone-per-client-max', '9',
                        '--clone-per-client-name', 'machine')
            for name in ('new', 'node/m1'):
                with wire.Wire(self.one.path) as client:
                    client.greet()
                    with self.assertRaises(wire.Refused) as refused:
                        client.go(name)
                    self.assertIn('is being restored', refused.exception.args[1])
            self.export('remove', 'node')
            self.one.reload()
            self.assertFalse(asked.answered(0))
            self.one.process.send_signal(signal.SIGUSR2)
            self.logged('nothing can be handed over to another server: an export is being saved or restored', self.one)
            count = self.one.ready()
            self.one.kill()
            os.waitpid(thread, stopped_thread.WALL)
        self.one.wait_ready(count + 1)
        asked.connection.close()
        self.logged("export 'new': an earlier server ended while it restored the contents", self.one)
        self.assertEqual(set(self.exports()), {'configured'})
        self.export('restore', first, 'new', '--keep', '--device', server.DEVICE)
        self.assertEqual(self.begins('new'), b'first')

    def test_a_reload_adds_it_and_then_its_clones(self):
        self.start()
        first = self.image(b'first')
        added = f", {{name: base, size: 4M, devices: [{server.DEVICE}], restore: '{first}'}}, {{name: clone, clone_of: base}}]"
        with stopped_thread.stopped(self.one.server(), 'saves'):
            self.one.reload(self.KEPT.rstrip()[:-1] + added)
            self.assertEqual(set(self.exports()), {'configured', 'base'})
        server.wait_until(lambda: 'clone' in self.exports(), 60, 'the clone')
        self.assertEqual([self.begins(name) for name in ('base', 'clone')], [b'first', b'first'])
        self.one.reload(self.KEPT)
        os.unlink(first)
        self.one.reload(self.KEPT.rstrip()[:-1] + added)
        self.logged(f"export 'base': restore: {first}: No such file", self.one)
        server.wait_until(lambda: set(self.exports()) == {'configured'}, 60, 'its end')
        self.create('beside')
        self.assertEqual(set(self.exports()), {'configured', 'beside'})


if __name__ == '__main__':
    server.main()
