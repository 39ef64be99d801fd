"""What processes report of themselves: in sentences, ``fi_info`` blocks, libfabric's own log, and numbers.

Sizes and totals are 1024-based and cut down to one decimal digit, or none from 10 on: 1500 bytes are ``1.4k``
(`size_str`). Counts are 1000-based and cut down (`cnt_str`). Times and rates have two decimals. The code is
the same in util/pingpong.c and fabtests/common/shared.c.
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from fabbench.benchmarks.consistency import ANYTHING, printed, product
from fabbench.model.log import Finding, Severity
from fabbench.model.messages import quoted
from fabbench.model.patterns import lazy


@dataclass(slots=True)
class ReportedFacts:
    """Collects facts; both sides, and every step, report them again."""

    _values: dict[str, dict[str, str]] = field(default_factory=dict)
    """fact → value → the side that reported it first."""

    def add(self, fact: str, value: str, side: str) -> None:
        """Note a fact."""
        self._values.setdefault(fact, {}).setdefault(value, side)

    def first(self, fact: str) -> str:
        """Return the first value of a fact; empty: it was not reported."""
        return next(iter(self._values.get(fact, {})), "")

    def facts(self) -> Iterator[tuple[str, str]]:
        """Yield (name, value) per fact: addresses as the client sees them, the provider as transport."""
        for name, values in self._values.items():
            if name in {"source_address", "dest_address"}:
                yield (
                    name,
                    next((value for value, side in values.items() if side == "client"), self.first(name)),
                )
            else:
                yield name, ", ".join(values)
        providers = self._values.get("provider", {})
        if providers:
            yield "transport", "mixed" if len(providers) > 1 else self.first("provider")

    def findings(self, facts: Iterable[str] = ("provider", "domain")) -> Iterator[Finding]:
        """Yield a finding per fact in which the processes differ: then more than one fabric was measured."""
        for fact in facts:
            values = self._values.get(fact, {})
            if len(values) > 1:
                who = ", ".join(f"{value} ({side})" if side else value for value, side in values.items())
                yield Finding(
                    code=f"mixed-{fact}",
                    severity=Severity.ERROR if fact == "provider" else Severity.WARNING,
                    meaning=f"The processes did not use one {fact}: {who}.",
                    advice="Measure again with one provider and one domain on both sides.",
                )


def error_sentence(side: str, program: str, text: str) -> str:
    """Return a sentence that quotes an error text of a process."""
    return f"{f'The {side}' if side else program} said: {quoted(text)}"


def truncated_size(printed: str, size: int) -> Finding:
    """Return a finding that a size is not known exactly; `size`: the assumed one, in bytes."""
    return Finding(
        code="size-truncated",
        severity=Severity.WARNING,
        meaning=f"The program cut the size down to {printed}; {size} bytes are assumed.",
        advice="Keep the command line, with -S, in the log.",
    )


# ---------------------------------------------------------------- fi_info blocks

_INFO_LINE = lazy(r"\s+(\w+):\s*(.*)")
_SECTION = lazy(r"\s*(fi_\w+_attr|nic):.*")
_INFO_FACTS = {
    ("", "src_addr"): "source_address",
    ("", "dest_addr"): "dest_address",
    ("fi_ep_attr", "type"): "endpoint",
    ("fi_domain_attr", "name"): "domain",
    ("fi_fabric_attr", "name"): "fabric",
    ("fi_fabric_attr", "prov_name"): "provider",
    ("fi_fabric_attr", "prov_version"): "libfabric",
}
_ADDRESS = lazy(r"fi_sockaddr_in6?://\[?([^\]]+?)\]?(?::\d+)?")
_VERSION = lazy(r"(\d+)(\d\d)\.\d+")


class InfoLine(NamedTuple):
    """What one line of an ``fi_info`` block says."""

    fact: tuple[str, str] | None
    """Name and value of the fact that is certain now."""
    inside: bool
    """Whether the line was of the block."""


class InfoBlock:
    """Reads an ``fi_info`` block, the endpoint really used (``fi_pingpong -v``), line by line.

    A fact counts once the next line shows that its own was whole.
    """

    def __init__(self) -> None:
        self._section = ""
        self._held: tuple[str, str] | None = None

    def feed(self, text: str) -> InfoLine:
        """Read one line."""
        certain, self._held = self._held, None
        section = _SECTION.fullmatch(text)
        if section is not None:
            self._section = section[1]
            return InfoLine(certain, inside=True)
        match = _INFO_LINE.fullmatch(text)
        if match is None:
            return InfoLine(certain, inside=False)
        name = _INFO_FACTS.get((self._section, match[1]))
        value = _value(name, match[2].strip()) if name else ""
        if name and value:
            self._held = name, value
        return InfoLine(certain, inside=True)


def _value(name: str, text: str) -> str:
    """Return a fact's value as a log's facts have it; empty: it says nothing."""
    if name == "endpoint":
        return text.removeprefix("FI_EP_").lower()
    if name in {"source_address", "dest_address"}:
        match = _ADDRESS.fullmatch(text)
        return match[1] if match else ""
    if name == "libfabric":
        match = _VERSION.fullmatch(text)
        return f"{int(match[1])}.{int(match[2])}" if match else ""
    return text


# ---------------------------------------------------------------- libfabric's own log

LOG_SETTINGS: Mapping[str, str] = {
    "FI_LOG_LEVEL": "info",
    "FI_LOG_PROV": "core,efa",
    "FI_LOG_SUBSYS": "core,ep_ctrl",
}
"""Environment that makes libfabric write these lines, and few others: at set-up, which is not timed."""

_LOG_LINE = lazy(
    r"libfabric:\d+:(?:\d+:)?(?:[^:]*:)?(?P<provider>\w+):(?P<part>\w+):\S*<info> (?P<message>.*)"
)
_OPENED = lazy(r"Opened fabric: (\S+)")
_QUEUE_PAIR = lazy(r"QP enabled! .*domain_name: ([^,\s]+).*")
_NAMED = {"efa": "efa", "efa-direct": "efa", "shm": "shm"}


def logged_facts(text: str, wanted: str) -> Iterator[tuple[str, str]]:
    """Yield (name, value) of the facts in a line of libfabric's own log (FI_LOG_LEVEL=info).

    `wanted` is the provider that the program was started with (``-p``): it leaves libfabric no other, and
    counts once a fabric was opened that is not named after another. EFA must name itself; it opens `shm` too.

    ``Opened fabric: NAME`` is `fi_fabric` of src/fabric.c, called with the one fi_info that the program
    chose; `efa`, `efa-direct` and `shm` are names of their providers' fabrics. ``QP enabled! … domain_name:
    NAME`` is the provider efa (efa_base_ep.c): a queue pair on that device.
    """
    line = _LOG_LINE.fullmatch(text)
    if line is None:
        return
    opened = _OPENED.fullmatch(line["message"])
    if opened is not None and line["provider"] == "core":
        name = opened[1]
        if (name, wanted) == ("shm", "efa"):
            return
        yield "fabric", name
        provider = _NAMED.get(name) or ("efa" if name.startswith("EFA-") else "")
        if provider or (wanted and wanted != "efa"):
            yield "provider", provider or wanted
    elif line["provider"] == "efa" and (enabled := _QUEUE_PAIR.fullmatch(line["message"])):
        yield "provider", "efa"
        yield "domain", enabled[1]


REAL = r"(?:\d{1,18}\.\d\d|-?inf|-?nan)"
REAL_CUT = r"(?:\d{1,18}(?:\.\d{0,2})?|-?(?:inf|in|i|nan|na|n)?)"
SIZE = r"\d{1,18}(?:\.\d)?[kmg]?"
SIZE_CUT = r"\d{1,18}(?:\.\d?)?[kmg]?"
COUNT = r"\d{1,18}[kmb]?"

_BINARY = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_DECIMAL = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9}


class RowPattern(NamedTuple):
    """How a table's rows are written."""

    whole: re.Pattern[str]
    cuts: Sequence[re.Pattern[str]]
    """Of a row that ends inside each of its columns."""

    def may_be_cut(self, text: str) -> bool:
        """Return whether this could be a row with its end missing."""
        return bool(text.strip()) and any(cut.fullmatch(text) for cut in self.cuts)


