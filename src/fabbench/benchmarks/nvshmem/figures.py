"""The units and sizes of a perftest's figures, by version, and findings about unreliable rows. Pure.

From the sources of 1.0.1 to 3.6 (perftest/common/utils.cu and the programs): point-to-point bandwidth is in
2^30 bytes per second up to 3.1.7, and in 1e9 from 3.2.5 on. The size of alltoall, fcollect and reducescatter
is one PE's block up to 3.0.6, the total in 3.1.7, the block again in the device programs of 3.2.5, and the
total from 3.3.9 on.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from fabbench.benchmarks.consistency import (
    ALL_REDUCE,
    ANYTHING,
    GATHERING,
    SAME,
    UNKNOWN_TEST,
    BandwidthFormula,
    Printed,
    RateCheck,
    Ratios,
    is_ordered,
    note,
    printed,
    ratios,
    unmeasured,
    warning,
)
from fabbench.benchmarks.nvshmem import text
from fabbench.benchmarks.nvshmem.layouts import (
    ALL,
    GB,
    GIGABYTES,
    MICROSECONDS,
    V1,
    V2,
    V31,
    V32,
    V33,
    Eras,
    NvshmemRow,
)
from fabbench.benchmarks.nvshmem.text import PROVIDER, TRANSPORT, Preface, collective
from fabbench.model.log import Finding, Record
from fabbench.model.messages import merged, times
from fabbench.model.units import format_size, format_sizes

BINARY, DECIMAL, AMBIGUOUS = "GiB/s", "GB/s", "ambiguous"  # values of the fact `unit`
TOTAL, BLOCK = "total", "per-pe"  # values of the fact `size_means`

_EXPONENTS = {GIGABYTES: "e9", MICROSECONDS: "e-6", GB: "e9"}


def eras_of(version: str) -> Eras:
    """Return the eras of a version; all of them if the version is unknown."""
    if not version:
        return ALL
    major, minor = (int(part) for part in version.split(".")[:2])
    if major < 2:
        return frozenset({V1})
    if major == 2 or (major, minor) == (3, 0):
        return frozenset({V2})
    if major == 3 and minor < 3:
        return frozenset({V31 if minor == 1 else V32})
    return frozenset({V33})


def bandwidth_unit(eras: Eras) -> str:
    """Return the unit of point-to-point bandwidth: `BINARY`, `DECIMAL` or `AMBIGUOUS`."""
    units = {BINARY if era in {V1, V2, V31} else DECIMAL for era in eras}
    return units.pop() if len(units) == 1 else AMBIGUOUS


def size_meaning(eras: Eras, job: str | None) -> str:
    """Return the meaning of the size of a gathering collective: `TOTAL`, `BLOCK` or `AMBIGUOUS`."""
    blocks = {V1, V2} if "on_stream" in (job or "") else {V1, V2, V32}
    meanings = {BLOCK if era in blocks else TOTAL for era in eras}
    return meanings.pop() if len(meanings) == 1 else AMBIGUOUS


def base_value(token: str, unit: str, binary: str) -> float | None:
    """Return a printed number in base units; None for nan and inf. `binary`: see `bandwidth_unit`.

    Exact: the exponent is added as text, and 2^30 only shifts the binary point. An ambiguous GB is read as
    1e9, its literal meaning, and the lower of the two.
    """
    if not token[0].isdigit():
        return None
    if unit == GB and binary == BINARY:
        return float(token) * 2**30
    return float(token + _EXPONENTS.get(unit, "e6"))


@dataclass(slots=True)
class RatioRange:
    """The possible range of busbw / algbw, within the printed precision."""

    low: float = 0.0
    high: float = 1e9

    def narrow(self, row: NvshmemRow) -> None:
        """Narrow the range by one row."""
        cells = {figure.metric: figure.token for figure in row.figures if not figure.labels}
        if not {"latency", "algbw", "busbw"} <= cells.keys():
            return
        try:
            latency, algbw, busbw = (float(cells[name]) for name in ("latency", "algbw", "busbw"))
        except ValueError:
            return
        half = 0.000501
        low, high = algbw - half, algbw + half
        if latency > 0:
            # Size over latency has more digits than the printed algbw; if they differ, algbw counts.
            exact, error = row.size / latency / 1e3, 1e-6 / latency + 1e-9
            if low <= exact <= high:
                low, high = exact * (1 - error), exact * (1 + error)
        if low > 0 and high < 1e12:
            self.low = max(self.low, (busbw - half) / high)
            self.high = min(self.high, (busbw + half) / low)


def _ratio_range(rows: Iterable[NvshmemRow]) -> RatioRange:
    ratio = RatioRange()
    for row in rows:
        ratio.narrow(row)
    return ratio


def ranks_of(rows: Iterable[NvshmemRow], job: str | None) -> int | None:
    """Return the only number of PEs that explains busbw / algbw in these rows; None: several, or none.

    The ratio is 2(n-1)/n for reductions, and (n-1)/n for alltoall, fcollect and reducescatter.
    """
    ratio = _ratio_range(rows)
    kind = collective(job)
    if kind == "reduction" or (not job and ratio.low > 1):
        top = 2.0
    elif kind in text.GATHERING or (not job and ratio.high < 1):
        top = 1.0
    else:
        return None
    if not 0 <= ratio.low < top or ratio.high >= top:
        return None
    first = max(int(-(-(1 / (1 - ratio.low / top) - 1e-9) // 1)), 1)
    last = int(1 / (1 - ratio.high / top) + 1e-9)
    return first if first == last else None


def gathers(rows: Iterable[NvshmemRow], job: str | None) -> bool:
    """Return whether these rows are, or may be, from a collective whose size has several meanings."""
    if job:
        return collective(job) in text.GATHERING
    return _ratio_range(rows).low < 1


_LOG_VERSION = "Measure again with NVSHMEM_VERSION=1, so that the log has the line `NVSHMEM vX.Y.Z`."


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionOutput:
    """What was read from one execution."""

    record: Record
    preface: Preface
    rows: Sequence[NvshmemRow]
    eras: Eras
    scaled_by: int | None
    """The factor by which sizes and bandwidths were multiplied, because one PE's block was printed."""


