"""Options other than metadata contexts and TLS: the reply to each, and that parsing continues."""
import struct

import wire
from suite import MUST, SHOULD, allowed, expect, offered, rule

UNKNOWN_OPTIONS = (0, wire.PEEK_EXPORT, 12, 0x1234, 0x7fffffff, 0xffffffff)


@rule(MUST, 'Baseline', 'an unknown option is answered with ERR_UNSUP')
def unknown_option(server):
    """Servers that receive messages which they do not implement MUST reply to them with
    NBD_REP_ERR_UNSUP."""
    negotiation = server.connect()
    for option in UNKNOWN_OPTIONS:
        answer = negotiation.option(option)
        expect(answer.final == wire.ERR_UNSUP, f'option {option:#x} is answered with {answer.name}')


@rule(MUST, 'Baseline', 'the data of an unknown option are skipped')
def unknown_option_with_data(server):
    """Servers that receive messages which they do not implement [...] MUST NOT fail to parse the next
    message received."""
    for length in (1, 15, 16, 17, 512, 4096):
        negotiation = server.connect()
        # Data that the server would execute as an option if it did not skip them.
        bait = wire.encode_option(wire.LIST) * 256
        answer = negotiation.option(wire.UNKNOWN_OPTION, bait[:length])
        expect(answer.final == wire.ERR_UNSUP, f'{length} bytes: {answer.name}')
        expect(negotiation.in_step(), f'the option after {length} bytes of data is not understood')


@rule(MUST, 'Fixed newstyle negotiation', 'each reply echoes its option')
def option_echoed(server):
    """S: 64 bits, 0x3e889045565a9; 32 bits, the option as sent by the client to which this is a
    reply. (0xfedcba98 is an option number that a server cannot echo by chance.)"""
    negotiation = server.connect()
    for option, data in ((wire.LIST, b''), (wire.INFO, wire.info_request(server.export)),
                         (0xfedcba98, b'data')):
        negotiation.send(option, data)
        kind, _ = negotiation.stream.option_reply(option)  # Broken where it echoes another option
        allowed()
        if kind != wire.REP_ACK and kind < 1 << 31:
            negotiation.answer(option)


@rule(MUST, 'Termination of the session during option haggling', 'any number of options is answered')
def many_options(server):
    """it MUST (save where set out above) simply error inbound options until the client gets the hint
    that it is unwelcome"""
    negotiation = server.connect()
    for _ in range(24):
        answer = negotiation.info(server.export)
        expect(answer.ok, f'INFO is answered with {answer.name}')
    expect(negotiation.option(wire.UNKNOWN_OPTION).final == wire.ERR_UNSUP, 'an unknown option after many')


@rule(MUST, 'NBD_OPT_ABORT', 'ABORT is acknowledged')
def abort(server):
    """The server MUST reply with NBD_REP_ACK."""
    answer = server.connect().option(wire.ABORT)
    expect(answer.ok, f'ABORT is answered with {answer.name}')


@rule(SHOULD, 'NBD_OPT_ABORT', 'data of ABORT are ignored')
def abort_with_data(server):
    """a server SHOULD ignore any data sent by the client rather than rejecting the request as
    invalid."""
    answer = server.connect().option(wire.ABORT, b'goodbye')
    expect(answer.ok, f'ABORT with data is answered with {answer.name}')


@rule(SHOULD, 'NBD_OPT_ABORT', 'a client may abort and disconnect at once')
def abort_and_hang_up(server):
    """the server SHOULD gracefully handle the client sending an NBD_OPT_ABORT and closing the
    connection without waiting for a reply."""
    with server.bystander():
        for _ in range(8):
            negotiation = server.connect()
            negotiation.send(wire.ABORT)
            negotiation.stream.close()


@rule(MUST, 'NBD_OPT_LIST', 'LIST names exports, then acknowledges')
def list_exports(server):
    """Return zero or more NBD_REP_SERVER replies, one for each export, followed by NBD_REP_ACK or an
    error. (Baseline: LIST and its response MUST be implemented.)"""
    negotiation = server.connect()
    answer = negotiation.option(wire.LIST)
    expect(answer.ok or answer.final in (wire.ERR_POLICY, wire.ERR_SHUTDOWN, wire.ERR_TLS_REQD),
           f'LIST is answered with {answer.name}')
    others = [kind for kind, _ in answer.replies[:-1] if kind != wire.REP_SERVER]
    expect(not others, f'LIST is answered with replies of the type {others}')
    answer.exports()
    expect(negotiation.in_step(), 'the option after LIST is not understood')


