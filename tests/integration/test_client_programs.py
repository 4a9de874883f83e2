"""Programs of libnbd and QEMU, fio, and the reference client nbd-client: data both ways, maps, flags and lists.
tests/vm tests nbd-client with the kernel."""
import json
import os
import re
import subprocess

import server
import wire
from server import MiB, PAGE

os.environ['PATH'] += ':/usr/sbin:/sbin'
SIZE = 128 * MiB  # two slabs
EXPORTS = '''
listeners: {unix: [{path: '{socket}'}]}
exports:
  - {name: one, size: 64M, devices: [host]}
  - {name: two, size: 32M, devices: [host], layout: stripe, description: 'the second, \u00fcber alles'}
'''


class Images(server.Test):
    """With an image, and the path of another one."""

    def setUp(self):
        server.need('nbdcopy', 'qemu-img')
        self.files = self.directory()
        self.image, self.back = (os.path.join(self.files, name) for name in ('image', 'back'))
        server.write_image(self.image, SIZE)


class NbdCopy(Images):
    def check(self, uri, *options):
        self.command('nbdcopy', *options, uri, self.back)
        self.assertTrue(server.same_file(self.image, self.back))
        os.unlink(self.back)

    def test_there_and_back(self):
        for options in ((), ('--connections=1', '--requests=1'), ('--connections=8', '--threads=4', '--requests=64'),
                        ('--request-size=4096', '--requests=32'), ('--request-size=33554432',), ('--synchronous',),
                        ('--allocated',), ('--flush',)):
            with self.subTest(options=options):
                one = self.serve(size=SIZE)
                self.command('nbdcopy', *options, self.image, one.uri())
                self.check(one.uri(), *options)

    def test_server_to_server(self):
        one, other = self.serve(size=SIZE), self.serve(size=SIZE)
        self.command('nbdcopy', self.image, one.uri())
        self.command('nbdcopy', '--connections=4', one.uri(), other.uri())
        self.check(other.uri())

    def test_as_child_of_nbdcopy(self):
        child = [server.PROGRAM, 'serve', '--device', 'host', '--size', SIZE]
        self.command('nbdcopy', '--', self.image, '[', *child, ']')
        self.command('nbdcopy', '--', '[', *child, ']', 'null:')
        other = self.serve(size=SIZE)
        self.command('nbdcopy', self.image, other.uri())
        self.command('nbdcopy', '--', other.uri(), '[', *child, ']')


class NbdInfo(server.Test):
    def setUp(self):
        server.need('nbdinfo')

    def test_size(self):
        for size, expected in (('512', 512), ('64M', 64 * MiB), ('1000448', 1000448), ('3G', 3072 * MiB)):
            with self.subTest(size=size):
                one = self.serve(size=size)
                self.assertEqual(self.command('nbdinfo', '--size', one.uri()), f'{expected}\n')

    def test_flags(self):
        found = json.loads(self.command('nbdinfo', '--json', self.serve().uri()))
        self.assertEqual((found['protocol'], found['TLS']), ('newstyle-fixed', False))
        export, = found['exports']
        self.assertEqual(export['export-size'], 64 * MiB)
        self.assertIn('base:allocation', export['contexts'])
        self.assertFalse(export['is_read_only'])
        self.assertFalse(export['is_rotational'])
        for can in ('cache', 'df', 'fast_zero', 'flush', 'fua', 'multi_conn', 'trim', 'zero'):
            self.assertTrue(export[f'can_{can}'], can)

    def test_map(self):
        one = self.serve()
        self.assertEqual(self.extents(one.uri()), [(0, 64 * MiB, 3)])
        wire.write_once(one.address, '', 2 * PAGE + 5, b'x')
        self.assertEqual(self.extents(one.uri()),
                         [(0, 2 * PAGE, 3), (2 * PAGE, PAGE, 0), (3 * PAGE, 64 * MiB - 3 * PAGE, 3)])

    def test_list_has_names_and_descriptions(self):
        one = self.serve(config=EXPORTS)
        listed = json.loads(self.command('nbdinfo', '--list', '--json', one.uri('')))
        contexts = [context for export in listed['exports'] for context in export['contexts']]
        prefix = 'gpunbd:instance='
        ids = [context.removeprefix(prefix) for context in contexts if context.startswith(prefix)]
        self.assertEqual([(export['export-name'], export.get('description'), export['export-size'])
                          for export in listed['exports']],
                         [('one', f'instance {ids[0]}', 64 * MiB),
                          ('two', f'the second, \u00fcber alles (instance {ids[1]})', 32 * MiB)])
        server.wait_for_text("export 'two': layout: stripe has no effect on one device", one.log)
        self.assertIn('description: the second, \u00fcber alles', self.command('nbdinfo', '--list', one.uri('')))


class NbdClient(server.Test):
    def test_list(self):
        server.need('nbd-client')
        listed = self.command('nbd-client', '-l', '-u', self.serve(config=EXPORTS).path)
        known = [re.sub('[0-9a-f]{32}', 'ID', line) for line in listed.splitlines()[1:]]
        self.assertEqual(known, ['one: instance ID', 'two: the second, \u00fcber alles (instance ID)'])


