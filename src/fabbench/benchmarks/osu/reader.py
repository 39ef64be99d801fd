"""The tables of the OSU micro-benchmarks.

Based on the sources of 5.6 to 7.5 (util/osu_util_mpi.c, and the printf of each program). A title names the
test, a line of column names follows, then rows of numbers; there is no closing line. MB are 10⁶ bytes.
"""

import re
from collections.abc import Mapping

from fabbench.benchmarks.command_line import read_words
from fabbench.benchmarks.consistency import is_remains
from fabbench.benchmarks.engine import (
    CHECK,
    COUNT,
    IGNORED,
    NO_MEANING,
    SIZE,
    UNKNOWN,
    Column,
    Execution,
    Layout,
    Row,
    Statement,
    Table,
    cell_patterns,
    is_ascending,
    read_columns,
    unknown_columns,
)
from fabbench.model.patterns import lazy

_TITLE = lazy(
    r"\s*# ?OSU (?:(?P<library>MPI(?:-[A-Z]+)?|NCCL|RCCL|HCCL|OpenSHMEM|UPC|UPC\+\+) |One Sided )?"
    r"(?P<test>\S.*?) [Tt]est(?:\s+(?:v|\(Version )(?P<version>\d[\w.-]*)\)?)?\s*"
)
_FACT = lazy(r"#\s*(Window creation|Synchronization|Window size): (\S+?)\.?\s*")
_DATATYPE = lazy(r"#\s*Datatype: (\S+?)\.?\s*")
_PAIRS = lazy(r"#\s*\[ pairs: (\d{1,9}) \] \[ window size: (\d{1,9}) \]\s*")
_BUFFERS = lazy(r"#\s*Send Buffer on (\w+) \(\w+\) and Receive Buffer on (\w+) \(\w+\)\s*")
_ONE_SIDED_DEVICE = lazy(r"(MPI_\w+)-([A-Z]+)\b")
_GAP = lazy(r"\s{2,}|\t|(?<=\))\s")

_TESTS: Mapping[str, str] = {
    "latency": "latency",
    "bandwidth": "bw",
    "bi-directional bandwidth": "bibw",
    "multi latency": "multi_lat",
    "multi-threaded latency": "latency_mt",
    "multi-process latency": "latency_mp",
    "multiple bandwidth / message rate": "mbw_mr",
    "broadcast latency": "bcast",
    "hello world": "hello",
}
"""Title in lower case → program, if its name differs from the title."""
_ONE_SIDED = {"accumulate": "acc", "get_accumulate": "get_acc", "fetch_and_op": "fop", "compare_and_swap": "cas"}
_ENDINGS = {" multiple bandwidth bandwidth": "_mbw", " multi latency": "_multi_lat"} | {
    " bi-directional bandwidth": "_bibw",
    " bandwidth": "_bw",
    " latency": "_latency",
}
_POINT_TO_POINT = frozenset({"latency", "bw", "bibw", "multi_lat", "latency_mt", "latency_mp", "mbw_mr"})
_US, _MB, _MS = 1e-6, 1e6, 1e-3
_FIGURE = r"\d{1,18}\.\d\d"  # FLOAT_PRECISION: fewer decimals are the remains of a figure
_TIME, _RATE = Column("time", _US, cell=_FIGURE), Column("bandwidth", _MB, cell=_FIGURE)
_MESSAGES = Column("message_rate", cell=_FIGURE)
_COLUMNS: Mapping[str, Column] = {
    "size": SIZE,
    r"(?:avg)?latency\(us\)|overall\(us\)": _TIME,
    r"(min|max)latency\(us\)": _TIME._replace(stat="{}"),
    r"(min|max)comm\.\(us\)": _TIME._replace(stat="{}-comm"),
    r"compute\(us\)": _TIME._replace(stat="compute"),
    r"purecomm\.\(us\)": _TIME._replace(stat="pure-comm"),
    r"bandwidth\(mb/s\)|mb/s": _RATE,
    "messages/s": _MESSAGES,
    r"p(\d{1,2})taillat.*": _TIME._replace(stat="p{}"),
    r"p(\d{1,2})tailbw.*": _RATE._replace(stat="p{}"),
    "validation": CHECK,
    r"overlap\(%\)": Column("overlap", 0.01),
    r"iterations|transmitsize|coll\.init\(us\)|mpi_(?:test|wait)\(us\)": IGNORED,
}
"""Column name, in lower case and without blanks → column."""
_PROFILES = {"irectional Bandwidth (MB": _RATE, "Message Rate Profile": _MESSAGES}
"""What stands above the window sizes of osu_mbw_mr -V → their columns, which stand alone until the sizes are read."""
_INIT = (
    *(Column(cell=r"nprocs: \d+, min:"), Column("time", _MS, "min", COUNT), Column(cell="ms, max:")),
    *(Column("time", _MS, "max", COUNT), Column(cell="ms, avg:"), Column("time", _MS, cell=COUNT), Column(cell="ms")),
)  # the only line that osu_init prints


