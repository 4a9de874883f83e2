"""Summarizes test results: the output of failed tests, the reasons of skipped ones, and the numbers.

usage: summary.py [--count] RESULTS...   RESULTS: files of ctest --output-junit, build/PRESET/tests.xml
                                         or build/release/guests.xml
--count prints the numbers, and of each failed test only the last lines of its output. The names of failed tests are
repeated before the last line.
"""
import os
import re
import sys
from xml.etree import ElementTree

COUNTED = ('passed', 'failed', 'skipped')
LAST_LINES = 40  # of the output of a failed test, with --count
# The message of a skipped test, and of a test of which only some cases were skipped.
REASON = re.compile(r'^\s*skip(?:ped)?: *(.+?)\s*$', re.IGNORECASE | re.MULTILINE)
CASE = re.compile(r'^SKIPPED CASE: *(.+?) *$', re.MULTILINE)


def outcome(case):
    if case.get('status') == 'run':
        return 'passed'
    if case.get('status') == 'disabled':
        return 'skipped'
    # ctest also reports "notrun" for a test that it could not start, which is a failure.
    skipped = case.find('skipped')
    return 'skipped' if skipped is not None and 'SKIP_RE' in skipped.get('message', '') else 'failed'


def printed(case):
    return case.findtext('system-out') or ''


def print_failed(preset, case, lines=None):
    output = printed(case).rstrip().splitlines()
    seconds = float(case.get('time') or 0)
    print(f'==== failed, {preset}: {case.get("name")}, after {seconds:.1f} s, output:')
    print('\n'.join(output[-lines:] if lines else output))
    print('====')


def report(preset, cases):
    """Prints the skipped test cases with their reasons, then the output of the failed ones."""
    for case in sorted(cases, key=lambda case: outcome(case) == 'failed'):
        result, name, output = outcome(case), case.get('name'), printed(case)
        reasons = CASE.findall(output)
        if result == 'skipped':
            reasons = reasons or REASON.findall(output) or ['no reason given']
        for reason in reasons:
            print(f'skipped, {preset}: {name}: {reason}')
        if result == 'failed':
            print_failed(preset, case)


def as_text(counts):
    return ', '.join(f'{counts[word]} {word}' for word in COUNTED)


def main(arguments):
    total, lines, failed = dict.fromkeys(COUNTED, 0), [], []
    paths = [path for path in arguments if path != '--count']
    for path in paths:
        folder, name = os.path.split(os.path.abspath(path))
        preset = os.path.basename(folder) if name == 'tests.xml' else name.removesuffix('.xml')
        try:
            cases = ElementTree.parse(path).getroot().findall('testcase')
        except (OSError, ElementTree.ParseError):
            cases = []
        if cases:
            outcomes = [outcome(case) for case in cases]
            failures = [case for case in cases if outcome(case) == 'failed']
            if '--count' in arguments:
                for case in failures:
                    print_failed(preset, case, LAST_LINES)
            else:
                report(preset, cases)
            failed += [f'{preset}: {case.get("name")}' for case in failures]
            counts = {word: outcomes.count(word) for word in COUNTED}
            counts['skipped'] += sum(len(CASE.findall(printed(case))) for case in cases if outcome(case) == 'passed')
            lines.append(f'{preset}: {as_text(counts)}')
        else:
            counts = {'failed': 1}
            lines.append(f'{preset}: no test ran; counted as 1 failed')
        for word, count in counts.items():
            total[word] += count
    if failed:
        print('failed:')
        print('\n'.join(f'  {name}' for name in failed))
    if len(lines) > 1 or not total['passed']:
        print('\n'.join(lines))
    print(as_text(total))
    return 1 if total['failed'] else 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