def figure_findings(read: ExecutionOutput) -> Iterator[Finding]:
    """Yield what users should know about these numbers."""
    if read.rows and read.record.case is None:
        yield UNKNOWN_TEST
    yield from _settings(read.preface)
    yield from _unit(read)
    yield from _sizes_and_version(read)
    yield from unmeasured(
        (row.size for row in read.rows for figure in row.figures if not figure.token[0].isdigit()),
        advice="More than a million iterations make the bandwidth inf: run fewer (-n).",
    )
    yield from _nothing_moved(read)
    yield from _rounded(read)
    yield from _missing(read)
    yield from _mislabeled(read)
    if read.record.facts.get("ranks") == 1 and read.rows:
        yield warning("one-rank", "One PE only: nothing went over a fabric.", "Start more PEs.")
    if empty := read.preface.empty_tables:
        yield note(
            "empty-tables",
            f"{empty} table{'s have' if empty > 1 else ' has'} no row.",
            "Collectives of one thread or warp run small sizes only: choose smaller sizes (-b).",
        )
    for text_, count in merged(Counter(read.preface.warnings).items())[:5]:
        yield _warned(text_, count)


def _warned(printed_: str, count: int) -> Finding:
    # The text before it is long: a process, and a source file.
    line = printed_[max(printed_.find("NVSHMEM WARN"), 0) :]
    if "Skipping NVLINK SHARP resource initialized" in line:
        return note(
            "nvshmem-warning",
            f"NVSHMEM warned{times(count)} that it does not use NVLink SHARP, which is "
            "disabled or unavailable: collectives use NVLink without it.",
            line=line,
        )
    return warning(
        "nvshmem-warning",
        f"NVSHMEM warned{times(count)}, but still printed rows.",
        "Check whether it is about the transport that should have been used.",
        line=line,
    )


