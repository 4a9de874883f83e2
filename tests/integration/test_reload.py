"""SIGHUP: exports are added and removed, an invalid file changes nothing, and connected clients are not affected."""
import fcntl
import os
import signal
import termios

import server
import wire


def config(*exports, extra=''):
    return "listeners: {unix: [{path: '{socket}'}]}\nexports:\n" + ''.join(
        f'  - {{name: {name}, size: {size}, devices: [host]}}\n' for name, size in exports) + extra


class Reload(server.Test):
    def names(self, one):
        with wire.Wire(one.address) as client:
            client.greet()
            return sorted(client.listed())

    def test_added_and_removed_exports(self):
        one = self.serve(config=config(('a', '64M'), ('b', '64M')))
        keeps, goes = wire.connect(one.address, 'a'), wire.connect(one.address, 'b')
        keeps.write(0, b'kept')
        goes.write(0, b'gone')
        one.reload(config(('a', '64M'), ('c', '32M')))
        self.assertEqual(self.names(one), ['a', 'c'])
        self.assertEqual(keeps.read(0, 4), b'kept')
        self.assertEqual(wire.read_once(one.address, 'a', 0, 4), b'kept')
        with wire.connect(one.address, 'c') as client:
            client.write(5, b'new')
            self.assertEqual(client.read(5, 3), b'new')
        with self.assertRaises(wire.Refused):
            wire.connect(one.address, 'b')
        # Connected clients may continue.
        self.assertEqual(goes.read(0, 4), b'gone')
        goes.disconnect()
        # An export that is added again is a new one, without the old contents.
        one.reload(config(('a', '64M'), ('b', '64M')))
        self.assertEqual(self.names(one), ['a', 'b'])
        self.assertEqual(wire.read_once(one.address, 'b', 0, 4), bytes(4))
        self.assertEqual(keeps.read(0, 4), b'kept')

    def test_an_invalid_file_changes_nothing(self):
        good = config(('a', '64M'))
        one = self.serve(config=good)
        client = wire.connect(one.address, 'a')
        client.write(0, b'safe')
        for bad in ('{', config(('a', '64M'), ('a', '64M')), config(('a', '64Q')), config(('b', '64M'), extra='nonsense: 1\n'),
                    config(('b', '1000000G')), "listeners: {}\nexports: [{name: b, size: 1M, devices: ['cuda:99']}]\n", ''):
            with self.subTest(bad=bad):
                log = one.reload(bad)
                self.assertTrue(log)
                self.assertEqual(self.names(one), ['a'])
                self.assertEqual(client.read(0, 4), b'safe')
        one.reload(config(('a', '64M'), ('b', '64M')))
        self.assertEqual(self.names(one), ['a', 'b'])

    def test_each_export_is_logged(self):
        one = self.serve(config=config(('kept', '64M'), ('goes', '64M'), ('grows', '64M'), ('told', '64M')))
        clients = [wire.connect(one.address, name) for name in ('goes', 'goes', 'grows', 'told')]
        text = config(('kept', '64M'), ('comes', '32M'), ('grows', '128M')) + (
            '  - {name: told, size: 64M, devices: [host], description: words, max_connections: 5}\n')
        log = one.reload(text)
        for line in ("export 'kept' is unchanged",
                     "export 'goes' is removed; its contents are lost when 2 clients have gone",
                     "export 'comes' is new, 32 MiB",
                     "export 'grows' is replaced by a new, empty one (size changed); the old contents are lost when "
                     '1 client has gone',
                     "export 'told' keeps its contents; description, max_connections changed"):
            self.assertIn(f'reload: {line}', log)
        self.assertNotIn('next start', log)
        # Clients that opened an export before its description changed count as well.
        log = one.reload(config(('kept', '64M'), ('comes', '32M')))
        self.assertIn("export 'told' is removed; its contents are lost when 1 client has gone", log)
        self.assertIn("export 'grows' is removed; its contents are lost now", log)
        for client in clients:
            self.assertEqual(client.read(0, 4), bytes(4))
            client.disconnect()

    def test_changes_that_need_a_restart(self):
        exports = config(('a', '64M'))
        one = self.serve(config=exports, extra=('--log-level', 'info'))
        waits = ('threads: 3\nlimits: {drain: 3}\ntrace: true\npipeline: {slots: 3}\n'
                 'devices: [{id: host, reserve: 100M}]\n')
        for _ in range(2):  # each reload repeats the message
            log = one.reload(exports + waits)
            self.assertIn('reload: changes of pipeline, threads, limits, trace, devices: host take effect at '
                          'the next start', log)
        self.assertNotIn('next start', one.reload(exports))
        self.assertNotIn('next start', one.reload(exports + 'log: {level: info}\n'))
        self.assertIn('changes of listeners take', one.reload(exports.replace("'}]", "', mode: 0666}]")))
        # The command line overrides the file, at the start and in reloads.
        self.assertNotIn('next start', one.reload(exports + 'log: {level: debug}\n'))

    def test_block_sizes(self):
        """Existing connections keep theirs. A size that is no multiple of the earlier minimum makes a new export."""
        one = self.serve(config=config(('a', '64M, block_size: {minimum: 512}')))
        with wire.connect(one.address, 'a') as before:
            before.write(0, b'x' * 512)
            self.assertIn('block_size changed', one.reload(config(('a', '64M, block_size: {minimum: 8K}'))))
            before.write(512, b'x' * 512)
            with wire.connect(one.address, 'a') as after:
                with self.assertRaises(wire.Failed):
                    after.read(0, 512)
                self.assertEqual(after.read(0, 8192), b'x' * 1024 + bytes(7168))
        self.assertIn("'a' is replaced", one.reload(config(('a', '65537K'))))


