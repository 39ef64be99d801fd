"""Runs on disk. What a run measured survives its end at any moment, however it comes.

``STORE/<utc>-<benchmark>-<id>/`` holds ``request.json`` (written first: request, arms in order, schedule),
``rendered/`` (what was submitted, where a run is one job),
``exec/NNN-ARM-rR/`` with ``plan.json``, ``output.log`` (grows line by line; ``interrupted-N.log`` beside it
where a job was begun anew) and ``run.json`` (written last, by rename), ``counters/NNN-ARM-rR.json`` (NICs:
written when the execution begins, and again at its end).
An execution without ``run.json`` was stopped; its ``output.log`` is read again all the same, by the code that
read it live. Only environment that a plan declares is stored, and no secret.
"""

import json
import re
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from fabbench import __version__
from fabbench.counters import around
from fabbench.errors import MachineError, RequestError
from fabbench.execution import FORMAT, ExecutionWriter, unwritable, write
from fabbench.files import parse_file
from fabbench.judge import judge
from fabbench.machines import Inventory
from fabbench.model import Arm, Ending, Log, Plan, Proof, Record, Trial
from fabbench.plan import Request
from fabbench.redaction import hidden, redacted
from fabbench.variants import AS_IT_IS, Variant, named

DEFAULT = Path("fabbench-runs")
STOPPED = "fabbench was stopped before this execution ended."

_RUN_NAME = re.compile(r"(?P<when>\d{8}T\d{6}Z)-(?P<benchmark>.+)-(?P<id>[0-9a-f]{6})")


# ---------------------------------------------------------------- writing


class RunWriter:
    """A run that is going on."""

    def __init__(self, store: Path, request: Request, inventory: Inventory, plan: Plan) -> None:
        """Make the run's directory and write its request. Raises MachineError where that is impossible."""
        self.id = secrets.token_hex(3)
        self.variants = {arm.label: named(request.variants, arm.variant) for arm in plan.arms}
        """Arm label → its variant."""
        self._envs = [request.env, *(variant.env for variant in request.variants)]
        created = time.gmtime()
        name = f"{time.strftime('%Y%m%dT%H%M%SZ', created)}-{plan.benchmark}-{self.id}"
        self.path = (store / name).absolute()
        hosts = {name: [asdict(host) for host in seen] for name, seen in inventory.variants.items()}
        document = {
            "format": FORMAT,
            "fabbench": __version__,
            "id": self.id,
            "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", created),
            "request": redacted(asdict(request)),
            "arms": [asdict(arm) for arm in plan.arms],
            "schedule": [trial.id for trial in plan.trials],
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
        """Write what was rendered for this run: name → text, without secrets. No folder for nothing."""
        folder = self.path / "rendered"
        try:
            for name, text in documents.items():
                folder.mkdir(exist_ok=True)
                for env in self._envs:
                    text = hidden(text, env)  # noqa: PLW2901 - the same text, without secrets
                (folder / name).write_text(text, "utf-8")
        except OSError as error:
            raise unwritable(folder, error) from error

    def execution(self, trial: Trial) -> ExecutionWriter:
        """Begin the directory of one execution."""
        return ExecutionWriter(self.path / "exec" / trial.id, _counters(self.path, trial.id), trial)


def _counters(run: Path, execution: str) -> Path:
    return run / "counters" / f"{execution}.json"


# ---------------------------------------------------------------- reading


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTrial:
    """One scheduled execution of a stored run."""

    id: str
    path: Path
    arm: str
    begun: bool
    finished: bool
    logs: tuple[Log, ...]


