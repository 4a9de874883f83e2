"""Exports that are clones of others (clone_of), and what has changed since (gpunbd:dirty)."""
import json

import server
import wire
from server import PAGE

CONFIG = '''
listeners: {unix: [{path: '{socket}'}]}
admin: {socket: none}
exports:
  - {name: image, size: 16M, devices: [{device}]}
  - {name: node1, clone_of: image}
  - {name: before, clone_of: image, read_only: true}
  - {name: hidden, clone_of: image, access: [{uid: 12345}]}
  - {name: other, size: 16M, devices: [{device}]}
'''


class Clones(server.Test):
    def write(self, one, name, *pieces):
        with wire.connect(one.address, name) as client:
            for offset, data in pieces:
                client.write(offset, data)

    def changed(self, one, name, snapshot):
        extents = self.extents(one.uri(name), f'--map=gpunbd:dirty/{snapshot}')
        return [(offset, length) for offset, length, kind in extents if kind == 1]

    def test_changed_pages(self):
        server.need('nbdinfo')
        one = self.serve(config=CONFIG)
        self.assertEqual(self.changed(one, 'image', 'before'), [])
        self.write(one, 'image', (PAGE, b'x'), (3 * PAGE - 1, b'yz'))
        self.assertEqual(self.changed(one, 'image', 'before'), [(PAGE, 3 * PAGE)])
        self.assertEqual(self.changed(one, 'node1', 'before'), [])
        self.assertEqual(self.changed(one, 'node1', 'image'), [(PAGE, 3 * PAGE)])
        listed = json.loads(self.command('nbdinfo', '--json', one.uri('image')))['exports'][0]['contexts']
        self.assertEqual([each for each in listed if each.startswith('gpunbd:dirty')],
                         ['gpunbd:dirty/node1', 'gpunbd:dirty/before'])
        for other in ('hidden', 'other', 'image', 'missing'):
            self.command('nbdinfo', f'--map=gpunbd:dirty/{other}', one.uri('image'), status=1)

    def test_configuration_errors(self):
        for exports, problem in (
                ('[{name: a, clone_of: b, read_only: true}, {name: b, size: 1M, devices: [host]}]',
                 "exports[0].clone_of: 'b' is no export above this one"),
                ('[{name: b, size: 1M, devices: [host]}, {name: a, clone_of: b, layout: stripe}]',
                 'exports[1].layout: a clone has what its source has'),
                ('[{name: b, size: 1M, devices: [host], keep: true}, {name: a, clone_of: b}]',
                 "exports[1].clone_of: the export 'b' has keep, so its clone needs it too; add keep: true here"),
                ('[{name: b, size: 1M, devices: [host]}, {name: a, clone_of: b, keep: true}]',
                 "exports[1].clone_of: the export 'b' has no keep, so its clone cannot have it")):
            with self.subTest(problem=problem):
                self.check_finds(problem, f'exports: {exports}\n')


if __name__ == '__main__':
    server.main()
