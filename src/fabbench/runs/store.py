"""Runs on disk. What a run measured survives its end at any moment, however it comes.

``STORE/<utc>-<benchmark>-<id>/`` holds ``request.json`` (written first: request, configurations in order,
schedule), ``rendered/`` (what was submitted, where a run is one job), ``exec/NNN-ARM-rR/`` with
``plan.json``, ``output.log`` (grows line by line; ``interrupted-N.log`` beside it where a job was begun anew)
and ``run.json`` (written last, by rename), ``counters/NNN-ARM-rR.json`` (NICs: written when the execution
begins, and again at its end). An execution without ``run.json`` was stopped; its ``output.log`` is read again
anyway, by the code that read it live. Only environment that a plan declares is stored, and no secret.
"""

import os
import re
import secrets
import shlex
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from fabbench import __version__
from fabbench.analysis.sequential import FIRST_LOOK
from fabbench.counters import execution_counters
from fabbench.evidence.judge import judge
from fabbench.model.errors import Exit, MachineError
from fabbench.model.hosts import Inventory
from fabbench.model.log import Ending, Log, Record
from fabbench.model.messages import one_line, redacted
from fabbench.model.options import written
from fabbench.model.plan import Configuration, Execution, Plan, Proof, Variant
from fabbench.plan.request import RunRequest
from fabbench.runs.document import decode, read, unwritable, write
from fabbench.runs.folders import REQUEST, RUN_NAME, SWEEP, VERDICT
from fabbench.runs.folders import runs as runs  # noqa: PLC0414 - a part of the store
from fabbench.runs.parse_file import parse_file

FORMAT = 1
"""Number of the layout of a run directory."""


class ExecutionWriter:
    """One execution that is going on. A context manager, which closes its log."""

    def __init__(self, path: Path, counters: Path, execution: Execution) -> None:
        self.path = path
        self._counters = counters
        self._started = time.time()
        try:
            path.mkdir()
            write(path / "plan.json", redacted(asdict(execution)))
            self._log = self._opened()
        except OSError as error:
            raise unwritable(path, error) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._log)

    def _opened(self) -> int:
        return os.open(self.path / "output.log", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)

    def begin_anew(self) -> None:
        """Begin a new log: what the old one holds was interrupted, and is kept beside it."""
        earlier = len(list(self.path.glob("interrupted-*.log")))
        try:
            (self.path / "output.log").rename(self.path / f"interrupted-{earlier + 1}.log")
            os.close(self._log)
            self._log = self._opened()
        except OSError as error:
            raise unwritable(self.path / "output.log", error) from error

    def write(self, line: str) -> None:
        """Add a line to the log; when this returns, the line survives fabbench."""
        rest = line.encode("utf-8", "replace") + b"\n"
        try:
            while rest:
                rest = rest[os.write(self._log, rest) :]
        except OSError as error:
            raise unwritable(self.path / "output.log", error) from error

    def counters(self, counted: execution_counters.ExecutionCounters) -> None:
        """Write the NIC counters, in place of those written before."""
        try:
            # Without indentation: what 64 hosts count is long, and json is then ten times as fast.
            write(self._counters, execution_counters.document(counted), indent=None)
        except OSError as error:
            raise unwritable(self._counters, error) from error

    def finish(self, ending: Ending, logs: Sequence[Log]) -> None:
        """Write how the execution ended: from now on it counts as finished."""
        document = {
            "format": FORMAT,
            "started": self._started,
            "ended": time.time(),
            "ending": {**asdict(ending), "planned_sizes": list(ending.planned_sizes)},
            "outcomes": [{"outcome": log.outcome, "reason": log.reason} for log in logs],
        }
        try:
            os.fsync(self._log)
            write(self.path / "run.json", document)
        except OSError as error:
            raise unwritable(self.path / "run.json", error) from error


_QUIET_S = 600
"""A run that was not written to for so long has stopped."""
STOPPED = "fabbench was stopped before this execution ended."

_EXECUTION = re.compile(r"\d+-[^/\0]+-r\d+")


# ---------------------------------------------------------------- writing


