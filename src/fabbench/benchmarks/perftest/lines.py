"""The lines of perftest around its tables, and what they mean. Pure.

The wording is from the source (perftest_parameters.c; perftest_resources.h).
"""

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import NamedTuple, TypeAlias

from fabbench.benchmarks.commands import read_command_line
from fabbench.benchmarks.events import End, Error, Event, Events, Header, Note, Setting, Wrong
from fabbench.benchmarks.findings import finding
from fabbench.benchmarks.perftest import rows
from fabbench.catalog.systems import pairs_of
from fabbench.model import records
from fabbench.model.messages import LONGEST_QUOTE, single_spaced
from fabbench.model.patterns import Match, lazy
from fabbench.model.units import parse_whole, whole_or_text

MARKS = lazy(r"^#(?=\s)|\*\*|`|(?<!\s)\s++(?:<[-=]|←).*")
"""Those of documents: comment, bold, code, and arrow."""

# ---------------------------------------------------------------- their patterns

_PROGRAMS = r"ib_(?:write|read|send|atomic)_(?:bw|lat)"


class ErrorLine(records.PatternRecord, frozen=True):
    """A line by which perftest reports an error (the whole of it): a record of errors.toml."""

    alone: bool = False
    """Whether nothing else prints it, so that it may begin an execution."""


@cache
def error_lines() -> tuple[ErrorLine, ...]:
    """Return the records of errors.toml."""
    return records.load("fabbench.benchmarks.perftest", "errors.toml", ErrorLine)


def _error_pattern(*, alone: bool) -> str:
    return "|".join(line.pattern for line in error_lines() if line.alone is alone)


# Lines that nothing else prints.
_ANYWHERE = (
    r"(?P<title>(?P<verb>Send|RDMA_Write|RDMA_Read|Atomic)(?:_imm)?[ "
    r"_]+(?:(?:FETCH_AND_ADD|CMP_AND_SWAP)[ _]+)?"
    r"(?P<both>Bidirectional[ _]+)?(?:Post[ _]List[ _]+)?(?P<figure>BW|Latency)[ "
    r"_]+(?:forwarding[ _]+)?"
    r"(?:Multicast[ _]+)?Test)"
    r"|(?P<address>(?P<end>local|remote) address: .*?(?P<pair>QPN (?:0x)?[0-9a-f]+ PSN "
    r"(?:0x)?[0-9a-f]+).*)"
    r"|(?P<banner>\* Waiting for client to connect\.\.\. \*)|(?P<waiting>Waiting for client "
    r"rdma_cm QP to connect)"
    r"|(?P<json>.*\btest_info\"?\s*:.*)"
    r"|(?P<sum>Mean BW peak: [0-9.]+ Gb/s, Mean BW avg: [0-9.]+ Gb/s|Total BW: [0-9.]+ *GB/s)"
    r"|(?P<failure>(?:Completion with error at \w{6} )?"
    r"Failed status[- ](?:(?:.*) \()?(?P<status>\d{1,9})\)?: wr_id -?\d+ syndrom "
    r"(?P<syndrome>0x[0-9a-f]+)(?: scnt=\d{1,9}, ccnt=\d{1,9})?"
    rf"|{_error_pattern(alone=True)})"
)
# Too common to begin an execution.
_COMMON = (
    r"|(?P<rule>-{20,})|(?P<results>(?:Local|Remote) results:)"
    r"|(?P<gid>GID: (?:00:){10}255:255(?::\d{1,3}){4})"
    r"|(?P<cpu>Conflicting CPU frequency values detected: .*)"
    r"|(?:WARNING|Warning): (?P<warning>.*\S)"
    r"|(?P<wrong>.*VALIDATION: FAILED.*? - (?P<errors>\S+) error\(s\).*)"
    rf"|(?P<error>{_error_pattern(alone=False)})"
)
# A line other than a row, outside and inside of an execution: the last group's name is its kind.
_OUTSIDE = lazy(rf"\s*+(?:{_ANYWHERE})\s*")
_INSIDE = lazy(rf"\s*+(?:{_ANYWHERE}{_COMMON})\s*")
RULE = lazy(r"\s*-{20}.*")

# Nothing else prints these in this form.
_DISTINCT_SETUP = lazy(
    r"(?:Device {9}|Number of qps {3}|Transport type |Connection type |Link type {7}|Mtu {13}"
    r"|CQ Moderation {3}|rdma_cm QPs\s+|Data ex\. method |ibv_wr\* API {5}): "
)
_SETUP = lazy(
    r"(Device|Number of qps|(?:Transport|Connection|Link) type|Mtu|GID index|[TR]X depth|Using "
    r"SRQ|Dual-port"
    r"|PCIe relax order|ibv_wr\* API|CQ Moderation|rdma_cm QPs|Data ex\. method|Max inline "
    r"data)\s*: ?([^\s\"]\S*?)"
    r"(?=\s|$|Device +:|Transport type|Using |Lock-free)"
)
_FACTS = pairs_of("settings.csv", "fabbench.benchmarks.perftest")

