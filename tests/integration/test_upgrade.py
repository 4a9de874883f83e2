"""SIGUSR2: another server takes over without interrupting clients. If it cannot, nothing changes."""
import contextlib
import json
import os
import random
import signal
import socket
import ssl
import struct
import subprocess
import threading
import time

import admin
import kept
import server
import test_keep
import wire
from server import MiB

SLAB = 64 * MiB    # each page of this size is a slab
UPGRADES = 10 if server.SANITIZED else 25  # below the same clients


class Upgrade(test_keep.Test):
    def setUp(self):
        self.path = os.path.join(self.directory(), 'socket')

    def configured(self, exports, **options):
        """A server with a configuration file, and the path of that file."""
        path = os.path.join(self.directory(), 'gpunbd.yaml')
        self.configure(path, exports)
        return self.gpunbd('--config', path, **options), path

    def configure(self, path, exports, more=''):
        exports = exports.replace('{device}', server.DEVICE)
        server.write_file(path, f'listeners: {{unix: [{{path: "{self.path}"}}]}}\nexports: [{exports}]\n{more}')

    def gpunbd(self, *arguments, program=server.PROGRAM, **options):
        """A server under `gpunbd keep`."""
        where = () if '--config' in arguments else ('-U', self.path)
        keeper = self.started([program, 'keep', '--', 'serve', *where, *map(str, arguments)], **options)
        self.addCleanup(self.ends, keeper)
        self.logged('ready: ', keeper, 30)
        return keeper

    def ends(self, keeper):
        """At the end of each case, unless it has ended the supervisor itself."""
        if keeper.process.poll() is None:
            self.assertEqual(keeper.end(), 0)

    def kept(self, *arguments, **options):
        return self.gpunbd('--device', server.DEVICE, '--size', '512M', '--keep', *arguments, **options)

    def upgrade(self, keeper):
        """Upgrades the server, and returns the process id of the new one, which is ready."""
        words = 'serves now', 'is the server now', 'ready: '  # of three processes, in any order
        before = [keeper.log().count(each) for each in words]
        keeper.process.send_signal(signal.SIGUSR2)
        for each, count in zip(words, before):
            server.wait_until(lambda each=each, count=count: keeper.log().count(each) > count, 60, keeper.log)
        return int(keeper.log().rsplit(' is the server now', 1)[0].rsplit('process ', 1)[1])

    def refused(self, keeper, count=1):
        keeper.process.send_signal(signal.SIGUSR2)
        server.wait_until(lambda: keeper.log().count('this server continues: ') == count, 90, keeper.log)

    @staticmethod
    def progress(clients, count=5):
        """Waits until each client has had more answers."""
        before = [client.answers for client in clients]
        server.wait_until(lambda: all(client.answers >= last + count or client.failure
                                      for client, last in zip(clients, before)), 60, 'answers to all clients')


