"""LIST_META_CONTEXT and SET_META_CONTEXT: the selected set, and the conditions that clear it."""
import struct

import wire
from suite import MUST, SHOULD, allowed, expect, offered, rule

ALLOCATION = 'base:allocation'


def connect(server):
    negotiation = server.connect_for('structured')
    answer = negotiation.option(wire.LIST_META_CONTEXT, wire.context_query(server.export))
    offered(answer.ok, f'metadata contexts: {answer.name}')
    return negotiation


def ask(server, negotiation, option, *queries, name=None):
    return negotiation.option(option, wire.context_query(server.export if name is None else name, *queries))


def connect_with_allocation(server):
    negotiation = connect(server)
    answer = ask(server, negotiation, wire.SET_META_CONTEXT, ALLOCATION)
    offered(answer.ok and answer.contexts(), ALLOCATION)
    return negotiation


def status_error(server, negotiation):
    """The error of BLOCK_STATUS after GO, or None if the server disconnects."""
    session = server.go('structured', negotiation=negotiation)
    session.send(wire.BLOCK_STATUS, 0, 4096)
    try:
        return session.receive().error
    except wire.Closed:
        return None


def expect_cleared(server, negotiation, reason):
    error = status_error(server, negotiation)
    expect(error != 0, f'{reason}, but BLOCK_STATUS still succeeds')


@rule(MUST, 'NBD_OPT_LIST_META_CONTEXT', 'LIST without a query lists every context')
def list_all(server):
    """If zero queries are sent, then the server MUST return all the metadata contexts that are
    available to the client to select on the given export."""
    negotiation = connect(server)
    listed = {name for _, name in ask(server, negotiation, wire.LIST_META_CONTEXT).contexts()}
    chosen = {name for _, name in
              ask(server, negotiation, wire.SET_META_CONTEXT, ALLOCATION).contexts()}
    offered(chosen or listed, 'a metadata context')
    expect(chosen <= listed, f'{chosen} can be selected, {listed} is listed')


@rule(SHOULD, 'NBD_OPT_LIST_META_CONTEXT', 'listed contexts have the id 0')
def list_ids(server):
    """The metadata context ID in these replies is reserved and SHOULD be set to zero."""
    contexts = ask(server, connect(server), wire.LIST_META_CONTEXT).contexts()
    offered(contexts, 'a metadata context')
    expect(not any(identity for identity, _ in contexts), f'{contexts}')


@rule(MUST, 'The base: metadata namespace', 'LIST accepts base: as a wildcard')
def list_wildcard(server):
    """base: - the server [...] MUST support this as a wildcard during NBD_OPT_LIST_META_CONTEXT"""
    negotiation = connect(server)
    everything = {name for _, name in ask(server, negotiation, wire.LIST_META_CONTEXT).contexts()
                  if name.startswith('base:')}
    offered(everything, 'a context of base:')
    answer = ask(server, negotiation, wire.LIST_META_CONTEXT, 'base:')
    expect(answer.ok and {name for _, name in answer.contexts()} == everything,
           f'base: lists {answer.contexts()}, without a query there is {everything}')


@rule(MUST, 'NBD_OPT_LIST_META_CONTEXT', 'queries of an unknown namespace are ignored')
def unknown_namespace(server):
    """the server MUST ignore query strings belonging to an unknown namespace. If none of the query
    strings find any metadata contexts, the server MUST send a single reply of type NBD_REP_ACK."""
    negotiation = connect(server)
    for option in (wire.LIST_META_CONTEXT, wire.SET_META_CONTEXT):
        answer = ask(server, negotiation, option, 'x-unknown-namespace:leaf')
        expect(answer.ok and len(answer.replies) == 1, f'option {option}: {answer.name}, '
               f'{len(answer.replies)} replies')


@rule(MUST, 'The base: metadata namespace', 'unknown leaves of base: are ignored')
def unknown_leaf(server):
    """If a [leaf-name] requested by the client is not recognized, the server MUST ignore it rather
    than report an error."""
    negotiation = connect(server)
    for option in (wire.LIST_META_CONTEXT, wire.SET_META_CONTEXT):
        for query in ('base:no-such-leaf', 'base:allocationx', 'base:allocatio', 'base:' + 'n' * 4000):
            answer = ask(server, negotiation, option, query)
            expect(answer.ok and not answer.contexts(),
                   f'option {option}, {query[:20]}: {answer.name}, {answer.contexts()}')


