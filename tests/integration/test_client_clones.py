"""Exports with clone_per_client: each client gets a clone of one base, and finds it again."""
import concurrent.futures
import os
import random
import re
import socket

import admin
import kept
import server
import test_tls as tls
import wire
from server import MiB, PAGE

SIZE, LARGER = 8 * MiB, 12 * MiB
CONFIG = '''
listeners:
  unix: [{path: '{socket}'}]
  tcp: [{address: 127.0.0.1, port: PORT}]
admin: {socket: '{directory}/admin'}
exports:
  - {name: image, size: 8M, devices: [{device}]}
  - {name: node, clone_per_client: {of: image, size: 12M, name: KIND, max: 40}}
'''


class ClientClones(admin.Commands, server.Test):
    def start(self, kind, text=CONFIG):
        self.port = server.free_port()
        self.text = text.replace('KIND', kind).replace('PORT', str(self.port))
        self.one = self.serve(config=self.text)

    def from_address(self, address):
        """A connected socket of a client with this address."""
        client = socket.create_connection(('127.0.0.1', self.port), 30, (address, 0))
        self.addCleanup(client.close)
        return client

    def refused(self, address, name):
        """The type of the error reply."""
        with wire.Wire(address) as client, self.assertRaises(wire.Refused) as caught:
            client.greet()
            client.go(name)
        return caught.exception.args[0]


class Nodes(ClientClones):
    def test_twenty_nodes_from_one_base(self):
        """Each reads the image, and writes its own changes, over two connections at once."""
        nbd = server.need_libnbd()
        self.start('machine')
        image = server.random_bytes(SIZE, 1)
        base = f'{self.one.directory}/base'
        server.write_file(base, image)
        self.command('nbdcopy', base, self.one.uri('image'))

        def node(number):
            handles = [nbd.NBD(), nbd.NBD()]
            for handle in handles:
                handle.connect_uri(f'nbd://127.0.0.1:{self.port}/node/{number}')
            expected = bytearray(image) + bytes(LARGER - SIZE)
            dice = random.Random(number)
            for page in dice.sample((0, 2, 5), dice.randrange(4)):  # 5 is beyond the end of the image
                offset, data = page * PAGE + dice.randrange(PAGE - MiB), dice.randbytes(dice.randrange(1, MiB))
                handles[0].pwrite(data, offset)
                expected[offset:offset + len(data)] = data
                self.assertEqual(handles[1].pread(len(data), offset), data)
            self.assertEqual(handles[1].get_size(), LARGER)
            self.assertEqual(handles[1].pread(LARGER, 0), expected)
            for handle in handles:
                handle.shutdown()
            return bytes(expected)

        with concurrent.futures.ThreadPoolExecutor(20) as threads:
            contents = list(threads.map(node, range(20)))
        exports = self.exports()
        self.assertEqual(set(exports), {'image', *(f'node/{number}' for number in range(20))})
        original, written = image + bytes(LARGER - SIZE), 0
        for number, expected in enumerate(contents):
            name = f'node/{number}'
            with wire.connect(self.one.path, name) as client:  # a later connection finds the same clone
                self.assertEqual(client.read(0, LARGER), expected)
            changed = [at for at in range(0, LARGER, PAGE) if expected[at:at + PAGE] != original[at:at + PAGE]]
            self.assertEqual(exports[name]['own'], len(changed) * PAGE)
            self.assertEqual(exports[name]['clone_of'], 'image')
            written += len(changed) * PAGE
        # All memory of the device is that of the image and of the written pages, in slabs.
        self.assertLess(self.devices()[0]['allocated'], SIZE + written + 16 * MiB)
        self.command('nbdcopy', self.one.uri('image'), f'{base}-after')
        self.assertTrue(server.same_file(base, f'{base}-after'))

    def test_many_connections_of_one_node_reach_the_same_clone(self):
        self.start('machine')
        with concurrent.futures.ThreadPoolExecutor(16) as threads:
            clients = list(threads.map(lambda _: wire.connect(self.one.path, 'node/one'), range(16)))
        for number, client in enumerate(clients):
            client.write(number, b'x')
        self.assertEqual(clients[0].read(0, 17), 16 * b'x' + b'\0')
        for client in clients:
            client.close()
        self.assertEqual(set(self.exports()), {'image', 'node/one'})


