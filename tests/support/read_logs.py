"""What tests read logs with: files, texts and lines."""

from collections.abc import Iterable, Iterator

from fabbench.evidence.known_errors import causes
from fabbench.launchers.batch_job import Demux
from fabbench.logs.parser import LogParser, logs
from fabbench.model.log import Ending, Log, Point
from fabbench.model.plan import Execution, Plan, Proof
from fabbench.runs.parse_file import as_printed
from fabbench.testing import read
from tests.support.paths import LOGS

__all__ = [
    "LOGS",
    "figures",
    "read",
    "read_kinds",
    "read_lines",
    "read_live",
    "read_one",
    "read_plan_output",
]


def read_lines(
    lines: Iterable[str], proof: Proof | None = None, ending: Ending | None = None
) -> list[Log]:
    """Read lines that have no launcher's prefix."""
    session = LogParser("x", proof=proof, live=False)
    return list(logs([*session.feed_lines(lines), *session.close(ending)]))


def read_one(lines: Iterable[str], proof: Proof | None = None, ending: Ending | None = None) -> Log:
    """Read lines that must be one log."""
    (log,) = read_lines(lines, proof, ending)
    return log


def read_kinds(text: str) -> list[tuple[str, str]]:
    """Return the outcome of each log in a text as it was pasted, and the code of its first cause.

    The code is empty if it has none.
    """
    logs_read = read(as_printed(text))
    first = [causes(log)[0][:1] for log in logs_read]
    codes = ["".join(cause.finding.code for cause in found) for found in first]
    return [(log.outcome.value, code) for log, code in zip(logs_read, codes, strict=True)]


def figures(point: Point) -> dict[str, float]:
    """Return a point's values by metric."""
    return dict(zip(point.metrics, point.values, strict=True))


def read_live(lines: Iterable[str]) -> tuple[list[Point], list[Log]]:
    """Read line by line, as during a run: the points as they came, and the logs."""
    session = LogParser("x")
    results = [result for line in lines for result in session.feed(line)]
    results += session.close()
    return [found for found in results if isinstance(found, Point)], list(logs(results))


def read_plan_output(
    lines: Iterable[str], plan: Plan, source: str
) -> Iterator[tuple[Execution, tuple[Log, ...]]]:
    """Judge what a job printed: every execution that has begun, each by what it was to prove."""
    split = Demux(lines)
    for execution in plan.executions:
        parser = LogParser(source, proof=execution.proof, live=False)
        found: list[Log] = []
        lines = split.execute(execution)
        ending = None
        while ending is None:
            try:
                line = next(lines)
            except StopIteration as end:
                ending = end.value
                break
            found += logs(parser.feed(line))
        found += logs(parser.close(ending))
        if found:
            yield execution, tuple(found)
