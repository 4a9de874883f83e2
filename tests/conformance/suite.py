"""The rules of the suite, and how one rule runs: on its own connections, with a deadline."""
import time
import traceback
from dataclasses import dataclass

from wire import Broken, Closed

# A HOLE rule covers a vulnerability of another server; the specification has no sentence for it.
MUST, SHOULD, HOLE = 'MUST', 'SHOULD', 'hole'
PASS, FAIL, NOT_OFFERED = 'pass', 'fail', 'not offered'

rules = []
_expectations = 0  # evaluated so far; a rule that evaluates none has tested nothing


class Fail(Exception):
    """The server broke the rule."""


class Unreachable(Exception):
    """There is no connection to be had."""


class NotOffered(Exception):
    """The server does not advertise the feature that the rule tests."""


@dataclass(frozen=True)
class Rule:
    level: str       # MUST, SHOULD or HOLE
    chapter: str     # chapter of the specification
    name: str
    extension: bool  # scored separately
    check: object
    text: str        # the sentence of the specification, or the reason for a rule without one

    @property
    def kind(self):
        return f'ext. {self.level}' if self.extension else self.level


@dataclass
class Result:
    rule: Rule
    outcome: str
    reason: str
    seconds: float


def rule(level, chapter, name, extension=False):
    """Declares a rule. check(server) returns if the server complies, and raises Fail or NotOffered otherwise."""
    def declare(check):
        text = ' '.join((check.__doc__ or '').split())
        assert text, f'{name}: the docstring must quote the specification'
        assert name not in (known.name for known in rules), f'{name}: duplicate rule name'
        rules.append(Rule(level, chapter, name, extension, check, text))
        return check
    return declare


def expect(condition, reason):
    global _expectations
    _expectations += 1
    if not condition:
        raise Fail(reason)


def allowed():
    """Records that the server used an alternative that the specification permits."""
    expect(True, '')


def offered(condition, what):
    if not condition:
        raise NotOffered(what)


def run(one, server, seconds):
    """Runs one rule and returns its result. The deadline bounds it whatever the server does."""
    start, before = time.monotonic(), _expectations
    outcome, reason = PASS, ''
    try:
        with server.watch(seconds):
            one.check(server)
        if _expectations == before:
            outcome, reason = FAIL, 'error in the suite: the rule has no expectation'
    except NotOffered as error:
        outcome, reason = NOT_OFFERED, str(error)
    except (Fail, Broken, Closed, Unreachable, OSError) as error:
        outcome, reason = FAIL, str(error)
    except Exception as error:  # a bug in the suite must not look like a result of the server
        outcome, reason = FAIL, f'error in the suite: {error!r} {traceback.format_exc(limit=-2)}'
    return Result(one, outcome, reason, time.monotonic() - start)