class QemuImg(Images):
    def test_convert_in_both_directions(self):
        for options in ((), ('-m', '16', '-W'), ('-S', '0'), ('-c', '-O', 'qcow2')):
            with self.subTest(options=options):
                one = self.serve(size=SIZE)
                self.command('qemu-img', 'convert', '-n', '-f', 'raw', '-O', 'raw', self.image, one.uri())
                self.command('qemu-img', 'compare', '-f', 'raw', '-F', 'raw', self.image, one.uri())
                self.command('qemu-img', 'convert', '-f', 'raw', '-O', 'raw', *options, one.uri(), self.back)
                kind = 'qcow2' if 'qcow2' in options else 'raw'
                self.command('qemu-img', 'compare', '-f', 'raw', '-F', kind, self.image, self.back)
                os.unlink(self.back)

    def test_map(self):
        one = self.serve(size=SIZE)
        self.command('qemu-img', 'convert', '-n', '-f', 'raw', '-O', 'raw', self.image, one.uri())
        parts = json.loads(self.command('qemu-img', 'map', '--output=json', '-f', 'raw', one.uri()))
        self.assertEqual(sum(part['length'] for part in parts), SIZE)
        self.assertTrue(any(part['data'] for part in parts))
        self.assertTrue(any(part['zero'] for part in parts))

    def test_a_qcow2_image_inside_of_an_export(self):
        one = self.serve(size=SIZE)
        server.write_image(self.image, 1024 * MiB, data_every=16)
        self.command('qemu-img', 'create', '-f', 'qcow2', one.uri(), '1G')
        self.command('qemu-img', 'convert', '-n', '-f', 'raw', '-O', 'qcow2', '--target-is-zero', self.image, one.uri())
        self.command('qemu-img', 'check', '-f', 'qcow2', one.uri())


class QemuIo(server.Test):
    def setUp(self):
        server.need('qemu-io')

    def io(self, one, *commands, arguments=('-d', 'unmap')):
        words = [word for command in commands for word in ('-c', command)]
        out = self.command('qemu-io', '-f', 'raw', *arguments, *words, one.uri())
        self.assertNotIn('verification failed', out.lower())
        self.assertNotIn('error', out.lower() + self.errors.lower())

    def test_patterns(self):
        one = self.serve(size='256M')
        self.io(one, 'write -P 0x11 0 64M', 'read -P 0x11 0 64M', 'read -P 0 64M 64M',
                'write -P 0x22 12345 54321', 'read -P 0x22 12345 54321', 'read -P 0x11 0 12345',
                'read -P 0x11 66666 1M', 'write -P 0x33 268435455 1', 'read -P 0x33 268435455 1', 'flush')
        self.io(one, 'read -P 0x22 12345 54321', 'read -P 0x33 268435455 1', 'read -P 0x11 66666 60M')

    def test_discard(self):
        self.io(self.serve(size='256M'), 'write -P 0x44 0 128M', 'discard 2M 64M', 'read -P 0 2M 64M',
                'read -P 0x44 0 2M', 'read -P 0x44 66M 62M', 'discard 100000000 777', 'write -P 0x55 3M 1M',
                'read -P 0x55 3M 1M', 'read -P 0 2M 1M', 'read -P 0 4M 62M')

    def test_write_zeroes(self):
        one = self.serve(size='256M')
        for flags in ('-z', '-z -u', '-z -f', '-z -u -f'):
            self.io(one, 'write -P 0x66 0 32M', f'write {flags} 1M 16M', 'read -P 0x66 0 1M', 'read -P 0 1M 16M',
                    'read -P 0x66 17M 15M', f'write {flags} 20M 512', 'read -P 0 20M 512', 'read -P 0x66 20971008 512')
        out = self.command('qemu-io', '-f', 'raw', '-d', 'unmap', '-c', 'write -z -n 0 32M', one.uri(), status=None)
        self.assertTrue(self.status == 0 or 'not supported' in (out + self.errors).lower(), out + self.errors)

    def test_read_only(self):
        one = self.serve(size='64M', read_only=True)
        self.io(one, 'read -P 0 0 64M', arguments=('-r',))
        out = self.command('qemu-io', '-f', 'raw', '-c', 'write 0 512', one.uri(), status=1)
        self.assertRegex(out + self.errors, '(?i)read-only|permission denied')


class Fio(server.Test):
    def fio(self, *options):
        server.need('fio')
        engines = subprocess.run(['fio', '--enghelp'], capture_output=True, text=True, check=False).stdout.split()
        if 'nbd' not in engines:
            server.skip('this fio has no nbd engine')
        one = self.serve(size='256M')
        self.command('fio', '--ioengine=nbd', f'--uri={one.uri()}', '--name=jobs', '--iodepth=16', *options,
                     cwd=self.directory())

    def test_several_jobs(self):
        self.fio('--rw=randrw', '--bsrange=512-256k', '--bs_unaligned=1', '--numjobs=4', '--size=64M',
                 '--offset_increment=64M', '--verify=crc32c', '--verify_fatal=1', '--group_reporting', '--randrepeat=1')

    def test_trims(self):
        """Several jobs mix trims, reads and writes without errors."""
        self.fio('--rw=randtrimwrite', '--bs=64k', '--numjobs=2', '--size=128M', '--offset_increment=128M')


if __name__ == '__main__':
    server.main()
