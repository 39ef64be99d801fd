"""Rows of a file for the example of a tuner plug-in that NCCL's sources have.

A collective for which the plug-in finds no row runs on one channel, as does one whose row leaves
the channels open (NCCL 2.30, plugins/tuner/example/plugin.c). So every row names its channels, and
each of the five collectives that NCCL asks for has rows for all sizes and communicators: what won,
then what NCCL chose by itself, then what NCCL can always run.
"""

import shlex
from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any, TypeAlias, Unpack

from fabbench.analysis.tuning import TunedSize
from fabbench.model.errors import MachineError
from fabbench.model.log import Log
from fabbench.model.patterns import lazy
from fabbench.plan.arms import DEFAULT
from fabbench.runs.run import HowToRun, run
from fabbench.runs.tune import Tune, with_arms

# All that NCCL asks a tuner for, as the file and as nccl-tests name them
_COLLECTIVES = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "reducescatter": "reduce_scatter",
    "broadcast": "broadcast",
    "reduce": "reduce",
}
_LAST = (1 << 64) - 1  # bytes
_PARTS = frozenset({"allgather", "reducescatter"})  # NCCL prints the bytes of one rank
_CHOICE = lazy(
    r"\b(allreduce|allgather|reducescatter|broadcast|reduce): (\d{1,18}) bytes -> "
    r"algo (\w+) proto (\w+) channel\{lo\.\.hi\}=\{0\.\.(\d{1,9})\}"
)

Choices: TypeAlias = dict[TunedSize, str]
"""Size → algorithm, protocol and channels, as the file has them."""


def rows(made: Tune, **how: Unpack[HowToRun]) -> list[str]:
    """Return the rows for what leads in a confirmation, after a run that shows NCCL's own choices.

    None where sizes have no winners of their own. The first row that fits counts. `how` is for
    `run`. Raise MachineError if a log does not show what a row needs.
    """
    if not (made.by_size and made.winners):
        return []
    try:
        return _rows(made, how)
    except BaseException as error:
        path = shlex.quote(str(made.result.path))
        error.add_note(f"What won is stored. To go on: fabbench run --resume {path}")
        raise


def work_of_choices(work: Any) -> Any:
    """Return what shows NCCL's own choices: each collective of a CSV, once at each size."""
    return replace(
        work,
        collectives=tuple(_COLLECTIVES.values()),
        min_bytes=8,
        max_bytes=2 << 30,
        factor=2,
        step_bytes=0,
        iterations=1,
        check=0,
    )


def _rows(made: Tune, how: HowToRun) -> list[str]:
    leaders = made.tuning.leaders
    work = work_of_choices(made.request.work)
    name = "choices-" + made.result.id
    once = replace(made.request, name=name, work=work, adaptive=None, repeats=1)
    usual = run(with_arms(once, ()), **how)
    if usual.interrupted:
        raise KeyboardInterrupt
    if usual.status:
        raise MachineError("The run that shows what NCCL chooses by itself is not ok.")
    logs = {column.label: column.logs[-1] for column in made.result.columns}
    try:
        own = choices(usual.columns[-1].logs[-1])
        chosen = {arm: choices(logs[arm]) for arm in leaders.values()}
        won = own.copy()
        for cell, arm in leaders.items():  # where the default leads, NCCL chose by itself
            won[cell] = chosen[arm][cell]
        facts = logs[DEFAULT].facts
        here = f"{facts['nodes']},{facts['ranks']}"
        anywhere = f"0,{_LAST},ring,simple,{facts['channels']},-1,-1"
    except KeyError as missing:
        raise MachineError(
            "NCCL's log does not show on how many nodes, ranks and channels what won ran."
        ) from missing
    usable = [f"{name},{anywhere}" for name in _COLLECTIVES]
    better = ranges(won, here)
    return [*better, *ranges(own, "-1,-1"), *usable]


def ranges(chosen: Choices, where: str) -> Iterator[str]:
    """Yield a row for each range of sizes with one choice, the largest first.

    A size between two has the choice of the smaller.
    """
    ordered = sorted(chosen, reverse=True)
    changes = groupby(
        ordered,
        lambda cell: (cell.case, chosen[cell]),
    )
    for (case, choice), cells in changes:
        *_, (_, least) = cells
        name = case.replace("_", "")
        yield f"{name},{least},{_LAST},{choice},{where}"


def choices(log: Log) -> Choices:
    """Return what NCCL chose in an execution. Raise KeyError if its log lacks the ranks."""
    chosen: Choices = {}
    text = Path(log.source).read_text("utf-8", "replace")
    for collective, size, algorithm, protocol, last in _CHOICE.findall(text.lower()):
        ranks = int(log.facts["ranks"]) if collective in _PARTS else 1
        cell = TunedSize(_COLLECTIVES[collective], int(size) * ranks)
        channels = int(last) + 1
        chosen[cell] = f"{algorithm},{protocol},{channels}"
    return chosen
