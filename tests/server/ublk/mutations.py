"""Mutations of server/ublk that unit tests can notice; tests/mutations.py tries them. Device, Control and UringQueueIo
need the kernel's ublk, and have tests in a guest only (vm.ublk)."""

FAIL = '    fail(read_.status());\n'
RANGE = '''    if (descriptor.start_sector > info.size >> sector_shift ||
        !protocol::lies_in(info.size, command.offset, command.length)) {
'''
READ_ONLY = '    if (info.read_only && command.type != CommandType::read) return std::nullopt;\n'
ARRIVED = '        if (next->result == 0) kept_.push_back(next->tag);\n    }\n'

MUTATIONS = {('server_tests', r'^server\.ublk'): [
    ('ublk: a request may end beyond the export',
     [(RANGE, '    if (descriptor.start_sector > info.size >> sector_shift) {\n')]),
    ('ublk: writes to a read-only export', [(READ_ONLY, '')]),
    ('ublk: an idle queue does not wait',
     [('        if (!next) return io_->wait();\n', '        if (!next) return;\n')]),
    ('ublk: a paused queue does not wait', [(ARRIVED + '    io_->wait();\n', ARRIVED)]),
    ('ublk: requests that arrive during a pause are lost', [(ARRIVED, '    }\n')]),
    ('ublk: a pause waits for the rates',
     [('        if (!taking_) {\n            admission_.withdraw();\n        } else if (admission_.due())',
       '        if (admission_.due())')]),
    ('ublk: a pause does not wait for requests in flight',
     [('if (quiet_ && in_flight_ == 0) std::exchange', 'if (quiet_) std::exchange')]),
    ('ublk: a queue ends before requests that have arrived',
     [('in_flight_ != 0 || commands_ != 0 || !kept_.empty()) return;',
       'in_flight_ != 0 || commands_ != 0) return;')]),
    ('ublk: answers of later events are not sent', [('    if (!running_) worker_.scheduler.run_soon(*this);\n', '')]),
    ('ublk: the end of a volume that has shrunk is not checked',
     [('if (!protocol::lies_in(transfer_.volume.size(), command.offset, command.length)) {', 'if (false) {')]),
    ('ublk: payload of the next write begins where the last one ended', [('    received_ = 0;\n', '')]),
    ('ublk: a failed read is a success', [(FAIL, '')]),
    ('ublk: a failed discard is a success', [('    fail(zero_.status());\n', '')]),
    ('ublk: each buffer of a reply is sent to its beginning',
     [('        data = data.subspan(part.size());\n        offset += part.size();\n',
       '        data = data.subspan(part.size());\n')]),
    ('ublk: a device continues without its contents',
     [('           exported.contents_outlive_server() && Mark(device.mark)', '           Mark(device.mark)')]),
    ('ublk: a queue that has ended is still counted',
     [('Queue::~Queue() { worker_.counters.end(*counters_); }', 'Queue::~Queue() = default;')]),
]}
