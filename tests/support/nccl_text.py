"""Writes nccl-tests logs (2.13 layout) from sizes and bus bandwidths, for tests."""

from collections.abc import Iterable

from tests.support.paths import DATA

PUBLISHED = (DATA / "published-p4d.txt").read_text("utf-8").splitlines()
"""SkyPilot's published table of 2 × p4d.24xlarge.

Size, EFA, non-EFA (GB/s), ratio of what is printed.

The ratios at 32 KB, 128 KB, 512 MB and 1 GB are published as 1.4, 2.1, 17.7 and 18.4.
"""

SIZES = [1 << power for power in range(3, 32)]
EFA = [float(row.split("|")[1]) for row in PUBLISHED]
NON_EFA = [float(row.split("|")[2]) for row in PUBLISHED]

_WAY = "     time   algbw   busbw #wrong"
_UNITS = "(us)  (GB/s)  (GB/s)"
HEADER = f"""\
#
#{"out-of-place":>74}{"in-place":>31}
#       size         count      type   redop    root{_WAY}{_WAY}
#        (B)    (elements)                               {_UNITS}            {_UNITS}
"""


def nccl_text(  # noqa: PLR0913 - what the log says, each with a default
    rows: Iterable[tuple[int, float]],
    *,
    ranks: int = 16,
    hosts: int = 2,
    case: str = "all_reduce",
    dtype: str = "float",
    wrong: int = 0,
    footer: bool = True,
) -> str:
    """Write a whole log of an all_reduce-like test; `rows` are (size in bytes, busbw in GB/s)."""
    rows = list(rows)
    width = {"float": 4, "half": 2, "int8": 1}[dtype]
    gathers = case in {"all_gather", "reduce_scatter", "alltoall"}
    factor = 1.0 if case == "sendrecv" else (1 if gathers else 2) * (ranks - 1) / ranks
    counts = width * ranks if gathers else width
    sizes = {rows[0][0] << power for power in range(64) if rows[0][0] << power <= rows[-1][0]}
    last = rows[-1][0] if sizes <= {size for size, _ in rows} else rows[0][0]
    each = ranks // hosts
    lines = [f"# Collective test starting: {case}_perf\n"]
    lines.append(
        f"# nThread 1 nGpus 1 minBytes {rows[0][0]} maxBytes {last} step: 2(factor) "
        "warmup iters: 5 iters: 100 agg iters: 1 validation: 1 graph: 0\n#\n# Using devices\n"
    )
    lines += [
        f"#  Rank {rank:2d} Group  0 Pid {100 + rank:6d} on {'node' + str(rank // each):>10} "
        f"device {rank % each:2d} "
        "[0000:10:1c] NVIDIA A100-SXM4-40GB\n"
        for rank in range(ranks)
    ]
    lines.append(HEADER)
    for size, busbw in rows:
        # A bandwidth that prints as 0.00 still took a time; 0.004 rounds to it.
        algbw = busbw / factor
        time = size / ((algbw or 0.004 / factor) * 1e3) if busbw else max(60.0, size / 4)
        half = f"{_time(time)}  {algbw:6.2f}  {busbw:6.2f}  {wrong:5d}"
        lines.append(
            f"{size:12d}  {size // counts:12d}  {dtype:>8}  {'sum':>6}  {-1:6d}  {half}  {half}\n"
        )
    if footer:
        average = sum(busbw for _, busbw in rows) / len(rows)
        verdict = f"{4 * wrong} FAILED" if wrong else "0 OK"
        lines.append(
            f"# Out of bounds values : {verdict}\n# Avg bus bandwidth    : {average:g} \n#\n\n"
        )
    return "".join(lines)


def _time(us: float) -> str:
    if us >= 10000:
        return f"{us:7.0f}"
    return f"{us:7.1f}" if us >= 100 else f"{us:7.2f}"
