"""Memory that TRIM frees does not leak contents."""
import server
import wire
from server import KiB, MiB, PAGE


class Allocation(server.Test):
    def connect(self, one, name=''):
        client = wire.connect(one.address, name)
        self.addCleanup(client.close)
        return client

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


if __name__ == '__main__':
    server.main()
