"""Access rules by address, user and group, with real clients; connection limits, rates, reloads; and the check for
unprotected listeners."""
import inspect
import os
import socket
import subprocess

import server
import wire

ERR_POLICY, ERR_UNKNOWN = wire.ERR_POLICY, wire.ERR_UNKNOWN


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

    def reload(self, one, *exports, extra=''):
        return one.reload(config(self.tcp_port, *exports, extra=extra))

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

    def test_reload(self):
        """New rules apply at once: clients that lose access are disconnected, and other clients are not affected."""
        mine = f'{{uid: {os.geteuid()}}}'
        one = self.serve_exports('name: a', 'name: b')
        gone, stays = wire.connect(self.v4, 'a'), wire.connect(self.local, 'a')
        other = wire.connect(self.v4, 'b')
        stays.write(0, b'kept')
        log = self.reload(one, f'name: a, access: [{mine}]', 'name: b')
        self.assertIn("export 'a' keeps its contents; access changed, for all clients", log)
        self.assertEqual(gone.rest(), b'')
        self.assertEqual(stays.read(0, 4), b'kept')
        self.assertEqual(other.read(0, 4), bytes(4))
        self.assertEqual(self.names(self.v4), ['b'])
        server.wait_until(lambda: 'the new configuration denies access to the export: the one rule of its '
                          'access list does not match' in one.log(), 60, 'the reason in the log')
        self.reload(one, f'name: a, access: [{mine[:-1]}, mode: read-only}}]', 'name: b')
        self.assertEqual(stays.rest(), b'')
        server.wait_for_text('the new configuration permits only reading: rule 1 matches: uid ', one.log)
        with wire.connect(self.local, 'a') as reader:
            self.assertEqual(reader.read(0, 4), b'kept')
            self.reload(one, 'name: a', 'name: b')
            self.assertEqual(reader.read(0, 4), b'kept')
        self.assertEqual(self.names(self.v4), ['a', 'b'])
        log = self.reload(one, "name: a, access: [{network: 127.0.0.1/8}]", 'name: b')
        self.assertIn('write 127.0.0.0/8 for the network', log)
        self.assertIn('the configuration is unchanged', log)


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


if __name__ == '__main__':
    server.main()
