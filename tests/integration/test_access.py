"""Access rules by address, user and group, with real clients; limits of connections; and the check for
unprotected listeners."""
import inspect
import os
import socket
import subprocess

import server
import wire

ERR_UNKNOWN = wire.ERR_UNKNOWN


def config(port, *exports, extra=''):
    v6 = f", {{address: '::1', port: {port}}}" if server.HAS_IPV6 else ''
    return (f"listeners:\n  tcp: [{{address: 127.0.0.1, port: {port}}}{v6}]\n"
            "  unix: [{path: '{socket}', mode: 0666}]\nexports:\n" +
            ''.join(f'  - {{size: 64M, devices: [host], {each}}}\n' for each in exports) + extra)


class Access(server.Test):
    def serve_exports(self, *exports, **kwargs):
        self.tcp_port = server.free_port()
        one = self.serve(config=config(self.tcp_port, *exports), **kwargs)
        os.chmod(one.directory, 0o755)  # for processes of other users
        self.v4, self.v6, self.local = ('127.0.0.1', self.tcp_port), ('::1', self.tcp_port), one.path
        return one

    def names(self, address):
        with wire.Wire(address) as client:
            client.greet()
            return client.listed()

    def refused(self, address, name):
        with self.assertRaises(wire.Refused) as caught:
            wire.connect(address, name)
        return caught.exception.args[0]

    def test_by_address(self):
        """The exports that each client can list and open."""
        one = self.serve_exports('name: four, access: [{network: 127.0.0.0/8}]',
                                 "name: six, access: [{network: '::1'}]",
                                 'name: other, access: [{network: 127.0.0.2}]',
                                 'name: all')
        expected = {self.v4: ['four', 'all'], self.local: ['all']}
        if server.HAS_IPV6:
            expected[self.v6] = ['six', 'all']
        for address, names in expected.items():
            with self.subTest(address=address):
                self.assertEqual(self.names(address), names)
                for name in ('four', 'six', 'other', 'all', 'absent'):
                    if name in names:
                        wire.connect(address, name).disconnect()
                    else:
                        self.assertEqual(self.refused(address, name), ERR_UNKNOWN)
        with socket.socket() as second:  # another address of this machine
            second.bind(('127.0.0.2', 0))
            second.connect(self.v4)
            client = wire.Wire(second)
            client.greet()
            client.go('other')
        server.wait_for_text("asked for export 'six', which it may not open (the one rule of its access list does not "
                             "match); offered: 'four', 'all'", one.log)
        server.wait_for_text("asked for export 'absent', which is not offered; offered: 'four', 'all'", one.log)

    def as_user(self, uid, gid, groups, *command):
        def become():
            os.setgroups(groups)
            os.setresgid(gid, gid, gid)
            os.setresuid(uid, uid, uid)
            server.die_with_parent()
        return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
                              timeout=60, preexec_fn=become).returncode

    def test_users_and_groups(self):
        if os.geteuid() != 0:
            server.skip('only root can change the user')
        self.serve_exports('name: user, access: [{uid: 1234}]', 'name: group, access: [{gid: 77}]',
                           'name: both, access: [{uid: 1234, gid: 77}]', 'name: root, access: [{uid: root}]')
        # The source and not an import: the user may not be permitted to read this checkout.
        script = inspect.getsource(wire) + '''
import sys
try:
    connect(sys.argv[1], sys.argv[2]).close()
except Refused as error:
    sys.exit(3 if error.args[0] == ERR_UNKNOWN else 2)
'''
        clients = {'user': (1234, 5, []), 'group': (1, 77, []), 'supplementary': (1, 5, [6, 77]), 'both': (1234, 5, [77]),
                   'neither': (1, 5, [6]), 'many': (1, 5, list(range(100, 190)) + [77])}
        allowed = {'user': {'user'}, 'group': {'group'}, 'supplementary': {'group'}, 'both': {'user', 'group', 'both'},
                   'neither': set(), 'many': {'group'}}
        for name, (uid, gid, groups) in clients.items():
            for export in ('user', 'group', 'both', 'root'):
                with self.subTest(client=name, export=export):
                    done = self.as_user(uid, gid, groups, '/usr/bin/python3', '-c', script, self.local, export)
                    self.assertEqual(done, 0 if export in allowed[name] else 3)
        wire.connect(self.local, 'root').disconnect()
        # A TCP client has no user, not even user 0.
        self.assertEqual(self.refused(self.v4, 'root'), ERR_UNKNOWN)


