"""A GPU shared with a program that computes: the server detects it, adapts, and detects its end."""
import os
import signal
import subprocess
import unittest

import gpu
from server import GiB, wait_until

LOAD = os.environ.get('GPUNBD_GPU_LOAD', '')
DEVICE = gpu.devices(1)[0]


@unittest.skipUnless(DEVICE.startswith('cuda:') and os.path.exists(LOAD), 'needs a GPU, and gpu_load')
class Neighbour(gpu.Test):
    def compute(self):
        program = subprocess.Popen([LOAD, 'compute', DEVICE.split(':')[1]], stdout=subprocess.PIPE, text=True)
        self.addCleanup(lambda: (program.kill(), program.wait(), program.stdout.close()))
        self.assertRegex(program.stdout.readline(), r'^[\d.]+ [\d.]+ [\d.e+]+$')
        return program

    def serve_with(self, gpu_use):
        text = gpu.config({'e': {'devices': [DEVICE], 'size': GiB}})
        text += f"devices: [{{id: '{DEVICE}', gpu_use: {gpu_use}}}]\n"
        return self.serve(config=text)

    @staticmethod
    def until_logged(one, words):
        wait_until(lambda: words in one.log(), 30, f'"{words}" in the log')

    def test_another_program_is_detected(self):
        one = self.serve_with('auto')
        self.load(one, '--seconds', '1', name='e')
        self.assertNotIn('another program computes', one.log())
        program = self.compute()
        self.load(one, '--size', '4k', '--seconds', '1', name='e')
        self.until_logged(one, 'another program computes')
        self.load(one, '--seconds', '1', name='e')
        program.send_signal(signal.SIGSTOP)
        self.until_logged(one, 'no other program computes')
        self.load(one, '--seconds', '1', name='e')

    def test_explicit_settings_are_not_changed(self):
        for gpu_use in 'copy-engines', 'all':
            with self.subTest(gpu_use=gpu_use):
                one = self.serve_with(gpu_use)
                program = self.compute()
                self.load(one, '--size', '4k', '--seconds', '1', name='e')
                program.kill()
                self.assertNotIn('computes', one.log())


if __name__ == '__main__':
    gpu.server.main()
