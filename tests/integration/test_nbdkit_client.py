"""nbdkit's nbd plugin as a client, with its filters."""
import os

import server
from server import MiB

server.need('nbdkit', 'nbdcopy', 'nbdinfo')
SIZE = 128 * MiB


class NbdkitClient(server.Test):
    def test_copy_through(self):
        files = self.directory()
        image, back = os.path.join(files, 'image'), os.path.join(files, 'back')
        server.write_image(image, SIZE)
        for shared in ('true', 'false'):
            one = self.serve(size=SIZE)
            through = ['nbdkit', '--exit-with-parent', '--filter=stats', 'nbd', f'uri={one.uri()}', f'shared={shared}',
                       'statsfile=/dev/null']
            self.command('nbdcopy', '--', image, '[', *through, ']')
            self.command('nbdcopy', '--', '[', *through, ']', back)
            self.assertTrue(server.same_file(image, back))

    def test_flags(self):
        one = self.serve(size=SIZE)
        for can in ('connect', 'trim', 'zero', 'fast-zero', 'fua', 'multi-conn', 'cache'):
            self.command('nbdinfo', '--can', can, '--', '[', 'nbdkit', '--exit-with-parent', 'nbd', f'uri={one.uri()}', ']')

    def test_partition_and_checks(self):
        """Unaligned offsets with the offset filter. nbdkit checks the extents."""
        one = self.serve(size=SIZE)
        self.command('nbdinfo', '--map', '--', '[', 'nbdkit', '--exit-with-parent', '--filter=offset', 'nbd',
                     f'uri={one.uri()}', 'offset=1000001', 'range=50000003', ']')


if __name__ == '__main__':
    server.main()
