"""What nbd_attach makes of a server that breaks off its handshake, at each byte, or says what cannot be: it says so,
and attaches nothing. (The kernel is asked last: no NBD client of the kernel is needed here.)"""
import os
import socket
import struct
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '../integration'))

import server  # noqa: E402
import wire  # noqa: E402

ATTACH = os.environ.get('GPUNBD_ATTACH', os.path.join(os.path.dirname(server.PROGRAM), 'nbd_attach'))
FLAGS = wire.FLAG['has_flags'] | wire.FLAG['flush']


def greeting(magic=wire.NBDMAGIC, option_magic=wire.IHAVEOPT, flags=wire.FIXED_NEWSTYLE | wire.NO_ZEROES):
    return struct.pack('>QQH', magic, option_magic, flags)


def reply(kind, data=b'', option=wire.OPT_GO, magic=wire.OPTION_REPLY, length=None):
    return struct.pack('>QIII', magic, option, kind, len(data) if length is None else length) + data


def info(kind, data):
    return reply(wire.REP_INFO, struct.pack('>H', kind) + data)


def export(size=1 << 20, flags=FLAGS):
    return info(wire.INFO_EXPORT, struct.pack('>QH', size, flags))


def blocks(minimum):
    return info(wire.INFO_BLOCK_SIZE, struct.pack('>III', minimum, 4096, 1 << 25))


ACK = reply(wire.REP_ACK)
WHOLE = greeting() + export() + info(wire.INFO_DESCRIPTION, b'scratch (instance 12)') + blocks(512) + ACK


class Attach(server.Test):
    def attach(self, *scripts, arguments=()):
        """What it says of a server that sends script after script, one to each connection, and then hangs up."""
        path = os.path.join(self.directory(), 'socket')
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(path)
            listener.listen()
            connections = []

            def play():
                for script in scripts:
                    connections.append(listener.accept()[0])
                    connections[-1].sendall(script)
                    connections[-1].shutdown(socket.SHUT_WR)
            player = threading.Thread(target=play, daemon=True)
            player.start()
            self.command(ATTACH, *arguments, path, '0', status=1)
            player.join()
            for each in connections:
                each.close()
        self.assertEqual(len(self.errors.splitlines()), 1, self.errors)
        return self.errors

    def test_cut_at_each_byte(self):
        for end in range(len(WHOLE)):
            self.assertIn('hung up during the handshake', self.attach(WHOLE[:end]), end)

    def test_what_cannot_be(self):
        for script, told in ((greeting(magic=1), 'no NBD server'),
                             (greeting(option_magic=0x00420281861253), 'of the old style'),
                             (greeting(flags=0), 'knows no GO'),
                             (greeting() + reply(wire.ERR_UNKNOWN, b'no such export'), "refuses export '': no such export"),
                             (greeting() + reply(wire.REP_SERVER, b'\0\0\0\0'), "refuses export ''"),
                             (greeting() + reply(wire.REP_ACK, magic=1), 'something else'),
                             (greeting() + reply(wire.REP_ACK, option=wire.OPT_INFO), 'something else'),
                             (greeting() + reply(wire.REP_INFO, length=1 << 31), 'something else'),
                             (greeting() + reply(wire.REP_INFO, b'\0'), 'half a fact'),
                             (greeting() + info(wire.INFO_EXPORT, b'\0' * 9), 'half a fact'),
                             (greeting() + info(wire.INFO_EXPORT, b'\0' * 11), 'half a fact'),
                             (greeting() + info(wire.INFO_BLOCK_SIZE, b'\0' * 11), 'half a fact'),
                             (greeting() + ACK, 'how large'),
                             (greeting() + export(size=0) + ACK, 'how large'),
                             (greeting() + export(flags=0) + ACK, 'how large'),
                             (greeting() + export() + blocks(8192) + ACK, 'no blocks of 8192 bytes'),
                             (greeting() + export() + blocks(1536) + ACK, 'no blocks of 1536 bytes')):
            with self.subTest(told=told, script=script):
                self.assertIn(told, self.attach(script))

    def test_several_connections(self):
        """They have to reach one export, and one that is for several."""
        two = ('--connections', '2')
        self.assertIn('not for several connections', self.attach(WHOLE, WHOLE, arguments=two))
        for other in (greeting() + export(size=1 << 21) + ACK,
                      WHOLE.replace(b'(instance 12)', b'(instance 13)')):
            self.assertIn('reaches another export', self.attach(WHOLE, other, arguments=two))
        self.assertIn('hung up', self.attach(WHOLE, b'', arguments=two))

    def test_usage(self):
        for arguments, told in (((), 'missing'), (('path/socket',), 'missing'), (('socket', '0'), 'neither HOST:PORT nor a path'),
                                (('host:', '0'), 'neither'), (('/path', 'nbd0'), 'no number of a device'),
                                (('--connections', '0', '/path', '0'), "'--connections 0' is wrong"),
                                (('--dead', '-1', '/path', '0'), "'--dead -1' is wrong"),
                                (('--frob', '1', '/path', '0'), "'--frob 1' is wrong"),
                                (('--name', 'x' * 4097, '/path', '0'), 'is wrong')):
            with self.subTest(arguments=arguments):
                self.command(ATTACH, *arguments, status=2)
                self.assertIn(told, self.errors)

    def test_no_server(self):
        for address in ('/no/such/socket', f'127.0.0.1:{server.free_port()}', f'[::1]:{server.free_port("::1")}', '/' + 'x' * 200):
            self.command(ATTACH, address, '0', status=1)
            self.assertRegex(self.errors, 'No such file|refused|too long')


if __name__ == '__main__':
    server.main()
