"""SIGUSR2: another server takes over, and clients do not notice; one that cannot changes nothing."""
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
import server
import test_keep
import wire
from server import KiB, MiB

REGION = 16 * MiB  # of each client
SLOT = MiB         # one request at a time there


class Load(threading.Thread):
    """A client with many requests in flight, some of whose writes are long half sent. It knows what it has written."""

    def __init__(self, path, number, structured):
        super().__init__(daemon=True)
        self.wire = wire.connect(path, structured=structured, contexts=())
        self.dice = random.Random(number)
        self.start_at = number * REGION
        self.model = bytearray(REGION)
        self.over = threading.Event()
        self.failure = None
        self.requests = 0

    def run(self):
        try:
            while not self.over.is_set():
                self.batch()
        except BaseException as error:  # told by finish()
            self.failure = error

    def batch(self):
        expected = {}
        for slot in self.dice.sample(range(REGION // SLOT), self.dice.randrange(1, 13)):
            length = self.dice.choice((512, 4 * KiB, 4 * KiB, 100 * KiB, self.dice.randrange(1, SLOT)))
            begin = slot * SLOT + self.dice.randrange(SLOT - length + 1)
            cookie = self.dice.getrandbits(64)
            if self.dice.random() < 0.5:
                data = self.dice.randbytes(length)
                message = struct.pack('>IHHQQI', wire.REQUEST, 0, wire.CMD_WRITE, cookie, self.start_at + begin,
                                      length) + data
                cut = self.dice.choice((1, 20, 28, 29, len(message) // 2, len(message) - 1, 0))
                if cut:
                    self.wire.send(message[:cut])
                    time.sleep(self.dice.choice((0, 0, 0.01, 0.05)))
                self.wire.send(message[cut:])
                expected[cookie] = ('write', begin, data)
            else:
                self.wire.request(wire.CMD_READ, self.start_at + begin, length, cookie=cookie)
                expected[cookie] = ('read', begin, bytes(self.model[begin:begin + length]))
            self.requests += 1
        parts = {cookie: bytearray(len(data)) for cookie, (kind, _, data) in expected.items() if kind == 'read'}
        while expected:
            self.answer(expected, parts)

    def answer(self, expected, parts):
        magic = struct.unpack('>I', self.wire.peek(4))[0]
        if magic == wire.SIMPLE_REPLY:
            error, cookie = self.wire.simple_reply()
            assert error == 0, error
            if cookie in parts:
                parts[cookie][:] = self.wire.receive(len(parts[cookie]))
            done = True
        else:
            flags, kind, cookie, payload = self.wire.chunk()
            assert not kind & 0x8000, (kind, payload)
            done = flags & wire.DONE
            if kind in (wire.CHUNK_DATA, wire.CHUNK_HOLE):
                at = struct.unpack('>Q', payload[:8])[0] - self.start_at - expected[cookie][1]
                data = payload[8:] if kind == wire.CHUNK_DATA else bytes(struct.unpack('>I', payload[8:])[0])
                parts[cookie][at:at + len(data)] = data
        if not done:
            return
        kind, begin, data = expected.pop(cookie)
        if kind == 'write':
            self.model[begin:begin + len(data)] = data
        else:
            assert parts[cookie] == data, f'wrong bytes at {begin}'

    def finish(self):
        self.over.set()
        self.join(60)
        assert not self.is_alive(), 'a client hangs'
        if self.failure:
            raise self.failure
        assert self.wire.read(self.start_at, REGION) == self.model
        self.wire.disconnect()


class Upgrade(test_keep.Test):
    def setUp(self):
        self.path = os.path.join(self.directory(), 'socket')

    def configured(self, exports, **options):
        """Such a server by a file, and the path of that."""
        path = os.path.join(self.directory(), 'gpunbd.yaml')
        self.configure(path, exports)
        return self.gpunbd('--config', path, **options), path

    def configure(self, path, exports, more=''):
        with open(path, 'w', encoding='ascii') as file:
            file.write(f'listeners: {{unix: [{{path: "{self.path}"}}]}}\nexports: [{exports}]\n{more}')

    def gpunbd(self, *arguments, program=server.PROGRAM, **options):
        """A server that `gpunbd keep` keeps."""
        where = () if '--config' in arguments else ('-U', self.path)
        keeper = self.started([program, 'keep', '--', 'serve', *where, *map(str, arguments)], **options)
        server.wait_until(lambda: 'ready: ' in keeper.said(), 30, f'the server:\n{keeper.said()}')
        return keeper

    def kept(self, *arguments, **options):
        return self.gpunbd('--device', 'host', '--size', '64M', '--keep', *arguments, **options)

    def upgrade(self, keeper):
        """Its number, once it serves."""
        before = keeper.said().count('serves now')
        keeper.process.send_signal(signal.SIGUSR2)
        server.wait_until(lambda: keeper.said().count('serves now') > before, 60, keeper.said)
        server.wait_until(lambda: keeper.said().count('is the server now') > before, 60, keeper.said)
        return int(keeper.said().rsplit(' is the server now', 1)[0].rsplit('process ', 1)[1])

    def refused(self, keeper, count=1):
        keeper.process.send_signal(signal.SIGUSR2)
        server.wait_until(lambda: keeper.said().count('this one goes on: ') == count, 90, keeper.said)


class Load4(Upgrade):
    def test_clients_do_not_notice(self):
        keeper = self.kept()
        clients = [Load(self.path, number, structured=number % 2 == 0) for number in range(4)]
        for client in clients:
            client.start()
        servers = set()
        for _ in range(25):
            servers.add(self.upgrade(keeper))
            time.sleep(0.1)
        self.assertEqual(len(servers), 25)
        for client in clients:
            try:
                client.finish()
            except wire.Closed as closed:
                self.fail(f'{closed}\n{keeper.said()}')
            self.assertGreater(client.requests, 100)
        self.assertEqual(keeper.end(), 0)
        self.assertNotIn('error', keeper.said())
        self.assertNotIn('refused', keeper.said())

    def test_contents_outlive_the_last_of_them(self):
        """kill -9 after upgrades: what the supervisor keeps is whole."""
        keeper = self.kept()
        data = random.Random(1).randbytes(3 * MiB)
        pid = 0
        for number in range(5):
            with wire.connect(self.path) as client:
                client.write(number * 5 * MiB, data)
            pid = self.upgrade(keeper)
            with wire.connect(self.path) as client:
                client.write(40 * MiB + number, b'x')
        os.kill(pid, signal.SIGKILL)
        server.wait_until(lambda: keeper.said().count('ready: ') == 7, 30, keeper.said)
        with wire.connect(self.path) as client:
            for number in range(5):
                self.assertEqual(client.read(number * 5 * MiB, len(data)), data)
            self.assertEqual(client.read(40 * MiB, 6), b'xxxxx\0')
        self.assertEqual(keeper.end(), 0)

    def test_who_serves_tells_what_is_kept(self):
        way = os.path.join(self.directory(), 'keeping')
        keeper = self.kept('--keeping-socket', way)

        def told():
            done = subprocess.run([server.PROGRAM, 'kept', '--json', '--socket', way], capture_output=True,
                                  text=True, timeout=60)
            self.assertEqual(done.returncode, 0, done.stderr)
            return [(each['name'], each['instance'], each['state']) for each in json.loads(done.stdout)['kept']]
        before = told()
        self.assertEqual([name for name, _, _ in before], [''])
        for _ in range(3):
            ready = keeper.said().count('ready: ')
            self.upgrade(keeper)
            server.wait_until(lambda: keeper.said().count('ready: ') > ready, 30, keeper.said)
            self.assertEqual(told(), before)
        self.assertEqual(keeper.end(), 0)

    def test_who_serves_tells_what_it_does(self):
        way = os.path.join(self.directory(), 'admin')
        keeper = self.kept('--admin-socket', way)

        def told():
            return admin.ask(way, '/api/v1/status')[1]['process']['pid']
        pids = [told()]
        for _ in range(2):
            ready = keeper.said().count('ready: ')
            self.upgrade(keeper)
            server.wait_until(lambda: keeper.said().count('ready: ') > ready, 30, keeper.said)
            pids.append(told())
        self.assertEqual(len(set(pids)), 3, pids)
        self.assertEqual(keeper.end(), 0)

    def test_half_a_write_that_stays_half(self):
        """Its client has all the time that it wants, before and behind."""
        keeper = self.kept()
        with wire.connect(self.path, structured=False) as client:
            data = random.Random(2).randbytes(5 * MiB)
            message = struct.pack('>IHHQQI', wire.REQUEST, 0, wire.CMD_WRITE, 7, 3 * MiB + 5, len(data)) + data
            sent = 0
            for end in (1, 27, 28, 1000, 2 * MiB, 2 * MiB + 1, 4 * MiB, len(message) - 1):
                client.send(message[sent:end])
                sent = end
                self.upgrade(keeper)
            client.send(message[sent:])
            self.assertEqual(client.simple_reply(), (0, 7))
            self.assertEqual(client.read(3 * MiB + 4, len(data) + 2), b'\0' + data + b'\0')
        self.assertEqual(keeper.end(), 0)

    def test_a_client_that_takes_no_answers(self):
        """It is closed, and others are not."""
        keeper = self.kept()
        with wire.connect(self.path, structured=False) as other, wire.connect(self.path, structured=False) as deaf:
            other.write(0, b'abc')
            deaf.write(0, b'x' * 32 * MiB)
            for _ in range(4):
                deaf.request(wire.CMD_READ, 0, 32 * MiB)
            self.upgrade(keeper)
            self.assertEqual(other.read(0, 3), b'xxx')
            self.assertLess(len(deaf.rest()), 128 * MiB)
        self.assertIn('it did not take its answers', keeper.said())
        self.assertEqual(keeper.end(), 0)

    def test_a_client_that_takes_its_answers_slowly(self):
        """It is waited for, since it goes on taking them."""
        keeper = self.kept()
        with wire.connect(self.path, structured=False) as slow:
            slow.write(0, b'x' * 32 * MiB)
            for cookie in range(2):
                slow.request(wire.CMD_READ, 0, 32 * MiB, cookie=cookie)
            keeper.process.send_signal(signal.SIGUSR2)
            server.wait_until(lambda: 'to serve in place' in keeper.said(), 30, keeper.said)
            for cookie in range(2):
                self.assertEqual(slow.simple_reply(), (0, cookie))
                for _ in range(32):
                    time.sleep(0.1)
                    self.assertEqual(slow.receive(MiB), b'x' * MiB)
            server.wait_until(lambda: 'is the server now' in keeper.said(), 60, keeper.said)
            self.assertEqual(slow.read(0, 4), b'xxxx')
        self.assertEqual(keeper.end(), 0)

    def test_a_client_that_sends_all_before_it_takes_an_answer(self):
        """The server has to take what it sends meanwhile, or both wait for each other."""
        keeper = self.kept()
        with wire.connect(self.path, structured=False) as client:
            client.write(0, b'x' * 32 * MiB)
            for cookie in (1, 2):
                client.request(wire.CMD_READ, 0, 16 * MiB, cookie=cookie)
            keeper.process.send_signal(signal.SIGUSR2)
            server.wait_until(lambda: 'to serve in place' in keeper.said(), 30, keeper.said)
            data = random.Random(3).randbytes(30 * MiB)
            message = struct.pack('>IHHQQI', wire.REQUEST, 0, wire.CMD_WRITE, 3, 32 * MiB, len(data)) + data
            client.send(message[:MiB])
            time.sleep(1)  # by now it pauses, with half a write
            client.send(message[MiB:])
            for cookie in (1, 2):
                self.assertEqual(client.simple_reply(), (0, cookie))
                self.assertEqual(client.receive(16 * MiB), b'x' * 16 * MiB)
            self.assertEqual(client.simple_reply(), (0, 3))
            server.wait_until(lambda: 'is the server now' in keeper.said(), 60, keeper.said)
            self.assertEqual(client.read(32 * MiB, len(data)), data)
        self.assertEqual(keeper.end(), 0)

    def test_signals_in_a_storm(self):
        """They interrupt whatever call is under way; none of them is a reason to give up."""
        keeper = self.kept()
        over = threading.Event()

        def storm():
            while not over.is_set():
                keeper.process.send_signal(signal.SIGUSR1)
        thread = threading.Thread(target=storm, daemon=True)
        thread.start()
        try:
            for _ in range(10):
                self.upgrade(keeper)
        finally:
            over.set()
            thread.join(30)
        self.assertNotIn('does not come up', keeper.said())
        self.assertEqual(keeper.end(), 0)

    def test_new_clients_wait(self):
        keeper = self.kept()
        over = threading.Event()
        counts = []

        def connect():
            while not over.is_set():
                with socket.socket(socket.AF_UNIX) as one:
                    one.connect(self.path)
                counts.append(1)
        thread = threading.Thread(target=connect, daemon=True)
        thread.start()
        for _ in range(5):
            self.upgrade(keeper)
        over.set()
        thread.join(30)
        self.assertFalse(thread.is_alive())
        self.assertTrue(counts)

        def served():
            try:
                with wire.connect(self.path) as client:
                    return client.read(0, 4) == bytes(4)
            except wire.Closed:  # so many have come that there is no place yet
                return False
        server.wait_until(served, 60, keeper.said)
        self.assertEqual(keeper.end(), 0)


class Failing(Upgrade):
    """What is started in its place is no server, or none for long."""

    def broken(self, script):
        """A kept server whose program becomes another as soon as it runs."""
        program = os.path.join(self.directory(), 'gpunbd')
        os.symlink(server.PROGRAM, program)
        keeper = self.kept(program=program)
        client = wire.connect(self.path)
        self.addCleanup(client.close)
        client.write(5, b'before')
        os.remove(program)
        if script is not None:
            with open(program, 'w', encoding='ascii') as file:
                file.write(script)
            os.chmod(program, 0o755)
        return keeper, client

    def goes_on(self, keeper, client):
        self.assertEqual(client.read(5, 6), b'before')
        client.write(30 * MiB, b'after')
        self.assertEqual(client.read(30 * MiB, 5), b'after')
        with wire.connect(self.path) as another:
            self.assertEqual(another.read(5, 6), b'before')
        self.assertEqual(keeper.end(), 0)

    def test_it_ends(self):
        for script in ('#!/bin/sh\nexit 2\n', '#!/bin/sh\nkill -9 $$\n'):
            keeper, client = self.broken(script)
            self.refused(keeper)
            self.refused(keeper, 2)
            self.assertIn('this one goes on: it has ended', keeper.said())
            self.goes_on(keeper, client)

    def test_it_cannot_be_run(self):
        keeper, client = self.broken(None)
        self.refused(keeper)
        self.assertIn('gpunbd: No such file or directory', keeper.said())
        self.goes_on(keeper, client)

    def test_it_hangs(self):
        keeper, client = self.broken('#!/bin/sh\nexec sleep 1000\n')
        keeper.process.send_signal(signal.SIGUSR2)
        server.wait_until(lambda: 'to serve in place' in keeper.said(), 30, keeper.said)
        keeper.process.send_signal(signal.SIGUSR2)
        server.wait_until(lambda: 'is being started already' in keeper.said(), 30, keeper.said)
        client.write(0, b'while it hangs')
        client.write(5, b'before')
        self.refused(keeper, 1)
        self.assertIn('it takes too long', keeper.said())
        self.goes_on(keeper, client)

    def test_it_speaks_another_version(self):
        keeper, client = self.broken('''#!/usr/bin/env python3
import os, socket, struct
way = socket.socket(fileno=int(os.environ['GPUNBD_SUCCESSOR']))
way.send(struct.pack('>IHH', 0x67707570, 99, 12))
way.recv(1)
''')
        self.refused(keeper)
        self.assertIn('speaks version 99', keeper.said())
        self.goes_on(keeper, client)

    def test_it_crashes_when_it_has_taken_some(self):
        """Contents and connections have been sent to it, and half a write is under way."""
        for count in range(1, 6):
            keeper, client = self.broken(f'''#!/usr/bin/env python3
import os, socket, struct
way = socket.socket(fileno=int(os.environ['GPUNBD_SUCCESSOR']))
def hear():
    return struct.unpack('>IHH', socket.recv_fds(way, 1 << 17, 1)[0][:8])[2]
while hear() != 5:
    pass
way.send(struct.pack('>IHH', 0x67707570, 1, 12))
for _ in range({count}):
    if hear() == 9:
        break
os.kill(os.getpid(), 9)
''')
            with wire.connect(self.path, structured=False) as other:
                data = random.Random(count).randbytes(MiB)
                other.send(struct.pack('>IHHQQI', wire.REQUEST, 0, wire.CMD_WRITE, 1, 8 * MiB, MiB) + data[:99999])
                self.refused(keeper)
                other.send(data[99999:])
                self.assertEqual(other.simple_reply(), (0, 1))
                self.assertEqual(other.read(8 * MiB, MiB), data)
            self.goes_on(keeper, client)

    def test_its_configuration_is_wrong(self):
        export = '{name: a, size: 64M, devices: [host], keep: true}'
        keeper, path = self.configured(export)
        client = wire.connect(self.path)
        self.addCleanup(client.close)
        client.write(5, b'before')
        self.configure(path, export.replace('size', 'sise'))
        self.refused(keeper)
        self.configure(path, export.replace('64M', '32M'))
        self.refused(keeper, 2)
        # Said by another process, which has its own time for it.
        server.wait_until(lambda: 'they were made for size' in keeper.said(), 30, keeper.said)
        self.goes_on(keeper, client)


class Others(Upgrade):
    def test_nobody_keeps_anything(self):
        one = self.serve()
        with wire.connect(one.address) as client:
            client.write(0, b'abc')
            one.process.send_signal(signal.SIGUSR2)
            server.wait_for_text('SIGUSR2: nothing can be handed over', one.log, 30)
            self.assertEqual(client.read(0, 3), b'abc')

    def test_no_export_is_kept(self):
        keeper = self.gpunbd('--device', 'host', '--size', '64M')
        with wire.connect(self.path) as client:
            client.write(0, b'abc')
            keeper.process.send_signal(signal.SIGUSR2)
            server.wait_until(lambda: 'no export has keep: true' in keeper.said(), 30, keeper.said)
            self.assertEqual(client.read(0, 3), b'abc')
        self.assertEqual(keeper.end(), 0)

    def test_an_export_that_is_not_kept(self):
        keeper, _ = self.configured('{name: a, size: 64M, devices: [host], keep: true},'
                                    ' {name: b, size: 64M, devices: [host]}')
        with wire.connect(self.path, 'a') as kept, wire.connect(self.path, 'b') as other:
            kept.write(0, b'abc')
            other.write(0, b'abc')
            self.upgrade(keeper)
            self.assertEqual(kept.read(0, 3), b'abc')
            self.assertEqual(other.rest(), b'')
            with wire.connect(self.path, 'b') as again:
                self.assertEqual(again.read(0, 3), bytes(3))
        self.assertEqual(keeper.end(), 0)

    def test_a_client_in_tls(self):
        """What OpenSSL knows of it stays in its process: it comes again, and finds what it had written."""
        files = os.path.join(self.directory(), 'tls')
        self.command(server.PROGRAM, 'tls-setup', files, '--host', 'localhost', status=0)
        path = os.path.join(self.directory(), 'gpunbd.yaml')
        self.configure(path, '{name: a, size: 64M, devices: [host], keep: true}',
                       f'tls: {{mode: optional, certificates: "{files}", verify_clients: false}}\n')
        keeper = self.gpunbd('--config', path)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE

        def connect():
            client = wire.Wire(self.path)
            client.greet()
            client.ask(wire.OPT_STARTTLS)
            client.socket = context.wrap_socket(client.socket)
            client.go('a')
            return client
        data = random.Random(3).randbytes(MiB)
        with connect() as client, wire.connect(self.path) as plain:
            cookies = [client.request(wire.CMD_WRITE, number * MiB, MiB, payload=data) for number in range(4)]
            self.assertEqual(sorted(client.simple_reply() for _ in cookies), [(0, cookie) for cookie in cookies])
            client.send(struct.pack('>IHHQQI', wire.REQUEST, 0, wire.CMD_WRITE, 99, 10 * MiB, MiB) + data[:70000])
            self.upgrade(keeper)
            self.assertEqual(client.rest(), b'')
            self.assertEqual(plain.read(3 * MiB, MiB), data)
        with connect() as client:
            for number in range(4):
                self.assertEqual(client.read(number * MiB, MiB), data)
        self.assertEqual(keeper.end(), 0)

    def test_a_pidfile_follows(self):
        pidfile = os.path.join(self.directory(), 'pid')
        keeper = self.kept('--pidfile', pidfile)
        for _ in range(3):
            pid = self.upgrade(keeper)

            def there(pid=pid):
                with open(pidfile, encoding='ascii') as file:
                    return int(file.read()) == pid
            server.wait_until(there, 30, 'the new number')
        server.wait_until(lambda: len(self.children(keeper)) == 1, 30, 'the end of earlier ones')
        self.assertTrue(there())
        self.assertEqual(keeper.end(), 0)
        self.assertFalse(os.path.exists(pidfile))

    def children(self, keeper):
        with open(f'/proc/{keeper.process.pid}/task/{keeper.process.pid}/children', encoding='ascii') as file:
            return file.read().split()

    def test_it_ends_with_its_keeper(self):
        keeper = self.kept()
        pid = self.upgrade(keeper)
        keeper.process.kill()
        server.wait_until(lambda: not test_keep.exists(pid), 30, 'the end of the server')

    def test_told_to_end_meanwhile(self):
        keeper = self.kept()
        keeper.process.send_signal(signal.SIGUSR2)
        self.assertEqual(keeper.end(), 0)


if __name__ == '__main__':
    server.main()