@rule(MUST, 'NBD_REP_SERVER', 'INFO knows every name from LIST')
def listed_names(server):
    """String, name of the export, as expected by NBD_OPT_EXPORT_NAME, NBD_OPT_INFO, or NBD_OPT_GO"""
    negotiation = server.connect()
    names = negotiation.option(wire.LIST).exports()
    offered(names, 'a list of exports')
    for name in names[:20]:
        answer = negotiation.info(name)
        expect(answer.ok or answer.final in (wire.ERR_TLS_REQD, wire.ERR_POLICY),
               f'LIST names {name!r}, INFO answers {answer.name}')


@rule(SHOULD, 'NBD_OPT_LIST', 'LIST with data is refused with ERR_INVALID')
def list_with_data(server):
    """the server SHOULD reject a request that includes data with NBD_REP_ERR_INVALID."""
    answer = server.connect().option(wire.LIST, b'data')
    expect(answer.final == wire.ERR_INVALID, f'it is answered with {answer.name}')


@rule(MUST, 'Fixed newstyle negotiation', 'the data of options without data are not executed as an option')
def unwanted_data(server):
    """C: 32 bits, length of option data (unsigned); C: any data needed for the chosen option, of length as
    specified above. (It MAY disconnect, as the client broke a MUST NOT.)"""
    for option in (wire.LIST, wire.STRUCTURED_REPLY, wire.EXTENDED_HEADERS):
        negotiation = server.connect()
        try:
            negotiation.option(option, b'twelve bytes')
            answer = negotiation.option(wire.UNKNOWN_OPTION)
        except wire.Closed:
            allowed()
            continue
        expect(answer.final in (wire.ERR_UNSUP, wire.ERR_TLS_REQD),
               f'the option after option {option} with data is answered with {answer.name}')


@rule(MUST, 'NBD_OPT_INFO', 'INFO_EXPORT comes before the ACK')
def info_export(server):
    """In this case, the server MUST send at least one NBD_REP_INFO, with an NBD_INFO_EXPORT
    information type. [...] length MUST be 12"""
    for option in (wire.INFO, wire.GO):
        answer = server.connect().option(option, wire.info_request(server.export))
        offered(answer.final not in (wire.ERR_UNSUP, wire.ERR_BLOCK_SIZE_REQD), answer.name)
        expect(answer.ok, f'option {option} is answered with {answer.name}')
        expect(answer.export(), f'option {option} is acknowledged without INFO_EXPORT')


@rule(SHOULD, 'NBD_REP_INFO', 'each information type is sent once')
def info_once(server):
    """A particular information type SHOULD only appear once for a given export unless documented
    otherwise."""
    answer = server.connect().info(server.export, wire.INFO_EXPORT, wire.INFO_NAME,
                                   wire.INFO_DESCRIPTION, wire.INFO_BLOCK_SIZE)
    kinds = [kind for kind, _ in answer.infos()]
    expect(kinds and len(kinds) == len(set(kinds)), f'the information types are {kinds}')


@rule(MUST, 'NBD_OPT_INFO', 'unknown information requests are ignored')
def unknown_infos(server):
    """The server MUST ignore any information requests it does not understand."""
    for option in (wire.INFO, wire.GO):
        data = wire.info_request(server.export, 0x7777, wire.INFO_BLOCK_SIZE, 0xffff, 4)
        answer = server.connect().option(option, data)
        offered(answer.final != wire.ERR_UNSUP, 'INFO and GO')
        expect(answer.ok, f'option {option} with unknown requests is answered with {answer.name}')


@rule(MUST, 'NBD_OPT_INFO', 'INFO of an unknown export is ERR_UNKNOWN, and negotiation continues')
def info_unknown(server):
    """NBD_REP_ERR_UNKNOWN: The chosen export does not exist on this server."""
    name = server.unknown_export()
    negotiation = server.connect()
    for option in (wire.INFO, wire.GO):
        answer = negotiation.option(option, wire.info_request(name))
        expect(answer.final in (wire.ERR_UNKNOWN, wire.ERR_TLS_REQD),
               f'option {option} is answered with {answer.name}')
    expect(negotiation.info(server.export).ok, 'after an unknown export a known one is refused')


@rule(SHOULD, 'NBD_OPT_INFO', 'no information about an unknown export')
def no_info_of_unknown(server):
    """In this case, the server SHOULD NOT send NBD_REP_INFO replies."""
    answer = server.connect().info(server.unknown_export(), wire.INFO_BLOCK_SIZE)
    expect(not answer.infos(), 'information comes before ERR_UNKNOWN')


