"""Runs on disk. What a run measured survives whenever and however the run ends.

``STORE/<utc>-<benchmark>-<id>/`` holds ``request.json`` (written first: request, configurations in
order, schedule), ``rendered/`` (what was submitted, if a run is one job), ``exec/NNN-ARM-rR/`` with
``plan.json``, ``output.log`` (grows line by line) and ``run.json`` (written last, by rename),
``counters/NNN-ARM-rR.json`` (NICs: written when the execution begins, and again at its end). An
execution without ``run.json`` was stopped; its ``output.log`` is read nevertheless, by the code
that reads it live. Only environment that a plan declares is stored, and no secrets.

A sweep is a run whose ``request.json`` has its options, too. ``tests/NNNNNN.json`` is a test that
has ended, and ``logs/NNNNNN.log.gz`` the output of its programs. Its ``exec/`` and ``counters/``
hold only tests in progress: those found there later were interrupted, and are measured again.
"""

import fcntl
import gzip
import json
import os
import re
import secrets
import shlex
import shutil
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from fabbench import __version__
from fabbench.counters import execution_counters
from fabbench.evidence.judge import judge, with_counters
from fabbench.model.errors import Exit, MachineError, RequestError
from fabbench.model.hosts import Inventory
from fabbench.model.log import Ending, Log, Outcome, Record
from fabbench.model.mappings import Documents, distinct
from fabbench.model.messages import environment, redacted
from fabbench.model.options import written
from fabbench.model.plan import Execution, Plan, Proof
from fabbench.model.values import frozen
from fabbench.plan.request import RunRequest
from fabbench.runs.directories import REQUEST, SWEEP_LOGS, TESTS
from fabbench.runs.directories import runs as runs  # noqa: PLC0414 - a part of the store
from fabbench.runs.document import (
    SUMMARY,
    VERDICT,
    ExecutionDocument,
    RunDocument,
    StoredRequest,
    SweepDocument,
    TestResult,
    VerdictDocument,
    plain,
    read,
    readable,
    store_errors,
    write,
)
from fabbench.runs.parse_file import parse_file
from fabbench.sweep.values import SweepOutcome, SweepResult, SweepTest

EXECUTIONS = "exec"
COUNTERS = "counters"
PLAN = "plan.json"  # The `Execution`, written when it begins
OUTPUT = "output.log"
ENDED = "run.json"  # How an execution ended


class ExecutionWriter:
    """One execution in progress."""

    def __init__(self, run: Path, execution: Execution) -> None:
        self.path = run / EXECUTIONS / execution.id
        self._counters = _counters_path(run, execution.id)
        self._started = time.time()
        with store_errors(self.path):
            self.path.mkdir(parents=True)
            write(self.path / PLAN, redacted(plain(execution)))
            # Unbuffered: what was written survives the end of fabbench.
            self.log = (self.path / OUTPUT).open("xb", buffering=0)

    def write(self, line: str) -> None:
        """Append a line to the log. Once this returns, the line survives the end of fabbench."""
        rest = line.encode("utf-8", "replace") + b"\n"
        with store_errors(self.path / OUTPUT):
            while rest:  # an unbuffered file may take only a part
                rest = rest[self.log.write(rest) :]

    def write_counters(self, counted: execution_counters.ExecutionCounters) -> None:
        """Write the NIC counters, replacing those written before."""
        # Without indentation: the counters of 64 hosts are long, and json is ten times as fast.
        write(self._counters, counted, indent=None)

    def finish(self, ending: Ending) -> None:
        """Write how the execution ended. It counts as finished from now on."""
        document = ExecutionDocument(
            started=self._started,
            ended=time.time(),
            # JSON has sequences, and no other collections.
            ending=replace(ending, planned_sizes=tuple(ending.planned_sizes)),
        )
        # The log is on the disk before the document that says that it is whole.
        with store_errors(self.path / ENDED):
            os.fsync(self.log.fileno())
        write(self.path / ENDED, document)