def row_pattern(columns: Sequence[tuple[str, str]], *, before: str = "") -> RowPattern:
    """Return the pattern of rows with these columns, each (a whole cell, one that is cut)."""
    wholes = [before, *(whole for whole, _ in columns)]
    unnamed = [re.sub(r"\?P<\w+>", "?:", whole) for whole in wholes]
    cuts = ["".join(unnamed[: index + 1]) + cut for index, (_, cut) in enumerate(columns)]
    return RowPattern(re.compile("".join(wholes) + r"\s*"), [re.compile(cut + r"\s*") for cut in cuts])


class Range(NamedTuple):
    """The smallest and the largest number that a printed one may be."""

    low: int
    high: int


ANY_SIZE = Range(0, 1 << 62)


def number(token: str, exponent: str) -> float | None:
    """Read ``6.5`` with exponent ``e-6`` as exactly 6.5e-6; None where the print left nothing of it."""
    if not token[0].isdigit() or not token.strip("0."):
        return None
    return float(token + exponent)


def printed_size(size: int) -> str:
    """Return a size as the programs print it, with everything cut away that they cut away."""
    for suffix in ("g", "m", "k"):
        base = _BINARY[suffix]
        if size >= base:
            fraction = size % base * 10 // base if size // base < 10 else 0
            return f"{size // base}.{fraction}{suffix}" if fraction else f"{size // base}{suffix}"
    return str(size)


def printed_count(count: int) -> str:
    """Return a number of messages as the programs print it: 1234 is ``1k``."""
    for suffix in ("b", "m", "k"):
        if count >= _DECIMAL[suffix]:
            return f"{count // _DECIMAL[suffix]}{suffix}"
    return str(count)


