"""What nccl-tests says around its tables: banner, devices, headers, footer, errors. Pure."""

import re
from typing import NamedTuple

from fabbench.benchmarks.nccl_rows import Layout, read_header

# In the order in which they are printed. A line of an earlier stage than was reached begins another run.
BANNER, DEVICES, HEADER, FOOTER, AFTER = range(5)


class Statement(NamedTuple):
    """One line understood. `kind` says which; `words` are its groups."""

    kind: str
    stage: int
    words: tuple[str | None, ...] = ()
    layout: Layout | None = None


_STATEMENTS: tuple[tuple[str, int, re.Pattern[str]], ...] = tuple(
    (kind, stage, re.compile(pattern))
    for kind, stage, pattern in (
        ("json", BANNER, r"# (?:Writing JSON output to .*|skipping json output; (.*))"),
        (
            "version",
            BANNER,
            r"# nccl-tests version (\S+)(?: nccl-headers=(\d{1,18}) nccl-library=(\d{1,18}))?",
        ),
        ("program", BANNER, r"# Collective test starting: (\S+)"),
        (
            "config",
            BANNER,
            (
                r"#? ?nThread \d+ nGpus \d+ minBytes (\d{1,18}) maxBytes (\d{1,18})"
                r" step: (\d{1,18})\((factor|bytes)\) warmup iters: (\d{1,18}) iters: (\d{1,18})"
            ),
        ),
        (
            "device",
            DEVICES,
            (
                r"#?\s*Rank\s+(\d{1,9})\s+(?:Group\s+(\d+)\s+)?(?:Pid\s+(\d+)\s+)?on\s+(\S.*?)\s+device\s+\d+"
                r"\s+\[[^\]]*\]\s*(.*)"
            ),
        ),
        ("using", DEVICES, r"#? ?Using devices"),
        ("reducing", DEVICES, r"# Reducing maxBytes to (\d{1,18}) due to memory limitation"),
        ("bounds", FOOTER, r"(?:# ?)?Out of bounds values +: +(\d{1,18}) (OK|FAILED)"),
        ("average", FOOTER, r"(?:# ?)?Avg bus bandwidth +: +(\S+) *(OK|FAILED)?"),
        ("concluded", AFTER, r"# Collective test concluded: (\S+)"),
        ("timeout", AFTER, r"(?:\S+: )?Test timeout \((\d{1,18})s\).*"),
        ("failure", AFTER, r"(?:\S+: )?(?:Test )?(?:NCCL|CUDA|CURAND) failure \S+:\d+.*"),
        ("chain", AFTER, r" *\.\. \S+ pid \d+: Test failure \S+:\d+"),
        ("failure", AFTER, r"# error: .*|Invalid number of GPUs: .*|invalid size specified .*"),
        ("failure", AFTER, r"(?:\S*_perf\S*: )?(?:unrecognized option|invalid option|option requires) .*"),
        ("usage", AFTER, r"USAGE: (\S*_perf\S*) ?.*"),
        ("failure", AFTER, r"nRanks \d+ is not a power of 2, skipping"),
        ("failure", AFTER, r"(?:Option )?-\w+\S* .*(?:not supported|requires).*"),
    )
)
_SIGNS = re.compile(
    r"nThread|JSON|json|nccl-tests|Collective|Rank|Using dev|Reducing|Out of b|Avg bus|failure|[Tt]imeout"
    r"|error|nvalid|USAGE|option|nRanks|requires|not supported"
)
_PROGRAM = re.compile(r"(?:^|[\s/'\"])([a-z]\w*)_perf(?:_mpi)?(?=[\s'\";]|$)")


def read(text: str) -> Statement | None:
    """Understand a line that is no row; None if it is nothing that nccl-tests says."""
    if "algbw" in text:
        layout = read_header(text)
        return Statement("header", HEADER, (), layout) if layout else None
    if not _SIGNS.search(text):
        return None
    text = text.strip()
    for kind, stage, pattern in _STATEMENTS:
        match = pattern.match(text)
        if match is not None:
            return Statement(kind, stage, match.groups() or (match[0],))
    return None


def case_of(program: str) -> str:
    """Give a program's case: `/opt/all_reduce_perf_mpi` is `all_reduce`."""
    name = program.rpartition("/")[2]
    return name.removesuffix("_mpi").removesuffix("_perf")


def program(text: str) -> str | None:
    """Find the case in a command line that starts an nccl-tests program."""
    if "_perf" not in text:
        return None
    match = _PROGRAM.search(text)
    return match[1] if match else None


def nccl_version(code: str) -> str:
    """Turn NCCL's version code into words: 22809 is 2.28.9 (2804 is 2.8.4, before 2.9)."""
    number = int(code)
    if number < 10_000:
        return f"{number // 1000}.{number % 1000 // 100}.{number % 100}"
    return f"{number // 10_000}.{number % 10_000 // 100}.{number % 100}"