def _case(test: str) -> str:
    """Return the program's name without `osu_`."""
    lower = " ".join(test.lower().split()).replace("all-to-all", "alltoall").replace(" personalized exchange", "")
    one_sided, lower = lower.startswith("mpi_"), lower.removeprefix("mpi_")
    for prefix, letter in (("non-blocking ", "i"), ("neighborhood ", "neighbor_"), ("persistent ", "")):
        if lower.startswith(prefix):
            return f"{letter}{_case(lower.removeprefix(prefix))}{'_persistent' if not letter else ''}"
    if not one_sided and lower in _TESTS:
        return _TESTS[lower]
    for ending, short in _ENDINGS.items():
        if lower.endswith(ending):
            name = re.sub(r"[^a-z0-9]+", "_", lower.removesuffix(ending)).strip("_")
            return f"{_ONE_SIDED.get(name, name)}{short}" if one_sided else name
    return re.sub(r"[^a-z0-9]+", "_", lower).strip("_")


def _title(match: re.Match[str]) -> Statement:
    library, _, device = (match["library"] or "MPI").partition("-")
    test = match["test"]
    if (one_sided := _ONE_SIDED_DEVICE.match(test)) is not None:
        test, device = one_sided[1] + test[one_sided.end() :], one_sided[2]
    facts = {"osu": match["version"], "gpu": device.lower(), "library": library.lower() if library != "MPI" else ""}
    case = _case(test)
    return Statement(
        begins=True,
        case=f"osu_{case}",
        facts={name: value for name, value in facts.items() if value},
        layouts=(_INIT,) if case == "init" else (),
    )


def _header(text: str, execution: Execution) -> Statement | None:
    """Read a line of column names; None for other lines."""
    case = str(execution.record.case).removeprefix("osu_")
    names = _GAP.split(text.strip().removeprefix("#").strip())
    if len(names) > 1 and all(map(str.isdecimal, names)):  # osu_mbw_mr -V: window sizes
        kind = next((kind for kind in _PROFILES.values() if execution.layouts == ((kind,),)), Column(cell="(?!)"))
        return Statement(layouts=((SIZE, *(kind._replace(stat=f"window {name}") for name in names)),))
    layout = read_columns(names, _COLUMNS)
    if layout[0] is UNKNOWN or layout[0] is IGNORED:
        return None
    if case in _POINT_TO_POINT or case.endswith(("_latency", "_multi_lat")):
        layout = tuple(column._replace(metric="latency") if column.metric == "time" else column for column in layout)
    # osu_get_mbw prints a second number without a name.
    layouts = (layout, (*layout, IGNORED)) if case == "get_mbw" else (layout,)
    checked = {"checked": "yes"} if CHECK in layout else {}
    return Statement(layouts=layouts, facts=checked, finding=unknown_columns(layout, text))


_RANKS = lazy(r" -(?:np?|-ntasks)[ =](\d{1,9}) ")
_PROGRAM = lazy(r"(?:^|(?<=[\s/]))osu_(\w+)(?=\s|$)")
_SIZES = lazy(r"(?:^| )-(?:m|-message-size)[ =]?(?:(\d+):)?(\d*)(?: |$)")
_DEVICE = lazy(r"(?:^| )-(?:d|-accelerator)[ =]?([a-z]+)(?: |$)")
_SIDES = lazy(r"(?:^| )([HDM]) ([HDM])(?: |$)")
_MEMORIES = {"H": "host", "D": "device", "M": "managed"}


