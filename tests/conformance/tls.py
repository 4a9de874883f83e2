"""STARTTLS on servers without TLS, with optional TLS and with mandatory TLS."""
import ssl

import wire
from suite import MUST, SHOULD, NotOffered, allowed, expect, offered, rule

REFUSALS = (wire.ERR_UNSUP, wire.ERR_POLICY, wire.ERR_PLATFORM, wire.ERR_INVALID)


def no_tls(server):
    negotiation = server.connect(plain=True)
    answer = negotiation.option(wire.STARTTLS)
    offered(not answer.ok, 'no TLS: this server has it')
    return negotiation, answer


def secured(server, version=None, before=()):
    """A connection that sent the options in `before`, and then started TLS."""
    negotiation = server.connect(plain=True)
    for option in before:
        negotiation.option(option)
    answer = negotiation.option(wire.STARTTLS)
    offered(answer.ok, f'TLS: {answer.name}')
    server.start_tls(negotiation, version)
    return negotiation


def forced(server):
    answer = server.connect(plain=True).option(wire.LIST)
    if answer.final != wire.ERR_TLS_REQD:
        raise NotOffered('mandatory TLS')


def never_asks_for_tls(negotiation, options):
    for option, data in options:
        answer = negotiation.option(option, data)
        expect(answer.final != wire.ERR_TLS_REQD, f'option {option} is answered with TLS_REQD')


@rule(MUST, 'NOTLS mode', 'STARTTLS is acknowledged or refused as permitted')
def starttls_answer(server):
    """If the server receives NBD_OPT_STARTTLS it MUST respond with NBD_REP_ERR_POLICY, [...]
    NBD_REP_ERR_UNSUP [...] or another error explicitly permitted by this document."""
    answer = server.connect(plain=True).option(wire.STARTTLS)
    expect(answer.ok or answer.final in REFUSALS, f'STARTTLS is answered with {answer.name}')


@rule(MUST, 'NOTLS mode', 'a server without TLS continues, and never asks for TLS')
def never_required(server):
    """The server MUST NOT respond to any option request with NBD_REP_ERR_TLS_REQD."""
    negotiation, _ = no_tls(server)
    never_asks_for_tls(negotiation, (
        (wire.LIST, b''), (wire.INFO, wire.info_request(server.export)),
        (wire.INFO, wire.info_request('no-such-export')), (wire.STARTTLS, b''),
        (wire.UNKNOWN_OPTION, b''), (wire.STRUCTURED_REPLY, b'')))
    expect(negotiation.in_step(), 'the next option is not understood')


@rule(MUST, 'NBD_OPT_STARTTLS', 'STARTTLS with data is refused as permitted')
def starttls_with_data(server):
    """The server MUST either reply with NBD_REP_ACK after which point the connection is upgraded to
    TLS, or an error reply explicitly permitted by this document (for example, NBD_REP_ERR_INVALID if
    the client included data). An ACK would treat the client's data as TLS records."""
    negotiation = server.connect(plain=True)
    answer = negotiation.option(wire.STARTTLS, b'data')
    expect(answer.final in REFUSALS, f'it is answered with {answer.name}')
    expect(negotiation.in_step(), 'the next option is not understood')


@rule(MUST, 'TLS versions', 'TLS 1.2 works')
def tls_1_2(server):
    """NBD implementations supporting TLS MUST support TLS version 1.2"""
    answer = secured(server, ssl.TLSVersion.TLSv1_2).info(server.export)
    expect(answer.ok, f'INFO over TLS 1.2 is answered with {answer.name}')


@rule(SHOULD, 'TLS versions', 'TLS 1.3 works')
def tls_1_3(server):
    """SHOULD support any later versions"""
    answer = secured(server, ssl.TLSVersion.TLSv1_3).info(server.export)
    expect(answer.ok, f'INFO over TLS 1.3 is answered with {answer.name}')


@rule(SHOULD, 'TLS versions', 'older versions of TLS are off')
def tls_old(server):
    """NBD implementations MAY support older versions but SHOULD NOT do so by default"""
    try:
        secured(server, ssl.TLSVersion.TLSv1_1)
    except (ssl.SSLError, OSError):
        allowed()
        return
    expect(False, 'TLS 1.1 is accepted')


@rule(MUST, 'FORCEDTLS mode', 'a second STARTTLS is ERR_INVALID')
def starttls_twice(server):
    """If the server receives NBD_OPT_STARTTLS when TLS has already been negotiated, it MUST reply with
    NBD_REP_ERR_INVALID."""
    answer = secured(server).option(wire.STARTTLS)
    expect(answer.final == wire.ERR_INVALID, f'it is answered with {answer.name}')


@rule(MUST, 'FORCEDTLS mode', 'no option asks for TLS inside TLS')
def never_inside(server):
    """The server MUST NOT send NBD_REP_ERR_TLS_REQD in reply to any option if TLS has already been
    initiated."""
    never_asks_for_tls(secured(server), (
        (wire.LIST, b''), (wire.INFO, wire.info_request(server.export)),
        (wire.INFO, wire.info_request('no-such-export')), (wire.UNKNOWN_OPTION, b'')))


@rule(MUST, 'NBD_OPT_STARTTLS', 'STARTTLS discards what was negotiated before')
def state_discarded(server):
    """When this command succeeds, the server MUST NOT preserve any negotiation state (such as a
    request for NBD_OPT_STRUCTURED_REPLY, or metadata contexts from NBD_OPT_SET_META_CONTEXT) issued
    before this command."""
    negotiation = secured(server, before=(wire.STRUCTURED_REPLY, wire.EXTENDED_HEADERS))
    session = server.go(negotiation=negotiation)
    expect(not session.has(wire.SEND_DF), 'SEND_DF is set after STARTTLS')
    expect(session.alive(), 'a READ after STARTTLS has no simple reply')


