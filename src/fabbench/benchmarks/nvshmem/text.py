"""The text that the perftests, NVSHMEM and the shell print around tables, and the programs' names. Pure.

The case of a log is the name of its program. If no command line shows it, it follows from the title:
point-to-point titles are the program's name followed by the direction (`shmem_put_bw_uni`), device
collectives have titles of their own (`alltoall_device` of `alltoall_latency`, `device_reduction` of
`reduction_latency`).

Tables do not mention the network. A setting names one but proves nothing; the output of NVSHMEM_DEBUG=INFO
shows which transport and provider are used. The variables, and the defaults `ibrc` and `cxi`, are from
NVSHMEM's source (3.4.5) and documentation.
"""

import re
from dataclasses import dataclass, field
from functools import cache
from typing import NamedTuple

from fabbench.model.messages import LONGEST_QUOTE
from fabbench.model.patterns import lazy

_COLLECTIVES = (
    ("alltoall", "alltoall"),
    ("fcollect", "fcollect"),
    ("reducescatter", "reducescatter"),
    ("reduction", "reduction"),
    ("broadcast", "bcast"),
    ("bcast", "bcast"),
    ("barrier", "barrier"),
    ("sync", "sync"),
)
GATHERING = frozenset({"alltoall", "fcollect", "reducescatter"})
"""Collectives whose printed size is one PE's block or the total, depending on the version."""
UNSIZED = frozenset({"barrier", "sync"})
"""Collectives that send no data: the column `size(B)` contains the threads of a block."""

_HOST_TITLES = {"bandwidth": "bw", "latency": "latency", "stream_latency": "stream_latency"}
_DIRECTION = lazy(r"_(?:uni|bidi|bi)(?=_|$)")
_DEVICE = lazy(r"device_(\w+)|(\w+?)_device")
_JOB = lazy(
    r"shmem_\w+|device_[a-z]\w*|[a-z]\w*_(?:device|on_stream)"
    r"|(?:put|get|p|g|st|atomic\w*)_(?:bw|latency|ping_pong_latency)(?:_\w+)?"
)
PROGRAM = (
    r"(?:shmem_\w+|[a-z]\w*_on_stream|stream_latency"
    r"|(?:alltoall|bcast|broadcast|fcollect|reduction|reducescatter|barrier|barrier_all|sync|sync_all)_latency"
    r"|(?:put|get|p|g|st|atomic)_(?:\w+_)?(?:bw|latency))"
)
"""A pattern for the programs' names."""
_COMMAND = lazy(
    r"(?:[$+#>%]+ +)*(?:\w+=\S* +)*"
    rf"(?:(?:\S*/)?(?:mpirun|mpiexec(?:\.hydra)?|orterun|prterun|srun|nvshmrun(?:\.hydra)?|env|timeout)\s(?:.*[\s/'\"])?"
    rf"|\S*/)?(?P<program>{PROGRAM})(?:[\s'\";].*)?"
)


def is_job(name: str) -> bool:
    """Return whether a name can only be that of an NVSHMEM job."""
    return _JOB.fullmatch(name) is not None


@cache
def collective(job: str | None) -> str:
    """Return the collective of a job or program; empty: point-to-point, or unknown."""
    flat = (job or "").lower().replace("reduce_scatter", "reducescatter")
    return next((name for sign, name in _COLLECTIVES if sign in flat), "")


@cache
def case_of(job: str) -> str:
    """Return the program that prints a title."""
    if job.lower() in _HOST_TITLES:
        return _HOST_TITLES[job.lower()]
    if (match := _DEVICE.fullmatch(job)) is not None:
        return f"{collective(job) or match[1] or match[2]}_latency"
    return _DIRECTION.sub("", job).removesuffix("_msgrate")


@cache
def metric_of(job: str | None) -> str:
    """Return the metric of a point-to-point job; empty: its name does not show it."""
    name = (job or "").lower()
    if "msgrate" in name or "message_rate" in name:
        return "message_rate"
    if re.search(r"_bw|^bw|bandwidth", name):
        return "bandwidth"
    return "latency" if re.search(r"lat|ping", name) else ""


@cache
def way_of(job: str | None) -> str:
    """Return `one-way` or `round-trip` for a latency; empty: the program's source does not state it."""
    name = (job or "").lower()
    if metric_of(job) != "latency":
        return ""
    if "ping" in name:
        return "round-trip"
    return "one-way" if re.search(r"(?:^|_)put_latency", name) else ""


