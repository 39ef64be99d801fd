"""The launcher ``slurm``: a whole run as one job of Slurm's, submitted here or on a login node over ssh.

Inside an allocation the script is run there, and nothing is submitted.
"""

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from fabbench.check import Around
from fabbench.errors import MachineError, RequestError
from fabbench.jobs import Follow, JobPlace
from fabbench.launchers import Examined, Progress
from fabbench.login.allocation import allocated, run_inside
from fabbench.login.job import Submitted, follow
from fabbench.login.probing import ask_nodes
from fabbench.login.way import Login, inside, login
from fabbench.machines import Inventory, Needs, Where
from fabbench.offline import inventory_of
from fabbench.rendering import rendering_named
from fabbench.slurm.checks import check_nodes
from fabbench.slurm.nodes import (
    Partition,
    SlurmNode,
    chosen,
    gpus_of,
    nodes,
    partitions,
    require,
    type_of,
)

if TYPE_CHECKING:
    from fabbench.hosts.found import Probe

_NODES = 2
_FILE = "job.sbatch"


class Slurm:
    """The launcher ``slurm``."""

    name = "slurm"

    @contextlib.contextmanager
    def open(self, where: Where, needs: Needs) -> Iterator[JobPlace]:
        """Look at Slurm's nodes. Leaving it leaves no job and no file there."""
        _refuse_options(where)
        with login(where) as there:
            seen, partition = _seen(there, where)
            place = (
                _allocated(where, needs, seen)
                if inside(where)
                else _wanted(where, needs, there, seen, partition)
            )
            with contextlib.closing(place):
                yield place

    def examine(self, where: Where, needs: Needs, *, full: bool, progress: Progress) -> Examined:
        """Look at the nodes of a partition, as Slurm's controller shows them.

        With the setting ``deep`` the nodes that are idle are asked themselves, in a short job.
        """
        del full
        progress("looking at the nodes", 0, 1)
        with login(where) as there:
            seen, partition = _seen(there, where)
            inside_it = [node for node in seen if partition.has(node)]
            shown = [node for node in inside_it if not where.hosts or node.name in where.hosts]
            idle = [node for node in shown if node.idle][: where.nodes]
            probes: Mapping[str, Probe] = {}
            around = Around()
            if where.settings.get("deep") and idle:
                progress("asking the nodes", 0, len(idle))
                probes, around = ask_nodes(there, idle, where, needs)
        checks = check_nodes(shown, partition, where.nodes, _type(where))
        return Examined(probes=probes, around=around, checks=checks)


LAUNCHER = Slurm()


def _refuse_options(where: Where) -> None:
    if where.settings.get("options"):
        raise RequestError(
            "The options of this target are none of the launcher slurm.",
            hint="What sbatch is to get besides stands in sbatch-options, as a list.",
        )


def _seen(there: Login, where: Where) -> tuple[tuple[SlurmNode, ...], Partition]:
    """Ask for the nodes, and the partition that is meant."""
    told = [there.sure(("scontrol", "show", what, "--oneliner", "--all")) for what in ("node", "partition")]
    for done in told:
        if done.status:
            said = " ".join((*done.err, *done.out)) or "it said nothing"
            raise MachineError(
                f"Slurm cannot be asked on {there.name}: {said}.",
                hint="Is scontrol there, and slurmctld up? --login HOST names another machine.",
            )
    known = partitions(told[1].out)
    name = where.settings.get("partition")
    return nodes(told[0].out), chosen(known, str(name) if name else None)


def _type(where: Where) -> str:
    return str(where.settings.get("instance_type") or "")


def _wanted(
    where: Where, needs: Needs, there: Login, seen: tuple[SlurmNode, ...], partition: Partition
) -> JobPlace:
    """Say what a job gets, and how it is submitted."""
    count = where.nodes or len(where.hosts) or _NODES
    fit = require(seen, partition, count, where.hosts)
    limit = where.settings.get("start_timeout")
    limit_s = float(limit) if limit else None
    found = _inventory(
        where, needs, fit, [f"node {number} of {partition.name}" for number in range(1, count + 1)]
    )
    job = Submitted(there, limit_s)
    place = _place(found, partial(follow, job))
    place.give_up = job.give_up
    return place


def _allocated(where: Where, needs: Needs, seen: tuple[SlurmNode, ...]) -> JobPlace:
    """Say what the allocation has, and how a script is run in it."""
    names = allocated()
    count = where.nodes or len(names)
    if count > len(names):
        raise MachineError(
            f"{count} nodes are wanted, and this allocation has {len(names)}: {', '.join(names)}."
        )
    fit = tuple(node for node in seen if node.name in names)
    found = _inventory(where, needs, fit, names[:count])
    return _place(found, lambda document: run_inside(document, names))


def _place(found: Inventory, how: Follow) -> JobPlace:
    return JobPlace(found, rendering_named("slurm"), _FILE, how, begins=True)


def _inventory(
    where: Where, needs: Needs, fit: tuple[SlurmNode, ...], names: list[str] | tuple[str, ...]
) -> Inventory:
    """Give the hosts, as the catalogue and Slurm's own counts have them."""
    instance_type = _type(where) or type_of(fit)
    counted = gpus_of(fit) or None if needs.gpus else None
    gpus = where.gpus if where.gpus is not None else counted
    found = inventory_of(instance_type or None, len(names), where=replace(where, gpus=gpus), needs=needs)
    return found.named(names)
