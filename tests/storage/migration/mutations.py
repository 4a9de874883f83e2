"""Mutations of storage/migration; tests/mutations.py tries them."""

PUT_BACK = 'to_->memory().put_back(target_, PageAllocator::Purpose::fill);\n'
STAYED = '        page.outcome = PageToMove::Outcome::stayed;\n'
COUNTED = 'if (std::ranges::find(counted, &budget) != counted.end()) continue;'
STOP_DRAINING = '            std::this_thread::sleep_for(retry_interval);\n        }\n'

TESTS = (r'^storage\.(migrator|page pool: a (page|writer)|mover pool|pressure|revocable watch|added spill|memory watch|'
         r'blocking migrator)')
MUTATIONS = {('storage_tests', TESTS): [
    ('mover: the target of a page that was trimmed is lost',
     [('        ' + PUT_BACK + '        end(PageToMove::Outcome::stayed);',
       '        end(PageToMove::Outcome::stayed);')]),
    ('mover: a page that cannot be copied stays marked',
     [('    page_->from->cancel_move(page_->number, source_.index());\n', '')]),
    ('mover: a failed copy counts as a page that stays',
     [('end(PageToMove::Outcome::failed);', 'end(PageToMove::Outcome::stayed);')]),
    ('mover: the target of a page that is being written is lost', [('        ' + PUT_BACK + STAYED, STAYED)]),
    ('mover: a last byte is taken for zero',
     [('std::memcmp(data, data + 1, length - 1)', 'std::memcmp(data, data + 1, length - 2)')]),
    ('mover: pages move to a failed device',
     [('return !pool->device().failed() &&\n               pool->memory().take_target',
       'return pool->memory().take_target')]),
    ('mover: after a page that stays, the others find no room',
     [('if (page->outcome == PageToMove::Outcome::no_room) queue.set_full',
       'if (page->outcome != PageToMove::Outcome::moved) queue.set_full')]),
    ('migrator: the limit stays low after an error', [('        settle();\n        throw;\n', '        throw;\n')]),
    ('migrator: an emptied slab that is read drains forever',
     [(STOP_DRAINING + '        slab->owner->memory().stop_draining(slab->slab);\n', STOP_DRAINING)]),
    ('migrator: pages that are used leave first',
     [('slab.heat += uses.heat(pool, located.page);',
       'slab.heat += UseHistory::hottest - uses.heat(pool, located.page);')]),
    ('migrator: a shared page is counted for each volume', [('            if (seen[entry.page()]) continue;\n', '')]),
    ('full provision: slabs that leave are not counted',
     [('                promised.leave(*next->owner, next->bytes);\n', '')]),
    ('full provision: the room of a device counts for each volume', [(COUNTED, '')]),
    ('blocking: the limit is lifted though pages found no room',
     [('!result->moved.empty() || result->no_room ||', '!result->moved.empty() ||')]),
    ('blocking: cancel does not wake the caller',
     [('        reply->abandoned = true;\n    }\n    reply->changed.notify_all();\n',
       '        reply->abandoned = true;\n    }\n')]),
    ('memory watch: does not notice that it has work',
     [('        keep_free_ = bytes;\n    }\n    changed_.notify_all();\n', '        keep_free_ = bytes;\n    }\n')]),
]}
