"""Memory is given back to other programs while clients use the exports: pages move to a spill file and return."""
import json
import os

import admin
import server
import wire

MiB = server.MiB
CONFIG = '''
listeners: {unix: [{path: '{socket}'}]}
admin: {socket: '{directory}/admin'}
devices:
  - id: {device}
    spill: [{file: '{directory}/spill', size: SIZE}]
exports: [{name: a, size: 640M, devices: [{device}]}]
'''
FULL = CONFIG.replace('SIZE', '640M')


class Reclaim(admin.Commands, server.Test):
    def start(self, text=FULL):
        self.one = self.serve(config=text, name='a')

    def reclaim(self, *words, status=0):
        return self.gpunbd('reclaim', *words, status=status)

    def device(self, name=server.DEVICE):
        return next(each for each in self.devices() if each['id'].startswith(name))

    def fill(self, megabytes):
        with wire.connect(self.one.path, name='a') as client:
            for at in range(0, megabytes * MiB, 16 * MiB):
                client.write(at, b''.join(at.to_bytes(8, 'big') * (MiB // 8) for at in range(at, at + 16 * MiB, MiB)))

    def check(self, megabytes):
        with wire.connect(self.one.path, name='a') as client:
            for at in range(0, megabytes * MiB, MiB):
                self.assertEqual(client.read(at, MiB), at.to_bytes(8, 'big') * (MiB // 8), at)


class UnderLoad(Reclaim):
    def test_300_mib_leave_and_return_under_verified_load(self):
        self.start()
        self.fill(640)
        load = self.begin_load(self.one, 'a', '--verify', '--connections', '2', '--offset', str(320 * MiB),
                               '--seconds', '3')
        for _ in range(2):
            before, resident = self.device(), self.one.memory()
            if before['limit'] is not None:
                self.skipTest('this machine is short of memory, so the server moves pages by itself')
            self.assertIn('of pages moved to file:', self.reclaim(server.DEVICE, '300M'))
            after = self.device()
            self.assertLessEqual(after['allocated'], before['allocated'] - 300 * MiB)
            if server.DEVICE == 'host':  # other devices copy through staging memory of their own
                self.assertLessEqual(self.one.memory(), resident - 280 * MiB)
            self.assertEqual(after['limit'], before['allocated'] - 300 * MiB)
            self.assertIn(f'of pages moved to {server.DEVICE}', self.reclaim(server.DEVICE, '--end'))
            self.assertIsNone(self.device()['limit'])
        self.end_load(load)
        self.reclaim('--end')  # those that were being written
        self.assertEqual(self.device()['spilled'], 0)
        self.check(320)  # the rest is what the load wrote


class Command(Reclaim):
    def test_what_it_prints_and_what_it_refuses(self):
        self.start()
        self.fill(128)
        done = json.loads(self.reclaim('--all', '--json'))['reclaimed']
        self.assertEqual(len(done), 1)
        self.assertEqual([done[0]['device'], done[0]['wanted'], done[0]['released'], done[0]['why_not']],
                         [server.DEVICE, 128 * MiB, 128 * MiB, None])
        self.assertEqual(done[0]['moved'], [{'device': f'file:{self.one.directory}/spill', 'bytes': 128 * MiB}])
        self.assertEqual(self.device()['used'], 0)
        self.assertEqual(self.device('file')['used'], 128 * MiB)
        status = self.gpunbd('status')
        self.assertIn('(128 MiB moved elsewhere) (limited to 0 bytes)', status)
        self.check(128)
        self.logged('gave back 128 MiB of 128 MiB', self.one)
        self.reclaim('cuda:7', '1G', status=1)
        self.assertIn("'cuda:7' has no spill memory, or no export uses it; the devices that have are " + server.DEVICE, self.errors)

    def test_memory_that_cannot_be_moved_is_an_error_with_the_amount(self):
        self.start(CONFIG.replace('SIZE', '64M'))
        self.fill(256)
        self.assertIn('64 MiB given back', self.reclaim(server.DEVICE, '192M', status=1))
        self.assertIn(f'{server.DEVICE}: 128 MiB could not be given back: there is no memory left for its pages', self.errors)
        self.check(256)

    def test_it_ends_after_the_given_time_and_leaves_other_claims(self):
        self.start()
        self.fill(128)
        self.assertIn('until gpunbd reclaim 1 --end;', self.reclaim(server.DEVICE, '64M'))
        self.reclaim(server.DEVICE, '64M', '--for', '1')
        status = self.gpunbd('status')
        self.assertIn(f'claim 1 on {server.DEVICE}: 64 MiB given back, 64 MiB asked, by ', status)
        server.wait_until(lambda: self.device()['limit'] == 64 * MiB and self.device()['used'] == 64 * MiB, 20,
                          'pages of the second claim to return')
        self.assertEqual([each['id'] for each in self.device()['claims']], [1])
        self.reclaim('1', '--end')
        self.assertEqual((self.device()['limit'], self.device()['used']), (None, 128 * MiB))
        self.reclaim('1', '--end', status=1)
        self.assertIn('there is no claim 1; gpunbd status lists them', self.errors)


class Limits(Reclaim):
    def test_what_is_written_while_memory_is_given_back_goes_to_the_spill_file(self):
        self.start()
        self.fill(64)
        self.reclaim('--all')
        self.fill(192)
        self.assertEqual(self.device()['used'], 0)
        self.check(192)
        with wire.connect(self.one.path, name='a') as client:
            client.trim(0, 128 * MiB)
        server.wait_until(lambda: self.device('file')['used'] == 64 * MiB, 10, 'TRIM to free pages of the file')
        self.reclaim('--end')
        self.assertEqual(self.device()['used'], 64 * MiB)

    def test_keep_free_makes_pages_leave_and_lets_them_return(self):
        """The limit of the server is more than this machine can have free, so all pages leave."""
        self.start(FULL.replace('id: {device}', 'id: {device}\n    keep_free: 1000T'))
        self.fill(128)
        server.wait_until(lambda: self.device()['used'] == 0, 20, 'all pages to leave')
        self.one.reload(FULL.replace('id: {device}', 'id: {device}\n    keep_free: 64K'))
        server.wait_until(lambda: self.device()['used'] == 128 * MiB, 30, 'pages to return')
        self.check(128)

    def test_the_rate_limits_what_returns(self):
        self.start(FULL.replace('id: {device}', 'id: {device}\n    reclaim_rate: 64M'))
        self.fill(128)
        self.reclaim('--all')
        back = json.loads(self.reclaim('--end', '--json'))['reclaimed'][0]
        self.assertGreater(back['seconds'], 1.5)
        self.check(128)

    def test_a_reload_grows_spill_memory_and_does_not_take_it_from_pages(self):
        small = CONFIG.replace('SIZE', '128M')
        self.start(small)
        self.fill(128)
        self.reclaim('--all')
        none = small.replace("spill: [{file: '{directory}/spill', size: 128M}]", 'reserve: 64M')
        log = self.one.reload(none)
        self.assertIn(f'cannot be removed: it holds 128 MiB; run gpunbd reclaim {server.DEVICE} --end first', log)
        self.assertIn('the configuration is unchanged', log)
        self.check(128)
        self.reclaim('--end')
        self.one.reload(none)
        self.reclaim('--all', status=1)
        self.assertIn('there is no memory left for its pages', self.errors)

    def test_a_reload_adds_spill_memory_below_a_client(self):
        spill = "spill: [{file: '{directory}/spill', size: 640M}]"
        self.start(FULL.replace(spill, 'reserve: 64M'))
        data = {at: os.urandom(MiB) for at in range(0, 32 * MiB, MiB)}
        with wire.connect(self.one.path, name='a') as client:
            for at, its in data.items():
                client.write(at, its)
            self.reclaim('--all', status=1)
            self.assertIn('no device of an export has spill memory', self.errors)
            missing = self.one.reload(FULL.replace('/spill', '/no/such/folder'))
            self.assertIn('/no/such/folder', missing)
            self.assertIn('the configuration is unchanged', missing)
            self.one.reload(FULL.replace(spill, f'reserve: 64M, {spill}').replace(', spill:', '\n    spill:'))
            done = json.loads(self.reclaim('--all', '--json'))['reclaimed'][0]
            self.assertEqual([each['bytes'] for each in done['moved']], [32 * MiB])
            self.assertEqual(self.device()['used'], 0)
            for at, its in data.items():
                self.assertEqual(client.read(at, MiB), its)
            client.write(MiB, data[0])
            self.assertEqual(client.read(MiB, MiB), data[0])
            self.reclaim('--end')
            self.assertEqual(self.device()['used'], 32 * MiB)
            self.assertEqual(client.read(0, MiB), data[0])


class Refusals(Reclaim):
    def refuse(self, text, expected, status):
        process = server.Process()
        process.configure(text)
        self.command(server.PROGRAM, 'serve', '--config', process.config_path, status=status, seconds=60)
        self.assertIn(expected, self.errors)

    def test_configurations_that_cannot_work(self):
        self.refuse(FULL.replace('devices: [{device}]', "devices: ['file:/tmp/x']"),
                    "exports[0].devices[0]: 'file:/tmp/x' can only take the pages of another device", 2)
        self.refuse(FULL.replace('/spill', '/no/such/folder'), '/no/such/folder', 1)

    def test_kept_contents_do_not_spill_to_a_file(self):
        keeping = server.Process()
        keeping.configure(FULL.replace('name: a', 'name: a, keep: true'))
        keeping.start([server.PROGRAM, 'keep', 'serve', '--config', keeping.config_path])
        self.addCleanup(keeping.process.wait)
        self.addCleanup(keeping.process.kill)
        server.wait_for_text('remove keep, or that spill of its device', keeping.log, 30)


if __name__ == '__main__':
    server.main()