def _settings(preface: Preface) -> Iterator[Finding]:
    transport, provider = (preface.settings.get(name, ("", ""))[0] for name in (TRANSPORT, PROVIDER))
    if provider and transport != "libfabric":
        setting = f"{TRANSPORT} is {transport}" if transport else f"the log does not show {TRANSPORT} (default: ibrc)"
        yield warning(
            "provider-unused",
            f"{PROVIDER}={provider} applies to libfabric only, and {setting}.",
            f"Set {TRANSPORT}=libfabric too, for every PE.",
            line=preface.settings[PROVIDER][1],
        )
    if transport == "libfabric" and not provider:
        yield warning(
            "provider-unset",
            f"{TRANSPORT} is libfabric, and the log does not show {PROVIDER} (default: cxi).",
            f"Set {PROVIDER} too: efa for EFA.",
            line=preface.settings[TRANSPORT][1],
        )


def _unit(read: ExecutionOutput) -> Iterator[Finding]:
    if read.record.facts.get("unit") == AMBIGUOUS:
        yield warning(
            "unit-ambiguous",
            "GB is 2^30 bytes up to NVSHMEM 3.1 and 1e9 from 3.2 on, and the log does not say which "
            "version it was: 1e9 is assumed, the lower reading (2^30 is 7.4 % more).",
            _LOG_VERSION,
        )


def _sizes_and_version(read: ExecutionOutput) -> Iterator[Finding]:
    means = read.record.facts.get("size_means")
    if means == AMBIGUOUS:
        yield warning(
            "size-ambiguous",
            "The printed size is one PE's block up to NVSHMEM 3.0 and in device programs of 3.2, the "
            "total of all PEs in 3.1 and from 3.3 on, and bandwidths are computed from it. The log does not "
            "say which version (or which collective) it was: figures are as printed.",
            _LOG_VERSION,
        )
    elif means == BLOCK:
        yield warning(
            "size-per-pe",
            "The printed size is one PE's block, not the total, and the log does not show the number "
            "of PEs: figures are as printed.",
            "Multiply sizes and bandwidths by the number of PEs to compare with other versions.",
        )
    elif read.scaled_by is not None:
        yield note(
            "size-per-pe",
            "This version prints one PE's block as the size: sizes and bandwidths here are "
            f"multiplied by the {read.scaled_by} PEs, to be totals as in other versions.",
        )
    if any("threads" in dict(row.labels) for row in read.rows):
        yield note("threads-not-size", "No data is sent: the printed size is the number of threads in a block.")
    version = read.preface.version
    if version and read.rows and not read.eras & eras_of(version):
        yield note(
            "version-mismatch",
            f"The library reports NVSHMEM {version}, and the tables are laid out as in "
            f"{' or '.join(sorted(read.eras))}: units and sizes are taken from the tables.",
        )


def _between_two(read: ExecutionOutput) -> bool:
    return "unit" in read.record.facts and not collective(read.record.case)


def _by_blocks(read: ExecutionOutput) -> bool:
    """Return whether this program divides a message among thread blocks, over a range of sizes."""
    return _between_two(read) and (read.record.case or "").removeprefix("shmem_") in {"put_bw", "get_bw"}


def _nothing_moved(read: ExecutionOutput) -> Iterator[Finding]:
    if not _by_blocks(read):
        return
    blocks = (read.preface.options.blocks if read.preface.options else None) or 32
    sizes = {row.size for row in read.rows if 0 < row.size < 8 * blocks}
    if sizes:
        yield warning(
            "moves-nothing",
            f"Below {format_size(8 * blocks)} (8 bytes for each of {blocks} thread blocks) this "
            f"program moves no data: the figures at {format_sizes(sizes)} say nothing.",
            f"Begin with -b {8 * blocks}, or use fewer blocks (-c).",
        )


def _rounded(read: ExecutionOutput) -> Iterator[Finding]:
    """Find the error of `size / (ms * (GB / (iterations * 1000)))`: the inner division is an integer one."""
    iterations = read.preface.options.iterations if read.preface.options else None
    unit = read.record.facts.get("unit")
    if not iterations or not _between_two(read) or unit == AMBIGUOUS:
        return
    base = 2**30 if unit == BINARY else 10**9
    whole, exact = base // (iterations * 1000), base / (iterations * 1000)
    if whole and exact / whole - 1 >= 0.001:
        yield note(
            "rounded-bandwidth",
            f"With {iterations} iterations the program's integer arithmetic makes printed bandwidths "
            f"{(exact / whole - 1) * 100:.1f} % too high.",
            "Use a number of iterations that divides 1000000.",
        )


