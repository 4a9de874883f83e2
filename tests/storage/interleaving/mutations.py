#!/usr/bin/env python3
"""Whether the exploration of interleavings notices faults: applies each mutation to a copy of the sources, builds the
test with it and runs it. Run by hand: it takes about a minute for each mutation.

    mutations.py [--jobs=N] [--lock=FILE] [--arguments=TEXT] [WORD...]

WORD selects mutations by their names. --lock: held while a copy is built. A text that is replaced has to be in
exactly one place of the sources, in whatever file."""
import argparse
import concurrent.futures
import contextlib
import fcntl
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), '../../..')
MUTATED = ('storage/pages', 'storage/devices')

RECHECK_BEGIN = '''    if (pins_.any_writer(page)) {
        store_moving(number, page, entry);
        return false;
    }
    ++moving_;'''
MOVING_STORES = '''    for (const Table& table : tables_) {
        const auto each = table.slot(number);
        if (!each || !each->load().has_page_of(entry)) continue;'''

# Name, replacements. An equivalent one has the reason as a third element.
MUTATIONS = [
    ('begin_move: no check for writers', [(RECHECK_BEGIN, '    ++moving_;')]),
    ('begin_move: checks for writers before the stores',
     [(RECHECK_BEGIN, '    ++moving_;'), (MOVING_STORES, '    if (pins_.any_writer(page)) return false;\n' + MOVING_STORES)]),
    ('EntrySlot: store is a release', [('.store(entry.word());\n    }\n\n private:\n    std::uint64_t* word_',
                                        '.store(entry.word(), std::memory_order_release);\n    }\n\n private:\n    std::uint64_t* word_')]),
    ('map_at_once: ignores a clone', [('free_.clear_pages() == 0 || frozen_ != 0) return false', 'free_.clear_pages() == 0) return false')]),
    ('unmap: does not wait for a clone', [('        wait_for_thaw();\n        const PageEntry entry = slot.load();\n', '        const PageEntry entry = slot.load();\n')]),
    ('RetiredPages: store is relaxed', [('retired_[page].store(true)', 'retired_[page].store(true, std::memory_order_relaxed)')],
     'the lock of the pool is released and taken between this store and the check for pins, which orders them on any '
     'machine (RetiredPages::contains() has the same comment); a release of a mutex makes stores visible in this model too'),

    ('find: no recheck', [('if (again == entry) return ref;', 'if (again == again) return ref;')]),
    ('find: the recheck is an acquire', [('const PageEntry again = slot.load();', 'const PageEntry again = slot.load(std::memory_order_acquire);')]),
    ('find: the first load is relaxed', [('PageEntry entry = slot.load(std::memory_order_acquire);\n    while (access', 'PageEntry entry = slot.load(std::memory_order_relaxed);\n    while (access')],
     'the entry is loaded again, with sequential consistency, before the page is used; the pool list that the first load '
     'leads to is loaded with acquire itself'),
    ('pin: release only', [('fetch_add(one(access) + one_use)', 'fetch_add(one(access) + one_use, std::memory_order_acq_rel)')]),
    ('unpin: release only', [('fetch_sub(one(access))', 'fetch_sub(one(access), std::memory_order_acq_rel)')]),
    ('unpin: does not look for a retired page', [('        if (retired_.contains(page)) free_if_unpinned(page);', '')]),
    ('unpin: loads retired with acquire', [('return retired_[page].load();', 'return retired_[page].load(std::memory_order_acquire);')]),
    ('PinCounts: loads with acquire', [('table[page].load()', 'table[page].load(std::memory_order_acquire)')]),
    ('free_if_unpinned: no check for pins', [('if (!retired_.contains(page) || pins_.any(page)) return;', 'if (!retired_.contains(page)) return;')]),
    ('free_if_unpinned: no recheck of retired', [('if (!retired_.contains(page) || pins_.any(page)) return;', 'if (pins_.any(page)) return;')]),

    ('begin_move: entry of another pool', [('    if (entry.device() != device_index_) return false;\n    const PageIndex page', '    const PageIndex page')]),
    ('store_moving: no recheck', [('if (!each || each->load() != moving) continue;', 'if (!each) continue;')]),
    ('commit_move: forgets sharers', [('    target.sharers_[page].store(sharers, std::memory_order_relaxed);\n', '')]),
    ('commit_move: maps a shared page as writable', [('sharers != 0 ? PageEntry::shared(target.device_index_, page)', 'sharers == 77 ? PageEntry::shared(target.device_index_, page)')]),
    ('unmap: a moving page returns', [('tables_.size() < 2 && !entry.is_moving()', 'tables_.size() < 2')]),
    ('unmap: a page of several tables returns', [('!is_spill_ && tables_.size() < 2 &&', '!is_spill_ &&')]),
    ('unmap: entry of another pool', [('        if (entry.device() != device_index_) return Replaced::moved_to_other_pool;\n        page =', '        page =')]),
    ('unmap: does not free', [('        drop(page, returns ? number : RetiredPages::no_number);\n    }\n    free_if_unpinned(page);', '        drop(page, returns ? number : RetiredPages::no_number);\n    }')]),

    ('share: no check for writers', [('        if (pins_.any_writer(page)) {\n            slot.store(PageEntry::moving', '        if (false) {\n            slot.store(PageEntry::moving')]),
    ('share: checks for writers before the store',
     [('        slot.store(shared);\n        // See pin().', '        const bool is_written = pins_.any_writer(page);\n        slot.store(shared);\n        // See pin().'),
      ('        if (pins_.any_writer(page)) {\n            slot.store(PageEntry::moving', '        if (is_written) {\n            slot.store(PageEntry::moving')]),
    ('share: a moving page is shared at once', [('to.slot(number).store(entry.is_moving() ? entry : shared);', 'to.slot(number).store(shared);')]),
    ('share: a page that is written is not marked', [('            slot.store(PageEntry::moving(device_index_, page));\n            ++moving_;', '            ++moving_;')]),
    ('freeze: nothing', [('    const Lock lock(mutex_);\n    ++frozen_;', '    const Lock lock(mutex_);'), ('        GPUNBD_ASSERT(frozen_ != 0, "each thaw() ends a freeze()");\n        if (--frozen_ != 0) return;\n', ''),
                         ('    GPUNBD_ASSERT(frozen_ != 0, "no entry changes', '    GPUNBD_ASSERT(true, "no entry changes')]),
    ('thaw: wakes nobody', [('        waiters = std::exchange(thaw_waiters_, PageRequests{});\n    }\n    changed_.notify_all();', '        waiters = std::exchange(thaw_waiters_, PageRequests{});\n    }')]),
    ('settle: no check for writers', [('    if (pins_.any_writer(page)) return false;\n    lock.unlock_and_complete', '    lock.unlock_and_complete')]),
    ('end_sharing: no recheck', [('if (slot.load() == PageEntry::moving(device_index_, page)) slot.store(entry_of(page));', 'slot.store(entry_of(page));')]),
    ('copy_written: shares though a writer is left', [('const bool is_needed = pins_.any_writer(page);', 'const bool is_needed = false;')]),
    ('copy_written: always copies', [('const bool is_needed = pins_.any_writer(page);', 'const bool is_needed = true;')],
     'the clone has a copy with a state that the page had during the call; sharing the page instead saves memory'),
    ('copy_written: keeps the page', [('    if (is_needed) {\n        free_if_unpinned(page);\n    } else {', '    if (is_needed) {\n    } else {')],
     'the source has the page, or has unmapped it under the lock before, which frees it later: a writer has pinned it'),

    ('claim: a page of other tables', [('    if (is_shared(page)) return false;\n    pin(page, Access::write);', '    pin(page, Access::write);')]),
    ('claim: no recheck of the entry', [('    if (!entry.is_shared() || entry.device() != device_index_) return true;\n    const PageIndex page = entry.page();\n    if (is_shared(page))', '    const PageIndex page = entry.page();\n    if (is_shared(page))')]),
    ('claim: pins after the store', [('    pin(page, Access::write);\n    out = PageRef(*this, page, Access::write);\n    slot.store(entry_of(page));', '    slot.store(entry_of(page));\n    pin(page, Access::write);\n    out = PageRef(*this, page, Access::write);')],
     'all that looks for writers or unmaps the page holds the lock of its pool, as claim() does'),
    ('copy_shared: does not pin the source', [('        pin(entry.page(), Access::read);\n        source = PageRef(*this, entry.page(), Access::read);\n', '')]),
    ('copy_shared: does not wait for a clone', [('        if (status == Status::ok) wait_for_thaw();\n', '')]),
    ('copy_shared: no recheck of the entry', [('if (slot.load() == entry && is_shared(entry.page()) && !copying.is_old)', 'if (is_shared(entry.page()) && !copying.is_old)')]),
    ('copy_shared: no recheck of the sharers', [('if (slot.load() == entry && is_shared(entry.page()) && !copying.is_old)', 'if (slot.load() == entry && !copying.is_old)')],
     'the copy is right, since is_old tells whether the page was written; keeping the page saves memory'),
    ('copy_shared: no recheck whether it is old', [('is_shared(entry.page()) && !copying.is_old)', 'is_shared(entry.page()))')]),

    ('take_replacement: does not pin', [('    pin(free.index, Access::write);\n', ''), ('    PageRef out(*this, free.index, Access::write);', '    PageRef out(*this, free.index, Access::write);\n    out = PageRef(); pin(free.index, Access::write); pins_.remove(free.index, Access::write); new (&out) PageRef(*this, free.index, Access::write);')]),
    ('replace: ignores a clone', [('        if (frozen_ != 0) return Replaced::later;\n', '')]),
    ('replace: entry of another pool', [('        if (!is_here) return Replaced::moved_to_other_pool;\n', '')]),
    ('replace: keeps the former page', [('        drop(former, RetiredPages::no_number);\n    }\n    free_if_unpinned(former);', '        drop(former, RetiredPages::no_number);\n    }')]),

    ('map_at_once: ignores a retired page', [('if (is_retired_from(entry, number) || free_.clear_pages() == 0', 'if (free_.clear_pages() == 0')],
     'the contents are right; but a number then takes memory for two pages, which only a volume with provision: full lacks'),
    ('map_at_once: no recheck of the entry', [('if (entry == PageEntry::mapped(device_index_, entry.page())) {\n            pin', 'if (entry.device() == device_index_) {\n            pin')]),
    ('map_retired: does not wait for a clone', [('    wait_for_thaw();\n    // replace() may', '    // replace() may')]),
    ('map_retired: no recheck', [('    if (slot.load() != PageEntry::retired(device_index_, page)) return Status::ok;\n    retired_.remove', '    retired_.remove')]),
    ('map_retired: does not pin', [('    pin(page, Access::read);  // the page stays retired\n', ''), ('    const PageRef pinned(*this, page, Access::read);\n', '')]),
    ('map_taken: does not wait for a clone', [('        wait_for_thaw();\n        if (!has_page(slot, number)) {', '        if (!has_page(slot, number)) {')]),
    ('map_taken: no recheck', [('        if (!has_page(slot, number)) {\n            taken.owner', '        if (true) {\n            taken.owner')]),
    ('publish: pins after the store', [('    pin(page, Access::write);\n    out = PageRef(*this, page, Access::write);\n    mapped_pages_', '    mapped_pages_'),
                                       ('    slot.store(PageEntry::mapped(device_index_, page));\n}\n\n// Whether the page that was', '    slot.store(PageEntry::mapped(device_index_, page));\n    pin(page, Access::write);\n    out = PageRef(*this, page, Access::write);\n}\n\n// Whether the page that was')]),
]


