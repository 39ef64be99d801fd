"""The use case of ``fabbench tune``: a run whose variants are arms, then a confirmation.

What won is measured against the default once more, in a second run of fresh executions: only that
run confirms a gain.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple, Unpack

from fabbench.analysis.compare import compare, pair_of
from fabbench.analysis.progress import ALLOWED
from fabbench.analysis.tuning import Samples, TunedSize, Tuning
from fabbench.benchmarks import benchmark_named
from fabbench.benchmarks.standard import Work
from fabbench.launchers import Allocation
from fabbench.model.errors import Exit, MachineError
from fabbench.model.log import Log, Outcome
from fabbench.model.mappings import distinct
from fabbench.model.messages import listed
from fabbench.model.plan import Execution, Variant
from fabbench.model.values import T
from fabbench.plan.arms import DEFAULT
from fabbench.plan.request import RunRequest
from fabbench.runs.execute import Logs, on_machines
from fabbench.runs.load_columns import stored_columns
from fabbench.runs.run import Columns, HowToRun, RunResult, needs_of, require_startable, run
from fabbench.runs.store import StoredRun
from fabbench.runs.sweep import same_nodes
from fabbench.runs.tuned_settings import measured_with

if TYPE_CHECKING:
    from fabbench.analysis.statistics import TwoSamples

CONFIRMS = "confirms-"
"""How the name of a confirmation begins; the id of the run that it confirms follows."""
# Variables whose effect NCCL's log shows → which of algorithms, protocols and channels
_CLAIMS = {"NCCL_ALGO": 0, "NCCL_PROTO": 1, "NCCL_MIN_NCHANNELS": 2, "NCCL_MAX_NCHANNELS": 2}


class Tune(NamedTuple):
    """One of the two runs, and what it shows."""

    request: RunRequest
    tuning: Tuning
    result: RunResult
    confirms: bool
    by_size: bool
    """Whether each size may have a winner of its own."""

    @property
    def status(self) -> Exit:
        """Return the exit status: an arm may fail, the default may not."""
        result = self.result
        if result.interrupted or result.failure or result.release_failure:
            return result.status
        is_open = self.tuning.open and not self._found
        return Exit.UNTRUSTED if is_open else Exit.FINE

    @property
    def winners(self) -> list[Variant]:
        """Return the arms that lead at some sizes, or the one that is best of all."""
        found = () if self.status else self._found
        return [each for each in self.request.target.variants if each.name in found]

    @property
    def measured(self) -> str:
        """Return what it was measured with."""
        return measured_with(StoredRun(self.result.path), self.result.columns[-1])

    @property
    def _found(self) -> set[str]:
        """Return the names of what is asked for: one arm for all sizes, or those that lead some."""
        if self.by_size:
            return {*self.tuning.leaders.values()} - {DEFAULT}
        return {self.tuning.best_of_all()} - {DEFAULT}


def tunes(
    request: RunRequest,
    arms: Sequence[Variant],
    resumed: StoredRun | None,
    *,
    by_size: bool,
    confirms: bool = False,
    **how: Unpack[HowToRun],
) -> Iterator[Tune]:
    """Measure arms, then what won, in fresh executions; yield each run when it has ended.

    One that goes on has the arms that it had. Raise as `run` does, for which `how` is.
    """
    if resumed is not None:
        confirms = resumed.name.startswith(CONFIRMS)
        *arms, _ = resumed.variants.values()  # the last is the default
    steered = with_arms(request, arms)
    adaptive: Any = request.adaptive
    names = tuple(arm.name for arm in arms)
    tuning = Tuning(arms=names, maximum=adaptive.max_repeats)
    steering = partial(in_turn, tuning, steered.metric, adaptive.seconds)
    result = run(steered, resume=resumed, steering=steering, **how)
    made = Tune(steered, tuning, result, confirms, by_size)
    yield made
    if made.winners and not confirms:
        again = replace(request, name=CONFIRMS + result.id)
        yield from tunes(again, made.winners, None, by_size=by_size, confirms=True, **how)


def on_held_machines(
    asked: RunRequest,
    resumed: StoredRun | None,
    measure: Callable[[Allocation], tuple[Tune, T]],
    *,
    later: Work | None,
) -> tuple[Tune, T]:
    """Return what `measure` makes of machines that all runs have, one after the other.

    Of `asked`, the first run. `later`: what another one runs, whose programs are looked for, too.
    Raise FabbenchError if they cannot be held.
    """
    require_startable(asked)
    if resumed is not None:
        asked = same_nodes(asked, resumed.hosts)
    needs = needs_of(asked, runs=2)
    if later is not None:
        others = later.needs
        programs = distinct([*needs.programs, *others.programs])
        needs = replace(needs, programs=programs, folders={**needs.folders, **others.folders})
    (made, more), late = on_machines(asked.target, needs, None, measure)
    interrupted = made.result.interrupted or isinstance(late, KeyboardInterrupt)
    result = replace(made.result, interrupted=interrupted, release_failure=late)
    return made._replace(result=result), more


def in_turn(  # noqa: PLR0913, PLR0917 - what is known, and what `run` adds
    tuning: Tuning,
    metric: str | None,
    seconds: float | None,
    stored: StoredRun,
    executions: Sequence[Execution],
    logs: Logs,
) -> Iterator[Execution]:
    """Yield what is measured next, until all is decided, or the time is up after a repeat.

    The time begins with the first execution, as that of `stop_condition`.
    """
    ends = time.monotonic() + (seconds or math.inf)
    for repeat, some in groupby(executions, attrgetter("repeat")):
        for execution in some:
            if execution.configuration.label not in tuning.out:
                yield execution
        look_at(tuning, stored_columns(stored, logs=logs), metric, repeat)
        if not tuning.open or time.monotonic() >= ends:
            break


def look_at(tuning: Tuning, columns: Columns, metric: str | None, repeats: int) -> None:
    """Drop arms of which a log is not ok, or shows something else than they claim; then look.

    Raise MachineError if the default is not ok.
    """
    void = {
        column.label: why
        for column in columns
        for log in column.logs
        if (why := why_void(column.variant, log))
    }
    if DEFAULT in void:
        raise MachineError(f"The default is not ok. {void[DEFAULT]}")
    tuning.out |= void
    live = [column for column in columns if column.label not in void]
    tuning.look(measured(live, metric), repeats)


def why_void(arm: Variant | None, log: Log) -> str:
    """Return why the figures of a log of an arm do not count; empty: they do.

    Names in logs have underscores that the values of variables lack.
    """
    if log.outcome is not Outcome.OK:
        return f"{log.outcome}: {log.reason}"
    env = arm.env if arm else {}
    ran = str(log.facts.get("algorithms", "unknown/unknown")).replace("_", "")
    pairs = [each.split("/") for each in ran.split("+")]
    channels = str(log.facts.get("channels"))
    shown = [*zip(*pairs, strict=True), (channels,)]
    for name in sorted(_CLAIMS.keys() & env.keys()):
        seen = shown[_CLAIMS[name]]
        claimed = env[name].upper().split(",")
        if not {*seen}.issubset(claimed):
            return f"void: {name} is not what NCCL ran: {listed(seen)}"
    return ""


def measured(columns: Columns, metric: str | None) -> Samples:
    """Return what arms and the default, the last, have for each size."""
    samples: dict[TunedSize, Mapping[str, TwoSamples]] = {}
    comparison = compare(columns, metric=metric, allow=ALLOWED, only_ok=True)
    for section in comparison.sections:
        name = " ".join(section.key.values()) or comparison.common("case")
        for row in section.rows:
            known = {
                each.label: pair
                for at, each in enumerate(columns)  # of the default with itself, too
                if (pair := pair_of(section, row, at)) and pair.measured  # one shows no noise
            }
            if DEFAULT in known:
                samples[TunedSize(name, row.size)] = known
    return samples


def with_arms(request: RunRequest, arms: Sequence[Variant]) -> RunRequest:
    """Return a request whose configurations are these arms, and the default as the baseline.

    NCCL prints what it chooses. Rates of small sizes are rounded to nothing; times are not, and
    decide where there are any.
    """
    metrics = benchmark_named(request.benchmark).printed_metrics(request.work)
    usual = "time" if "time" in metrics else None
    target = replace(request.target, variants=(*arms, Variant(name=DEFAULT)))
    return replace(
        request,
        target=target,
        metric=request.metric or usual,
        appended={"NCCL_DEBUG_SUBSYS": ",TUNING"},
    )