class Load4(Upgrade):
    def test_clients_do_not_notice(self):
        keeper = self.kept()
        clients = kept.loads(self.path, 4, 16 * MiB, kind=kept.Undisturbed)
        servers = set()
        for _ in range(UPGRADES):
            servers.add(self.upgrade(keeper))
            self.progress(clients)
        self.assertEqual(len(servers), UPGRADES)
        with wire.connect(self.path) as reader:
            kept.finish(clients, reader)
        self.assertEqual(keeper.end(), 0)
        self.assertNotIn('error', keeper.log())
        self.assertNotIn('refused', keeper.log())
        self.assertRegex(keeper.log(), r'upgrade: imported [1-9]\d* slabs? while the earlier process still serves')

    def test_while_slabs_are_allocated_and_freed(self):
        """Writes and trims allocate and free slabs, also during the transfer of the contents."""
        often = 6  # pages that are written and trimmed repeatedly; each upgrade is followed by a write to another page
        keeper = self.gpunbd('--device', server.DEVICE, '--size', 16 * SLAB, '--keep', '--page-size', '64M')
        stopping, rounds, failures = threading.Event(), [0], []

        def come_and_go():
            try:
                with wire.connect(self.path) as client:
                    while not stopping.is_set():
                        text = struct.pack('>I', rounds[0])
                        for number in range(often):
                            client.write(number * SLAB, text)
                        for number in range(often):
                            assert client.read(number * SLAB, 8) == text + bytes(4), (rounds, number)
                        client.trim(0, often * SLAB)
                        assert client.read((rounds[0] % often) * SLAB, 4) == bytes(4), rounds
                        rounds[0] += 1
            except BaseException as error:
                failures.append(error)
        client = threading.Thread(target=come_and_go, daemon=True)
        client.start()
        # An upgrade ends a connection whose handshake is not over.
        server.wait_until(lambda: rounds[0] > 0 or failures, 30, keeper.log)
        for number in range(often, 16):
            pid = self.upgrade(keeper)
            self.assertEqual(failures, [], keeper.log())
            wire.write_once(self.path, '', number * SLAB, b'in a new slab')
        server.wait_until(lambda: rounds[0] >= 5 or failures, 60, 'progress of the client')
        stopping.set()
        client.join(60)
        self.assertEqual((client.is_alive(), failures), (False, []), keeper.log())
        os.kill(pid, signal.SIGKILL)
        server.wait_until(lambda: keeper.log().count('ready: ') == 12, 30, keeper.log)
        with wire.connect(self.path) as client:
            for number in range(16):
                self.assertEqual(client.read(number * SLAB, 13),
                                 bytes(13) if number < often else b'in a new slab')
        self.assertEqual(keeper.end(), 0)
        self.assertNotIn('error', keeper.log())

    def test_the_current_server_lists_kept_contents_and_reports_its_status(self):
        path, admin_path = (os.path.join(self.directory(), name) for name in ('keeping', 'admin'))
        keeper = self.kept('--keeping-socket', path, '--admin-socket', admin_path)

        def contents():
            listed = json.loads(self.command(server.PROGRAM, 'kept', '--json', '--socket', path))['kept']
            return [(each['name'], each['instance'], each['state']) for each in listed]
        before = contents()
        self.assertEqual([name for name, _, _ in before], [''])
        for _ in range(3):
            pid = self.upgrade(keeper)
            self.assertEqual(contents(), before)
            self.assertEqual(admin.request(admin_path, '/api/v1/status')[1]['process']['pid'], pid)

    def test_a_change_requested_during_the_transfer(self):
        """The admin endpoint stops while the main thread, which applies changes, waits for the supervisor."""
        path = os.path.join(self.directory(), 'admin')
        keeper = self.kept('--admin-socket', path)
        [predecessor] = server.children(keeper.process.pid)

        def sends(process):
            folder = f'/proc/{process.pid}/fd'
            return any(os.readlink(f'{folder}/{each}').startswith('socket:') for each in os.listdir(folder))
        with wire.connect(self.path) as client:
            keeper.process.send_signal(signal.SIGSTOP)
            try:
                os.kill(predecessor, signal.SIGUSR2)
                self.logged('to serve in place', keeper, 30)
                # It waits for the successor, which makes the export.
                command = subprocess.Popen([server.PROGRAM, 'export', 'create', 'b', '--size', '1M', '--device', server.DEVICE,
                                            '--socket', path], preexec_fn=server.die_with_parent)
                self.addCleanup(command.kill)
                while True:
                    asked = admin.PendingRequest(path, '/api/v1/read-only', {'export': '', 'read_only': True})
                    if not asked.answered(0.5):
                        break
                    status, value = asked.answer()
                    self.assertEqual(status, 421, value)
                server.wait_until(lambda: sends(command), 60, 'the request of the command')
            finally:
                keeper.process.send_signal(signal.SIGCONT)
            status, value = asked.answer()
            self.assertEqual(status, 421)
            self.assertIn('being replaced', value['error'])
            self.logged('is the server now', keeper, 60)
            server.wait_until(lambda: keeper.log().count('ready: ') == 2, 60, keeper.log)
            client.write(0, b'x')
            self.assertEqual(admin.request(path, '/api/v1/read-only', {'export': '', 'read_only': True})[0], 200)
        self.assertEqual(command.wait(60), 0)

    def test_a_client_that_sends_single_bytes(self):
        """It does not read, and its bytes do not extend the time limit."""
        keeper = self.kept()
        stopping = threading.Event()
        with wire.connect(self.path) as other, wire.connect(self.path) as deaf:
            other.write(0, b'abc')
            deaf.write(0, b'x' * 32 * MiB)
            deaf.request(wire.READ, 0, 32 * MiB)
            deaf.send(wire.encode_request(wire.WRITE, 0, 16 * MiB, cookie=9))

            def drip():
                try:
                    while not stopping.wait(0.3):
                        deaf.send(b'y')
                except wire.Closed:
                    pass
            thread = threading.Thread(target=drip, daemon=True)
            thread.start()
            self.upgrade(keeper)
            stopping.set()
            thread.join(30)
            self.assertEqual(other.read(1 * MiB, 2), b'xx')
            self.assertLess(len(deaf.rest()), 32 * MiB)
        self.logged('it did not read its replies', keeper)

    def test_a_client_that_reads_slowly(self):
        """The upgrade waits for it as long as it makes progress."""
        keeper = self.kept()
        with wire.connect(self.path, structured=False) as slow:
            slow.write(0, b'x' * 32 * MiB)
            for cookie in range(2):
                slow.request(wire.READ, 0, 32 * MiB, cookie=cookie)
            keeper.process.send_signal(signal.SIGUSR2)
            self.logged('to serve in place', keeper, 30)
            # In total, this takes longer than the limit of 2 s without progress, and much less than the limit of 10 s.
            for cookie in range(2):
                self.assertEqual(slow.simple_reply(), (0, cookie))
                for _ in range(32):
                    time.sleep(0.05)
                    self.assertEqual(slow.receive(MiB), b'x' * MiB)
            self.logged('is the server now', keeper, 60)
            self.assertEqual(slow.read(0, 4), b'xxxx')

    def test_a_machine_that_stalls(self):
        """A client is not disconnected because it made no progress while the server did not run either."""
        keeper = self.kept()
        with wire.connect(self.path, structured=False) as client:
            client.write(0, b'x' * 32 * MiB)
            client.request(wire.READ, 0, 32 * MiB, cookie=2)
            pid, = server.children(keeper.process.pid)
            keeper.process.send_signal(signal.SIGUSR2)
            self.logged('while the earlier process still serves', keeper)
            time.sleep(0.5)  # then the server waits for the client, for 2 s
            os.kill(pid, signal.SIGSTOP)
            time.sleep(3)
            os.kill(pid, signal.SIGCONT)
            self.assertEqual(client.simple_reply(), (0, 2))
            self.assertEqual(client.receive(32 * MiB), b'x' * 32 * MiB)
            self.logged('is the server now', keeper)
            self.assertEqual(client.read(0, 4), b'xxxx')

    def test_a_client_that_sends_everything_before_it_reads(self):
        """The server must receive its data meanwhile, to avoid a deadlock."""
        keeper = self.kept()
        data = random.Random(3).randbytes(30 * MiB)
        message = wire.encode_write(32 * MiB, data, 3)
        with wire.connect(self.path, structured=False) as client:
            client.write(0, b'x' * 32 * MiB)
            for cookie in (1, 2):
                client.request(wire.READ, 0, 16 * MiB, cookie=cookie)
            keeper.process.send_signal(signal.SIGUSR2)
            self.logged('to serve in place', keeper, 30)
            client.send(message[:MiB])
            self.logged('while the earlier process still serves', keeper, 60)
            # Then the server pauses, with half a WRITE received. It waits only 2 s for a client without progress.
            time.sleep(0.5)
            client.send(message[MiB:])
            for cookie in (1, 2):
                self.assertEqual(client.simple_reply(), (0, cookie))
                self.assertEqual(client.receive(16 * MiB), b'x' * 16 * MiB)
            self.assertEqual(client.simple_reply(), (0, 3))
            self.logged('is the server now', keeper, 60)
            self.assertEqual(client.read(32 * MiB, len(data)), data)

    def test_many_signals(self):
        """They interrupt system calls, but not the upgrade."""
        keeper = self.kept()
        stopping = threading.Event()

        def storm():
            while not stopping.is_set():
                keeper.process.send_signal(signal.SIGUSR1)
                time.sleep(0.0001)  # if it is always pending, the kernel never delivers SIGUSR2
        thread = threading.Thread(target=storm, daemon=True)
        thread.start()
        try:
            for _ in range(10):
                self.upgrade(keeper)
        finally:
            stopping.set()
            thread.join(30)
        self.assertNotIn('the new server did not start', keeper.log())

    def test_new_clients_wait(self):
        keeper = self.kept()
        stopping = threading.Event()
        counts = []

        def connect():
            while not stopping.is_set():
                with socket.socket(socket.AF_UNIX) as one:
                    one.connect(self.path)
                counts.append(1)
        thread = threading.Thread(target=connect, daemon=True)
        thread.start()
        for _ in range(5):
            self.upgrade(keeper)
        stopping.set()
        thread.join(30)
        self.assertFalse(thread.is_alive())
        self.assertTrue(counts)

        def served():
            try:
                with wire.connect(self.path) as client:
                    return client.read(0, 4) == bytes(4)
            except wire.Closed:  # the limit of connections is reached
                return False
        server.wait_until(served, 60, keeper.log)


