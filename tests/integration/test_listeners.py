"""Sockets: modes and stale files of Unix sockets, IPv6, several listeners, and socket activation (LISTEN_FDS)."""
import os
import socket
import stat
import tempfile

import server
import wire

def without_ipv6():
    """Makes socket(AF_INET6) fail in this process with a seccomp filter, as in many containers."""
    server.die_with_parent()
    load, jump, ret = 0x20, 0x15, 0x06  # BPF: load a word; jump if equal; return
    errno, allow, eafnosupport = 0x00050000, 0x7fff0000, 97
    socket_call = {'x86_64': 41, 'aarch64': 198}[os.uname().machine]
    rules = [(load, 0, 0, 0), (jump, 0, 3, socket_call), (load, 0, 0, 16), (jump, 0, 1, int(socket.AF_INET6)),
             (ret, 0, 0, errno | eafnosupport), (ret, 0, 0, allow)]
    server.filter_calls(rules)


class Listeners(server.Test):
    def works(self, address, name=''):
        with wire.connect(address, name) as client:
            client.write(9, b'works')
            self.assertEqual(client.read(9, 5), b'works')
            client.disconnect()

    def test_default_mode_is_private(self):
        self.assertEqual(stat.S_IMODE(os.stat(self.serve().path).st_mode), 0o600)

    def test_owner(self):
        if os.getuid() != 0:
            self.skipTest('only root can change the owner of a file')
        one = self.serve(config='''
listeners: {unix: [{path: '{socket}', owner: 'nobody:nogroup'}]}
exports: [{name: '', size: 64M, devices: [host]}]
''')
        self.assertNotEqual(os.stat(one.path).st_uid, 0)
        self.assertNotEqual(os.stat(one.path).st_gid, 0)

    def test_addresses_are_checked_before_memory(self):
        """If both the address and the size are invalid, the error is about the address."""
        with socket.socket() as other:
            other.bind(('127.0.0.1', 0))
            other.listen()
            port = other.getsockname()[1]
            self.command(server.PROGRAM, 'serve', '--device', 'host', '--size', '1000000G', '-b', '127.0.0.1',
                         '-p', port, status=1)
        self.assertIn(f'127.0.0.1:{port}', self.errors)
        self.assertNotIn('fit', self.errors)

    def refused(self, *arguments, environment=None):
        """The single line of the error message of a server that does not start."""
        self.command(server.PROGRAM, 'serve', '--device', 'host', '--size', '64M', *arguments, status=1,
                     environment=environment)
        self.assertEqual(len(self.errors.splitlines()), 1, self.errors)
        return self.errors

    def test_unavailable_addresses(self):
        one = self.serve(tcp=True)
        owner = f'gpunbd (pid {one.process.pid})'
        self.assertIn(f'127.0.0.1:{one.port}: the port is taken by {owner}; end that program, or choose another',
                      self.refused('-b', '127.0.0.1', '-p', str(one.port)))
        self.assertIn('another port (-p)\n', self.errors)
        path = server.write_file(os.path.join(one.directory, 'taken.yaml'), 'listeners: {tcp: [{address: ::1, '
                                 f'port: {server.free_port("::1")}}}, {{address: 127.0.0.1, port: {one.port}}}]}}\n'
                                 'exports: [{size: 1M, devices: [host]}]\n')
        self.command(server.PROGRAM, 'serve', '--config', path, status=1)
        self.assertIn('or choose another port (listeners.tcp[1].port)\n', self.errors)

    def test_addresses_without_permission(self):
        if os.getuid() != 0:
            self.skipTest('only root can change the user')
        folder = self.directory()  # only root can write to it
        program = [self.program_for_all_users(), 'serve', '--device', 'host', '--size', '64M']

        def as_nobody(*arguments):
            self.command(*program, *arguments, status=1, user=65534, group=65534, extra_groups=[])
            return self.errors

        self.assertIn(f'uid 65534 may not create files in {folder}', as_nobody('-U', f'{folder}/socket'))
        with open('/proc/sys/net/ipv4/ip_unprivileged_port_start', encoding='ascii') as file:
            if int(file.read()) > 1:
                self.assertIn('uid 65534 may not take this port; choose one above 1023',
                              as_nobody('-b', '127.0.0.1', '-p', '1'))
        os.chmod(folder, 0o777)
        path = server.write_file(os.path.join(folder, 'config.yaml'),
                                 f"listeners: {{unix: [{{path: '{folder}/socket', owner: root}}]}}\n"
                                 'exports: [{size: 64M, devices: [host]}]\n')
        program[2:] = []
        self.assertIn('only root may give it to root; run as root', as_nobody('--config', path))
        self.assertFalse(os.path.exists(f'{folder}/socket'))

    def test_without_ipv6(self):
        """Without IPv6, default addresses are skipped, and explicit addresses are errors."""
        if os.uname().machine not in ('x86_64', 'aarch64'):
            self.skipTest('the seccomp filter supports x86_64 and aarch64')
        port = server.free_port()
        one = self.run_server('-p', port, before=without_ipv6)
        self.ready(one)
        self.assertRegex(one.log(), 'this machine has no IPv6.*skipped')
        self.works(('127.0.0.1', port))
        other = self.run_server('-p', port, '-b', '::1', before=without_ipv6)
        self.assertEqual(other.process.wait(60), 1)
        self.assertIn('this machine has no IPv6; listen on 127.0.0.1 instead', other.log())

    def ready(self, one):
        server.wait_for_text('ready: ', one.log, 30)
        line = [line for line in one.log().splitlines() if 'ready: ' in line]
        self.assertEqual(len(line), 1, one.log())
        return line[0].split('ready: ', 1)[1]

    def test_ready_line(self):
        """The ready line contains a URI that works in a shell."""
        tcp = self.serve(tcp=True, unix=False)
        self.assertEqual(self.ready(tcp), f'nbd://127.0.0.1:{tcp.port} (try: nbdinfo nbd://127.0.0.1:{tcp.port})')
        local = self.serve(name='x&y')
        uri = f'nbd+unix:///x%26y?socket={local.path}'
        self.assertEqual(self.ready(local), f"{uri} (try: nbdinfo '{uri}')")
        server.need('nbdinfo')
        for one in self.servers:
            command = self.ready(one).split('(try: ')[1].rstrip(')')
            self.assertEqual(self.command('sh', '-c', command.replace('nbdinfo', 'nbdinfo --size')).strip(),
                             str(64 * server.MiB))

    def test_loopback_by_default(self):
        port = server.free_port()
        self.run_server('-p', port)

        def sockets():
            with open('/proc/net/tcp', encoding='ascii') as v4, open('/proc/net/tcp6', encoding='ascii') as v6:
                lines = v4.readlines()[1:] + v6.readlines()[1:]
            return [line.split()[1] for line in lines if line.split()[3] == '0A' and
                    line.split()[1].endswith(f':{port:04X}')]
        server.wait_until(sockets, 60, 'a listener')
        for address in sockets():
            self.assertIn(address.split(':')[0], ('0100007F', '00000000000000000000000001000000'))

    def activated(self, listeners):
        """A server with its listeners as descriptors 3, 4, ..., as systemd passes them."""
        with server.passing(listeners) as (start, passed):
            return self.run_server(prefix=start, pass_fds=passed)

    def test_listen_fds(self):
        path = os.path.join(self.directory(), 'socket')
        with socket.socket(socket.AF_UNIX) as local, socket.create_server(('127.0.0.1', 0)) as tcp:
            local.bind(path)
            local.listen()
            one = self.activated([local, tcp])
            self.works(path)
            self.works(tcp.getsockname())
            one.stop()
            self.assertTrue(os.path.exists(path), 'an inherited socket is not removed')

    def test_too_many_inherited_sockets(self):
        with socket.create_server(('127.0.0.1', 0)) as listener:
            one = self.activated([listener] * 65)
            self.assertEqual(one.process.wait(60), 1)
            self.assertIn('LISTEN_FDS: 65 sockets are handed over; at most 64 can be used', one.log())

    def test_inherited_files_are_ignored(self):
        """An unknown stored descriptor is not a listener, and does not prevent the start."""
        path = os.path.join(self.directory(), 'socket')
        with socket.socket(socket.AF_UNIX) as listener, tempfile.TemporaryFile() as unknown:
            listener.bind(path)
            listener.listen()
            one = self.activated([unknown, listener])
            self.works(path)
            one.stop()
        self.assertIn("the supervisor stores descriptors with unknown names, which stay there: 'unknown'", one.log())


if __name__ == '__main__':
    server.main()