class RunWriter:
    """A run that is going on."""

    def __init__(self, request: RunRequest, inventory: Inventory, plan: Plan) -> None:
        """Make the run's directory and write its request. Raise MachineError where that is impossible."""
        self.id = secrets.token_hex(3)
        known = {variant.name: variant for variant in request.variants}
        self.variants = {each.label: known.get(each.variant) for each in plan.configurations}
        """Label of a configuration → its variant; None: it has none."""
        created = time.gmtime()
        name = f"{time.strftime('%Y%m%dT%H%M%SZ', created)}-{plan.benchmark}-{self.id}"
        self.path = (request.store / name).absolute()
        hosts = {name: [asdict(host) for host in seen] for name, seen in inventory.variants.items()}
        self._document = document = {
            "format": FORMAT,
            "fabbench": __version__,
            "id": self.id,
            "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", created),
            "name": request.name,
            "command": redacted(request.command),
            "request": redacted(_document(request)),
            "arms": [asdict(configuration) for configuration in plan.configurations],
            "schedule": [execution.id for execution in plan.executions],
            "hosts": [asdict(host) for host in inventory.hosts],
            "variants": hosts,
            "image": inventory.image,
        }
        try:
            (self.path / "exec").mkdir(parents=True)
            (self.path / "counters").mkdir()
            write(self.path / "request.json", document)
        except OSError as error:
            raise unwritable(self.path, error) from error

    def rendered(self, documents: Mapping[str, str]) -> None:
        """Write what was rendered for this run: name → text. No directory for nothing."""
        folder = self.path / "rendered"
        try:
            for name, text in documents.items():
                folder.mkdir(exist_ok=True)
                (folder / name).write_text(text, "utf-8")
        except OSError as error:
            raise unwritable(folder, error) from error

    def decided(self, executions: Sequence[Execution]) -> None:
        """Write that these executions decided, and that no more are to come."""
        document = {**self._document, "schedule": [execution.id for execution in executions]}
        try:
            write(self.path / REQUEST, document)
        except OSError as error:
            raise unwritable(self.path / REQUEST, error) from error

    def judged(self, status: Exit, breaches: Sequence[str]) -> None:
        """Write whether the gates held."""
        write_verdict(self.path, status, breaches)

    def execution(self, execution: Execution) -> ExecutionWriter:
        """Begin the directory of one execution."""
        return execution_writer(self.path, execution)


def write_verdict(run: Path, status: Exit, breaches: Sequence[str]) -> None:
    """Write what came of a run's gates, or of a sweep."""
    document = {"format": FORMAT, "status": int(status), "breaches": list(breaches)}
    try:
        write(run / VERDICT, document)
    except OSError as error:
        raise unwritable(run / VERDICT, error) from error


def execution_writer(run: Path, execution: Execution) -> ExecutionWriter:
    """Begin the directory of one execution of a run."""
    return ExecutionWriter(run / "exec" / execution.id, _counters(run, execution.id), execution)


def _document(request: RunRequest) -> dict[str, Any]:
    """Return what a run keeps of its request: what was measured, where, and how."""
    where = asdict(request.target)
    del where["typed"]
    return {
        "benchmark": request.benchmark,
        "target": request.target.name,
        "fabrics": request.fabrics,
        "repeats": request.repeats,
        "most_repeats": request.adaptive.most if request.adaptive else None,
        "where": {"target": where.pop("name"), **where},
        "env": dict(request.env),
        "options": written(request.work),
    }


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
    """A sentence, where its documents cannot be read: its logs are truncated then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _StoredPlan:
    """What is read of an execution's plan.json."""

    proof: Proof | None = None
    planned_sizes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _StoredEnding:
    """What is read of an execution's run.json."""

    ending: Ending


