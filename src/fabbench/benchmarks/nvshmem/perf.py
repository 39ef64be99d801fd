"""Machine readable rows: ``&&&& PERF job___subjob___size__N___output value ±unit``. Pure.

A compile-time choice up to 2.11, and NVSHMEM_MACHINE_READABLE_OUTPUT=1 from 3.0.6 on. The sign says which way
is better. PERF_STATS, with the statistics of repetitions, came after 3.6.
"""

import re
from typing import NamedTuple

from fabbench.benchmarks.nvshmem.layouts import ALL, TORN, UNITS, V33, Eras, Figure, Row, Torn, read_sub_job

SIGN = "&&&& PERF"
_LONGEST = 400
"""Characters of a row: more are no row, and would take long to match."""
_NUMBER = r"\d{1,18}(?:\.\d{1,18})?|-?inf|-?nan"
_NAMES = r"(?P<job>\S+?)___(?P<sub>.*?)___(?P<variable>[^_\s][^_]*?)__(?P<size>\d{1,18})___(?P<output>\S+)"
_PERF = re.compile(rf"&&&& PERF {_NAMES} (?P<value>\d{{1,18}}\.\d{{6}}|-?inf|-?nan) [+-](?P<unit>\S+)\s*")
_STATS = re.compile(
    rf"&&&& PERF_STATS {_NAMES} [+-](?P<unit>\S+) mean=(?P<mean>{_NUMBER}) stddev=(?P<stdev>{_NUMBER})"
    rf" min=(?P<min>{_NUMBER}) max=(?P<max>{_NUMBER}) repetitions=\d+\s*"
)


class PerfRow(NamedTuple):
    """One row, its job, and the versions that print such a row."""

    job: str
    row: Row
    eras: Eras


def read(text: str, *, inside: bool) -> PerfRow | Torn | None:
    """Read a line; None if it is none of these rows, nor (`inside` of a table) the beginning of one."""
    if not text.startswith(SIGN):
        return TORN if inside and text[:1] == "&" and SIGN.startswith(text) else None
    match = (_PERF.fullmatch(text) or _STATS.fullmatch(text)) if len(text) <= _LONGEST else None
    if match is None or match["unit"] not in UNITS:
        return TORN
    metric, unit = UNITS[match["unit"]]
    labels = dict(read_sub_job(match["sub"]))
    sized = match["variable"].lower().startswith("size")
    if not sized:
        labels["threads"] = match["size"]
    if match.re is _PERF:
        figures: tuple[Figure, ...] = (Figure(metric, match["value"], unit),)
    else:
        names = ("mean", "stdev", "min", "max")
        figures = tuple(Figure(metric, match[name], unit, (("stat", name),)) for name in names)
    row = Row(int(match["size"]) if sized else 0, tuple(labels.items()), figures)
    return PerfRow(match["job"], row, ALL if match.re is _PERF else frozenset({V33}))