class Exposed(server.Test):
    """Listeners that other machines can reach."""
    ALL = 'exports: [{name: a, size: 64M, devices: [host]}]\n'
    LISTED = 'exports: [{name: a, size: 64M, devices: [host], access: [{network: 127.0.0.0/8}]}]\n'

    def write(self, port, rest):
        return server.write_file(os.path.join(self.directory(), 'test.yaml'),
                                 f"listeners: {{tcp: [{{address: 0.0.0.0, port: {port}}}]}}\n{rest}")

    def test_refused(self):
        port = server.free_port()
        addresses = ['0.0.0.0'] + (['::'] if server.HAS_IPV6 else [])
        for address in addresses:
            self.command(server.PROGRAM, 'serve', '--device', 'host', '--size', '64M', '--name', 'a', '-b', address,
                         '-p', port, status=1)
            self.assertIn(f":{port}: other machines can reach this address, which exposes export 'a' without protection: require "
                          'TLS', self.errors)
        path = self.write(port, self.ALL)
        self.command(server.PROGRAM, 'serve', '--config', path, status=1)
        self.assertIn('--insecure', self.errors)
        self.command(server.PROGRAM, 'check', path, status=1)
        self.assertIn(f'{path}: listeners.tcp[0]: 0.0.0.0:{port}: other machines can reach', self.errors)
        everybody = self.LISTED.replace('127.0.0.0/8', '0.0.0.0/0')
        self.command(server.PROGRAM, 'serve', '--config', self.write(port, everybody), status=1)

    def test_served(self):
        """An access list prevents the warning; `insecure` does not."""
        port = server.free_port()
        for rest, flags, expect_warning in ((self.LISTED, (), False), (self.ALL + 'insecure: true\n', (), True),
                                            (self.ALL, ('--insecure',), True)):
            with self.subTest(rest=rest, flags=flags):
                path = self.write(port, rest)
                if not flags:
                    self.command(server.PROGRAM, 'check', path)
                    self.assertEqual('note: insecure: ' in self.errors, expect_warning)
                one = self.serve(config=f"listeners: {{tcp: [{{address: 0.0.0.0, port: {port}}}], "
                                 f"unix: [{{path: '{{socket}}'}}]}}\n{rest}", extra=flags)
                wire.connect(('127.0.0.1', port), 'a').disconnect()
                one.stop()  # then the log is complete
                self.assertEqual(f'warning: insecure: 0.0.0.0:{port}: every client that can reach this address' in one.log(),
                                 expect_warning, one.log())

    def test_reload(self):
        """A reload cannot remove the access list that protects a listener."""
        port = server.free_port()
        head = f"listeners: {{tcp: [{{address: 0.0.0.0, port: {port}}}], unix: [{{path: '{{socket}}'}}]}}\n"
        one = self.serve(config=head + self.LISTED)
        for rest, refused in ((self.ALL, True), (self.LISTED, False), (self.ALL + 'insecure: true\n', False)):
            log = one.reload(head + rest)
            self.assertEqual('the configuration is unchanged' in log, refused, log)
            self.assertEqual('other machines can reach this address' in log, refused, log)

    def server_with_socket(self, bound, rest):
        """A server with this listening socket as descriptor 3. It may have exited already."""
        config = f'listeners: {{tcp: [{{address: 127.0.0.1, port: {server.free_port()}}}]}}\n{rest}'
        with server.passing([bound]) as (start, passed):
            return self.run_server(config=config, prefix=start, pass_fds=passed)

    def test_inherited_socket(self):
        """The address of the socket counts, not the listeners of the configuration."""
        with socket.socket() as bound:
            bound.bind(('0.0.0.0', 0))
            bound.listen()
            one = self.server_with_socket(bound, self.ALL)
        self.assertEqual(one.process.wait(60), 1)
        self.assertIn('inherited socket 3: other machines can reach this address', one.log())

    def test_both_families_on_one_socket(self):
        """An IPv4 client of an IPv6 socket matches rules for IPv4, and no others."""
        if not server.HAS_IPV6:
            server.skip('this machine has no IPv6')
        rest = ("exports:\n  - {name: six, size: 64M, devices: [host], access: [{network: '::/1'}]}\n"
                '  - {name: four, size: 64M, devices: [host], access: [{network: 127.0.0.0/8}]}\n')
        with socket.socket(socket.AF_INET6) as bound:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            bound.bind(('::', 0))
            bound.listen()
            port = bound.getsockname()[1]
            self.server_with_socket(bound, rest)
            for address, allowed, denied in (('127.0.0.1', 'four', 'six'), ('::1', 'six', 'four')):
                wire.connect((address, port), allowed).disconnect()
                with self.assertRaises(wire.Refused):
                    wire.connect((address, port), denied)


class Peers(server.Test):
    CONFIG = '''
listeners: {unix: [{path: '{socket}'}], tcp: [{address: 127.0.0.1, port: PORT}]}
exports: [{name: '', size: 64M, devices: [{device}]}]
limits: {handshake: 60, connections: 64, handshakes: 16}
'''

    def connect(self, source, speak=True):
        """A connection from that address of this machine, or None if the server refuses it."""
        client = wire.Wire(socket.create_connection(('127.0.0.1', self.port), 20, (source, 0)))
        self.addCleanup(client.close)
        try:
            if speak:
                client.greet()
                client.go()
            return client
        except wire.Closed:
            return None

    def test_no_peer_takes_the_connections_of_others(self):
        """Neither by many connections, nor by silent handshakes from many addresses, which displace each other."""
        self.port = server.free_port()
        one = self.serve(config=self.CONFIG.replace('PORT', str(self.port)))
        hostile = [self.connect('127.0.0.2') for _ in range(100)]
        self.assertEqual(sum(client is not None for client in hostile), 32)  # half of the limit
        server.wait_for_text('too many connections of this peer: 32', one.log)
        served = [hostile[0], self.connect('127.0.0.3')]
        for n in range(300):
            self.connect(f'127.0.{1 + n // 100}.{4 + n % 100}', speak=False)

        def let_in():
            served.append(self.connect('127.0.9.9'))
            return served[-1] is not None
        server.wait_until(let_in, 20, 'a connection of another peer')
        for client in (*filter(None, served), wire.connect(one.path)):
            client.write(5, b'served')
            self.assertEqual(client.read(5, 6), b'served')


if __name__ == '__main__':
    server.main()