@rule(MUST, 'NBD_OPT_INFO', 'GO after INFO reports the same')
def info_then_go(server):
    """the server MUST reply with the same set of information [...], although the ordering of the
    intermediate NBD_REP_INFO messages MAY differ."""
    negotiation = server.connect()
    wanted = (wire.INFO_NAME, wire.INFO_DESCRIPTION, wire.INFO_BLOCK_SIZE)
    info = negotiation.info(server.export, *wanted)
    offered(info.ok, f'INFO: {info.name}')
    go = negotiation.go(server.export, *wanted)
    expect(go.ok and sorted(go.infos()) == sorted(info.infos()),
           f'INFO: {sorted(info.infos())}, GO: {sorted(go.infos())}')


@rule(MUST, 'NBD_OPT_INFO', 'INFO does not end negotiation')
def info_stays(server):
    """The client wishes to get details about an export [...], but does not yet want to move to the
    transmission phase."""
    negotiation = server.connect()
    expect(negotiation.info(server.export).ok, 'INFO is refused')
    expect(negotiation.in_step(), 'the option after INFO is not understood')


def malformed(name):
    """Invalid data for INFO and GO: the lengths contradict each other."""
    return {
        'no data': b'',
        'half a length': b'\0\0',
        'a length alone': struct.pack('>I', 0),
        'a name longer than the option': struct.pack('>I', 100) + b'short' + b'\0\0',
        'a name of 2^32-1 bytes': struct.pack('>I', 0xffffffff) + b'\0\0',
        'a name of 2^32-6 bytes': struct.pack('>I', 0xfffffffa) + b'\0\0\0\0',
        'more requests than data': wire.pack_string(name) + struct.pack('>HH', 65535, 0),
        'data behind the requests': wire.info_request(name) + b'behind',
    }


@rule(MUST, 'NBD_OPT_INFO', 'contradicting lengths in INFO and GO are never accepted')
def malformed_never_accepted(server):
    """32 bits, length of name (unsigned); MUST be no larger than the option data length - 6. A server
    that reads beyond it would use its own memory as the name."""
    with server.bystander():
        for what, data in malformed(server.export).items():
            for option in (wire.INFO, wire.GO):
                try:
                    answer = server.connect().option(option, data)
                except wire.Closed:
                    continue
                expect(not answer.ok or what == 'data behind the requests',
                       f'option {option} with {what} is accepted')


@rule(SHOULD, 'NBD_REP_ERR_INVALID', 'contradicting lengths in INFO and GO are ERR_INVALID')
def malformed_invalid(server):
    """The option sent by the client is known by this server, but was determined by the server to be
    syntactically or semantically invalid."""
    for what, data in malformed(server.export).items():
        for option in (wire.INFO, wire.GO):
            negotiation = server.connect()
            try:
                answer = negotiation.option(option, data)
            except wire.Closed:
                expect(False, f'option {option} with {what} ends the connection')
            offered(answer.final != wire.ERR_UNSUP, 'INFO and GO')
            expect(answer.final == wire.ERR_INVALID,
                   f'option {option} with {what} is answered with {answer.name}')
            expect(negotiation.in_step(), f'the option after {what} is not understood')


@rule(MUST, 'Conventions', 'a name of 4096 bytes is accepted')
def longest_name(server):
    """a string [...] MUST be no longer than 4096 bytes. Servers have stored long names on the stack, or
    echoed them in a message that exceeded the limit."""
    negotiation = server.connect()
    for length in (255, 256, 257, 1024, 4095, 4096):
        answer = negotiation.info('n' * length)
        expect(answer.ok or answer.final in (wire.ERR_UNKNOWN, wire.ERR_TLS_REQD, wire.ERR_TOO_BIG,
                                             wire.ERR_INVALID),
               f'a name of {length} bytes is answered with {answer.name}')
    expect(negotiation.in_step(), 'the option after long names is not understood')


@rule(MUST, 'Conventions', 'invalid names do not affect other clients')
def bad_names(server):
    """a string [...] MUST NOT contain NUL characters, [...] and MUST be no longer than 4096 bytes; and
    a server must not disconnect other clients."""
    with server.bystander():
        for name in (b'n' * 4097, b'n' * 8192, b'n' * 60000, b'\0', b'a\0b', b'\xff\xfe', b'%s%n%n',
                     '\u2028\U0001f480'.encode() * 100):
            for option, data in ((wire.INFO, wire.info_request(name)), (wire.EXPORT_NAME, name),
                                 (wire.LIST_META_CONTEXT, wire.context_query(name))):
                negotiation = server.connect()
                try:
                    negotiation.send(option, data)
                    if option != wire.EXPORT_NAME:
                        negotiation.answer(option)
                except (wire.Closed, wire.Broken):
                    pass  # a message that quotes an invalid string is invalid as well
                negotiation.stream.close()


