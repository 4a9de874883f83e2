"""The checked-in code of the copy shader is what its source compiles to."""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), '../../../../storage/devices/vulkan')
GENERATOR = 2  # the word that names the compiler and its version
SKIP = 77


def words(path):
    with open(path, encoding='utf-8') as file:
        return re.findall(r'0x[0-9a-f]{8}', file.read())


class Shader(unittest.TestCase):
    def test_source_and_code_agree(self):
        if not shutil.which('glslangValidator'):
            print('SKIPPED: there is no glslangValidator (glslang-tools)')
            sys.exit(SKIP)
        with tempfile.TemporaryDirectory() as folder:
            output = os.path.join(folder, 'code')
            subprocess.run([os.path.join(FOLDER, 'compile_shader.sh'), output], check=True)
            compiled = words(output)
        checked_in = words(os.path.join(FOLDER, 'copy_shader.inc'))
        if compiled[GENERATOR] != checked_in[GENERATOR]:
            print('SKIPPED: this glslang is of another version than that of the checked-in code')
            sys.exit(SKIP)
        self.assertEqual(compiled, checked_in)


if __name__ == '__main__':
    unittest.main()
