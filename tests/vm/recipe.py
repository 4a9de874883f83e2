"""The commands in the manual, for tests that run them."""
import os
import re
import textwrap

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), '../..')


def texts(page, heading):
    """The code blocks between a heading and the next one."""
    with open(os.path.join(ROOT, page), encoding='utf-8') as file:
        section = re.search(rf'^#+ {re.escape(heading)}\n(.*?)(?=^#|\Z)', file.read(), re.MULTILINE | re.DOTALL)[1]
    found = re.findall(r'(?:^ {4}.*\n|^\n(?= {4}))+', section, re.MULTILINE)
    return [textwrap.dedent(block).strip('\n') + '\n' for block in found]


def blocks(page, heading):
    """[[line]]: the commands without comments. Empty lines separate blocks as well."""
    return [[re.sub(r'  +# .*', '', line.strip()) for line in part.splitlines()]
            for text in texts(page, heading) for part in text.split('\n\n')]


def script(block):
    """The commands for the shell of a guest, in which a failing command calls `fail`."""
    return ''.join(f'{line} || fail "{line.split()[0]} of the manual"\n' for line in block)
