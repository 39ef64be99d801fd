"""Reads the output of the fabtests.

Tables since 2014 and errors, of both sides of a pair.

``[name] bytes [xfers] iters total time RATE usec/xfer [Mxfers/sec]``. RATE is Gb/sec (1e9 bits per
second) until 2016-02 and MB/sec (1e6 bytes per second) since; Mxfers/sec was added after MB/sec,
and `xfers` removed in 2014-10. From `show_perf` in fabtests/common/shared.c.
"""

from fabbench.benchmarks.events import End, Error, Events, Header, Setting, Wrong
from fabbench.benchmarks.executions import Execution, Table
from fabbench.benchmarks.findings import finding
from fabbench.benchmarks.libfabric import reader as libfabric
from fabbench.benchmarks.libfabric.reader import COLUMNS, PairReader, Process
from fabbench.benchmarks.tables import Layout, Row, is_rest_of_row, read_columns
from fabbench.model.patterns import lazy

_PROGRAMS = (
    r"fi_(?:(?:rdm|msg|dgram|rma|rc|ud|efa)_"
    r"(?=\w*?(?:pingpong|bw|rma|lat|atomic|tx_completion))\w+"
    r"|efa_gda|efa_hw_cntr_test|rdm_atomic|rma_\w+|multi_recv|unmap_mem|ubertest)"
    # a pattern for the programs' names, since 2014. Other fabtests are functional tests and measure
    # nothing.
)

_COMMAND = lazy(
    rf"(?:^|(?<=[\s/]))(?:lt-)?({_PROGRAMS})(?=\s|$)(?!.*: +(?:Pass|Fail|Notrun|Excluded)\b)"
)
"""A program, and no result of runfabtests.sh."""
_LONG_OPTIONS = (
    "pin-core= timeout= debug-assert data-progress= control-progress= max-msg-size= use-fi-more "
    "threading= "
    "no-rx-cq-data expect-error= sync-comp="
)
_OPTIONS = ("B:P:s:a:C:F:O:f:d:p:KD:i:HRe:M:I:QS:mc:t:w:lo:rvkj:W:UT:n:hxu:", _LONG_OPTIONS, "bE")
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
_HEADER = lazy(
    r"\s*(?:name\s+)?bytes\s+(?:xfers\s+)?iters\s+total\s+time\s+(?:MB|Gb)/sec\s+usec/xfer(?:\s+Mxfers/sec)?\s*"
)
_MACHINE_ROW = lazy(r"\s*(?:- )?\{ xfer_size: \d.*")
_UNREAD = finding("machine-rows-unread")


def _remains(text: str, layout: Layout) -> bool:
    """Return whether a line may be what is left of a row."""
    has_name = layout[0].metric == "name"
    is_word = has_name and len(text.split()) < 2  # it could be any word: the size identifies a row
    return not is_word and is_rest_of_row(text, layout)


def _fits(row: Row) -> bool:
    """Return whether a row's name, if it has one, fills its column of 50 or 10 characters.

    The rest of a torn row may look like a row with a shorter name.
    """
    name = row.cell("name")
    size = row.cell("bytes")
    starts = (f"{name:<50}{size}", f"{name:<10}{size}")
    return not name or row.line.text.lstrip().startswith(starts)


# ---------------------------------------------------------------- what lines mean


def _events(text: str, execution: Execution | None) -> Events | None:
    # A header, a row for machines (a header, too), messages of the program or of libfabric, or a
    # command line; None: any other line.
    # The tests for a word, before each pattern, are for speed.
    if "usec/xfer" in text and _HEADER.fullmatch(text):
        return (Header((read_columns(text.split(), COLUMNS),)),)
    if "{ xfer_size:" in text and _MACHINE_ROW.fullmatch(text):
        return _machine_row(execution)
    if isinstance(execution, Process):
        if text.startswith("libfabric:"):
            return _log_events(text, execution)
        if _WRONG.fullmatch(text):
            return (Wrong(),)
    if _ERROR.fullmatch(text.strip()):
        return (Error(text),)
    return libfabric.read_command(text, _COMMAND, _OPTIONS) if "_" in text else None


def _machine_row(execution: Execution | None) -> Events:
    is_said = execution is not None and _UNREAD in execution.record.findings
    # Once per execution. A table beside these rows is not of the program that printed them.
    return () if is_said else (_UNREAD, End(complete=False))


def _log_events(text: str, process: Process) -> Events:
    """Return what a line of libfabric's own log says; its provider is known where we started it."""
    requested = process.step.facts.get("provider", "")
    facts = dict(libfabric.logged_facts(text, requested))
    return (Setting(facts=facts),) if facts else ()


_TABLE = Table(
    benchmark="fabtests",
    events=libfabric.with_information(_events),
    failed=_ERROR_INSIDE,
    fits=_fits,
    cells=libfabric.cells,
    remains=_remains,
)


class FabtestsReader(PairReader):
    """Reads one stream group."""

    table = _TABLE
