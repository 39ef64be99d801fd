"""Requests of runs, and executions that nobody planned."""

from collections.abc import Mapping
from typing import Any, TypeVar

from fabbench.benchmarks.standard import Work
from fabbench.model.hosts import Target
from fabbench.model.options import declared, read_option
from fabbench.model.plan import Configuration, Execution, Proof
from fabbench.plan.request import RunRequest

T = TypeVar("T")


def request(
    benchmark: str, work: Work, *fabrics: str, target: str = "local", **more: Any
) -> RunRequest:
    """Return a request to measure `work` on fabrics."""
    where = Target(name=target, launcher=target)
    return RunRequest(benchmark=benchmark, work=work, target=where, fabrics=fabrics, **more)


def execution_by_hand(
    configuration: Configuration,
    number: int = 0,
    *,
    repeat: int = 1,
    sizes: tuple[int, ...] = (),
    **more: Any,
) -> Execution:
    """Return an execution with the id that a plan gives it.

    Without steps, where `more` has none.
    """
    name, proof = f"{number:03}-{configuration.label}-r{repeat}", Proof(fabric=configuration.fabric)
    usual = {"steps": (), "proof": proof, **more}
    return Execution(
        id=name, configuration=configuration, repeat=repeat, planned_sizes=sizes, **usual
    )


def read_options(kind: type[T], given: Mapping[str, Any]) -> T:
    """Return options from what `parsed` takes, by field name."""
    return kind(**{name: read_option(declared(kind)[name], value) for name, value in given.items()})
