"""Exports with keep: true that write to a file: kills, upgrades, and contents that the file lacks."""
import json
import os
import random
import shutil
import signal
import subprocess
import time

import kept
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
OTHER = '''
  - {name: other, size: 1M, devices: [{device}], keep: true}
'''


class KeptOrigin(kept.Test):
    def setUp(self):
        self.path = os.path.join(self.directory(), 'origin.img')
        with open(self.path, 'wb') as file:
            file.truncate(SIZE)

    def text(self, exports=EXPORT, age='1s', grace=0):
        listener = '''
listeners: {unix: [{path: '{socket}'}]}
admin: {socket: '{directory}/admin'}
keeping: {grace: GRACE, socket: '{directory}/keeping'}
'''
        return f'{listener}exports:{exports}'.replace('GRACE', str(grace)).replace('FILE', self.path).replace('AGE', age)

    def start(self, *arguments, **options):
        self.one = self.keep(config=self.text(*arguments, **options))

    def contents(self):
        listed = self.command(server.PROGRAM, 'kept', '--json', '--socket', os.path.join(self.one.directory, 'keeping'))
        return [(each['name'], each['state']) for each in json.loads(listed)['kept']]

    def exported(self):
        text = self.command(server.PROGRAM, 'status', '--json', '--socket', os.path.join(self.one.directory, 'admin'))
        return json.loads(text)['exports'][0]

    def unwritten(self):
        return self.exported()['origins'][0]['unwritten']

    def connect(self):
        return self.one.client('disk')

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

        class Client(kept.Undisturbed):
            def __init__(self, address, base, size, seed):
                super().__init__(address, base, size, seed)
                self.connect = lambda: wire.connect(address, 'disk', structured=seed % 2 == 0)
        clients = kept.loads(self.one.path, CLIENTS, SIZE // CLIENTS, kind=Client)
        for _ in range(CHANGES):
            before = [each.answers for each in clients]
            server.wait_until(lambda last=before: all(each.answers > 5 + count or each.failure for each, count in zip(clients, last)))
            self.one.upgrade()
        kept.finish(clients, self.connect())
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
            before = self.exported()['origins'][0]
            self.one.upgrade()
            self.assertEqual(client.read(0, len(data)), data)
            after = self.exported()['origins'][0]
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
        read = f'until test -e {readable} -o ! -e {self.path}; do sleep 0.01; done; ' + \
               ('echo EIO >&2; exit 1' if fails else
                f'dd if={self.path} iflag=skip_bytes,count_bytes skip=$4 count=$3 bs=64K status=none')
        origin = subprocess.Popen([
            'nbdkit', '-f', '--exit-with-parent', '-U', socket, 'eval', f'get_size=echo {SIZE}', f'pread={read}', 'can_write=exit 0',
            f'pwrite=dd of={self.path} oflag=seek_bytes seek=$4 bs=64K conv=notrunc status=none', 'can_flush=exit 0',
            'flush=exit 0', 'can_multi_conn=exit 0', 'thread_model=echo parallel'])
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


if __name__ == '__main__':
    server.main()
