"""What processes report about themselves: messages, ``fi_info`` blocks, libfabric's own log, and numbers.

Sizes and totals are 1024-based and truncated to one decimal digit, or none from 10 up: 1500 bytes are
``1.4k`` (`size_str`). Counts are 1000-based and truncated (`cnt_str`). Times and rates have two decimals. The
code is the same in util/pingpong.c and fabtests/common/shared.c.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from fabbench.benchmarks.consistency import ANYTHING, c_float, printed, product, warning
from fabbench.model.log import Finding, Severity
from fabbench.model.patterns import lazy


@dataclass(slots=True)
class ReportedFacts:
    """Collects facts, which both sides report in every step."""

    _values: dict[str, dict[str, str]] = field(default_factory=dict)  # fact → value → the side that first reported it

    def add(self, fact: str, value: str, side: str) -> None:
        """Add a fact."""
        self._values.setdefault(fact, {}).setdefault(value, side)

    def first(self, fact: str) -> str:
        """Return the first value of a fact; empty: not reported."""
        return next(iter(self._values.get(fact, {})), "")

    def facts(self) -> Iterator[tuple[str, str]]:
        """Yield (name, value) for each fact: addresses as the client sees them, the provider as transport."""
        for name, values in self._values.items():
            if name in {"source_address", "dest_address"}:
                yield (name, next((value for value, side in values.items() if side == "client"), self.first(name)))
            else:
                yield name, ", ".join(values)
        providers = self._values.get("provider", {})
        if providers:
            yield "transport", "mixed" if len(providers) > 1 else self.first("provider")

    def findings(self, facts: Iterable[str] = ("provider", "domain")) -> Iterator[Finding]:
        """Yield a finding for each fact in which the processes differ: more than one fabric was measured."""
        for fact in facts:
            values = self._values.get(fact, {})
            if len(values) > 1:
                used = ", ".join(f"{value} ({side})" if side else value for value, side in values.items())
                yield Finding(
                    code=f"mixed-{fact}",
                    severity=Severity.ERROR if fact == "provider" else Severity.WARNING,
                    meaning=f"The processes did not use one {fact}: {used}.",
                    advice="Measure again with one provider and one domain on both sides.",
                )


def truncated_size(printed: str, size: int) -> Finding:
    """Return the finding that the exact size is unknown; `size`: the assumed one in bytes."""
    return warning(
        "size-truncated",
        f"The program truncated the size to {printed}; {size} bytes are assumed.",
        "Keep the command line, with -S, in the log.",
    )


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


class InfoBlock:
    """Reads an ``fi_info`` block, the endpoint actually used (``fi_pingpong -v``), line by line.

    A fact counts once the next line shows that its own line was complete.
    """

    def __init__(self) -> None:
        self._section = ""
        self._held: tuple[str, str] | None = None

    def feed(self, text: str) -> tuple[tuple[str, str] | None, bool]:
        """Read one line: return the fact that is now certain, and whether the line was part of the block."""
        certain, self._held = self._held, None
        section = _SECTION.fullmatch(text)
        if section is not None:
            self._section = section[1]
            return certain, True
        match = _INFO_LINE.fullmatch(text)
        name = _INFO_FACTS.get((self._section, match[1])) if match else None
        if match and name and (value := _value(name, match[2].strip())):
            self._held = name, value
        return certain, match is not None


def _value(name: str, text: str) -> str:
    if name == "endpoint":
        return text.removeprefix("FI_EP_").lower()
    if name in {"source_address", "dest_address"}:
        match = _ADDRESS.fullmatch(text)
        return match[1] if match else ""
    if name == "libfabric":
        match = _VERSION.fullmatch(text)
        return f"{int(match[1])}.{int(match[2])}" if match else ""
    return text


LOG_SETTINGS: Mapping[str, str] = {"FI_LOG_LEVEL": "info", "FI_LOG_PROV": "core,efa", "FI_LOG_SUBSYS": "core,ep_ctrl"}
"""Environment that makes libfabric write these lines and few others, at set-up, which is not timed."""

_LOG_LINE = lazy(r"libfabric:\d+:(?:\d+:)?(?:[^:]*:)?(?P<provider>\w+):(?P<part>\w+):\S*<info> (?P<message>.*)")
_OPENED = lazy(r"Opened fabric: (\S+)")
_QUEUE_PAIR = lazy(r"QP enabled! .*domain_name: ([^,\s]+).*")
_FABRIC_PROVIDERS = {"efa": "efa", "efa-direct": "efa", "shm": "shm"}


def logged_facts(text: str, requested: str) -> Iterator[tuple[str, str]]:
    """Yield (name, value) for the facts in a line of libfabric's own log (FI_LOG_LEVEL=info).

    `requested` is the provider of the command line (``-p``): libfabric can use no other, and it counts once a
    fabric is opened that is not named after another. EFA must name itself; it also opens `shm`. ``Opened
    fabric`` is from `fi_fabric` of src/fabric.c, ``QP enabled!`` from the provider efa (efa_base_ep.c).
    """
    line = _LOG_LINE.fullmatch(text)
    if line is None:
        return
    opened = _OPENED.fullmatch(line["message"])
    if opened is not None and line["provider"] == "core":
        name = opened[1]
        if (name, requested) == ("shm", "efa"):
            return
        yield "fabric", name
        provider = _FABRIC_PROVIDERS.get(name) or ("efa" if name.startswith("EFA-") else "")
        if provider or (requested and requested != "efa"):
            yield "provider", provider or requested
    elif line["provider"] == "efa" and (enabled := _QUEUE_PAIR.fullmatch(line["message"])):
        yield "provider", "efa"
        yield "domain", enabled[1]


REAL = r"(?:\d{1,18}\.\d\d|-?inf|-?nan)"
SIZE = r"\d{1,18}(?:\.\d)?[kmg]?"
COUNT = r"\d{1,18}[kmb]?"

_BINARY = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_DECIMAL = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9}


class Range(NamedTuple):
    """The smallest and the largest number that a printed one may stand for."""

    low: int
    high: int


ANY_SIZE = Range(0, 1 << 62)


def number(token: str, exponent: str) -> float | None:
    """Read ``6.5`` with exponent ``e-6`` as exactly 6.5e-6; None if it is rounded to zero or not a number."""
    if not token[0].isdigit() or not token.strip("0."):
        return None
    return float(token + exponent)


def printed_size(size: int) -> str:
    """Return a size as the programs print it, truncated in the same way."""
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
    """Return a number of messages: `requested` if it prints like this; None: digits were truncated."""
    if requested is not None and printed_count(requested) == printed:
        return requested
    return int(printed) if printed.isdigit() else None


def count_range(printed: str) -> Range:
    """Return the range of message counts that print like this."""
    step = _DECIMAL[printed[-1] if printed[-1] in _DECIMAL else ""]
    low = int(printed.rstrip("kmb")) * step
    return Range(low, low + step - 1)


def size_range(printed: str) -> Range:
    """Return the range of sizes in bytes that print like this."""
    base = _BINARY[printed[-1] if printed[-1] in _BINARY else ""]
    whole, _, digit = printed.rstrip("kmg").partition(".")
    start = int(whole) * base
    if digit:
        tenth = int(digit)
        return Range(start + -(-tenth * base // 10), start + -(-(tenth + 1) * base // 10) - 1)
    return Range(start, start + (-(-base // 10) if int(whole) < 10 and base > 1 else base) - 1)


class Size(NamedTuple):
    """A size in bytes; `exact` is False if several sizes print like this."""

    value: int
    exact: bool


def known_size(printed: str, *, requested: int | None = None, others: Iterable[Range] = ()) -> Size:
    """Return the size that a row measured.

    `requested` is the size on the command line: it counts if it prints like the row. `others` are the sizes
    that the row's other columns allow: they narrow down a truncated size.
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
    # ``64k``, or a half such as ``1.5m`` as in ``-S all``, is exact unless shown otherwise.
    plain, digit = size_range(printed).low, printed.rstrip("kmg").partition(".")[2]
    if digit in {"", "5"} and low <= plain <= high:
        return Size(plain, exact=True)
    return Size(low, exact=low == high)


