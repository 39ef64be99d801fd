"""The tests of a sweep on disk, which is a run directory besides.

``request.json`` has the options of the sweep, too. ``tests.jsonl`` grows by one line per ended test; a test counts
once its line is on disk. ``logs/NNNNNN.log.gz`` is the output of the programs of a test. ``exec/`` and ``counters/``
hold only tests in progress: those found there later were interrupted, and are measured again.
"""

import gzip
import json
import os
import shutil
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fabbench.model.errors import MachineError, RequestError
from fabbench.model.log import Log, Outcome, Point
from fabbench.model.plan import Execution
from fabbench.runs.document import SweepDocument, decode, plain, writing
from fabbench.runs.folders import SWEEP_LOGS
from fabbench.runs.store import EXECUTIONS, OUTPUT, StoredRun
from fabbench.sweep.values import SweepOutcome, SweepResult, SweepTest

MEASURED = frozenset({Outcome.OK, Outcome.UNPROVEN})
"""Outcomes with a figure: nodes are compared even if it is unproven which network carried the data."""
_TESTS = "tests.jsonl"


def outcome_of_test(outcome: str) -> SweepOutcome:
    """Return what the outcome of a log says of a test."""
    if outcome in MEASURED:
        return SweepOutcome.OK
    return SweepOutcome.HUNG if outcome == Outcome.TIMEOUT else SweepOutcome.FAILED


@dataclass(frozen=True, slots=True, kw_only=True)
class TestResult:
    """One test that has ended."""

    number: int
    """Counts from 0."""
    round: int
    nodes: tuple[str, ...]
    """The nodes that took part, in order."""
    rail: str = ""
    """The NIC that each node used, if one was chosen."""
    outcome: str
    reason: str = ""
    value: float | None = None
    """The metric in base units; None if no value counts."""
    nics: Mapping[str, float] = field(default_factory=dict)
    """The same for each NIC, if they were measured one by one."""
    notes: tuple[str, ...] = ()
    """Warnings, such as those from NIC counters."""
    seconds: float = 0.0

    @property
    def result(self) -> SweepResult:
        """Return the test as planners and the analysis need it."""
        outcome = outcome_of_test(self.outcome)
        reason = self.reason if self.outcome == Outcome.FAILED else f"{self.outcome}: {self.reason}"
        return SweepResult(
            test=SweepTest(self.nodes, self.rail),
            outcome=outcome,
            figure=self.value if outcome is SweepOutcome.OK else None,
            nics=self.nics if len(self.nics) > 1 and not self.rail else None,
            round=self.round,
            reason="" if outcome is SweepOutcome.OK else reason.removesuffix(": "),
        )


_ONE = threading.Lock()


def add_test(path: Path, measured: TestResult) -> None:
    """Store the result of a test, from any thread. Once this returns, it survives the end of fabbench."""
    line = json.dumps(plain(measured), ensure_ascii=False).encode("utf-8", "replace") + b"\n"
    with writing(path / _TESTS), _ONE, (path / _TESTS).open("a+b") as file:
        file.seek(max(file.tell() - 1, 0))
        if file.read() not in {b"", b"\n"}:  # the last line was being written when a sweep ended
            file.seek(0)
            file.truncate(file.read().rfind(b"\n") + 1)
        file.write(line)
        file.flush()
        os.fsync(file.fileno())


def pack_log(path: Path, execution: Execution, number: int) -> None:
    """Compress the log of a test."""
    packed = path / SWEEP_LOGS / f"{number:06}.log.gz"
    with writing(packed):
        packed.parent.mkdir(exist_ok=True)
        with (path / EXECUTIONS / execution.id / OUTPUT).open("rb") as log, gzip.open(packed, "wb") as file:
            shutil.copyfileobj(log, file)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSweep:
    """A sweep on disk."""

    path: Path
    document: SweepDocument
    tests: Sequence[TestResult]
    """The tests that have ended, in order."""
    damage: Sequence[str] = ()

    @property
    def results(self) -> list[SweepResult]:
        """Return the tests, and nodes that did not answer, of which nothing is known."""
        silent = self.document.unreachable.items()
        unknown = [SweepResult(SweepTest((name,)), SweepOutcome.UNUSABLE, reason=why) for name, why in silent]
        return [*(each.result for each in self.tests), *unknown]


def values_of(log: Log, metric: str) -> Iterator[tuple[Point, float]]:
    """Yield the rows of a log that a sweep may judge by, out-of-place and no statistics, with their figures."""
    for point in log.points:
        out_of_place = point.labels.get("placement", "out-of-place") == "out-of-place"
        if metric in point.metrics and "stat" not in point.labels and out_of_place:
            yield point, point.values[point.metrics.index(metric)]


def stored_sweep(run: StoredRun) -> StoredSweep:
    """Read a sweep. Raise MachineError if it cannot be read at all."""
    if run.sweep is None:
        raise MachineError(f"{run.path} is no sweep{': ' if run.damage else ''}{''.join(run.damage[:1])}.")
    damage: list[str] = []
    tests = {each.number: each for each in _tests(run.path / _TESTS, damage)}
    in_order = tuple(tests[number] for number in sorted(tests))
    return StoredSweep(path=run.path, document=run.sweep, tests=in_order, damage=tuple(damage))


def require_executions(run: StoredRun) -> StoredRun:
    """Return the run. Raise RequestError if it is a sweep."""
    if run.sweep is not None:
        raise RequestError(
            f"{run.id} is a sweep: it compares nodes, not configurations.",
            hint=f"fabbench show {run.id} prints what it found.",
        )
    return run


def _tests(path: Path, damage: list[str]) -> Iterator[TestResult]:
    """Yield the tests that have ended. A last line without a newline was still being written."""
    if not path.is_file():
        return
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                return
            try:
                yield decode(line, TestResult, f"{path.name}: line {number}")
            except MachineError as error:
                damage.append(str(error))
