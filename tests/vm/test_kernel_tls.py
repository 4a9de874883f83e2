"""Kernel TLS, in a QEMU guest because few machines have the module loaded: the server's TLS tests, nbdcopy and nbd-client.

test_kernel_client.py describes the guest."""
import os
import sys

import test_kernel_client as guest
import server

sys.path.insert(0, os.path.join(guest.HERE, '../integration'))

import test_tls  # noqa: E402

SERVER_TESTS = os.environ.get('GPUNBD_SERVER_TESTS', os.path.join(server.ROOT, 'build/release/server_tests'))
EXPECTED = ['server_tests ok', 'nbdcopy, 1.3 ok', 'nbd-client ok', 'nbdcopy, 1.2 ok', 'server ended with 0',
            'TLS 1.3.*, kernel sending ok', 'TLS 1.2.*, kernel sending ok']

server.need('nbdcopy', 'nbd-client', 'openssl')
if 'tls' not in guest.MODULES:
    server.skip('the guest\'s kernel has no tls module')


class KernelTls(server.Test):
    def test_kernel_tls(self):
        initramfs = guest.root(self, 'tls', ('nbdcopy', 'nbd-client'), ('gcm', 'ghash_generic', 'ctr', 'tls', 'nbd'))
        initramfs.program(SERVER_TESTS, 'server_tests')
        test_tls.make_folder(f'{initramfs.root}/pki')
        initramfs.file('pki/tls-1.2', '[overrides]\ndisabled-version = tls1.3\n')
        guest.run(self, initramfs, EXPECTED, memory=2048)


if __name__ == '__main__':
    server.main()
