"""nbdkit's nbd plugin as a client, with its filters."""
import server
from server import MiB

server.need('nbdkit', 'nbdcopy', 'nbdinfo')
SIZE = 128 * MiB


class NbdkitClient(server.Test):
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
