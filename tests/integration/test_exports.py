"""Several exports of one server: names, sizes, layouts, and isolation."""
import json

import server
import wire
from server import MiB

CONFIG = '''
listeners:
  unix: [{path: '{socket}'}]
exports:
  - {name: plain, description: 'a plain one', size: 64M, devices: [host]}
  - {name: second, size: 96M, devices: [host], page_size: 64K}
  - {name: frozen, size: 32M, devices: [host], read_only: true}
  - {name: striped, size: 128M, devices: [host], layout: stripe, stripe_size: 4M}
  - {name: 'a/b c%', size: 8M, devices: [host], page_size: 1M}
'''


class Exports(server.Test):
    def test_exports_are_isolated(self):
        one = self.serve(config=CONFIG)
        names = ['plain', 'second', 'a/b c%']
        clients = {name: wire.connect(one.address, name) for name in names}
        for n, client in enumerate(clients.values()):
            for at in range(0, 8 * MiB, MiB):
                client.write(at + 333, bytes([n + 1]) * 300000)
        clients['second'].trim(0, 96 * MiB)
        for n, (name, client) in enumerate(clients.items()):
            expected = 0 if name == 'second' else n + 1
            for at in range(0, 8 * MiB, MiB):
                self.assertEqual(client.read(at + 333, 300000), bytes([expected]) * 300000)
            client.disconnect()

    def test_descriptions(self):
        one = self.serve(config=CONFIG)
        server.wait_for_text("export 'striped': layout: stripe has no effect on one device", one.log)
        for name, size, flag in (('plain', 64, 0), ('second', 96, 0), ('frozen', 32, wire.READ_ONLY)):
            with wire.Wire(one.address) as client:
                client.greet()
                infos = client.go(name, (wire.INFO_NAME, wire.INFO_DESCRIPTION))
                self.assertEqual(client.size, size * MiB)
                self.assertEqual(client.flags & wire.READ_ONLY, flag)
                self.assertEqual(infos[wire.INFO_NAME].decode(), name)
                if name == 'plain':
                    self.assertRegex(infos[wire.INFO_DESCRIPTION], b'^a plain one [(]instance [0-9a-f]{32}[)]$')

    def test_a_context_is_valid_for_its_export_only(self):
        one = self.serve(config=CONFIG)
        with wire.Wire(one.address) as client:
            client.greet()
            client.ask_structured()
            client.meta_context('plain', 'base:allocation')
            client.go('second')
            with self.assertRaises(wire.Failed):
                client.status(0, 4096)

    def test_page_sizes(self):
        one = self.serve(config=CONFIG)
        with wire.connect(one.address, 'second') as client:
            client.write(64 * 1024 * 3 + 5, b'x')
            _, extents = client.status(0, 96 * MiB)
            self.assertEqual(extents[:2], [(3 * 65536, 3), (65536, 0)])

    def test_list(self):
        one = self.serve(config=CONFIG)
        server.need('nbdinfo')
        listed = json.loads(self.command('nbdinfo', '--list', '--json', one.uri('')))
        self.assertEqual(sorted(export['export-name'] for export in listed['exports']),
                         ['a/b c%', 'frozen', 'plain', 'second', 'striped'])

    def test_stripe(self):
        one = self.serve(config=CONFIG)
        data = server.random_bytes(40 * MiB + 3, 8)
        with wire.connect(one.address, 'striped') as client:
            for at in range(0, len(data), 8 * MiB):
                client.write(1234567 + at, data[at:at + 8 * MiB])
            for at in range(0, len(data), 7 * MiB + 1):
                self.assertEqual(client.read(1234567 + at, min(7 * MiB + 1, len(data) - at)), data[at:at + 7 * MiB + 1])
            client.trim(0, 128 * MiB)
            self.assertEqual(client.status(0, 128 * MiB)[1], [(128 * MiB, 3)])


if __name__ == '__main__':
    server.main()
