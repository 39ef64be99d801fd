"""The tables of the OSU micro-benchmarks.

Based on the sources of 5.6 to 7.5 (util/osu_util_mpi.c, and the printf of each program). A title
names the test, a line of column names follows, then rows of numbers; there is no closing line. MB
are 10⁶ bytes.
"""

import re
from collections.abc import Mapping

from fabbench.benchmarks import engine
from fabbench.model.patterns import lazy

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

_NAMES = (
    (r" personalized exchange| world$|\W+$", ""),
    ("all-to-all", "alltoall"),
    ("multiple bandwidth(?: / message rate)?$", "mbw_mr"),
    ("multiple bandwidth bandwidth", "mbw"),
    ("bi-(?:directional )?bandwidth", "bibw"),
    ("bandwidth", "bw"),
    (r"multi-([tp])\w+ latency", r"latency_m\1"),
    ("multi latency", "multi_lat"),
    ("non-blocking ", "i"),
    ("neighborhood ", "neighbor_"),
    (r"^persistent (\w+?)(?: latency)?$", r"\1_persistent"),
    ("broadcast", "bcast"),
    ("accumulate", "acc"),
    ("fetch_and_op", "fop"),
    ("compare_and_swap", "cas"),
    (r"^(?!mpi_|partitioned)(.+) latency$", r"\1"),
    (r"^mpi_([a-z_]+)(?:-[a-z]+)?", r"\1"),
    (r"\W+", "_"),
)  # what leads from a title in lower case to the program's name, one after the other
_FIGURE = r"\d{1,18}\.\d\d"  # FLOAT_PRECISION: fewer decimals are the remains of a figure
_TIME, _RATE = (
    engine.Column("time", 1e-6, cell=_FIGURE),
    engine.Column("bandwidth", 1e6, cell=_FIGURE),
)
_MESSAGES = engine.Column("message_rate", cell=_FIGURE)
_COLUMNS: Mapping[str, engine.Column] = {
    r"size(?:\(b\))?": engine.SIZE,
    "operation": engine.Column(label="operation", cell=engine.WORD),
    r"(?:avg\.?)?latency\(us\)|latavg\(us\)|overall\(us\)": _TIME,
    r"(?:lat)?(min|max)\.?(?:latency)?\(us\)": _TIME._replace(stat="{}"),
    r"(min|max)comm\.\(us\)": _TIME._replace(stat="{}-comm"),
    r"compute\(us\)": _TIME._replace(stat="compute"),
    r"purecomm\.\(us\)": _TIME._replace(stat="pure-comm"),
    r"(?:bi-)?bandwidth\(mb/s\)|mb/s": _RATE,
    r"bandwidth\(gb/s\)": _RATE._replace(factor=1e9),
    "messages/s(?:ec)?": _MESSAGES,
    r"p(\d{1,2})taillat.*": _TIME._replace(stat="p{}"),
    r"p(\d{1,2})tailbw.*": _RATE._replace(stat="p{}"),
    "validation": engine.CHECK,
    r"overlap\(%\)": engine.Column("overlap", 0.01),
    r"iterations|transmitsize|(?:coll\.|mpi_)?(?:init|test|wait)(?:avg)?\(us\)|millionops/s|.*gbit/s\)": engine.IGNORED,
}
"""Column name, in lower case and without blanks → column."""
_PROFILES = {"irectional Bandwidth (MB": _RATE, "Message Rate Profile": _MESSAGES}
"""What stands above the window sizes of osu_mbw_mr -V → their columns, which stand alone until the sizes are read."""
_MS = engine.Column("time", 1e-3, cell=engine.COUNT)
_INIT = (
    *(
        engine.Column(cell=r"nprocs: \d+, min:"),
        _MS._replace(stat="min"),
        engine.Column(cell="ms, max:"),
    ),
    *(_MS._replace(stat="max"), engine.Column(cell="ms, avg:"), _MS, engine.Column(cell="ms")),
)  # the only line that osu_init prints