_QUIET_S = 600  # A run that was not written to for this long has stopped
STOPPED = "fabbench was stopped before this execution ended."


# ---------------------------------------------------------------- writing


class RunWriter:
    """A run or a sweep in progress. A sweep's methods may be called from any thread."""

    def __init__(
        self,
        request: RunRequest,
        inventory: Inventory,
        plan: Plan,
        resumed: "StoredRun | None" = None,
        sweep: SweepDocument | None = None,
    ) -> None:
        """Create the run's directory and write its request, or continue a run of the same.

        Raise MachineError if that is impossible, RequestError if the run to continue measures
        something else.
        """
        self.kept: dict[str, tuple[Log, ...]] = {}
        """Execution → logs, if it is ok and need not run again."""
        if resumed is None:
            self._document = document_of(request, inventory, plan, sweep)
            self.path = _new_path(request.store, plan, self._document).absolute()
            write(self.path / REQUEST, self._document)
        else:
            require_same(resumed, request, inventory, plan)
            self._document = resumed.document
            self.path = resumed.path.absolute()
        self.id = self._document.id
        self.close: Callable[[], object] = lambda: None  # Replaced once the directory is locked
        self._lock_until_close()
        if resumed is not None:  # read only now that no other process can write it
            self.kept = {each.id: each.logs for each in resumed.executions if each.is_ok}
        with store_errors(self.path):
            self._remove_all_but_kept()
        self.run = StoredRun(self.path)

    def _remove_all_but_kept(self) -> None:
        """Remove the result of a run that goes on, and all but the executions that are kept."""
        for name in (VERDICT, SUMMARY):
            (self.path / name).unlink(missing_ok=True)
        for path in self.path.glob(f"{EXECUTIONS}/*"):
            if path.name not in self.kept:
                self.drop_execution(path.name)

    @contextmanager
    def execution(self, execution: Execution) -> Iterator[ExecutionWriter]:
        """Create the directory of one execution, and close its log in the end."""
        writer = ExecutionWriter(self.path, execution)
        with writer.log:
            yield writer

    def drop_execution(self, execution: str) -> None:
        """Remove an execution that does not count, or is kept elsewhere."""
        shutil.rmtree(self.path / EXECUTIONS / execution, ignore_errors=True)
        _counters_path(self.path, execution).unlink(missing_ok=True)

    def add_test(self, measured: TestResult, execution: str) -> None:
        """Keep the result and the log of a test of a sweep, instead of its execution.

        From any thread.
        """
        name = f"{measured.number:06}"
        packed = _path_of_test_log(self.path, measured)
        output = self.path / EXECUTIONS / execution / OUTPUT
        with store_errors(packed):
            packed.parent.mkdir(exist_ok=True)
            packed.write_bytes(gzip.compress(output.read_bytes()))
        write(self.path / TESTS / f"{name}.json", measured)
        self.drop_execution(execution)

    def _lock_until_close(self) -> None:
        """Lock the directory until `close`, or the end of this process.

        Raise RequestError if another one has.
        """
        with suppress(OSError):  # where the file system has no locks
            descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
            self.close = weakref.finalize(self, os.close, descriptor)  # which ends the lock
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise RequestError(
                    f"Run {self.id} is in progress.", hint="Wait until it has ended."
                ) from None

    def write_rendered(self, documents: Documents) -> None:
        """Write the documents rendered for this run: name → text.

        Without any, no directory is created.
        """
        folder = self.path / "rendered"
        with store_errors(folder):
            for name, text in documents.items():
                folder.mkdir(exist_ok=True)
                (folder / name).write_text(text, "utf-8")

    def end_schedule(self, executions: Sequence[Execution]) -> None:
        """Write that no more executions will follow these: all is decided."""
        schedule = tuple(execution.id for execution in executions)
        write(self.path / REQUEST, replace(self._document, schedule=schedule))


