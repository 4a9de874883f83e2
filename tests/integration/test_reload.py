"""SIGHUP: exports come and go, a bad file changes nothing, and connected clients notice nothing."""
import signal
import threading
import time

import server
import wire
from server import MiB

server.need_gpunbd()


def config(*exports, extra=''):
    return "listeners: {unix: [{path: '{socket}'}]}\nexports:\n" + ''.join(
        f'  - {{name: {name}, size: {size}, devices: [host]}}\n' for name, size in exports) + extra


class Reload(server.Test):
    def names(self, one):
        with wire.Wire(one.address) as client:
            client.greet()
            listed = client.ask(wire.OPT_LIST)
            client.option(wire.OPT_ABORT)
            client.rest()
        return sorted(data[4:4 + int.from_bytes(data[:4], 'big')].decode() for _, data in listed)

    def reload(self, one, text):
        one.configure(text)
        before = one.log()
        one.process.send_signal(signal.SIGHUP)
        server.wait_until(lambda: len(one.log()) > len(before), 10, 'a line in the log about the reload')
        time.sleep(0.1)
        return one.log()[len(before):]

    def test_come_and_go(self):
        one = self.serve(config=config(('a', '64M'), ('b', '64M')))
        keeps, goes = wire.connect(one.address, 'a'), wire.connect(one.address, 'b')
        keeps.write(0, b'kept')
        goes.write(0, b'gone')
        self.reload(one, config(('a', '64M'), ('c', '32M')))
        self.assertEqual(self.names(one), ['a', 'c'])
        self.assertEqual(keeps.read(0, 4), b'kept')
        with wire.connect(one.address, 'a') as client:
            self.assertEqual(client.read(0, 4), b'kept')
        with wire.connect(one.address, 'c') as client:
            client.write(5, b'new')
            self.assertEqual(client.read(5, 3), b'new')
        with self.assertRaises(wire.Refused):
            wire.connect(one.address, 'b')
        # Who was there may finish.
        self.assertEqual(goes.read(0, 4), b'gone')
        goes.disconnect()
        # An export that comes again is a new one: nothing of the old can be seen.
        self.reload(one, config(('a', '64M'), ('b', '64M')))
        self.assertEqual(self.names(one), ['a', 'b'])
        with wire.connect(one.address, 'b') as client:
            self.assertEqual(client.read(0, 4), bytes(4))
        self.assertEqual(keeps.read(0, 4), b'kept')

    def test_bad_file_changes_nothing(self):
        good = config(('a', '64M'))
        one = self.serve(config=good)
        client = wire.connect(one.address, 'a')
        client.write(0, b'safe')
        for bad in ('{', config(('a', '64M'), ('a', '64M')), config(('a', '64Q')), config(('b', '64M'), extra='nonsense: 1\n'),
                    config(('b', '1000000G')), "listeners: {}\nexports: [{name: b, size: 1M, devices: ['cuda:99']}]\n", ''):
            with self.subTest(bad=bad):
                told = self.reload(one, bad)
                self.assertTrue(told)
                self.assertEqual(self.names(one), ['a'])
                self.assertEqual(client.read(0, 4), b'safe')
        self.reload(one, config(('a', '64M'), ('b', '64M')))
        self.assertEqual(self.names(one), ['a', 'b'])

    def test_missing_file(self):
        import os
        one = self.serve(config=config(('a', '64M')))
        os.unlink(one.config_path)
        before = one.log()
        one.process.send_signal(signal.SIGHUP)
        server.wait_until(lambda: len(one.log()) > len(before), 10, 'a line in the log')
        self.assertEqual(self.names(one), ['a'])

    def test_under_load(self):
        """Clients that never pause see no failure through twenty reloads."""
        one = self.serve(config=config(('a', '64M')))
        stop, failures, rounds = threading.Event(), [], [0] * 3

        def work(n):
            try:
                with wire.connect(one.address, 'a') as client:
                    while not stop.is_set():
                        data = bytes([rounds[n] % 256]) * 100001
                        client.write(n * 20 * MiB + 1, data)
                        if client.read(n * 20 * MiB + 1, len(data)) != data:
                            raise AssertionError('other data')
                        rounds[n] += 1
            except Exception as error:  # pylint: disable=broad-except
                failures.append(repr(error))

        threads = [threading.Thread(target=work, args=(n,)) for n in range(3)]
        for thread in threads:
            thread.start()
        for n in range(20):
            self.reload(one, config(('a', '64M'), (f'x{n}', '8M')))
        stop.set()
        for thread in threads:
            thread.join()
        self.assertEqual(failures, [])
        self.assertTrue(all(rounds))
        self.assertEqual(self.names(one), ['a', 'x19'])

    def test_without_a_file(self):
        """SIGHUP is no reason to end a server that was given its exports on the command line."""
        one = self.serve()
        one.process.send_signal(signal.SIGHUP)
        time.sleep(0.3)
        with wire.connect(one.address) as client:
            self.assertEqual(client.read(0, 4), bytes(4))


if __name__ == '__main__':
    server.main()
