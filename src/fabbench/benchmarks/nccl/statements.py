"""The text around nccl-tests' tables. Pure."""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from fabbench.benchmarks.nccl import BENCHMARK
from fabbench.benchmarks.nccl.rows import Layout, read_header
from fabbench.model.patterns import lazy

# In print order. A line of an earlier stage than the current one begins another run.
BANNER, DEVICES, HEADER, FOOTER, AFTER = range(5)


class Statement(NamedTuple):
    """One parsed line. `kind` names its entry in `_LINES`; `words` are its groups."""

    kind: str
    stage: int
    text: str
    words: Sequence[str] = ()
    layout: Layout | None = None


# Kind, stage, and the pattern of a line's beginning; mscclpp-test (`foreign`) prints a table of its own between the
# same lines, and a build of rccl-tests outside of git has "Unknown" or ":+" for its version.
_LINES = r"""
device 1 #?\s*Rank\s+(\d{1,9})\s+(?:Group\s+(\d+)\s+)?(?:Pid\s+(\d+)\s+)?on\s+(\S.*?)\s+device\s+\d+\s+\[[^\]]*\]
version 0 # nccl-tests version (\S+)(?: \(\w+\))?(?: nccl-headers=\d+ nccl-library=<n>)?
program 0 # Collective test starting: (\S+)
config 0 #? ?nThread \d+ nGpus \d+ minBytes <n> maxBytes <n> step: <n>\((factor|bytes)\) warmup iters: <n> iters: <n>
foreign 0 # minBytes \d+ maxBytes \d.* kernel num: \d
rccl_tests 1 rccl-tests: Version (?:(\w+:[0-9a-f]+\+?)|.*)
in_place 2 # +in-place$
bounds 3 (?:# ?)?Out of bounds values +: +<n> (OK|FAILED)
average 3 (?:# ?)?Avg bus bandwidth +: +(\S+) *(OK|FAILED)?
reducing 4 # Reducing maxBytes to <n> due to memory limitation
concluded 4 # Collective test concluded: (\S+)
timeout 4 (?:\S+: )?Test timeout \(<n>s\)
chain 4 \.\. \S+ pid \d+: Test failure \S+:\d+
usage 4 USAGE: (\S*_perf\S*)
failure 4 (?:\S+: )?(?:Test )?(?:NCCL|CUDA|CURAND) failure \S+:\d+|# error: |nRanks \d+ is not a power of 2, skipping
failure 4 (?:\S*_perf\S*: )?(?:unrecognized option|invalid option|option requires) |invalid size specified
failure 4 Invalid number of GPUs: |(?:Option )?-\w+\S* .*(?:not supported|requires)
"""
_STATEMENTS = [
    (kind, int(stage), lazy(pattern.replace("<n>", r"(\d{1,18})")))
    for kind, stage, pattern in (line.split(None, 2) for line in _LINES.strip().split("\n"))
]
PROGRAM = lazy(r"(?:^|[\s/'\"])([a-z]\w*)_perf(?:_mpi)?(?=[\s'\";]|$)")
_MAX_CACHED_LINE = 400  # longer lines are not cached; most banners of the programs in one log are the same


def read_statement(text: str) -> Statement | None:
    """Parse a line other than a row; None if it does not come from nccl-tests."""
    return _cached_statement(text) if len(text) <= _MAX_CACHED_LINE else _parse_statement(text)


def _parse_statement(text: str) -> Statement | None:
    if "algbw" in text:
        layout = read_header(text)
        return Statement("header", HEADER, text, (), layout) if layout else None
    if not BENCHMARK.may_begin(text):
        return None
    text = text.strip()
    for kind, stage, pattern in _STATEMENTS:
        if (match := pattern.match(text)) is not None:
            return Statement(kind, stage, text, match.groups(""))
    return None


_cached_statement = lru_cache(maxsize=1024)(_parse_statement)