def write_verdict(path: Path, status: Exit, breaches: Sequence[str] = (), state: str = "") -> None:
    """Write whether the gates of a run held, or the result of a sweep, which marks its end.

    `state`: the gravest result of a gate; empty: of a sweep, which has none.
    """
    verdict = VerdictDocument(status=status, breaches=tuple(breaches), state=state)
    write(path / VERDICT, verdict)


def _new_path(store: Path, plan: Plan, document: RunDocument) -> Path:
    created = re.sub("[-:]", "", document.created)
    return store / f"{created}-{plan.benchmark}-{document.id}"


def require_same(run: "StoredRun", request: RunRequest, inventory: Inventory, plan: Plan) -> None:
    """Raise RequestError if a run measures something else than what is requested now.

    A sweep may name its nodes in another order; so may no other run, whose ranks follow it.
    """
    now = document_of(request, inventory, plan, run.sweep)
    schedule = now.schedule
    before = run.document.schedule
    if request.adaptive:  # Once it was decided, those that were carried out are left
        schedule = tuple(each for each in schedule if each in before)
    ordered = sorted if run.sweep else list
    for name, was, wanted in (
        ("nodes", ordered(run.hosts), ordered(host.name for host in now.hosts)),
        ("configurations", run.configurations, now.arms),
        # As they are stored: JSON has lists for tuples.
        ("options", run.options, json.loads(json.dumps(now.request.options))),
        ("environment", run.request.env, now.request.env),
        ("executions", before, schedule),
    ):
        if was != wanted:
            raise RequestError(
                f"Run {run.id} has other {name}.", hint=f"Start a new one: fabbench rerun {run.id}."
            )


def document_of(
    request: RunRequest, inventory: Inventory, plan: Plan, sweep: SweepDocument | None = None
) -> RunDocument:
    """Return the document of a new run."""
    return RunDocument(
        format=1,
        fabbench=__version__,
        id=secrets.token_hex(3),
        created=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        name=request.name,
        command=tuple(redacted(request.command)),
        request=StoredRequest(
            benchmark=request.benchmark,
            target=request.target.name,
            fabrics=request.fabrics,
            repeats=request.repeats,
            most_repeats=request.adaptive.max_repeats if request.adaptive else None,
            where=redacted(plain(replace(request.target, variants=()))),
            variants=redacted(request.target.variants),
            env=environment(request.env),
            options=redacted(written(request.work)),
        ),
        arms=plan.configurations,
        # A sweep chooses its tests as it goes.
        schedule=() if sweep else tuple(execution.id for execution in plan.executions),
        hosts=inventory.hosts,
        variants=inventory.variants,
        image=inventory.image,
        sweep=sweep,
    )


def _counters_path(run: Path, name: str) -> Path:
    return run / COUNTERS / f"{name}.json"


# ---------------------------------------------------------------- reading


@frozen
class StoredExecution:
    """One scheduled execution of a stored run."""

    id: str
    path: Path
    configuration: str
    begun: bool
    finished: bool
    logs: tuple[Log, ...]
    damage: str = ""  # A sentence if its documents cannot be read: its logs are then truncated

    @property
    def is_ok(self) -> bool:
        """Whether it has ended, and all its logs are ok."""
        return self.finished and all(log.outcome is Outcome.OK for log in self.logs)


