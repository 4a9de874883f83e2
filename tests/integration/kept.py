"""A server under `gpunbd keep` that is killed repeatedly, and clients that reconnect and check their data."""
import contextlib
import multiprocessing
import os
import random
import signal
import subprocess
import threading
import time

import server
import wire
from server import KiB, MiB

BLOCK = 64 * KiB  # a request does not cross a multiple of this


class Kept(server.Process):
    """gpunbd keep with a server that keeps the contents of its exports. {directory} in arguments is the folder."""

    def __init__(self, *arguments, config=None, program=server.PROGRAM, restarts=10000, environment=None,
                 before=server.die_with_parent):
        super().__init__()
        if config is None:
            arguments = ['-U', self.path, '--keep', *arguments]
        else:
            self.configure(config)
            arguments = ['--config', self.config_path, *arguments]
        arguments = [str(each).replace('{directory}', self.directory) for each in arguments]
        self.start([program, 'keep', '--max-restarts', str(restarts), '--', 'serve', *arguments], environment, before)
        self.wait_ready(1)

    def ready(self):
        return self.log().count(' ready')

    def wait_ready(self, count):
        server.wait_until(lambda: self.ready() >= count or self.process.poll() is not None, 60, 'the server')
        assert self.process.poll() is None, self.log()

    def server(self):
        """The process id of the server, or None if none is running."""
        return next(iter(server.children(self.process.pid)), None)

    def kill(self, number=signal.SIGKILL):
        """Sends a signal to the server, whatever it is doing."""
        pid = self.server()
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):  # it may have ended already
                os.kill(pid, number)

    def kill_and_wait(self, number=signal.SIGKILL):
        count = self.ready()
        self.kill(number)
        self.wait_ready(count + 1)

    def upgrade(self):
        """Another server takes over and is ready, and the replaced one ends."""
        count, ready = self.log().count('is the server now'), self.ready()
        self.process.send_signal(signal.SIGUSR2)
        server.wait_until(lambda: self.log().count('is the server now') > count and len(server.children(self.process.pid)) == 1, 60, self.log)
        self.wait_ready(ready + 1)

    def kill_until_answer(self, at):
        """Seconds from SIGKILL until a new connection has read at that offset."""
        self.kill()
        killed = time.monotonic()
        while True:
            try:
                with self.client() as client:
                    client.read(at, 4 * KiB)
                    return time.monotonic() - killed
            except (wire.Closed, OSError):
                time.sleep(0.001)

    def reload(self, text=None):
        if text is not None:
            self.configure(text)
        count = self.log().count('exports are offered now')
        self.kill(signal.SIGHUP)
        server.wait_until(lambda: self.log().count('exports are offered now') > count, 60, 'a reload')

    def client(self, name='', structured=False):
        client = wire.Wire(self.path)
        client.greet()
        if structured:
            client.request_structured_replies()
        client.go(name)
        return client

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        if os.path.exists(self.directory):
            self.remove_files()
        return self.process.returncode


def in_processes(count, work):
    """Runs work(0), work(1), ... each in its own process, because Python threads do not run in parallel."""
    fork = multiprocessing.get_context('fork')
    processes = [fork.Process(target=work, args=(each,)) for each in range(count)]
    for each in processes:
        each.start()
    for each in processes:
        each.join()
    failed = sum(each.exitcode != 0 for each in processes)
    assert failed == 0, f'{failed} of {count} processes failed'


class Test(server.Test):
    def keep(self, *arguments, **options):
        kept = Kept(*arguments, **options)
        self.servers.append(kept)
        self.addCleanup(kept.stop)
        return kept


class Request:
    def __init__(self, command, offset, length, payload):
        self.command, self.offset, self.length, self.payload = command, offset, length, payload
        self.data = bytearray(length if command == wire.READ else 0)