@cache
def direction_of(job: str | None) -> str:
    """Return the direction in a job's title, `uni` or `bi`; empty: not stated."""
    match = _DIRECTION.search(job or "")
    return "" if match is None else "uni" if match[0] == "_uni" else "bi"


def program(text: str) -> str:
    """Return the program that a command line starts; empty for any other line."""
    match = _COMMAND.fullmatch(text.strip())
    return match["program"] if match is not None else ""


_MAY_MATTER = lazy(
    r"exactly two|mype|time opt|_size:|ull list|shmem|SHMEM|status|NULL value|failed|WARN|option|round-trip"
    r"|sage|Selected provider"
)
_MYPE = lazy(r"mype: (\d{1,7}) mype_node: (\d{1,7})(?= )")
_OPTION = lazy(r"([a-z][a-z_ ]*?) ?: ?(\d{1,18})(?=[, ])")
_VERSION = lazy(r"\bNVSHMEM v(\d{1,4}\.\d{1,4}\.\d{1,4})\b")
_SETTING = lazy(r"\b(NVSHMEM_(?:REMOTE_TRANSPORT|LIBFABRIC_PROVIDER))[\"']?(?:=|: ?)[\"']?([A-Za-z][\w-]*)")
# NVSHMEM_DEBUG=INFO: transport.cpp and libfabric.cpp of 3.4.5; the first is printed once the transport works.
# Transports print without NVSHMEM's prefix, to standard error (transport_common.h).
_INITIALIZED = lazy(r"NVSHMEM INFO Successfully initialized the transport: ([A-Za-z]\w*)")
_NONE = lazy(r"NVSHMEM INFO \w+ transport skipped in favor of: none\b")
_SELECTED = lazy(
    r"(?:NVSHMEM INFO|libfabric\.cpp \d+) Selected provider (\S+), fabric (\S+), nic (\S+), hmem (?:yes|no)"
)
_FATAL = lazy(
    r"This test requires exactly two processes|.*nvshmem initialization failed, exiting"
    r"|.*\bNVSHMEM (?:ERROR|ABORT)\b"
    rf"|(?:\S*/)?{PROGRAM}: "
    r"(?:unrecognized option|invalid option|option requires|error while loading)"
    rf"|(?:\S+: )+(?:line \d+: )?(?:\S*/)?{PROGRAM}: (?:command not found|not found|No such file)"
)
# Too common to begin an execution; the failure may also be that of a transport that was only tried.
_ERROR = lazy(r".*(?:: non-zero status: -?\d|: NULL value |\bcuda failed with )")
_WARNING = lazy(r"(?:.*\bNVSHMEM )?WARN\b")
_USAGE = lazy(r"\s*[Uu]sage\s*:")
_AROUND = lazy(
    r"Runtime options after parsing|Note: Above is full list of options|.*\bNVSHMEM (?:INFO|TRACE)\b"
    r"|Note: This test measures full round-trip latency"
)


class PrintedOptions(NamedTuple):
    """The options that the programs print, as far as they are read."""

    smallest: int | None = None
    largest: int | None = None
    factor: int | None = None
    iterations: int | None = None
    warmup: int | None = None
    blocks: int | None = None
    both_ways: int | None = None

    def differs(self, other: "PrintedOptions") -> bool:
        """Return whether any option has different values in both; a truncated line may lack some."""
        return any(one != two for one, two in zip(self, other, strict=True) if None not in {one, two})


_OPTION_FIELDS = {
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
    """What one or several PEs printed besides rows."""

    dumps: int = 0  # number of PEs that printed their options
    options: PrintedOptions | None = None
    pes: dict[int, int] = field(default_factory=dict)  # PE → its number within its node
    copies: int = 0  # how often PE 0 announced itself again before any row
    version: str = ""
    program: str = ""
    settings: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Environment variable → its value, and the line that states it."""
    shown: dict[str, tuple[str, str]] = field(default_factory=dict)
    """`transport`, `provider`, `fabric` → the one in use according to NVSHMEM's debug text, and the line."""
    failures: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)  # error messages that may not be fatal
    warnings: list[str] = field(default_factory=list)
    usage: str = ""
    empty_tables: int = 0  # number of tables without a row
    job: str | None = None  # the job of the first empty table
    started: bool = False  # whether there was any sign that a program is running

    def begins(self) -> bool:
        """Return whether this includes text that a program prints when it starts."""
        return bool(self.dumps or self.pes or self.version)

    def conflicts(self, other: "Preface") -> bool:
        """Return whether the two can only be of different executions."""
        if self.pes.keys() & other.pes.keys():
            return True
        return self.options is not None and other.options is not None and self.options.differs(other.options)

    def complete(self) -> bool:
        """Return whether every PE has printed its number, and its options if any PE did."""
        return bool(self.pes) and sorted(self.pes) == list(range(self.dumps or len(self.pes)))

    def demote_errors(self) -> None:
        """Turn errors into warnings: the program continued after them."""
        self.warnings, self.errors = self.errors + self.warnings, []

    def merge(self, other: "Preface") -> None:
        """Add later text."""
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
        self.empty_tables += other.empty_tables
        self.job = self.job or other.job
        self.started = self.started or other.started