class Tls(Upgrade):
    """The TLS state of a client cannot be transferred, so the client is disconnected after its replies, and reconnects.
    No case depends on a timeout: those of the server are an hour."""

    def setUp(self):
        super().setUp()
        files = os.path.join(self.directory(), 'tls')
        self.command(server.PROGRAM, 'tls-setup', files, '--host', 'localhost', status=0)
        self.config = os.path.join(self.directory(), 'gpunbd.yaml')
        self.configure(self.config, '{name: a, size: 64M, devices: [{device}], keep: true},'
                       ' {name: slow, size: 64M, devices: [{device}], keep: true, rates: {iops: 1, burst: 0}}',
                       f'tls: {{mode: optional, certificates: "{files}", verify_clients: false}}\n'
                       'limits: {drain: 3600, handshake: 3600}\n')
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self.context.check_hostname, self.context.verify_mode = False, ssl.CERT_NONE

    def negotiating(self, tls=True):
        client = wire.Wire(self.path)
        client.greet()
        client.request_option(wire.STARTTLS)
        if tls:
            client.socket = self.context.wrap_socket(client.socket)
        return client

    def enter(self, name='a'):
        client = self.negotiating()
        client.go(name)
        return client

    def follows(self, keeper):
        """Another server takes over, and the old one ends."""
        pid = self.upgrade(keeper)
        server.wait_until(lambda: server.children(keeper.process.pid) == [pid], 60, keeper.log)
        self.assertNotIn('the grace period is over', keeper.log())

    def test_clients_in_every_state(self):
        keeper = self.gpunbd('--config', self.config)
        clients = [self.enter(), self.negotiating(), self.negotiating(tls=False), wire.Wire(self.path)]
        clients[3].greet()
        begun = self.negotiating()
        begun.send(wire.encode_option(wire.GO)[:12])  # half an option
        slow = self.enter('slow')
        for _ in range(20):  # the second is delayed by a second, and the others for longer
            slow.request(wire.READ, 0, 10)
        self.assertEqual(slow.simple_reply()[0], 0)
        busy = self.enter()
        busy.send(wire.encode_write(10 * MiB, bytes(MiB), 99)[:70000])
        self.follows(keeper)
        for client in (*clients, begun, busy):
            self.assertEqual(client.rest(), b'')
        answers = slow.rest()[10:]  # without the rest of the first
        self.assertEqual(len(answers) % 26, 0)
        for client in (*clients, begun, slow, busy):
            client.close()
        with self.enter() as client:
            self.assertEqual(client.read(10 * MiB, 4), bytes(4))

    def flood(self):
        """The thread of a client that sends a WRITE, each byte in a record of its own, until it is disconnected."""
        client = self.enter()
        client.send(wire.encode_request(wire.WRITE, 0, 32 * MiB))

        def send():
            with client, contextlib.suppress(wire.Closed):
                while True:
                    client.send(b'x')
        thread = threading.Thread(target=send, daemon=True)
        thread.start()
        return thread

    def test_clients_that_flood_with_single_bytes(self):
        """Neither an upgrade nor the second SIGTERM waits for them."""
        keeper = self.gpunbd('--config', self.config)
        floods = [self.flood() for _ in range(4)]
        with wire.connect(self.path, 'a') as other:
            other.write(40 * MiB, b'beside floods')
            self.assertTrue(all(each.is_alive() for each in floods))
            self.follows(keeper)
            self.assertEqual(other.read(40 * MiB, 13), b'beside floods')
        floods += [self.flood() for _ in range(4)]
        keeper.process.send_signal(signal.SIGTERM)
        self.logged('stopping: ', keeper)
        self.assertEqual(keeper.end(), 0)
        for each in floods:
            each.join(60)
            self.assertFalse(each.is_alive())