def by_total(total: str, sent: str, *, requested: int | None, times: Range) -> Range:
    """Return the sizes that the columns `total` and `sent` allow: total = sent x size x times.

    `requested` is the number of messages on the command line: it counts if it prints like the row.
    """
    exact = exact_count(sent, requested)
    minimum, maximum = (exact, exact) if exact is not None else count_range(sent)
    low, high = size_range(total)
    if not minimum:
        return ANY_SIZE
    return Range(-(-low // (times.high * maximum)), high // (times.low * minimum))


def by_product(bandwidth: str, latency: str, *, megabytes: float = 1.0) -> Range:
    """Return the sizes that bandwidth times usec/xfer allows, within their printed precision.

    `megabytes`: the unit of `bandwidth` in 1e6 bytes per second.
    """
    rate, us = printed(bandwidth), c_float(printed(latency))
    if ANYTHING in {rate, us} or not math.isfinite(rate.value) or not math.isfinite(us.value):
        return ANY_SIZE
    low, high = product(rate, us)
    return Range(math.ceil(low * megabytes), math.floor(high * megabytes))


class PrintedRow(NamedTuple):
    """The figures of one row, as printed. All except the size are derived from one measured time.

    The programs keep usec/xfer as a C float.
    """

    sent: str
    total: str
    time: str
    bandwidth: str
    latency: str
    rate: str  # empty: the table has no such column

    def fits(self, sizes: Range, *, requested: int | None, times: Range, megabytes: float = 1.0) -> bool:
        """Return whether the figures and the size are consistent, within their printed precision.

        `requested`: the number of messages on the command line. `times`: minimum and maximum number of
        transfers per message. `megabytes`: the unit of `bandwidth` in 1e6 bytes per second.
        """
        by_bytes = by_total(self.total, self.sent, requested=requested, times=times)
        by_rate = by_product(self.bandwidth, self.latency, megabytes=megabytes)
        if max(sizes.low, by_bytes.low, by_rate.low) > min(sizes.high, by_bytes.high, by_rate.high):
            return False
        latency, elapsed = c_float(printed(self.latency)), printed(self.time)
        if self.rate:
            low, high = product(printed(self.rate), latency)
            if not low <= 1 <= high:
                return False
        exact = exact_count(self.sent, requested)
        sent = Range(exact, exact) if exact is not None else count_range(self.sent)
        return ANYTHING in {latency, elapsed} or elapsed.overlaps(
            latency.low * sent.low * times.low * 1e-6, latency.high * sent.high * times.high * 1e-6
        )


def sizes_of(text: str, size: Size) -> Range:
    """Return the sizes that a row may have measured: the known one, or all that print like this."""
    return Range(size.value, size.value) if size.exact else size_range(text)
