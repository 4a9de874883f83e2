"""Mutations of caches and of kept clones that their tests have to notice; tests/mutations.py tries them."""

ADD_MARK = 'marks_.add_unwritten(page, changed & ~volume_.missing_parts(page));'
END_MARK = 'parts_of(record.in_round) & ~parts_of(record.unwritten)'
BEGIN_ROUND = '    record.in_round.swap(record.unwritten);\n    record.waiting_in_round.swap'
PRESENT = 'const Parts present = is_handed_over() ? '

IN_USE = '    for (const Group::Fetch& each : group.fetches) {\n        if (each.page == page) in_use |= each.parts;\n    }\n'
FILLED = 'if (end.filled != 0) parts = found->parts & volume_.whole_parts_at(end.offset, end.filled);'

MUTATIONS = {('storage_tests', r'^storage\.origin: (several|a part has|a page that|a write to parts|where payload)'): [
    ('a fetch replaces what a write fills', [('            parts_ &= ~each.parts;\n', '')]),
    ('a write fills parts that are being fetched', [(IN_USE, '')]),
    ('two writes fill one part', [('        in_use |= each.parts;\n    }\n' + IN_USE, '    }\n' + IN_USE)]),
    ('a write that failed has filled parts', [(FILLED, 'parts = found->parts;')]),
    ('a write fills parts of another page after a zero', [('    found->second.fills.clear();\n', '')]),
    ('the rest of a part is not read', [('cut : fetching.cuts()) {', 'cut : std::vector<std::uint64_t>()) {')]),
], ('storage_tests', r'^storage\.kept c'): [
    ('a write leaves no mark', [(ADD_MARK, 'static_cast<void>(changed);')]),
    ('a write marks the first part only', [(ADD_MARK, 'marks_.add_unwritten(page, changed & -changed);')]),
    ('marks end when a round begins', [(BEGIN_ROUND, '    marks_.remove_unwritten(page, ~Parts{0});\n' + BEGIN_ROUND)]),
    ('marks end although there are later changes', [(END_MARK, 'parts_of(record.in_round)')]),
    ('marks do not end', [(END_MARK, 'Parts{0}')]),
    ('all parts of a page count as present', [('        volume_.set_parts(page, left.usable(page));\n', '')]),
    ('what is left unwritten is not written', [('        written_.adopt(page, unwritten, since);\n', '')]),
    ('clean pages are used after a kill', [(PRESENT, 'const Parts present = true ? ')]),
    ('pages are not used after a hand-over', [(PRESENT, 'const Parts present = false ? ')]),
    ('a cache works although it begins paused', [('        is_paused_ = volume_.is_quiesced();\n', '')]),
    ('a paused cache evicts', [('        if (is_paused_) return 0;\n', '')]),
    ('a paused cache drops', [('    if (is_paused_) return false;\n    if (written_.contains(page)) {', '    if (written_.contains(page)) {')]),
    ('a paused cache flushes', [('    if (is_paused_) return complete(request, Status::io_error);\n', '')]),
    ('a paused cache writes at its end', [('is_paused_ ? 0 : written_.bytes()) {', 'written_.bytes()) {'),
                                          ('    if (is_paused_) {\n        if (!has', '    if (false) {\n        if (!has')]),
    ('a paused cache flushes at its end', [('        if (is_paused_) return;  // another process goes on\n', '')]),
    ('no flush before a hand-over', [('has_to_flush_ = has_changed_origin_ &&', 'has_to_flush_ = false &&')]),
    ('what is only read is flushed', [('options_.continues && can_be_written_to()', 'options_.continues')]),
    ('a hand-over although a flush has failed', [('if (is_unsafe_ || !is_flushed_) return', 'if (false) return')]),
    ('zeroed pages of a clone have no mark', [('marks_.set_zeroed(page);', 'static_cast<void>(page);')]),
    ('a clone is complete before it has the id of its source', [('                                .complete = false},', '                                },')]),
    ('a clone continues with other contents', [('cache->id_of_contents() != known || ', '')]),
    ('a clone continues with a cache that is written to', [('if (cache->can_be_written_to()) return', 'if (false) return')]),
]}
