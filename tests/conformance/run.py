#!/usr/bin/python3
"""Tests an NBD server against the NBD specification, rule by rule.

    tests/conformance/run.py nbd://127.0.0.1:10809/name
    tests/conformance/run.py nbd+unix:///name?socket=PATH

THE CONTENTS OF A WRITABLE EXPORT ARE DESTROYED.

Exit status: 0 if no MUST rule fails, 1 if one fails, 2 if the command line is invalid or the server
cannot be reached."""
import argparse
import fnmatch
import json
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, '../integration')]  # for wire.py

# The rules run in the order of these imports.
import handshake  # noqa: E402, F401
import options  # noqa: E402, F401
import meta_context  # noqa: E402, F401
import tls  # noqa: E402, F401
import transmission  # noqa: E402, F401
import structured  # noqa: E402, F401
import extended  # noqa: E402, F401
import errors  # noqa: E402, F401
import suite  # noqa: E402
import target  # noqa: E402
from suite import FAIL, NOT_OFFERED, PASS  # noqa: E402

USAGE = 2


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('uri', nargs='?', help='the server and the export, which is overwritten')
    parser.add_argument('--list', action='store_true', help='list the rules and exit')
    parser.add_argument('--only', metavar='PATTERN', action='append', default=[],
                        help='run the rules whose name or chapter contains PATTERN or matches it as a '
                             'shell pattern; may be repeated')
    parser.add_argument('--json', metavar='FILE', help='also write the results to FILE (-: standard output)')
    parser.add_argument('--timeout', metavar='S', type=float, default=20,
                        help='time limit of each rule in seconds (default 20)')
    parser.add_argument('--read-only-export', metavar='NAME',
                        help='a read-only export of the server')
    parser.add_argument('--tls-export', metavar='NAME',
                        help='an export that requires TLS, on a server where other exports do not')
    parser.add_argument('--certificate', metavar='FILE', help='client certificate for TLS')
    parser.add_argument('--key', metavar='FILE', help='private key of the client certificate')
    parser.add_argument('--quiet', action='store_true', help='print only failed rules and the summary')
    parsed = parser.parse_args()
    if not parsed.uri and not parsed.list:
        parser.error('the URI of the server is missing')
    if parsed.timeout <= 0:
        parser.error('--timeout must be more than 0')
    if bool(parsed.certificate) != bool(parsed.key):
        parser.error('--certificate and --key must be given together')
    return parsed


def select(patterns):
    def matches(one, pattern):
        return any(pattern.lower() in text.lower() or fnmatch.fnmatch(text.lower(), pattern.lower())
                   for text in (one.name, one.chapter))
    # HOLE rules run last, because they may crash the server.
    return sorted((one for one in suite.rules
                   if not patterns or any(matches(one, pattern) for pattern in patterns)),
                  key=lambda one: one.level == suite.HOLE)


def score(results):
    """{group: (passed, evaluated)}. Rules about features that are not offered are not counted."""
    groups = {'MUST': (0, 0), 'SHOULD': (0, 0), 'extensions': (0, 0), 'holes': (0, 0)}
    for result in results:
        group = ('extensions' if result.rule.extension
                 else 'holes' if result.rule.level == suite.HOLE else result.rule.level)
        passed, evaluated = groups[group]
        groups[group] = (passed + (result.outcome == PASS), evaluated + (result.outcome != NOT_OFFERED))
    return groups


def summary(results):
    absent = sum(result.outcome == NOT_OFFERED for result in results)
    return ', '.join([f'{group} {passed}/{evaluated}' for group, (passed, evaluated) in score(results).items()]
                     + [f'not offered {absent}'])


def line(kind, outcome, chapter, name, reason=''):
    text = f'{outcome:11} {kind:11} [{chapter}] {name}'
    return f'{text}: {reason}' if reason else text


def as_json(uri, results):
    return {'server': uri, 'summary': {group: {'passed': passed, 'judged': evaluated}
                                       for group, (passed, evaluated) in score(results).items()},
            'rules': [{'name': result.rule.name, 'chapter': result.rule.chapter,
                       'level': result.rule.level, 'extension': result.rule.extension,
                       'outcome': result.outcome, 'reason': result.reason,
                       'seconds': round(result.seconds, 3), 'text': result.rule.text}
                      for result in results]}


def main():
    arguments = parse_arguments()
    rules = select(arguments.only)
    if not rules:
        print(f'run.py: no rule matches {" or ".join(arguments.only)}; use --list to see the rules', file=sys.stderr)
        return USAGE
    if arguments.list:
        for one in rules:
            print(f'{one.kind:11} [{one.chapter}] {one.name}')
        return 0

    certificate = (arguments.certificate, arguments.key) if arguments.certificate else None
    try:
        server = target.Server(arguments.uri, arguments.read_only_export, certificate, arguments.tls_export)
        with server.watch(arguments.timeout):
            server.stream()
    except (target.BadUri, suite.Unreachable) as error:
        print(f'run.py: {arguments.uri}: {error}', file=sys.stderr)
        return USAGE

    results = []
    for one in rules:
        result = suite.run(one, server, arguments.timeout)
        results.append(result)
        if result.outcome == FAIL or not arguments.quiet:
            print(line(one.kind, result.outcome, one.chapter, one.name, result.reason), flush=True)
    print(summary(results))
    if arguments.json == '-':
        json.dump(as_json(arguments.uri, results), sys.stdout, indent=1)
    elif arguments.json:
        with open(arguments.json, 'w', encoding='utf-8') as file:
            json.dump(as_json(arguments.uri, results), file, indent=1)
    broken = any(result.outcome == FAIL and result.rule.level == suite.MUST for result in results)
    return 1 if broken else 0


if __name__ == '__main__':
    sys.exit(main())
