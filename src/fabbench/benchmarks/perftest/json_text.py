"""perftest's JSON (``--out_json``, since 2021), as the lines of text that say the same. Pure.

It has one test, one size, and no unit. It is read by its keys: with QoS, ``--output=bandwidth`` or
until 2023 (no quotes) it is not valid JSON, and a truncated file can end anywhere.
"""

import re
from collections.abc import Iterator, Mapping

from fabbench.benchmarks.consistency import Printed, printed
from fabbench.benchmarks.perftest.rows import UNITS
from fabbench.model.patterns import lazy

_WHOLE = lazy(r'(?s)(.*?)\bresults"?\s*:\s*\{([^}]*)\}.*')
_WORD = r'"([^"]*)"|(-?\d+(?:\.\d*)?|[A-Z]\w*)(?=\s*[,}\s]|$)'
_PAIR = lazy(rf'"?([A-Za-z_][\w. *]{{0,40}})"?\s{{0,9}}:\s{{0,9}}(?:{_WORD})', re.ASCII)
_COLUMNS: Mapping[str, str] = {
    "MsgSize": "#bytes",
    "sl": "#sl",
    "n_iterations": "#iterations",
    "BW_peak": "BW peak[{}]",
    "BW_average": "BW average[{}]",
    "MsgRate": "MsgRate[Mpps]",
    **{key: f"{key}[usec]" for key in ("t_min", "t_max", "t_typical", "t_avg", "t_stdev")},
    **{f"percentile_{each}": f"{each}% percentile[usec]" for each in ("99", "99.9")},
    "tps_average": "tps average",
}
"""Key in `results` → column of the table."""
_BANDWIDTHS = frozenset({"BW_average", "bw_avg", "msgRate_avg"})
_RULE = "-" * 20


def from_json(text: str) -> Iterator[str]:
    """Yield the lines of text that say the same as a whole file; none for one that is not whole."""
    whole = _WHOLE.fullmatch(text)
    if whole is None:
        return
    setup = _members(whole[1])
    results = _members(whole[2])
    yield setup.pop("test", "")
    for key, value in setup.items():
        if value:
            yield f" {key.replace('_', ' ')} : {value}"
    unit = _unit(results)
    if not _BANDWIDTHS.isdisjoint(results):
        stated = unit or "ambiguous"
        yield f" JSON unit : {stated}"
    if "MsgSize" in results:
        yield from _table(results, unit)
    else:  # --output
        yield " JSON size : unknown"


def _members(text: str) -> dict[str, str]:
    members: dict[str, str] = {}
    for key, word, number in _PAIR.findall(text):
        members[key.strip()] = word or number
    return members


def _table(results: Mapping[str, str], unit: str) -> Iterator[str]:
    columns: dict[str, str] = {}
    for key, name in _COLUMNS.items():
        if key in results and (unit or not key.startswith("BW")):
            decimals = _decimals(key, results)
            columns[name.format(unit)] = _padded(results[key], decimals)
    yield _RULE
    for cells in (columns, columns.values()):
        yield " " + "  ".join(cells)
    yield _RULE


def _decimals(key: str, results: Mapping[str, str]) -> int:
    """Return how many decimals the table has where JSON leaves zeros out."""
    if _COLUMNS[key].startswith("#"):
        return 0
    has_six = key == "MsgRate" or (key.startswith("BW") and _has_six_decimals(results))
    return 6 if has_six else 2


def _padded(number: str, decimals: int) -> str:
    whole, _, fraction = number.partition(".")
    return f"{whole}.{fraction.ljust(decimals, '0')}" if decimals else whole


def _has_six_decimals(results: Mapping[str, str]) -> bool:
    """Return whether bandwidths are Gb/s: only those have six decimals (REPORT_FMT_EXT_JSON)."""
    _, _, fraction = results.get("BW_average", "").partition(".")
    return len(fraction) == 6


def _unit(results: Mapping[str, str]) -> str:
    """Return the only unit in which the bandwidth is size times message rate.

    Empty: none, or not known.
    """
    if _has_six_decimals(results):
        return "Gb/sec"
    try:
        bandwidth = printed(results.get("BW_average", ""))
        size = int(results.get("MsgSize", ""))
        product = printed(results.get("MsgRate", "")).times(1e6 * size)
    except ValueError:
        return ""
    if not _is_precise(bandwidth) or not _is_precise(product):
        return ""
    units: list[str] = []
    for unit, factor in UNITS.items():
        if product.agrees(bandwidth.times(factor)):
            units.append(unit)
    return units[0] if len(units) == 1 else ""


def _is_precise(number: Printed) -> bool:
    return number.high < 2 * number.low
