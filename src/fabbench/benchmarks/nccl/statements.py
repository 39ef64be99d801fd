"""The text around nccl-tests' tables. Pure."""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from fabbench.benchmarks.nccl.rows import Layout, read_header
from fabbench.model.patterns import lazy

# In print order. A line of an earlier stage than the current one begins another run.
BANNER, DEVICES, HEADER, FOOTER, AFTER = range(5)


class Statement(NamedTuple):
    """One parsed line. `kind` names its entry in `_STATEMENTS`; `words` are its groups."""

    kind: str
    stage: int
    words: Sequence[str] = ()
    layout: Layout | None = None


_STATEMENTS = (
    # Printed once per rank.
    (
        "device",
        DEVICES,
        lazy(
            r"#?\s*Rank\s+(\d{1,9})\s+(?:Group\s+(\d+)\s+)?(?:Pid\s+(\d+)\s+)?on\s+(\S.*?)\s+device\s+\d+\s+\[[^\]]*\]"
        ),
    ),
    ("version", BANNER, lazy(r"# nccl-tests version (\S+)(?: \(\w+\))?(?: nccl-headers=\d+ nccl-library=(\d{1,18}))?")),
    ("program", BANNER, lazy(r"# Collective test starting: (\S+)")),
    (
        "config",
        BANNER,
        lazy(
            r"#? ?nThread \d+ nGpus \d+ minBytes (\d{1,18}) maxBytes (\d{1,18})"
            r" step: (\d{1,18})\((factor|bytes)\) warmup iters: (\d{1,18}) iters: (\d{1,18})"
        ),
    ),
    # mscclpp-test prints a table of its own between the same lines.
    ("foreign", BANNER, lazy(r"# minBytes \d+ maxBytes \d.* kernel num: \d")),
    # A build outside of git prints "Unknown" or ":+".
    ("rccl_tests", DEVICES, lazy(r"rccl-tests: Version (?:(\w+:[0-9a-f]+\+?)|.*)")),
    ("in_place", HEADER, lazy(r"# +in-place$")),
    ("reducing", DEVICES, lazy(r"# Reducing maxBytes to (\d{1,18}) due to memory limitation")),
    ("bounds", FOOTER, lazy(r"(?:# ?)?Out of bounds values +: +(\d{1,18}) (OK|FAILED)")),
    ("average", FOOTER, lazy(r"(?:# ?)?Avg bus bandwidth +: +(\S+) *(OK|FAILED)?")),
    ("concluded", AFTER, lazy(r"# Collective test concluded: (\S+)")),
    ("timeout", AFTER, lazy(r"(?:\S+: )?Test timeout \((\d{1,18})s\)")),
    ("chain", AFTER, lazy(r"\.\. \S+ pid \d+: Test failure \S+:\d+")),
    ("usage", AFTER, lazy(r"USAGE: (\S*_perf\S*)")),
    (
        "failure",
        AFTER,
        lazy(
            r"(?:\S+: )?(?:Test )?(?:NCCL|CUDA|CURAND) failure \S+:\d+|# error: |Invalid number of GPUs: "
            r"|invalid size specified |(?:\S*_perf\S*: )?(?:unrecognized option|invalid option|option requires) "
            r"|nRanks \d+ is not a power of 2, skipping|(?:Option )?-\w+\S* .*(?:not supported|requires)"
        ),
    ),
)
_SIGN = lazy(
    r"Rank|ccl-tests|test starting|nThread|kernel num|in-place|Reducing|Out of b|Avg bus|concluded"
    r"|timeout|failure|# error|nvalid |option|USAGE|nRanks|not supported|requires"
)
"""What every such line has."""
_PROGRAM = lazy(r"(?:^|[\s/'\"])([a-z]\w*)_perf(?:_mpi)?(?=[\s'\";]|$)")
_MAX_CACHED_LINE = 400  # longer lines are not cached; most banners of the programs in one log are the same


def read_statement(text: str) -> Statement | None:
    """Parse a line other than a row; None if it does not come from nccl-tests."""
    return _cached_statement(text) if len(text) <= _MAX_CACHED_LINE else _parse_statement(text)


def _parse_statement(text: str) -> Statement | None:
    if "algbw" in text:
        layout = read_header(text)
        return Statement("header", HEADER, (), layout) if layout else None
    if _SIGN.search(text) is None:
        return None
    text = text.strip()
    for kind, stage, pattern in _STATEMENTS:
        if (match := pattern.match(text)) is not None:
            return Statement(kind, stage, match.groups(""))
    return None


_cached_statement = lru_cache(maxsize=1024)(_parse_statement)


def case_of(program: str) -> str:
    """Return a program's case: `/opt/all_reduce_perf_mpi` is `all_reduce`."""
    return program.rpartition("/")[2].removesuffix("_mpi").removesuffix("_perf")


def case_in_command(text: str) -> str | None:
    """Find the case in a command line that starts an nccl-tests program."""
    match = _PROGRAM.search(text) if "_perf" in text else None
    return match[1] if match else None


def nccl_version(code: str) -> str:
    """Format NCCL's version code: 22809 is 2.28.9 (2804 is 2.8.4, before 2.9)."""
    major, rest = divmod(int(code), 10_000 if int(code) >= 10_000 else 1000)
    return f"{major}.{rest // 100}.{rest % 100}"