# They state the fact of a group's name.
_STATED = lazy(
    r"\s*(?:Version: (?P<perftest>\d+\.\d\S*)"
    r"|(?:creating |Using |Use )?(?P<gpu>(?i:cuda|rocm|musa)) (?:Ctx|Device with ID: .*|memory "
    r"+: ON|device : \d+))\s*"
)
_MEANINGS = pairs_of("statuses.csv", "fabbench.benchmarks.perftest")

_SMALLEST = 2
_LARGEST = 1 << 23
"""The first size of -a, and the last, where no message is a datagram."""
IWARP = "iWARP"
"""What the set-up of its devices is noted as."""
_CONNECTED = frozenset({"RC", "UC", "XRC", "DC"})


# ---------------------------------------------------------------- what they mean


def read(text: str, *, is_inside: bool) -> Events | None:
    """Return what a line other than a row means; None for a line of another program.

    The first event is a note of its kind, unless it only states a fact. `is_inside`: whether an
    execution is open.
    """
    layouts = rows.read_header(text) if "#bytes" in text else ()
    if layouts:
        unread = (finding("unit-cycles"),) if "[cycles]" in text else ()
        indent, _, _ = text.partition("#")
        return (Note("header", indent), Header(layouts), *unread)
    # Outside an execution fewer kinds of lines count: some are too common to begin one.
    match = (_INSIDE if is_inside else _OUTSIDE).fullmatch(text)
    if match is not None:
        kind = match.lastgroup or ""
        return [*_EVENTS_OF_KIND.get(kind, _kind_alone)(match)]
    command = read_command(text) if "_" in text else None
    if command is not None:
        return [*_command(command)]
    # Most lines of the set-up are too common to begin an execution.
    if ": " in text and (is_inside or _DISTINCT_SETUP.search(text)):
        setup = dict(_SETUP.findall(text))
        if setup:
            return [*_setup(setup)]
    return _stated_fact(text)


def _kind_alone(match: Match) -> Iterator[Event]:
    """Say only what kind of line it is."""
    yield Note(match.lastgroup or "")


def _title(match: Match) -> Iterator[Event]:
    verb = match["verb"].lower().removeprefix("rdma_")
    figure = "bw" if match["figure"] == "BW" else "lat"
    yield Note("title", f"ib_{verb}_{figure}")
    if match["both"]:
        yield Note("both")


def _address(match: Match) -> Iterator[Event]:
    yield Note(match["end"], match["pair"])


def _json(_: Match) -> Iterator[Event]:
    yield Note("json")
    yield finding("json-unread")


def _summary(match: Match) -> Iterator[Event]:
    """Say what the only line of a script means: a row of a table without header, size and end."""
    yield Note("sum", "fabtests" if match["sum"].startswith("Total") else "")  # whose figures
    yield Header(rows.SUMMARIES, is_row=True)
    yield Setting(facts={"size": "unknown"})
    yield End(complete=None)
    yield finding("size-unstated", "perftest")


def _cpu(_: Match) -> Iterator[Event]:
    yield Note("cpu")
    yield finding("cpu-frequency")


def _warning(match: Match) -> Iterator[Event]:
    yield Note("warning")
    if "BW peak won't be measured" not in match["warning"]:  # which its row shows, too
        quote = match["warning"][:LONGEST_QUOTE]
        line = match[0].strip()[:LONGEST_QUOTE]
        yield finding("perftest-warning", line=line, warning=quote)


def _wrong(match: Match) -> Iterator[Event]:
    yield Note("wrong")
    yield Wrong(parse_whole(match["errors"]) or 1)  # the line reports a failure, whatever its count


def _failure(match: Match) -> Iterator[Event]:
    """Say what an error line reports; one of a completion has ibverbs' status, and its meaning."""
    yield Note("failure")
    status = match["status"]
    words = single_spaced(match[0])[:LONGEST_QUOTE]
    if status:
        yield Setting(facts={"status": int(status), "syndrome": match["syndrome"]})
    meaning = f" ({_MEANINGS[status]})" if status in _MEANINGS else ""
    yield Error(f"{words}{meaning}")


