"""Runs that others are compared with: by a name that the user chose, or as the last good one of its kind.

A name is a file in the store, ``baselines/NAME.json``, that identifies the run.
"""

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import dropwhile, islice
from pathlib import Path
from typing import TYPE_CHECKING

from fabbench.model.errors import MachineError, RequestError
from fabbench.runs.document import Format, read, write, writing
from fabbench.runs.folders import BASELINES, REQUEST, run_folders
from fabbench.runs.inputs import open_run
from fabbench.runs.summary import RunSetup, Summary, setup_of, summaries, summary_of

if TYPE_CHECKING:
    from fabbench.model.hosts import Inventory
    from fabbench.model.plan import Plan
    from fabbench.plan.request import RunRequest

LAST_GOOD = "last-good"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_RESERVED = frozenset({LAST_GOOD, "last"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """``baselines/NAME.json``: a run with a name. `run` is its directory, relative to the store."""

    format: Format = 1
    run: str
    name: str = ""

    def folder(self, store: Path) -> Path:
        """Return the directory of the run."""
        return store / self.run

    def is_there(self, store: Path) -> bool:
        """Return whether the run has not been removed."""
        return (self.folder(store) / REQUEST).is_file()


def set_baseline(name: str, ref: str, store: Path) -> Baseline:
    """Give a run a name. Raise RequestError for an invalid name, and for a run that is not good."""
    if not _NAME.fullmatch(name) or name in _RESERVED:
        raise RequestError(
            f"{name!r} cannot be the name of a baseline.",
            hint=f"Use up to 64 letters, digits, '.', '_' and '-'; {' and '.join(sorted(_RESERVED))} are reserved.",
        )
    run = open_run(ref, store)
    summary = summary_of(run)
    if not summary.is_ok:
        raise RequestError(
            f"Run {run.id} is not good enough for a baseline: {_problem(summary)}.",
            hint="Name a run whose executions are all ok and whose gates passed.",
        )
    resolved, folder = run.path.resolve(), store.resolve()
    path = resolved.relative_to(folder) if resolved.is_relative_to(folder) else resolved
    file = _file(store, name)
    with writing(file):
        file.parent.mkdir(parents=True, exist_ok=True)
        write(file, baseline := Baseline(run=str(path), name=name))
    return baseline


def remove_baseline(name: str, store: Path) -> None:
    """Remove a name; the run stays. Raise RequestError if the name does not exist."""
    baseline = _read_baseline(name, store)
    if baseline is None:
        known = ", ".join(each.name for each in baselines(store)) or "none"
        raise RequestError(f"Baseline {name} not found in {store}.", hint=f"Known: {known}.")
    with writing(_file(store, name)):
        _file(store, name).unlink()


def baselines(store: Path) -> Iterator[Baseline]:
    """Yield the baselines of a store, by name. Raise MachineError for a file that is damaged."""
    for file in sorted((store / BASELINES).glob("*.json")):
        if baseline := _read_baseline(file.stem, store):
            yield baseline


def baseline_input(ref: str, store: Path, compared: str = "") -> str:
    """Convert a baseline to an input of a comparison: NAME or NAME:CONFIG becomes its run.

    ``last-good`` becomes the last good run before the one that is `compared`. Anything else is returned
    unchanged. Raise RequestError if its run has been removed.
    """
    if ref == LAST_GOOD and compared:
        return last_good_before(compared, store)
    name, colon, configuration = ref.partition(":")
    baseline = _read_baseline(name, store)
    if baseline is None:
        return ref
    if not baseline.is_there(store):
        raise RequestError(
            f"The run of baseline {name}, {baseline.run}, has been removed.",
            hint=f"Choose another: fabbench baseline set {name} RUN.",
        )
    return f"{baseline.folder(store)}{colon}{configuration}"


def _file(store: Path, name: str) -> Path:
    return store / BASELINES / f"{name}.json"


def _read_baseline(name: str, store: Path) -> Baseline | None:
    file = _file(store, name)
    if not _NAME.fullmatch(name) or not file.is_file():
        return None
    return replace(read(file, Baseline), name=name)


def _problem(run: Summary) -> str:
    if run.damaged:
        return "it is damaged"
    if run.gate == "failed":
        return "a gate failed"
    outcomes = [f"{count} {outcome}" for outcome, count in run.outcomes.items()]
    return ", ".join(outcomes) or "nothing was measured"


# ---------------------------------------------------------------- the last good run


def last_good_for(request: "RunRequest", inventory: "Inventory", planned: "Plan") -> str:
    """Return the newest good run of what is about to be measured; see `_newest_good`."""
    from fabbench.runs.store import document_of

    setup = setup_of(document_of(request, inventory, planned))
    return _newest_good(setup, planned.configurations[0].label, summaries(request.store), request.store)


def last_good_before(ref: str, store: Path) -> str:
    """Return the newest good run before a run, that measured the same; see `_newest_good`."""
    run_ref, _, configuration = ref.partition(":")
    try:
        run = open_run(run_ref, store)
    except RequestError as error:
        raise RequestError(f"{LAST_GOOD} needs a run to look back from: {error}", hint=error.hint) from error
    setup = summary_of(run).setup
    if run.damage or not setup.configurations:
        raise MachineError(f"Run {run.id} is damaged.", hint=f"fabbench show {run.id} prints what can be read.")
    known = (each for each in summaries(store) if each.created <= run.created)
    # Of the same second, the one that follows in the list is older.
    listed = run.path.name in map(os.path.basename, run_folders(store))
    earlier = islice(dropwhile(lambda each: each.id != run.id, known), 1, None) if listed else known
    return _newest_good(setup, configuration or setup.configurations[0].label, earlier, store)


def _newest_good(setup: RunSetup, configuration: str, runs: Iterable[Summary], store: Path) -> str:
    """Return the newest good run with a configuration that measured the same, as an input of a comparison.

    It may have other configurations too. Raise RequestError if there is none.
    """
    for run in runs:
        labels = [each.label for each in run.setup.configurations]
        if run.is_ok and configuration in labels and _measured_by(run.setup) == _measured_by(setup):
            return f"{store / run.path}:{configuration}"
    raise RequestError(
        f"No earlier run of {setup.benchmark} on {setup.target} in {store} measured {configuration} "
        "the same way and is good.",
        hint="Run once without --baseline. A good run has the same options, nodes and configuration, "
        "all executions ok, and no failed gate.",
    )


def _measured_by(setup: RunSetup) -> tuple[object, ...]:
    return setup.benchmark, setup.target, setup.options, len(setup.hosts), setup.instance_types
