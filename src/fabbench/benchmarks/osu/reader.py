"""The tables of the OSU micro-benchmarks.

Based on the sources of 5.6 to 7.5 (util/osu_util_mpi.c, and the printf of each program). A title
names the test, a line of column names follows, then rows of numbers; there is no closing line. MB
are 10⁶ bytes.
"""

import re
from collections.abc import Iterator, Sequence

from fabbench.benchmarks.commands import CommandLine, read_command_line
from fabbench.benchmarks.consistency import ANYTHING, Printed
from fabbench.benchmarks.events import Ahead, Begin, Command, Events, Header, Setting, Stop, Wrong
from fabbench.benchmarks.executions import MIXED_TABLES, Execution, Table
from fabbench.benchmarks.findings import finding
from fabbench.benchmarks.tables import (
    CHECK,
    COUNT,
    GAP,
    IGNORED,
    NEVER,
    UNKNOWN,
    Column,
    Figures,
    Layout,
    Row,
    columns_of,
    is_ascending,
    is_prose,
    is_rest_of_row,
    rate_agrees,
    read_columns,
    unknown_columns,
)
from fabbench.catalog.systems import pairs_of
from fabbench.model.log import fact_text
from fabbench.model.messages import single_spaced
from fabbench.model.patterns import Match, lazy
from fabbench.model.units import whole_or_text

_TITLE = lazy(
    r"(?=.* v\d|\s*#)\s*(?:# ?)?(?:OSU|(?P<python>OMB[- ]Py)(?:thon)?) "
    r"(?:(?=\w+-(?P<gpu>[A-Z]+)\b))?"
    r"(?:(?P<library>MPI|NCCL|RCCL|HCCL|OpenSHMEM|UPC(?:\+\+)?)(?:-[A-Z]+(?: MANAGED)?)? "
    r"|(?:Open MPI|One Sided) )?"
    r"(?P<test>\S.*?)(?: [Tt]est){1,2}(?:\s+(?:v|\(Version )(?P<version>\d[\w.-]*)\)?)?\s*"
)
_FACT = lazy(
    r"(Window (?:creation|size)|Synchronization|Datatype|window size(?=: \d)"
    r"|pairs(?=: \d+ \](?: \[ window size: \d+ \])?$)): ([^\s.]+)"
)
_BUFFERS = lazy(
    r"#\s*(?:Send Buffer|Rank 0 Memory) on (\w+) \(\w+\) and (?:Receive Buffer|Rank 1 "
    r"Memory) on "
    r"(\w+) \("
)

_COLUMNS = columns_of("osu")
_MS = Column("time", 1e-3, cell=COUNT)
_INIT: Layout = (
    Column(cell=r"nprocs: \d+, min:"),
    _MS._replace(stat="min"),
    Column(cell="ms, max:"),
    _MS._replace(stat="max"),
    Column(cell="ms, avg:"),
    _MS,
    Column(cell="ms"),
)
"""The only line that osu_init prints."""
_NO_ROWS = Header([(NEVER,)])
"""Above rows of a table whose columns are not known: they are damaged."""


def _events(text: str, execution: Execution | None) -> Events | None:
    # A title; within an execution a comment or the names of columns; a command line; a failed
    # validation. None: any other line.
    # The tests for a word, before each pattern, are for speed.
    if "OSU" in text or "OMB" in text:
        title = _TITLE.fullmatch(text)
        if title is not None:
            return _title(title)
        if execution is not None and execution.rows and text.startswith("# OSU "):
            return (_NO_ROWS,)  # a title that is cut: whose rows are below it is not known
    # Names of columns may have no number sign.
    if execution is not None and text.lstrip().startswith(("#", "Size ", "Overall(")):
        return _comment(text.strip(), execution)
    if "osu_" in text:
        command = _command(text)
        if command is not None:
            return (command,)
    return (Wrong(),) if text.lstrip().startswith("DATA VALIDATION ERROR: ") else None


# ---------------------------------------------------------------- titles and names of columns


def _title(match: Match) -> Events:
    test = single_spaced(match["test"].lower())
    case = _program_of_title(test)
    if case == "hello":  # which measures nothing
        return (Stop(),)
    setting = Setting(f"osu_{case}", dict(_facts_of_title(match)))
    if case == "init":  # which prints no names of columns
        return (Begin(), setting, Header([_INIT]))
    return (Begin(), setting)


def _program_of_title(title: str) -> str:
    """Return the program without `osu_`: the rewritings of names.csv, one after another."""
    for pattern, name in pairs_of("names.csv", "fabbench.benchmarks.osu").items():
        title = re.sub(pattern, name, title)
    return title