@rule(MUST, 'NBD_OPT_LIST_META_CONTEXT', 'matching queries are found beside others')
def mixed_queries(server):
    """the server MUST return those metadata contexts that are available [...], and which match one or
    more of the queries given"""
    negotiation = connect_with_allocation(server)
    for option in (wire.LIST_META_CONTEXT, wire.SET_META_CONTEXT):
        answer = ask(server, negotiation, option, 'x-other:a', ALLOCATION, 'base:nothing')
        expect(ALLOCATION in [name for _, name in answer.contexts()],
               f'option {option}: {answer.name}, {answer.contexts()}')


@rule(MUST, 'NBD_OPT_SET_META_CONTEXT', 'each selected context has an id of its own')
def unique_ids(server):
    """one for each selected metadata context, each with a unique metadata context ID, followed by
    NBD_REP_ACK"""
    negotiation = connect_with_allocation(server)
    everything = [name for _, name in ask(server, negotiation, wire.LIST_META_CONTEXT).contexts()]
    for queries in ([ALLOCATION], everything):
        answer = ask(server, negotiation, wire.SET_META_CONTEXT, *queries)
        contexts = answer.contexts()
        expect(answer.ok and contexts, f'{queries}: {answer.name}')
        expect(len({identity for identity, _ in contexts}) == len(contexts), f'ids: {contexts}')


@rule(MUST, 'NBD_OPT_SET_META_CONTEXT', 'a context queried twice is selected once')
def selected_once(server):
    """Otherwise the server MUST reply with a number of NBD_REP_META_CONTEXT replies, one for each
    selected metadata context, each with a unique metadata context ID. (One reply for each context, not for
    each query. The specification does not forbid duplicate queries.)"""
    answer = ask(server, connect_with_allocation(server), wire.SET_META_CONTEXT, ALLOCATION, ALLOCATION)
    names = [name for _, name in answer.contexts()]
    expect(answer.ok and names == [ALLOCATION], f'{answer.name}, {answer.contexts()}')


@rule(SHOULD, 'NBD_OPT_SET_META_CONTEXT', 'SET without structured replies is ERR_INVALID')
def without_structured(server):
    """This option MUST NOT be requested unless structured replies have been negotiated first. If a
    client attempts to do so, a server SHOULD send NBD_REP_ERR_INVALID. (Or EXT_HEADER_REQD, if the
    server supports extended headers.)"""
    connect(server)
    answer = ask(server, server.connect(), wire.SET_META_CONTEXT, ALLOCATION)
    expect(answer.final in (wire.ERR_INVALID, wire.ERR_EXT_HEADER_REQD), f'it is {answer.name}')


@rule(MUST, 'The base: metadata namespace', 'SET ignores base: alone')
def set_wildcard(server):
    """base: - the server MUST ignore this form during NBD_OPT_SET_META_CONTEXT"""
    negotiation = connect(server)
    answer = ask(server, negotiation, wire.SET_META_CONTEXT, 'base:')
    expect(answer.ok and not answer.contexts(), f'{answer.name}, {answer.contexts()}')


@rule(SHOULD, 'NBD_OPT_SET_META_CONTEXT', 'a query similar to a context name selects nothing')
def set_by_whole_name(server):
    """If the option request is valid, the server MUST select those metadata contexts that match one or more of the
    queries given. (A name such as gpunbd:instance=ID identifies the contents of an export: a query for another ID
    must not match it.)"""
    negotiation = connect(server)
    names = [name for _, name in ask(server, negotiation, wire.LIST_META_CONTEXT).contexts()]
    offered(names, 'a metadata context')
    for name in names:
        last = '1' if name[-1] == '0' else '0'
        for query in (name[:-1], name + '0', name[:-1] + last, name.upper()):
            answer = ask(server, negotiation, wire.SET_META_CONTEXT, query)
            expect(answer.ok and not answer.contexts(), f'{query} selects {answer.contexts()}')


@rule(MUST, 'NBD_OPT_SET_META_CONTEXT', 'SET without a query selects nothing')
def set_nothing(server):
    """If zero queries are sent, the server MUST select no metadata contexts."""
    negotiation = connect_with_allocation(server)
    answer = ask(server, negotiation, wire.SET_META_CONTEXT)
    expect(answer.ok and not answer.contexts(), f'{answer.name}, {answer.contexts()}')
    expect_cleared(server, negotiation, 'SET without a query replaced the set')


@rule(MUST, 'NBD_OPT_SET_META_CONTEXT', 'a later SET replaces an earlier one')
def set_replaces(server):
    """Issuing this command replaces all previously-set metadata contexts"""
    negotiation = connect_with_allocation(server)
    ask(server, negotiation, wire.SET_META_CONTEXT, 'base:nothing')
    expect_cleared(server, negotiation, 'a SET that selects nothing replaced the set')


