"""The JSON that perftest writes with ``--out_json`` (since 2021): one test, one size, no unit.

It is read by its keys, line by line: with QoS or ``--output=bandwidth`` the file is no valid JSON, and a file
that is cut ends anywhere.
"""

import re
from decimal import Decimal

from fabbench.benchmarks.perftest.arithmetic import unit_of
from fabbench.benchmarks.perftest.points import Number, exact
from fabbench.benchmarks.perftest.tables import UNITS

_BEGIN = re.compile(r'"test_info"\s*:')
_RESULTS = re.compile(r'"results"\s*:\s*\{')
_PAIR = re.compile(
    r'"?([A-Za-z_][\w. *]{0,40})"?\s{0,9}:\s{0,9}(?:"([^"]*)"|(-?\d+(?:\.\d*)?)(?=\s*[,}\s]|$))', re.ASCII
)

_SETUP = {
    "Device": "Device",
    "Number_of_qps": "Number of qps",
    "Connection_type": "Connection type",
    "Link_type": "Link type",
    "Mtu": "Mtu",
    "GID_index": "GID index",
    "TX_depth": "TX depth",
    "RX_depth": "RX depth",
}
"""Keys in `test_info` → names in the set-up text."""

_US = Decimal("1e-6")
_LATENCIES = (
    ("t_min", "min"),
    ("t_max", "max"),
    ("t_typical", "median"),
    ("t_avg", ""),
    ("t_stdev", "stdev"),
    ("percentile_99", "p99"),
    ("percentile_99.9", "p99.9"),
)


def begins(text: str) -> bool:
    """Whether a line begins such a file, less its first brace."""
    return _BEGIN.search(text) is not None


class Written:
    """Collects the keys of one file."""

    def __init__(self) -> None:
        self.done = False
        self._told: dict[str, str] = {}
        self._found: dict[str, str] = {}
        self._inside = False

    def feed(self, text: str) -> None:
        """Read a line."""
        results = None if self._inside else _RESULTS.search(text)
        if results is not None:
            self._take(text[: results.start()], self._told)
            text, self._inside = text[results.end() :], True
        rest, closed, _ = text.partition("}") if self._inside else (text, "", "")
        self._take(rest, self._found if self._inside else self._told)
        self.done = bool(closed)

    @staticmethod
    def _take(text: str, into: dict[str, str]) -> None:
        for key, word, number in _PAIR.findall(text):
            into[key] = word or number

    @property
    def title(self) -> str:
        """The test's title, as the program prints it but for underscores."""
        return self._told.get("test", "")

    @property
    def setup(self) -> dict[str, str]:
        """The set-up, by the names it has in the text."""
        return {name: self._told[key] for key, name in _SETUP.items() if self._told.get(key)}

    @property
    def size(self) -> int | None:
        """The size in bytes; None: the file does not state it (--output)."""
        return _whole(self._found.get("MsgSize", ""))

    @property
    def iterations(self) -> int | None:
        """How often it was measured."""
        return _whole(self._found.get("n_iterations", ""))

    @property
    def service_level(self) -> str:
        """The `sl` of raw Ethernet with QoS."""
        return self._found.get("sl", "")

    @property
    def is_bandwidth(self) -> bool:
        """Whether it is of a bandwidth test."""
        return bool({"BW_average", "bw_avg", "msgRate_avg"} & set(self._found))

    @property
    def latency_and_rate(self) -> tuple[Decimal, Decimal] | None:
        """What a duration run says: microseconds, and round trips per second."""
        tokens = self._found.get("t_avg", ""), self._found.get("tps_average", "")
        return (Decimal(tokens[0]), Decimal(tokens[1])) if all(tokens) else None

    @property
    def unit(self) -> str:
        """The unit of bandwidth, by arithmetic; empty: it cannot be told."""
        average, rate = self._found.get("BW_average", ""), self._found.get("MsgRate", "")
        if not average or not rate or not self.size:
            return ""
        # Six decimals are printed for Gb/s only (REPORT_FMT_EXT_JSON).
        if len(average.partition(".")[2]) == 6:
            return "Gb/sec"
        return unit_of(Decimal(average), Decimal(rate), self.size)

    def numbers(self) -> list[Number]:
        """Give the numbers in base units; bandwidth only where its unit is certain."""
        found = []
        factor = UNITS.get(self.unit)
        for key, stat in (("BW_peak", "peak"), ("BW_average", "")):
            if key in self._found and factor is not None:
                found.append(Number("bandwidth", stat, "", exact(self._found[key], factor)))
        if "MsgRate" in self._found:
            found.append(Number("message_rate", "", "", exact(self._found["MsgRate"], Decimal(1_000_000))))
        for key, stat in _LATENCIES:
            if key in self._found:
                found.append(Number("latency", stat, "", exact(self._found[key], _US)))
        if "tps_average" in self._found:
            found.append(Number("tps", "", "", exact(self._found["tps_average"], Decimal(1))))
        return found


def _whole(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None