def sources(top):
    return [path for folder in MUTATED for ending in ('cpp', 'hpp') for path in glob.glob(f'{top}/{folder}/*.{ending}')]


def mutate(top, replacements):
    for old, new in replacements:
        found = [path for path in sources(top) if old in open(path, encoding='utf-8').read()]
        text = open(found[0], encoding='utf-8').read() if len(found) == 1 else ''
        if text.count(old) != 1:
            return f'in {len(found)} files: {old!r}'
        with open(found[0], 'w', encoding='utf-8') as file:
            file.write(text.replace(old, new))
    return None


def build(top):
    """The text of an error, or None. Files that are not mutated come from ccache, if there is one."""
    with open(f'{top}/tests/storage/interleaving/CMakeLists.txt', encoding='utf-8') as file:
        listed = re.findall(r'\S+\.cpp', file.read())
    units = glob.glob(f'{top}/storage/pages/*.cpp') + [f'{top}/{name}' for name in listed if name.startswith('storage/')]
    units += glob.glob(f'{top}/tests/storage/interleaving/*.cpp')
    compiler = (['ccache'] if shutil.which('ccache') else []) + ['g++']
    options = ['-std=c++20', '-O1', '-U_FORTIFY_SOURCE', '-DGPUNBD_ASSERTIONS', '-Itests/storage/interleaving/shadow', '-I.', '-w']

    def compile_one(unit):
        name = os.path.relpath(unit, top)
        output = name.replace('/', '_').replace('.cpp', '.o')
        done = subprocess.run([*compiler, *options, '-c', name, '-o', output], cwd=top, capture_output=True, text=True, check=False,
                              env={**os.environ, 'CCACHE_BASEDIR': top, 'CCACHE_NOHASHDIR': '1'})
        return output, done.stderr if done.returncode else ''

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        results = list(pool.map(compile_one, units))
    errors = ''.join(error for _, error in results)
    if errors:
        return errors
    done = subprocess.run(['g++', *(output for output, _ in results), '-lfmt', '-lspdlog', '-lpthread', '-o', 'interleaving_tests'],
                          cwd=top, capture_output=True, text=True, check=False)
    return done.stderr if done.returncode else None


