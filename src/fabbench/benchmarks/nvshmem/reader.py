"""The tables of the perftests, by version, and the text around them: what each line means.

All PEs print their options when they start, one PE prints tables, and the output of the others may
arrive in the middle of them. Every column has a fixed number of decimals, which reveals truncated
cells.
"""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache

from fabbench.benchmarks import engine
from fabbench.benchmarks.consistency import is_remains
from fabbench.benchmarks.engine import SIZE, Cells, Column, Execution, Layout, Note, Row, Statement
from fabbench.benchmarks.nvshmem import figures
from fabbench.benchmarks.nvshmem.figures import (
    CUT_JOB,
    JOB,
    PROGRAM,
    case_of,
    collective,
    has_begun,
)
from fabbench.model.messages import LONGEST_QUOTE
from fabbench.model.patterns import lazy


def _real(decimals: str) -> str:
    return rf"\d{{1,18}}\.\d{decimals}|-?inf|-?nan"


_TIME = Column("latency", exponent=-6, cell=_real("{6,7}"))  # 7 in Python
_RATE = Column(
    "bandwidth", exponent=9, cell=_real("{6}")
)  # GB is 2^30 bytes in some versions: see figures.py
_MESSAGES = Column("message_rate", exponent=6, cell=_real("{6}"))
_THREADS = Column(label="threads", cell=engine.COUNT)
_WORD = r"[A-Za-z(][\w()+-]*|\d+-bit"
_COLUMNS: Mapping[str, Column] = {
    r"size\(b(?:ytes)?\)": SIZE,
    "threads.*": _THREADS,
    "count": Column(cell=engine.COUNT),
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
}  # column name, in lower case and without blanks → column
_NO_LABELS = {"dtype": "", "redop": "", "scope": ""}
_TITLED: Sequence[Layout] = (
    (Column(cell="(?!)"),),
)  # below a title: the header that follows has not been read
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


def _table_line(text: str, execution: Execution | None) -> Statement | None:
    bare = text.strip()
    header = _HEADER.fullmatch(bare) if "ize" in text or bare[:1] == "|" else None
    if header is not None and (not header["job"] or JOB.fullmatch(header["job"])):
        layout = _layout(header["box"] or header["names"])
        if (
            layout[0] in {SIZE, _THREADS}
            and engine.UNKNOWN not in layout
            and any(each.exponent for each in layout)
        ):
            return _header(header["job"] or "", layout, _eras(" ".join(bare.split())), execution)
        if execution is not None and not header["box"] and "elems" not in bare:
            return Statement(
                title="", layouts=_TITLED
            )  # its rows cannot be read; nccom-test has `count(elems)`
    if (title := _title(bare, execution)) is not None or execution is None:
        return title
    if _RULE.fullmatch(bare):
        return Statement(notes=[Note("rule")])
    if (match := _FACTOR.fullmatch(text)) is not None:
        # 3.1 prints this before each row of a job that is not a collective.
        layouts = _misprinted(match[1])
        known = not layouts or execution.layouts == layouts
        return (
            engine.NO_MEANING
            if known
            else Statement(title=match[1], layouts=layouts, notes=[Note("eras", figures.V31)])
        )
    return Statement(notes=[Note("eras", figures.V31)]) if _FOOTER.match(text) else None


@lru_cache(maxsize=64)
def _layout(names: str) -> Layout:
    return engine.read_columns(
        names.split("|") if "|" in names else engine.GAP.split(names), _COLUMNS
    )


def _eras(header: str) -> str:
    if header[0] == "|" or header.startswith("Size("):
        return figures.V2 if header[0] == "|" and "(us)" not in header else figures.V1
    if " count " in header or " -> " in header:
        return figures.V33
    # 3.1 prints only barriers like this, and everything between two PEs with the code for
    # collectives.
    return (
        f"{figures.V31} {figures.V32} {figures.V33}"
        if "latency" in header
        else f"{figures.V32} {figures.V33}"
    )


def _header(job: str, layout: Layout, eras: str, execution: Execution | None) -> Statement | None:
    """Return what the names of columns mean below a title.

    Their own, or that of the line before.
    """
    title = job or (
        execution.title if execution is not None and execution.layouts == _TITLED else ""
    )
    if CUT_JOB.fullmatch(title) or (
        collective(title) and any(each.metric == _RATE.metric for each in layout)
    ):
        return None  # the test of the rows is unknown, but there was a title
    layouts: Sequence[Layout] = (
        (_THREADS, *layout[1:]) if collective(title) in figures.UNSIZED else layout,
    )
    begins = _begins(job, execution) if job else execution is None
    said = Statement(begins=begins, layouts=layouts, notes=[Note("eras", eras)])
    return (
        said._replace(title=job, labels=_NO_LABELS)
        if job or (not title and execution is not None)
        else said
    )


