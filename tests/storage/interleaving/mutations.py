"""Mutations of the page map that the exploration of interleavings has to notice; tests/mutations.py tries them."""

WRITERS_CHECK = '''    if (memory_.pages().is_pinned_for_writing(page)) {
        store_moving(number, page, entry);
        return false;
    }
'''
MOVING_STORES = '    tables_.for_each_slot(number, [&](EntrySlot each) {\n        if (each.load().has_page_of(entry))'
SHARE_STORE = '        if (entry.is_writable()) slot.become(shared);\n'
SENT_CHECK = 'if (memory_.pages().is_pinned_for_sending(page)) append'
MARK_MOVING = '            slot.become(PageEntry::moving(index_, page));\n'
SHARE_CHECK = '        if (entry.is_writable() && memory_.pages().is_pinned_for_writing(page)) {\n' + MARK_MOVING
UNMAP_STORE = '        slot.become(returns ? PageEntry::retired(index_, page) : PageEntry());\n'
UNMAP_DROP = '        drop(page, returns ? number : RetiredPages::no_number);\n'
END_STORE = 'if (slot.load() == PageEntry::moving(index_, page)) slot.become(entry_at_rest(page));'
COPY_RECHECK = 'if (slot.load() == entry && is_wanted() && source.is_intact()) {'
CLAIM_PIN = '    out = pinned(memory_, page, Access::write);\n'
CLAIM_STORE = '    slot.become(entry_at_rest(page));\n'
REPLACE_STORE = '''        slot.become(entry_of(owner, page.index()));
        if (!entry.is_mapped()) return Replaced::done;
        former = entry.page();
'''
REPLACE_DROP = '        drop(former, RetiredPages::no_number);\n'
PUBLISH_PIN = '    out = pinned(owner, page, Access::write);\n'
PUBLISH_STORE = '    owner.pages().add_first_entry(page);\n    slot.become(entry_of(owner, page));\n'
MAP_CHECK = 'if (is_retired_from(entry, number) || frozen_ != 0) return false;'
FREE_CHECK = 'if (!pages_.retired().contains(page) || pages_.is_pinned(page)) return;'
COPY_CHECK = 'const bool is_needed = memory_.pages().is_pinned_for_writing(page);'