@contextlib.contextmanager
def locked(path):
    with contextlib.ExitStack() as stack:
        if path:
            fcntl.flock(stack.enter_context(open(path, 'w', encoding='utf-8')), fcntl.LOCK_EX)
        yield


def run(mutation, options):
    name, replacements, *reason = mutation
    with tempfile.TemporaryDirectory() as top:
        shutil.copytree(f'{ROOT}/storage', f'{top}/storage')
        shutil.copytree(f'{ROOT}/tests/storage/interleaving', f'{top}/tests/storage/interleaving')
        error = mutate(top, replacements)
        if error is None:
            with locked(options.lock):
                error = build(top)
        if error:
            return name, f'ERROR {error[:600]}', False
        began = time.monotonic()
        test = subprocess.run([f'{top}/interleaving_tests', *options.arguments.split()], capture_output=True, text=True, check=False)
        took = f'{time.monotonic() - began:.1f} s'
    if test.returncode == 0:
        return name, f'not noticed, {took}' + (f': equivalent, since {reason[0]}' if reason else ''), bool(reason)
    why = next((line for line in test.stdout.splitlines() if re.match(r'\w+,\S+: ', line)), f'it ended with {test.returncode}')
    return name, f'noticed, {took}: {why}', not reason


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument('--jobs', type=int, default=1)
    parser.add_argument('--lock', default='')
    parser.add_argument('--arguments', default='')
    parser.add_argument('words', nargs='*')
    options = parser.parse_args()
    chosen = [each for each in [('none', [], 'nothing is changed'), *MUTATIONS]
              if not options.words or any(word in each[0] for word in options.words)]
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        as_expected = True
        for name, result, expected in pool.map(lambda each: run(each, options), chosen):
            print(f'{"" if expected else "UNEXPECTED "}{name}: {result}', flush=True)
            as_expected &= expected
    sys.exit(0 if as_expected else 1)


if __name__ == '__main__':
    main()
