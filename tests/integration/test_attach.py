"""gpunbd attach up to its first request to the kernel: URIs, servers that abort the handshake at each byte or send invalid
replies, and servers of other projects. tests/vm tests the devices."""
import errno
import json
import os
import shutil
import socket
import struct
from urllib.parse import quote

import server
import wire
from handshake_script import FLAGS, Answers, scripted_server

greeting = wire.encode_greeting
ANSWERS = Answers(wire.GO)
reply, info, export = ANSWERS.reply, ANSWERS.info, ANSWERS.export
DEVICE = '/dev/nbd0'
ID, OTHER = b'0123456789abcdef' * 2, b'f' * 32
# Prevents that a test attaches a device on a machine where this is possible.
WITHOUT_RIGHTS = ['setpriv', '--bounding-set', '-sys_admin'] if os.geteuid() == 0 else []
KERNEL = 'modprobe nbd|CAP_SYS_ADMIN'  # the message if only the kernel refuses


def kernel_has_tls():
    with socket.socket() as probe:
        try:
            probe.setsockopt(socket.IPPROTO_TCP, 31, b'tls')  # TCP_ULP
        except OSError as error:
            return error.errno == errno.ENOTCONN
    return True


def blocks(minimum):
    return info(wire.INFO_BLOCK_SIZE, struct.pack('>III', minimum, 4096, 1 << 25))


def described(text):
    return greeting() + export(flags=FLAGS | wire.CAN_MULTI_CONN) + info(wire.INFO_DESCRIPTION, text) + ACK


def unix_uri(path, name=''):
    return f'nbd+unix:///{quote(name)}?socket={quote(path)}'


ACK = reply(wire.REP_ACK)
WHOLE = greeting() + export() + info(wire.INFO_DESCRIPTION, b'scratch (instance ' + ID + b')') + blocks(512) + ACK


