"""How what something takes grows with its input: calls, or ratios of times, never seconds."""

import math
import re
import time
from collections.abc import Callable
from cProfile import Profile
from functools import cache

from fabbench.model.patterns import LONGEST_LINE

FIRST = 12
"""Characters of the shortest line: on it, even an exponential pattern ends at once."""
GROWS = 1.6
"""From one line to the next: an exponential one is seen long before it takes seconds."""
_LOOK_THROUGH = re.compile("[ab]*c")
_WORTH = 500
"""What takes less than looking so often through the longest line, on any machine, does no harm."""
MOST = 2.5
"""Per doubling: 2 is in proportion to the length, 4 to its square."""


def calls(work: Callable[[], object]) -> int:
    """Return how many functions are called: a busy machine changes nothing."""
    profile = Profile()
    profile.runcall(work)
    return sum(each.callcount for each in profile.getstats())


def seconds(look: Callable[[str], object], text: str, tries: int) -> float:
    """Return the processor time of this thread that a text takes: the least of several."""
    taken = []
    for _ in range(tries):
        began = time.thread_time()
        look(text)
        taken.append(time.thread_time() - began)
    return min(taken)


@cache
def worth_s() -> float:
    """Return the processor time, in seconds, below which nothing is compared."""
    return _WORTH * seconds(_LOOK_THROUGH.match, "ab" * (LONGEST_LINE // 2), tries=20)


def growth(
    look: Callable[[str], object], line: Callable[[int], str], longest: int, tries: int
) -> float:
    """Return the factor of time per doubling of a line; 1 where it takes no time worth a word."""
    length = FIRST
    while (long := seconds(look, line(length), tries=1)) < worth_s():
        length = round(length * GROWS)
        if length > longest:
            return 1.0
    if tries > 1:
        long = seconds(look, line(length), tries)
    short = seconds(look, line(length // 4), tries)
    return math.sqrt(long / max(short, 1e-7))


def grows_too_fast(look: Callable[[str], object], line: Callable[[int], str], longest: int) -> bool:
    """Return whether it does so each time: on a busy machine it may seem so once."""
    return all(growth(look, line, longest, tries) > MOST for tries in (1, 3, 3))
