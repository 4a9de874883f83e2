"""Tests of exports with an origin: reads that are compared with what it has, commands, and figures."""
import json
import random

import admin
import server
from server import MiB


def waiting_nbdkit(path, size, readable, waits='true', read=None):
    """Words of nbdkit for a writable export of the file. Reads wait until `readable` exists, if the shell's condition
    `waits` is true: their offset is $4. `read`: instead of the file's data."""
    read = read or f'dd if={path} iflag=skip_bytes,count_bytes skip=$4 count=$3 bs=64K status=none'
    return ('eval', f'get_size=echo {size}', 'thread_model=echo parallel', 'can_write=exit 0', 'can_flush=exit 0', 'flush=exit 0',
            f'pread=! {{ {waits}; }} || until test -e {readable} -o ! -e {path}; do sleep 0.01; done; {read}',
            f'pwrite=dd of={path} oflag=seek_bytes seek=$4 bs=64K conv=notrunc status=none')


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