def _title(text: str, execution: Execution | None) -> Statement | None:
    """Read a title. Captions of users (`# 3.5.21`) do not count."""
    match = _TITLE.fullmatch(text)
    if match is None:
        return None
    job = (
        match["job"]
        or match["box"]
        or (f"shmem_{match['operation'].lower()}_bw" if match["operation"] else figures.UNNAMED)
    )
    certain = bool(JOB.fullmatch(job) or (match["hash"] and CUT_JOB.fullmatch(job)))
    if (
        match["dtype"] is None
        and not certain
        and (job.lower() not in figures.HOST_TITLES or text == job)
    ):
        return None
    labels = {**_NO_LABELS, **_sub_job(match["sub"] or match["scope"] or match["dtype"] or "")}
    if execution is None and not certain:
        return Statement(above=True, title=job, labels=labels)
    said = Statement(title=job, labels=labels, layouts=_TITLED, notes=[Note("title", job)])
    return said._replace(begins=_begins(job, execution))


def _late(execution: Execution) -> list[Note]:
    return [note for said in execution.late for note in said.notes]


def _begins(job: str, execution: Execution | None) -> bool:
    """Return whether a title is that of another program than the tables before it."""
    if execution is None:
        return True
    other = bool(execution.rows) and case_of(execution.title) != case_of(job)
    return other and (not has_begun(execution.notes) or has_begun(_late(execution)))


def _another(execution: Execution, row: Row) -> bool:
    """Return whether a table repeats a row: a program prints each only once."""
    copies = any(note.kind == "copy" for note in execution.notes)
    if copies or (has_begun(execution.notes) and not has_begun(_late(execution))):
        return False  # this program prints text when it starts, and no program has since
    key = row.title, row.size, row.labels
    return any((each.title, each.size, each.labels) == key for each in execution.rows)


@lru_cache(maxsize=64)
def _misprinted(job: str) -> Sequence[Layout]:
    """Return the layouts of a job between two PEs in 3.1, whose figure is in `latency(us)`.

    Empty: no such job.
    """
    signs = {"msgrate|message_rate": _MESSAGES, "_bw|^bw|bandwidth": _RATE, "lat|ping": _TIME}
    column = next((column for sign, column in signs.items() if re.search(sign, job.lower())), None)
    if collective(job) or column is None:
        return ()
    none, end = Column(cell="None"), (column, *(Column(cell=r"1\.000"),) * 2)
    return (SIZE, none, Column(cell=r"\S+"), *end), (
        SIZE,
        none,
        *end,
    )  # the scope is not initialized


_KINDS = dict.fromkeys(["sum", "prod", "and", "or", "xor", "min", "max"], "redop") | dict.fromkeys(
    ["thread", "warp", "block", "t", "w", "b"], "scope"
)


def _sub_job(text: str) -> dict[str, str]:
    words = re.findall(r"\d+-bit|[^-\s]+", text)
    return {_KINDS.get(word.lower(), "dtype"): word for word in reversed(words)}


# Machine-readable rows: a compile-time option up to 2.11, and NVSHMEM_MACHINE_READABLE_OUTPUT=1
# from 3.0.6 on. The sign shows which direction is better. PERF_STATS, with the statistics of
# repetitions, was added after 3.6.
_SIGN = "&&&& PERF"
_NUMBER = r"\d{1,18}(?:\.\d{1,18})?|-?inf|-?nan"
_PERF = lazy(
    r"&&&& PERF(?P<stats>_STATS)? "
    r"(?P<job>\S(?:(?!___)\S)*)___(?P<sub>.*?)___(?P<variable>[^_\s][^_]*?)__(?P<size>\d{1,18})___\S+"
    rf"(?(stats)| (?P<value>{_real('{6}')})) [+-](?P<unit>[A-Za-z/]+)(?(stats) "
    rf"mean=(?P<mean>{_NUMBER})"
    rf" stddev=(?P<stdev>{_NUMBER}) min=(?P<min>{_NUMBER}) max=(?P<max>{_NUMBER}) "
    r"repetitions=\d+)\s*"
)
_PERF_REST = lazy(
    r"___\w{1,100}?__\d{1,18}___\S++ \d|PERF(?:_STATS)? \S(?:(?!___)\S)*___\S*___\w{1,100}?__\d"
)