def sizes_lost(read: ExecutionOutput) -> str:
    """Report in a sentence which sizes of the planned sweep have no row; empty: none known.

    Rows of other sizes show that the options are not those of the table.
    """
    if not {row.size for row in read.rows} <= _planned(read):
        return ""
    return next((finding.meaning for finding in _missing(read)), "")


def _planned(read: ExecutionOutput) -> set[int]:
    options = read.preface.options
    if options is None or not _by_blocks(read) or not read.rows:
        return set()
    low, high, factor = options.smallest, options.largest, options.factor
    if not low or not high or not factor or factor < 2:
        return set()
    return {low * factor**power for power in range(64) if low * factor**power <= high}


def _missing(read: ExecutionOutput) -> Iterator[Finding]:
    planned = _planned(read)
    if missing := planned - {row.size for row in read.rows}:
        yield warning(
            "sizes-missing",
            f"The options request {format_sizes(planned)}; missing: {format_sizes(missing)}.",
            "The program was stopped, or the symmetric heap is too small (NVSHMEM_SYMMETRIC_SIZE).",
        )


def _mislabeled(read: ExecutionOutput) -> Iterator[Finding]:
    """Find sizes that fcollect of 3.3.9 prints incorrectly: its 32-bit block table begins at one element."""
    options, ranks = read.preface.options, read.record.facts.get("ranks")
    if options is None or not options.smallest or not isinstance(ranks, int) or read.eras != {V33}:
        return
    if collective(read.record.case) == "fcollect" and options.smallest > 4 * ranks:
        yield warning(
            "sizes-mislabelled",
            "In NVSHMEM 3.3 fcollect_latency measures sizes other than its 32-bit block table "
            f"prints, where the smallest size ({options.smallest}) is more than 4 bytes for each PE.",
            f"Begin with -b {4 * ranks} or less.",
        )


_SHAPES: Mapping[str, Sequence[BandwidthFormula]] = {
    "reduction": (ALL_REDUCE,),
    "bcast": (SAME,),
    **dict.fromkeys(text.GATHERING, (GATHERING,)),
}


def contradictions(rows: Sequence[tuple[str | None, NvshmemRow]], ranks: int | None) -> Iterator[int]:
    """Yield the positions of rows, each with its job, whose figures contradict each other.

    `ranks`: the number of PEs, if all of them printed theirs.
    """
    checks: dict[str, RateCheck[int]] = {}
    for at, (job, row) in enumerate(rows):
        allowed = _ratios(row)
        if not _is_ordered(row):
            yield at
        elif allowed is not None:
            checks.setdefault(text.collective(job), RateCheck()).fits(at, (allowed,))
    for kind, check in checks.items():
        yield from check.settle(_SHAPES.get(kind, (ALL_REDUCE, GATHERING, SAME)), ranks)


def _ratios(row: NvshmemRow) -> Ratios | None:
    cells = {figure.metric: printed(figure.token) for figure in row.figures if not figure.labels}
    if not {"latency", "algbw", "busbw"} <= cells.keys():
        return None
    latency, algbw, busbw = cells["latency"], cells["algbw"].times(1e3), cells["busbw"].times(1e3)
    # 1 GB/s is 1000 bytes per microsecond.
    return ratios(row.size, latency if latency.value else ANYTHING, algbw, busbw)


def _is_ordered(row: NvshmemRow) -> bool:
    main = next((figure.metric for figure in row.figures), "")
    stats: dict[str, Printed] = {}
    for figure in row.figures:
        stat = dict(figure.labels).get("stat", "")
        if figure.metric == main and set(dict(figure.labels)) <= {"stat"}:
            stats["mean" if stat in {"", "mean"} else stat] = printed(figure.token)
    return is_ordered(*(stats[stat] for stat in ("min", "mean", "max") if stat in stats))