def read_options(text: str) -> PrintedOptions | None:
    """Read the line of options; None for any other line."""
    if not text.lstrip().startswith("min_size:"):
        return None
    options = {_OPTION_FIELDS[name]: int(value) for name, value in _OPTION.findall(text) if name in _OPTION_FIELDS}
    return PrintedOptions(**options)


def read_pes(text: str) -> dict[int, int]:
    """Return the PEs in a line that prints their numbers: PE → its number within its node."""
    return {int(pe): int(local) for pe, local in _MYPE.findall(text)}


def read_statement(text: str, preface: Preface, *, inside: bool) -> bool:
    """Read a line into `preface`; return whether a perftest printed it. `inside`: one is known to run."""
    if not _MAY_MATTER.search(text):
        return False
    if (version := _VERSION.search(text)) is not None:
        preface.version = preface.version or version[1]
        return inside
    for name, value in _SETTING.findall(text):
        preface.settings[name] = (value.lower(), text.strip()[:LONGEST_QUOTE])
    if " NVSHMEM INFO " in text or " Selected provider " in text:
        return _debug(text, preface, inside=inside)
    return _message(text, preface, inside=inside)


def _debug(text: str, preface: Preface, *, inside: bool) -> bool:
    line = text.strip()[:LONGEST_QUOTE]
    if (match := _INITIALIZED.search(text)) is not None:
        preface.shown.setdefault("transport", (match[1].lower(), line))
    elif _NONE.search(text):
        preface.shown.setdefault("transport", ("none", line))
    elif (match := _SELECTED.search(text)) is not None:
        preface.shown.setdefault("provider", (match[1], line))
        preface.shown.setdefault("fabric", (match[2], line))
    return inside


def _message(text: str, preface: Preface, *, inside: bool) -> bool:
    words = " ".join(text.split())[:LONGEST_QUOTE]
    if _FATAL.match(text):
        preface.failures.append(f"NVSHMEM reported: {words}")
    elif inside and _ERROR.match(text):
        preface.errors.append(words)
    elif inside and _WARNING.match(text):
        preface.warnings.append(words)
    elif inside and _USAGE.match(text):
        preface.usage = words
    else:
        return bool(_AROUND.match(text)) and (inside or not text.startswith("Note:"))
    return True


TRANSPORT, PROVIDER = "NVSHMEM_REMOTE_TRANSPORT", "NVSHMEM_LIBFABRIC_PROVIDER"


def network_facts(preface: Preface, hosts: int = 0) -> tuple[dict[str, str | int], dict[str, str]]:
    """Return the network that debug text and settings name, as facts, and the line behind each.

    Debug text overrides settings. With PEs on two or more hosts, the transport that NVSHMEM reports as
    initialized carried the data; on one host without any, PEs access each other's memory directly.
    """
    settings, shown = preface.settings, preface.shown
    nothing = ("", "")
    transport, transport_line = shown.get("transport") or settings.get(TRANSPORT, nothing)
    provider, provider_line = shown.get("provider") or settings.get(PROVIDER, nothing)
    facts: dict[str, str | int] = {}
    lines = {"network": transport_line, "transport": transport_line, "provider": provider_line}
    if transport == "libfabric":
        name = f"libfabric-{provider}" if provider else "libfabric"
        facts |= {"provider": provider} if provider else {}
        facts["network"] = "efa" if provider in {"efa", "efa-direct"} else name
        if "fabric" in shown:
            facts["fabric"], lines["fabric"] = shown["fabric"]
    elif transport and transport != "none":
        facts["network"] = "ib" if transport in {"ibrc", "ibdevx", "ibgda"} else transport
    if transport == "none":
        facts |= {"transport": "p2p"} if "transport" in shown and hosts == 1 else {}
    elif "transport" in shown and hosts > 1:
        facts["transport"] = facts["network"]
    return facts, {name: lines[name] for name in lines if name in facts}
