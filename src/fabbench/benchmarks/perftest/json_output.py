"""The JSON that perftest writes, as the text that says the same.

``--out_json`` (since 2021) has one test, one size, and no unit. It is read by its keys, line by line: with
QoS, ``--output=bandwidth`` or until 2023 (no quotes) it is not valid JSON, and a truncated file can end anywhere.
"""

import re
from collections.abc import Iterator, Mapping

from fabbench.benchmarks.consistency import printed
from fabbench.benchmarks.perftest.tables import true_unit
from fabbench.model.log import Line
from fabbench.model.patterns import lazy

_RESULTS = lazy(r'"?\bresults"?\s*:\s*\{')
_WORD = r'"([^"]*)"|(-?\d+(?:\.\d*)?|[A-Z]\w*)(?=\s*[,}\s]|$)'
_PAIR = lazy(rf'"?([A-Za-z_][\w. *]{{0,40}})"?\s{{0,9}}:\s{{0,9}}(?:{_WORD})', re.ASCII)

_COLUMNS: Mapping[str, str] = {
    "BW_peak": "BW peak[{}]",
    "BW_average": "BW average[{}]",
    "MsgRate": "MsgRate[Mpps]",
    **{key: f"{key}[usec]" for key in ("t_min", "t_max", "t_typical", "t_avg", "t_stdev")},
    "percentile_99": "99% percentile[usec]",
    "percentile_99.9": "99.9% percentile[usec]",
    "tps_average": "tps average",
}
"""Key in `results` → column of the table."""


class JsonOutput:
    """Collects the keys of one file: those of `test_info`, and those of `results`."""

    def __init__(self, first: Line) -> None:
        self.first = first
        self._info: dict[str, str] = {}
        self._results: dict[str, str] = {}
        self._inside = False

    def feed(self, text: str) -> bool:
        """Read a line; return whether it is the last one."""
        results = None if self._inside else _RESULTS.search(text)
        if results is not None:
            self._info |= _pairs(text[: results.start()])
            text, self._inside = text[results.end() :], True
        if self._inside:
            rest, closed, _ = text.partition("}")
            self._results |= _pairs(rest)
            return bool(closed)
        self._info |= _pairs(text)
        return False

    @property
    def size(self) -> str | None:
        """The size in bytes; None: the file does not state it (--output)."""
        return size if (size := self._results.get("MsgSize", "")).isdecimal() else None

    def lines(self) -> Iterator[str]:
        """Yield the lines of text that say the same."""
        yield self._info.pop("test", "")
        yield from (f" {key.replace('_', ' ')} : {value}" for key, value in self._info.items() if value)
        results, average = self._results, self._results.get("BW_average", "")
        six = len(average.partition(".")[2]) == 6
        # Six decimals are printed for Gb/s only (REPORT_FMT_EXT_JSON).
        unit = "Gb/sec" if six else self._unit(average, results.get("MsgRate", ""))
        if average or not results.keys().isdisjoint(("bw_avg", "msgRate_avg")):
            yield f" JSON unit : {unit or 'ambiguous'}"
        if self.size is None:
            return
        columns = {"#bytes": self.size, "#sl": results.get("sl", ""), "#iterations": results.get("n_iterations", "")}
        for key, name in _COLUMNS.items():
            if key in results and (unit or not key.startswith("BW")):
                # JSON leaves zeros out.
                whole, _, decimals = results[key].partition(".")
                wanted = 6 if key == "MsgRate" or (six and key.startswith("BW")) else 2
                columns[name.format(unit)] = f"{whole}.{decimals.ljust(wanted, '0')}"
        columns = {name: cell for name, cell in columns.items() if cell}
        yield from ("-" * 20, f" {'  '.join(columns)}", f" {'  '.join(columns.values())}", "-" * 20)

    def _unit(self, average: str, rate: str) -> str:
        """Return the unit of bandwidth, by arithmetic; empty: it cannot be determined."""
        try:
            return true_unit(printed(average), printed(rate).times(1e6), int(self.size or 0))
        except ValueError:
            return ""


def _pairs(text: str) -> dict[str, str]:
    return {key.strip(): word or number for key, word, number in _PAIR.findall(text)}
