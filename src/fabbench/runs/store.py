"""Runs on disk. What a run measured survives whenever and however the run ends.

``STORE/<utc>-<benchmark>-<id>/`` holds ``request.json`` (written first: request, configurations in order,
schedule), ``rendered/`` (what was submitted, if a run is one job), ``exec/NNN-ARM-rR/`` with
``plan.json``, ``output.log`` (grows line by line) and
``run.json`` (written last, by rename), ``counters/NNN-ARM-rR.json`` (NICs: written when the execution begins,
and again at its end). An execution without ``run.json`` was stopped; its ``output.log`` is read nevertheless,
by the code that reads it live. Only environment that a plan declares is stored, and no secrets.
"""

import fcntl
import json
import os
import re
import secrets
import shlex
import shutil
import time
import weakref
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from fabbench import __version__
from fabbench.analysis.sequential import FIRST_LOOK
from fabbench.counters import execution_counters
from fabbench.evidence.judge import judge
from fabbench.model.errors import Exit, MachineError, RequestError
from fabbench.model.hosts import Inventory, StoredHost
from fabbench.model.log import Ending, Log, Outcome, Record
from fabbench.model.messages import one_line, redacted
from fabbench.model.options import written
from fabbench.model.plan import Configuration, Execution, Plan, Proof, Step, Variant
from fabbench.plan.request import RunRequest
from fabbench.runs.document import FORMAT, decode, plain, read, read_value, write, writing
from fabbench.runs.folders import REQUEST, RUN_NAME, SUMMARY, SWEEP, VERDICT
from fabbench.runs.folders import runs as runs  # noqa: PLC0414 - a part of the store
from fabbench.runs.parse_file import parse_file

