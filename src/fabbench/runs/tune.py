"""The use case of ``fabbench tune``: a run whose variants are arms, then a confirmation.

What won is measured against the default once more, in a second run of fresh executions: only that
run confirms a gain.
"""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from fabbench.analysis.aggregate import Column, Figure
from fabbench.analysis.compare import compare
from fabbench.analysis.progress import ALLOWED
from fabbench.analysis.statistics import Values
from fabbench.analysis.tuning import DEFAULT, Samples, TunedSize, Tuning
from fabbench.benchmarks import benchmark_named
from fabbench.model.errors import Exit, MachineError, worst
from fabbench.model.log import Facts, Log, Outcome
from fabbench.model.mappings import Variables
from fabbench.model.messages import counted
from fabbench.model.plan import Execution, Plan, Step, Variant
from fabbench.plan.request import Adaptive, RunRequest
from fabbench.runs.run import Columns, Notify, RunResult, run
from fabbench.runs.store import StoredRun

Rounding: TypeAlias = Mapping[TunedSize, float]
TUNED = "tuned"
_SUBSYSTEMS = "NCCL_DEBUG_SUBSYS"


@dataclass(kw_only=True)
class Tune:
    """One of the two runs: it steers itself (`fabbench.runs.run.Steering`)."""

    request: RunRequest
    notify: Notify
    tuning: Tuning
    ends: float
    """No repeat starts after this time of `time.monotonic`."""
    log: Log | None = None
    """The default's newest."""
    bad: dict[str, str] = field(default_factory=dict)
    """Arm → why its figures do not count."""
    result: RunResult = field(init=False)

    def prepared(self, planned: Plan) -> Plan:
        """Return the plan with NCCL's choices in its logs."""
        executions = tuple(
            replace(each, steps=tuple(map(_with_choices, each.steps)))
            for each in planned.executions
        )
        return replace(planned, executions=executions)

    def wanted(self, execution: Execution) -> bool:
        """Return whether the arm of an execution is not out."""
        return execution.configuration.label not in self.tuning.out

    def enough(self, number: int, columns: Columns) -> bool:
        """Return whether all is decided, or the time is up.

        Raise MachineError if the default is not ok.
        """
        tuning = self.tuning
        before = {*tuning.out}
        for column in columns:
            self._judge(column, column.logs[-1])
        repeats, in_repeat = divmod(number, len(tuning.arms) + 1)
        if not in_repeat:
            live = [column for column in columns if column.label not in self.bad]
            tuning.look(*measured(live, self.request.metric), repeats)
            left = counted(len(tuning.open), "variant")
            if tuning.leaders:
                self.notify(f"After {repeats} repeats {left} may still beat what leads.")
        for arm in tuning.out.keys() - before:
            self.notify(f"{arm} is out: {tuning.out[arm]}")
        return not in_repeat and (tuning.decided or time.monotonic() >= self.ends)

    def _judge(self, column: Column, log: Log) -> None:
        """Look at the newest log of an arm: whether it is ok, and ran what the arm claims."""
        assert column.variant  # noqa: S101 - all columns are variants
        why = why_void(column.variant.env, log.facts)
        if log.outcome is not Outcome.OK:
            why = f"{log.outcome}: {log.reason}"
        if column.label == DEFAULT:
            self.log = log
        if why and column.label == DEFAULT:
            raise MachineError(f"The default is not ok. {why}")
        if why:
            self.bad.setdefault(column.label, why)
            self.tuning.out |= self.bad

    @property
    def status(self) -> Exit:
        """Return the exit status: an arm may fail, the default may not."""
        result = self.result
        if result.interrupted or result.failure or not self.tuning.leaders:
            return worst(result.status, Exit.UNTRUSTED)
        return Exit.FINE


def _with_choices(step: Step) -> Step:
    """Return a step whose NCCL prints its choices."""
    commands = []
    for command in step.commands:
        env = dict(command.env)
        if _SUBSYSTEMS in env:
            env[_SUBSYSTEMS] += ",TUNING"
        commands.append(replace(command, env=env))
    return replace(step, commands=tuple(commands))


def why_void(env: Variables, facts: Facts) -> str:
    """Return why an arm did not run what its variables say; empty: it did, or they say nothing."""
    ran = str(facts.get("algorithms", "nothing/nothing that its log shows"))
    pairs = [each.split("/") for each in ran.split("+")]
    algorithms, protocols = zip(*pairs, strict=True)
    for name, seen in (("NCCL_ALGO", algorithms), ("NCCL_PROTO", protocols)):
        claimed = env.get(name, "").upper().split(",")
        if name in env and not {*seen} <= {*claimed}:
            return f"void: {name}={env[name]}, and NCCL ran {ran}"
    channels = int(facts.get("channels_used", 0))
    least = int(env.get("NCCL_MIN_NCHANNELS", channels))
    most = int(env.get("NCCL_MAX_NCHANNELS", channels))
    if channels and not least <= channels <= most:
        return f"void: NCCL used {channels} channels"
    return ""


def measured(columns: Columns, metric: str | None) -> tuple[Samples, Rounding]:
    """Return what columns that are ok have for each size of the default, and the rounding there."""
    samples: dict[TunedSize, Mapping[str, Values]] = {}
    rounding: dict[TunedSize, float] = {}
    comparison = compare(columns, metric=metric, allow=ALLOWED, only_ok=True)
    for section in comparison.sections:
        name = " ".join(section.key.values()) or comparison.common("case")
        sign = -1 if section.metric.lower_is_better else 1
        for row in section.rows:
            base = row.figures[-1]
            if base is None or not base.low:
                continue
            cell = TunedSize(name, row.size)
            rounding[cell] = base.step / 2 / base.low
            samples[cell] = {
                column.label: _logarithms(figure, sign)
                for column, figure in zip(columns, row.figures, strict=True)
            }
    return samples, rounding


def _logarithms(figure: Figure | None, sign: int) -> Values:
    """Return those of each execution; a 0 counts as not measured."""
    if figure is None or not figure.low:
        return {}
    return {run: sign * math.log(value) for run, value in figure.executions}


def with_arms(request: RunRequest, arms: Sequence[Variant]) -> RunRequest:
    """Return a request whose configurations are these arms, and the default as the baseline.

    Rates of small sizes are rounded to nothing; times are not, and decide where there are any.
    """
    target = replace(request.target, variants=(*arms, Variant(name=DEFAULT)))
    metrics = benchmark_named(request.benchmark).printed_metrics(request.work)
    usual = "time" if "time" in metrics else None
    return replace(request, target=target, metric=request.metric or usual)


def tune(
    request: RunRequest,
    arms: Sequence[Variant],
    adaptive: Adaptive,
    resume: StoredRun | None = None,
    **more: Any,
) -> Tune:
    """Measure arms and the default until it is decided which are better. Raise as `run` does.

    `more` is for `run`.
    """
    made = Tune(
        request=replace(with_arms(request, arms), adaptive=adaptive),
        notify=more["notify"],
        tuning=Tuning(arms=tuple(arm.name for arm in arms), maximum=adaptive.max_repeats),
        ends=time.monotonic() + (adaptive.seconds or math.inf),
    )
    made.result = run(made.request, resume=resume, steering=made, **more)
    return made
