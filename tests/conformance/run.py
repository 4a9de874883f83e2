#!/usr/bin/python3
"""Holds an NBD server to the NBD specification, rule by rule.

    tests/conformance/run.py nbd://127.0.0.1:10809/name
    tests/conformance/run.py nbd+unix:///name?socket=PATH

WHATEVER THE EXPORT CONTAINS IS DESTROYED, if it is writable: nothing is saved.

Exit status: 0 where no MUST is broken, 1 where one is, 2 where the command line is wrong or the server
cannot be reached."""
import argparse
import fnmatch
import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

# The order of the rules is that of these modules.
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


def arguments():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('uri', nargs='?', help='the server, and the export that will be overwritten')
    parser.add_argument('--list', action='store_true', help='name the rules, and run none')
    parser.add_argument('--only', metavar='PATTERN', action='append', default=[],
                        help='run the rules whose name or chapter has this in it, or matches it as a '
                             'shell pattern; may be repeated')
    parser.add_argument('--json', metavar='FILE', help='write the results there, too (-: standard output)')
    parser.add_argument('--timeout', metavar='S', type=float, default=20,
                        help='seconds that each rule may take (default 20)')
    parser.add_argument('--read-only-export', metavar='NAME',
                        help='an export of this server that is read-only')
    parser.add_argument('--tls-export', metavar='NAME',
                        help='an export of this server that is to be had in TLS only, where others are not')
    parser.add_argument('--certificate', metavar='FILE', help='certificate of the client, for TLS')
    parser.add_argument('--key', metavar='FILE', help='its key')
    parser.add_argument('--quiet', action='store_true', help='only what failed, and the summary')
    parsed = parser.parse_args()
    if not parsed.uri and not parsed.list:
        parser.error('the URI of a server is missing')
    if parsed.timeout <= 0:
        parser.error('--timeout must be more than 0')
    if bool(parsed.certificate) != bool(parsed.key):
        parser.error('--certificate and --key belong together')
    return parsed


def chosen(patterns):
    def matches(one, pattern):
        return any(pattern.lower() in text.lower() or fnmatch.fnmatch(text.lower(), pattern.lower())
                   for text in (one.name, one.chapter))
    # What other servers did not survive comes last: it shall spoil no other rule.
    return sorted((one for one in suite.rules
                   if not patterns or any(matches(one, pattern) for pattern in patterns)),
                  key=lambda one: one.level == suite.HOLE)


def score(results):
    """{group: (passed, judged)}; what is not offered is judged nowhere."""
    groups = {'MUST': (0, 0), 'SHOULD': (0, 0), 'extensions': (0, 0), 'holes': (0, 0)}
    for result in results:
        group = ('extensions' if result.rule.extension
                 else 'holes' if result.rule.level == suite.HOLE else result.rule.level)
        passed, judged = groups[group]
        groups[group] = (passed + (result.outcome == PASS), judged + (result.outcome != NOT_OFFERED))
    return groups


def summary(results):
    absent = sum(result.outcome == NOT_OFFERED for result in results)
    return ', '.join([f'{group} {passed}/{judged}' for group, (passed, judged) in score(results).items()]
                     + [f'not offered {absent}'])


def line(kind, outcome, chapter, name, reason=''):
    text = f'{outcome:11} {kind:11} [{chapter}] {name}'
    return f'{text}: {reason}' if reason else text


def as_json(uri, results):
    return {'server': uri, 'summary': {group: {'passed': passed, 'judged': judged}
                                       for group, (passed, judged) in score(results).items()},
            'rules': [{'name': result.rule.name, 'chapter': result.rule.chapter,
                       'level': result.rule.level, 'extension': result.rule.extension,
                       'outcome': result.outcome, 'reason': result.reason,
                       'seconds': round(result.seconds, 3), 'text': result.rule.text}
                      for result in results]}


def main():
    wanted = arguments()
    rules = chosen(wanted.only)
    if not rules:
        print(f'run.py: no rule matches {" or ".join(wanted.only)}; --list names them', file=sys.stderr)
        return USAGE
    if wanted.list:
        for one in rules:
            print(f'{one.kind:11} [{one.chapter}] {one.name}')
        return 0

    certificate = (wanted.certificate, wanted.key) if wanted.certificate else None
    try:
        server = target.Server(wanted.uri, wanted.read_only_export, certificate, wanted.tls_export)
        with server.watch(wanted.timeout):
            server.stream()
    except (target.BadUri, target.wire.Unreachable) as error:
        print(f'run.py: {wanted.uri}: {error}', file=sys.stderr)
        return USAGE

    results = []
    for one in rules:
        result = suite.run(one, server, wanted.timeout)
        results.append(result)
        if result.outcome == FAIL or not wanted.quiet:
            print(line(one.kind, result.outcome, one.chapter, one.name, result.reason), flush=True)
    print(summary(results))
    if wanted.json == '-':
        json.dump(as_json(wanted.uri, results), sys.stdout, indent=1)
    elif wanted.json:
        with open(wanted.json, 'w', encoding='utf-8') as file:
            json.dump(as_json(wanted.uri, results), file, indent=1)
    broken = any(result.outcome == FAIL and result.rule.level == suite.MUST for result in results)
    return 1 if broken else 0


if __name__ == '__main__':
    sys.exit(main())