class Identity(ClientClones):
    def test_access_rules_apply_to_the_clones(self):
        rules = 'access: [{uid: UID}, {network: 127.0.0.2}, {network: 127.0.0.0/24, mode: read-only}], clone_per_client'
        self.start('address', CONFIG.replace('clone_per_client', rules.replace('UID', str(os.getuid()))))
        wire.write_once(self.from_address('127.0.0.2'), 'node', 0, b'data')
        self.assertEqual(self.refused(self.from_address('127.0.1.1'), 'node'), wire.ERR_UNKNOWN)
        with wire.connect(self.from_address('127.0.0.3'), 'node') as client, self.assertRaises(wire.Failed):
            client.write(0, b'x')
        self.assertEqual(wire.read_once(self.one.path, 'node/127.0.0.2', 0, 4), b'data')  # the local user
        # A reload with other rules.
        with wire.connect(self.from_address('127.0.0.2'), 'node') as client:
            self.one.reload(self.text.replace('127.0.0.2', '127.0.0.9'))
            with self.assertRaises(wire.Failed):
                wire.write_once(self.from_address('127.0.0.2'), 'node', 0, b'x')
            with self.assertRaises((wire.Closed, ConnectionError)):
                client.read(0, 1)
        self.one.reload(self.text.replace('127.0.0.', '127.0.9.'))
        self.assertEqual(self.refused(self.from_address('127.0.0.2'), 'node/127.0.0.2'), wire.ERR_UNKNOWN)

    def test_certificates(self):
        nbd = server.need_libnbd()
        folder = tls.make_folder(f'{self.directory()}/pki')
        for name in ('node-1', 'node-2'):
            os.mkdir(f'{folder}/{name}')
            os.symlink(f'{folder}/ca-cert.pem', f'{folder}/{name}/ca-cert.pem')
            tls.make_certificate(folder, 'client', name.upper(), into=f'{folder}/{name}')
        self.start('tls_name', f'tls: {{certificates: {folder}}}\n' + CONFIG)

        def connect(name, export='node'):
            handle = nbd.NBD()
            handle.set_tls(nbd.TLS_REQUIRE)
            handle.set_tls_certificates(f'{folder}/{name}')
            handle.set_export_name(export)
            handle.connect_tcp('127.0.0.1', str(self.port))
            self.addCleanup(handle.shutdown)
            return handle

        connect('node-1').pwrite(b'one', 0)
        connect('node-2').pwrite(b'two', 0)
        self.assertEqual(connect('node-1').pread(3, 0), b'one')
        self.assertEqual(set(self.exports()), {'image', 'node/node-1', 'node/node-2'})
        with self.assertRaises(nbd.Error):
            connect('node-2', 'node/node-1')


