"""Tests of exports with an origin: reads that are compared with what it has, commands, and figures."""
import json
import random

import admin
import server
from server import MiB


class Test(admin.Commands, server.Test):
    """`one` is the server, and `contents` what the export has."""

    def file(self):
        """The contents of the file of the origin, at `path`."""
        return server.read_file(self.path, 'rb')

    def exported(self):
        """The first export, which has the origin."""
        return json.loads(self.gpunbd('status', '--json'))['exports'][0]

    def origin_status(self):
        return self.exported()['origins'][0]

    def check_reads(self, client, seed, count=200):
        choice = random.Random(seed)
        size = len(self.contents)
        for _ in range(count):
            offset = choice.randrange(size - 1)
            length = min(choice.choice((1, 4096, 65536, 3 * MiB)), size - offset)
            self.assertEqual(client.read(offset, length), self.contents[offset:offset + length], (offset, length))