@rule(MUST, 'NBD_OPT_SET_META_CONTEXT', 'a failed SET clears the set')
def set_failed(server):
    """replaces all previously-set metadata contexts (including when this command fails)"""
    negotiation = connect_with_allocation(server)
    try:
        answer = negotiation.option(wire.SET_META_CONTEXT, wire.pack_string(server.export)
                                    + struct.pack('>II', 1, 500) + b'base:allocation')
        expect(not answer.ok, 'a query that is longer than the option is accepted')
    except wire.Closed:
        allowed()  # another rule requires a reply to a syntax error
        return
    expect_cleared(server, negotiation, 'a SET failed')


@rule(MUST, 'NBD_OPT_SET_META_CONTEXT', 'GO for another name clears the set')
def set_for_another(server):
    """A client MUST NOT send BLOCK_STATUS unless [...] the final time it was sent, it referred to the
    same export name that was ultimately selected for transmission phase"""
    negotiation = connect_with_allocation(server)
    ask(server, negotiation, wire.SET_META_CONTEXT, ALLOCATION, name=server.export + '-another')
    expect_cleared(server, negotiation, 'the last SET was for another name')


@rule(MUST, 'NBD_OPT_SET_META_CONTEXT', 'LIST selects nothing')
def list_selects_nothing(server):
    """LIST_META_CONTEXT: Return a list of NBD_REP_META_CONTEXT replies. (Only SET_META_CONTEXT changes
    the set of active metadata contexts.)"""
    negotiation = connect(server)
    ask(server, negotiation, wire.LIST_META_CONTEXT, ALLOCATION)
    expect_cleared(server, negotiation, 'only LIST was asked for')


@rule(SHOULD, 'Metadata querying', 'BLOCK_STATUS without a context is EINVAL')
def status_without_context(server):
    """Servers SHOULD reply with NBD_EINVAL to clients sending NBD_CMD_BLOCK_STATUS without selecting
    at least one metadata context."""
    error = status_error(server, connect(server))
    expect(error == wire.EINVAL, f'the error is {wire.named(wire.ERROR_NAMES, error)}'
           if error is not None else 'the server disconnects')


@rule(MUST, 'NBD_OPT_SET_META_CONTEXT', 'other options do not change the set')
def set_kept(server):
    """the final time it was sent, it referred to the same export name that was ultimately selected for
    transmission phase with no intervening NBD_OPT_STARTTLS"""
    negotiation = connect_with_allocation(server)
    negotiation.option(wire.LIST)
    negotiation.info(server.export)
    ask(server, negotiation, wire.LIST_META_CONTEXT, 'base:')
    negotiation.option(wire.UNKNOWN_OPTION)
    expect(status_error(server, negotiation) == 0, 'other options voided the set')


@rule(MUST, 'NBD_OPT_LIST_META_CONTEXT', 'contradicting lengths in a query are ERR_INVALID')
def malformed(server):
    """If the option request is syntactically invalid (such as a query length that would require
    reading beyond the original length given in the option header), the server MUST fail the request
    with NBD_REP_ERR_INVALID."""
    name = wire.pack_string(server.export)
    cases = {
        'no data': b'',
        'a name longer than the option': struct.pack('>I', 200) + b'short',
        'a name of 2^32-1 bytes': struct.pack('>I', 0xffffffff) + bytes(8),
        'no number of queries': name,
        'a query longer than the option': name + struct.pack('>II', 1, 200) + b'base:',
        'a query of 2^32-4 bytes': name + struct.pack('>II', 1, 0xfffffffc) + b'base:',
        'more queries than there are': name + struct.pack('>I', 3) + wire.pack_string(ALLOCATION),
        '2^32-1 queries': name + struct.pack('>I', 0xffffffff) + wire.pack_string(ALLOCATION),
    }
    for what, data in cases.items():
        for option in (wire.LIST_META_CONTEXT, wire.SET_META_CONTEXT):
            negotiation = connect(server)
            answer = negotiation.option(option, data)
            expect(answer.final == wire.ERR_INVALID, f'option {option}, {what}: {answer.name}')
            expect(negotiation.in_step(), f'the option after {what} is not understood')


@rule(MUST, 'NBD_OPT_LIST_META_CONTEXT', 'a query without a namespace is ERR_INVALID or ignored')
def no_namespace(server):
    """For requests that are semantically invalid (such as lacking the required colon that delimits the
    namespace [...]), the server MAY fail the request with NBD_REP_ERR_INVALID."""
    for option in (wire.LIST_META_CONTEXT, wire.SET_META_CONTEXT):
        negotiation = connect(server)
        answer = ask(server, negotiation, option, 'no colon')
        expect(answer.final == wire.ERR_INVALID or (answer.ok and not answer.contexts()),
               f'option {option}: {answer.name}, {answer.contexts()}')
        expect(negotiation.in_step(), 'the next option is not understood')
