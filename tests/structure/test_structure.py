"""Every #include of the product names a library that its folder may use, as CMakeLists.txt declares. Unit tests mirror the
folders of the sources. Only storage/base/system_mutex.hpp uses those of the standard library."""
import os
import re
import unittest

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), '../..')
FOLDERS = ('protocol', 'config', 'storage', 'server')


def declared():
    """Each library's folder, with the set of those that it may use."""
    with open(os.path.join(ROOT, 'CMakeLists.txt'), encoding='utf-8') as file:
        text = file.read()
    out = {}
    for folder, arguments in re.findall(r'^gpunbd_library\(([\w/]+)([^)]*)\)', text, re.M):
        uses = re.search(r'\bUSES\s+([\w/\s]*?)\s*(?:\bLINKS\b|$)', arguments)
        out[folder] = set(uses.group(1).split()) if uses else set()
    return out


def sources():
    for top in FOLDERS:
        for folder, _, names in os.walk(os.path.join(ROOT, top)):
            for name in names:
                if name.endswith(('.cpp', '.hpp', '.cu', '.cuh')):
                    yield os.path.relpath(os.path.join(folder, name), ROOT)


class Structure(unittest.TestCase):
    def setUp(self):
        self.libraries = declared()
        self.included = {}  # (folder, other folder): an example
        for path in sources():
            with open(os.path.join(ROOT, path), encoding='utf-8') as file:
                for header in re.findall(r'^#include "([^"]+)"', file.read(), re.M):
                    self.included.setdefault((os.path.dirname(path), os.path.dirname(header)), f'{path}: {header}')

    def test_every_source_belongs_to_a_library(self):
        self.assertEqual({os.path.dirname(path) for path in sources()} - set(self.libraries), set())

    def test_sources_that_cmake_names_exist(self):
        missing = []
        for top in FOLDERS:
            for folder, _, names in os.walk(os.path.join(ROOT, top)):
                if 'CMakeLists.txt' in names:
                    with open(os.path.join(folder, 'CMakeLists.txt'), encoding='utf-8') as file:
                        named = re.findall(r'(?<![\w/*}.-])\w[\w/]*[.](?:cpp|cu)\b', file.read())
                    generated = {'page_files.cpp'}
                    missing += [os.path.join(folder, name) for name in set(named) - generated
                                if not os.path.exists(os.path.join(folder, name))]
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
        found = []
        for path in sources():
            if path == 'storage/base/system_mutex.hpp':
                continue
            with open(os.path.join(ROOT, path), encoding='utf-8') as file:
                found += [f'{path}: {match[0]}' for match in of_std.finditer(file.read())]
        self.assertEqual(found, [])

    def test_unit_tests_are_in_the_folder_of_what_they_test(self):
        misplaced = []
        for top in FOLDERS:
            for folder, _, names in os.walk(os.path.join(ROOT, 'tests', top)):
                tested = os.path.relpath(folder, os.path.join(ROOT, 'tests'))
                for name in (name for name in names if name.endswith('_test.cpp')):
                    with open(os.path.join(folder, name), encoding='utf-8') as file:
                        header = re.search(rf'^#include "([\w/]+)/{name.removesuffix("_test.cpp")}[.]hpp"', file.read(), re.M)
                    if not os.path.isdir(os.path.join(ROOT, tested)) or header and header[1] != tested:
                        misplaced.append(os.path.join(folder, name))
        self.assertEqual(misplaced, [])


if __name__ == '__main__':
    unittest.main()