class StoredRun:
    """A run on disk. What was measured is read when it is asked for.

    What cannot be read is left out, and `damage` says so: a run that is damaged, or of a newer fabbench, can
    be listed and shown as far as it goes.
    """

    def __init__(self, path: Path) -> None:
        """Read a run's request."""
        self.path = path
        self._damage: list[str] = []
        self.document = self._request_document()
        self.request = self._value(Mapping[str, Any], self.document, "request", {})
        name = RUN_NAME.fullmatch(path.name)
        usual = name.groupdict() if name else {"id": path.name, "when": "", "benchmark": ""}
        self.id = self._value(str, self.document, "id", usual["id"])
        self.created = self._value(str, self.document, "created", usual["when"])
        self.image = self._value(str, self.document, "image", "")
        self.name: str = self._value(str, self.document, "name", "")
        """As `fabbench run --name` has it."""
        self.command: tuple[str, ...] = self._value(tuple[str, ...], self.document, "command", ())
        """The command line; what is secret in it is not there."""
        self.hosts = tuple(self._hosts())
        """Names of the hosts."""
        self.benchmark = self._value(str, self.request, "benchmark", usual["benchmark"])
        self.target = self._value(str, self.request, "target", "")
        self.options = self._value(Mapping[str, Any], self.request, "options", {})
        arms = self._value(tuple[Configuration, ...], self.document, "arms", ())
        self.configurations: tuple[Configuration, ...] = arms
        self._schedule = tuple(self._names())
        where = self._value(Mapping[str, Any], self.request, "where", {})
        variants: tuple[Variant, ...] = self._value(tuple[Variant, ...], where, "variants", ())
        self.variants = {variant.name: variant for variant in variants}
        """What the configurations' variants are, by name."""

    @property
    def damage(self) -> tuple[str, ...]:
        """Sentences: what cannot be read, and why. Reads all executions."""
        own = (each.damage for each in self.executions if each.damage)
        return tuple(dict.fromkeys((*self._damage, *own)))

    @property
    def command_line(self) -> str:
        """The command line, to copy into a shell; empty: not known."""
        return shlex.join(self.command)

    @cached_property
    def verdict(self) -> Exit | None:
        """What came of the run's gates; None: there are none, or it has not ended."""
        path = self.path / VERDICT
        try:
            return Exit(read(path)["status"]) if path.is_file() else None
        except (MachineError, KeyError, ValueError):
            return None

    @property
    def most_repeats(self) -> int | None:
        """The most repeats of a run that looked at its verdicts after each; None: it did not."""
        request = self.document.get("request")
        most = request.get("most_repeats") if isinstance(request, Mapping) else None
        return most if isinstance(most, int) and most >= FIRST_LOOK else None

    def variant(self, configuration: Configuration) -> Variant | None:
        """Return the variant of a configuration; None: it has none."""
        return self.variants.get(configuration.variant)

    @cached_property
    def executions(self) -> tuple[StoredExecution, ...]:
        """Every scheduled execution, in order."""
        return tuple(self._execution(name, label) for name, label in self.schedule())

    def schedule(self) -> Iterator[tuple[str, str]]:
        """Yield each scheduled execution, and its configuration. No log is read."""
        labels = self._labels()
        yield from ((name, _label(name, labels)) for name in self._schedule)

    def logs(self, configuration: str) -> tuple[Log, ...]:
        """Return the judged logs of one configuration, in order; executions that never began have none."""
        return tuple(
            log
            for execution in self.executions
            if execution.configuration == configuration
            for log in execution.logs
        )

    def counters(self, name: str) -> execution_counters.ExecutionCounters | None:
        """Read the NIC counters of one execution; None: there are none. Raise MachineError if damaged."""
        path = _counters(self.path, name)
        return execution_counters.from_document(read(path)) if path.is_file() else None

    # -- inside

    def _request_document(self) -> Mapping[str, Any]:
        """Read the request; an empty one where it cannot be understood."""
        try:
            document = read(self.path / REQUEST)
        except MachineError as error:
            self._damage.append(str(error))
            return {}
        number = document.get("format")
        if number == FORMAT:
            return document
        self._damage.append(
            f"{REQUEST} has format {one_line(repr(number))}, and this fabbench reads format {FORMAT}: "
            "read it with the fabbench that wrote it."
        )
        return {}

    def _value(self, kind: Any, document: Mapping[str, Any], key: str, usual: Any) -> Any:
        """Return a value of the request; `usual` where it is not there, or damaged."""
        if document.get(key) is None:
            return usual
        try:
            return decode(kind, document[key], f"{REQUEST}: {key}")
        except MachineError as error:
            self._damage.append(str(error))
            return usual

    def _hosts(self) -> Iterator[str]:
        for host in self._value(tuple[Mapping[str, Any], ...], self.document, "hosts", ()):
            yield self._value(str, host, "name", "unknown")

    def _names(self) -> Iterator[str]:
        """Yield the executions that were scheduled. A name that leads elsewhere is none of an execution."""
        for name in self._value(tuple[str, ...], self.document, "schedule", ()):
            if _EXECUTION.fullmatch(name):
                yield name
            else:
                wrong = one_line(repr(name))
                self._damage.append(f"{REQUEST}: schedule has {wrong}, which is not an execution.")

    def _labels(self) -> Sequence[str]:
        """Return the labels of the configurations, the longest first."""
        return sorted((configuration.label for configuration in self.configurations), key=len, reverse=True)

    def _execution(self, name: str, configuration: str) -> StoredExecution:
        path = self.path / "exec" / name
        begun, finished = (path / "plan.json").is_file(), (path / "run.json").is_file()
        logs, damage = self._read_logs(path, finished=finished) if begun else ((), "")
        return StoredExecution(
            id=name,
            path=path,
            configuration=configuration,
            begun=begun,
            finished=finished,
            logs=self._counted(name, logs),
            damage=damage,
        )

    def _counted(self, name: str, logs: tuple[Log, ...]) -> tuple[Log, ...]:
        try:
            return execution_counters.judged(logs, self.counters(name))
        except MachineError as error:
            return execution_counters.unreadable(logs, error)

    def _read_logs(self, path: Path, *, finished: bool) -> tuple[tuple[Log, ...], str]:
        """Read the log of an execution, and say what is damaged of the rest: then it is truncated."""
        proof: Proof | None = None
        planned: tuple[int, ...] = ()
        damage = ""
        try:
            plan = decode(_StoredPlan, read(path / "plan.json"), f"exec/{path.name}/plan.json")
            proof, planned = plan.proof, plan.planned_sizes
            ending = Ending(stopped=STOPPED, planned_sizes=planned)
            if finished:
                place = f"exec/{path.name}/run.json"
                ending = decode(_StoredEnding, read(path / "run.json"), place).ending
        except MachineError as error:
            damage = str(error)
            ending = Ending(stopped=f"Its record in the run is damaged: {damage}", planned_sizes=planned)
        output = path / "output.log"
        try:
            found = tuple(parse_file(output, proof=proof, ending=ending)) if output.is_file() else ()
        except MachineError as error:
            found, damage = (), str(error)
        return found or (nothing_read(self.benchmark, output, proof, ending),), damage