class StoredRun:
    """A run on disk. Results are read on demand.

    What cannot be read is left out and reported in `damage`, so that a run that is damaged, or from
    a newer fabbench, can be listed and shown as far as possible.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._damage: list[str] = []
        try:
            document = read(path / REQUEST, RunDocument)
        except MachineError as error:
            self._damage.append(str(error))
            document = _document_of_name(path.name)
        request = document.request
        self.document = document
        self.sweep = document.sweep
        self.id = document.id
        self.name = document.name
        self.created = document.created
        self.image = document.image
        self.configurations = document.arms
        self.request = request
        self.benchmark = request.benchmark
        self.target = request.target
        self.options = request.options
        self.command = document.command
        self.command_line = shlex.join(self.command)  # To copy into a shell; empty if unknown
        self.hosts = tuple(host.name for host in document.hosts)
        """Names of the hosts."""
        self.variants = {variant.name: variant for variant in request.variants}
        """The configurations' variants, by name."""
        self.schedule = tuple((each, _configuration_of(each)) for each in document.schedule)
        """Scheduled executions, and their configurations."""

    @property
    def damage(self) -> tuple[str, ...]:
        """Sentences: what cannot be read, and why. Reads all executions."""
        of_executions = (each.damage for each in self.executions if each.damage)
        return distinct((*self._damage, *of_executions))

    @cached_property
    def verdict(self) -> VerdictDocument | None:
        """The result of the run's gates; None if there are none, or it has not ended."""
        return readable(self.path / VERDICT, VerdictDocument)

    @property
    def gates(self) -> str:
        """The gravest result of its gates, such as `passed`.

        Empty if there were none, or it did not end.
        """
        verdict = self.verdict
        if verdict is None:
            return ""
        if verdict.state:
            return verdict.state
        # Of a sweep, or of a run of an older version
        return "passed" if verdict.status == Exit.FINE else "failed"

    @cached_property
    def executions(self) -> tuple[StoredExecution, ...]:
        """Every scheduled execution, in order."""
        return tuple(self._read_execution(name, label) for name, label in self.schedule)

    def logs(self, configuration: str) -> tuple[Log, ...]:
        """Return the judged logs of one configuration, in order.

        Executions that never started have none.
        """
        executions = [each for each in self.executions if each.configuration == configuration]
        return tuple(log for execution in executions for log in execution.logs)

    def counters(self, name: str) -> execution_counters.ExecutionCounters | None:
        """Read the NIC counters of one execution; None if there are none.

        Damaged ones are a finding of its logs.
        """
        return readable(_counters_path(self.path, name), execution_counters.ExecutionCounters)

    # -- inside

    def _read_execution(self, name: str, configuration: str) -> StoredExecution:
        """Read what there is of a scheduled execution, whether or not it has begun or ended."""
        path = self.path / EXECUTIONS / name
        started = (path / PLAN).is_file()
        finished = (path / ENDED).is_file()
        logs: tuple[Log, ...] = ()
        damage = ""
        if started:
            logs, damage = self._read_logs(path, finished=finished)
        return StoredExecution(
            id=name,
            path=path,
            configuration=configuration,
            begun=started,
            finished=finished,
            logs=self._with_counters(logs, _counters_path(self.path, name)),
            damage=damage,
        )

    def _with_counters(self, logs: tuple[Log, ...], file: Path) -> tuple[Log, ...]:
        """Add what NIC counters show; damaged ones are a finding."""
        kind = execution_counters.ExecutionCounters
        try:
            counted = read(file, kind) if file.is_file() else None
            return with_counters(logs, counted)
        except MachineError as error:
            return execution_counters.noted(logs, [execution_counters.note(str(error))])

    def _read_logs(self, path: Path, *, finished: bool) -> tuple[tuple[Log, ...], str]:
        """Read the log of an execution, and return the damage of its documents.

        With damage, the execution is judged as one that was stopped.
        """
        ending = Ending(stopped=STOPPED)
        proof: Proof | None = None
        damage = ""
        try:
            plan = read(path / PLAN, Execution)
            proof = plan.proof
            ending = replace(ending, planned_sizes=plan.planned_sizes)
            if finished:
                ending = read(path / ENDED, ExecutionDocument).ending
        except MachineError as error:
            damage = str(error)
            ending = replace(ending, stopped=f"Its record in the run is damaged: {damage}")
        output = path / OUTPUT
        logs: tuple[Log, ...] = ()
        try:
            if output.is_file():
                logs = tuple(parse_file(output, proof=proof, ending=ending))
        except MachineError as error:
            damage = str(error)
        return logs or (nothing_read(self.benchmark, output, proof, ending),), damage