def _command(text: str) -> Statement | None:
    """Read a command line, which states where the buffers are, and the last size.

    Sizes double from the first one. Without -m, tests between two ranks go up to 4 MB, and collectives up to 1 MB
    as long as their memory suffices.
    """
    command = read_words(text, _PROGRAM)
    if command is None:
        return None
    words, facts = " ".join(command.words), dict[str, str | int]()
    if (device := _DEVICE.search(words)) is not None:
        facts["gpu"] = device[1]
    if (sides := _SIDES.search(words)) is not None:
        facts["buffers"] = f"{_MEMORIES[sides[1]]}-{_MEMORIES[sides[2]]}"
    sizes = _SIZES.search(words)
    low, high = (sizes[1], sizes[2]) if sizes is not None else ("", "")
    ranks = _RANKS.search(text)
    if not high and ranks is not None and int(ranks[1]) > 128:
        return Statement(above=True, facts=facts, end=0)
    pair = command.program in _POINT_TO_POINT or command.program.startswith(("get_", "put_", "acc_"))
    size, end = max(int(low or 1), 1), int(high or (1 << 22 if pair else 1 << 20))
    while 2 * size <= end:
        size *= 2
    return Statement(above=True, facts=facts, end=size)


_INVALID = lazy(r"\s*DATA VALIDATION ERROR: .*")
_FAILED = lazy(
    r"\s*(?:This (?:test|benchmark) requires .*|MPI_ABORT was invoked on rank .*"
    r"|\[[^\]]*\]\[MPIError\].*|Message too large\..*|Could not (?:allocate|open|initialize|bind) .*"
    r"|(?:\S*/)?osu_\w+: (?:error while loading|(?:command )?not found|No such file).*)"
)


def _statement(text: str, execution: Execution | None) -> Statement | None:
    if "OSU" in text and (title := _TITLE.fullmatch(text)) is not None:
        return _title(title)
    if execution is not None and text.lstrip().startswith("#"):
        return _comment(text.strip(), execution)
    if "osu_" in text and (command := _command(text)) is not None:
        return command
    return Statement(wrong=1) if _INVALID.fullmatch(text) else None


def _comment(text: str, execution: Execution) -> Statement:
    """Read a line between a title and its rows."""
    if match := _DATATYPE.fullmatch(text):
        # -T prints a table per type below one title.
        others = f"{execution.record.facts.get('datatype', '')}, " if execution.rows else ""
        labels = {"dtype": match[1]} if others else {}
        return Statement(facts={"datatype": others + match[1]}, labels=labels)
    facts: dict[str, str | int] = {}
    if match := _FACT.fullmatch(text):
        facts = {match[1].lower().replace(" ", "_"): match[2]}
    elif match := _PAIRS.fullmatch(text):
        facts = {"pairs": int(match[1]), "window_size": int(match[2])}
    elif match := _BUFFERS.fullmatch(text):
        facts = {"buffers": f"{match[1].lower()}-{match[2].lower()}"}
    elif kind := next((column for words, column in _PROFILES.items() if words in text), None):
        return Statement(layouts=((kind,),))
    return Statement(facts=facts) if facts else _header(text, execution) or NO_MEANING


_ROW_BEGINS = lazy(r"\s*\d+(?:\.\d+)?(?:\s|$)")


def _remains(text: str, layout: Layout) -> bool:
    return _ROW_BEGINS.match(text) is not None or is_remains(text.split(), cell_patterns(layout))


def _fits(row: Row) -> bool:
    bandwidth, rate = row.main("bandwidth"), row.main("message_rate")
    if bandwidth is not None and rate is not None and not bandwidth.overlaps(rate.low * row.size, rate.high * row.size):
        return False
    shares, figures = row.read("overlap"), row.figures
    if shares is not None and {"", "compute", "pure-comm"} <= figures.keys():
        spent, computed, alone = (next(iter(figures[stat].values())) for stat in ("", "compute", "pure-comm"))
        if spent.high - computed.low < alone.low * (1 - shares.high) or (
            shares.value and spent.low - computed.high > alone.high * (1 - shares.low)
        ):
            return False  # overlap = 1 - (overall - compute) / pure communication, at least 0
    return is_ascending(row)


TABLE = Table(
    benchmark="osu", program="OSU", statement=_statement, failed=_FAILED, failing="osu_", fits=_fits, remains=_remains
)
