"""Estimates how long a plan will take, from earlier runs in the store."""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import islice
from statistics import median
from typing import Any

from fabbench.model.errors import MachineError
from fabbench.model.log import Outcome
from fabbench.model.messages import redacted
from fabbench.model.options import written
from fabbench.model.plan import Plan
from fabbench.plan.request import RunRequest
from fabbench.runs.document import ExecutionDocument, read
from fabbench.runs.store import ENDED, StoredRun, runs

_RUNS = 50
"""Number of runs in the store that are read, the newest ones."""


def longest_s(planned: Plan) -> float:
    """Return the number of seconds after which the last execution is aborted at the latest."""
    limits = ((each, [step.timeout_s for step in each.steps]) for each in planned.executions)
    return sum(max(seconds) if execution.together else sum(seconds) for execution, seconds in limits)


def estimated_s(request: RunRequest, planned: Plan) -> float | None:
    """Return how many seconds the same executions took before on this target; None if not all are known."""
    requested = _comparable(written(request.work))
    known: defaultdict[str, list[float]] = defaultdict(list)
    for run in map(StoredRun, islice(runs(request.store), _RUNS)):
        same = (run.benchmark, run.target) == (request.benchmark, request.target.name)
        if same and _comparable(run.options) == requested:
            for label, seconds in _durations(run):
                known[label].append(seconds)
    durations = [known.get(execution.configuration.label) for execution in planned.executions]
    return sum(median(each) for each in durations if each) if all(durations) else None


def _comparable(options: Mapping[str, Any]) -> Any:
    return json.loads(json.dumps(redacted(options), default=str))


def _durations(run: StoredRun) -> Iterator[tuple[str, float]]:
    """Yield configuration and seconds of each execution that was ok."""
    for name, label in run.schedule:
        with suppress(MachineError):
            document = read(run.path / "exec" / name / ENDED, ExecutionDocument)
            if all(each.outcome is Outcome.OK for each in document.outcomes):
                yield label, document.ended - document.started
