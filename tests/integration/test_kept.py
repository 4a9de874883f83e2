"""Contents outlive the server: after a kill at any moment it has every acknowledged byte."""
import signal
import threading
import time

import kept
import server
import wire
from server import MiB

KILLS = 20 if server.SANITIZED else 50


class Killed(kept.Test):
    def load_and_kill(self, *arguments, kills, connections=4, size=8 * MiB, **options):
        keeper = self.keep(*arguments, '--size', f'{2 * connections * size}', **options)
        clients = kept.loads(keeper.client, connections, size)
        kept.kill_under_load(keeper, clients, kills, 0.05)
        self.assertGreaterEqual(keeper.log().count('was killed by signal 9'), kills)
        self.assertGreaterEqual(min(each.connections for each in clients), kills)
        return keeper

    def test_thin(self):
        keeper = self.load_and_kill('--device', server.DEVICE, kills=KILLS)
        # A table, a socket, a slab, and the keeper's own descriptors: nothing leaks.
        self.assertLess(keeper.descriptors(), 20)

    def test_full(self):
        self.load_and_kill('--device', server.DEVICE, '--provision', 'full', kills=KILLS // 5)

    def test_slabs_are_allocated_and_freed(self):
        # Each page has its own slab.
        self.load_and_kill('--device', server.DEVICE, '--page-size', '64M', kills=KILLS // 5, size=64 * MiB, connections=2)

    def test_killed_during_startup(self):
        keeper = self.keep('--device', server.DEVICE, '--size', '64M')
        with keeper.client() as client:
            client.write(5 * MiB, b'here' * 1000)
        for delay in range(20):
            keeper.kill()
            time.sleep(delay / 1000)
        server.wait_until(lambda: keeper.server() is not None, 30, 'a server')
        with keeper.client() as client:
            self.assertEqual(client.read(5 * MiB, 4000), b'here' * 1000)

    def test_freed_contents_are_never_exposed(self):
        keeper = self.keep('--device', server.DEVICE, '--size', '64M')
        for provision in range(3):
            with keeper.client() as client:
                client.write(0, b'S' * (8 * MiB))
                client.trim(0, 8 * MiB)
            keeper.kill_and_wait()
            with keeper.client() as client:
                self.assertEqual(client.read(0, 8 * MiB), bytes(8 * MiB))
                for page in range(4, 8):  # write a byte to each page, which may reuse the memory
                    client.write(page * server.PAGE, b'x')
                    self.assertEqual(client.read(page * server.PAGE + 1, server.PAGE - 1), bytes(server.PAGE - 1))
                client.trim(0, 64 * MiB)


class Ended(kept.Test):
    def test_terminated(self):
        """After SIGTERM to the server alone, clients get replies to all requests, and no ESHUTDOWN."""
        keeper = self.keep('--device', server.DEVICE, '--size', '64M')
        without_server = set()  # clients that have read all replies, and found no server any more

        def connect():
            try:
                return keeper.client()
            except (wire.Closed, OSError):
                without_server.add(threading.current_thread())
                raise
        clients = kept.loads(connect, 4, 8 * MiB)
        server.wait_until(lambda: all(each.answers > 100 for each in clients), 60, 'answers')
        keeper.kill(signal.SIGTERM)
        server.wait_until(lambda: keeper.process.poll() is not None, 60, 'the end')
        # gpunbd keep does not restart a server that was terminated.
        server.wait_until(lambda: all(each in without_server or each.failure for each in clients), 60, 'the last replies')
        for each in clients:
            each.end()
            each.pending.clear()
            each.join(60)
            self.assertIsNone(each.failure)

    def test_without_a_supervisor(self):
        one = self.serve(extra=['--keep'])
        server.wait_for_text('ready', one.log, 30)
        server.wait_for_text('no supervisor keeps its contents, so they end with this server', one.log)


def config(*exports):
    lines = ''.join(f'  - {{{each}}}\n' for each in exports)
    return f"listeners: {{unix: [{{path: '{{socket}}'}}]}}\nkeeping: {{grace: 3600}}\nexports:\n{lines}"


A = "name: a, size: 64M, devices: [{device}], keep: true"
B = "name: b, size: 64M, devices: [{device}], keep: true"


class Configured(kept.Test):
    def written(self, *exports):
        keeper = self.keep(config=config(*exports))
        for name in 'ab':
            with keeper.client(name) as client:
                client.write(MiB, name.encode() * 4096)
        return keeper

    def holds(self, keeper, name):
        with keeper.client(name) as client:
            return client.read(MiB, 4096) == name.encode() * 4096

    def test_replaced(self):
        """A changed size makes a new volume. The old contents are stored, and used when the size is changed back."""
        keeper = self.written(A, B)
        keeper.reload(config(A, B.replace('64M', '32M')))
        server.wait_for_text('the old contents are kept for keeping.grace', keeper.log)
        with keeper.client('b') as client:
            self.assertEqual(client.read(MiB, 4096), bytes(4096))
        keeper.reload(config(A, B))
        self.assertTrue(self.holds(keeper, 'b'))

    def sockets(self, keeper):
        return sum(each.startswith('socket:') for each in server.open_files(keeper.process.pid))

    def test_nothing_is_kept_any_more(self):
        """The listening socket is not stored any more either, but the next server still takes it over."""
        keeper = self.written(A, B)
        before = self.sockets(keeper)
        keeper.configure(config(A.replace('true', 'false'), B.replace('true', 'false')))
        keeper.kill_and_wait()
        self.assertNotIn(f'{keeper.path}: another server is listening there', keeper.log())
        self.assertTrue(self.holds(keeper, 'a'))
        server.wait_until(lambda: self.sockets(keeper) == before - 1, 30, 'the socket to go')
        keeper.kill_and_wait()
        self.assertFalse(self.holds(keeper, 'a'))


if __name__ == '__main__':
    server.main()
