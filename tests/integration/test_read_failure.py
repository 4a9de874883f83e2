"""A copy fails during a READ: libnbd and QEMU handle the error and its offset, and continue."""
import errno
import os

import server
from server import KiB, MiB

STAGED_SERVER = os.environ.get('GPUNBD_STAGED_SERVER', os.path.join(server.ROOT, 'build/release/staged_server'))
COPY = 64 * KiB  # the size of a copy of staged_server


class ReadFailure(server.Test):
    def serve_failing(self, copies):
        """The URI of a server whose copy after `copies` others fails."""
        path = os.path.join(self.directory(), 'socket')
        self.run_beside([STAGED_SERVER, '-c', str(copies), path], path)
        return f'nbd+unix:///disk?socket={path}'

    def test_libnbd(self):
        nbd = server.need_libnbd()
        for before in (0, 1, 5):
            # Writing the data takes 16 copies.
            handle = nbd.NBD()
            handle.connect_uri(self.serve_failing(16 + before))
            data = server.random_bytes(MiB, 3)
            handle.pwrite(data, 0)
            chunks = []
            with self.assertRaises(nbd.Error) as caught:
                handle.pread_structured(MiB, 0, lambda _, offset, status, error: chunks.append((offset, status, error.value)))
            self.assertEqual(caught.exception.errnum, errno.EIO)
            self.assertEqual(chunks[-1], (before * COPY, nbd.READ_ERROR, errno.EIO))
            self.assertEqual([status for _, status, _ in chunks[:-1]], [nbd.READ_DATA] * (len(chunks) - 1))
            self.assertEqual(handle.pread(MiB, 0), data)  # the connection continues
            handle.shutdown()

    def test_qemu(self):
        server.need('qemu-io')
        uri = self.serve_failing(16)
        out = self.command('qemu-io', '-f', 'raw', '-c', 'write -P 0x33 0 1M', '-c', 'read 0 1M', '-c', 'read -P 0x33 0 1M', uri,
                           status=None)
        self.assertEqual((out + self.errors).count('Input/output error'), 1, out + self.errors)
        self.assertIn('read 1048576/1048576 bytes', out)
        self.assertNotIn('verification failed', out)


if __name__ == '__main__':
    server.main()