MUTATIONS = {('interleaving_tests', r'^storage\.interleavings$'): [
    ('begin_move: no check for writers', [(WRITERS_CHECK, '')]),
    ('begin_move: checks for writers before the stores',
     [(WRITERS_CHECK, ''),
      (MOVING_STORES, '    if (memory_.pages().is_pinned_for_writing(page)) return false;\n' + MOVING_STORES)]),
    ('EntrySlot: store is a release', [('.store(next.word());', '.store(next.word(), std::memory_order_release);')]),
    ('map_at_once: ignores a clone', [(MAP_CHECK, 'if (is_retired_from(entry, number)) return false;')]),
    ('unmap: does not wait for a clone',
     [('        wait_for_thaw();\n        const PageEntry entry = slot.load();\n',
       '        const PageEntry entry = slot.load();\n')]),
    ('RetiredPages: store is relaxed',
     [('retired_[page].store(true)', 'retired_[page].store(true, std::memory_order_relaxed)')],
     'the lock of the pool is released and taken between this store and the check for pins, which orders them '
     'on any machine (RetiredPages::contains() has the same comment); a release of a mutex makes stores '
     'visible in this model too'),

    ('find: no recheck', [('if (again == entry && is_right) return ref;', 'if (again == again) return ref;')]),
    ('find: no recheck whether another table has the page',
     [('if (again == entry && is_right) return ref;', 'if (again == entry) return ref;')]),
    ('find: the recheck is an acquire',
     [('const PageEntry again = slot.load();', 'const PageEntry again = slot.load(std::memory_order_acquire);')]),
    ('find: the first load is relaxed',
     [('PageEntry entry = slot.load(std::memory_order_acquire);\n    while (access',
       'PageEntry entry = slot.load(std::memory_order_relaxed);\n    while (access')],
     'the entry is loaded again, with sequential consistency, before the page is used; the pool list that the '
     'first load leads to is loaded with acquire itself'),
    ('pin: release only',
     [('fetch_add(one(access) + one_use)', 'fetch_add(one(access) + one_use, std::memory_order_acq_rel)')]),
    ('unpin: release only', [('fetch_sub(one(access))', 'fetch_sub(one(access), std::memory_order_acq_rel)')]),
    ('unpin: does not look for a retired page',
     [('if (pages_.unpin(page, access)) free_if_unpinned(page);', 'pages_.unpin(page, access);')]),
    ('unpin: loads retired with acquire',
     [('return retired_[page].load();', 'return retired_[page].load(std::memory_order_acquire);')]),
    ('PinCounts: loads with acquire', [('table[page].load()', 'table[page].load(std::memory_order_acquire)')]),
    ('free_if_unpinned: no check for pins', [(FREE_CHECK, 'if (!pages_.retired().contains(page)) return;')]),
    ('free_if_unpinned: no recheck of retired', [(FREE_CHECK, 'if (pages_.is_pinned(page)) return;')]),

    ('begin_move: entry of another pool',
     [('    if (!is_here(entry)) return false;\n    const PageIndex page', '    const PageIndex page')]),
    ('store_moving: no recheck', [('        if (each.load() != moving) return;\n', '')]),
    ('commit_move: forgets sharers',
     [('target_pages.add_first_entry(page, sharers);', 'target_pages.add_first_entry(page);')]),
    ('commit_move: maps a shared page as writable',
     [('sharers != 0 ? PageEntry::shared(target.index_, page)', 'false ? PageEntry::shared(target.index_, page)')]),
    ('commit_move: does not end the filling', [('        target_pages.end_filling();\n', '')]),
    ('unmap: a moving page returns', [('tables_.count() < 2 && !entry.is_moving();', 'tables_.count() < 2;')]),
    ('unmap: a page of several tables returns',
     [('!memory_.slabs().config().is_spill && tables_.count() < 2 &&', '!memory_.slabs().config().is_spill &&')]),
    ('unmap: entry of another pool', [('        if (!is_here(entry)) return Replaced::moved_to_other_pool;\n', '')]),
    ('unmap: does not free', [(UNMAP_DROP + '    }\n    memory_.free_if_unpinned(page);', UNMAP_DROP + '    }')]),

    ('share: no check for writers', [(SHARE_CHECK, '        if (false) {\n' + MARK_MOVING)]),
    ('share: checks for writers before the store',
     [(SHARE_STORE, '        const bool is_written = memory_.pages().is_pinned_for_writing(page);\n' + SHARE_STORE),
      (SHARE_CHECK, '        if (entry.is_writable() && is_written) {\n' + MARK_MOVING)]),
    ('share: no check for pages that are sent', [(SENT_CHECK, 'if (false) append')]),
    ('share: checks for pages that are sent before the store',
     [(SHARE_STORE, '        const bool is_sent = memory_.pages().is_pinned_for_sending(page);\n' + SHARE_STORE),
      (SENT_CHECK, 'if (is_sent) append')]),
    ('may_be_sent: not while the page moves', [('entry.is_shared() || entry.is_moving();', 'entry.is_shared();')]),
    ('copy_sent: only if another table has the page',
     [('return copy(slot, home, Copied::any);', 'return copy(slot, home, Copied::of_several_tables);')]),
    ('copy_sent: does not wait for a move',
     [('        while (moves_from_here(slot.load())) changed_.wait(memory_.mutex());\n    }\n    return copy',
       '    }\n    return copy')]),
    ('find: a page of other tables is sent',
     [('pages.sends_in_place() && is_sole();', 'pages.sends_in_place();'),
      ('!is_sent || is_sole()', 'true')]),
    ('is_pinned: does not look for pages that are sent',
     [('return pins_.any(page) || sends_.any(page);', 'return pins_.any(page);')]),
    ('share: a moving page is shared at once',
     [('to.slot(number).become(entry.is_moving() ? entry : shared);', 'to.slot(number).become(shared);')]),
    ('share: a page that is written is not marked',
     [(MARK_MOVING + '            ++moving_;', '            ++moving_;')]),
    ('freeze: nothing',
     [('    const Lock lock(memory_.mutex());\n    ++frozen_;', '    const Lock lock(memory_.mutex());'),
      ('        GPUNBD_ASSERT(frozen_ != 0, "each thaw() ends a freeze()");\n        if (--frozen_ != 0) return;\n',
       ''),
      ('    GPUNBD_ASSERT(frozen_ != 0, "no entry changes', '    GPUNBD_ASSERT(true, "no entry changes')]),
    ('thaw: does not notify',
     [('    changed_.notify_all();\n    complete(waiters, Status::ok);', '    complete(waiters, Status::ok);')]),
    ('settle: no check for writers', [('    if (memory_.pages().is_pinned_for_writing(page)) return false;\n', '')]),
    ('end_sharing: no recheck', [(END_STORE, 'slot.become(entry_at_rest(page));')]),
    ('end_sharing: always shared',
     [(END_STORE, END_STORE.replace('entry_at_rest(page)', 'PageEntry::shared(index_, page)'))]),
    ('end_sharing: always mapped',
     [(END_STORE, END_STORE.replace('entry_at_rest(page)', 'PageEntry::mapped(index_, page)'))]),
    ('copy_written: shares though a writer is left', [(COPY_CHECK, 'const bool is_needed = false;')]),
    ('copy_written: always copies', [(COPY_CHECK, 'const bool is_needed = true;')],
     'the clone has a copy with a state that the page had during the call; sharing the page instead saves memory'),
    ('copy_written: does not free',
     [('    if (is_needed) {\n        memory_.free_if_unpinned(page);\n    } else {',
       '    if (is_needed) {\n    } else {')]),

    ('claim: a page of other tables', [('    if (memory_.pages().is_shared(page)) return false;\n', '')]),
    ('claim: no recheck of the entry', [('    if (!entry.is_shared() || !is_here(entry)) return true;\n', '')]),
    ('claim: pins after the store', [(CLAIM_PIN + CLAIM_STORE, CLAIM_STORE + CLAIM_PIN)],
     'all that looks for writers or unmaps the page holds the lock of its pool, as claim() does'),
    ('copy_shared: does not pin the source', [('        source = pinned(memory_, entry.page(), Access::read);\n', '')]),
    ('copy_shared: does not wait for a clone',
     [('        wait_for_thaw();\n        // The page may', '        // The page may')]),
    ('copy: no recheck of the entry', [(COPY_RECHECK, COPY_RECHECK.replace('slot.load() == entry && ', ''))]),
    ('copy: no recheck of the sharers', [(COPY_RECHECK, COPY_RECHECK.replace('is_wanted() && ', ''))],
     'the copy has the right contents, unless it is old; using the page in place instead saves memory'),
    ('claim: not counted', [('    memory_.pages().claim(page);\n', '')]),
    ('is_intact: always', [('return owner().pages().claims(page_) == claims_;', 'return true;')]),
    ('cancel_move: a page that is sent', [('memory_.pages().is_pinned_for_sending(from) ?', 'false ?')]),
    ('copy: no recheck whether it is old', [(COPY_RECHECK, COPY_RECHECK.replace(' && source.is_intact()', ''))]),

    ('replace: ignores a clone', [('        if (frozen_ != 0) return Replaced::later;\n', '')]),
    ('replace: entry of another pool', [('        if (!is_ours) return Replaced::moved_to_other_pool;\n', '')]),
    ('replace: does not free',
     [(REPLACE_DROP + '    }\n    memory_.free_if_unpinned(former);', REPLACE_DROP + '    }')]),

    ('map_at_once: ignores a retired page',
     [(MAP_CHECK, 'if (frozen_ != 0) return false;')],
     'the contents are right; but a number then takes memory for two pages, which only a volume with '
     'provision: full lacks'),
    ('map_at_once: no recheck of the entry',
     [('if (entry == entry_of(memory_, entry.page())) {', 'if (is_here(entry)) {')]),
    ('map_retired: does not wait for a clone',
     [('    wait_for_thaw();\n    // replace() may', '    // replace() may')]),
    ('map_retired: does not pin', [('    memory_.pin(page, Access::read);  // the page stays retired\n', ''),
                                   ('    const PageRef pinned(memory_, page, Access::read);\n', '')]),
    ('map_taken: does not wait for a clone',
     [('        wait_for_thaw();\n        if (!has_page(slot, number)) {',
       '        if (!has_page(slot, number)) {')]),
    ('map_taken: no recheck',
     [('        if (!has_page(slot, number)) {\n            publish', '        if (true) {\n            publish')]),
    ('publish: pins after the store', [(PUBLISH_PIN + PUBLISH_STORE, PUBLISH_STORE + PUBLISH_PIN)]),
], ('storage_tests', r'^storage\.clone: a page that replaces a shared one'): [
    # It takes a replacement that is older than the end of the clone and the trim of the page, which is not explored.
    ('map_retired: no recheck',
     [('    if (slot.load() != PageEntry::retired(index_, page)) return Status::ok;\n', '')]),
]}
