"""qemu-img: convert in both directions, compare, map, check, measure."""
import json
import os

import server
from server import MiB

server.need('qemu-img')
SIZE = 128 * MiB  # two slabs


class QemuImg(server.Test):
    def setUp(self):
        self.files = self.directory()
        self.image = os.path.join(self.files, 'image')
        server.write_image(self.image, SIZE)

    def test_convert_in_both_directions(self):
        for options in ((), ('-m', '16', '-W'), ('-S', '0'), ('-c', '-O', 'qcow2')):
            with self.subTest(options=options):
                one = self.serve(size=SIZE)
                back = os.path.join(self.files, 'back')
                self.command('qemu-img', 'convert', '-n', '-f', 'raw', '-O', 'raw', self.image, one.uri())
                self.command('qemu-img', 'compare', '-f', 'raw', '-F', 'raw', self.image, one.uri())
                if 'qcow2' in options:
                    self.command('qemu-img', 'convert', '-f', 'raw', *options, one.uri(), back)
                    self.command('qemu-img', 'compare', '-f', 'raw', '-F', 'qcow2', self.image, back)
                else:
                    self.command('qemu-img', 'convert', '-f', 'raw', '-O', 'raw', *options, one.uri(), back)
                    self.assertTrue(server.same_file(self.image, back))
                os.unlink(back)

    def test_map(self):
        one = self.serve(size=SIZE)
        parts = json.loads(self.command('qemu-img', 'map', '--output=json', '-f', 'raw', one.uri()))
        self.assertEqual([(part['start'], part['length'], part['zero']) for part in parts], [(0, SIZE, True)])
        self.command('qemu-img', 'convert', '-n', '-f', 'raw', '-O', 'raw', self.image, one.uri())
        parts = json.loads(self.command('qemu-img', 'map', '--output=json', '-f', 'raw', one.uri()))
        self.assertEqual(sum(part['length'] for part in parts), SIZE)
        self.assertTrue(any(part['data'] for part in parts))
        self.assertTrue(any(part['zero'] for part in parts))

    def test_qcow2(self):
        """A qcow2 image inside of an export."""
        one = self.serve(size=SIZE)
        self.command('qemu-img', 'create', '-f', 'qcow2', one.uri(), '1G')
        self.command('qemu-img', 'convert', '-n', '-f', 'raw', '-O', 'qcow2',
                     '--target-is-zero', self.small(), one.uri())
        self.command('qemu-img', 'check', '-f', 'qcow2', one.uri())

    def small(self):
        path = os.path.join(self.files, 'small')
        server.write_image(path, 1024 * MiB, data_every=16)
        return path


if __name__ == '__main__':
    server.main()