class WithoutSuccessor(Upgrade):
    """The new process does not become the server."""

    def broken(self, script):
        """A server whose program file is replaced by `script` after the start."""
        program = os.path.join(self.directory(), 'gpunbd')
        os.symlink(server.PROGRAM, program)
        keeper = self.kept('--page-size', '64M', program=program)
        client = wire.connect(self.path)
        self.addCleanup(client.close)
        client.write(5, b'before')
        os.remove(program)
        if script is not None:
            server.write_file(program, script, 0o755)
        return keeper, client

    def goes_on(self, keeper, client):
        self.assertEqual(client.read(5, 6), b'before')
        client.write(30 * MiB, b'after')
        self.assertEqual(client.read(30 * MiB, 5), b'after')
        for number in range(1, 5):
            client.write(number * SLAB, b'in a slab that has to be made')
        self.assertEqual(wire.read_once(self.path, '', 5, 6), b'before')
        self.assertEqual(keeper.end(), 0)


class Failing(WithoutSuccessor):
    def test_the_successor_exits(self):
        for script in ('#!/bin/sh\nexit 2\n', '#!/bin/sh\nkill -9 $$\n'):
            keeper, client = self.broken(script)
            self.refused(keeper)
            self.refused(keeper, 2)
            self.logged('this server continues: it has ended', keeper)
            self.goes_on(keeper, client)

    def test_the_successor_cannot_be_executed(self):
        keeper, client = self.broken(None)
        self.refused(keeper)
        self.logged('gpunbd: No such file or directory', keeper)
        self.goes_on(keeper, client)

    def test_the_successor_crashes_during_the_transfer(self):
        """It has received contents and connections, and a WRITE is half sent."""
        for count in range(1, 6):
            keeper, client = self.broken(f'''#!/usr/bin/env python3
import os, socket, struct
channel = socket.socket(fileno=int(os.environ['GPUNBD_SUCCESSOR']))
def receive():
    return struct.unpack('>IHH', socket.recv_fds(channel, 1 << 17, 1)[0][:8])[2]
while receive() != 6:  # prepare
    pass
channel.send(struct.pack('>IHH', 0x67707570, 3, 13))  # prepared
for _ in range({count}):
    if receive() == 10:  # all
        break
os.kill(os.getpid(), 9)
''')
            with wire.connect(self.path, structured=False) as other:
                data = random.Random(count).randbytes(MiB)
                message = wire.encode_write(8 * MiB, data, 1)
                other.send(message[:99999])
                self.refused(keeper)
                other.send(message[99999:])
                self.assertEqual(other.simple_reply(), (0, 1))
                self.assertEqual(other.read(8 * MiB, MiB), data)
            self.goes_on(keeper, client)

    def test_the_configuration_is_invalid(self):
        export = '{name: a, size: 512M, page_size: 64M, devices: [{device}], keep: true}'
        keeper, path = self.configured(export)
        client = wire.connect(self.path)
        self.addCleanup(client.close)
        client.write(5, b'before')
        self.configure(path, export.replace('size', 'sise'))
        self.refused(keeper)
        self.configure(path, export.replace('512M', '256M'))
        self.refused(keeper, 2)
        # Another process logs this, possibly later.
        self.logged('they were made for size', keeper, 30)
        self.goes_on(keeper, client)

    def test_the_new_configuration_leaves_contents_out(self):
        """Until the new server serves, it frees nothing, also of contents that share pages."""
        export = '{name: a, size: 512M, page_size: 64M, devices: [{device}], keep: true}'
        other = '{name: c, size: 64M, devices: [{device}], keep: true}'
        keeper, path = self.configured(f'{export}, {{name: b, clone_of: a, keep: true}}, {other}')
        client = wire.connect(self.path, 'a')
        self.addCleanup(client.close)
        client.write(5, b'before')
        with wire.connect(self.path, 'b') as clone:
            clone.write(0, b'its own')
            self.configure(path, f'{export}, {other.replace("64M", "32M")}', 'keeping: {grace: 0}\n')
            self.refused(keeper)
            self.assertEqual(clone.read(0, 7), b'its own')
        self.goes_on(keeper, client)

    def test_the_new_configuration_adds_contents(self):
        """A clone changes the page table of its source, and no page is mapped yet for a file."""
        image = os.path.join(self.directory(), 'image')
        server.write_file(image, bytes(4096))
        export = '{name: a, size: 512M, page_size: 64M, devices: [{device}], keep: true}'
        keeper, path = self.configured(export)
        client = wire.connect(self.path, 'a')
        self.addCleanup(client.close)
        client.write(5, b'before')
        for count, (key, keys) in enumerate((('clone_of', 'clone_of: a'),
                                             ('restore', f'size: 1M, devices: [{server.DEVICE}], restore: {image}'))):
            self.configure(path, f'{export}, {{name: b, {keys}, keep: true}}')
            self.refused(keeper, count + 1)
            self.logged(f'a kept export with {key} cannot be added by an upgrade', keeper)
        self.goes_on(keeper, client)


class Others(Upgrade):
    def test_without_a_supervisor(self):
        one = self.serve()
        with wire.connect(one.address) as client:
            client.write(0, b'abc')
            one.process.send_signal(signal.SIGUSR2)
            server.wait_for_text('SIGUSR2: nothing can be handed over', one.log, 30)
            self.assertEqual(client.read(0, 3), b'abc')

    def test_without_kept_exports(self):
        keeper = self.gpunbd('--device', server.DEVICE, '--size', '64M')
        with wire.connect(self.path) as client:
            client.write(0, b'abc')
            keeper.process.send_signal(signal.SIGUSR2)
            self.logged('no export has keep: true', keeper, 30)
            self.assertEqual(client.read(0, 3), b'abc')

    def test_the_server_ends_with_the_supervisor(self):
        keeper = self.kept()
        pid = self.upgrade(keeper)
        keeper.process.kill()
        server.wait_until(lambda: not server.is_running(pid), 30, 'the end of the server')

    def test_sigterm_during_an_upgrade(self):
        keeper = self.kept()
        keeper.process.send_signal(signal.SIGUSR2)
        self.assertEqual(keeper.end(), 0)


if __name__ == '__main__':
    server.main()
