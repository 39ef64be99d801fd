"""The tables of the perftests, and the text around them: what each line means.

All PEs print their options when they start, one PE prints tables, and the output of the others may
arrive in the middle of them. Every column has a fixed number of decimals, which reveals truncated
cells.
"""

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache

from fabbench.benchmarks.consistency import is_remains
from fabbench.benchmarks.events import (
    Ahead,
    Begin,
    Command,
    Event,
    Events,
    Header,
    Note,
    Setting,
    Stop,
)
from fabbench.benchmarks.executions import Execution, Table
from fabbench.benchmarks.nvshmem import figures
from fabbench.benchmarks.nvshmem.figures import (
    CUT_TITLE,
    NVSHMEM_TITLE,
    PROGRAM,
    case_of,
    collective,
    has_begun,
)
from fabbench.benchmarks.tables import (
    GAP,
    SIZE,
    UNKNOWN,
    Column,
    Layout,
    cell_patterns,
    columns_of,
    read_columns,
)
from fabbench.model.messages import LONGEST_QUOTE, single_spaced
from fabbench.model.patterns import Match, lazy

_COLUMNS = columns_of("nvshmem")
_THREADS = _COLUMNS["threads.*"]
_NO_ROWS: Sequence[Layout] = ((Column(cell="(?!)"),),)
"""Below a title, whose header has not been read, and below a header that is not read."""
_HEADER = lazy(
    r"(?:#?\s*(?P<job>[A-Za-z]\w*)(?: \(GB/s\))?)??\s*"
    r"(?P<names>size ?\(B\)\s(?:.*?\S)??)\s*+(?:\[\d+/\d+\])?"
)
_TITLE = lazy(r"(?P<hash>#)?\s*(?P<job>[A-Za-z]\w*)(?:\.py| \(GB/s\))?")
_NOT_READ = lazy(r"(?P<row>&&&& PERF)|\| size \([Bb]ytes\) +\||Size\(Bytes\)\s")
"""Machine-readable rows, and headers of releases before 3.1."""
_BESIDE_ROWS = lazy(r"#? ?Avg bus bandwidth\s*:|Job Name \S+ bandwidth factor not set\.")


def _of_table(text: str, execution: Execution | None) -> Events | None:
    """Return what a line of a table means; None for other lines.

    Empty: it is of a table, and says nothing.
    """
    not_read = _NOT_READ.match(text)
    if not_read is not None:
        return _not_read_events(execution, is_row=bool(not_read["row"]))
    header = _names_of_columns(text)
    if header is None:
        return () if _BESIDE_ROWS.match(text) else _title(text, execution)
    layout = _layout(header["names"])
    if _is_known(layout):
        events = _header_events(header["job"] or "", layout, execution)
        if events is not None:
            return events
    is_of_nccom = "elems" in text  # `count(elems)`: the table of another program
    if execution is None or is_of_nccom:
        return None
    return (Setting(title=""), Header(_NO_ROWS))  # rows below unknown columns are damaged


def _not_read_events(execution: Execution | None, *, is_row: bool = False) -> Events:
    """Say once in an execution that such tables are not read: their rows are damaged.

    `is_row`: whether the line is a row itself, as all lines with `&&&& PERF` are.
    """
    header = Header(_NO_ROWS, is_row=is_row)
    if execution is None:
        return (Begin(), header, figures.NOT_READ)
    if figures.NOT_READ in execution.record.findings:
        return (header,)
    return (header, figures.NOT_READ)


def _names_of_columns(text: str) -> Match | None:
    """Return the match of a line of column names, behind a job's name or alone."""
    header = _HEADER.fullmatch(text) if "size" in text else None
    if header is None or not header["job"]:
        return header
    return header if NVSHMEM_TITLE.fullmatch(header["job"]) else None


@lru_cache(maxsize=64)
def _layout(names: str) -> Layout:
    return read_columns(GAP.split(names), _COLUMNS)