ENDED = "run.json"
"""How an execution ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRequest:
    """The parts of a request that its run stores: what was measured, where, and how."""

    benchmark: str = ""
    target: str = ""
    fabrics: tuple[str, ...] = ()
    repeats: int | None = None
    most_repeats: int | None = None
    """The limit of repeats of a run that checked its verdicts after each; None if it did not."""
    where: Mapping[str, Any] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDocument:
    """``request.json``. An arm is a configuration."""

    format: int
    fabbench: str = ""
    id: str = ""
    created: str = ""
    name: str = ""
    """The name from `fabbench run --name`."""
    command: tuple[str, ...] = ()
    """The command line, without secrets."""
    request: StoredRequest = StoredRequest()
    arms: tuple[Configuration, ...] = ()
    schedule: tuple[str, ...] = ()
    hosts: tuple[StoredHost, ...] = ()
    image: str = ""


@dataclass(frozen=True, slots=True)
class StoredOutcome:
    """The outcome of a log of an execution."""

    outcome: Outcome
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionDocument:
    """``run.json``."""

    format: int = FORMAT
    started: float = 0.0
    ended: float = 0.0
    ending: Ending
    outcomes: tuple[StoredOutcome, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictDocument:
    """``verdict.json``."""

    format: int = FORMAT
    status: Exit
    breaches: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPlan:
    """The fields that are read of ``plan.json``, which is an `Execution`."""

    proof: Proof | None = None
    planned_sizes: tuple[int, ...] = ()
    steps: tuple[Step, ...] = ()


class ExecutionWriter:
    """One execution in progress. A context manager that closes its log."""

    def __init__(self, path: Path, counters: Path, execution: Execution) -> None:
        self.path = path
        self._counters = counters
        self._started = time.time()
        with writing(path):
            path.mkdir()
            write(path / "plan.json", redacted(plain(execution)))
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            self._log = os.open(path / "output.log", flags, 0o644)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._log)

    def write(self, line: str) -> None:
        """Append a line to the log. Once this returns, the line survives the end of fabbench."""
        rest = line.encode("utf-8", "replace") + b"\n"
        with writing(self.path / "output.log"):
            while rest:
                rest = rest[os.write(self._log, rest) :]

    def counters(self, counted: execution_counters.ExecutionCounters) -> None:
        """Write the NIC counters, replacing those written before."""
        with writing(self._counters):
            # Without indentation: the counters of 64 hosts are long, and json is ten times as fast.
            write(self._counters, counted, indent=None)

    def finish(self, ending: Ending, logs: Sequence[Log]) -> None:
        """Write how the execution ended. It counts as finished from now on."""
        document = ExecutionDocument(
            started=self._started,
            ended=time.time(),
            ending=replace(ending, planned_sizes=tuple(ending.planned_sizes)),
            outcomes=tuple(StoredOutcome(log.outcome, log.reason) for log in logs),
        )
        with writing(self.path / ENDED):
            os.fsync(self._log)
            write(self.path / ENDED, document)


_QUIET_S = 600
"""A run that was not written to for this long has stopped."""
STOPPED = "fabbench was stopped before this execution ended."

_EXECUTION = re.compile(r"\d+-[^/\0]+-r\d+")


# ---------------------------------------------------------------- writing


class RunFolder:
    """The directory of a run in progress, or of a sweep."""

    def __init__(self, path: Path) -> None:
        """Continue a run whose request exists."""
        self.path = path

    def judged(self, status: Exit, breaches: Sequence[str]) -> None:
        """Write whether the gates held, or the result of a sweep, which marks its end."""
        with writing(self.path / VERDICT):
            write(self.path / VERDICT, VerdictDocument(status=status, breaches=tuple(breaches)))

    def forget_result(self) -> None:
        """Remove what was written at the end of a run that goes on."""
        for name in (VERDICT, SUMMARY):
            (self.path / name).unlink(missing_ok=True)

    def execution(self, execution: Execution) -> ExecutionWriter:
        """Create the directory of one execution."""
        return ExecutionWriter(self.path / "exec" / execution.id, _counters(self.path, execution.id), execution)


class RunWriter(RunFolder):
    """A run in progress."""

    def __init__(
        self, request: RunRequest, inventory: Inventory, plan: Plan, resumed: "StoredRun | None" = None
    ) -> None:
        """Create the run's directory and write its request, or continue a run that measures the same.

        Raise MachineError if that is impossible, RequestError if the run to continue measures something else.
        """
        known = {variant.name: variant for variant in request.variants}
        self.variants = {each.label: known.get(each.variant) for each in plan.configurations}
        """Label of a configuration → its variant; None if it has none."""
        self.kept: dict[str, tuple[Log, ...]] = {}
        """Execution → logs, if it is ok and need not run again."""
        self.id, created = secrets.token_hex(3), time.gmtime()
        name = f"{time.strftime('%Y%m%dT%H%M%SZ', created)}-{plan.benchmark}-{self.id}"
        super().__init__((request.store / name).absolute())
        document = RunDocument(
            format=FORMAT,
            fabbench=__version__,
            id=self.id,
            created=time.strftime("%Y-%m-%dT%H:%M:%SZ", created),
            name=request.name,
            command=tuple(redacted(request.command)),
            request=_stored(request),
            arms=plan.configurations,
            schedule=tuple(execution.id for execution in plan.executions),
            image=inventory.image,
        )
        # Of hosts everything is written, and little is read.
        self._document = {**plain(document), "hosts": plain(inventory.hosts), "variants": plain(inventory.variants)}
        if resumed is not None:
            self._resume(resumed)
            return
        with writing(self.path):
            (self.path / "exec").mkdir(parents=True)
            (self.path / "counters").mkdir()
            write(self.path / REQUEST, self._document)
        self._lock()

    def _resume(self, run: "StoredRun") -> None:
        """Keep what is ok of a run, and forget the rest."""
        now = decode(json.dumps(self._document).encode(), RunDocument, REQUEST)
        for name, was, wanted in (
            ("nodes", run.hosts, tuple(host.name for host in now.hosts)),
            ("configurations", run.configurations, now.arms),
            ("options", run.options, now.request.options),
            ("environment", run.request.env, now.request.env),
            ("executions", run.document.schedule, now.schedule),
        ):
            if was != wanted:
                raise RequestError(f"Run {run.id} has other {name}.", hint=f"Start a new one: fabbench rerun {run.id}.")
        self.id, self.path, self._document = run.id, run.path.absolute(), read(run.path / REQUEST, dict)
        self._lock()
        self.kept = {each.id: each.logs for each in run.executions if each.is_ok}
        with writing(self.path):
            self.forget_result()
            for each in run.executions:
                if not each.is_ok:
                    shutil.rmtree(each.path, ignore_errors=True)
                    _counters(self.path, each.id).unlink(missing_ok=True)

    def _lock(self) -> None:
        """Lock the directory until this process ends. Raise RequestError if another one has."""
        with suppress(OSError):  # where the file system has no locks
            held = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
            weakref.finalize(self, os.close, held)
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise RequestError(f"Run {self.id} is in progress.", hint="Wait until it has ended.") from None

    def rendered(self, documents: Mapping[str, str]) -> None:
        """Write the documents rendered for this run: name → text. Without any, no directory is created."""
        folder = self.path / "rendered"
        with writing(folder):
            for name, text in documents.items():
                folder.mkdir(exist_ok=True)
                (folder / name).write_text(text, "utf-8")

    def decided(self, executions: Sequence[Execution]) -> None:
        """Write that these executions were decisive, and that no more will follow."""
        document = {**self._document, "schedule": [execution.id for execution in executions]}
        with writing(self.path / REQUEST):
            write(self.path / REQUEST, document)


def _stored(request: RunRequest) -> StoredRequest:
    where = plain(request.target)
    del where["typed"]
    stored = StoredRequest(
        benchmark=request.benchmark,
        target=request.target.name,
        fabrics=request.fabrics,
        repeats=request.repeats,
        most_repeats=request.adaptive.max_repeats if request.adaptive else None,
        where=redacted({"target": where.pop("name"), **where}),
        options=redacted(written(request.work)),
    )
    return replace(stored, env=redacted({"env": request.env})["env"])


def _counters(run: Path, name: str) -> Path:
    return run / "counters" / f"{name}.json"


# ---------------------------------------------------------------- reading


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredExecution:
    """One scheduled execution of a stored run."""

    id: str
    path: Path
    configuration: str
    begun: bool
    finished: bool
    logs: tuple[Log, ...]
    damage: str = ""
    """A sentence if its documents cannot be read: its logs are then truncated."""

    @property
    def is_ok(self) -> bool:
        """Whether it has ended, and all its logs are ok."""
        return self.finished and all(log.outcome is Outcome.OK for log in self.logs)


class StoredRun:
    """A run on disk. Results are read on demand.

    What cannot be read is left out and reported in `damage`, so that a run that is damaged, or from a newer
    fabbench, can be listed and shown as far as possible.
    """

    def __init__(self, path: Path) -> None:
        """Read a run's request."""
        self.path = path
        self._damage: list[str] = []
        try:
            document = read(path / REQUEST, RunDocument)
            variants = read_value(document.request.where.get("variants", ()), tuple[Variant, ...], REQUEST)
        except MachineError as error:
            self._damage.append(str(error))
            document, variants = RunDocument(format=FORMAT), ()
        self.document = document
        self.request, self.command, self.image = document.request, document.command, document.image
        self.name, self.options, self.configurations = document.name, document.request.options, document.arms
        name = RUN_NAME.fullmatch(path.name)
        known = name.groupdict() if name else {"id": path.name, "when": "", "benchmark": ""}
        self.id = document.id or known["id"]
        self.created = document.created or known["when"]
        self.benchmark = self.request.benchmark or known["benchmark"]
        self.target = self.request.target
        self.hosts = tuple(host.name for host in document.hosts)
        """Names of the hosts."""
        self.variants = {variant.name: variant for variant in variants}
        """The configurations' variants, by name."""
        self._schedule = tuple(self._names())

    @property
    def damage(self) -> tuple[str, ...]:
        """Sentences: what cannot be read, and why. Reads all executions."""
        of_executions = (each.damage for each in self.executions if each.damage)
        return tuple(dict.fromkeys((*self._damage, *of_executions)))

    @property
    def command_line(self) -> str:
        """The command line, to copy into a shell; empty if unknown."""
        return shlex.join(self.command)

    @cached_property
    def verdict(self) -> VerdictDocument | None:
        """The result of the run's gates; None if there are none, or it has not ended."""
        path = self.path / VERDICT
        try:
            return read(path, VerdictDocument) if path.is_file() else None
        except MachineError:
            return None

    @property
    def gates(self) -> str:
        """Whether its gates `passed` or `failed`; empty if there were none, or it did not end."""
        return "" if self.verdict is None else "passed" if self.verdict.status == Exit.FINE else "failed"

    @property
    def outcomes(self) -> Mapping[str, int]:
        """Outcome → number of executions. Scheduled ones that never started are `not begun`."""
        counts = Counter(str(log.outcome) for execution in self.executions for log in execution.logs)
        counts.update("not begun" for execution in self.executions if not execution.begun)
        return dict(counts)

    @property
    def max_repeats(self) -> int | None:
        """The limit of repeats of a run that checked its verdicts after each; None if it did not."""
        limit = self.request.most_repeats
        return limit if limit is not None and limit >= FIRST_LOOK else None

    def variant(self, configuration: Configuration) -> Variant | None:
        """Return the variant of a configuration; None if it has none."""
        return self.variants.get(configuration.variant)

    @cached_property
    def executions(self) -> tuple[StoredExecution, ...]:
        """Every scheduled execution, in order."""
        return tuple(self._execution(name, label) for name, label in self.schedule())

    def schedule(self) -> Iterator[tuple[str, str]]:
        """Yield each scheduled execution, and its configuration. No log is read."""
        labels = [each.label for each in sorted(self.configurations, key=lambda each: -len(each.label))]
        for name in self._schedule:
            yield name, next((each for each in labels if re.fullmatch(rf"\d+-{re.escape(each)}-r\d+", name)), "")

    def logs(self, configuration: str) -> tuple[Log, ...]:
        """Return the judged logs of one configuration, in order; executions that never started have none."""
        return tuple(
            log for execution in self.executions if execution.configuration == configuration for log in execution.logs
        )

    def counters(self, name: str) -> execution_counters.ExecutionCounters | None:
        """Read the NIC counters of one execution; None if there are none. Raise MachineError if damaged."""
        path = _counters(self.path, name)
        return read(path, execution_counters.ExecutionCounters) if path.is_file() else None

    # -- inside

    def _names(self) -> Iterator[str]:
        """Yield the scheduled executions. A name that leads to another path is not an execution's."""
        for name in self.document.schedule:
            if _EXECUTION.fullmatch(name):
                yield name
            else:
                wrong = one_line(repr(name))
                self._damage.append(f"{REQUEST}: schedule has {wrong}, which is not an execution.")

    def _execution(self, name: str, configuration: str) -> StoredExecution:
        path = self.path / "exec" / name
        started, finished = (path / "plan.json").is_file(), (path / ENDED).is_file()
        logs, damage = self._read_logs(path, finished=finished) if started else ((), "")
        try:
            logs = execution_counters.with_counter_findings(logs, self.counters(name))
        except MachineError as error:
            logs = execution_counters.unreadable(logs, error)
        return StoredExecution(
            id=name, path=path, configuration=configuration, begun=started, finished=finished, logs=logs, damage=damage
        )

    def _read_logs(self, path: Path, *, finished: bool) -> tuple[tuple[Log, ...], str]:
        """Read the log of an execution, and return the damage of its documents: then the log is truncated."""
        plan, damage = StoredPlan(), ""
        try:
            plan = read(path / "plan.json", StoredPlan)
            ending = Ending(stopped=STOPPED, planned_sizes=plan.planned_sizes)
            if finished:
                ending = read(path / ENDED, ExecutionDocument).ending
        except MachineError as error:
            damage = str(error)
            ending = Ending(stopped=f"Its record in the run is damaged: {damage}", planned_sizes=plan.planned_sizes)
        output = path / "output.log"
        try:
            logs = tuple(parse_file(output, proof=plan.proof, ending=ending)) if output.is_file() else ()
        except MachineError as error:
            logs, damage = (), str(error)
        return logs or (nothing_read(self.benchmark, output, plan.proof, ending),), damage


def nothing_read(benchmark: str, output: Path, proof: Proof | None, ending: Ending) -> Log:
    """Judge an execution whose log has nothing that is known."""
    record = Record(benchmark=benchmark, finished=None)
    return judge(record, source=str(output), proof=proof, ending=ending)


def in_progress(path: Path) -> bool:
    """Return whether a run may be in progress: it has executions left, and was written to recently."""
    stored = StoredRun(path)
    unfinished = any(not (path / "exec" / name / ENDED).is_file() for name, _ in stored.schedule())
    unfinished = unfinished or ((path / SWEEP).is_file() and stored.verdict is None)
    files = (Path(folder, name) for folder, _, names in os.walk(path / "exec") for name in names)
    return unfinished and time.time() - max(each.stat().st_mtime for each in (path, *files)) < _QUIET_S


def remove_run(path: Path) -> None:
    """Remove the directory of a run. Raise MachineError if that is impossible, or it is not a run."""
    if path.is_symlink() or not (path / REQUEST).is_file():
        raise MachineError(f"{path} is not a run directory and was not removed.")
    try:
        shutil.rmtree(path)
    except OSError as error:
        raise MachineError(f"{path} cannot be removed: {error.strerror or error}.") from error
