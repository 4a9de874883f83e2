"""The preset editor: build/compile_commands.json lists every file that this machine can compile."""
import json
import os
import subprocess
import tempfile
import unittest

ROOT = os.path.realpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), '../..'))
CMAKE = os.environ.get('GPUNBD_CMAKE', 'cmake')
# These need CUDA.
ELSEWHERE = ('storage/devices/cuda/', 'tests/gpu/', 'tests/bench/gpu')


class Editor(unittest.TestCase):
    def test_every_file_is_listed(self):
        with open(os.path.join(ROOT, 'CMakePresets.json'), encoding='utf-8') as file:
            presets = {preset['name']: preset.get('cacheVariables', {}) for preset in json.load(file)['configurePresets']}
        variables = {**presets['base'], **presets['release'], **presets['editor'], 'BUILD_TESTING': 'ON', 'GPUNBD_CUDA': 'OFF'}
        with tempfile.TemporaryDirectory(prefix='gpunbd editor ') as folder:
            subprocess.run([CMAKE, '-G', 'Ninja', '-S', ROOT, '-B', folder,
                            *(f'-D{name}={value}' for name, value in variables.items())], check=True, stdout=subprocess.DEVNULL)
            with open(os.path.join(folder, 'compile_commands.json'), encoding='utf-8') as file:
                listed = {os.path.relpath(entry['file'], ROOT) for entry in json.load(file)}
        existing = {os.path.relpath(os.path.join(path, name), ROOT)
                 for part in ('config', 'protocol', 'server', 'storage', 'tests')
                 for path, _, names in os.walk(os.path.join(ROOT, part)) for name in names if name.endswith('.cpp')}
        self.assertGreater(len(existing), 200)
        self.assertEqual([], sorted(name for name in existing - listed if not name.startswith(ELSEWHERE)))


if __name__ == '__main__':
    unittest.main(verbosity=2)
