"""Exports of `vulkan:N` on the driver of the CPU (lavapipe), in place and through staging memory, with validation layers."""
import os
import random

import kept
import server
import wire
from server import KiB, MiB

CONFIG = '''
listeners: {unix: [{path: '{socket}'}]}
devices:
  - id: DEVICE
    reserve: 0
    MAPPED
exports: [{name: a, size: 256M, devices: [DEVICE]}]
'''
ON_CPU = 'vulkan:0'
server.need_lavapipe()


class Vulkan(server.Test):
    def start(self, mapped, device=ON_CPU):
        text = CONFIG.replace('DEVICE', device).replace('MAPPED', '' if mapped else 'mapped: 0')
        one = self.serve(config=text, name='a')
        if os.environ['VK_INSTANCE_LAYERS']:
            self.assertIn('libVkLayer_khronos_validation', server.read_file(f'/proc/{one.process.pid}/maps'))
        return one

    def modes(self):
        for mapped in (True, False):
            with self.subTest(mapped=mapped):
                one = self.start(mapped)
                server.wait_for_text('in place' if mapped else 'not mapped (switched off)', one.log)
                yield one


class Contents(Vulkan):
    def test_random_requests(self):
        """Writes, zeroes, discards and reads of any size and alignment, compared with a model."""
        size = 8 * MiB
        for one in self.modes():
            generator, model = random.Random(7), bytearray(size)
            with wire.connect(one.path, name='a') as client:
                for _ in range(400):
                    length = min(generator.choice((1, 3, 512, 4 * KiB, 100 * KiB, MiB)) + generator.randrange(4), size)
                    at = generator.randrange(size - length + 1)
                    kind = generator.randrange(4)
                    if kind == 0:
                        data = generator.randbytes(length)
                        client.write(at, data)
                        model[at:at + length] = data
                    elif kind == 1:
                        client.zero(at, length)
                        model[at:at + length] = bytes(length)
                    else:
                        self.assertEqual(client.read(at, length), model[at:at + length], (at, length))
                client.trim(0, size)
                self.assertEqual(client.read(0, size), bytes(size))

    def test_verified_load(self):
        for one in self.modes():
            load = self.begin_load(one, 'a', '--verify', '--connections', '3', '--span', '64M', '--seconds', '2')
            self.end_load(load)


class Kept(kept.Test):
    def test_contents_outlive_the_server(self):
        for mapped in ('', 'mapped: 0'):
            keeper = self.keep(config=CONFIG.replace('DEVICE', ON_CPU).replace('MAPPED', mapped)
                               .replace('name: a,', "name: '', keep: true,"))
            with keeper.client() as client:
                client.write(0, b'kept' * MiB)
            with keeper.client() as client:  # an upgrade, which this connection does not notice
                keeper.upgrade()
                client.write(MiB, b'more' * KiB)
                self.assertEqual(client.read(0, 2 * MiB), b'kept' * (MiB // 4) + b'more' * KiB + b'kept' * (MiB // 4 - KiB))
                client.write(MiB, b'kept' * KiB)
            for _ in range(3):
                keeper.kill_and_wait()
                with keeper.client() as client:
                    self.assertEqual(client.read(0, 4 * MiB), b'kept' * MiB)
                    self.assertEqual(client.read(4 * MiB, 4 * MiB), bytes(4 * MiB))


class Names(Vulkan):
    def uuid(self):
        """Its name by UUID."""
        out = self.command(server.PROGRAM, 'devices', status=None)
        return f'vulkan:{next(line.split()[1] for line in out.splitlines() if line.startswith("  UUID"))}'

    def test_it_is_named_by_uuid(self):
        uuid = self.uuid()
        one = self.start(True, device=uuid)
        server.wait_for_text(f'256 MiB on {uuid}', one.log)

    def test_it_is_used_only_if_it_is_named(self):
        one = self.serve(config="listeners: {unix: [{path: '{socket}'}]}\nexports: [{size: 16M}]\n")
        server.wait_for_text("export '': 16 MiB on ", one.log)
        self.assertNotIn(f'on {ON_CPU}', one.log())

    def test_one_device_under_two_names_is_refused(self):
        uuid = self.uuid()
        folder = self.directory()
        path = server.write_file(os.path.join(folder, 'gpunbd.yaml'),
                                 f"listeners: {{unix: [{{path: '{folder}/socket'}}]}}\n"
                                 f'exports: [{{name: a, size: 1M, devices: [{ON_CPU}, "{uuid}"]}}]\n')
        self.command(server.PROGRAM, 'serve', '--config', path, status=1)
        self.assertIn(f'{ON_CPU} and {uuid} are the same device', self.errors)


if __name__ == '__main__':
    server.main()
