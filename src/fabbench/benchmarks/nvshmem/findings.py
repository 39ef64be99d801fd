"""What a perftest's log shows about its figures: units, sizes and rows to beware of. Pure."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fabbench.benchmarks.nvshmem import jobs, meaning, settings
from fabbench.benchmarks.nvshmem.layouts import V33, Eras, Row
from fabbench.benchmarks.nvshmem.text import Preface
from fabbench.model import Finding, Record, Severity
from fabbench.symptoms import alike, often
from fabbench.units import format_size, format_sizes

_USUAL_BLOCKS = 32
_MOST_WARNINGS = 5
_WITHOUT_SHARP = "Skipping NVLINK SHARP resource initialized"
_SETTLE = "Measure again with NVSHMEM_VERSION=1, so that the log has the line `NVSHMEM vX.Y.Z`."


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """What was read of one execution."""

    record: Record
    said: Preface
    rows: Sequence[Row]
    empty: int
    eras: Eras
    scaled_by: int | None
    """By what sizes and bandwidths were multiplied, since one PE's block was printed."""


def findings(read: Read) -> Iterator[Finding]:
    """Say what a reader of these numbers should know."""
    yield from settings.findings(read.said)
    yield from _unit(read)
    yield from _size(read)
    yield from _version(read)
    yield from _no_numbers(read)
    yield from _nothing_moved(read)
    yield from _rounded(read)
    yield from _missing(read)
    yield from _mislabelled(read)
    if read.record.facts.get("ranks") == 1 and read.rows:
        yield Finding(
            code="one-rank",
            severity=Severity.WARNING,
            meaning="One PE only: nothing went over a fabric.",
            advice="Start more PEs.",
        )
    if read.empty:
        yield Finding(
            code="empty-tables",
            severity=Severity.NOTE,
            meaning=f"{read.empty} table{'s have' if read.empty > 1 else ' has'} no row.",
            advice="Collectives of one thread or warp run small sizes only: ask for smaller sizes (-b).",
        )
    for warning, times in alike(Counter(read.said.warnings).items())[:_MOST_WARNINGS]:
        yield _warned(warning, times)


def _warned(said: str, times: int) -> Finding:
    # What stands before it is long: a process, and a file of the sources.
    line = said[max(said.find("NVSHMEM WARN"), 0) :]
    if _WITHOUT_SHARP in line:
        return Finding(
            code="nvshmem-warning",
            severity=Severity.NOTE,
            meaning=f"NVSHMEM warned{often(times)} that it goes without NVLink SHARP, which is switched off "
            "or not there: collectives use NVLink without it.",
            line=line,
        )
    return Finding(
        code="nvshmem-warning",
        severity=Severity.WARNING,
        meaning=f"NVSHMEM warned{often(times)}, and rows came all the same.",
        line=line,
        advice="Look whether it is of the transport that should have been used.",
    )


def _unit(read: Read) -> Iterator[Finding]:
    if read.record.facts.get("unit") == meaning.AMBIGUOUS:
        yield Finding(
            code="unit-ambiguous",
            severity=Severity.WARNING,
            meaning="GB is 2^30 bytes up to NVSHMEM 3.1 and 1e9 from 3.2 on, and the log does not say which "
            "version it was: 1e9 is assumed, the lower reading (2^30 is 7.4 % more).",
            advice=_SETTLE,
        )


def _size(read: Read) -> Iterator[Finding]:
    means = read.record.facts.get("size_means")
    if means == meaning.AMBIGUOUS:
        yield Finding(
            code="size-ambiguous",
            severity=Severity.WARNING,
            meaning="The printed size is one PE's block up to NVSHMEM 3.0 and in device programs of 3.2, the "
            "total of all PEs in 3.1 and from 3.3 on, and bandwidths are computed from it. The log does not "
            "say which version (or which collective) it was: figures are as printed.",
            advice=_SETTLE,
        )
    elif means == meaning.BLOCK:
        yield Finding(
            code="size-per-pe",
            severity=Severity.WARNING,
            meaning="The printed size is one PE's block, not the total, and the log does not show the number "
            "of PEs: figures are as printed.",
            advice="Multiply sizes and bandwidths by the number of PEs to compare with other versions.",
        )
    elif read.scaled_by is not None:
        yield Finding(
            code="size-per-pe",
            severity=Severity.NOTE,
            meaning="This version prints one PE's block as the size: sizes and bandwidths here are "
            f"multiplied by the {read.scaled_by} PEs, to be totals as in other versions.",
        )
    if any("threads" in dict(row.labels) for row in read.rows):
        yield Finding(
            code="threads-not-size",
            severity=Severity.NOTE,
            meaning="No data is sent: what is printed as the size is the number of threads of a block.",
        )


