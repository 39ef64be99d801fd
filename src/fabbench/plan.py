"""Request + inventory → plan. Pure: what cannot be measured is refused here, before anything starts."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, Protocol

from fabbench.errors import MachineError, RequestError
from fabbench.fabrics import INTRA_HOST, RDMA, carriers
from fabbench.machines import Host, Inventory, Needs, Where
from fabbench.model import Arm, Plan, Proof, Step, Trial
from fabbench.variants import Variant, applied, named

AB = "ab"
"""Stands for two arms: the best RDMA fabric that every host has, then tcp."""
AUTO = "auto"
"""Stands for the best fabric that every host has."""
_INSIDE = ("p2p", "shm")
"""Fabrics inside one host, the best first."""
REPEATS = 3
"""Repeats of each arm, where there are several arms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What was asked for. `fabrics` are names, `AB` or `AUTO`: what becomes arms. None means `AUTO`."""

    benchmark: str
    target: str
    fabrics: tuple[str, ...] = ()
    repeats: int | None = None
    """None: `REPEATS` with several arms, else 1."""
    where: Where | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    """Environment of the benchmark's processes in every arm, besides what the fabric needs."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """The benchmark's own options, for the record."""

    @property
    def variants(self) -> tuple[Variant, ...]:
        """In what else than their fabric arms differ."""
        return self.where.variants if self.where else ()


class Work(Protocol):
    """What a benchmark is to measure, with its options: how plans get their steps."""

    @property
    def needs(self) -> Needs:
        """What hosts must have."""

    @property
    def together(self) -> bool:
        """Whether the steps of a trial run at the same time."""

    def planned_sizes(self, hosts: Sequence[Host]) -> tuple[int, ...]:
        """Give the sizes, in bytes, that each log of a complete trial has."""

    def lacks(self, fabric: str, host: Host) -> str:
        """Say in a sentence why `fabric` cannot be measured on `host`; empty if it can."""

    def steps(self, trial: str, fabric: str, hosts: Sequence[Host]) -> tuple[Step, ...]:
        """Give the steps of one trial. Step ids are ``TRIAL/NAME``."""

    def proof(self, fabric: str, hosts: Sequence[Host]) -> Proof:
        """Say what a log must show to have been measured on `fabric`."""


def plan(request: Request, inventory: Inventory, work: Work) -> Plan:
    """Say what will be run, in order. Arms are fabrics times variants, and interleave: A B, B A, A B.

    Raises MachineError for a fabric that a host does not have, RequestError for one that makes no sense.
    """
    _require_seen(request, inventory)
    fabrics = [name for token in request.fabrics or (AUTO,) for name in _resolve(token, inventory, work)]
    for fabric in dict.fromkeys(fabrics):
        _require(fabric, request.benchmark, inventory, work)
    arms = tuple(_arms(fabrics, request.variants))
    repeats = request.repeats or (REPEATS if len(arms) > 1 else 1)
    return Plan(
        benchmark=request.benchmark,
        target=request.target,
        arms=arms,
        trials=tuple(_trials(arms, repeats, request, inventory, work)),
        hosts=len(inventory.hosts),
    )


def _require_seen(request: Request, inventory: Inventory) -> None:
    """Raise RequestError for variants whose folders and the like the launcher did not look for."""
    for variant in request.variants:
        if variant.name not in inventory.variants and replace(variant, env={}) != Variant(name=variant.name):
            raise RequestError(
                f"The target {inventory.target} does not look for what the variant {variant.name} names "
                f"({variant}).",
                hint="Its variants can have variables only, such as --variant ring=NCCL_ALGO=Ring.",
            )


def _resolve(token: str, inventory: Inventory, work: Work) -> tuple[str, ...]:
    """Replace `AB` and `AUTO` by fabrics that are there."""
    if token not in {AB, AUTO}:
        return (token,)
    if _inside(inventory, work):
        return (_best_inside(token, inventory.hosts[0], work),)
    there = [name for name in RDMA if _everywhere(name, inventory, work)]
    if token == AB:
        if not there:
            names = ", ".join(host.name for host in inventory.hosts)
            raise MachineError(
                f"--ab compares an RDMA fabric with tcp, and {names} has none. {_looked(inventory)}",
                hint="Name the fabrics: --fabric shm --fabric tcp works on any one host."
                if len(inventory.hosts) == 1
                else "fabbench check says what is missing there. --fabric tcp measures what there is.",
            )
        return there[0], "tcp"
    local = _INSIDE if len(inventory.hosts) == 1 else ()
    others = (name for name in (*local, "tcp") if _everywhere(name, inventory, work))
    return (next(chain(there, others), "tcp"),)


def _everywhere(fabric: str, inventory: Inventory, work: Work) -> bool:
    """Whether all hosts have a fabric, whichever the variant."""
    return all(not work.lacks(fabric, host) for _, host in inventory.views())


def _best_inside(token: str, host: Host, work: Work) -> str:
    """Name the best fabric for ranks that all are on one host."""
    if token == AB:
        raise _no_network("An RDMA fabric and tcp", host)
    found = next((name for name in _INSIDE if not work.lacks(name, host)), "")
    if not found:
        raise MachineError(
            f"Nothing can be measured on {host.name} alone: {work.lacks(_INSIDE[0], host)}",
            hint="Name more hosts (--on ssh --host A --host B). If there are more GPUs than were found, "
            "--gpus N says how many.",
        )
    return found


def _no_network(what: str, host: Host) -> RequestError:
    return RequestError(
        f"{what} cannot be measured on {host.name} alone: the ranks of one host use no network.",
        hint="Name more hosts. On local, --virtual-nodes 2 makes two hosts of one machine's GPUs.",
    )


def _require(fabric: str, benchmark: str, inventory: Inventory, work: Work) -> None:
    carriers(fabric, benchmark)
    if fabric not in INTRA_HOST and _inside(inventory, work):
        raise _no_network(fabric, inventory.hosts[0])
    several = len(inventory.hosts) > 1 and not any(host.virtual for host in inventory.hosts)
    if fabric in INTRA_HOST and several:
        raise RequestError(
            f"{fabric} exists inside one host only, and there are {len(inventory.hosts)}.",
            hint="Choose a network, or one host.",
        )
    for name, host in inventory.views():
        if why := work.lacks(fabric, host):
            raise MachineError(
                f"{fabric} cannot be measured on {name}: {why} {_looked(inventory)}",
                hint="Nothing was started. Name a fabric that was found, or another target with --on.",
            )


def _inside(inventory: Inventory, work: Work) -> bool:
    """Whether everything stays inside one host, where MPI's ranks never go by a network."""
    return work.needs.mpi and len(inventory.hosts) == 1