def _facts_of_title(match: Match) -> Iterator[tuple[str, str]]:
    # MPI itself, and what the title does not say, are no facts.
    named = {
        "osu": match["version"],
        "gpu": match["gpu"],
        "library": match["python"] or match["library"],
    }
    for name, value in named.items():
        if value not in {None, "MPI"}:
            yield name, value.lower().replace(" ", "-")


def _comment(text: str, execution: Execution) -> Events | None:
    """Return what a comment says: facts, or names of columns; None if it is not OSU's."""
    facts = dict(_facts_of_comment(text))
    before = fact_text(execution.record.facts, "datatype")
    dtype = fact_text(facts, "datatype")
    if before and execution.rows and dtype not in {"", *before.split(", ")}:
        # -T prints a table per type below one title.
        return (Setting(facts={"datatype": f"{before}, {dtype}"}, labels={"dtype": dtype}),)
    if "window size: varied" in text:  # -V: a column per window size, which is not read
        return (finding("windows-unread"),)
    return (Setting(facts=facts),) if facts else _header(text, execution)


def _facts_of_comment(text: str) -> Iterator[tuple[str, str | int]]:
    for name, value in _FACT.findall(text):
        fact = name.lower().replace(" ", "_")
        yield fact, whole_or_text(value)
    for send, receive in _BUFFERS.findall(text):
        yield "buffers", f"{send}-{receive}".lower()


def _header(text: str, execution: Execution) -> Events | None:
    """Return what a line of column names says; None if it is none of OSU's."""
    # Keys of `_COLUMNS` are lower case, where gigabits would be gigabytes.
    bare = text.removeprefix("#").strip().replace("Gb/s", "Gbit/s")
    names = GAP.split(bare.replace("[", "(").replace("]", ")"))
    layout = read_columns(names, _COLUMNS)
    is_of_nccl_tests = names[0].islower()  # `size`: OSU's names begin with a capital
    if layout[0] in {UNKNOWN, IGNORED} or is_of_nccl_tests:
        return None
    checked = {"checked": "yes"} if CHECK in layout else {}
    if execution.layouts and not execution.labels:
        # A second table that -T does not explain is of a test whose title is lost: no row is read.
        return (_NO_ROWS, finding(MIXED_TABLES))
    return (
        Header(_layouts(layout, names, execution)),
        Setting(facts=checked),
        *unknown_columns(layout, text),
    )


def _layouts(layout: Layout, names: Sequence[str], execution: Execution) -> Sequence[Layout]:
    """Return how the rows below names of columns may look."""
    case = str(execution.record.case).removeprefix("osu_")
    if "lat" in case:  # one-way; a collective's time is none, and no name of one has "lat"
        layout = tuple(_as_latency(column) for column in layout)
    # osu_get_mbw prints a second number without a name, and -f its columns in some releases.
    if names[-1].startswith("Avg"):
        average = layout[-1]
        # Without names: minimum, maximum and iterations, of -f.
        spread = (average._replace(stat="min"), average._replace(stat="max"))
        return [layout, (*layout, *spread, IGNORED)]
    if case == "get_mbw":
        return [layout, (*layout, IGNORED)]
    return [layout]


def _as_latency(column: Column) -> Column:
    return column._replace(metric="latency") if column.metric == "time" else column


# ---------------------------------------------------------------- command lines

_RANKS = lazy(r" -(?:np?|-ntasks)[ =](\d{1,9}) ")
_PROGRAM = lazy(r"(?:^|(?<=[\s/]))osu_(\w+)(?=\s|$)")
_SIZES = lazy(r"(?:^| )-(?:m|-message-size)[ =]?(?:(\d+):)?(\d*)(?: |$)")
_DEVICE = lazy(r"(?:^| )-(?:d|-accelerator)[ =]?([a-z]+)(?: |$)")
_SIDES = lazy(r"(?:^| )([HDM]) ([HDM])(?: |$)")
_LAUNCHER = lazy(r"\s*(?:\S*/)?(?:mpirun|mpiexec|srun)\s")
_SETTING = lazy(r" --?(?:g?mca +|genv +|x +)((?:btl|mtl|pml|FI_|UCX_|I_MPI_)\w*)[ =]+\"?([^\s\"]+)")
_MEMORIES = {"H": "host", "D": "device", "M": "managed"}
_BETWEEN_TWO = lazy("lat|bw")
_MOST_RANKS_BY_DEFAULT = 128
"""With more, the memory of collectives may not suffice for their last size."""


