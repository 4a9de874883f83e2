"""libnbd's Python module: many requests at once, and the id of the contents of an export."""
import server
from server import MiB

nbd = server.need_libnbd()
SIZE = 64 * MiB


class Libnbd(server.Test):
    def connect(self, one, contexts=('base:allocation',)):
        handle = nbd.NBD()
        for context in contexts:
            handle.add_meta_context(context)
        handle.connect_uri(one.uri())
        self.addCleanup(handle.shutdown)
        return handle

    def test_many_at_once(self):
        """Many writes in flight, then many reads: every read returns the right data."""
        one = self.serve(size=SIZE)
        handle = self.connect(one)
        blocks = {n: server.random_bytes(1 + n * 97, n) for n in range(256)}
        for command, buffers in (('write', {}), ('read', {})):
            cookies = {}
            for n, data in blocks.items():
                if command == 'write':
                    cookies[handle.aio_pwrite(nbd.Buffer.from_bytearray(bytearray(data)), n * 50000)] = n
                else:
                    buffers[n] = nbd.Buffer(len(data))
                    cookies[handle.aio_pread(buffers[n], n * 50000)] = n
            while cookies:
                handle.poll(-1)
                for cookie in [cookie for cookie in cookies if handle.aio_command_completed(cookie)]:
                    del cookies[cookie]
        for n, data in blocks.items():
            self.assertEqual(buffers[n].to_bytearray(), data, n)

    def instance(self, one, *queries):
        """The instance contexts that LIST_META_CONTEXT returns."""
        handle = nbd.NBD()
        handle.set_opt_mode(True)
        handle.connect_uri(one.uri())
        for query in queries:
            handle.add_meta_context(query)
        listed = []
        handle.opt_list_meta_context(lambda name: listed.append(name) and 0)
        handle.opt_abort()
        return [name for name in listed if name.startswith('gpunbd:instance')]

    def test_instance(self):
        """The contents of an export have a unique id."""
        one = self.serve(size=SIZE)
        names = self.instance(one)
        self.assertEqual(len(names), 1)
        self.assertRegex(names[0], '^gpunbd:instance=[0-9a-f]{32}$')
        for queries in (['gpunbd:'], ['gpunbd:instance'], names):
            self.assertEqual(self.instance(one, *queries), names)
        other = self.instance(self.serve(size=SIZE))
        self.assertNotEqual(names, other)
        self.assertEqual(self.instance(one, *other), [])

        handle = self.connect(one, contexts=['base:allocation', *names, *other, 'gpunbd:instance'])
        self.assertTrue(handle.can_meta_context(names[0]))
        self.assertFalse(handle.can_meta_context(other[0]))
        self.assertFalse(handle.can_meta_context('gpunbd:instance'))
        handle.pwrite(b'x', 5 * server.PAGE)
        statuses = {}
        handle.block_status(SIZE - 7, 3, lambda name, offset, entries, error: statuses.setdefault(name, list(entries)) and 0)
        self.assertEqual(statuses[names[0]], [SIZE - 7, 0])
        server.wait_for_text('instance ' + names[0].removeprefix('gpunbd:instance='), one.log)


if __name__ == '__main__':
    server.main()