@lru_cache(maxsize=4)
def _perf(text: str) -> tuple[Statement, str]:
    match = _PERF.fullmatch(text) if len(text) < 400 else None
    (column,) = engine.read_columns([f"x({match['unit']})" if match is not None else ""], _COLUMNS)
    if match is None or not column.exponent:
        return Statement(layouts=_TITLED, row=True), text
    names = ("mean", "stdev", "min", "max") if match["stats"] else ("value",)
    values = (
        [column._replace(stat=name, cell=_NUMBER) for name in names] if match["stats"] else [column]
    )
    start = f"{match['job']} {match['sub']}"
    size = SIZE if match["variable"].lower().startswith("size") else _THREADS
    layout = (Column("perf", cell=re.escape(start)), size, *values)
    labels, eras = (
        {**_NO_LABELS, **_sub_job(match["sub"])},
        figures.V33 if match["stats"] else " ".join(figures.ALL),
    )
    said = Statement(
        title=match["job"], labels=labels, layouts=(layout,), notes=[Note("eras", eras)], row=True
    )
    return said, " ".join((start, match["size"], *(match[name] for name in names)))


def _cells(text: str) -> Cells:
    bare = text.strip()
    if bare.startswith(_SIGN):
        return Cells(_perf(bare)[1])
    return Cells(bare[1:-1].replace("|", " ") if _BOXED.fullmatch(bare) else bare)


_BOXED = lazy(r"\|(?:\s*[^\s|]+\s*\|)+")
_ROW = lazy(r"\d{1,18}\s[^:=]*\s?\d{1,18}\.\d{2,6}\s*", re.ASCII)


def _remains(text: str, layout: Layout) -> bool:
    cells = text.replace("|", " ").split()
    if layout is _TITLED[0] or layout[0].metric == "perf" or text[:1] == "&":
        torn = text[:1] == "&" and text.startswith(_SIGN[: len(text)])
        return (
            torn
            or _ROW.fullmatch(" ".join(cells)) is not None
            or _PERF_REST.search(text) is not None
        )
    if (
        cells
        and cells[0].isdigit()
        and ((*cells, "")[1][:4] in {"None", "with"} or (len(layout) == 2 and "." in text))
    ):
        return True
    left = text.startswith("Job Name shmem_") or is_remains(cells, engine.cell_patterns(layout))
    return left and text[:1] not in {"#", "+"}


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


def _around(text: str, execution: Execution | None) -> Statement | None:
    line, none = text.strip()[:LONGEST_QUOTE], execution is None
    notes, words = list[Note](), " ".join(text.split())[:LONGEST_QUOTE]
    if line.startswith("min_size:"):
        new = figures.printed_options(text)
        kept = (
            [each.value for each in execution.notes if each.kind == "options"]
            if execution is not None
            else []
        )
        old = figures.printed_options(kept[0]) if kept else {}  # a truncated line may lack some
        differs = none or any(new.get(name, value) != value for name, value in old.items())
        return Statement(late=True, begins=differs, notes=[Note("options", text)])
    if pes := _MYPE.findall(text):
        return _pes([Note("pe", *pe) for pe in pes], execution)
    if (match := _COMMAND.fullmatch(text.strip())) is not None:
        return Statement(above=True, ends=True, end=0, case=match["program"])
    if (match := _SHOWN.search(text)) is not None:
        named = match.groupdict().items()
        notes = [
            Note("transport" if name == "none" else name, value.lower(), line)
            for name, value in named
            if value
        ]
    if _FATAL.match(text):
        return Statement(begins=none, late=True, failure=f"NVSHMEM reported: {words}", notes=notes)
    if (match := _MESSAGE.match(text)) is not None and not (none and match["warning"]):
        notes.append(Note(match.lastgroup or "", words))
    return Statement(above=none, late=True, notes=notes) if notes else None


def _pes(new: Sequence[Note], execution: Execution | None) -> Statement:
    """Read PEs that print their numbers: each does so once."""
    if execution is None:
        return Statement(begins=True, notes=new)
    old = {note.value for note in (*execution.notes, *_late(execution)) if note.kind == "pe"}
    pes = {note.value for note in new}
    if old == pes == {"0"} and not execution.rows and not execution.record.failures:
        return Statement(notes=[Note("copy")])
    return Statement(begins=not old.isdisjoint(pes), late=True, notes=new)


def _statement(text: str, execution: Execution | None) -> Statement | None:
    text = text[:4096].strip()  # the longest lines of the programs are their options
    if text.startswith(_SIGN):
        said, _ = _perf(text)
        known = execution is not None and execution.layouts == said.layouts
        begins = execution is None or (bool(said.title) and _begins(said.title or "", execution))
        return None if known else said._replace(begins=begins)
    of_table = _table_line(text, execution)
    return _around(text, execution) if of_table is None and _MAY_MATTER.search(text) else of_table


TABLE = engine.Table(
    benchmark="nvshmem",
    program="NVSHMEM",
    statement=_statement,
    failed=lazy(r"\s*[Uu]sage\s*:.*"),
    failing="\n",  # never outside of an execution
    fits=engine.is_ascending,
    cells=_cells,
    remains=_remains,
    settle=figures.settle,
    another=_another,
    over_mpi=False,
)
