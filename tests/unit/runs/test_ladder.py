"""The rungs of `fabbench accept`."""

import pytest

from fabbench.model.hosts import Host, Inventory
from fabbench.runs.ladder import AcceptOptions, ladder


@pytest.mark.parametrize(("timeout", "limits"), [(90, {90}), (None, {30, 300})])
def test_a_limit_is_that_of_tests_of_few_nodes(timeout: float | None, limits: set[float]) -> None:
    hosts = tuple(Host(name=name, gpus=8, devices={"mlx5_0": "ib"}) for name in "ab")
    how = AcceptOptions(level="full", timeout=timeout)
    rungs = ladder(Inventory(target="", hosts=hosts), how)
    of_few = {each.work.timeout_s for each in rungs if each.mode}  # type: ignore[attr-defined]
    of_all = {each.work.timeout_s for each in rungs if not each.mode}  # type: ignore[attr-defined]
    assert (of_few, of_all) == (limits, {1800})


def test_fewer_iterations_are_those_of_tests_of_few_nodes() -> None:
    hosts = tuple(Host(name=name, gpus=8, devices={"mlx5_0": "ib"}) for name in "ab")
    rungs = ladder(Inventory(target="", hosts=hosts), AcceptOptions(level="full", iterations=7))
    of_few = {each.work.iterations for each in rungs if each.mode}  # type: ignore[attr-defined]
    of_all = {each.work.iterations for each in rungs if not each.mode}  # type: ignore[attr-defined]
    assert (of_few, of_all) == ({7}, {20})
