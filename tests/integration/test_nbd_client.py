"""The reference client nbd-client lists exports. tests/vm tests it with the kernel."""
import re
import os

import server

os.environ['PATH'] += ':/usr/sbin:/sbin'
server.need('nbd-client')


class NbdClient(server.Test):
    def test_list_several(self):
        one = self.serve(config='''
listeners: {unix: [{path: '{socket}'}]}
exports:
  - {name: one, size: 64M, devices: [host]}
  - {name: two, size: 64M, devices: [host], description: 'the second'}
  - {name: 'mit Umlaut \\u00fc', size: 64M, devices: [host]}
'''.encode().decode('unicode_escape'))
        listed = self.command('nbd-client', '-l', '-u', one.path)
        known = [re.sub('[0-9a-f]{32}', 'ID', line) for line in listed.splitlines()[1:]]
        self.assertEqual(known, ['one: instance ID', 'two: the second (instance ID)', 'mit Umlaut \u00fc: instance ID'])


if __name__ == '__main__':
    server.main()
