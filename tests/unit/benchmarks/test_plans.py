"""What each benchmark is started with on each fabric (tests/data/plans.yaml).

Golden plans, and refusals.
"""

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

import pytest
import yaml

from fabbench.benchmarks import benchmark_named
from fabbench.model.errors import FabbenchError
from fabbench.model.fabrics import AB
from fabbench.model.hosts import Host, Inventory, Mpi, MpiKind
from fabbench.model.plan import Execution, Proof, Step
from fabbench.plan.build import plan
from tests.support.golden import GOLDEN, assert_golden
from tests.support.paths import DATA
from tests.support.requests import request

SAID = yaml.safe_load((DATA / "plans.yaml").read_text("utf-8"))
PROVIDERS = {
    "efa": frozenset({"rdm", "dgram"}),
    "tcp": frozenset({"msg"}),
    "tcp;ofi_rxm": frozenset({"rdm"}),
}


def host(name: str) -> Host:
    """Return a host of plans.yaml; `number` is that of its EFA devices, each with its domains."""
    said = dict(SAID["hosts"][name])
    if (number := said.pop("number", None)) is not None:
        rails = [f"rdmap{each}s0" for each in range(number)]
        domains = tuple(f"{rail}{kind}" for rail in rails for kind in ("-rdm", "-dgrm"))
        said |= {
            "devices": dict.fromkeys(rails, "efa"),
            "domains": {"efa": domains},
            "providers": PROVIDERS,
        }
    elif "providers" in said:
        said["providers"] = {each: frozenset(types) for each, types in said["providers"].items()}
    if "mpi" in said:
        said["mpi"] = Mpi(**{**said["mpi"], "kind": MpiKind(said["mpi"]["kind"])})
    return Host(**{"name": name, **said})


def planned(
    benchmark: str, fabric: str, hosts: str, options: Mapping[str, Any]
) -> tuple[Execution, Any]:
    """Plan a run on one fabric, or on the best one where none is named.

    Give its first execution, and its work.
    """
    kind = benchmark_named(benchmark)
    work_type = kind.work_type()
    assert work_type
    work = work_type(
        **{name: tuple(each) if isinstance(each, list) else each for name, each in options.items()}
    )
    fabrics = [{"ab": AB}.get(fabric, fabric)] if fabric else []
    kind.advice(work, fabrics)
    inventory = Inventory(target="x", hosts=tuple(map(host, hosts.split())))
    return plan(request(benchmark, work, *fabrics, target="x"), inventory).executions[0], work


def surroundings(step: Step) -> Iterator[str]:
    """Yield what the commands of a step get besides their words."""
    kind = "pair" if step.pair else "mpi"
    yield (
        f"  {kind}, ends after {step.timeout_s:g} s, of silence {step.silence_s}; files: "
        f"{[*step.files]}"
    )
    for command in step.commands:
        assert command.env.keys().isdisjoint(command.unset)
        assert len({*command.unset}) == len(command.unset)
        yield f"  host {command.host}, ranks {command.ranks}: " + " ".join(
            f"{k}={v!r}" for k, v in command.env.items()
        )
        yield f"    unset: {' '.join(command.unset)}"


def shown(execution: Execution, work: Any) -> Iterator[str]:
    """Yield the lines of a plan. What a step has in common with the one before it is left out."""
    proof = {each.name: getattr(execution.proof, each.name) for each in fields(Proof)}
    proof = {name: value for name, value in proof.items() if value != getattr(Proof(), name)}
    yield f"proof: {proof}"
    yield (
        f"needs: {' '.join((*work.needs.programs, *work.needs.devices))}; together: "
        f"{execution.together}"
    )
    yield f"sizes: {' '.join(map(str, execution.planned_sizes))}"
    before: list[str] = []
    for step in execution.steps:
        yield f"{step.id}: " + " ".join(f"{name}={value}" for name, value in step.facts.items())
        yield from (f"  {command.role}$ {shlex.join(command.argv)}" for command in step.commands)
        around = [*surroundings(step)]
        yield from around if around != before else ()
        before = around


def test_plans_are_as_recorded() -> None:
    parts = (
        "\n".join((f"==== {name}", *shown(*planned(*row)))) for name, row in SAID["plans"].items()
    )
    assert_golden(GOLDEN / "plans.txt", "\n".join(parts) + "\n")


@pytest.mark.parametrize(
    ("status", "benchmark", "fabric", "hosts", "options", "said"), SAID["refused"], ids=str
)
def test_what_cannot_be_measured_is_refused(  # noqa: PLR0913, PLR0917 - every part of a request
    status: int, benchmark: str, fabric: str, hosts: str, options: Mapping[str, Any], said: str
) -> None:
    with pytest.raises(FabbenchError) as caught:
        planned(benchmark, fabric, hosts, options)
    assert (caught.value.exit, said in f"{caught.value} {caught.value.hint}") == (status, True), (
        caught.value
    )