def failed_after_s(path: Path) -> Iterator[float]:
    """Yield after how many seconds each execution of a run ended that failed or was aborted.

    Raise MachineError.
    """
    for each in path.glob(f"{EXECUTIONS}/*/{ENDED}"):
        document = read(each, ExecutionDocument)
        if document.ending.status != 0:
            yield document.ended - document.started


def _document_of_name(name: str) -> RunDocument:
    """Return what the name of a directory says of a run whose document cannot be read."""
    created, _, rest = name.partition("-")
    benchmark, _, run_id = rest.rpartition("-")
    known = StoredRequest(benchmark=benchmark)
    return RunDocument(format=1, id=run_id or name, created=created, request=known)


def _configuration_of(execution: str) -> str:
    """Return the configuration in the name of an execution: NNN-ARM-rR."""
    return execution.partition("-")[2].rpartition("-")[0]


def nothing_read(benchmark: str, output: Path, proof: Proof | None, ending: Ending) -> Log:
    """Judge an execution whose log has nothing that is known."""
    record = Record(benchmark=benchmark, finished=None)  # None: no final line is expected
    return judge(record, source=str(output), proof=proof, ending=ending)


def _path_of_test_log(path: Path, test: TestResult) -> Path:
    """Return the file with the output of a test of a sweep."""
    number = format(test.number, "06")
    return path / SWEEP_LOGS / f"{number}.log.gz"


class StoredSweep(NamedTuple):
    """A sweep on disk."""

    path: Path
    document: SweepDocument
    tests: Sequence[TestResult]  # The tests that have ended, in order
    damage: Sequence[str]

    @property
    def results(self) -> list[SweepResult]:
        """Return the results of tests, and an unusable one of each node that did not answer."""
        results = [each.result for each in self.tests]
        for name, why in self.document.unreachable.items():
            unknown = SweepResult(SweepTest((name,)), SweepOutcome.UNUSABLE, reason=why)
            results.append(unknown)
        return results

    def log_of(self, test: TestResult) -> Path:
        """Return the file with the output of a test."""
        return _path_of_test_log(self.path, test)


def stored_sweep(run: StoredRun) -> StoredSweep:
    """Read a sweep. Raise MachineError if it cannot be read at all."""
    if run.sweep is None:
        why = f": {run.damage[0]}" if run.damage else ""
        raise MachineError(f"{run.path} is no sweep{why}.")
    tests: list[TestResult] = []
    damage: list[str] = []
    for file in sorted((run.path / TESTS).glob("*.json")):
        try:
            tests.append(read(file, TestResult))
        except MachineError as error:
            damage.append(str(error))
    return StoredSweep(run.path, run.sweep, tests, damage)


def in_progress(run: StoredRun) -> bool:
    """Return whether a run may be in progress.

    It has executions left, and was written to recently.
    """
    if not is_unfinished(run):
        return False
    return time.time() - _last_written(run) < _QUIET_S


def is_unfinished(run: StoredRun) -> bool:
    """Return whether a run has executions left, or a sweep has no result."""
    if run.sweep is not None and run.verdict is None:  # only a sweep has to have a verdict
        return True
    folder = run.path / EXECUTIONS
    endings = [folder / name / ENDED for name, _ in run.schedule]
    return not all(ending.is_file() for ending in endings)


def _last_written(run: StoredRun) -> float:
    """Return when a run was written to last, in seconds since the epoch."""
    entries = (run.path / EXECUTIONS).rglob("*")
    files = [run.path, *(each for each in entries if each.is_file())]
    return max(each.stat().st_mtime for each in files)


def remove_run(path: Path) -> None:
    """Remove the directory of a run, or the file of another document of the store.

    Raise MachineError if that is impossible, or it is neither.
    """
    if path.suffix == ".json":
        path.unlink()
        return
    if path.is_symlink() or not (path / REQUEST).is_file():
        raise MachineError(f"{path} is not a run directory and was not removed.")
    try:
        shutil.rmtree(path)
    except OSError as error:
        why = error.strerror or error
        raise MachineError(f"{path} cannot be removed: {why}.") from error
