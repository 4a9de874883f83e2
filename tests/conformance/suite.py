"""What a rule is, and how one is run: each on connections of its own, with a deadline."""
import time
import traceback
from dataclasses import dataclass

from wire import Broken, Closed, Late, Unreachable

MUST, SHOULD, HOLE = 'MUST', 'SHOULD', 'hole'
PASS, FAIL, NOT_OFFERED = 'pass', 'fail', 'not offered'

rules = []
_expectations = 0  # met so far: a rule that never expected anything has not passed


class Fail(Exception):
    """The server broke the rule."""


class NotOffered(Exception):
    """The server does not advertise what the rule is about."""


@dataclass(frozen=True)
class Rule:
    level: str       # MUST and SHOULD as the specification says; hole: another server had it
    chapter: str     # of the specification
    name: str
    extension: bool  # a feature that is counted on its own
    check: object
    text: str        # the sentence that the rule comes from, or why there is none

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
    """Declares a rule: check(server) returns where the server kept it, else raises."""
    def declare(check):
        text = ' '.join((check.__doc__ or '').split())
        assert text, f'{name}: a rule quotes its sentence'
        assert name not in (known.name for known in rules), f'{name}: there are two of them'
        rules.append(Rule(level, chapter, name, extension, check, text))
        return check
    return declare


def expect(condition, reason):
    global _expectations
    _expectations += 1
    if not condition:
        raise Fail(reason)


def allowed():
    """The server did what it may do instead: that, too, is something seen."""
    expect(True, '')


def offered(condition, what):
    if not condition:
        raise NotOffered(what)


def run(one, server, seconds):
    """The result of one rule. Whatever the server does, it ends by its deadline."""
    start, before = time.monotonic(), _expectations
    outcome, reason = PASS, ''
    try:
        with server.watch(seconds):
            one.check(server)
        if _expectations == before:
            outcome, reason = FAIL, 'the suite itself: the rule expected nothing'
    except NotOffered as error:
        outcome, reason = NOT_OFFERED, str(error)
    except (Fail, Broken, Closed, Late, Unreachable, OSError) as error:
        outcome, reason = FAIL, str(error)
    except Exception as error:  # a fault of the suite, shown as one
        outcome, reason = FAIL, f'the suite itself: {error!r} {traceback.format_exc(limit=-2)}'
    return Result(one, outcome, reason, time.monotonic() - start)