def _title(match: re.Match[str]) -> engine.Statement:
    case = " ".join(match["test"].lower().split())
    for pattern, name in _NAMES:
        case = re.sub(pattern, name, case)
    facts = {
        "osu": match["version"],
        "gpu": match["gpu"],
        "library": match["python"] or match["library"],
    }
    facts = {
        name: value.lower().replace(" ", "-")
        for name, value in facts.items()
        if value not in {None, "MPI"}
    }
    hello, init = case == "hello", (_INIT,) if case == "init" else ()  # hello measures nothing
    return engine.Statement(
        begins=True, above=hello, ends=hello, case=f"osu_{case}", facts=facts, layouts=init
    )


def _header(text: str, execution: engine.Execution) -> engine.Statement | None:
    case = str(execution.record.case).removeprefix("osu_")
    bare = (
        text.removeprefix("#").strip().replace("Gb/s", "Gbit/s").replace("[", "(").replace("]", ")")
    )
    names, words = engine.GAP.split(bare), bare.split()
    if len(words) > 1 and all(map(str.isdecimal, words)):  # osu_mbw_mr -V: window sizes
        kind = next(
            (one for one in _PROFILES.values() if execution.layouts == ((one,),)),
            engine.Column(cell="(?!)"),
        )
        return engine.Statement(
            layouts=((engine.SIZE, *(kind._replace(stat=f"window {each}") for each in words)),)
        )
    layout = engine.read_columns(names, _COLUMNS)
    if layout[0] in {engine.UNKNOWN, engine.IGNORED} or names[0].islower():  # `size` is nccl-tests'
        return None
    if "lat" in case:  # no name of a collective has it
        layout = tuple(
            column._replace(metric="latency") if column.metric == "time" else column
            for column in layout
        )
    # osu_get_mbw prints a second number without a name, and -f its columns in some releases.
    spread = (
        tuple(layout[-1]._replace(stat=stat) for stat in ("min", "max"))
        if names[-1][:3] == "Avg"
        else ()
    )
    layouts = (
        (layout, (*layout, *spread, engine.IGNORED)) if spread or case == "get_mbw" else (layout,)
    )
    if str(execution.record.facts.get("osu", ""))[:2] == "2.":
        layouts = (
            tuple(c._replace(cell=r"\d+\.\d{6}") if c.metric == "bandwidth" else c for c in layout),
        )
    facts, finding = (
        {"checked": "yes"} if engine.CHECK in layout else {},
        engine.unknown_columns(layout, text),
    )
    return engine.Statement(layouts=layouts, facts=facts, finding=finding)


_RANKS = lazy(r" -(?:np?|-ntasks)[ =](\d{1,9}) ")
_PROGRAM = lazy(r"(?:^|(?<=[\s/]))osu_(\w+)(?=\s|$)")
_SIZES = lazy(r"(?:^| )-(?:m|-message-size)[ =]?(?:(\d+):)?(\d*)(?: |$)")
_DEVICE = lazy(r"(?:^| )-(?:d|-accelerator)[ =]?([a-z]+)(?: |$)")
_SIDES = lazy(r"(?:^| )([HDM]) ([HDM])(?: |$)")
_LAUNCHER = lazy(r"\s*(?:\S*/)?(?:mpirun|mpiexec|srun)\s")
_SETTING = lazy(r" --?(?:g?mca +|genv +|x +)((?:btl|mtl|pml|FI_|UCX_|I_MPI_)\w*)[ =]+\"?([^\s\"]+)")
_MEMORIES = {"H": "host", "D": "device", "M": "managed"}


