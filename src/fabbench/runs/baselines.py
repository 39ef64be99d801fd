"""The last good run of its kind, which others are compared with."""

import os
from collections.abc import Iterable
from itertools import dropwhile, islice
from pathlib import Path
from typing import TYPE_CHECKING

from fabbench.model.errors import MachineError, RequestError
from fabbench.runs.folders import run_folders
from fabbench.runs.inputs import open_run
from fabbench.runs.summary import RunSetup, Summary, setup_of, summaries, summary_of

if TYPE_CHECKING:
    from fabbench.model.hosts import Inventory
    from fabbench.model.plan import Plan
    from fabbench.plan.request import RunRequest

LAST_GOOD = "last-good"


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