class Attach(server.Test):
    def attach(self, uri, *arguments, status=1):
        """The single line on standard error."""
        self.command(*WITHOUT_RIGHTS, server.PROGRAM, 'attach', *arguments, uri, DEVICE, status=status)
        self.assertEqual(len(self.errors.splitlines()), 1, self.errors)
        return self.errors

    def attach_to(self, *scripts, arguments=()):
        """The error for a server that sends one script on each connection, and then disconnects."""
        path = os.path.join(self.directory(), 'socket')
        with scripted_server(path, scripts):
            return self.attach(unix_uri(path), *arguments)

    def test_cut_at_each_byte(self):
        for end in range(len(WHOLE)):
            self.assertIn('closed the connection during the handshake', self.attach_to(WHOLE[:end]), end)
        self.assertRegex(self.attach_to(WHOLE), KERNEL)

    def test_invalid_responses(self):
        for script, message in ((greeting(magic=1), 'not an NBD server'),
                                (greeting(option_magic=0x00420281861253), 'only the old handshake'),
                                (greeting(flags=0), 'fixed newstyle'),
                                (greeting() + reply(wire.ERR_UNSUP), 'supports neither GO'),
                                (greeting() + reply(wire.ERR_TLS_REQD), 'it requires TLS; write nbds instead of nbd'),
                                (greeting() + reply(wire.ERR_UNKNOWN, b'no such export'),
                                 "export '': there is no such export; nbdinfo --list lists the exports ('no such export')"),
                             (greeting() + reply(wire.ERR_POLICY, b'\x1b[2J'), r"export '': the server denies access to it ('\x1b[2J')"),
                             (greeting() + reply(wire.REP_SERVER, b'\0\0\0\0'), "export '': the server rejects the request"),
                             (greeting() + reply(wire.REP_ACK, magic=1), 'replied to another option'),
                             (greeting() + reply(wire.REP_ACK, option=wire.INFO), 'replied to another option'),
                             (greeting() + reply(wire.REP_INFO, length=1 << 31), 'too long'),
                             (greeting() + reply(wire.REP_INFO, b'\0'), 'malformed information'),
                             (greeting() + info(wire.INFO_EXPORT, b'\0' * 9), 'malformed information'),
                             (greeting() + info(wire.INFO_EXPORT, b'\0' * 11), 'malformed information'),
                             (greeting() + info(wire.INFO_BLOCK_SIZE, b'\0' * 11), 'malformed information'),
                             (greeting() + ACK, 'no information about the export'),
                             (greeting() + export(size=0) + ACK, 'size of the export'),
                             (greeting() + export(flags=0) + ACK, 'size of the export'),
                             (greeting() + export() + blocks(8192) + ACK, 'blocks of 8192 bytes'),
                             (greeting() + export() + blocks(1536) + ACK, 'blocks of 1536 bytes')):
            with self.subTest(message=message, script=script):
                self.assertIn(message, self.attach_to(script))

    def test_background(self):
        """The caller gets the error message and the exit status of the background process."""
        self.assertIn('closed the connection during the handshake', self.attach_to(WHOLE[:9], arguments=('--background',)))
        self.assertRegex(self.attach_to(WHOLE, arguments=('--background',)), KERNEL)

    def test_block_size(self):
        whole = greeting() + export() + blocks(4096) + ACK
        self.assertIn('the server does not accept blocks below 4096 bytes', self.attach_to(whole, arguments=('--block-size', '2K')))
        self.assertRegex(self.attach_to(whole, arguments=('--block-size', '4K')), KERNEL)
        self.assertRegex(self.attach_to(greeting() + export() + blocks(1) + ACK, arguments=('--block-size', '1K')), KERNEL)

    def test_several_connections(self):
        """All connections must reach the same export, and it must support several connections."""
        two = ('--connections', '2')
        self.assertIn('does not support several connections', self.attach_to(WHOLE, arguments=two))
        one = described(b'scratch (instance ' + ID + b')')
        self.assertRegex(self.attach_to(one, one, arguments=two), KERNEL)
        self.assertIn('reach different exports', self.attach_to(one, WHOLE.replace(ID, OTHER), arguments=two))
        self.assertIn('closed the connection', self.attach_to(one, b'', arguments=two))

    def test_instance_ids(self):
        """The id is recognized in both forms of gpunbd's descriptions, and in no other text."""
        two = ('--connections', '2')
        for form in (b'instance %s', b'disk (instance %s)', b'(instance x) (instance %s)'):
            with self.subTest(form=form):
                self.assertIn('reach different exports',
                              self.attach_to(described(form % ID), described(form % OTHER), arguments=two))
        for form in (b'my instance %s', b'(instance %s)', b'disk (instance %s) more', b'disk (instance %sa)', b'disk (instance %s'):
            with self.subTest(form=form):
                self.assertRegex(self.attach_to(described(form % ID), described(form % OTHER), arguments=two), KERNEL)

    def test_uris(self):
        """Errors of URIs have the same messages as in gpunbd ping (test_ping.py)."""
        for uri, message in (('/run/socket', 'is not one of nbd, nbds, nbd+unix and nbds+unix; write for example nbd://'),
                             ('nbd+unix:///x', 'requires socket=PATH'), ('nbd://host/%zz', 'hexadecimal'),
                             ('nbds+unix:///?socket=/s', 'the kernel supports TLS over TCP only'),
                             ('nbds://host/?tls-psk-file=/k', 'the user of the shared key is missing'),
                             ('nbd+vsock://2:10809/', 'is not one of')):
            with self.subTest(uri=uri):
                self.assertIn(message, self.attach(uri, status=2))
                self.assertIn(message, self.attach(uri, '--systemd', status=2))

    def test_a_unit_needs_absolute_paths(self):
        """systemd starts it in /."""
        for uri, parameter in (('nbd+unix:///?socket=run/s', 'socket'), ('nbds://h/?tls-certificates=tls', 'tls-certificates'),
                               ('nbds://u@h/?tls-psk-file=keys', 'tls-psk-file')):
            self.assertIn(f': a unit needs absolute paths; write {parameter}=/', self.attach(uri, '--systemd', status=2))

    def test_swap_over_tls(self):
        for more in ((), ('--systemd',)):
            self.assertIn('swap over TLS could hang the machine', self.attach('nbds://host/', '--swap', *more, status=2))

    def test_tls(self):
        """TLS needs support by the kernel, because no user-space process relays the data."""
        folder = os.path.join(self.directory(), 'tls')
        self.command(server.PROGRAM, 'tls-setup', folder, '--host', 'localhost', '--client', 'c', '--psk', 'alice')
        one = self.serve(tcp=True, extra=['--tls-certificates', folder, '--tls-psk', f'{folder}/keys.psk'])
        kernel = KERNEL if kernel_has_tls() else 'the kernel does not support TLS, which an attached device needs ' \
            r'\(load it: modprobe tls\): '
        for uri in (f'nbds://localhost:{one.port}/?tls-certificates={folder}/clients/c',
                    f'nbds://alice@localhost:{one.port}/?tls-psk-file={folder}/keys.psk'):
            self.assertRegex(self.attach(uri), kernel)
        self.assertIn('it requires TLS; write nbds instead of nbd', self.attach(f'nbd://localhost:{one.port}/'))
        uri = 'nbds://alice@storage.example.org/x?tls-psk-file=/etc/a%20b.psk'
        unit = self.command(server.PROGRAM, 'attach', '--systemd', uri, DEVICE)
        self.assertIn(f'Environment="URI={uri.replace("%", "%%")}"\n', unit)

    def test_no_server_and_no_kernel_client(self):
        """Both are reported at once, each with its remedy."""
        error = self.attach(f'nbd://127.0.0.1:{server.free_port()}/')
        self.assertIn('Connection refused; no server listens there; start one', error)
        self.assertEqual('besides, the kernel has no NBD client; load it: modprobe nbd' in error,
                         not os.path.exists('/sys/module/nbd'))

    def test_gpunbd(self):
        for options in ({'tcp': True, 'bind': '127.0.0.1'}, {'tcp': True, 'bind': '::1'}, {}):
            one = self.serve(name='a b/c', **options)
            self.assertRegex(self.attach(one.uri(quote('a b/c', safe='')), '--connections', '4'), KERNEL)
            self.assertIn("export 'other': there is no such export", self.attach(one.uri('other')))

    def test_nbdkit(self):
        server.need('nbdkit')
        path = os.path.join(self.directory(), 'socket')
        self.run_beside(['nbdkit', '-f', '-U', path, '--filter=blocksize-policy', 'memory', '16M', 'blocksize-minimum=4096'], path)
        self.assertRegex(self.attach(unix_uri(path), '--connections', '4'), KERNEL)
        self.assertIn('does not accept blocks below 4096', self.attach(unix_uri(path), '--block-size', '512'))

    def test_qemu_nbd(self):
        server.need('qemu-nbd')
        files = self.directory()
        path, image = os.path.join(files, 'socket'), os.path.join(files, 'image')
        with open(image, 'wb') as file:
            file.truncate(1 << 20)
        self.run_beside(['qemu-nbd', '-k', path, '-t', '-f', 'raw', '-x', 'disk', image], path)
        self.assertIn("export 'tape': there is no such export", self.attach(unix_uri(path, 'tape')))
        self.assertRegex(self.attach(unix_uri(path, 'disk')), KERNEL)

    def test_unit(self):
        """systemd reads back the URI, whatever characters it contains."""
        uri = unix_uri('/run/a b.sock', 'x"y$z')
        swap = self.command(server.PROGRAM, 'attach', '--systemd', uri, '/dev/nbd3', '--swap', '--connections', '4', '--timeout', '9')
        self.assertTrue(swap.startswith('# /etc/systemd/system/gpunbd-swap@nbd3.service\n[Unit]\n'))
        self.assertIn('\nEnvironment="URI=%s"\n' % uri.replace('%', '%%').replace('"', '\\"'), swap)
        self.assertIn(' attach --connections 4 --timeout 9 --swap ${URI} /dev/nbd3\n', swap)
        self.assertNotIn('Before=', swap)  # gpunbd attach runs swapoff itself
        plain = self.command(server.PROGRAM, 'attach', '--systemd', 'nbd://host/', '/dev/nbd3')
        self.assertTrue(plain.startswith('# /etc/systemd/system/gpunbd-attach-nbd3.service\n[Unit]\n'))
        self.assertIn('\nBefore=remote-fs-pre.target blk-availability.service\n', plain)
        self.assertNotIn('swap', plain.replace('and swap is disabled', ''))
        if shutil.which('systemd-analyze') is None:
            server.skip('systemd-analyze is not installed')
        files = self.directory()
        for text in (swap, plain):
            path = server.write_file(os.path.join(files, os.path.basename(text.partition('\n')[0])), text)
            self.command('systemd-analyze', 'verify', '--man=no', path, status=None)
            self.assertNotRegex(self.errors, '(?i)nbd3.*(unknown|invalid|ignoring|failed|not an absolute)')

    def test_list_and_detach(self):
        if os.path.exists('/sys/block/nbd0/pid'):
            server.skip('/dev/nbd0 is attached on this machine')
        self.assertIn('attached', json.loads(self.command(server.PROGRAM, 'attach', '--list', '--json')))
        self.command(server.PROGRAM, 'attach', '--list')
        for arguments in (('/dev/nbd0',), ('/dev/nbd0', '--force')):
            self.command(*WITHOUT_RIGHTS, server.PROGRAM, 'detach', *arguments, status=1)
            self.assertEqual(self.errors, 'gpunbd detach: /dev/nbd0 is not attached; gpunbd attach --list lists the attached devices\n')


if __name__ == '__main__':
    server.main()