@rule(MUST, 'Fixed newstyle negotiation', 'an option of 4 GiB does not affect other clients')
def enormous_option(server):
    """C: 32 bits, length of option data (unsigned). Servers have allocated the length that a client
    claimed, or read all of it before they served other clients."""
    with server.bystander():
        for option in (wire.GO, wire.EXPORT_NAME, wire.LIST, wire.SET_META_CONTEXT, wire.UNKNOWN_OPTION):
            negotiation = server.connect()
            try:
                negotiation.send(option, bytes(8192), length=0xffffffff)
            except wire.Closed:
                pass


@rule(MUST, 'Conventions', 'error messages are strings')
def error_messages(server):
    """All error replies MAY have some data set, in which case that data is an error message string;
    a string is UTF-8, without NUL, and MUST be no longer than 4096 bytes."""
    seen = 0
    for option, data in ((wire.UNKNOWN_OPTION, b''), (wire.INFO, wire.info_request('n' * 4096)),
                         (wire.INFO, wire.info_request('\u00fc' * 2048)), (wire.LIST, b'data'),
                         (wire.SET_META_CONTEXT, wire.context_query('n' * 4096, 'base:x'))):
        negotiation = server.connect()
        negotiation.send(option, data)
        try:
            answer = negotiation.answer(option)
        except wire.Closed:
            continue
        wire.check_string(answer.data, 'an error message')
        seen += not answer.ok
    expect(seen, 'no error was received')


@rule(MUST, 'Block size constraints', 'block sizes are within their limits')
def block_sizes(server):
    """minimum: MUST be a power of 2, MUST NOT be larger than 2^16; preferred: MUST be a power of 2 at
    least as large as the maximum of the minimum block size and 2^9; maximum: MUST be either an integer
    multiple of the minimum block size or the value 0xffffffff, MUST be at least as large as the smaller
    of the preferred block size or export size"""
    answer = server.connect().info(server.export, wire.INFO_BLOCK_SIZE)
    offered(answer.ok and answer.block_sizes(), 'block sizes')
    least, preferred, most = answer.block_sizes()
    size, _ = answer.export()
    shown = f'minimum {least}, preferred {preferred}, maximum {most}, size {size}'
    expect(least and not least & (least - 1) and least <= 65536, shown)
    expect(not preferred & (preferred - 1) and preferred >= max(least, 512), shown)
    expect(most == 0xffffffff or most % least == 0, shown)
    expect(most >= min(preferred, size), shown)


@rule(SHOULD, 'Block size constraints', 'the maximum block is 1 MiB or more, the size a multiple of the minimum')
def block_sizes_useful(server):
    """SHOULD be at least 2^20 (1,048,576) if the export is that large; the advertised export size
    SHOULD be an integer multiple of that block size"""
    answer = server.connect().info(server.export, wire.INFO_BLOCK_SIZE)
    offered(answer.ok and answer.block_sizes(), 'block sizes')
    least, _, most = answer.block_sizes()
    size, _ = answer.export()
    expect(most >= min(wire.MiB, size), f'the maximum block is {most}')
    expect(size % least == 0, f'{size} bytes are not whole blocks of {least}')


@rule(MUST, 'NBD_OPT_INFO', 'a client that requests block sizes does not get BLOCK_SIZE_REQD')
def block_size_not_required(server):
    """The server MUST NOT send this error (BLOCK_SIZE_REQD) if block size constraints were requested
    with NBD_INFO_BLOCK_SIZE"""
    for option in (wire.INFO, wire.GO):
        answer = server.connect().option(
            option, wire.info_request(server.export, wire.INFO_BLOCK_SIZE))
        expect(answer.final != wire.ERR_BLOCK_SIZE_REQD, f'option {option}: {answer.name}')


@rule(SHOULD, 'NBD_OPT_STRUCTURED_REPLY', 'STRUCTURED_REPLY with data is refused with ERR_INVALID')
def structured_with_data(server):
    """the server SHOULD reject a request that includes data with NBD_REP_ERR_INVALID."""
    offered(server.connect().option(wire.STRUCTURED_REPLY).ok, 'structured replies')
    answer = server.connect().option(wire.STRUCTURED_REPLY, b'data')
    expect(answer.final == wire.ERR_INVALID, f'it is answered with {answer.name}')


@rule(MUST, 'NBD_OPT_STRUCTURED_REPLY', 'STRUCTURED_REPLY may be sent twice')
def structured_twice(server):
    """if it does, the server MAY fail the repeated message with NBD_REP_ERR_INVALID. (It must not
    disable structured replies.)"""
    negotiation = server.connect_for('structured')
    answer = negotiation.option(wire.STRUCTURED_REPLY)
    expect(answer.ok or answer.final == wire.ERR_INVALID, f'the second is {answer.name}')
    expect(server.go('structured', negotiation=negotiation).alive(), 'a READ after it has no structured reply')
