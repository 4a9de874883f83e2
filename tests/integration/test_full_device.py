"""A device without free memory: writes that need memory fail with ENOSPC, and everything else works."""
import server
import wire
from server import MiB

CONFIG = '''
listeners: {unix: [{path: '{socket}'}]}
devices: [{id: {device}, capacity: 256M}]
exports:
  - {name: one, size: 192M, devices: [{device}]}
  - {name: two, size: 192M, devices: [{device}]}
'''
STEP = 4 * MiB


class FullDevice(server.Test):
    def fill(self, client, byte, size=192 * MiB):
        """Writes until the device is full. Returns the number of bytes."""
        for at in range(0, size, STEP):
            try:
                client.write(at, byte * STEP)
            except wire.Failed as failed:
                self.assertEqual(failed.args[0], wire.ENOSPC)
                return at
        return size

    def test_full(self):
        server_ = self.serve(config=CONFIG)
        one, two = (wire.connect(server_.address, name) for name in ('one', 'two'))
        self.assertEqual(self.fill(one, b'1'), 192 * MiB)
        filled = self.fill(two, b'2')
        self.assertTrue(0 < filled <= 64 * MiB, filled)
        # Repeated failures do not end the connection, and allocated pages can be written and read.
        for _ in range(5):
            with self.assertRaises(wire.Failed):
                two.write(128 * MiB, b'x' * STEP)
            two.write(0, b'3' * 1000)
        self.assertEqual(two.read(0, 2000), b'3' * 1000 + b'2' * 1000)
        self.assertEqual(two.read(128 * MiB, 1000), bytes(1000))
        two.zero(128 * MiB, 32 * MiB)
        with self.assertRaises(wire.Failed) as caught:
            two.zero(100 * MiB, 92 * MiB, wire.NO_HOLE)
        self.assertEqual(caught.exception.args[0], wire.ENOSPC)
        for at in range(0, 192 * MiB, STEP):
            self.assertEqual(one.read(at, STEP), b'1' * STEP)
        # Memory that one export frees is available to the other.
        one.trim(0, 192 * MiB)
        for at in range(filled, 192 * MiB, STEP):
            two.write(at, b'4' * STEP)
        self.assertEqual(two.read(filled, STEP), b'4' * STEP)
        self.assertEqual(one.read(0, STEP), bytes(STEP))
        server.wait_for_text('space', lambda: server_.log().lower())


if __name__ == '__main__':
    server.main()