def _looked(inventory: Inventory) -> str:
    return " ".join(dict.fromkeys(sentence for _, host in inventory.views() for sentence in host.looked))


def _arms(fabrics: Sequence[str], variants: Sequence[Variant]) -> Iterator[Arm]:
    """Name the arms by their fabrics; the second of a name is ``tcp-2``.

    With variants by them, and by both where there are several fabrics: ``efa+patched``.
    """
    for index, fabric in enumerate(fabrics):
        earlier = fabrics[:index].count(fabric)
        label = f"{fabric}-{earlier + 1}" if earlier else fabric
        if not variants:
            yield Arm(label=label, fabric=fabric)
        for variant in variants:
            own = variant.name if len(fabrics) == 1 else f"{label}+{variant.name}"
            yield Arm(label=own, fabric=fabric, variant=variant.name)


def _trials(
    arms: Sequence[Arm], repeats: int, request: Request, inventory: Inventory, work: Work
) -> Iterator[Trial]:
    number = 0
    for repeat in range(1, repeats + 1):
        for arm in arms if repeat % 2 else reversed(arms):
            name = f"{number:03}-{arm.label}-r{repeat}"
            number += 1
            hosts, variant = inventory.seen_by(arm.variant), named(request.variants, arm.variant)
            steps = work.steps(name, arm.fabric, hosts)
            yield Trial(
                id=name,
                arm=arm,
                repeat=repeat,
                steps=tuple(applied(step, request.env, variant, arm.fabric, hosts) for step in steps),
                proof=work.proof(arm.fabric, hosts),
                planned_sizes=work.planned_sizes(hosts),
                together=work.together,
            )
