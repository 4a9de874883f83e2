"""The output of nbdinfo: size, flags, list and map, as text and as JSON, over Unix sockets and TCP."""
import json

import server
import wire
from server import MiB, PAGE

server.need('nbdinfo')


class NbdInfo(server.Test):
    def export(self, one, name='', **options):
        parsed = json.loads(self.command('nbdinfo', '--json', *options.pop('arguments', ()), one.uri(name)))
        self.assertEqual(parsed['protocol'], 'newstyle-fixed')
        self.assertFalse(parsed['TLS'])
        return parsed['exports'][0]

    def test_size(self):
        for size, expected in (('512', 512), ('64M', 64 * MiB), ('1000448', 1000448), ('3G', 3072 * MiB)):
            with self.subTest(size=size):
                one = self.serve(size=size)
                self.assertEqual(self.command('nbdinfo', '--size', one.uri()), f'{expected}\n')

    def test_flags(self):
        export = self.export(self.serve())
        self.assertEqual(export['export-size'], 64 * MiB)
        self.assertIn('base:allocation', export['contexts'])
        self.assertFalse(export['is_read_only'])
        self.assertFalse(export['is_rotational'])
        for can in ('cache', 'df', 'fast_zero', 'flush', 'fua', 'multi_conn', 'trim', 'zero'):
            self.assertTrue(export[f'can_{can}'], can)

    def test_map(self):
        one = self.serve()
        totals = json.loads(self.command('nbdinfo', '--map', '--json', one.uri()))
        self.assertEqual([(part['offset'], part['length'], part['type']) for part in totals], [(0, 64 * MiB, 3)])
        wire.write_once(one.address, '', 2 * PAGE + 5, b'x')
        parts = json.loads(self.command('nbdinfo', '--map', '--json', one.uri()))
        self.assertEqual([(part['offset'], part['length'], part['type']) for part in parts],
                         [(0, 2 * PAGE, 3), (2 * PAGE, PAGE, 0), (3 * PAGE, 64 * MiB - 3 * PAGE, 3)])

    def test_list_has_names_and_descriptions(self):
        one = self.serve(config='''
listeners: {unix: [{path: '{socket}'}]}
exports:
  - {name: one, size: 64M, devices: [host]}
  - {name: two, size: 32M, devices: [host], layout: stripe, description: 'the second, \u00fcber alles'}
''')
        listed = json.loads(self.command('nbdinfo', '--list', '--json', one.uri('')))
        ids = [context.removeprefix('gpunbd:instance=') for export in listed['exports'] for context in export['contexts']
               if context.startswith('gpunbd:instance=')]
        self.assertEqual([(export['export-name'], export.get('description'), export['export-size'])
                          for export in listed['exports']],
                         [('one', f'instance {ids[0]}', 64 * MiB),
                          ('two', f'the second, \u00fcber alles (instance {ids[1]})', 32 * MiB)])
        server.wait_for_text("export 'two': layout: stripe has no effect on one device", one.log)
        self.assertIn('description: the second, \u00fcber alles', self.command('nbdinfo', '--list', one.uri('')))


if __name__ == '__main__':
    server.main()
