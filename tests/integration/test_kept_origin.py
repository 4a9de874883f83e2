"""Exports with keep: true and an origin: kills, upgrades, contents that a file lacks, and files that were changed."""
import json
import os
import random
import shutil
import signal
import subprocess
import time

import kept
import origin_export
import server
import wire
from server import MiB

SIZE = 64 * MiB
CLIENTS = 4
CHANGES = 6 if server.SANITIZED else 20  # kills and upgrades below the same clients
EXPORT = '''
  - name: disk
    devices: [{device}]
    page_size: 256K
    keep: true
    origin: {file: FILE, mode: write-back, cache: 8M, max_unwritten: 4M, max_age: AGE}
'''
READ_ONLY = '''
  - name: disk
    devices: [{device}]
    page_size: 256K
    keep: true
    origin: {ORIGIN, mode: read-only, cache: 8M}
'''
CLONES = '''
  - {name: node, clone_of: disk, keep: true}
  - {name: vm, clone_per_client: {of: disk, size: 72M, name: machine}}
'''
OTHER = '''
  - {name: other, size: 1M, devices: [{device}], keep: true}
'''


def upgrade_under_load(one, clients, name='disk', upgrades=CHANGES):
    for _ in range(upgrades):
        before = [each.answers for each in clients]
        server.wait_until(lambda last=before: all(each.answers > 5 + count or each.failure for each, count in zip(clients, last)))
        one.upgrade()
    kept.finish(clients, one.client(name))


class Undisturbed(kept.Undisturbed):
    exported = 'disk'

    def __init__(self, address, base, size, seed):
        super().__init__(address, base, size, seed)
        self.connect = lambda: wire.connect(address, self.exported, structured=seed % 2 == 0)


class Test(kept.Test):
    def setUp(self):
        self.path = os.path.join(self.directory(), 'origin.img')
        with open(self.path, 'wb') as file:
            file.truncate(SIZE)

    def text(self, exports, grace=0):
        listener = '''
listeners: {unix: [{path: '{socket}'}]}
admin: {socket: '{directory}/admin'}
keeping: {grace: GRACE, socket: '{directory}/keeping'}
'''
        return f'{listener}exports:{exports}'.replace('GRACE', str(grace))

    def start(self, *arguments, **options):
        self.one = self.keep(config=self.text(*arguments, **options))

    def contents(self):
        listed = self.command(server.PROGRAM, 'kept', '--json', '--socket', os.path.join(self.one.directory, 'keeping'))
        return [(each['name'], each['state']) for each in json.loads(listed)['kept']]

    def exported(self):
        text = self.command(server.PROGRAM, 'status', '--json', '--socket', os.path.join(self.one.directory, 'admin'))
        return json.loads(text)['exports'][0]

    def cached(self):
        return self.exported()['origins'][0]

    def connect(self):
        return self.one.client('disk')


