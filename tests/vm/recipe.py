"""What the manual tells its readers to type, for the tests that do just that."""
import os
import re
import textwrap

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), '../..')


def texts(page, heading):
    """The blocks of code below a heading, down to the next one, as they stand there."""
    with open(os.path.join(ROOT, page), encoding='utf-8') as file:
        section = re.search(rf'^#+ {re.escape(heading)}\n(.*?)(?=^#|\Z)', file.read(), re.MULTILINE | re.DOTALL)[1]
    found = re.findall(r'(?:^ {4}.*\n|^\n(?= {4}))+', section, re.MULTILINE)
    return [textwrap.dedent(block).strip('\n') + '\n' for block in found]


def blocks(page, heading):
    """[[line]]: their commands, without what is said of them; an empty line is between two of them, too."""
    return [[re.sub(r'  +# .*', '', line.strip()) for line in part.splitlines()]
            for text in texts(page, heading) for part in text.split('\n\n')]


def script(block):
    """For a guest's shell, which has `eventually`: who types waits until one gpunbd attach has ended before the next
    one, and until the device is there."""
    typed = []
    for line in block:
        device = re.fullmatch(r'gpunbd attach .* /dev/(nbd\d+)(?: .*)? &', line)
        if device:
            typed.append(f'eventually [ ! -e /sys/block/{device[1]}/pid ]')
        typed.append(line if device else f'{line} || fail "{line.split()[0]} of the manual"')
        if device:
            typed.append(f'eventually [ -e /sys/block/{device[1]}/pid ]')
            typed.append(f'eventually [ "$(cat /sys/block/{device[1]}/size)" != 0 ]')
    return '\n'.join(typed) + '\n'
