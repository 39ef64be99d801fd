"""The arms of a task, and the variable that chooses among them. Pure."""

from dataclasses import replace

from fabbench.errors import FabbenchError
from fabbench.fabrics import RDMA
from fabbench.machines import Inventory
from fabbench.model import Plan, Step, Trial
from fabbench.plan import Request, Work, plan

ALL = "all"
_BASE = "tcp"


def with_base(planned: Plan, request: Request, inventory: Inventory, work: Work | None) -> Plan:
    """Add tcp to a plan of one arm on an RDMA fabric, behind what was planned; else give the plan as it is.

    So that one variable turns a rendered task to its baseline. A benchmark that has no tcp stays as it is.
    """
    alone = len(planned.arms) == 1 and planned.arms[0].fabric in RDMA and not request.variants
    if not alone or work is None:
        return planned
    try:
        base = plan(replace(request, fabrics=(_BASE,), repeats=len(planned.trials)), inventory, work)
    except FabbenchError:
        return planned
    trials = (_numbered(trial, number) for number, trial in enumerate(base.trials, start=len(planned.trials)))
    return replace(planned, arms=(*planned.arms, *base.arms), trials=(*planned.trials, *trials))


def chosen(planned: Plan) -> str:
    """Give the value of ``FABRIC`` that runs exactly what was planned."""
    return planned.arms[0].label if len(planned.arms) == 1 else ALL


def _numbered(trial: Trial, number: int) -> Trial:
    """Give a trial another number, in its id and in those of its steps."""
    name = f"{number:03}-{trial.arm.label}-r{trial.repeat}"
    return replace(trial, id=name, steps=tuple(_of(step, name) for step in trial.steps))


def _of(step: Step, trial: str) -> Step:
    return replace(step, id=f"{trial}/{step.id.partition('/')[2]}")
