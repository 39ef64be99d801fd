"""A sweep that is resumed tests the nodes that it began with, or says that others are asked for."""

from dataclasses import replace
from typing import Any

import pytest

from fabbench.benchmarks.pingpong.plan import PingpongWork
from fabbench.launchers.kubernetes import KubernetesOptions
from fabbench.launchers.local import LocalOptions
from fabbench.runs.sweep import same_nodes
from tests.support.requests import request

OLD = ("b", "c")


def resumed(**given: Any) -> tuple[str, ...]:
    """The nodes that are asked for."""
    run_request = request("pingpong", PingpongWork(), target="kubernetes")
    target = replace(run_request.target, **{"options": KubernetesOptions(), **given})
    return same_nodes(replace(run_request, target=target), OLD).target.hosts


@pytest.mark.parametrize("given", [{}, {"nodes": 2}, {"nodes": 2, "hosts": ("a", "b", "c")}])
def test_where_any_may_be_taken_it_is_the_same_ones(given: dict[str, Any]) -> None:
    assert resumed(**given) == OLD


@pytest.mark.parametrize(
    "given", [{"nodes": 3}, {"hosts": ("a", "b", "c")}, {"nodes": 2, "hosts": ("a", "b")}]
)
def test_others_that_are_asked_for_stay(given: dict[str, Any]) -> None:
    assert resumed(**given) == given.get("hosts", ())


def test_nodes_that_slurm_chose_and_did_not_name_are_any() -> None:
    run_request = request("pingpong", PingpongWork(), target="slurm")
    nodes = ("node 1 of gpu", "node 2 of gpu")
    assert same_nodes(run_request, nodes) == run_request


def test_this_machine_has_no_names() -> None:
    assert resumed(options=LocalOptions()) == ()
