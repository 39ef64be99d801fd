"""Reads the output of the fabtests.

Tables since 2014, machine-readable rows and errors, of both sides of a pair.

``[name] bytes [xfers] iters total time RATE usec/xfer [Mxfers/sec]``. RATE is Gb/sec (1e9 bits per
second) until 2016-02 and MB/sec (1e6 bytes per second) since; Mxfers/sec was added after MB/sec,
and `xfers` removed in 2014-10. Machine-readable rows (``-m``) have all digits: ``- { xfer_size: 64,
iterations: 10000, … }``. From `show_perf` and `show_perf_mr` in fabtests/common/shared.c.
"""

from collections.abc import Iterator

from fabbench.benchmarks.events import Ahead, Error, Events, Header, Setting, Stop, Wrong
from fabbench.benchmarks.executions import Execution, Table
from fabbench.benchmarks.libfabric import reader as libfabric
from fabbench.benchmarks.libfabric.reader import COLUMNS, Pair, PairReader, Process
from fabbench.benchmarks.tables import COUNT, Cells, Column, Layout, Row, is_left, read_columns
from fabbench.model.patterns import lazy

_PROGRAMS = (
    r"fi_(?:(?:rdm|msg|dgram|rma|rc|ud|efa)_"
    r"(?=\w*?(?:pingpong|bw|rma|lat|atomic|tx_completion))\w+"
    r"|efa_gda|efa_hw_cntr_test|rdm_atomic|rma_\w+|multi_recv|unmap_mem|ubertest)"
    # a pattern for the programs' names, since 2014. Other fabtests are functional tests and measure
    # nothing.
)

_COMMAND = lazy(rf"(?:^|(?<=[\s/]))(?:lt-)?({_PROGRAMS})(?=\s|$)")
_LONG_OPTIONS = (
    "pin-core= timeout= debug-assert data-progress= control-progress= max-msg-size= use-fi-more "
    "threading= "
    "no-rx-cq-data expect-error= sync-comp="
)
_OPTIONS = ("B:P:s:a:C:F:O:f:d:p:KD:i:HRe:M:I:QS:mc:t:w:lo:rvkj:W:UT:n:hxu:", _LONG_OPTIONS, "bE")
# The argument vector above machine-readable rows: ``fi_rdm_bw -m :``, or ``--- # fi_rdm_bw -m``
# (2014).
_ARGUMENTS = lazy(
    rf"(?P<begins>--- # )?\s*(?:\S*/)?(?:lt-)?(?P<program>{_PROGRAMS})(?P<words> .*?)(?P<ends> "
    r":)?(?<!\s\s)\s*"
)
# FT_ERR and FT_PRINTERR, by the directories of the sources; and messages of programs that cannot
# start.
_ERROR = libfabric.error_lines(
    _PROGRAMS, r"(?:common|benchmarks|functional|ubertest|simple|streaming)/\w+\.c"
)
# Too common to begin an execution, but meaningful inside one.
_ERROR_INSIDE = lazy(
    r"Event queue read -?\d+.*|(?:fi|ft)_\w+(?:\(.*\))?:? (?:\S+\.c:\d+ ?, ret=)?-\d+(?: \(.*)?"
    r"|(?:eq|cq|\w+ fi_cq)_readerr.*|\w+(?:\([^()]*\))?\(\): \S+\.c:\d+ ?, ret=-?\d+.*|Usage:\s*"
    r"|\d+s timeout expired.*"
)
_WRONG = lazy(r"Data check error .*")
_PROVIDER = lazy(r"\s*Provider: ([a-z][\w;-]*)\s*")
_HEADER = lazy(
    r"\s*(?:name\s+)?bytes\s+(?:xfers\s+)?iters\s+total\s+time\s+(?:MB|Gb)/sec\s+usec/xfer(?:\s+Mxfers/sec)?\s*"
)
# What runfabtests.sh prints: one line per test, or with -vvv their commands and output, and at the
# end the totals.
_RUNFABTESTS = "runfabtests"
_RESULT = lazy(r"\s*fi_\w+(?: .*)?:\s+(Pass|Fail|Notrun|Excluded)(?: \[.*)?")
_TOTAL = lazy(r"\s*# Total (Pass|Fail|Notrun)(?:/Excluded)?\s+(\d{1,9})\s*")
_PYTEST = lazy(r"rootdir: \S*/fabtests/pytest.*|=+ (?:\d+ \w+, )*\d+ \w+ in \d+\.\d+s.*=")
_PYTEST_COUNT = lazy(r"(\d{1,9}) (passed|failed|skipped)")  # of runfabtests.py
_OUTCOMES = {"Pass": "passed", "Fail": "failed", "Notrun": "skipped"}
_TEST = lazy(r"- name: +fi_")
_TEST_COMMAND = lazy(r"(?:(?<!\s)\s++)?(?:server|client)_cmd: ")
_FIGURE = r"(?:\d+\.\d{6}|-?inf|-?nan)"
_MACHINE_ROW = lazy(
    rf"\s*(?:- )?\{{ xfer_size: (\d+), iterations: (\d+), total: (\d+), "
    rf"time: ({_FIGURE}), (MB|Gb)/sec: ({_FIGURE}), "
    rf"usec/xfer: ({_FIGURE})(?:(?:, )?Mxfers/sec: ({_FIGURE}))? \}}\s*"
)
_COUNTS = tuple(Column(name, cell=COUNT) for name in ("bytes", "count", "total"))


