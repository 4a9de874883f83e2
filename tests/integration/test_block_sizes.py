"""Block size constraints of exports: how clients learn them, and requests that violate them."""
import json

import server
import wire
from server import KiB, MiB

CONFIGURATION = '''
listeners: {unix: [{path: '{socket}'}]}
exports:
  - {name: coarse, size: 64M, devices: [host], block_size: {minimum: 4K, preferred: 64K, maximum: 1M}}
  - {name: sectors, size: 64M, devices: [host], block_size: {minimum: 512}}
  - {name: small, size: 64M, devices: [host], block_size: {maximum: 1M}}
  - {name: share, size: 1%, devices: [host], block_size: {minimum: 64K}}
  - {name: plain, size: 64M, devices: [host]}
'''
EXPECTED = {'coarse': (4 * KiB, 64 * KiB, MiB), 'sectors': (512, 4 * KiB, 32 * MiB), 'small': (1, 4 * KiB, MiB),
            'share': (64 * KiB, 64 * KiB, 32 * MiB), 'plain': (1, 4 * KiB, 32 * MiB)}


class BlockSizes(server.Test):
    def setUp(self):
        self.one = self.serve(config=CONFIGURATION)

    def test_block_sizes_on_request(self):
        server.need('nbdinfo')
        for name, sizes in EXPECTED.items():
            export = json.loads(self.command('nbdinfo', '--json', self.one.uri(name)))['exports'][0]
            self.assertEqual(tuple(export[f'block_size_{which}'] for which in ('minimum', 'preferred', 'maximum')), sizes)
            self.assertEqual(export['export-size'] % sizes[0], 0)

    def test_qemu(self):
        server.need('qemu-io')
        for name in EXPECTED:
            out = self.command('qemu-io', '-f', 'raw', '-d', 'unmap', '-c', 'write -P 0x11 100 5000000', '-c', 'write -P 0x22 511 2',
                               '-c', 'read -P 0x11 600 4999000', '-c', 'read -P 0x22 511 2', '-c', 'discard 0 2M',
                               '-c', 'read -P 0 0 2M', self.one.uri(name))
            self.assertNotIn('verification failed', out.lower())
            self.assertNotIn('error', out.lower() + self.errors.lower())

    def test_changed_by_reload(self):
        self.one.configure(CONFIGURATION.replace('minimum: 512', 'minimum: 8K'))
        with wire.connect(self.one.address, 'sectors') as before:
            before.write(0, b'x' * 512)
            self.one.process.send_signal(1)
            server.wait_for_text('block_size changed', self.one.log)
            before.write(512, b'x' * 512)  # existing connections keep their block sizes
            with wire.connect(self.one.address, 'sectors') as after:
                with self.assertRaises(wire.Failed):
                    after.read(0, 512)
                self.assertEqual(after.read(0, 8192), b'x' * 1024 + bytes(7168))
        # This size is not a multiple of the previous minimum block size.
        self.one.configure(CONFIGURATION.replace('size: 64M, devices: [host], block_size: {minimum: 512}',
                                                 'size: 65537K, devices: [host]'))
        self.one.process.send_signal(1)
        server.wait_for_text("'sectors' is replaced", self.one.log)


if __name__ == '__main__':
    server.main()