def _label(name: str, labels: Sequence[str]) -> str:
    """Return the label of the configuration that an execution is of."""
    return next((label for label in labels if re.fullmatch(rf"\d+-{re.escape(label)}-r\d+", name)), "")


def nothing_read(benchmark: str, output: Path, proof: Proof | None, ending: Ending) -> Log:
    """Judge an execution of which the log says nothing at all."""
    record = Record(benchmark=benchmark, finished=None)
    return judge(record, source=str(output), proof=proof, ending=ending)


def in_progress(path: Path) -> bool:
    """Return whether a run may be going on: it has executions left, and was written to a short while ago."""
    stored = StoredRun(path)
    left = any(not (path / "exec" / name / "run.json").is_file() for name, _ in stored.schedule())
    left = left or ((path / SWEEP).is_file() and stored.verdict is None)
    touched = max((each.stat().st_mtime for each in (path, *path.glob("exec/*/*"))), default=0.0)
    return left and time.time() - touched < _QUIET_S


def remove_run(path: Path) -> None:
    """Remove the directory of a run. Raise MachineError where that is impossible, or it is none."""
    if path.is_symlink() or not (path / REQUEST).is_file():
        raise MachineError(f"{path} is not a run directory and was not removed.")
    try:
        shutil.rmtree(path)
    except OSError as error:
        raise MachineError(f"{path} cannot be removed: {error.strerror or error}.") from error