def _command(text: str) -> engine.Statement | None:
    """Read a command line, which states where the buffers are, and the last size.

    Sizes double from the first one. Without -m, tests between two ranks go up to 4 MB, and
    collectives up to 1 MB as long as their memory suffices.
    """
    command, settings = (
        engine.read_words(text, _PROGRAM),
        " ".join(sorted(map("=".join, _SETTING.findall(text)))),
    )
    facts: dict[str, str | int] = {"settings": settings} if settings else {}
    if command is None:
        return (
            engine.Statement(above=True, facts=facts)
            if settings and _LAUNCHER.match(text)
            else None
        )
    words, ranks = " ".join(command[1]), _RANKS.search(text)
    facts.update(("gpu", match[1]) for match in _DEVICE.finditer(words))
    facts.update(
        ("buffers", f"{_MEMORIES[match[1]]}-{_MEMORIES[match[2]]}")
        for match in _SIDES.finditer(words)
    )
    sizes = _SIZES.search(words)
    first, last = max(int((sizes and sizes[1]) or 1), 1), int((sizes and sizes[2]) or 0)
    if not last and (ranks is None or int(ranks[1]) <= 128):
        last = 1 << (22 if re.search("lat|bw", command[0]) else 20)
    end = first << max((last // first).bit_length() - 1, 0)
    return engine.Statement(above=True, facts=facts, end=end if last else 0)


_FAILED = lazy(
    r"\s*(?:This (?:test|benchmark) requires .*|MPI_ABORT was invoked on rank .*"
    r"|\[[^\]]*\]\[MPIError\].*|Message too large\..*|Could not "
    r"(?:allocate|open|initialize|bind) .*"
    r"|(?:\S*/)?osu_\w+: (?:error while loading|(?:command )?not found|No such file).*)"
)


def _statement(text: str, execution: engine.Execution | None) -> engine.Statement | None:
    if ("OSU" in text or "OMB" in text) and (title := _TITLE.fullmatch(text)) is not None:
        return _title(title)
    if execution is not None and text.lstrip().startswith(("#", "Size ", "Overall(")):
        return _comment(text.strip(), execution)
    if "osu_" in text and (command := _command(text)) is not None:
        return command
    return (
        engine.Statement(wrong=1) if text.lstrip().startswith("DATA VALIDATION ERROR: ") else None
    )


def _comment(text: str, execution: engine.Execution) -> engine.Statement | None:
    found = ((name.lower().replace(" ", "_"), value) for name, value in _FACT.findall(text))
    facts: dict[str, str | int] = {
        name: int(value) if value.isdecimal() else value for name, value in found
    }
    facts.update(("buffers", f"{match[1]}-{match[2]}".lower()) for match in _BUFFERS.finditer(text))
    if "datatype" in facts and execution.rows:
        # -T prints a table per type below one title.
        labels, before = (
            {"dtype": str(facts["datatype"])},
            execution.record.facts.get("datatype", ""),
        )
        return engine.Statement(facts={"datatype": f"{before}, {facts['datatype']}"}, labels=labels)
    if kind := next((column for words, column in _PROFILES.items() if words in text), None):
        return engine.Statement(layouts=((kind,),))
    return engine.Statement(facts=facts) if facts else _header(text, execution)


def _fits(row: engine.Row) -> bool:
    bandwidth, rate = row.main("bandwidth"), row.main("message_rate")
    if (
        bandwidth is not None
        and rate is not None
        and not bandwidth.overlaps(rate.low * row.size, rate.high * row.size)
    ):
        return False
    shares, figures = row.read("overlap"), row.figures
    if shares is not None and {"", "compute", "pure-comm"} <= figures.keys():
        spent, computed, alone = (
            next(iter(figures[stat].values())) for stat in ("", "compute", "pure-comm")
        )
        if spent.high - computed.low < alone.low * (1 - shares.high) or (
            shares.value and spent.low - computed.high > alone.high * (1 - shares.low)
        ):
            return False  # overlap = 1 - (overall - compute) / pure communication, at least 0
    return engine.is_ascending(row)


_NUMBER = lazy(
    r"(?!\s*+(?:\d\s*+){3,}$|.*[|+])\s*+\d++(?:[.,]\d++)*(?:\s|$)"
)  # and no line of a graph (-G tty)
TABLE = engine.Table(
    benchmark="osu",
    program="OSU",
    statement=_statement,
    failed=_FAILED,
    failing="osu_",
    fits=_fits,
    remains=lambda text, layout: bool(_NUMBER.match(text)) or engine.is_left(text, layout),
)
