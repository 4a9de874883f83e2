"""Mutations of server/daemon; tests/mutations.py tries them."""

STOP = 'void ServiceList::stop() {\n    for (const auto& each : '
STORED_LATER = 'if (made && !(restores && find_unfilled(all, wanted->name) != all.unfilled.end())) {'
RENAMED = '        if (made) made = store_renamed(renamed->from, renamed->to);\n        if (!made) return made;\n'
STOPPED = '        if (stop.stop_requested()) return why;\n'
EMPTIED = '        for (std::uint64_t page = 0; page != volume.pages(); ++page) volume.unmap(page);\n'
NEXT_TURN = '    } else if (!waiting_.empty()) {\n        waiting_.front()->wake();\n'
REFUSED_DEVICES = '    context_.devices.set_options(context_.options.devices);\n    report_remade();\n'

SERVICES = ('server_tests',
            r'^server\.(services|state folder|watchdog|adopted|captive|ReclaimService|Reclaimer|pidfile|heap)')
CHANGES = ('control_plane_tests', r'^control_plane\.')

MUTATIONS = {SERVICES: [
    ('services: stopped in the order of their start', [(STOP + 'std::views::reverse(services_)', STOP + 'services_')]),
    ('state folder: a rename that failed is not undone',
     [('if (!replace(old_file, "", from) && renamed) {', 'if (renamed) {')]),
    ('watchdog: reports while a worker hangs', [('    if (pending_ && *pending_ != 0) return false;\n', '')]),
    ('adopted children: takes those that others wait for',
     [('return ended_.contains(child) && ::waitpid', 'return ::waitpid')]),
    ('reclaim: a claim without effect is still listed',
     [('                if (!status.claim) forgets(status);\n', '')]),
], CHANGES: [
    ('changes: the next one does not begin', [(NEXT_TURN, '    } else if (!waiting_.empty()) {\n')]),
    ('changes: the devices have the options of a refused one', [(REFUSED_DEVICES, '    report_remade();\n')]),
    ('create: an export is stored before it is restored', [(STORED_LATER, 'if (made) {')]),
    ('remove: the next server offers the export again',
     [('        if (made) made = unstore(removal->options);\n', '')]),
    ('remove: clients can enter the removed export', [('    if (done && closure) closure->make_final();\n', '')]),
    ('rename: the contents have the name before it is stored',
     [(RENAMED,
       '        if (made && contents != nullptr) contents->rename(*served->volume, new_name);\n' + RENAMED)]),
    ('resize: drops data without being asked',
     [('if (!request.discard && !volume.is_hole_from(request.size)) {', 'if (false) {')]),
    ('restore: what the stop interrupts counts as complete', [(STOPPED, '')]),
    ('restore: a failed one leaves parts', [(EMPTIED, '')]),
    ('clones of clients: one more than the limit',
     [('return true; }) >= limits.max) {', 'return true; }) > limits.max) {')]),
    ('kept contents: the end of their grace is not awaited',
     [('    timer_.expires_at(*next);\n    timer_.async_wait([this](boost::system::error_code error) {\n'
       '        if (!error) release_unused();\n    });\n',
       '')]),
]}
