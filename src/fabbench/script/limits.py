"""How long a plan may take as one job. Pure."""

import math

from fabbench.model import Plan, Trial

_AROUND_S = 600
"""For starting, ending and looking, besides what is measured."""
_EACH_STEP_S = 30


def longest_s(plan: Plan) -> int:
    """Say how long a plan may take: its steps' own limits, and what goes on around them, in whole minutes."""
    total = sum(_trial_s(trial) for trial in plan.trials) + _AROUND_S
    return math.ceil(total / 60) * 60


def _trial_s(trial: Trial) -> float:
    each = [step.timeout_s + _EACH_STEP_S for step in trial.steps]
    return max(each, default=0) if trial.together else sum(each)