class StoredRun:
    """A run on disk. What was measured is read when it is asked for."""

    def __init__(self, path: Path) -> None:
        """Read a run's request. Raises MachineError for what is no run, or one of a newer fabbench."""
        self.path = path
        document = _read(path / "request.json")
        number = document.get("format")
        if number != FORMAT:
            raise MachineError(
                f"{path} has format {number}; this fabbench reads format {FORMAT}.",
                hint="Read it with the fabbench that wrote it.",
            )
        self.request: Mapping[str, Any] = document.get("request", {})
        self.document: Mapping[str, Any] = document
        self.id = str(document.get("id", path.name))
        self.created = str(document.get("created", ""))
        self.benchmark = str(self.request.get("benchmark", ""))
        self.arms = tuple(Arm(**arm) for arm in document.get("arms", ()))
        stored = (self.request.get("where") or {}).get("variants", ())
        self.variants = {each["name"]: Variant(**{**each, "paths": tuple(each["paths"])}) for each in stored}
        """What the arms' variants are, by name."""

    def variant(self, arm: Arm) -> Variant:
        """Say what the variant of an arm is."""
        return self.variants.get(arm.variant, AS_IT_IS)

    @cached_property
    def trials(self) -> tuple[StoredTrial, ...]:
        """Every scheduled execution, in order."""
        labels = sorted((arm.label for arm in self.arms), key=len, reverse=True)
        return tuple(self._trial(name, labels) for name in self.document.get("schedule", ()))

    def logs(self, arm: str) -> tuple[Log, ...]:
        """Give the judged logs of one arm, in order; executions that never began have none."""
        return tuple(log for trial in self.trials if trial.arm == arm for log in trial.logs)

    def counters(self, execution: str) -> around.Around | None:
        """Read the NIC counters of one execution; None: there are none. Raises MachineError if damaged."""
        path = _counters(self.path, execution)
        return around.from_document(_read(path)) if path.is_file() else None

    def _trial(self, name: str, labels: Sequence[str]) -> StoredTrial:
        path = self.path / "exec" / name
        arm = next((label for label in labels if re.fullmatch(rf"\d+-{re.escape(label)}-r\d+", name)), "")
        begun, finished = (path / "plan.json").is_file(), (path / "run.json").is_file()
        logs = self._counted(name, tuple(self._read_logs(path))) if begun else ()
        return StoredTrial(id=name, path=path, arm=arm, begun=begun, finished=finished, logs=logs)

    def _counted(self, name: str, logs: tuple[Log, ...]) -> tuple[Log, ...]:
        try:
            return around.judged(logs, self.counters(name))
        except MachineError as error:
            return around.unreadable(logs, error)

    def _read_logs(self, path: Path) -> Iterator[Log]:
        plan = _read(path / "plan.json")
        proof = Proof(**plan["proof"]) if plan.get("proof") else None
        ending = Ending(stopped=STOPPED, planned_sizes=tuple(plan.get("planned_sizes", ())))
        if (path / "run.json").is_file():
            ending = Ending(**_read(path / "run.json")["ending"])
        output = path / "output.log"
        found = list(parse_file(output, proof=proof, ending=ending)) if output.is_file() else []
        yield from found or [nothing_read(self.benchmark, output, proof, ending)]


def nothing_read(benchmark: str, output: Path, proof: Proof | None, ending: Ending) -> Log:
    """Judge an execution of which the log says nothing at all."""
    record = Record(benchmark=benchmark, finished=None)
    return judge(record, source=str(output), proof=proof, ending=ending)


def runs(store: Path) -> Iterator[Path]:
    """Give the directories of all runs of a store, newest first."""
    if store.is_dir():
        found = (path for path in store.iterdir() if _RUN_NAME.fullmatch(path.name))
        begun = (path for path in found if (path / "request.json").is_file())
        yield from sorted(begun, key=_age, reverse=True)


def open_run(ref: str, store: Path = DEFAULT) -> StoredRun:
    """Find a run by its directory, by its id or name or the beginning or end of one, or as ``last``.

    Raises RequestError where there is none such, or more than one.
    """
    if (Path(ref) / "request.json").is_file():
        return StoredRun(Path(ref))
    known = list(runs(store))
    if ref == "last" and known:
        return StoredRun(known[0])
    found = [path for path in known if _matches(ref, path)]
    exact = [path for path in found if path.name.endswith(f"-{ref}") or path.name == ref]
    if len(exact or found) == 1:
        return StoredRun((exact or found)[0])
    if found:
        names = ", ".join(path.name for path in found[:5])
        raise RequestError(f"{ref} fits {len(found)} runs: {names}.", hint="Write more of it.")
    raise RequestError(
        f"There is no run {ref} in {store}.",
        hint="fabbench runs lists them."
        if known
        else f"There are no runs in {store}; --store names another place.",
    )


def _age(path: Path) -> tuple[str, int]:
    """Order runs by the second in their name, and within it by when their request was written."""
    return path.name.partition("-")[0], (path / "request.json").stat().st_mtime_ns


def _matches(ref: str, path: Path) -> bool:
    name = _RUN_NAME.fullmatch(path.name)
    return (
        bool(ref)
        and name is not None
        and (path.name.startswith(ref) or path.name.endswith(ref) or name["id"].startswith(ref))
    )


def _read(path: Path) -> Mapping[str, Any]:
    try:
        document = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise MachineError(f"{path} cannot be read: {error.strerror or error}.") from error
    except ValueError as error:
        raise MachineError(f"{path} is damaged: {error}.") from error
    if not isinstance(document, dict):
        raise MachineError(f"{path} is damaged: it holds no object.")
    return document