class Hangup(server.Test):
    """SIGHUP that does not reload the configuration."""

    def test_without_a_file(self):
        """The server ends, which is the default action of SIGHUP, and removes its socket."""
        one = self.serve()
        one.stop(signal.SIGHUP)
        server.wait_for_text('SIGHUP: there is no configuration file', one.log)
        self.assertFalse(os.path.exists(one.path))

    def start(self, *arguments, before=lambda: None, **options):
        def start():
            server.die_with_parent()
            before()
        one = self.run_server(*arguments, before=start, **options)
        server.wait_for_text('ready: ', one.log, 60)
        return one

    def ends(self, one):
        self.assertEqual(wire.read_once(one.path, '', 0, 4), bytes(4))
        one.stop()

    def test_ignored(self):
        """SIGHUP stays ignored under nohup(1)."""
        one = self.start('-U', '{socket}', before=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
        with open(f'/proc/{one.process.pid}/status', encoding='ascii') as file:
            ignored = next(line.split()[1] for line in file if line.startswith('SigIgn:'))
        self.assertTrue(int(ignored, 16) >> signal.SIGHUP - 1 & 1)  # the kernel discards the signal
        one.process.send_signal(signal.SIGHUP)
        self.ends(one)

    def on_a_terminal(self, before=lambda: None):
        """A server with --config in its own session, and the master side of its terminal."""
        master, slave = os.openpty()

        def take_terminal():
            os.setsid()
            fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
            before()
        one = self.start(config=config(('a', '64M')), before=take_terminal)
        os.close(slave)
        return one, master

    def test_terminal_closed(self):
        """The server ends even with a configuration file, because its terminal is gone."""
        one, master = self.on_a_terminal()
        one.process.send_signal(signal.SIGHUP)  # with a terminal, this is a reload
        server.wait_for_text('exports are offered now', one.log)
        os.close(master)  # the kernel sends SIGHUP
        self.assertEqual(one.process.wait(60), 0)
        self.assertFalse(os.path.exists(one.path))

    def test_terminal_closed_with_nohup(self):
        one, master = self.on_a_terminal(lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
        os.close(master)  # the kernel sends SIGHUP, which is a reload
        server.wait_for_text('exports are offered now', one.log)
        self.ends(one)


if __name__ == '__main__':
    server.main()