class Limits(ClientClones):
    def test_no_more_than_the_maximum(self):
        self.start('machine', CONFIG.replace('max: 40', 'max: 2'))
        for name in ('node/a', 'node/b'):
            wire.write_once(self.one.path, name, 0, name.encode())
        self.assertEqual(self.refused(self.one.path, 'node/c'), wire.ERR_POLICY)
        server.wait_for_text("export 'node': no clone for 'c': there are 2 clones; raise clone_per_client.max, or remove "
                             'unused ones by gpunbd export remove', self.one.log)
        self.assertEqual(wire.read_once(self.one.path, 'node/b', 0, 6), b'node/b')
        server.wait_until(lambda: self.exports()['node/a']['connections'] == 0, 60, 'the end of its connection')
        self.export('remove', 'node/a')
        wire.write_once(self.one.path, 'node/c', 0, b'c')
        self.assertEqual(self.refused(self.one.path, 'node/a'), wire.ERR_POLICY)
        self.one.reload(self.text.replace('max: 2', 'max: 3'))
        self.assertEqual(wire.read_once(self.one.path, 'node/a', 0, 6), bytes(6))
        self.assertEqual(wire.read_once(self.one.path, 'node/c', 0, 1), b'c')

    def test_no_more_for_a_peer_than_its_maximum(self):
        self.start('machine', CONFIG.replace('max: 40', 'max_per_peer: 1'))
        wire.write_once(self.from_address('127.0.0.1'), 'node/a', 0, b'x')
        self.assertEqual(self.exports()['image']['templates'], [{'name': 'node', 'clones': 1, 'max': 200}])
        self.assertRegex(self.export('list'), r"(?m)^'image' .* base of 'node' \(1 of 200 clones\)$")
        self.assertIn('node makes a clone of image for each client: 1 of 200\n', self.gpunbd('status'))
        self.assertEqual(self.refused(self.from_address('127.0.0.1'), 'node/b'), wire.ERR_POLICY)
        self.assertEqual(wire.read_once(self.from_address('127.0.0.1'), 'node/a', 0, 1), b'x')
        wire.write_once(self.from_address('127.0.0.2'), 'node/b', 0, b'x')

    def test_a_clone_that_cannot_be_made(self):
        self.start('machine')
        self.export('resize', 'image', '64M')
        self.assertEqual(self.refused(self.one.path, 'node/a'), wire.ERR_POLICY)
        server.wait_for_text("it cannot be a clone of 'image': its size of 12582912 bytes is less than", self.one.log)
        self.assertEqual(set(self.exports()), {'image'})


class Changes(ClientClones):
    def test_clones_outlive_their_base_and_their_template(self):
        self.start('machine')
        wire.write_once(self.one.path, 'image', 0, b'base')
        wire.write_once(self.one.path, 'node/a', PAGE, b'own')
        self.one.reload(re.sub(r'  - \{name: node.*\n', '', self.text).replace('name: image', 'name: next'))
        self.assertEqual(wire.read_once(self.one.path, 'node/a', 0, 4), b'base')
        self.assertEqual(wire.read_once(self.one.path, 'node/a', PAGE, 3), b'own')
        self.assertEqual(self.refused(self.one.path, 'node/b'), wire.ERR_UNKNOWN)
        # With another base, later clones are of that one.
        wire.write_once(self.one.path, 'next', 0, b'NEXT')
        self.one.reload(self.text.replace('image', 'next'))
        self.assertEqual(wire.read_once(self.one.path, 'node/b', 0, 4), b'NEXT')
        self.assertEqual(wire.read_once(self.one.path, 'node/a', 0, 4), b'base')
        self.export('create', 'new', '--size', '1M', '--device', server.DEVICE)

    def test_a_template_that_is_created_at_run_time(self):
        self.start('machine', CONFIG.replace('  - {name: node', '  # {name: node'))
        create = ('create', 'node', '--clone-per-client-of')
        self.export(*create, 'missing', status=1)
        self.assertIn("'missing' is no export above this one", self.errors)
        self.export(*create, 'image', '--clone-per-client-size', '1M', status=1)
        self.assertIn("a clone of 'image' cannot be smaller; use at least 8M", self.errors)
        self.export(*create, 'image', '--clone-per-client-name', 'machine')
        wire.write_once(self.one.path, 'node/a', 0, b'x')
        self.export('create', 'other', '--size', '1M', '--device', server.DEVICE)
        self.assertIn('removed. Its clones stay.', self.export('remove', 'node'))
        self.assertEqual(self.refused(self.one.path, 'node/b'), wire.ERR_UNKNOWN)
        self.assertEqual(wire.read_once(self.one.path, 'node/a', 0, 1), b'x')
        self.export('remove', 'node', status=1)
        self.export('create', 'again', '--clone-per-client-of', 'other', '--clone-per-client-name', 'machine')
        self.export('remove', 'other', status=1)
        self.assertIn("export 'again' makes clones of it; remove that one first", self.errors)


