"""gpunbd attach with kernel TLS: the manual's recipe for a remote node, with server and node in one QEMU guest; a server
that is killed; unauthorized peers; shared keys; and nbdkit.

test_kernel_client.py describes the guest."""
import os
import re
import subprocess

import test_kernel_client as guest
import recipe
import server

EXPECTED = ['no-module ok', 'recipe ok', 'reconnected ok', 'unauthorized ok', 'shared-key ok', 'nbdkit ok', '1.3-only ok']
MODULES = ('nbd', 'tls', 'gcm', 'ghash_generic', 'ctr', 'chacha20poly1305', 'chacha_generic', 'poly1305_generic',
           'crc32c_generic', 'ext4')
REPLACEMENTS = {'64G': '64M', 'cuda:0': 'host'}

server.need('nbdkit')
if 'tls' not in guest.MODULES:
    server.skip('the guest\'s kernel has no tls module')


class AttachTls(server.Test):
    def test_attach_tls(self):
        initramfs = guest.root(self, 'attach_tls', ('mkfs.ext4', 'e2fsck', 'nbdkit'), MODULES)
        folder = subprocess.run(['nbdkit', '--dump-config'], capture_output=True, text=True, check=True).stdout
        initramfs.program(os.path.join(re.search('^plugindir=(.*)$', folder, re.M)[1], 'nbdkit-memory-plugin.so'))
        os.rename(f'{initramfs.root}/bin/nbdkit-memory-plugin.so', f'{initramfs.root}/lib/nbdkit-memory-plugin.so')
        of_server, of_node = recipe.blocks('server/manual/attach-and-mount.md', 'Remote node')[:2]
        for name, lines in (('server', of_server), ('node', of_node)):
            text = '\n'.join(lines) + '\n'
            for original, replacement in REPLACEMENTS.items():
                text = text.replace(original, replacement)
            initramfs.file(f'recipe/{name}', text)
        guest.run(self, initramfs, EXPECTED, append='nbd.nbds_max=1', memory=1024)


if __name__ == '__main__':
    server.main()
