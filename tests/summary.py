"""What the tests came to: what the failed ones printed, why others were skipped, and the numbers.

usage: summary.py [--count] RESULTS...   as ctest --output-junit writes them, to build/PRESET/tests.xml,
                                      or to build/release/guests.xml
With --count only the numbers.
"""
import os
import re
import sys
from xml.etree import ElementTree

COUNTED = ('passed', 'failed', 'skipped')
# What a test says that is skipped; what one says of some of its cases, whose others have run.
REASON = re.compile(r'^\s*skip(?:ped)?: *(.+?)\s*$', re.IGNORECASE | re.MULTILINE)
CASE = re.compile(r'^SKIPPED CASE: *(.+?) *$', re.MULTILINE)


def outcome(case):
    if case.get('status') == 'run':
        return 'passed'
    if case.get('status') == 'disabled':
        return 'skipped'
    # ctest also says "notrun" of a test that it could not start, which is no skip.
    skipped = case.find('skipped')
    return 'skipped' if skipped is not None and 'SKIP_RE' in skipped.get('message', '') else 'failed'


def printed(case):
    return case.findtext('system-out') or ''


def tell(preset, cases):
    """Prints what there is to say of these test cases, the failed ones last."""
    for case in sorted(cases, key=lambda case: outcome(case) == 'failed'):
        result, name, output = outcome(case), case.get('name'), printed(case)
        reasons = CASE.findall(output)
        if result == 'skipped':
            reasons = reasons or REASON.findall(output) or ['it gave no reason']
        for reason in reasons:
            print(f'skipped, {preset}: {name}: {reason}')
        if result == 'failed':
            seconds = float(case.get('time') or 0)
            print(f'==== failed, {preset}: {name}, after {seconds:.1f} s, having printed:\n{output.rstrip()}\n====')


def spelt(counts):
    return ', '.join(f'{counts[word]} {word}' for word in COUNTED)


def main(arguments):
    total, lines = dict.fromkeys(COUNTED, 0), []
    paths = [path for path in arguments if path != '--count']
    for path in paths:
        folder, name = os.path.split(os.path.abspath(path))
        preset = os.path.basename(folder) if name == 'tests.xml' else name.removesuffix('.xml')
        try:
            cases = ElementTree.parse(path).getroot().findall('testcase')
        except (OSError, ElementTree.ParseError):
            cases = []
        if cases:
            if '--count' not in arguments:
                tell(preset, cases)
            outcomes = [outcome(case) for case in cases]
            counts = {word: outcomes.count(word) for word in COUNTED}
            counts['skipped'] += sum(len(CASE.findall(printed(case))) for case in cases if outcome(case) == 'passed')
            lines.append(f'{preset}: {spelt(counts)}')
        else:
            counts = {'failed': 1}
            lines.append(f'{preset}: no test ran, which counts as 1 failed')
        for word, count in counts.items():
            total[word] += count
    if len(lines) > 1 or not total['passed']:
        print('\n'.join(lines))
    print(spelt(total))
    return 1 if total['failed'] else 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