def _is_known(layout: Layout) -> bool:
    """Return whether all columns are known, and one of them is a figure: it has a unit."""
    if layout[0] not in {SIZE, _THREADS} or UNKNOWN in layout:
        return False
    return any(column.exponent for column in layout)


def _header_events(job: str, layout: Layout, execution: Execution | None) -> Events | None:
    """Return what the names of columns mean below a title: their own, or that of the line before.

    `job`: the title on the line of the names itself; empty: it has none.

    What columns mean is certain where sizes are counted, too (the column `count`), and of
    collectives that print one size in all releases. Without, 3.1 prints bandwidths between two PEs
    in the columns of collectives. None: the title is cut, or not that of such columns.
    """
    title = job
    # So far there is a title, and no header below it.
    if not job and execution is not None and execution.layouts == _NO_ROWS:
        title = execution.title
    kind = collective(title)
    metrics = {column.metric for column in layout}
    is_certain = "count" in metrics or "on_stream" in title or kind in figures.OF_ONE_SIZE
    if "busbw" in metrics and not is_certain:
        return _not_read_events(execution)
    if CUT_TITLE.fullmatch(title) or (kind and "bandwidth" in metrics):
        return None
    if kind in figures.UNSIZED:  # whose column of sizes has the threads of a block
        layout = (_THREADS, *layout[1:])
    begins = _begins_program(job, execution) if job else _begins_excerpt(title, execution)
    events: list[Event] = [Begin()] if begins else []
    # The title of the line before is set already; one of an earlier table does not count.
    if job or (not title and execution is not None):
        events.append(Setting(title=job))
    return [*events, Header((layout,))]


def _title(text: str, execution: Execution | None) -> Events | None:
    """Read a title. Captions of users (`# 3.5.21`) do not count."""
    match = _TITLE.fullmatch(text)
    if match is None:
        return None
    job = match["job"]
    setting = Setting(title=job)
    if not NVSHMEM_TITLE.fullmatch(job):
        # The host programs print theirs behind a hash.
        is_of_host = match["hash"] and job.lower() in figures.HOST_TITLES
        if not is_of_host:
            return None
        if execution is None:  # other programs print such titles, too: its header decides
            return (Ahead((setting,)),)
    events = (setting, Header(_NO_ROWS), Note("title", job))
    return (Begin(), *events) if _begins_program(job, execution) else events


def _begins_excerpt(title: str, execution: Execution | None) -> bool:
    """Return whether a header begins an execution without a title, as in an excerpt of tables."""
    if execution is None:
        return True
    is_excerpt = not execution.title and not has_begun(execution.notes)
    return is_excerpt and not title and bool(execution.rows)


def _begins_program(job: str, execution: Execution | None) -> bool:
    """Return whether a title is that of another program than the tables before it."""
    if execution is None:
        return True
    if not execution.rows or case_of(execution.title) == case_of(job):
        return False
    # Programs that print text when they start would have done so: it is a title of the same run.
    return not _has_begun_once(execution)


def _has_begun_once(execution: Execution) -> bool:
    """Return whether the program prints text when it starts, and none has since the last row."""
    count = len(execution.rows)
    above = [note for note in execution.notes if note.rows_above < count]
    below = execution.notes[len(above) :]
    return has_begun(above) and not has_begun(below)


_BEGUN_ROW = lazy(r"\d{1,18}\s+(?:None|with(?:out)?)\b")
_ROW = lazy(r"\d{1,18}\s[^:=]*\s?\d{1,18}\.\d{2,6}\s*", re.ASCII)


def _remains(text: str, layout: Layout) -> bool:
    """Return whether a line may be what is left of a row, or begins like one."""
    words = text.replace("|", " ").split()
    if layout is _NO_ROWS[0]:  # any row counts, as its columns are not known
        return _ROW.fullmatch(" ".join(words)) is not None
    if text.startswith("#"):
        return False
    if _BEGUN_ROW.match(text):
        return True
    return is_remains(words, cell_patterns(layout))


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


