"""What the perftests, NVSHMEM and the shell around them say besides tables. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from fabbench.benchmarks.nvshmem import jobs

_LONGEST_QUOTE = 300

_SIEVE = re.compile(
    r"exactly two|mype|time opt|_size:|ull list|shmem|SHMEM|status|NULL value|failed|WARN|option|round-trip"
    r"|sage|Selected provider"
)
_MYPE = re.compile(r"mype: (\d{1,7}) mype_node: (\d{1,7})(?= )")
_OPTION = re.compile(r"([a-z][a-z_ ]*?) ?: ?(\d{1,18})(?=[, ])")
_VERSION = re.compile(r"\bNVSHMEM v(\d{1,4}\.\d{1,4}\.\d{1,4})\b")
_SETTING = re.compile(
    r"\b(NVSHMEM_(?:REMOTE_TRANSPORT|LIBFABRIC_PROVIDER))[\"']?(?:=|: ?)[\"']?([A-Za-z][\w-]*)"
)
# NVSHMEM_DEBUG=INFO: transport.cpp and libfabric.cpp of 3.4.5; the first once the transport works. Transports
# write without NVSHMEM's prefix, on standard error, what they have to say (transport_common.h).
_INITIALISED = re.compile(r"NVSHMEM INFO Successfully initialized the transport: ([A-Za-z]\w*)")
_NONE = re.compile(r"NVSHMEM INFO \w+ transport skipped in favor of: none\b")
_SELECTED = re.compile(
    r"(?:NVSHMEM INFO|libfabric\.cpp \d+) Selected provider (\S+), fabric (\S+), nic (\S+), hmem (?:yes|no)"
)
_FATAL = re.compile(
    r"This test requires exactly two processes|.*nvshmem initialization failed, exiting"
    r"|.*\bNVSHMEM (?:ERROR|ABORT)\b"
    rf"|(?:\S*/)?{jobs.PROGRAM}: (?:unrecognized option|invalid option|option requires|error while loading)"
    rf"|(?:\S+: )+(?:line \d+: )?(?:\S*/)?{jobs.PROGRAM}: (?:command not found|not found|No such file)"
)
# Too common to begin an execution; what failed may also have been a transport that was only tried.
_ERROR = re.compile(r".*(?:: non-zero status: -?\d|: NULL value |\bcuda failed with )")
_WARNING = re.compile(r"(?:.*\bNVSHMEM )?WARN\b")
_USAGE = re.compile(r"\s*[Uu]sage\s*:")
_AROUND = re.compile(
    r"Runtime options after parsing|Note: Above is full list of options|.*\bNVSHMEM (?:INFO|TRACE)\b"
    r"|Note: This test measures full round-trip latency"
)


class Options(NamedTuple):
    """What the programs print of their options, as far as it is read."""

    smallest: int | None = None
    largest: int | None = None
    factor: int | None = None
    iterations: int | None = None
    warmup: int | None = None
    blocks: int | None = None
    both_ways: int | None = None

    def differs(self, other: "Options") -> bool:
        """Whether both say something, and not the same; a line may have been cut."""
        return any(one != two for one, two in zip(self, other, strict=True) if None not in {one, two})


_NAMES = {
    "min_size": "smallest",
    "max_size": "largest",
    "step_factor": "factor",
    "iterations": "iterations",
    "warmup iterations": "warmup",
    "number of ctas": "blocks",
    "bidirectional": "both_ways",
}


@dataclass(slots=True)
class Preface:
    """What one or several PEs said, besides rows."""

    dumps: int = 0
    """How many PEs printed their options."""
    options: Options | None = None
    pes: dict[int, int] = field(default_factory=dict)
    """PE → its number within its node."""
    copies: int = 0
    """How often PE 0 presented itself again before any row."""
    version: str = ""
    program: str = ""
    settings: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Environment variable → its value, and the line that says so."""
    shown: dict[str, tuple[str, str]] = field(default_factory=dict)
    """`transport`, `provider`, `fabric` → what NVSHMEM's debug text says is used, and the line."""
    failures: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    """Error texts that need not be the end."""
    warnings: list[str] = field(default_factory=list)
    usage: str = ""
    empty: int = 0
    """Tables without a row."""
    job: str | None = None
    """The job of the first of these."""
    claimed: bool = False
    """Whether there was a sign that a program runs."""

    def begins(self) -> bool:
        """Whether this has what a program says when it starts."""
        return bool(self.dumps or self.pes or self.version)

    def conflicts(self, other: "Preface") -> bool:
        """Whether the two can only be of different executions."""
        if self.pes.keys() & other.pes.keys():
            return True
        return self.options is not None and other.options is not None and self.options.differs(other.options)

    def complete(self) -> bool:
        """Whether every PE has said what it says: their numbers, and the options if any did."""
        return bool(self.pes) and sorted(self.pes) == list(range(self.dumps or len(self.pes)))

    def survive(self) -> None:
        """Take note that it went on after what was said."""
        self.warnings, self.errors = self.errors + self.warnings, []

    def take(self, other: "Preface") -> None:
        """Add what was said later."""
        self.dumps += other.dumps
        self.options = self.options or other.options
        self.pes |= other.pes
        self.copies += other.copies
        self.version = self.version or other.version
        self.program = self.program or other.program
        self.settings = {**other.settings, **self.settings}
        self.shown = {**other.shown, **self.shown}
        self.failures += other.failures
        self.errors += other.errors
        self.warnings += other.warnings
        self.usage = self.usage or other.usage
        self.empty += other.empty
        self.job = self.job or other.job
        self.claimed = self.claimed or other.claimed

    def environment(self) -> Mapping[str, str]:
        """Give the settings without their lines."""
        return {name: value for name, (value, _) in self.settings.items()}