def _version(read: Read) -> Iterator[Finding]:
    version = read.said.version
    if version and read.rows and not read.eras & meaning.era_of(version):
        yield Finding(
            code="version-mismatch",
            severity=Severity.NOTE,
            meaning=f"The library says NVSHMEM {version}, and the tables are laid out as in "
            f"{' or '.join(sorted(read.eras))}: units and sizes are taken from the tables.",
        )


def _no_numbers(read: Read) -> Iterator[Finding]:
    sizes = {row.size for row in read.rows for figure in row.figures if not figure.token[0].isdigit()}
    if sizes:
        yield Finding(
            code="not-a-number",
            severity=Severity.WARNING,
            meaning=f"Figures at {format_sizes(sizes)} are printed as inf or nan, and left out.",
            advice="More than a million iterations make the bandwidth inf: ask for fewer (-n).",
        )


def _between_two(read: Read) -> bool:
    """Whether this is a bandwidth between two PEs."""
    return "unit" in read.record.facts and not jobs.collective(read.record.case)


def _by_blocks(read: Read) -> bool:
    """Whether this is a program that divides a message among thread blocks, over a range of sizes."""
    return _between_two(read) and (read.record.case or "").removeprefix("shmem_") in {"put_bw", "get_bw"}


def _nothing_moved(read: Read) -> Iterator[Finding]:
    if not _by_blocks(read):
        return
    blocks = (read.said.options.blocks if read.said.options else None) or _USUAL_BLOCKS
    sizes = {row.size for row in read.rows if 0 < row.size < 8 * blocks}
    if sizes:
        yield Finding(
            code="moves-nothing",
            severity=Severity.WARNING,
            meaning=f"Below {format_size(8 * blocks)} (8 bytes for each of {blocks} thread blocks) this "
            f"program moves no data: the figures at {format_sizes(sizes)} say nothing.",
            advice=f"Begin with -b {8 * blocks}, or use fewer blocks (-c).",
        )


def _rounded(read: Read) -> Iterator[Finding]:
    """Find the error of `size / (ms * (GB / (iterations * 1000)))`: the inner division is a whole one."""
    iterations = read.said.options.iterations if read.said.options else None
    unit = read.record.facts.get("unit")
    if not iterations or not _between_two(read) or unit == meaning.AMBIGUOUS:
        return
    base = 2**30 if unit == meaning.BINARY else 10**9
    whole, exact = base // (iterations * 1000), base / (iterations * 1000)
    if whole and exact / whole - 1 >= 0.001:
        yield Finding(
            code="rounded-bandwidth",
            severity=Severity.NOTE,
            meaning=f"With {iterations} iterations the program's own arithmetic prints bandwidths "
            f"{(exact / whole - 1) * 100:.1f} % too high.",
            advice="Use a number of iterations that divides 1000000.",
        )


def _missing(read: Read) -> Iterator[Finding]:
    options = read.said.options
    if options is None or not _by_blocks(read) or not read.rows:
        return
    low, high, factor = options.smallest, options.largest, options.factor
    if not low or not high or not factor or factor < 2:
        return
    expected = {low * factor**power for power in range(64) if low * factor**power <= high}
    lost = expected - {row.size for row in read.rows}
    if lost:
        yield Finding(
            code="sizes-missing",
            severity=Severity.WARNING,
            meaning=f"The options ask for {format_sizes(expected)}; not here: {format_sizes(lost)}.",
            advice="The program was stopped, or the symmetric heap is too small (NVSHMEM_SYMMETRIC_SIZE).",
        )


def _mislabelled(read: Read) -> Iterator[Finding]:
    """Find sizes that fcollect of 3.3.9 prints wrong: its 32-bit block table begins with one element."""
    options, ranks = read.said.options, read.record.facts.get("ranks")
    if options is None or not options.smallest or not isinstance(ranks, int) or read.eras != {V33}:
        return
    if jobs.collective(read.record.case) == "fcollect" and options.smallest > 4 * ranks:
        yield Finding(
            code="sizes-mislabelled",
            severity=Severity.WARNING,
            meaning="In NVSHMEM 3.3 fcollect_latency measures other sizes than its 32-bit block table "
            f"prints, where the smallest size ({options.smallest}) is more than 4 bytes for each PE.",
            advice=f"Begin with -b {4 * ranks} or less.",
        )