class Kept(ClientClones, kept.Test):
    def start(self, kind, text=CONFIG.replace('devices: [{device}]', 'devices: [{device}], keep: true')):
        self.port = server.free_port()
        self.text = text.replace('KIND', kind).replace('PORT', str(self.port)).replace('max: 40', 'max_per_peer: 2')
        self.one = self.keep(config=self.text)

    def test_clones_of_a_kept_base_survive_all_ends_of_the_server(self):
        self.start('machine')
        wire.write_once(self.one.path, 'image', 0, b'base')
        for name in 'ab':
            wire.write_once(self.one.path, f'node/{name}', LARGER - 1, name.encode())
        for end in (self.one.kill_and_wait, self.one.upgrade, self.one.kill_and_wait):
            end()
            for name in 'ab':
                self.assertEqual(wire.read_once(self.one.path, f'node/{name}', 0, 4), b'base')
                self.assertEqual(wire.read_once(self.one.path, f'node/{name}', LARGER - 1, 1), name.encode())
            self.assertEqual(self.refused(self.one.path, 'node/c'), wire.ERR_POLICY)  # max_per_peer
            found = self.exports()['node/a']
            self.assertEqual([found[key] for key in ('clone_of', 'keep', 'run_time')], ['image', True, True])
        # They follow their template at the start as well.
        self.one.configure(self.text.replace('max_per_peer: 2}', 'max_per_peer: 3}, rates: {iops: 77}'))
        self.one.kill_and_wait()
        self.assertEqual(self.exports()['node/a']['rates']['iops'], 77)
        self.assertEqual(wire.read_once(self.one.path, 'node/c', 0, 4), b'base')
        # After its clone was removed, a client gets the base again.
        self.export('remove', 'node/a')
        self.assertEqual(wire.read_once(self.one.path, 'node/a', LARGER - 1, 1), bytes(1))
        self.one.kill_and_wait()
        self.assertEqual(wire.read_once(self.one.path, 'node/a', 0, 4), b'base')


class Configuration(server.Test):
    def test_errors(self):
        image = '{name: image, size: 8M, devices: [{device}]}'
        for exports, problem in (
                ('{name: n, clone_per_client: {of: image}}, ' + image,
                 "3:39: exports[0].clone_per_client: 'image' is no export above this one"),
                (image + ', {name: n, clone_per_client: {of: image, size: 4M}}',
                 "exports[1].clone_per_client: a clone of 'image' cannot be smaller; use at least 8M"),
                (image + ', {name: n, clone_per_client: {of: image, name: tls_name}}',
                 'exports[1].clone_per_client: tls_name needs verified client certificates'),
                (image + ', {name: n, clone_per_client: {of: image, name: mac}}',
                 "exports[1].clone_per_client.name: 'mac' is none of tls_name, address or machine"),
                (image + ', {name: n, clone_per_client: {of: image}}, {name: m, clone_of: n}',
                 "exports[2].clone_of: the export 'n' has clone_per_client and therefore no contents; write 'image'"),
                (image + ', {name: n, size: 8M, clone_per_client: {of: image}}',
                 'exports[1].size: has no effect with clone_per_client; leave it out'),
                (image + ', {clone_per_client: {of: image}}', 'exports[1].clone_per_client: needs a name of the export'),
                (image + ', {name: n, clone_per_client: {size: 8M}}', 'exports[1].clone_per_client.of: is missing'),
                (image + ', {name: n, clone_per_client: {of: image, max: 0}}', 'exports[1].clone_per_client.max: '),
                (image + ', {name: n, clone_per_client: {of: image, size: 8193K}, block_size: {minimum: 64K}}',
                 'exports[1].clone_per_client: 8193K is not a multiple of block_size.minimum (64K)'),
                (image + ', {name: n, clone_of: image, size: 4M}',
                 "exports[1].clone_of: a clone of 'image' cannot be smaller"),
                (image + ', {name: n, clone_of: image, size: 50%}',
                 'exports[1].size: a share has no meaning for a clone')):
            with self.subTest(problem=problem):
                self.check_finds(problem, f'\n\nexports: [{exports}]\n')


if __name__ == '__main__':
    server.main()
