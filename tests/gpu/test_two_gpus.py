"""Two GPUs as one export: striped and linear, thin and full; and a GPU together with host memory."""
import os
import shlex
import sys

import gpu
import kept
import server
import wire
from server import MiB

sys.path.append(os.path.join(server.ROOT, 'tests/vm'))
import recipe  # noqa: E402

DEVICES = gpu.devices(2)
SIZE = gpu.SIZE


class TwoGpus(gpu.Test):
    def one_export(self, size=SIZE, **options):
        return self.serve(config=gpu.config({'': {'devices': DEVICES, 'size': size, **options}}))

    def test_stripe(self):
        for provision in ('thin', 'full'):
            for stripe in ('2M', '16M'):
                one = self.one_export(layout='stripe', stripe_size=stripe, provision=provision)
                self.round_trip(one, '', SIZE)
                one.stop()

    def test_recipe(self):
        """The manual's command, as far as one that returns."""
        server.need('nbdinfo')
        (line,), *_ = recipe.blocks('config/CONFIGURATION.md', 'Several GPUs')
        out = self.command(server.PROGRAM, *shlex.split(line)[1:], '--run', 'nbdinfo --size "$uri"')
        self.assertGreater(int(out.splitlines()[-1]), SIZE)

    def test_stripe_model(self):
        self.against_shadow(self.one_export(size=256 * MiB, layout='stripe'), '', 256 * MiB, seed=8)
        self.against_shadow(self.one_export(size=256 * MiB, layout='stripe', page_size='64K', stripe_size='128K'),
                            '', 256 * MiB, seed=9)

    def test_stripe_load(self):
        one = self.one_export(layout='stripe')
        self.load(one, '--structured', '--connections', '8', '--qd', '32', '--span', SIZE // 2)

    def test_stripe_is_killed(self):
        """Under gpunbd keep, verified load continues after kills."""
        for provision in ('thin', 'full'):
            text = gpu.config({'': {'devices': DEVICES, 'size': '1G', 'layout': 'stripe', 'keep': 'true',
                                    'provision': provision}})
            keeper = kept.Kept(config=text)
            self.addCleanup(keeper.stop)
            kept.kill_under_load(keeper, kept.loads(keeper.client, 4, 64 * MiB), 5, 0)
            keeper.stop()

    def test_linear(self):
        """The export is larger than the first device, so it continues on the second."""
        text = gpu.config({'': {'devices': DEVICES, 'size': '768M'}}, [(DEVICES[0], '512M')])
        if len(set(DEVICES)) == len(DEVICES):
            one = self.serve(config=text)
            self.round_trip(one, '', 768 * MiB, seed=10)

    def test_gpu_and_host(self):
        for layout in ('stripe', 'linear'):
            one = self.serve(config=gpu.config({'': {'devices': [DEVICES[0], 'host'], 'size': SIZE // 4, 'layout': layout}}))
            self.round_trip(one, '', SIZE // 4, seed=11)

    def test_separate_exports(self):
        one = self.serve(config=gpu.config({name: {'devices': [device], 'size': '256M'}
                                            for name, device in zip('ab', DEVICES)}))
        a, b = (self.client(one, name, structured=True) for name in 'ab')
        a.write(100, b'a' * MiB)
        b.write(100, b'b' * MiB)
        self.assertEqual((a.read(100, MiB), b.read(100, MiB)), (b'a' * MiB, b'b' * MiB))
        a.trim(0, 256 * MiB)
        self.assertEqual(a.read(100, MiB), bytes(MiB))
        self.assertEqual(b.read(100, MiB), b'b' * MiB)
        with self.assertRaises(wire.Refused):
            self.client(one, 'c')


if __name__ == '__main__':
    server.main()