def _command(text: str) -> Command | Ahead | None:
    """Read a command line, which states where the buffers are, and the last size."""
    assignments = sorted(map("=".join, _SETTING.findall(text)))
    settings = " ".join(assignments)
    facts = {"settings": settings} if settings else {}
    command = read_command_line(text, _PROGRAM)
    if command is not None:
        facts |= _facts_of_command(command.arguments)
        return Command((Setting(facts=facts, last_size=_last_size(command, text)),))
    # mpirun may name its settings in a line of its own, above that of the program.
    is_launcher = settings and _LAUNCHER.match(text)
    return Ahead((Setting(facts=facts),)) if is_launcher else None


def _facts_of_command(arguments: str) -> Iterator[tuple[str, str]]:
    # What kind of GPU, and where each side has its buffer: in memory of hosts or of devices.
    for device in _DEVICE.findall(arguments):
        yield "gpu", device
    for send, receive in _SIDES.findall(arguments):
        yield "buffers", f"{_MEMORIES[send]}-{_MEMORIES[receive]}"


def _last_size(command: CommandLine, text: str) -> int:
    """Return the last size; 0: not known.

    Sizes double from the first one. Without -m, tests between two ranks go up to 4 MB, and
    collectives up to 1 MB as long as their memory suffices.
    """
    sizes = _SIZES.search(command.arguments)
    smallest, largest = sizes.groups() if sizes is not None else (None, None)
    first = max(int(smallest or 1), 1)  # behind a size of 0 comes 1
    last = int(largest or 0) or _default_last_size(command.program, text)
    doublings = max((last // first).bit_length() - 1, 0)
    return first << doublings if last else 0


def _default_last_size(program: str, text: str) -> int:
    """Return the last size without -m, by the ranks that a command line states; 0: not known."""
    ranks = _RANKS.search(text)
    if ranks is not None and int(ranks[1]) > _MOST_RANKS_BY_DEFAULT:
        return 0
    return _usual_end(program)


def _usual_end(case: str | None) -> int:
    """Return the last size without -m: 4 MiB between two ranks, 1 MiB of collectives."""
    return 1 << 22 if _BETWEEN_TWO.search(case or "") else 1 << 20


# ---------------------------------------------------------------- rows


_FAILED = lazy(
    r"\s*(?:This (?:test|benchmark) requires .*|MPI_ABORT was invoked on rank .*"
    r"|\[[^\]]*\]\[MPIError\].*|Message too large\..*|Could not "
    r"(?:allocate|open|initialize|bind) .*"
    r"|(?:\S*/)?osu_\w+: (?:error while loading|(?:command )?not found|No such file).*)"
)
_NUMBER = lazy(r"(?!\s*+(?:\d\s*+){3,}$|.*[|+])\s*+\d++(?:[.,]\d++)*(?:\s|$)")
"""The first word of a row, and no line of a graph (-G tty)."""


def _fits(row: Row) -> bool:
    # Whether the figures of a row can be those of one measurement.
    if rate_agrees(row) is False:  # None: it has no rate
        return False
    rate = row.main("bandwidth") or ANYTHING
    if not rate.agrees(row.read("same") or ANYTHING):  # in another unit
        return False
    overlap = row.read("overlap")
    if overlap is not None and not _is_overlap(overlap, row.figures):
        return False
    return is_ascending(row)


def _is_overlap(overlap: Printed, figures: Figures) -> bool:
    """Return whether it is 1 - (overall - compute) / pure communication, at least 0.

    Whatever the three times may have been before they were rounded; True where one is missing.
    """
    if not {"", "compute", "pure-comm"} <= figures.keys():
        return True
    overall, compute, pure = (
        next(iter(figures[stat].values())) for stat in ("", "compute", "pure-comm")
    )
    # The time of communication that no computing hid.
    least_left = overall.low - compute.high
    most_left = overall.high - compute.low
    if most_left < pure.low * (1 - overlap.high):
        return False
    # An overlap of 0 stands for any below it, too.
    return not overlap.value or least_left <= pure.high * (1 - overlap.low)


def _remains(text: str, layout: Layout) -> bool:
    # Whether a line may be what is left of a row: it may begin with a number that fits no column.
    begins_with_number = _NUMBER.match(text) is not None
    return (begins_with_number and not is_prose(text)) or is_rest_of_row(text, layout)


TABLE = Table(
    benchmark="osu",
    program="OSU",
    events=_events,
    failed=_FAILED,
    failing="osu_",
    fits=_fits,
    remains=_remains,
    usual_end=_usual_end,
)