def read_options(text: str) -> Options | None:
    """Read the line of options; None if it is not that line."""
    if not text.lstrip().startswith("min_size:"):
        return None
    found = {_NAMES[name]: int(value) for name, value in _OPTION.findall(text) if name in _NAMES}
    return Options(**found)


def read_pes(text: str) -> dict[int, int]:
    """Read who presents itself: PE → its number within its node."""
    return {int(pe): int(local) for pe, local in _MYPE.findall(text)}


def note(text: str, preface: Preface, *, inside: bool) -> bool:
    """Take note of a line; whether it was one of a perftest's. `inside`: a perftest is known to run."""
    if not _SIEVE.search(text):
        return False
    if (version := _VERSION.search(text)) is not None:
        preface.version = preface.version or version[1]
        return inside
    for name, value in _SETTING.findall(text):
        preface.settings[name] = (value.lower(), text.strip()[:_LONGEST_QUOTE])
    if " NVSHMEM INFO " in text or " Selected provider " in text:
        return _debug(text, preface, inside=inside)
    return _said(text, preface, inside=inside)


def _debug(text: str, preface: Preface, *, inside: bool) -> bool:
    line = text.strip()[:_LONGEST_QUOTE]
    if (match := _INITIALISED.search(text)) is not None:
        preface.shown.setdefault("transport", (match[1].lower(), line))
    elif _NONE.search(text):
        preface.shown.setdefault("transport", ("none", line))
    elif (match := _SELECTED.search(text)) is not None:
        preface.shown.setdefault("provider", (match[1], line))
        preface.shown.setdefault("fabric", (match[2], line))
    return inside


def _said(text: str, preface: Preface, *, inside: bool) -> bool:
    said = " ".join(text.split())[:_LONGEST_QUOTE]
    if _FATAL.match(text):
        preface.failures.append(f"NVSHMEM reported: {said}")
    elif inside and _ERROR.match(text):
        preface.errors.append(said)
    elif inside and _WARNING.match(text):
        preface.warnings.append(said)
    elif inside and _USAGE.match(text):
        preface.usage = said
    else:
        return bool(_AROUND.match(text)) and (inside or not text.startswith("Note:"))
    return True