def _around_tables(text: str, execution: Execution | None) -> Events | None:
    """Return what a line outside of tables means: options, PEs, a command, debug text, an error.

    Only options, PEs and fatal errors begin an execution: other text is about the next one.
    """
    if text.startswith("min_size:"):
        return _options(text, execution)
    # A PE's number and, in place of the quoted line, that on its node.
    pes = [Note("pe", *numbers) for numbers in _MYPE.findall(text)]
    if pes:
        return _pes(pes, execution)
    command = _COMMAND.fullmatch(text)
    if command is not None:
        return (Command((Setting(command["program"]),)), Stop())  # it ends what is above
    notes = [*_shown_by_debug_text(text)]
    quote = single_spaced(text)[:LONGEST_QUOTE]
    if _FATAL.match(text):
        notes.append(Note("fatal", quote))
        return notes if execution is not None else (Begin(), *notes)
    notes += _message(text, quote, execution)
    if not notes:
        return None
    return notes if execution is not None else (Ahead(notes),)


def _options(text: str, execution: Execution | None) -> Events:
    """Read the options that a PE prints: others begin an execution."""
    note = Note("options", text)
    if execution is None:
        return (Begin(), note)
    before = (note.value for note in execution.notes if note.kind == "options")
    first_printed = next(before, "")  # all PEs print the same
    options_before = figures.printed_options(first_printed)
    options = figures.printed_options(text)
    in_both = options.keys() & options_before.keys()  # a truncated line may lack some
    differs = any(options[name] != options_before[name] for name in in_both)
    return (Begin(), note) if differs else (note,)


def _shown_by_debug_text(text: str) -> Iterator[Note]:
    """Return what debug text shows: the version, the transport, the provider and its fabric."""
    shown = _SHOWN.search(text)
    values = {} if shown is None else shown.groupdict()
    for name, value in values.items():
        if value:
            kind = "transport" if name == "none" else name
            yield Note(kind, value.lower(), text[:LONGEST_QUOTE])


def _message(text: str, quote: str, execution: Execution | None) -> Iterator[Note]:
    """Return an error or, of an open execution, a warning. `quote`: the text for users."""
    message = _MESSAGE.match(text)
    if message is not None and (message["error"] or execution is not None):
        yield Note("error" if message["error"] else "warning", quote)


def _pes(notes: Sequence[Note], execution: Execution | None) -> Events:
    """Read PEs that print their numbers: each does so once, so that a second time begins a run.

    A second PE 0 above all rows is a copy that measures alone, unless the first one has failed.
    """
    if execution is None:
        return (Begin(), *notes)
    pes_before = {note.value for note in execution.notes if note.kind == "pe"}
    pes = {note.value for note in notes}
    has_failed = any(note.kind == "fatal" for note in execution.notes)
    if pes_before == pes == {"0"} and not execution.rows and not has_failed:
        return (Note("copy"),)
    return notes if pes_before.isdisjoint(pes) else (Begin(), *notes)


def _events(text: str, execution: Execution | None) -> Events | None:
    # Return what a line other than a row means; None: it is of another program.
    text = text[:_LONGEST_LINE].strip()
    events = _of_table(text, execution)
    # For speed, other lines are searched only if they have one of a few words.
    if events is None and _MAY_MATTER.search(text):
        return _around_tables(text, execution)
    return events


_LONGEST_LINE = 4096
"""The longest lines of the programs are their options."""


TABLE = Table(
    benchmark="nvshmem",
    program="NVSHMEM",
    events=_events,
    failed=lazy(r"\s*[Uu]sage\s*:.*"),
    failing="\n",  # never outside of an execution
    fits=figures.fits,
    remains=_remains,
    notes_ahead=True,
    settle=figures.settle,
    over_mpi=False,
)