_EventsOfLine: TypeAlias = Callable[[Match], Iterator[Event]]
_EVENTS_OF_KIND: Mapping[str, _EventsOfLine] = {
    "title": _title,
    "address": _address,
    "json": _json,
    "sum": _summary,
    "cpu": _cpu,
    "warning": _warning,
    "wrong": _wrong,
    "failure": _failure,
    "error": _failure,
}


def _setup(setup: Mapping[str, str]) -> Iterator[Event]:
    # `setup`: name → value, as the set-up above a table prints them: a note of each, and facts.
    for name in setup:
        yield Note("setup", name)
    is_connected = setup.get("Connection type", "RC") in _CONNECTED  # perftest's default is RC
    facts: dict[str, str | int] = {}
    if setup.get("Transport type") == "IW":
        facts["transport"] = IWARP
    for name, value in setup.items():
        if name in _FACTS:
            number, _, _ = value.partition("[")  # behind it stands the unit: 4096[B]
            facts[_FACTS[name]] = whole_or_text(number)
    # Of datagrams the last size of -a is smaller, and not known (0).
    yield Setting(facts=facts, last_size=None if is_connected else 0)


def _stated_fact(text: str) -> Events | None:
    # A line that states a fact has one of the pattern's groups, which are called like the facts.
    match = _STATED.fullmatch(text)
    facts = match.groupdict() if match is not None else {}
    stated = {name: fact.lower() for name, fact in facts.items() if fact}
    return (Setting(facts=stated),) if stated else None


def _command(command: "Command") -> Iterator[Event]:
    flags = command.flags
    yield Note("command", command.side)
    # Any value of these two is a yes.
    if flags & {"b", "bidirectional"}:
        yield Note("both")
    if flags & {"C", "report-cycles"}:
        yield Note("cycles")
    memories = [flag[4:8] for flag in flags if flag.startswith(_GPU_MEMORIES)]  # use_cuda → cuda
    # (Atomics have one size, whatever the options. Raw Ethernet begins with another one.)
    has_all_sizes = bool(flags & {"a", "all"}) and "atomic" not in command.program
    yield Setting(
        command.program,
        {"gpu": memories[0]} if memories else {},
        first_size=_SMALLEST if has_all_sizes and command.program.startswith("ib_") else None,
        last_size=_LARGEST if has_all_sizes else None,
    )


# ---------------------------------------------------------------- command lines

_PROGRAM = lazy(
    rf"(?:^|(?<=[\s/'\"#$]))({_PROGRAMS}|raw_ethernet_(?:bw|lat|burst_lat|fs_rate))(?=[\s'\"]|$)"
)
_STOP = lazy(r"(?:^|\s)(?:#|//|&|\||;|\d?>|<(?=\s))|['\"]")
# Short options without a value, the first that takes one, and its value (getopt's string in
# perftest_parameters.c).
_SHORT = lazy(r"-([^wypdimsntuSxcqIoMrQAlDfBTLEJjKkXW]*)(.?)(.*)")
_FLAGS = lazy(
    r"all|bidirectional|(?:comm_)?rdma_cm|CPU-freq|cpu_util|data_validation|dont_xchg_versions|dualport|events|ipv6|no_lock"
    r"|no_peak|odp|out_json|perform_warm_up|report(?:-both|-cycles|-histogram|-unsorted|_gbits|_per_port)"
    r"|run_infinitely|srq|use_(?:cuda|rocm)_dmabuf|use_old_post_send|use-srq"
)
"""Long options without a value."""
_GPU_MEMORIES = ("use_cuda", "use_rocm", "use_musa")


class Command(NamedTuple):
    """A line that starts a program."""

    program: str
    side: str
    flags: frozenset[str]


def read_command(text: str) -> Command | None:
    """Return what a line starts; None for a line that only names a program.

    A client has one operand, the server's address.
    """
    command = read_command_line(text, _PROGRAM, _STOP)
    if command is None:
        return None
    operands = 0
    flags: set[str] = set()
    words = iter(command.words)
    for word in words:
        if len(word) < 2 or not word.startswith("-"):
            operands += 1
            continue
        of_word, has_value_behind = _flags(word)
        flags |= of_word
        if has_value_behind:
            next(words, None)  # which is no operand
    if operands > 1:  # prose
        return None
    return Command(command.program, "client" if operands else "server", frozenset(flags))


def _flags(word: str) -> tuple[set[str], bool]:
    """Return the options of a word, and whether the next word is the value of one.

    A long one is as written, with its `=VALUE`; a short one that has a value is left out.
    """
    if word.startswith("--"):
        name = word[2:]
        return {name}, "=" not in name and not _FLAGS.fullmatch(name)
    ((letters, with_value, value),) = _SHORT.findall(word)
    return set(letters), bool(with_value and not value)
