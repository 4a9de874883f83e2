"""Every #include of the product names a library that its folder may use, as CMakeLists.txt declares. Unit tests mirror the
folders of the sources. Only storage/base/system_mutex.hpp uses those of the standard library."""
import re
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ('protocol', 'config', 'storage', 'server')


def declared():
    """Each library's folder, with the set of those that it may use."""
    text = (ROOT / 'CMakeLists.txt').read_text(encoding='utf-8')
    out = {}
    for folder, arguments in re.findall(r'^gpunbd_library\(([\w/]+)([^)]*)\)', text, re.M):
        uses = re.search(r'\bUSES\s+([\w/\s]*?)\s*(?:\bLINKS\b|$)', arguments)
        out[folder] = set(uses.group(1).split()) if uses else set()
    return out


def files(root, ending):
    """The files below the folders of the product, or below those of their tests, relative to `root`."""
    for top in FOLDERS:
        yield from (path.relative_to(root) for path in (root / top).rglob(f'*{ending}'))


def sources():
    """The path and the text of each source."""
    for ending in ('.cpp', '.hpp', '.cu', '.cuh'):
        for path in files(ROOT, ending):
            yield path, (ROOT / path).read_text(encoding='utf-8')


class Structure(unittest.TestCase):
    def setUp(self):
        self.libraries = declared()
        self.included = {}  # (folder, other folder): an example
        for path, text in sources():
            for header in re.findall(r'^#include "([^"]+)"', text, re.M):
                self.included.setdefault((str(path.parent), str(Path(header).parent)), f'{path}: {header}')

    def test_every_source_belongs_to_a_library(self):
        self.assertEqual({str(path.parent) for path, _ in sources()} - set(self.libraries), set())

    def test_sources_that_cmake_names_exist(self):
        missing = []
        for path in files(ROOT, 'CMakeLists.txt'):
            named = re.findall(r'(?<![\w/*}.-])\w[\w/]*[.](?:cpp|cu)\b', (ROOT / path).read_text(encoding='utf-8'))
            generated = {'page_files.cpp'}
            missing += [path.parent / name for name in set(named) - generated if not (ROOT / path.parent / name).exists()]
        self.assertEqual(missing, [])

    def test_every_include_is_declared(self):
        generated = {('config', 'config')}
        undeclared = [example for (folder, other), example in self.included.items()
                      if other != folder and (folder, other) not in generated and other not in self.libraries[folder]]
        self.assertEqual(undeclared, [])

    def test_nothing_unused_is_declared(self):
        headerless = {'server/json'}  # it compiles Boost.JSON, whose headers are Boost's
        unused = [f'{folder} USES {other}' for folder, uses in self.libraries.items() for other in uses - headerless
                  if (folder, other) not in self.included]
        self.assertEqual(unused, [])

    def test_each_library_uses_only_those_declared_above_it(self):
        above = set()
        for folder, uses in self.libraries.items():
            self.assertLessEqual(uses, above, folder)
            above.add(folder)

    def test_locks_are_those_that_clang_checks(self):
        of_std = re.compile(r'\bstd::(?:\w*_mutex|mutex|\w+_lock|lock_guard|lock|try_lock|condition_variable\w*|call_once|once_flag)\b'
                            r'|^#include <(?:mutex|shared_mutex|condition_variable)>|\bpthread_(?:mutex|rwlock|cond|spin)_', re.M)
        found = [f'{path}: {match[0]}' for path, text in sources() if str(path) != 'storage/base/system_mutex.hpp'
                 for match in of_std.finditer(text)]
        self.assertEqual(found, [])

    def test_unit_tests_are_in_the_folder_of_what_they_test(self):
        misplaced = []
        for path in files(ROOT / 'tests', '_test.cpp'):
            text = (ROOT / 'tests' / path).read_text(encoding='utf-8')
            header = re.search(rf'^#include "([\w/]+)/{path.name.removesuffix("_test.cpp")}[.]hpp"', text, re.M)
            if not (ROOT / path.parent).is_dir() or header and header[1] != str(path.parent):
                misplaced.append(path)
        self.assertEqual(misplaced, [])


if __name__ == '__main__':
    unittest.main()
