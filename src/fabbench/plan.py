"""Request + inventory → plan. Pure: what cannot be measured is refused here, before anything starts."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from fabbench.errors import MachineError, RequestError
from fabbench.fabrics import INTRA_HOST, RDMA, carriers
from fabbench.model import Arm, Plan, Proof, Step, Trial

AB = "ab"
"""Stands for two arms: the best RDMA fabric that every host has, then tcp."""
AUTO = "auto"
"""Stands for the best fabric that every host has."""
REPEATS = 3
"""Repeats of each arm, where there are several arms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """One machine, as it was found."""

    name: str
    providers: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """libfabric provider, with its layers (``tcp;ofi_rxm``) → types of endpoint (`msg`, `rdm`, `dgram`)."""
    devices: tuple[str, ...] = ()
    """RDMA devices."""
    versions: Mapping[str, str] = field(default_factory=dict)
    looked: tuple[str, ...] = ()
    """Where was looked for fabrics, and what was found: one sentence each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """What a target has."""

    target: str
    hosts: tuple[Host, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What was asked for. `fabrics` are names, `AB` or `AUTO`: what becomes arms. None means `AUTO`."""

    benchmark: str
    target: str
    fabrics: tuple[str, ...] = ()
    repeats: int | None = None
    """None: `REPEATS` with several arms, else 1."""
    domain: str | None = None
    options: Mapping[str, str | int | None] = field(default_factory=dict)
    """The benchmark's own options, for the record."""


class Work(Protocol):
    """What a benchmark is to measure, with its options: how plans get their steps."""

    @property
    def programs(self) -> tuple[str, ...]:
        """The programs that hosts must have."""

    @property
    def install(self) -> str:
        """The command that installs them."""

    @property
    def sizes(self) -> tuple[int, ...]:
        """The sizes that a complete trial measures, in bytes."""

    def lacks(self, fabric: str, host: Host) -> str:
        """Say in a sentence why `fabric` cannot be measured on `host`; empty if it can."""

    def steps(self, trial: str, fabric: str) -> tuple[Step, ...]:
        """Give the steps of one trial. Step ids are ``TRIAL/NAME``."""


def plan(request: Request, inventory: Inventory, work: Work) -> Plan:
    """Say what will be run, in order. Arms interleave: A B, B A, A B.

    Raises MachineError for a fabric that a host does not have, RequestError for one that makes no sense.
    """
    fabrics = [name for token in request.fabrics or (AUTO,) for name in _resolve(token, inventory, work)]
    for fabric in dict.fromkeys(fabrics):
        _require(fabric, request.benchmark, inventory, work)
    arms = tuple(_arms(fabrics))
    repeats = request.repeats or (REPEATS if len(arms) > 1 else 1)
    return Plan(
        benchmark=request.benchmark,
        target=request.target,
        arms=arms,
        trials=tuple(_trials(arms, repeats, request, work)),
        hosts=len(inventory.hosts),
    )


def _resolve(token: str, inventory: Inventory, work: Work) -> tuple[str, ...]:
    """Replace `AB` and `AUTO` by fabrics that are there."""
    if token not in {AB, AUTO}:
        return (token,)
    there = [name for name in RDMA if all(not work.lacks(name, host) for host in inventory.hosts)]
    if token == AB:
        if not there:
            names = ", ".join(host.name for host in inventory.hosts)
            raise MachineError(
                f"--ab compares an RDMA fabric with tcp, and {names} has none. {_looked(inventory)}",
                hint="Name the fabrics: --fabric shm --fabric tcp works on any one host.",
            )
        return there[0], "tcp"
    local = ("shm",) if len(inventory.hosts) == 1 else ()
    others = (name for name in (*local, "tcp") if all(not work.lacks(name, host) for host in inventory.hosts))
    return (next(iter([*there, *others]), "tcp"),)


def _require(fabric: str, benchmark: str, inventory: Inventory, work: Work) -> None:
    carriers(fabric, benchmark)
    if fabric in INTRA_HOST and len(inventory.hosts) > 1:
        raise RequestError(
            f"{fabric} exists inside one host only, and there are {len(inventory.hosts)}.",
            hint="Choose a network, or one host.",
        )
    for host in inventory.hosts:
        why = work.lacks(fabric, host)
        if why:
            raise MachineError(
                f"{fabric} cannot be measured on {host.name}: {why} {_looked(inventory)}",
                hint="Nothing was started. Name a fabric that was found, or another target with --on.",
            )


def _looked(inventory: Inventory) -> str:
    return " ".join(sentence for host in inventory.hosts for sentence in host.looked)


def _arms(fabrics: Sequence[str]) -> Iterator[Arm]:
    """Name the arms by their fabrics; the second of a name is ``tcp-2``."""
    for index, fabric in enumerate(fabrics):
        earlier = fabrics[:index].count(fabric)
        yield Arm(label=f"{fabric}-{earlier + 1}" if earlier else fabric, fabric=fabric)


def _trials(arms: Sequence[Arm], repeats: int, request: Request, work: Work) -> Iterator[Trial]:
    number = 0
    for repeat in range(1, repeats + 1):
        for arm in arms if repeat % 2 else reversed(arms):
            name = f"{number:03}-{arm.label}-r{repeat}"
            number += 1
            yield Trial(
                id=name,
                arm=arm,
                repeat=repeat,
                steps=work.steps(name, arm.fabric),
                proof=Proof(fabric=arm.fabric, domain=request.domain),
                planned_sizes=work.sizes,
            )