class Load(threading.Thread):
    """A connection with several requests in flight, each in a different block, on its own range. It reconnects after a
    disconnect, and sends unanswered requests again. It checks that reads return what it wrote."""

    commands = 8 * (wire.WRITE,) + 6 * (wire.READ,) + (wire.TRIM, wire.WRITE_ZEROES)  # each as often as it is here

    def __init__(self, connect, base, size, seed, depth=4, block=BLOCK):
        super().__init__(daemon=True)
        self.connect, self.base, self.depth, self.block = connect, base, depth, block
        self.random = random.Random(seed)
        self.model = bytearray(size)
        self.noise = self.random.randbytes(2 * block)
        self.stopping = False
        self.failure = None
        self.answers = self.connections = 0
        self.pending = {}  # by cookie
        self.cookie = 0

    def run(self):
        try:
            while not self.stopping or self.pending:
                try:
                    with self.connected() as client:
                        self.serve(client)
                except (wire.Closed, ConnectionError, BrokenPipeError, OSError):
                    time.sleep(0.005)
        except BaseException as error:  # raised by check()
            self.failure = error

    def connected(self):
        client = self.connect()
        self.connections += 1
        for cookie, request in self.pending.items():
            self.send(client, cookie, request)
        return client

    def serve(self, client):
        while not self.stopping or self.pending:
            while len(self.pending) < self.depth and not self.stopping:
                self.begin(client)
            self.answer(client)

    def begin(self, client):
        busy = {request.offset // self.block for request in self.pending.values()}
        block = self.random.randrange(len(self.model) // self.block)
        if block in busy:
            return
        start = self.random.randrange(self.block)
        length = self.random.randint(1, self.block - start)
        command = self.random.choice(self.commands)
        payload = b''
        if command == wire.WRITE:
            at = self.random.randrange(self.block)
            payload = self.noise[at:at + length]
        elif command != wire.READ:
            start, length = 0, self.block
        self.cookie += 1
        request = Request(command, block * self.block + start, length, payload)
        self.pending[self.cookie] = request
        self.send(client, self.cookie, request)

    def send(self, client, cookie, request):
        client.request(request.command, self.base + request.offset, request.length, 0, request.payload, cookie)

    def answer(self, client):
        """Receives a simple reply, or a chunk."""
        head, chunk = client.part()
        request = self.pending[head.cookie]
        at = self.base + request.offset
        error = chunk.error()[0] if chunk and chunk.is_error else head.error
        if error:
            raise AssertionError(f'{request.command} at {at}: error {error}')
        if chunk and chunk.is_content:
            offset, length, data = chunk.content()
            request.data[offset - at:offset - at + length] = data
        elif not chunk and request.data:
            request.data[:] = client.receive(request.length)
        if chunk and not chunk.done:
            return
        del self.pending[head.cookie]
        self.answers += 1
        end = request.offset + request.length
        if request.command == wire.READ:
            if request.data != self.model[request.offset:end]:
                raise AssertionError(f'wrong bytes at {at}, {request.length} long')
        else:
            self.model[request.offset:end] = request.payload or bytes(request.length)

    def end(self):
        self.stopping = True

    def check(self, client):
        """After end(): checks that the export contains all data."""
        self.join(60)
        assert not self.is_alive(), 'a client does not end'
        if self.failure:
            raise self.failure
        for at in range(0, len(self.model), MiB):
            part = self.model[at:at + MiB]
            assert client.read(self.base + at, len(part)) == part, f'wrong data in {len(part)} bytes at {self.base + at}'


class Undisturbed(Load):
    """A connection that stays, with large requests, some of which stay half sent for a while."""

    def __init__(self, path, base, size, seed):
        super().__init__(lambda: wire.connect(path, structured=seed % 2 == 0), base, size, seed, depth=12, block=MiB)

    def connected(self):
        assert self.connections == 0, 'the connection was closed'
        return super().connected()

    def send(self, client, cookie, request):
        message = wire.encode_request(request.command, self.base + request.offset, request.length,
                                      payload=request.payload, cookie=cookie)
        cut = self.random.choice((1, 20, 28, 29, len(message) // 2, len(message) - 1, 0))
        if cut:
            client.send(message[:cut])
            time.sleep(self.random.choice((0, 0, 0.01, 0.05)))
        client.send(message[cut:])


def loads(connect, count, size, seed=1, kind=Load):
    made = [kind(connect, i * size, size, seed + i) for i in range(count)]
    for each in made:
        each.start()
    return made


def kill_under_load(keeper, clients, kills, longest, name=''):
    """Kills the server repeatedly, each time within `longest` seconds of serving. Every client must be served in between."""
    generator = random.Random(kills)
    for _ in range(kills):
        time.sleep(generator.random() * longest)
        keeper.kill_and_wait()
        answered = [each.answers for each in clients]
        server.wait_until(lambda before=answered: all(
            each.answers > last or each.failure for each, last in zip(clients, before)), 60, 'answers')
    finish(clients, keeper.client(name))


def finish(all_loads, client):
    for each in all_loads:
        each.end()
    for each in all_loads:
        each.check(client)
