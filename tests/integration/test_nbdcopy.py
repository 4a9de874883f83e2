"""Images copied with nbdcopy: to the server and back, between servers, over many connections, with gpunbd as its child."""
import os

import server
from server import MiB

server.need('nbdcopy')
SIZE = 128 * MiB  # two slabs


class NbdCopy(server.Test):
    def setUp(self):
        self.files = self.directory()
        self.image = os.path.join(self.files, 'image')
        self.back = os.path.join(self.files, 'back')
        server.write_image(self.image, SIZE)

    def check(self, uri, *options):
        self.command('nbdcopy', *options, uri, self.back)
        self.assertTrue(server.same_file(self.image, self.back))
        os.unlink(self.back)

    def test_there_and_back(self):
        for options in ((), ('--connections=1', '--requests=1'), ('--connections=8', '--threads=4', '--requests=64'),
                        ('--request-size=4096', '--requests=32'), ('--request-size=33554432',), ('--synchronous',),
                        ('--allocated',), ('--flush',)):
            with self.subTest(options=options):
                one = self.serve(size=SIZE)
                self.command('nbdcopy', *options, self.image, one.uri())
                self.check(one.uri(), *options)

    def test_server_to_server(self):
        one, other = self.serve(size=SIZE), self.serve(size=SIZE)
        self.command('nbdcopy', self.image, one.uri())
        self.command('nbdcopy', '--connections=4', one.uri(), other.uri())
        self.check(other.uri())

    def test_as_child_of_nbdcopy(self):
        child = [server.PROGRAM, 'serve', '--device', 'host', '--size', SIZE]
        self.command('nbdcopy', '--', self.image, '[', *child, ']')
        self.command('nbdcopy', '--', '[', *child, ']', 'null:')
        other = self.serve(size=SIZE)
        self.command('nbdcopy', self.image, other.uri())
        self.command('nbdcopy', '--', other.uri(), '[', *child, ']')


if __name__ == '__main__':
    server.main()