def exact_count(printed: str, requested: int | None) -> int | None:
    """Return a number of messages: the `requested` one if it is printed so; None: digits were cut away."""
    if requested is not None and printed_count(requested) == printed:
        return requested
    return int(printed) if printed.isdigit() else None


def count_range(printed: str) -> Range:
    """Return the numbers of messages that are printed so."""
    step = _DECIMAL[printed[-1] if printed[-1] in _DECIMAL else ""]
    fewest = int(printed.rstrip("kmb")) * step
    return Range(fewest, fewest + step - 1)


def size_range(printed: str) -> Range:
    """Return the sizes in bytes that are printed so."""
    base = _BINARY[printed[-1] if printed[-1] in _BINARY else ""]
    whole, _, digit = printed.rstrip("kmg").partition(".")
    start = int(whole) * base
    if digit:
        tenth = int(digit)
        return Range(start + -(-tenth * base // 10), start + -(-(tenth + 1) * base // 10) - 1)
    return Range(start, start + (-(-base // 10) if int(whole) < 10 and base > 1 else base) - 1)


class Size(NamedTuple):
    """A size in bytes; `exact` is False where the print does not tell which of several it was."""

    value: int
    exact: bool


def known_size(printed: str, *, requested: int | None = None, others: Iterable[Range] = ()) -> Size:
    """Return which size a row measured.

    `requested` is the size on the command line: it counts if the row prints it so. `others` are the sizes
    that the row's other columns allow: they narrow down a size that was cut to its first digits.
    """
    if requested is not None and printed_size(requested) == printed:
        return Size(requested, exact=True)
    if printed.isdigit():
        return Size(int(printed), exact=True)
    low, high = size_range(printed)
    for other_low, other_high in others:
        narrow_low, narrow_high = max(low, other_low), min(high, other_high)
        if narrow_low <= narrow_high:
            low, high = narrow_low, narrow_high
    plain = _plain(printed)
    if plain is not None and low <= plain <= high:
        return Size(plain, exact=True)
    return Size(low, exact=low == high)


def _plain(printed: str) -> int | None:
    """Read ``64k``, or a half such as ``1.5m`` as ``-S all`` has it: meant so, unless shown otherwise."""
    low, _ = size_range(printed)
    _, _, digit = printed.rstrip("kmg").partition(".")
    return low if digit in {"", "5"} else None


def by_total(total: str, sent: str, *, requested: int | None, times: Range) -> Range:
    """Return the sizes that the columns `total` and `sent` allow: the total is sent x size x times.

    `requested` is the number of messages on the command line: it counts if the row prints it so.
    """
    exact = exact_count(sent, requested)
    fewest, most = (exact, exact) if exact is not None else count_range(sent)
    low, high = size_range(total)
    if not fewest:
        return ANY_SIZE
    return Range(-(-low // (times.high * most)), high // (times.low * fewest))


def by_product(bandwidth: str, latency: str, *, megabytes: float = 1.0) -> Range:
    """Return the sizes that bandwidth times usec/xfer allows, as far as their digits tell.

    `megabytes`: 1e6 bytes per second in one unit of `bandwidth`.
    """
    rate, us = printed(bandwidth), printed(latency)
    if ANYTHING in {rate, us} or not math.isfinite(rate.value) or not math.isfinite(us.value):
        return ANY_SIZE
    low, high = product(rate, us)
    return Range(math.ceil(low * megabytes), math.floor(high * megabytes))


class PrintedRow(NamedTuple):
    """The figures of one row, as printed. All but the size follow from one measured time."""

    sent: str
    total: str
    time: str
    bandwidth: str
    latency: str
    rate: str
    """Empty: the table has no such column."""

    def fits(self, sizes: Range, *, requested: int | None, times: Range, megabytes: float = 1.0) -> bool:
        """Return whether the figures fit each other and a size, as far as their print tells.

        `requested`: the number of messages on the command line. `times`: transfers of each, at least and at
        most. `megabytes`: 1e6 bytes per second in one unit of `bandwidth`.
        """
        by_bytes = by_total(self.total, self.sent, requested=requested, times=times)
        by_rate = by_product(self.bandwidth, self.latency, megabytes=megabytes)
        if max(sizes.low, by_bytes.low, by_rate.low) > min(sizes.high, by_bytes.high, by_rate.high):
            return False
        latency, elapsed = printed(self.latency), printed(self.time)
        if self.rate:
            low, high = product(printed(self.rate), latency)
            if not low <= 1 <= high:
                return False
        exact = exact_count(self.sent, requested)
        sent = Range(exact, exact) if exact is not None else count_range(self.sent)
        return ANYTHING in {latency, elapsed} or elapsed.meets(
            latency.low * sent.low * times.low * 1e-6, latency.high * sent.high * times.high * 1e-6
        )


def sizes_of(text: str, size: Size) -> Range:
    """Return the sizes that a row may be of: the one that is known, or all that are printed so."""
    return Range(size.value, size.value) if size.exact else size_range(text)