class KeptOrigin(Test):
    def text(self, exports=EXPORT, age='1s', grace=0):
        return super().text(exports, grace).replace('FILE', self.path).replace('AGE', age)

    def check_file(self, clients):
        file = server.read_file(self.path, 'rb')
        for each in clients:
            self.assertEqual(file[each.base:each.base + len(each.model)], each.model)

    def write(self, data, offset=0):
        with self.connect() as client:
            client.write(offset, data)

    def test_killed_at_any_time(self):
        self.start()
        clients = kept.loads(self.connect, CLIENTS, SIZE // CLIENTS)
        kept.kill_under_load(self.one, clients, CHANGES, 0.3)
        self.assertEqual(self.one.stop(), 0)
        self.check_file(clients)
        self.assertIn('that its origin does not have', self.one.log())

    def test_clients_do_not_notice_upgrades(self):
        self.start()
        clients = kept.loads(self.one.path, CLIENTS, SIZE // CLIENTS, kind=Undisturbed)
        upgrade_under_load(self.one, clients)
        self.assertEqual(self.one.stop(), 0)
        self.check_file(clients)
        self.assertNotIn('error', self.one.log())

    def test_upgrades_and_kills(self):
        self.start()
        clients = kept.loads(self.connect, CLIENTS, SIZE // CLIENTS)
        choice = random.Random(1)
        for _ in range(CHANGES // 2):
            self.one.upgrade()
            time.sleep(choice.random() * 0.2)
            self.one.kill_and_wait()
        # During upgrades.
        for _ in range(CHANGES // 2):
            ready = self.one.ready()
            self.one.process.send_signal(signal.SIGUSR2)
            time.sleep(choice.random() * 0.2)
            self.one.kill()
            server.wait_until(lambda count=ready: self.one.ready() > count, 60, self.one.log)
        kept.finish(clients, self.connect())
        self.assertEqual(self.one.stop(), 0)
        self.check_file(clients)

    def test_an_upgrade_keeps_the_cache_warm(self):
        data = bytearray(server.random_bytes(4 * MiB, 3))
        with open(self.path, 'r+b') as file:
            file.write(data)
        self.start(age='1h')
        with self.connect() as client:
            client.read(0, len(data))
            client.write(MiB, b'changed')
            data[MiB:MiB + 7] = b'changed'
            before = self.cached()
            self.one.upgrade()
            self.assertEqual(client.read(0, len(data)), data)
            after = self.cached()
            self.assertEqual((before['misses'] > 0, after['misses'], after['unwritten']), (True, 0, 64 * 1024))

    def test_an_upgrade_that_fails(self):
        self.start(age='1h')
        with self.connect() as client:
            client.write(0, b'before')
            for failures in (1, 2):
                self.one.configure(self.text(age='1h').replace('8M', '9M'))
                self.one.process.send_signal(signal.SIGUSR2)
                server.wait_until(lambda count=failures: self.one.log().count('this server continues') == count, 60, self.one.log)
                client.write(failures * MiB, b'after')
                self.assertEqual(client.read(0, 6), b'before')
            self.assertIn('cache 8M', self.one.log())
            client.flush()
            self.one.configure(self.text(age='1h'))
            self.one.upgrade()
            self.assertEqual(client.read(2 * MiB, 5), b'after')
        self.assertEqual(self.one.stop(), 0)
        file = server.read_file(self.path, 'rb')
        self.assertEqual((file[:6], file[MiB:MiB + 5], file[2 * MiB:2 * MiB + 5]), (b'before', b'after', b'after'))

    def test_contents_that_the_file_lacks_wait_for_their_export(self):
        self.start(EXPORT + OTHER, age='1h')
        self.write(b'only in memory')
        self.one.configure(self.text(OTHER))
        self.one.kill_and_wait()
        state = dict(self.contents())['disk']
        self.assertEqual(state, 'no export has them; their origin lacks some of them')
        self.assertIn("they stay until export 'disk' is served again", self.one.log())
        self.assertNotIn(b'only', server.read_file(self.path, 'rb'))
        self.one.reload(self.text(EXPORT + OTHER, age='1h'))
        with self.connect() as client:
            self.assertEqual(client.read(0, 14), b'only in memory')
            client.flush()
        self.assertEqual(server.read_file(self.path, 'rb')[:14], b'only in memory')
        self.assertEqual(dict(self.contents())['disk'], 'in use')

    def test_contents_that_the_file_lacks_are_not_replaced(self):
        self.start(EXPORT + OTHER, age='1h')
        self.write(b'only in memory')
        self.one.configure(self.text(EXPORT.replace('8M', '9M') + OTHER, age='1h'))
        self.one.kill_and_wait()
        self.assertRegex(self.one.log(), 'they were made for .*cache 8M, write-back, but the export has .*cache 9M')
        self.command(server.PROGRAM, 'kept', '--drop', 'disk', '--socket', os.path.join(self.one.directory, 'keeping'))
        self.one.reload(self.text(EXPORT.replace('8M', '9M') + OTHER, age='1h'))
        with self.connect() as client:
            self.assertEqual(client.read(0, 14), bytes(14))
            client.write(0, b'flushed')
            client.flush()
        # Without changes that the file lacks, other options may take effect.
        self.one.configure(self.text(EXPORT + OTHER, age='1h'))
        self.one.kill_and_wait()
        with self.connect() as client:
            self.assertEqual(client.read(0, 7), b'flushed')

    def test_a_missing_file_and_another_file_of_the_same_name(self):
        self.start(EXPORT + OTHER, age='1h')
        self.write(b'only in memory')
        os.rename(self.path, self.path + '.away')
        self.one.kill_and_wait()
        self.assertIn('No such file', self.one.log())
        with open(self.path, 'wb') as file:
            file.truncate(SIZE)
        self.one.kill_and_wait()
        self.assertIn('it is another file now', self.one.log())
        os.rename(self.path + '.away', self.path)
        self.one.reload()
        with self.connect() as client:
            self.assertEqual(client.read(0, 14), b'only in memory')
            client.flush()
        # The file has everything, so it may change.
        os.truncate(self.path, SIZE + MiB)
        self.one.kill_and_wait()
        with self.connect() as client:
            self.assertEqual((client.size, client.read(0, 4)), (SIZE + MiB, b'only'))

    def test_no_other_export_uses_a_file_that_lacks_changes(self):
        self.start(EXPORT + OTHER, age='1h')
        self.write(b'only in memory')
        for other in (EXPORT.replace('name: disk', 'name: second'), EXPORT.replace('keep: true', 'keep: false').replace('8M', '9M')):
            self.one.configure(self.text(other + OTHER, age='1h'))
            self.one.kill()
            words = "kept contents of export 'disk' have changes that it lacks"
            server.wait_until(lambda: words in self.one.log(), 30, self.one.log)
        self.one.configure(self.text(EXPORT + OTHER, age='1h'))
        self.one.process.send_signal(signal.SIGHUP)
        server.wait_until(lambda: self.one.log().count(' ready') == 2, 60, self.one.log)
        with self.connect() as client:
            self.assertEqual(client.read(0, 14), b'only in memory')

    def test_removed_by_a_reload(self):
        self.start(EXPORT + OTHER, age='1h', grace=300)
        self.write(b'written soon')
        self.one.reload(self.text(OTHER, age='1h', grace=300))
        server.wait_until(lambda: 'disk' not in dict(self.contents()), 30, self.one.log)
        self.assertEqual(server.read_file(self.path, 'rb')[:12], b'written soon')

    def test_fua_of_a_request_that_an_upgrade_interrupts(self):
        self.start(age='1h')
        data = random.Random(1).randbytes(MiB)
        with self.connect() as client:
            message = wire.encode_write(0, data, 1, wire.FUA)
            client.send(message[:400_000])
            self.one.upgrade()
            client.send(message[400_000:])
            self.assertEqual(client.simple_reply(), (0, 1))
            self.assertEqual(server.read_file(self.path, 'rb')[:MiB], data)

    def test_an_upgrade_while_a_part_of_a_payload_waits_for_its_page(self):
        self.upgrade_while_a_payload_waits(fails=False)

    def test_an_upgrade_while_a_part_of_a_payload_waits_for_a_page_that_cannot_be_read(self):
        self.upgrade_while_a_payload_waits(fails=True)

    def upgrade_while_a_payload_waits(self, fails):
        if shutil.which('nbdkit') is None:
            self.skipTest('there is no nbdkit')
        folder = self.directory()
        socket, readable = (os.path.join(folder, each) for each in ('socket', 'readable'))
        words = origin_export.waiting_nbdkit(self.path, SIZE, readable, read='echo EIO >&2; exit 1' if fails else None)
        origin = subprocess.Popen(['nbdkit', '-f', '--exit-with-parent', '-U', socket, *words, 'can_multi_conn=exit 0'])
        self.addCleanup(lambda: (origin.kill(), origin.wait()))
        server.wait_until(lambda: server.listens(socket))
        self.start(EXPORT.replace('file: FILE', f"nbd: 'nbd+unix:///?socket={socket}'"), age='1h')
        with self.connect() as client:
            data = random.Random(1).randbytes(200_000)
            message = wire.encode_write(MiB + 1000, data, 1)
            client.send(message[:90_000])
            server.wait_until(lambda: self.exported()['origins'][0]['misses'] == 1)
            self.one.process.send_signal(signal.SIGUSR2)
            server.wait_until(lambda: 'upgrade: imported' in self.one.log(), 30, self.one.log)
            time.sleep(0.1)  # the old server pauses its clients now
            server.write_file(readable, '')
            server.wait_until(lambda: 'is the server now' in self.one.log(), 30, self.one.log)
            client.send(message[90_000:])
            self.assertEqual(client.simple_reply(), (wire.EIO if fails else 0, 1))
            if fails:
                return
            client.flush()
            self.assertTrue(server.read_file(self.path, 'rb')[MiB + 1000:MiB + 1000 + len(data)] == data)

    def test_without_keep_it_is_not_replaced(self):
        self.start(EXPORT.replace('keep: true', 'keep: false') + OTHER)
        self.one.process.send_signal(signal.SIGUSR2)
        server.wait_until(lambda: "export 'disk' writes to its origin, and its contents are not kept" in self.one.log(), 30, self.one.log)


class ReadOnlyTest(Test):
    def setUp(self):
        super().setUp()
        self.data = server.random_bytes(SIZE, 4)
        server.write_file(self.path, self.data)

    def text(self, exports=READ_ONLY, grace=0, origin=None):
        return super().text(exports, grace).replace('ORIGIN', origin or f'file: {self.path}')

    def loads(self, kind, connect, commands=(wire.READ,), name='disk'):
        """Clients of an export that begins with the data of the file."""
        class Load(kind):
            def __init__(its, connect, base, size, seed):
                its.commands, its.exported = commands, name
                super().__init__(connect, base, size, seed)
                its.model[:] = self.data[base:base + size]
        return kept.loads(connect, CLIENTS, SIZE // CLIENTS, kind=Load)

    def instance(self):
        return self.exported()['instance']

    def refused_upgrade(self, *words):
        before = self.one.log()
        count = before.count('this server continues')
        self.one.process.send_signal(signal.SIGUSR2)
        server.wait_until(lambda: self.one.log().count('this server continues') > count, 60, self.one.log)
        for each in words:
            self.assertIn(each, self.one.log()[len(before):])


class KeptReadOnlyOrigin(ReadOnlyTest):
    def test_killed_at_any_time(self):
        self.start()
        instance = self.instance()
        clients = self.loads(kept.Load, self.connect)
        kept.kill_under_load(self.one, clients, CHANGES // 2, 0.3)
        self.assertEqual(self.instance(), instance)
        self.assertEqual(self.one.stop(), 0)

    def test_clients_do_not_notice_upgrades(self):
        self.start()
        upgrade_under_load(self.one, self.loads(Undisturbed, self.one.path))
        self.assertEqual(self.one.stop(), 0)
        self.assertNotIn('error', self.one.log())
        self.assertEqual(server.read_file(self.path, 'rb'), self.data)

    def test_an_upgrade_keeps_the_cache_warm_and_a_crash_does_not(self):
        self.start(READ_ONLY.replace('cache: 8M', 'cache: 8M, prefetch: none'))
        with self.connect() as client:
            for _ in range(2):
                self.assertEqual(client.read(0, 4 * MiB), self.data[:4 * MiB])
                self.one.upgrade()
                self.assertEqual(client.read(0, 4 * MiB), self.data[:4 * MiB])
                self.assertEqual(self.cached()['misses'], 0)
            evict = ('export', 'evict', 'disk', '64M', '--socket', os.path.join(self.one.directory, 'admin'))
            self.assertIn('4 MiB are dropped', self.command(server.PROGRAM, *evict))
            self.assertEqual(client.read(0, 4 * MiB), self.data[:4 * MiB])
            self.assertGreater(self.cached()['misses'], 0)
        self.one.kill_and_wait()
        self.assertEqual(self.exported()['used'], 0)

    def test_a_file_that_was_changed(self):
        self.start()
        instance = self.instance()
        with self.connect() as client:
            client.read(0, MiB)
            with open(self.path, 'r+b') as file:
                file.write(b'changed')
            self.refused_upgrade(f"export 'disk': origin: {self.path}: it is another file now, or another program has written to it",
                                 'restart the server instead')
            self.assertEqual(client.read(0, 7), self.data[:7])
        self.one.kill_and_wait()
        self.assertIn('it is read again, and the export has a new instance', self.one.log())
        with self.connect() as client:
            self.assertEqual(client.read(0, MiB), b'changed' + self.data[7:MiB])
        self.assertNotEqual(self.instance(), instance)
        self.one.upgrade()

    def test_a_file_that_was_replaced(self):
        self.start(READ_ONLY + OTHER)
        other = server.random_bytes(SIZE, 9)
        with self.connect() as client:
            client.read(0, MiB)
            server.write_file(self.path + '.new', other)
            os.rename(self.path + '.new', self.path)
            self.refused_upgrade('it is another file now')
            self.assertEqual(client.read(8 * MiB, MiB), self.data[8 * MiB:9 * MiB])
            os.truncate(self.path, SIZE + MiB)
            self.refused_upgrade(f'its size was {SIZE} bytes, and is {SIZE + MiB} now')
        self.one.kill_and_wait()
        with self.connect() as client:
            self.assertEqual((client.size, client.read(0, MiB), client.read(SIZE, MiB)), (SIZE + MiB, other[:MiB], bytes(MiB)))

    def test_other_options_and_a_removed_export(self):
        self.start(READ_ONLY + OTHER, grace=300)
        with self.connect() as client:
            client.read(0, MiB)
        self.one.reload(self.text(READ_ONLY.replace('8M', '9M') + OTHER, grace=300))
        with self.connect() as client:
            self.assertEqual(client.read(0, MiB), self.data[:MiB])
        self.one.reload(self.text(OTHER, grace=300))
        server.wait_until(lambda: 'disk' not in dict(self.contents()), 30, self.one.log)
        self.one.reload(self.text(READ_ONLY + OTHER, grace=300))
        # An export that only the next server lacks is read again when it returns.
        with self.connect() as client:
            client.read(0, MiB)
        self.one.configure(self.text(OTHER, grace=300))
        self.one.upgrade()
        with open(self.path, 'r+b') as file:
            file.write(b'changed')
        self.one.reload(self.text(READ_ONLY + OTHER, grace=300))
        with self.connect() as client:
            self.assertEqual(client.read(0, MiB), b'changed' + self.data[7:MiB])

    def test_an_nbd_origin(self):
        server.need('nbdkit')
        socket = os.path.join(self.directory(), 'socket')
        uri = f'nbd+unix:///image?socket={socket}'

        def nbdkit(description, *words):
            filters = ['--filter=exportname', '--filter=multi-conn']
            command = ['nbdkit', '-f', '--exit-with-parent', '-U', socket, *filters, 'file', self.path, f'exportdesc=fixed:{description}', *words]
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            self.addCleanup(lambda: (process.kill(), process.wait()))
            server.wait_until(lambda: server.listens(socket))
            return process

        def end(process):
            process.kill()
            process.wait()
            os.unlink(socket)
        process = nbdkit('first')
        self.start(origin=f"nbd: '{uri}', prefetch: none")
        clients = self.loads(Undisturbed, self.one.path)
        upgrade_under_load(self.one, clients)
        instance = self.instance()
        with self.connect() as client:
            client.read(0, MiB)
            end(process)
            self.refused_upgrade('start its server, or correct the address')
            process = nbdkit('second')
            self.refused_upgrade('its name or description on its server has changed')
            self.assertEqual(client.read(0, MiB), self.data[:MiB])
            end(process)
            process = nbdkit('first')
            self.one.upgrade()
            self.assertEqual(client.read(0, MiB), self.data[:MiB])
        self.assertEqual(self.instance(), instance)
        end(process)
        nbdkit('second', 'multi-conn-mode=disable')
        self.one.kill_and_wait()
        self.assertNotEqual(self.instance(), instance)
        self.one.process.send_signal(signal.SIGUSR2)
        server.wait_until(lambda: 'its server does not offer several connections' in self.one.log(), 60, self.one.log)


class KeptClones(ReadOnlyTest):
    """Clones of a read-only origin: what was written to them is kept, and the rest is read again."""

    def text(self, exports=READ_ONLY + CLONES, **options):
        return super().text(exports, **options)

    def node(self):
        return self.one.client('node')

    def export(self, *words, **options):
        return self.command(server.PROGRAM, 'export', *words, '--socket', os.path.join(self.one.directory, 'admin'), **options)

    def test_killed_at_any_time(self):
        self.start()
        clients = self.loads(kept.Load, self.node, kept.Load.commands, 'node')
        for _ in range(CHANGES // 2):
            self.one.upgrade()
            time.sleep(0.1)
            self.one.kill_and_wait()
        kept.kill_under_load(self.one, clients, CHANGES // 2, 0.3, 'node')
        self.assertEqual(self.one.stop(), 0)
        self.assertEqual(server.read_file(self.path, 'rb'), self.data)

    def test_clients_do_not_notice_upgrades(self):
        self.start()
        clients = self.loads(Undisturbed, self.one.path, kept.Load.commands, 'node')
        upgrade_under_load(self.one, clients, 'node')
        self.assertEqual(self.one.stop(), 0)
        self.assertNotIn('error', self.one.log())
        self.assertEqual(server.read_file(self.path, 'rb'), self.data)

    def test_an_upgrade_keeps_the_cache_warm(self):
        self.start(READ_ONLY.replace('cache: 8M', 'cache: 8M, prefetch: none') + CLONES)
        with self.node() as client:
            client.read(0, 4 * MiB)
            self.one.upgrade()
            self.assertEqual(client.read(0, 4 * MiB), self.data[:4 * MiB])
            self.assertEqual(self.cached()['misses'], 0)

    def test_clones_of_clients_and_those_made_at_run_time(self):
        self.start()
        self.export('clone', 'disk', 'third')
        self.export('snapshot', 'disk', 'frozen')
        changed = bytearray(self.data + bytes(8 * MiB))
        names = ('node', 'third', 'vm/7')
        for name in names:
            with self.one.client(name) as client:
                client.write(4097, b'changed')
                client.trim(MiB, MiB)
        changed[4097:4104] = b'changed'
        changed[MiB:2 * MiB] = bytes(MiB)
        for end in (self.one.kill_and_wait, self.one.upgrade, self.one.kill_and_wait):
            end()
            for name in names:
                with self.one.client(name) as client:
                    for at in range(0, client.size, 8 * MiB):
                        self.assertEqual(client.read(at, 8 * MiB), changed[at:at + 8 * MiB], (name, at))
            with self.one.client('frozen') as client:
                self.assertEqual(client.read(0, 4 * MiB), self.data[:4 * MiB])
        self.export('remove', 'vm/7')
        with self.one.client('vm/7') as client:
            self.assertEqual(client.read(4097, 7), self.data[4097:4104])
        # An upgrade may add one.
        self.one.configure(self.text(READ_ONLY + CLONES + '  - {name: later, clone_of: disk, keep: true}\n'))
        self.one.upgrade()
        with self.one.client('later') as client:
            client.write(0, b'later')
            self.one.upgrade()
            self.assertEqual(client.read(0, 8), b'later' + self.data[5:8])

    def test_a_file_that_was_changed(self):
        self.start(READ_ONLY + CLONES + OTHER)
        with self.node() as client:
            client.write(0, b'of the clone')
        before = os.stat(self.path)
        with open(self.path, 'r+b') as file:
            file.write(b'changed')
        self.refused_upgrade('another program has written to it')
        self.one.kill_and_wait()
        why = (f"export 'node': it needs the export 'disk', of which it is a clone: {self.path} has changed or is another one since the "
               "clone was made; restore that, or give up what was written to the clone by gpunbd kept --drop 'node'")
        self.assertIn(why, self.one.log())
        with self.assertRaises(wire.Refused):
            self.node()
        self.assertEqual(dict(self.contents())['node'], 'no export has them')
        with open(self.path, 'r+b') as file:
            file.write(self.data[:7])
        os.utime(self.path, ns=(before.st_atime_ns, before.st_mtime_ns))
        self.one.kill_and_wait()
        with self.node() as client:
            self.assertEqual(client.read(0, MiB), b'of the clone' + self.data[12:MiB])
        # Or another clone is made.
        with open(self.path, 'r+b') as file:
            file.write(b'changed')
        self.one.kill_and_wait()
        self.command(server.PROGRAM, 'kept', '--drop', 'node', '--socket', os.path.join(self.one.directory, 'keeping'))
        self.one.reload()
        with self.node() as client:
            self.assertEqual(client.read(0, 8), b'changed' + self.data[7:8])

    def test_without_its_source(self):
        self.start()
        create = ('create', 'base', '--origin-file', self.path, '--origin-mode', 'read-only', '--origin-cache', '16M', '--device', server.DEVICE, '--keep')
        self.export(*create)
        clones = [f'clone{number}' for number in range(5)]

        def check():
            for name in clones:
                with self.one.client(name) as client:
                    self.assertEqual(client.read(0, 16), b'of the clone' + self.data[12:16])
        for name in clones:
            self.export('clone', 'base', name)
            with self.one.client(name) as client:
                client.write(0, b'of the clone')
        self.one.kill_and_wait()
        check()
        self.export('remove', 'base')
        check()
        self.one.kill_and_wait()
        self.assertIn("export 'clone0': it needs the export 'base', of which it is a clone: it is not served", self.one.log())
        self.export(*create)
        self.one.reload()
        check()


if __name__ == '__main__':
    server.main()