def _machine_layouts() -> Iterator[Layout]:
    """Return the columns of machine-readable rows: with both units, with and without a rate."""
    for unit in ("MB", "Gb"):
        names = ("time", f"{unit.lower()}/sec", "usec/xfer", "mxfers/sec")
        figures = [COLUMNS[name]._replace(cell=_FIGURE) for name in names]
        last = Column(cell=unit)
        yield (*_COUNTS, *figures, last)
        yield (*_COUNTS, *figures[:-1], last)


_MACHINE = tuple(_machine_layouts())
_ROW_END = lazy(
    r".*\s\d+\.\d\ds\s*\d+\.\d\d\s*\d+\.\d\d(?:\s*\d+\.\d\d)?\s*|.*usec/xfer: [^{}]*\}\s*"
)


def _cells(text: str) -> Cells:
    match = _MACHINE_ROW.fullmatch(text) if "xfer_size" in text else None
    if match is None:
        return libfabric.cells(text)
    size, count, total, elapsed, unit, *figures = match.groups("")
    printed = [figure for figure in figures if figure]
    return Cells(" ".join((size, count, total, elapsed, *printed, unit)))


def _remains(text: str, layout: Layout) -> bool:
    if "xfer_size:" in text or _ROW_END.fullmatch(text):
        return True
    # A name alone could be any word: the size identifies a row.
    is_word = layout[0].metric == "name" and len(text.split()) < 2
    return layout not in _MACHINE and not is_word and is_left(text, layout)


def _fits(row: Row) -> bool:
    """Return whether a name fills its column.

    The rest of a torn row may look like a row with a shorter name.
    """
    name = row.cell("name")
    size = row.cell("bytes")
    starts = (f"{name:<50}{size}", f"{name:<10}{size}")
    return not name or row.line.text.lstrip().startswith(starts)


# ---------------------------------------------------------------- what lines mean


def _events(text: str, execution: Execution | None) -> Events | None:
    if "{ xfer_size:" in text and (execution is None or not execution.layouts):
        return (Header(_MACHINE, is_row=True),)
    if "usec/xfer" in text and _HEADER.fullmatch(text):
        return (Header((read_columns(text.split(), COLUMNS),)),)
    if isinstance(execution, Process):
        if text.startswith("libfabric:"):
            return _logged(text, execution)
        if _WRONG.fullmatch(text):
            return (Wrong(),)
    return _outside(text, execution)


def _outside(text: str, execution: Execution | None) -> Events | None:
    """Read what is also printed where no table is open."""
    provider = _PROVIDER.fullmatch(text)
    if provider is not None:
        return (Ahead((Setting(facts={"provider": provider[1]}),)),)
    if _is_of_pytest(text, execution):
        return _tests(text)
    is_of_programs = "_" in text or "fabtests:" in text or "# Total" in text
    return _program(text) if is_of_programs else None


def _logged(text: str, process: Process) -> Events:
    requested = ""
    if process.step is not None:
        requested = process.step.facts.get("provider", "")
    facts = dict(libfabric.logged_facts(text, requested))
    return (Setting(facts=facts),) if facts else ()


def _is_of_pytest(text: str, execution: Execution | None) -> bool:
    is_open = execution is not None and execution.record.case == _RUNFABTESTS
    may_be = "/fabtests/" in text or (is_open and text.startswith("="))
    return may_be and _PYTEST.fullmatch(text) is not None


def _tests(text: str) -> Events:
    """Read how many tests of runfabtests.py passed."""
    printed = _PYTEST_COUNT.findall(text)
    counts = {f"tests_{outcome}": int(count) for count, outcome in printed}
    facts: dict[str, str | int] = {}
    if counts:
        facts = {"tests_failed": 0, "report": _RUNFABTESTS, **counts}
    setting = Setting(_RUNFABTESTS, facts)
    if counts.get("tests_failed") or " error" in text:
        return (Error(text.strip("= ")), setting)
    return (setting,)


def _program(text: str) -> Events | None:
    if _ERROR.fullmatch(text.strip()):
        return (Error(text),)
    arguments = _ARGUMENTS.fullmatch(text)
    if arguments is not None and (arguments["begins"] or arguments["ends"]):
        words = arguments["words"].split()
        setting = libfabric.read_arguments(arguments["program"], words, _OPTIONS)
        return None if setting is None else (setting,)
    total = _TOTAL.fullmatch(text)
    if total is not None:
        return _total(text, *total.groups())
    if _TEST.match(text):
        return (Stop(),)
    result = _RESULT.fullmatch(text)
    if result is not None:
        setting = Setting(_RUNFABTESTS)
        return (Error(text), setting) if result[1] == "Fail" else (setting,)
    command = _TEST_COMMAND.sub("$ ", text)
    return libfabric.read_command(command, _COMMAND, _OPTIONS)


def _total(text: str, outcome: str, printed: str) -> Events:
    """Read how many tests of runfabtests.sh had an outcome."""
    count = int(printed)
    facts: dict[str, str | int] = {f"tests_{_OUTCOMES[outcome]}": count}
    if outcome != "Fail":
        return (Setting(_RUNFABTESTS, facts),)
    setting = Setting(_RUNFABTESTS, {**facts, "report": _RUNFABTESTS})
    return (Error(text), setting) if count else (setting,)


_TABLE = Table(
    benchmark="fabtests",
    events=_events,
    failed=_ERROR_INSIDE,
    fits=_fits,
    cells=_cells,
    remains=_remains,
)
_NEWEST = read_columns(
    ["bytes", "iters", "total", "time", "MB/sec", "usec/xfer", "Mxfers/sec"], COLUMNS
)


def _judge(pair: Pair) -> None:
    """Add nothing: rows and messages say it all."""


class FabtestsReader(PairReader):
    """Reads one stream group."""

    def __init__(self) -> None:
        super().__init__(_TABLE, _NEWEST, _judge)
