"""The tables of the perftests, by version, and the text around them: what each line means.

All PEs print their options when they start, one PE prints tables, and the output of the others may
arrive in the middle of them. Every column has a fixed number of decimals, which reveals truncated
cells.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

from fabbench.benchmarks.consistency import is_remains
from fabbench.benchmarks.events import (
    Ahead,
    Begin,
    Between,
    Command,
    Event,
    Events,
    Fail,
    Header,
    Note,
    Setting,
    Statement,
    Stop,
)
from fabbench.benchmarks.executions import Execution, Table
from fabbench.benchmarks.nvshmem import figures
from fabbench.benchmarks.nvshmem.figures import (
    CUT_JOB,
    JOB,
    PROGRAM,
    case_of,
    collective,
    has_begun,
)
from fabbench.benchmarks.tables import (
    COUNT,
    GAP,
    SIZE,
    UNKNOWN,
    Column,
    Layout,
    Row,
    cell_patterns,
    is_ascending,
    is_prose,
    read_columns,
)
from fabbench.model.messages import LONGEST_QUOTE
from fabbench.model.patterns import lazy


def _real(decimals: str) -> str:
    return rf"\d{{1,18}}\.\d{decimals}|-?inf|-?nan"


_TIME = Column("latency", exponent=-6, cell=_real("{6,7}"))  # 7 in Python
_RATE = Column("bandwidth", exponent=9, cell=_real("{6}"))
"""GB is 2^30 bytes in some versions: see figures.py."""
_MESSAGES = Column("message_rate", exponent=6, cell=_real("{6}"))
_THREADS = Column(label="threads", cell=COUNT)
_WORD = r"[A-Za-z(][\w()+-]*|\d+-bit"
_COLUMNS: Mapping[str, Column] = {
    r"size\(b(?:ytes)?\)": SIZE,
    "threads.*": _THREADS,
    "count": Column(cell=COUNT),
    # A point-to-point test of 3.1 has no type: without its title, its metric is unknown.
    "type": Column(label="dtype", cell=rf"(?!(?:None|\(null\))(?:\s|$))(?:{_WORD})"),
    "redop": Column(label="redop", cell=_WORD),
    "scope": Column(
        label="scope",
        cell=r"None|\(null\)|[Tt]hread|[Ww]arp|[Bb]lock|[twbg]|with(?:out)? _on_stream",
    ),
    r"(?:algbw)\(gb/s\)": Column("algbw", exponent=9, cell=_real("{3}")),
    r"(?:busbw)\(gb/s\)": Column("busbw", exponent=9, cell=_real("{3}")),
    r"(min|max)_lat\(us\)": _TIME._replace(stat="{}", cell=_real("{3}")),
    r"(thread|warp|block)\(us\)": _TIME._replace(stat="scope={}", cell=_real("{2}")),
    r"[a-z_]+(?:us|\(us\)|\(usec\))": _TIME,
    r"[a-z_]+(?:gb/sec|\(gb(?:/s|/sec)?\))": _RATE,
    r"[a-z_]+(?:mmps|\(mmps\))": _MESSAGES,
    r"pe(\d+)->pe(\d+)": _RATE._replace(stat="rank={}->{}", cell=_real("{2}")),
    "min|max|mean|stddev|repetitions": Column(cell=r"\S+"),
}
"""Column name, in lower case and without blanks → column."""
_NO_LABELS = {"dtype": "", "redop": "", "scope": ""}
_TITLED: Sequence[Layout] = ((Column(cell="(?!)"),),)
"""Below a title: the header that follows has not been read."""
_HEADER = lazy(
    r"(?:#?\s*(?P<job>[A-Za-z]\w*)(?: \(GB/s\))?)??\s*"
    r"(?P<names>(?:size ?\(B\)|Size\(Bytes\))\s(?:.*?\S)??)\s*+(?:\[\d+/\d+\])?"
    r"|\|(?P<box>[^|\d][^|]*\|(?:\s*\w+ [\w/]+|(?:\s*(?:thread|warp) "
    r"\(us\)\s*\|)*\s*(?:thread|warp|block) \(us\)))"
    r"\s*\|"
)
_TITLE = lazy(
    r"#\s*(?P<dtype>\d+-bit) operand|(?P<operation>Put|Get) with (?P<scope>thread|warp|block)"
    r"|(?P<hash>#)?\s*(?P<job>[A-Za-z]\w*)(?:\.py| "
    r"\(GB/s\))?|\|\s*(?P<box>[A-Za-z]\w*)\s*\|\s*(?P<sub>\S+)\s*\|"
)
_RULE = lazy(r"\+-[-+]*|#\s*-+")
_FACTOR = lazy(r"\s*Job Name (\S+) bandwidth factor not set\. Using 1 values for bw\.\s*")
_FOOTER = lazy(r"#? ?Avg bus bandwidth\s*:")


def _of_table(text: str, execution: Execution | None) -> Events | None:
    """Return what a line of a table means; None for other lines."""
    header = _names_of_columns(text)
    if header is not None:
        layout = _layout(header["box"] or header["names"])
        if _is_known(layout):
            return _header(header["job"] or "", layout, _eras(text), execution)
        is_of_nccom = "elems" in text  # `count(elems)`
        if execution is not None and not header["box"] and not is_of_nccom:
            return (Setting(title=""), Header(_TITLED))  # its rows cannot be read
    title = _title(text, execution)
    if title is not None or execution is None:
        return title
    return _beside_rows(text, execution)


def _names_of_columns(text: str) -> re.Match[str] | None:
    if "ize" not in text and not text.startswith("|"):
        return None
    header = _HEADER.fullmatch(text)
    if header is None or not header["job"]:
        return header
    return header if JOB.fullmatch(header["job"]) else None


def _beside_rows(text: str, execution: Execution) -> Events | None:
    if _RULE.fullmatch(text):
        return (Note("rule"),)
    factor = _FACTOR.fullmatch(text)
    if factor is not None:
        return _without_factor(factor[1], execution)
    return (Note("eras", figures.V31),) if _FOOTER.match(text) else None


def _without_factor(job: str, execution: Execution) -> Events:
    """Read what 3.1 prints before each row of a job that is not a collective."""
    layouts = _misprinted(job)
    if not layouts or execution.layouts == layouts:
        return ()
    return (Setting(title=job), Header(layouts), Note("eras", figures.V31))


@lru_cache(maxsize=64)
def _layout(names: str) -> Layout:
    columns = names.split("|") if "|" in names else GAP.split(names)
    return read_columns(columns, _COLUMNS)


def _is_known(layout: Layout) -> bool:
    if layout[0] not in {SIZE, _THREADS} or UNKNOWN in layout:
        return False
    return any(column.exponent for column in layout)


def _eras(header: str) -> str:
    """Return the versions that print such names of columns."""
    if header.startswith("|"):
        return figures.V1 if "(us)" in header else figures.V2
    if header.startswith("Size("):
        return figures.V1
    names = " ".join(header.split())
    if " count " in names or " -> " in names:
        return figures.V33
    if "latency" not in names:
        return f"{figures.V32} {figures.V33}"
    # 3.1 prints only barriers like this, and everything between two PEs with the code for
    # collectives.
    return f"{figures.V31} {figures.V32} {figures.V33}"


def _header(job: str, layout: Layout, eras: str, execution: Execution | None) -> Events | None:
    """Return what the names of columns mean below a title.

    Their own, or that of the line before. None: the test of the rows is unknown, but there was a
    title.
    """
    title = job
    if not job and execution is not None and execution.layouts == _TITLED:
        title = execution.title
    kind = collective(title)
    has_pairs = any(column.metric == _RATE.metric for column in layout)
    if CUT_JOB.fullmatch(title) or (kind and has_pairs):
        return None
    if kind in figures.UNSIZED:
        layout = (_THREADS, *layout[1:])
    begins = _begins(job, execution) if job else execution is None
    events: list[Event] = [Begin()] if begins else []
    if job or (not title and execution is not None):
        events.append(Setting(title=job, labels=_NO_LABELS))
    return [*events, Header((layout,)), Note("eras", eras)]


def _title(text: str, execution: Execution | None) -> Events | None:
    """Read a title. Captions of users (`# 3.5.21`) do not count."""
    match = _TITLE.fullmatch(text)
    if match is None:
        return None
    job = _job_of(match)
    is_cut = match["hash"] and CUT_JOB.fullmatch(job)
    is_certain = bool(JOB.fullmatch(job) or is_cut)
    is_of_host = job.lower() in figures.HOST_TITLES and text != job
    if match["dtype"] is None and not is_certain and not is_of_host:
        return None
    sub_job = match["sub"] or match["scope"] or match["dtype"] or ""
    setting = Setting(title=job, labels={**_NO_LABELS, **_sub_job(sub_job)})
    if execution is None and not is_certain:
        return (Ahead((setting,)),)
    events = (setting, Header(_TITLED), Note("title", job))
    return (Begin(), *events) if _begins(job, execution) else events


def _job_of(title: re.Match[str]) -> str:
    if title["operation"]:
        operation = title["operation"].lower()
        return f"shmem_{operation}_bw"
    return title["job"] or title["box"] or figures.UNNAMED


def _notes_between(execution: Execution) -> list[Note]:
    """Return the notes of what was said since the last row."""
    statements = [said for each in execution.between for said in each.statements]
    return [said for said in statements if isinstance(said, Note)]


def _begins(job: str, execution: Execution | None) -> bool:
    """Return whether a title is that of another program than the tables before it."""
    if execution is None:
        return True
    if not execution.rows or case_of(execution.title) == case_of(job):
        return False
    return not _has_begun_once(execution)


def _has_begun_once(execution: Execution) -> bool:
    """Return whether the program prints text when it starts, and none has since the last row."""
    return has_begun(execution.notes) and not has_begun(_notes_between(execution))


def _another(execution: Execution, row: Row) -> bool:
    """Return whether a table repeats a row: a program prints each only once."""
    if any(note.kind == "copy" for note in execution.notes):
        return False
    if _has_begun_once(execution):
        return False
    key = _key(row)
    return any(_key(each) == key for each in execution.rows)


def _key(row: Row) -> tuple[str, int, Mapping[str, str]]:
    return (row.title, row.size, row.labels)


_SIGNS = {"msgrate|message_rate": _MESSAGES, "_bw|^bw|bandwidth": _RATE, "lat|ping": _TIME}
"""What names of jobs have → the column of their figure."""


@lru_cache(maxsize=64)
def _misprinted(job: str) -> Sequence[Layout]:
    """Return the layouts of a job between two PEs in 3.1, whose figure is in `latency(us)`.

    Empty: no such job.
    """
    name = job.lower()
    signs = [sign for sign in _SIGNS if re.search(sign, name)]
    if collective(job) or not signs:
        return ()
    column = _SIGNS[signs[0]]
    none = Column(cell="None")
    rate = Column(cell=r"1\.000")
    figure = (column, rate, rate)
    uninitialized = Column(cell=r"\S+")  # the scope
    return ((SIZE, none, uninitialized, *figure), (SIZE, none, *figure))


_OPERATIONS = ("sum", "prod", "and", "or", "xor", "min", "max")
_SCOPES = ("thread", "warp", "block", "t", "w", "b")
_KINDS = {**dict.fromkeys(_OPERATIONS, "redop"), **dict.fromkeys(_SCOPES, "scope")}


def _sub_job(text: str) -> dict[str, str]:
    words = re.findall(r"\d+-bit|[^-\s]+", text)
    return {_KINDS.get(word.lower(), "dtype"): word for word in reversed(words)}


# Machine-readable rows: a compile-time option up to 2.11, and NVSHMEM_MACHINE_READABLE_OUTPUT=1
# from 3.0.6 on. The sign shows which direction is better. PERF_STATS, with the statistics of
# repetitions, was added after 3.6.
_SIGN = "&&&& PERF"
_LONGEST_PERF = 400
_NUMBER = r"\d{1,18}(?:\.\d{1,18})?|-?inf|-?nan"
_PERF = lazy(
    r"(?P<start>&&&& PERF(?P<stats>_STATS)? "
    r"(?P<job>\S(?:(?!___)\S)*)___(?P<sub>.*?)___(?P<variable>[^_\s][^_]*?)__)\d{1,18}___\S+ "
    r"(?:\S+ )?[+-](?P<unit>[A-Za-z/]+)(?: .*)?"
)
_PERF_REST = lazy(
    r"___\w{1,100}?__\d{1,18}___\S++ \d|PERF(?:_STATS)? \S(?:(?!___)\S)*___\S*___\w{1,100}?__\d"
)
_PERF_STATISTICS = {"mean": "mean", "stddev": "stdev", "min": "min", "max": "max"}


def _perf(text: str, execution: Execution | None) -> Events | None:
    """Read a machine-readable row: others of its job, and only these, have the same columns."""
    match = _PERF.fullmatch(text) if len(text) < _LONGEST_PERF else None
    layout = _perf_layout(match) if match is not None else None
    layouts = _TITLED if layout is None else (layout,)
    if execution is not None and execution.layouts == layouts:
        return None
    if match is None or layout is None:
        begin = () if execution is not None else (Begin(),)
        return (*begin, Header(_TITLED, is_row=True))
    job = match["job"]
    eras = figures.V33 if match["stats"] else " ".join(figures.ALL)
    return (
        *((Begin(),) if _begins(job, execution) else ()),
        Setting(title=job, labels={**_NO_LABELS, **_sub_job(match["sub"])}),
        Note("eras", eras),
        Header(layouts, is_row=True),
    )


def _perf_layout(match: re.Match[str]) -> Layout | None:
    """Return the columns of a machine-readable row; None if its unit is not known."""
    unit = match["unit"]
    (column,) = read_columns([f"x({unit})"], _COLUMNS)
    if not column.exponent:
        return None
    start = Column("perf", cell=re.escape(match["start"]))
    is_by_size = match["variable"].lower().startswith("size")
    counted = (SIZE if is_by_size else _THREADS)._replace(joined=True)
    end = Column(cell=r"___\S+", joined=True)
    unit_column = Column(cell=rf"[+-]{unit}")
    if not match["stats"]:
        return (start, counted, end, column._replace(cell=_real("{6}")), unit_column)
    statistics: list[Column] = []
    for name, stat in _PERF_STATISTICS.items():
        figure = column._replace(stat=stat, cell=_NUMBER, joined=True)
        statistics += (Column(cell=f"{name}="), figure)
    repetitions = Column(cell=r"repetitions=\d+")
    return (start, counted, end, unit_column, *statistics, repetitions)


_ROW = lazy(r"\d{1,18}\s[^:=]*\s?\d{1,18}\.\d{2,6}\s*", re.ASCII)


def _remains(text: str, layout: Layout) -> bool:
    words = text.replace("|", " ").split()
    is_of_perf = layout[0].metric == "perf" or text.startswith("&")
    if layout is _TITLED[0] or is_of_perf:
        return _is_left_of_any(text, words)
    if _is_begun_row(words, layout, text):
        return True
    if text.startswith(("#", "+")):
        return False
    return text.startswith("Job Name shmem_") or is_remains(words, cell_patterns(layout))


def _is_left_of_any(text: str, words: Sequence[str]) -> bool:
    """Return whether a line may be left of a row whose columns are not known."""
    begun_sign = _SIGN[: len(text)]
    if text.startswith("&") and text.startswith(begun_sign):
        return True
    row = _ROW.fullmatch(" ".join(words))
    return bool(row or _PERF_REST.search(text))


def _is_begun_row(words: Sequence[str], layout: Layout, text: str) -> bool:
    if not words or not words[0].isdigit():
        return False
    second = words[1] if len(words) > 1 else ""
    if second.startswith(("None", "with")):
        return True
    return len(layout) == 2 and "." in text and not is_prose(text)


_MAY_MATTER = lazy(
    r"exactly two|mype|time opt|_size:|ull list|shmem|SHMEM|status|NULL "
    r"value|failed|WARN|option|round-trip"
    r"|Selected provider|_latency|_bw|on_stream"
)
_COMMAND = lazy(
    r"(?:[$+#>%]+ +)*(?:\w+=\S* +)*"
    rf"(?:(?:\S*/)?(?:mpirun|mpiexec(?:\.hydra)?|orterun|prterun|srun|nvshmrun(?:\.hydra)?|env|timeout)\s(?:.*[\s/'\"])?"
    rf"|\S*/)?(?P<program>{PROGRAM})(?:[\s'\";].*)?"
)
_MYPE = lazy(r"mype: (\d{1,7}) mype_node: (\d{1,7})(?= )")
# NVSHMEM_DEBUG=INFO: transport.cpp and libfabric.cpp of 3.4.5; the first is printed once the
# transport works. Transports print without NVSHMEM's prefix, to standard error
# (transport_common.h).
_SHOWN = lazy(
    r"\bNVSHMEM v(?P<version>\d{1,4}\.\d{1,4}\.\d{1,4})\b"
    r"|NVSHMEM INFO Successfully initialized the transport: (?P<transport>[A-Za-z]\w*)"
    r"|NVSHMEM INFO \w+ transport skipped in favor of: (?P<none>none)\b"
    r"|(?:NVSHMEM INFO|libfabric\.cpp \d+) Selected provider (?P<provider>\S+), fabric "
    r"(?P<fabric>\S+), nic \S+, hmem"
)
_FATAL = lazy(
    r".*nvshmem initialization failed, exiting|.*\bNVSHMEM (?:ERROR|ABORT)\b"
    rf"|(?:\S*/)?{PROGRAM}: (?:unrecognized option|invalid option|option requires|error while "
    r"loading)"
    rf"|(?:\S+: )+(?:line \d+: )?(?:\S*/)?{PROGRAM}: (?:command not found|not found|No such file)"
)
_MESSAGE = lazy(
    # Too common to begin an execution; the failure may also be that of a transport that was only
    # tried.
    r"(?P<error>.*(?:: non-zero status: -?\d|: NULL value |\bcuda failed with ))"
    r"|(?P<warning>(?:.*\bNVSHMEM )?WARN\b)"
)


def _around(text: str, execution: Execution | None) -> Events | None:
    if text.startswith("min_size:"):
        return _options(text, execution)
    pes = [Note("pe", *numbers) for numbers in _MYPE.findall(text)]
    if pes:
        return _pes(pes, execution)
    command = _COMMAND.fullmatch(text)
    if command is not None:
        return (Command(command["program"]), Stop())
    notes = [*_shown(text)]
    quote = " ".join(text.split())[:LONGEST_QUOTE]
    if _FATAL.match(text):
        failure = Fail(f"NVSHMEM reported: {quote}")
        return _begin_or_between((failure, *notes), begins=execution is None)
    notes += _message(text, quote, execution)
    if not notes:
        return None
    return (Ahead(notes),) if execution is None else (Between(notes),)


def _begin_or_between(said: Sequence[Statement], *, begins: bool) -> Events:
    return (Begin(), *said) if begins else (Between(said),)


def _options(text: str, execution: Execution | None) -> Events:
    """Read the options that a PE prints: others begin an execution."""
    said = (Note("options", text),)
    if execution is None:
        return _begin_or_between(said, begins=True)
    new = figures.printed_options(text)
    before = [note.value for note in execution.notes if note.kind == "options"]
    old = figures.printed_options(before[0]) if before else {}
    both = new.keys() & old.keys()  # a truncated line may lack some
    differs = any(new[name] != old[name] for name in both)
    return _begin_or_between(said, begins=differs)


def _shown(text: str) -> Iterator[Note]:
    """Return what debug text shows."""
    shown = _SHOWN.search(text)
    named = {} if shown is None else shown.groupdict()
    for name, value in named.items():
        if value:
            kind = "transport" if name == "none" else name
            yield Note(kind, value.lower(), text[:LONGEST_QUOTE])


def _message(text: str, quote: str, execution: Execution | None) -> Iterator[Note]:
    """Return an error or, of an open execution, a warning."""
    message = _MESSAGE.match(text)
    if message is not None and (message["error"] or execution is not None):
        yield Note("error" if message["error"] else "warning", quote)


def _pes(new: Sequence[Note], execution: Execution | None) -> Events:
    """Read PEs that print their numbers: each does so once."""
    if execution is None:
        return _begin_or_between(new, begins=True)
    before = (*execution.notes, *_notes_between(execution))
    old = {note.value for note in before if note.kind == "pe"}
    pes = {note.value for note in new}
    has_nothing = not execution.rows and not execution.record.failures
    if old == pes == {"0"} and has_nothing:
        return (Note("copy"),)
    return _begin_or_between(new, begins=not old.isdisjoint(pes))


def _events(text: str, execution: Execution | None) -> Events | None:
    text = text[:_LONGEST_LINE].strip()
    if text.startswith(_SIGN):
        return _perf(text, execution)
    events = _of_table(text, execution)
    if events is None and _MAY_MATTER.search(text):
        return _around(text, execution)
    return events


_LONGEST_LINE = 4096
"""The longest lines of the programs are their options."""


TABLE = Table(
    benchmark="nvshmem",
    program="NVSHMEM",
    events=_events,
    failed=lazy(r"\s*[Uu]sage\s*:.*"),
    failing="\n",  # never outside of an execution
    fits=is_ascending,
    remains=_remains,
    settle=figures.settle,
    another=_another,
    over_mpi=False,
)
