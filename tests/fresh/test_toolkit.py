"""The messages of CMake about the CUDA Toolkit, with and without an NVIDIA card, which a few files simulate."""
import os
import subprocess
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
TOOLKIT = os.path.realpath(os.path.join(HERE, '../../storage/devices/cuda/toolkit.cmake'))
CMAKE = os.environ.get('GPUNBD_CMAKE', 'cmake')
GUIDE = 'https://docs.nvidia.com/cuda/cuda-installation-guide-linux/'


class Toolkit(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix='gpunbd a card ')
        self.addCleanup(self.folder.cleanup)
        self.path = self.folder.name
        self.write('CMakeLists.txt', f"""
cmake_minimum_required(VERSION 3.25)
project(toolkit NONE)
# find_program() must not find an nvcc of this machine.
set(CMAKE_FIND_ROOT_PATH /nonexistent)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM ONLY)
include("{TOOLKIT}")
message(STATUS "toolkit: ${{GPUNBD_TOOLKIT}}")
""")

    def write(self, name, text):
        path = os.path.join(self.path, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, 'w', encoding='ascii') as file:
            file.write(text)
        return path

    def nvcc(self, output):
        path = self.write('nvcc', f'#!/bin/sh\necho "{output}"\n')
        os.chmod(path, 0o755)
        return path

    def pci(self, vendor, kind):
        for name, text in ('vendor', vendor), ('class', kind):
            self.write(f'machine/sys/bus/pci/devices/0000:65:00.0/{name}', f'{text}\n')

    def configure(self, *arguments, nvcc=None):
        """(standard output, warnings with single spaces)"""
        os.makedirs(os.path.join(self.path, 'machine'), exist_ok=True)
        done = subprocess.run([CMAKE, '--no-warn-unused-cli', '-G', 'Ninja', '-S', self.path, '-B', os.path.join(self.path, 'build'),
                               *([f'-DGPUNBD_NVCC={nvcc}'] if nvcc else []),
                               f'-DGPUNBD_SYSTEM_ROOT={self.path}/machine', *arguments],
                              capture_output=True, text=True, check=True)
        return done.stdout, ' '.join(done.stderr.split())

    def test_no_card(self):
        output, warnings = self.configure()
        self.assertEqual(warnings, '')
        self.assertIn('gpunbd: no CUDA Toolkit (nvcc) found: building without cuda:N devices\n', output)
        self.assertIn('toolkit: FALSE', output)

    def test_cards(self):
        def display():
            self.pci('0x10de', '0x030000')

        def compute():
            self.pci('0x10de', '0x030200')

        def driver():
            self.write('machine/proc/driver/nvidia/version', '')

        def node():
            self.write('machine/dev/nvidia0', '')

        for card in display, compute, driver, node:
            with self.subTest(card.__name__):
                card()
                warnings = self.configure()[1]
                for part in ('no CUDA Toolkit (nvcc) found', 'CUDA Toolkit 13.0', 'cuda-toolkit-13-0',
                             '12.0 is the least', GUIDE):
                    self.assertIn(part, warnings)
                self.folder.cleanup()
                self.setUp()

    def test_other_devices(self):
        for vendor, kind in (('0x10de', '0x040300'), ('0x1002', '0x030000')):
            with self.subTest(vendor=vendor, kind=kind):
                self.pci(vendor, kind)
                self.assertEqual(self.configure()[1], '')

    def test_disabled(self):
        self.pci('0x10de', '0x030000')
        output, warnings = self.configure('-DGPUNBD_CUDA=OFF')
        self.assertEqual(warnings, '')
        self.assertNotIn('gpunbd:', output)

    def test_old_toolkit(self):
        self.pci('0x10de', '0x030000')
        output, warnings = self.configure(nvcc=self.nvcc('Cuda compilation tools, release 11.8, V11.8.89'))
        self.assertIn('nvcc is of CUDA 11.8, which is too old', warnings)
        self.assertIn('cuda-toolkit-13-0', warnings)
        self.assertIn('toolkit: FALSE', output)

    def test_oldest_supported_toolkit(self):
        self.pci('0x10de', '0x030000')
        output, warnings = self.configure(nvcc=self.nvcc('Cuda compilation tools, release 12.0, V12.0.140'))
        self.assertEqual(warnings, '')
        self.assertIn('toolkit: TRUE', output)

    def test_broken_toolkit(self):
        output, _ = self.configure(nvcc=self.nvcc('what?'))
        self.assertIn('nvcc does not tell its version', output)
        self.assertIn('toolkit: FALSE', output)


if __name__ == '__main__':
    unittest.main(verbosity=2)
