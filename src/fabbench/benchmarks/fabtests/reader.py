"""Reads the output of the fabtests.

Tables since 2014, machine-readable rows and errors, of both sides of a pair.

``[name] bytes [xfers] iters total time RATE usec/xfer [Mxfers/sec]``. RATE is Gb/sec (1e9 bits per
second) until 2016-02 and MB/sec (1e6 bytes per second) since; Mxfers/sec was added after MB/sec,
and `xfers` removed in 2014-10. Machine-readable rows (``-m``) have all digits: ``- { xfer_size: 64,
iterations: 10000, … }``. From `show_perf` and `show_perf_mr` in fabtests/common/shared.c.
"""

from fabbench.benchmarks import engine
from fabbench.benchmarks.libfabric import reader as libfabric
from fabbench.benchmarks.libfabric.reader import COLUMNS, PairReader, Process
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
    rf"\s*(?:- )?\{{ xfer_size: (\d+), iterations: (\d+), total: (\d+), time: ({_FIGURE}), (MB|Gb)/sec: ({_FIGURE}), "
    rf"usec/xfer: ({_FIGURE})(?:(?:, )?Mxfers/sec: ({_FIGURE}))? \}}\s*"
)
_WHOLE = tuple(engine.Column(name, cell=engine.COUNT) for name in ("bytes", "count", "total"))
_MACHINE = tuple(
    (
        *_WHOLE,
        *(engine.Column(name, cell=_FIGURE) for name in ("elapsed", rate, "us", *more)),
        engine.Column(cell=unit),
    )
    for unit, rate in (("MB", "megabytes"), ("Gb", "gigabits"))
    for more in (("rate",), ())
)
_ROW_END = lazy(
    r".*\s\d+\.\d\ds\s*\d+\.\d\d\s*\d+\.\d\d(?:\s*\d+\.\d\d)?\s*|.*usec/xfer: [^{}]*\}\s*"
)


def _cells(text: str) -> engine.Cells:
    if "xfer_size" not in text or (match := _MACHINE_ROW.fullmatch(text)) is None:
        return libfabric.cells(text)
    size, count, total, elapsed, unit, *figures = match.groups("")
    return engine.Cells(" ".join((size, count, total, elapsed, *filter(None, figures), unit)))


def _remains(text: str, layout: engine.Layout) -> bool:
    # A name alone could be any word: the size identifies a row.
    words, named = text.split(), layout[0].metric == "name"
    rest = layout not in _MACHINE and (not named or len(words) > 1) and engine.is_left(text, layout)
    return rest or "xfer_size:" in text or _ROW_END.fullmatch(text) is not None


def _fits(row: engine.Row) -> bool:
    """Return whether a name fills its column.

    The rest of a torn row may look like a row with a shorter name.
    """
    name, size = row.cell("name"), row.cell("bytes")
    return not name or row.line.text.lstrip().startswith((f"{name:<50}{size}", f"{name:<10}{size}"))


def _statement(text: str, execution: engine.Execution | None) -> engine.Statement | None:
    machine = "{ xfer_size:" in text and not (execution is not None and execution.layouts)
    if machine or ("usec/xfer" in text and _HEADER.fullmatch(text)):
        return engine.Statement(
            layouts=_MACHINE if machine else (engine.read_columns(text.split(), COLUMNS),),
            row=machine,
        )
    if isinstance(execution, Process) and text.startswith("libfabric:"):
        provider = execution.step.facts.get("provider", "") if execution.step is not None else ""
        return engine.Statement(facts=dict(libfabric.logged_facts(text, provider)))
    if execution is not None and _WRONG.fullmatch(text):
        return engine.Statement(wrong=1)
    if (match := _PROVIDER.fullmatch(text)) is not None:
        return engine.Statement(above=True, facts={"provider": match[1]})
    of_tests = text[:1] == "=" and execution is not None and execution.record.case == _RUNFABTESTS
    if (of_tests or "/fabtests/" in text) and _PYTEST.fullmatch(text):
        counts = {f"tests_{word}": int(count) for count, word in _PYTEST_COUNT.findall(text)}
        facts: dict[str, str | int] = (
            {"tests_failed": 0, "report": _RUNFABTESTS, **counts} if counts else {}
        )
        failure = text.strip("= ") if counts.get("tests_failed") or " error" in text else ""
        return engine.Statement(case=_RUNFABTESTS, facts=facts, failure=failure)
    return _program(text) if "_" in text or "fabtests:" in text or "# Total" in text else None


def _program(text: str) -> engine.Statement | None:
    if _ERROR.fullmatch(text.strip()):
        return engine.Statement(failure=text)
    if (match := _ARGUMENTS.fullmatch(text)) is not None and (match["begins"] or match["ends"]):
        return libfabric.read_arguments(match["program"], match["words"].split(), _OPTIONS)
    if match := _TOTAL.fullmatch(text):
        count, failed = int(match[2]), match[1] == "Fail"
        facts = {f"tests_{_OUTCOMES[match[1]]}": count} | (
            {"report": _RUNFABTESTS} if failed else {}
        )
        return engine.Statement(
            case=_RUNFABTESTS, facts=facts, failure=text if failed and count else ""
        )
    if _TEST.match(text):
        return engine.Statement(ends=True)
    if match := _RESULT.fullmatch(text):
        return engine.Statement(case=_RUNFABTESTS, failure=text if match[1] == "Fail" else "")
    return libfabric.read_command(_TEST_COMMAND.sub("$ ", text), _COMMAND, _OPTIONS)


_TABLE = engine.Table(
    benchmark="fabtests",
    statement=_statement,
    failed=_ERROR_INSIDE,
    failing="\n",  # never outside of an execution
    fits=_fits,
    cells=_cells,
    remains=_remains,
)
_NEWEST = engine.read_columns(
    ["bytes", "iters", "total", "time", "MB/sec", "usec/xfer", "Mxfers/sec"], COLUMNS
)


class FabtestsReader(PairReader):
    """Reads one stream group."""

    table, newest = _TABLE, _NEWEST
