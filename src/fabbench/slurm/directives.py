"""The ``#SBATCH`` lines of a batch script. Pure. Source: sbatch(1), of Slurm 22.05 and later."""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fabbench.errors import RequestError
from fabbench.model import Plan, Shape
from fabbench.script.limits import longest_s
from fabbench.slurm.limits import seconds, written

OUTPUT = "fabbench-%j.out"
"""The output file; ``%j`` is the job's id."""
JOB_NAME = "fabbench-"
"""What the names of jobs begin with."""
AS_GIVEN = ("partition", "account", "qos", "reservation", "constraint", "chdir")
"""Settings that are options of sbatch's."""
_OVERRULING = (
    *("ARRAY_INX", "ERROR", "EXPORT", "GPUS", "GPUS_PER_TASK", "INPUT", "MEM_PER_CPU", "MEM_PER_GPU"),
    *("NO_REQUEUE", "WAIT"),
)
"""What would make another job of it, less ``SBATCH_``."""
_VARIABLES = {"time": "TIMELIMIT", "mem": "MEM_PER_NODE"}
"""Options whose variables have other names."""
_DIRECTIVE = re.compile(r"^#SBATCH --([a-z-]+)", re.MULTILINE)
_WORD = re.compile(r"[^\s\"'`$\\#]+")
_OPTION = re.compile(r"[a-z][a-z-]*(?:=[^\s\"'`$\\#]+)?")
_OWN = frozenset({
    *("array", "comment", "error", "input", "nodes", "ntasks", "ntasks-per-node", "open-mode", "output"),
    *("parsable", "test-only", "wait", "wrap"),
})  # fmt: skip
"""Options without which, or with which, it would be no job that fabbench can follow."""
_WARNED_S = 60
_LEAST_WARNED_S = 300
"""Slurm warns up to a minute too early: a short job would never come to anything."""


def directives(plan: Plan, settings: Mapping[str, Any], *, gpus: int, nodes: Sequence[str] = ()) -> str:
    """Write the lines. `gpus` are those of each node; `nodes` are the only ones to take, if any are named.

    Raises RequestError for a value that cannot stand in such a line.
    """
    return "".join(f"#SBATCH --{text}\n" for text in _options(plan, settings, gpus, nodes))


def overruling(script: str) -> tuple[str, ...]:
    """Name the variables that sbatch would believe rather than the lines of a script."""
    given = (_VARIABLES.get(name, name.upper().replace("-", "_")) for name in _DIRECTIVE.findall(script))
    return tuple(f"SBATCH_{name}" for name in sorted({*_OVERRULING, *given}))


def _options(plan: Plan, settings: Mapping[str, Any], gpus: int, nodes: Sequence[str]) -> Iterator[str]:
    yield f"job-name={JOB_NAME}{plan.benchmark}"
    yield f"nodes={plan.hosts}"
    yield f"ntasks-per-node={_tasks(plan)}"
    if gpus and not settings.get("no_gres"):
        yield f"gpus-per-node={gpus}"
    yield "exclusive"
    yield "mem=0"
    limit_s = seconds(_word("time", settings["time"])) if settings.get("time") else longest_s(plan)
    yield f"time={settings.get('time') or written(limit_s)}"
    if limit_s >= _LEAST_WARNED_S:
        yield f"signal=B:USR1@{_WARNED_S}"
    yield f"output={OUTPUT}"
    yield "open-mode=append"
    yield "requeue"
    yield from (f"{name}={_word(name, settings[name])}" for name in AS_GIVEN if settings.get(name))
    for text in settings.get("sbatch_options", ()):
        if not _OPTION.fullmatch(text):
            raise RequestError(
                f"--sbatch-option {text} is no option of sbatch's.",
                hint="Write it as --sbatch-option exclude=node7.",
            )
        if text.partition("=")[0] in _OWN:
            raise RequestError(
                f"--sbatch-option {text}: that is fabbench's own to say.", hint="Leave it out."
            )
        yield text
    if nodes:
        yield f"nodelist={','.join(_word('node', node) for node in nodes)}"


def _tasks(plan: Plan) -> int:
    """Count the ranks that a node has at most."""
    ranks = (
        sum(command.ranks for command in step.commands)
        for trial in plan.trials
        for step in trial.steps
        if step.shape is Shape.MPI
    )
    return math.ceil(max(ranks, default=1) / plan.hosts) or 1


def _word(name: str, value: object) -> str:
    if not _WORD.fullmatch(str(value)):
        raise RequestError(f"--{name} {value!r} cannot stand in a batch script: it has blanks or quotes.")
    return str(value)