@rule(MUST, 'FORCEDTLS mode', 'bytes sent in the clear after STARTTLS are never executed')
def injected(server):
    """After an NBD_REP_ACK reply has been sent, [...] all further data MUST be sent and received over
    TLS. (Servers have executed an attacker's buffered options as if they had been received over TLS.)"""
    offered(server.connect(plain=True).option(wire.STARTTLS).ok, 'TLS')
    negotiation = server.connect(plain=True)
    negotiation.stream.send(wire.encode_option(wire.STARTTLS), wire.encode_option(wire.UNKNOWN_OPTION))
    try:
        if negotiation.answer(wire.STARTTLS).ok:
            server.start_tls(negotiation)
            answer = negotiation.option(wire.LIST)
            expect(answer.final != wire.ERR_UNSUP, 'the injected option is answered inside TLS')
    except (wire.Closed, wire.Broken, ssl.SSLError, OSError) as error:
        expect('for option 30292' not in str(error), 'the injected option is answered inside TLS')


@rule(MUST, 'FORCEDTLS mode', 'a failed TLS handshake ends the session')
def failed_handshake(server):
    """If the handshake is unsuccessful [...] the server MUST terminate the session"""
    negotiation = server.connect(plain=True)
    offered(negotiation.option(wire.STARTTLS).ok, 'TLS')
    negotiation.stream.send(b'this is no ClientHello\r\n' * 20)
    negotiation.stream.rest()
    allowed()


@rule(MUST, 'FORCEDTLS mode', 'with mandatory TLS, every option asks for TLS')
def forced_options(server):
    """If the server receives any other option, including NBD_OPT_INFO and unsupported options, it MUST
    reply with NBD_REP_ERR_TLS_REQD if TLS has not been initiated"""
    forced(server)
    negotiation = server.connect(plain=True)
    for option, data in ((wire.INFO, wire.info_request(server.export)), (wire.STRUCTURED_REPLY, b''),
                         (wire.GO, wire.info_request(server.export)), (wire.UNKNOWN_OPTION, b'')):
        answer = negotiation.option(option, data)
        expect(answer.final == wire.ERR_TLS_REQD, f'option {option} is answered with {answer.name}')
    expect(negotiation.option(wire.ABORT).ok, 'ABORT is refused')


@rule(MUST, 'FORCEDTLS mode', 'with mandatory TLS, EXPORT_NAME ends the session')
def forced_export_name(server):
    """If the server receives a request to enter transmission mode via NBD_OPT_EXPORT_NAME when TLS has
    not been initiated, then as this request cannot error, it MUST terminate the session."""
    forced(server)
    negotiation = server.connect(plain=True)
    negotiation.send(wire.EXPORT_NAME, server.export.encode())
    expect(negotiation.stream.rest() == b'', 'an export is served in the clear')


def selective(server):
    offered(server.tls_export is not None, 'an export that requires TLS beside others that do not (--tls-export)')
    return server.connect(plain=True)


@rule(MUST, 'SELECTIVETLS mode', 'INFO and GO of a TLS-only export ask for TLS')
def selective_info(server):
    """If the server receives NBD_OPT_INFO or NBD_OPT_GO and TLS has not been initiated, it [...] MUST
    reply with NBD_REP_ERR_TLS_REQD if that export is TLS-only."""
    negotiation = selective(server)
    for ask in (negotiation.info, negotiation.go):
        answer = ask(server.tls_export)
        expect(answer.final == wire.ERR_TLS_REQD, f'it is answered with {answer.name}')
    expect(negotiation.in_step(), 'the next option is not understood')


@rule(MUST, 'SELECTIVETLS mode', 'EXPORT_NAME of a TLS-only export ends the session')
def selective_export_name(server):
    """If the server receives a request to enter transmission mode via NBD_OPT_EXPORT_NAME on a TLS-only
    export when TLS has not been initiated, then as this request cannot error, it MUST terminate the
    session."""
    negotiation = selective(server)
    negotiation.send(wire.EXPORT_NAME, server.tls_export.encode())
    expect(negotiation.stream.rest() == b'', 'the export is served in the clear')


@rule(MUST, 'SELECTIVETLS mode', 'only INFO and GO ask for TLS')
def selective_others(server):
    """The server MUST NOT send NBD_REP_ERR_TLS_REQD in response to any option other than NBD_OPT_INFO,
    NBD_OPT_GO and NBD_OPT_EXPORT_NAME"""
    negotiation = selective(server)
    query = wire.context_query(server.tls_export, 'base:allocation')
    never_asks_for_tls(negotiation, (
        (wire.LIST, b''), (wire.UNKNOWN_OPTION, b''), (wire.STRUCTURED_REPLY, b''),
        (wire.LIST_META_CONTEXT, query), (wire.SET_META_CONTEXT, query)))


@rule(MUST, 'SELECTIVETLS mode', 'a TLS-only export is served in TLS')
def selective_inside(server):
    """The server MUST NOT send NBD_REP_ERR_TLS_REQD in reply to any option if TLS has already been
    negotiated."""
    selective(server)
    negotiation = secured(server)
    for ask in (negotiation.info, negotiation.go):
        answer = ask(server.tls_export)
        expect(answer.ok, f'it is answered with {answer.name}')
