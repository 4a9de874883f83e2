"""Memory freed by TRIM and WRITE_ZEROES, its block status, and that freed memory does not leak contents."""
import server
import wire
from server import KiB, MiB, PAGE

SIZE = 256 * MiB
DATA, HOLE = 0, 3


class Allocation(server.Test):
    def connect(self, one, name=''):
        client = wire.connect(one.address, name)
        self.addCleanup(client.close)
        return client

    def extents(self, client, offset=0, length=SIZE):
        """The extents, with equal neighbours merged, and the last one cut to the request."""
        joined, at = [], offset
        while at < offset + length:
            for size, state in client.status(at, offset + length - at)[1]:
                size = min(size, offset + length - at)
                if joined and joined[-1][1] == state:
                    joined[-1] = (joined[-1][0] + size, state)
                else:
                    joined.append((size, state))
                at += size
        return joined

    def test_trim_makes_holes(self):
        client = self.connect(self.serve(size=SIZE))
        for call in (client.trim, client.zero):
            client.write(0, b'x' * 16 * PAGE)
            self.assertEqual(self.extents(client)[0], (16 * PAGE, DATA))
            # Only whole pages are freed; the edges are zeroed.
            call(2 * PAGE + 1, 4 * PAGE)
            self.assertEqual(self.extents(client),
                             [(3 * PAGE, DATA), (3 * PAGE, HOLE), (10 * PAGE, DATA), (SIZE - 16 * PAGE, HOLE)])
            self.assertEqual(client.read(2 * PAGE - 10, 4 * PAGE + 30),
                             b'x' * 11 + bytes(4 * PAGE) + b'x' * 19)
            call(0, SIZE) if call == client.trim else [call(at, 128 * MiB) for at in (0, 128 * MiB)]
            self.assertEqual(self.extents(client), [(SIZE, HOLE)])

    def test_trimmed_pages_read_zero_when_reused(self):
        """Pages are reused at other offsets and by other clients without their old contents."""
        client = self.connect(self.serve(size=SIZE))
        for turn in range(6):
            base = turn % 3 * 64 * MiB
            client.write(base, bytes([turn + 1]) * 32 * MiB)
            client.trim(base, 32 * MiB)
            other = (turn + 1) % 3 * 64 * MiB
            for at in range(0, 32 * MiB, PAGE):
                client.write(other + at + 1000, b'.')  # allocates a page, and covers one byte of it
            for at in range(0, 32 * MiB, PAGE):
                page = client.read(other + at, PAGE)
                self.assertEqual(page.count(0), PAGE - 1)
                self.assertEqual(page[1000:1001], b'.')
            client.trim(other, 32 * MiB)

    def test_exports_do_not_share_contents(self):
        one = self.serve(config='''
listeners: {unix: [{path: '{socket}'}]}
devices: [{id: {device}, capacity: 192M}]
exports:
  - {name: secret, size: 128M, devices: [{device}]}
  - {name: nosy, size: 128M, devices: [{device}]}
''')
        secret, nosy = self.connect(one, 'secret'), self.connect(one, 'nosy')
        for turn in range(4):
            for at in range(0, 128 * MiB, 16 * MiB):
                secret.write(at, b'S' * 16 * MiB)
            secret.trim(0, 128 * MiB)
            for at in range(0, 128 * MiB, PAGE):
                nosy.write(at + turn * 512 * KiB, b'n')
            for at in range(0, 128 * MiB, 16 * MiB):
                self.assertNotIn(b'S', nosy.read(at, 16 * MiB))
            nosy.trim(0, 128 * MiB)
            self.assertEqual(secret.read(0, 16 * MiB), bytes(16 * MiB))

    def test_reply_in_flight_keeps_its_pages(self):
        """A page that is being sent to a slow client is not reused, even if it is trimmed meanwhile."""
        one = self.serve(config='''
listeners: {unix: [{path: '{socket}'}]}
devices: [{id: {device}, capacity: 64M}]
exports:
  - {name: old, size: 64M, devices: [{device}]}
  - {name: new, size: 64M, devices: [{device}]}
''')
        slow, quick, other = self.connect(one, 'old'), self.connect(one, 'old'), self.connect(one, 'new')
        for turn in range(5):
            for at in range(0, 32 * MiB, 16 * MiB):
                quick.write(at, b'o' * 16 * MiB)
            cookie = slow.request(wire.READ, 0, 32 * MiB)
            slow.peek(4)  # the reply has started, and most of it waits in the server
            quick.trim(0, 64 * MiB)
            for at in range(0, 64 * MiB, 4 * MiB):
                try:
                    other.write(at, b'S' * 4 * MiB)
                except wire.Failed as failed:
                    self.assertEqual(failed.args[0], wire.ENOSPC)
            self.assertLessEqual(set(slow.read_answer(cookie, 0, 32 * MiB)), {0, ord('o')}, f'turn {turn}')
            other.trim(0, 64 * MiB)

    def test_full_provision(self):
        one = self.serve(config='''
listeners: {unix: [{path: '{socket}'}]}
exports: [{name: '', size: 256M, devices: [{device}], provision: full}]
''')
        client = self.connect(one)
        if not server.SANITIZED:
            self.assertGreater(one.memory(), 250 * MiB)
        self.assertEqual(client.read(0, 32 * MiB), bytes(32 * MiB))
        for at in range(0, SIZE, 16 * MiB):
            client.write(at, b'f' * 16 * MiB)
        client.trim(0, SIZE)
        self.assertEqual(client.read(100 * MiB, 32 * MiB), bytes(32 * MiB))
        client.write(5, b'again')
        self.assertEqual(client.read(4, 7), b'\0again\0')


if __name__ == '__main__':
    server.main()
