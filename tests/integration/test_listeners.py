"""Sockets: modes and stale files of Unix sockets, IPv6, several listeners, and sockets handed over (LISTEN_FDS)."""
import fcntl
import os
import socket
import stat
import subprocess
import sys
import time

import server
import wire

HAS_IPV6 = os.path.exists('/proc/net/if_inet6') and '00000000000000000000000000000001' in open('/proc/net/if_inet6').read()


class Listeners(server.Test):
    def works(self, address, name=''):
        with wire.connect(address, name) as client:
            client.write(9, b'works')
            self.assertEqual(client.read(9, 5), b'works')
            client.disconnect()

    def only_gpunbd(self):
        if server.STAND_IN:
            self.skipTest('this is about gpunbd')

    def test_unix_modes(self):
        self.only_gpunbd()
        for mode in ('0600', '0660', '0666'):
            one = self.serve(config=f'''
listeners: {{unix: [{{path: '{{socket}}', mode: {mode}}}]}}
exports: [{{name: '', size: 64M, devices: [host]}}]
''')
            self.assertEqual(stat.S_IMODE(os.stat(one.path).st_mode), int(mode, 8))
            self.works(one.path)

    def test_default_mode_is_private(self):
        self.only_gpunbd()
        self.assertEqual(stat.S_IMODE(os.stat(self.serve().path).st_mode), 0o600)

    def test_owner(self):
        self.only_gpunbd()
        if os.getuid() != 0:
            self.skipTest('only root gives files away')
        one = self.serve(config='''
listeners: {unix: [{path: '{socket}', owner: 'nobody:nogroup'}]}
exports: [{name: '', size: 64M, devices: [host]}]
''')
        self.assertNotEqual(os.stat(one.path).st_uid, 0)
        self.assertNotEqual(os.stat(one.path).st_gid, 0)

    def test_stale_socket(self):
        """What a killed server left behind is no obstacle; a live server's socket is not taken over."""
        self.only_gpunbd()
        one = self.serve()
        command = [server.PROGRAM, 'serve', '--device', 'host', '--size', '64M', '-U', one.path]
        self.command(*command, status=None)
        self.assertGreater(self.status, 0)
        self.works(one.path)
        one.process.kill()
        one.process.wait()
        self.assertTrue(os.path.exists(one.path))
        again = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                 preexec_fn=server.die_with_parent)
        try:
            def up():
                try:
                    wire.connect(one.path).close()
                    return True
                except OSError:
                    return False
            server.wait_until(up, 10, 'the second server')
        finally:
            again.terminate()
            self.assertEqual(again.wait(10), 0)

    def test_no_other_file_is_removed(self):
        self.only_gpunbd()
        path = os.path.join(self.directory(), 'precious')
        with open(path, 'w', encoding='ascii') as file:
            file.write('data')
        self.command(server.PROGRAM, 'serve', '--device', 'host', '--size', '64M', '-U', path, status=None)
        self.assertGreater(self.status, 0)
        with open(path, encoding='ascii') as file:
            self.assertEqual(file.read(), 'data')

    def test_ipv6(self):
        if not HAS_IPV6:
            self.skipTest('there is no IPv6 here')
        one = self.serve(tcp=True, bind='::1', unix=False)
        self.works(('::1', one.port))

    def test_loopback_unless_told_otherwise(self):
        self.only_gpunbd()
        port = server.free_port()
        child = subprocess.Popen([server.PROGRAM, 'serve', '--device', 'host', '--size', '64M', '-p', str(port)],
                                 stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                 preexec_fn=server.die_with_parent)
        try:
            def sockets():
                with open('/proc/net/tcp', encoding='ascii') as v4, open('/proc/net/tcp6', encoding='ascii') as v6:
                    lines = v4.readlines()[1:] + v6.readlines()[1:]
                return [line.split()[1] for line in lines if line.split()[3] == '0A' and
                        line.split()[1].endswith(f':{port:04X}')]
            server.wait_until(sockets, 10, 'a listener')
            for address in sockets():
                self.assertIn(address.split(':')[0], ('0100007F', '00000000000000000000000001000000'))
        finally:
            child.terminate()
            self.assertEqual(child.wait(10), 0)

    def test_several(self):
        self.only_gpunbd()
        ports = [server.free_port(), server.free_port()]
        one = self.serve(config=f'''
listeners:
  tcp:
    - {{address: 127.0.0.1, port: {ports[0]}}}
    - {{address: {"'::1'" if HAS_IPV6 else '127.0.0.2'}, port: {ports[1]}}}
  unix:
    - {{path: '{{socket}}'}}
    - {{path: '{{directory}}/other'}}
exports: [{{name: '', size: 64M, devices: [host]}}]
''')
        for address in (one.path, os.path.join(one.directory, 'other'), ('127.0.0.1', ports[0]),
                        ('::1' if HAS_IPV6 else '127.0.0.2', ports[1])):
            self.works(address)

    def activated(self, listeners, *arguments):
        """A server that finds its listeners as descriptors 3, 4, ..., as systemd hands them over."""
        high = [fcntl.fcntl(listener, fcntl.F_DUPFD, 100) for listener in listeners]
        hand_over = ('import os, sys; count = int(sys.argv[1]); '
                     '[os.dup2(int(sys.argv[2 + n]), 3 + n) for n in range(count)]; '
                     'os.environ.update(LISTEN_FDS=str(count), LISTEN_PID=str(os.getpid())); '
                     'os.execv(sys.argv[2 + count], sys.argv[2 + count:])')
        command = [sys.executable, '-c', hand_over, str(len(high)), *map(str, high),
                   server.PROGRAM, 'serve', '--device', 'host', '--size', '64M', *arguments]
        try:
            return subprocess.Popen(command, pass_fds=high, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                    preexec_fn=server.die_with_parent)
        finally:
            for descriptor in high:
                os.close(descriptor)

    def test_listen_fds(self):
        self.only_gpunbd()
        path = os.path.join(self.directory(), 'socket')
        local, tcp = socket.socket(socket.AF_UNIX), socket.socket()
        local.bind(path)
        tcp.bind(('127.0.0.1', 0))
        for listener in (local, tcp):
            listener.listen()
        child = self.activated([local, tcp])
        try:
            self.works(path)
            self.works(tcp.getsockname())
            child.terminate()
            self.assertEqual(child.wait(10), 0, child.stdout.read())
            self.assertTrue(os.path.exists(path), 'the socket belongs to whoever made it')
        finally:
            child.kill()
            child.wait()
            child.stdout.close()
            local.close()
            tcp.close()

    def test_listen_fds_of_another_process(self):
        """LISTEN_PID names somebody else: the variables are not for us."""
        self.only_gpunbd()
        one = self.serve(environment={'LISTEN_FDS': '1', 'LISTEN_PID': '1'})
        self.works(one.path)

    def test_systemd_activation_by_libnbd(self):
        self.only_gpunbd()
        nbd = server.need_libnbd()
        handle = nbd.NBD()
        handle.connect_systemd_socket_activation([server.PROGRAM, 'serve', '--device', 'host', '--size', '64M'])
        handle.pwrite(b'activated', 3)
        self.assertEqual(handle.pread(9, 3), b'activated')
        handle.shutdown()

    def test_many_addresses_at_once(self):
        """Clients over Unix and TCP on one export see each other's writes."""
        if server.STAND_IN:
            self.skipTest('nbdkit listens on one')
        one = self.serve(tcp=True, unix=True)
        time.sleep(0.1)
        with wire.connect(one.path) as local, wire.connect((one.bind, one.port)) as remote:
            local.write(0, b'from here')
            self.assertEqual(remote.read(0, 9), b'from here')


if __name__ == '__main__':
    server.main()
