"""Reads nixlbench's settings and tables, and NIXL's line about libfabric.

Until August 2025 it printed six significant digits, without trailing zeros.
"""

import math
from collections.abc import Sequence
from statistics import median_high

from fabbench.benchmarks.consistency import Printed, product
from fabbench.benchmarks.events import Ahead, Begin, Events, Header, Setting, Wrong
from fabbench.benchmarks.executions import Execution, Table
from fabbench.benchmarks.findings import finding
from fabbench.benchmarks.tables import (
    COUNT,
    Row,
    columns_of,
    read_columns,
    unknown_columns,
)
from fabbench.model.log import Facts
from fabbench.model.patterns import lazy
from fabbench.model.units import whole_or_text

_SIX_DIGITS = r"\d{1,18}(?:\.\d{1,6})?(?:e[+-]\d\d)?"
_COLUMNS = columns_of("nixl")
_NAMES = lazy(r"Batch Size|\S[^()]{0,60}\([^()]*\)")
_SETTING = lazy(
    r"(Backend|Enable pt|\w+ seg type|Op type|Num threads|Check consistency) \(--[^)]*\)\s*: *(\S+)"
    r"|.*\] Created \d+ rails using (provider)=(\S+)"
)
_NO_FIGURE = Printed(value=0.0, low=0.0, high=0.0)
_DEFAULTS = {"threads": 1, "enable_pt": 0}


def _events(text: str, execution: Execution | None) -> Events | None:
    # The names of columns; a setting, which is about the table to come; within an execution a
    # failed check, or the rule, which says nothing. None: any other line.
    if text.lstrip().startswith("Block Size (B)"):
        return _header(text)
    setting = _SETTING.match(text)
    if setting is not None:
        name, value = filter(None, setting.groups())
        stated = Setting(facts=_setting(name, value))
        return (Ahead((stated,)),)
    if execution is None:
        return None
    if text.lstrip().startswith("Consistency check failed"):
        return (Wrong(),)
    return () if text.startswith("-----") else None  # the rule below the names of columns


def _header(text: str) -> Events:
    layout = read_columns(_NAMES.findall(text), _COLUMNS)
    if "MiB" in text:  # the format until August 2025, whose figures have six significant digits
        layout = tuple(
            column if column.cell == COUNT else column._replace(cell=_SIX_DIGITS)
            for column in layout
        )
    return (Begin(), Header([layout]), *unknown_columns(layout, text))


def _setting(name: str, value: str) -> Facts:
    """Return the facts that a setting states: ``Num threads`` is `threads`."""
    if name == "provider":
        return {name: value, "transport": value if value == "efa" else f"libfabric-{value}"}
    number = whole_or_text(value)
    if name == "Check consistency":
        return {"checked": "yes" if number else "no"}
    return {name.lower().replace(" ", "_").removeprefix("num_"): number}


def _blocks(row: Row) -> tuple[float, float]:
    """Return the fewest and the most blocks that may be in flight at once.

    That is bandwidth times latency in blocks; also where there are several pairs. 0 where the
    row lacks one of them.
    """
    latency = row.main("latency") or _NO_FIGURE
    low, high = product(latency, row.main("bandwidth") or _NO_FIGURE)
    size = row.size or math.inf
    return low / size, high / size


def _settle(execution: Execution) -> Sequence[Row]:
    """Return the rows that have as many blocks in flight as there are threads.

    Where the settings are not in the log, most rows show how many.
    """
    facts = execution.record.facts
    middles = [sum(_blocks(row)) / 2 for row in execution.rows]
    usual = median_high(middles or (1.0,))
    stated = facts.get("threads")
    threads = stated if isinstance(stated, int) else round(usual)
    threads = max(threads, 1)
    slack = 1.01 if threads > 1 else 1.0  # several may overlap a little less

    def read(row: Row) -> Row | None:  # None: its figures contradict each other, or may be cut
        low, high = _blocks(row)
        is_whole = low <= threads <= high * slack and not _is_cut(row)
        return row if is_whole else None

    if _DEFAULTS.items() <= facts.items():
        execution.record.findings.append(finding("nixl-defaults"))
    return execution.reread_rows(read)


def _is_cut(row: Row) -> bool:
    """Return whether the last figure is not that in MiB, which only the older format has.

    It omits trailing zeros: six of its digits count, printed or not.
    """
    in_mib = row.read("in MiB")
    if in_mib is None:
        return False
    in_gb = float(row.cells[-1])
    magnitude = math.floor(math.log10(in_gb or 1))
    half_digit = 0.5 * 10.0 ** (magnitude - 5)
    return not in_mib.overlaps(in_gb - half_digit, in_gb + half_digit)


TABLE = Table(
    benchmark="nixl", program="nixlbench", case="nixlbench", events=_events, settle=_settle
)
