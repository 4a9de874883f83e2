"""Mutations of server/handover; tests/mutations.py tries them."""

STORE = '    if (const auto wrong = store_.store(next.name, next.descriptor.get())) {\n'
REMOVE_EARLIER = '    if (found != stored_.end()) store_.remove(found->second.name);\n'
FORGOTTEN = 'spdlog::warn("the supervisor still stores a removed export: {}", *wrong);\n    }\n'
REFUSED = 'if (users.refused.contains(own.name)) {\n        ends.reset();\n    } else if'
QUIESCED = '        if (quiesced_) {\n            throw'
FIRST_END = 'if (first != nullptr && *first->without_export()->ends <= *contents->ends) continue;'
UNREADABLE = '        if (each.table == nullptr) {\n            throw'
OWN_NAME = '        if (own.volume().get() == &volume) own.name = name;\n'
NOT_STORED = '''                     *wrong);
        return;
    }
    states_ = states;
'''

TESTS = r'^server\.(kept|volume parts|renamed exports|take over|upgrade|successor|volume disposal)'
MUTATIONS = {('server_tests', TESTS): [
    ('stored: slabs stay after the last volume',
     [('if (volumes_.empty() || is_its_table) state', 'if (is_its_table) state')]),
    ('stored: a failed removal is not tried again',
     [('                report_pending(*wrong);\n                return false;',
       '                report_pending(*wrong);\n                removals_pending_ = false;\n'
       '                return false;')]),
    ('stored: a part may replace one whose removal failed',
     [('if (!remove_pending() && parts_.contains(part)) return false;', 'remove_pending();')]),
    ('options: the earlier ones are removed before the new ones are stored', [(STORE, REMOVE_EARLIER + STORE)]),
    ('options: a removed export is passed to the successor', [(FORGOTTEN + '    stored_.erase(found);\n', FORGOTTEN)]),
    ('calibration: one that could not be stored is not stored later',
     [(NOT_STORED, NOT_STORED.replace('        return;\n', ''))]),
    ('settle: contents that could not be taken over never end',
     [('    } else if (!earlier.ends) {\n        earlier.ends = end;\n', '    } else if (!earlier.ends) {\n')]),
    ('settle: contents of a refused export are freed',
     [(REFUSED, REFUSED.replace('users.refused.contains(own.name)', 'false'))]),
    ('adopt: a clone with an unreadable table is left out',
     [(UNREADABLE, '        if (each.table == nullptr) continue;\n' + UNREADABLE)]),
    ('make: contents that could not be made stay with the supervisor',
     [('        kept_parts->drop_volume();\n        const Lock lock(mutex_);\n',
       '        const Lock lock(mutex_);\n')]),
    ('make: contents that are made while quiesced change', [('    if (quiesced_) volume->quiesce();\n', '')]),
    ('make: a clone is made while quiesced', [(QUIESCED, QUIESCED.replace('quiesced_', 'false'))]),
    ('copies: contents that end with this server are passed on',
     [('        if (!volume || !own.kept_parts->keeps()) continue;\n        all.push_back({own',
       '        if (!volume) continue;\n        all.push_back({own')]),
    ('drop_unused: frees the contents that would end last', [(FIRST_END, FIRST_END.replace('<=', '>='))]),
    ('rename: the contents are looked for by their earlier name', [(OWN_NAME, '')]),
    ('message: the descriptor of an invalid one stays open',
     [('UpgradeMessage message{.descriptor = OwnedFd(descriptor)};', 'UpgradeMessage message{};'),
      ('    message.body.assign(body.begin(), body.end());\n    return message;\n',
       '    message.body.assign(body.begin(), body.end());\n    message.descriptor = OwnedFd(descriptor);\n'
       '    return message;\n')]),
]}
