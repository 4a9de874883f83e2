"""Requests at the level of bytes: errors, consumed payloads, and complete replies."""
import struct

import server
import wire
from server import MiB, PAGE

SIZE = 64 * MiB


class Transmission(server.Test):
    def connect(self, one=None, **options):
        client = wire.connect((one or self.serve(size=SIZE)).address, **options)
        self.addCleanup(client.close)
        return client

    def both(self, **options):
        one = self.serve(size=SIZE, **options)
        return [self.connect(one), self.connect(one, structured=False)]

    def fails(self, number, call, *args):
        with self.assertRaises(wire.Failed) as caught:
            call(*args)
        self.assertEqual(caught.exception.args[0], number)

    def alive(self, client):
        client.write(3, b'still here')
        self.assertEqual(client.read(3, 10), b'still here')

    def test_unknown_commands(self):
        for client in self.both():
            for command in (8, 9, 77, 0xFFFF):
                self.fails(wire.EINVAL, client.do, command, 0, 0)
            self.alive(client)

    def test_unknown_flags(self):
        for client in self.both():
            for bit in range(5, 16):
                with self.subTest(bit=bit):
                    self.fails(wire.EINVAL, client.do, wire.WRITE, 0, 4, 1 << bit, b'data')
                    self.fails(wire.EINVAL, client.read, 0, 4, 1 << bit)
                    self.fails(wire.EINVAL, client.do, wire.FLUSH, 0, 0, 1 << bit)
            self.alive(client)

    def test_misplaced_flags(self):
        for client in self.both():
            for command, flags in ((wire.READ, wire.NO_HOLE | wire.FAST_ZERO | wire.REQ_ONE),
                                   (wire.TRIM, wire.NO_HOLE | wire.DF | wire.FAST_ZERO | wire.REQ_ONE),
                                   (wire.WRITE_ZEROES, wire.DF | wire.REQ_ONE),
                                   (wire.CACHE, wire.DF | wire.NO_HOLE),
                                   (wire.FLUSH, wire.DF | wire.NO_HOLE | wire.REQ_ONE)):
                for bit in (1 << n for n in range(5) if flags >> n & 1):
                    length = 0 if command == wire.FLUSH else 4096
                    with self.subTest(command=command, bit=bit):
                        self.fails(wire.EINVAL, client.do, command, 0, length, bit)
            self.alive(client)

    def test_errors_of_reads_are_structured(self):
        client = self.connect()
        text = b'beyond the end of the export'
        error = struct.pack('>IH', wire.EINVAL, len(text)) + text
        for offset, length in ((SIZE, 1), (SIZE - 1, 2), ((1 << 64) - 1, 1), ((1 << 64) - 4096, 8192)):
            cookie = client.request(wire.READ, offset, length)
            self.assertEqual(client.chunks(cookie), [wire.Chunk(wire.DONE, wire.CHUNK_ERROR, error)])
        self.alive(client)

    def test_past_the_end(self):
        for client in self.both():
            for offset, length in ((SIZE, 1), (SIZE - 1, 2), ((1 << 64) - 1, 1), ((1 << 64) - 100, 200), (SIZE - 5, 70000)):
                self.fails(wire.ENOSPC, client.write, offset, b'x' * length)
                self.fails(wire.ENOSPC, client.zero, offset, length)
                self.fails(wire.EINVAL, client.trim, offset, length)
                self.fails(wire.EINVAL, client.read, offset, length)
            self.assertEqual(client.read(SIZE - 5, 5), bytes(5))
            self.alive(client)

    def test_refused_payload_is_consumed(self):
        """The payload of a refused WRITE is not executed as requests."""
        payload = wire.encode_request(wire.DISC) * 10000
        for client in self.both():
            self.fails(wire.ENOSPC, client.write, SIZE - 1, payload)
            self.fails(wire.EINVAL, client.write, 0, payload, 1 << 9)
            self.alive(client)
        read_only = self.connect(self.serve(size=SIZE, read_only=True))
        self.fails(wire.EPERM, read_only.write, 0, payload)
        self.assertEqual(read_only.read(0, 10), bytes(10))

    def test_read_only(self):
        for client in self.both(read_only=True):
            self.assertTrue(client.flags & wire.READ_ONLY)
            self.fails(wire.EPERM, client.write, 0, b'x')
            self.fails(wire.EPERM, client.trim, 0, 4096)
            self.fails(wire.EPERM, client.zero, 0, 4096)
            self.assertEqual(client.read(0, 1000), bytes(1000))

    def test_oversized_payload(self):
        """A payload of up to twice the maximum is consumed, and the WRITE is refused."""
        for client in self.both():
            for length in (32 * MiB + 1, 64 * MiB):
                self.fails(wire.EINVAL, client.write, 0, b'x' * length)
            self.assertEqual(client.read(0, 32 * MiB), bytes(32 * MiB))
            client.write(0, b'x' * 32 * MiB)
            self.assertEqual(client.read(0, 32 * MiB), b'x' * 32 * MiB)
            client.trim(0, 32 * MiB)
            self.alive(client)
            client.trim(0, PAGE)

    def test_absurd_payload(self):
        """The server disconnects at longer payloads."""
        one = self.serve(size=SIZE)
        for length in (64 * MiB + 1, 1 << 31, 0xFFFFFFFF):
            client = self.connect(one)
            client.request(wire.WRITE, 0, length)
            self.assertEqual(client.rest(), b'')
        self.alive(self.connect(one))

    def test_oversized_read(self):
        for client in self.both():
            self.assertEqual(client.read(MiB, 32 * MiB), bytes(32 * MiB))
            for length in (32 * MiB + 1, 33 * MiB, SIZE):
                self.fails(wire.EINVAL, client.read, 0, length)
            if client.structured:
                self.fails(wire.EOVERFLOW, client.read, 0, 33 * MiB, wire.DF)
            self.alive(client)
            client.trim(0, PAGE)

    def test_bad_request_magic(self):
        one = self.serve(size=SIZE)
        for magic in (0, wire.SIMPLE_MAGIC, 0x12560953, wire.REQUEST_MAGIC + 1):
            client = self.connect(one)
            client.request(wire.READ, 0, 512, magic=magic)
            self.assertEqual(client.rest(), b'')
        self.alive(self.connect(one))

    def test_cookies_are_echoed(self):
        for client in self.both():
            for cookie in (0, 1, (1 << 64) - 1, 0x0123456789ABCDEF):
                client.request(wire.READ, 0, 16, cookie=cookie)
                client.read_answer(cookie, 0, 16)
                client.request(wire.FLUSH, cookie=cookie)
                client.done(cookie)
            # Clients may use the same cookie twice.
            for _ in range(2):
                client.request(wire.FLUSH, cookie=5)
            for _ in range(2):
                client.done(5)

    def test_odd_offsets_and_lengths(self):
        for client in self.both():
            plain = bytearray(SIZE)
            for n in range(300):
                offset = (n * 7919 * 97) % (SIZE - 200000)
                data = server.random_bytes(1 + n * 613 % 150000, n)
                client.write(offset, data)
                plain[offset:offset + len(data)] = data
            for offset in range(0, SIZE, 8 * MiB):
                self.assertEqual(client.read(offset, 8 * MiB), plain[offset:offset + 8 * MiB])
            for offset, length in ((1, 1), (PAGE - 1, 2), (PAGE - 1, PAGE + 2), (12345, 6 * MiB + 7)):
                self.assertEqual(client.read(offset, length), plain[offset:offset + length])
            client.trim(0, SIZE)

    def test_holes(self):
        client = self.connect()
        client.write(PAGE, b'x' * PAGE)
        chunks = client.chunks(client.request(wire.READ, 0, 4 * PAGE))
        covered = {wire.CHUNK_HOLE: 0, wire.CHUNK_DATA: 0}
        for chunk in chunks:
            if chunk.is_content:
                covered[chunk.kind] += chunk.content()[1]
        self.assertEqual(covered, {wire.CHUNK_HOLE: 3 * PAGE, wire.CHUNK_DATA: PAGE})
        for offset, length in ((0, 4 * PAGE), (PAGE - 1, 2), (2 * PAGE - 1, 2), (5, 3 * PAGE), (PAGE // 2, PAGE)):
            plain = (bytes(PAGE) + b'x' * PAGE + bytes(2 * PAGE))[offset:offset + length]
            self.assertEqual(client.read(offset, length), plain)

    def test_do_not_fragment(self):
        client = self.connect()
        client.write(PAGE - 1000, b'y' * 2000)
        plain = bytes(PAGE - 1000) + b'y' * 2000 + bytes(15 * PAGE - 1000)
        for offset, length in ((PAGE - 32768, 65536), (PAGE - 1, 2), (0, 1), (8 * PAGE, 65536), (0, 16 * PAGE)):
            chunks = client.chunks(client.request(wire.READ, offset, length, wire.DF))
            self.assertEqual([chunk.kind for chunk in chunks], [wire.CHUNK_DATA])
            self.assertEqual(chunks[0].content(), (offset, length, plain[offset:offset + length]))
        self.alive(client)

    def test_pipelined(self):
        """Many requests without reading, then all replies, in any order."""
        client = self.connect()
        sent = {client.request(wire.WRITE, n * 4096, 4096, 0, bytes([n % 251]) * 4096) for n in range(128)}
        answers = [client.simple_reply() for _ in range(128)]
        self.assertEqual({error for error, _ in answers}, {0})
        self.assertEqual(sorted(cookie for _, cookie in answers), sorted(sent))
        for n in range(128):
            self.assertEqual(client.read(n * 4096, 4096), bytes([n % 251]) * 4096)

    def test_requests_in_flight_at_disconnect(self):
        one = self.serve(size=SIZE)
        client = self.connect(one, structured=False)
        client.request(wire.WRITE, 0, 8 * MiB, 0, b'd' * 8 * MiB)
        client.request(wire.DISC)
        self.assertEqual(client.rest(), wire.encode_simple_reply(1))
        self.assertEqual(self.connect(one).read(0, 8 * MiB), b'd' * 8 * MiB)

    def test_block_status(self):
        client = self.connect()
        hole = 3
        for offset, length in ((0, SIZE), (1, SIZE - 1), (SIZE - 1, 1), (12345, 1), (0, 4096)):
            self.assertEqual(client.status(offset, length), (0, [(length, hole)]))
        client.write(2 * PAGE + 5, b'x')
        for offset, length, extents in (
                (0, SIZE, [(2 * PAGE, hole), (PAGE, 0), (SIZE - 3 * PAGE, hole)]),
                (2 * PAGE - 1, 3, [(1, hole), (2, 0)]),
                (2 * PAGE + 7, PAGE, [(PAGE - 7, 0), (7, hole)]),
                (2 * PAGE, PAGE, [(PAGE, 0)])):
            self.assertEqual(client.status(offset, length), (0, extents))
            self.assertEqual(client.status(offset, length, wire.REQ_ONE), (0, extents[:1]))
        self.fails(wire.EINVAL, client.status, SIZE, 1)
        self.fails(wire.EINVAL, client.status, 0, SIZE + 1)
        self.alive(client)


if __name__ == '__main__':
    server.main()
