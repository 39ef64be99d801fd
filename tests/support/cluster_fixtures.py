"""Fixtures: a cluster of two real nodes, and a namespace in it for each test."""

import secrets
from collections.abc import Iterator
from types import ModuleType

import pytest

from tests.support.kubernetes import Cluster, fakes, missing, operator
from tests.support.kubernetes import jobsets as jobset_controller
from tests.support.kubernetes import trainer as trainer_controller
from tests.support.needed import refuse, strict


def need(*parts: str) -> None:
    """Fail, or skip where that is noticed, if no cluster with these parts can run here."""
    if reason := missing(*parts):
        refuse(reason, fail=strict("FABBENCH_REQUIRE_CLUSTER"))


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Yield the cluster that all tests share."""
    need()
    with Cluster(tmp_path_factory.mktemp("cluster", numbered=False)) as up:
        yield up


@pytest.fixture
def namespace(cluster: Cluster) -> Iterator[str]:
    """Yield a namespace of the test's own.

    Afterwards it is removed, and nodes and API are as they were.
    """
    name = f"test-{secrets.token_hex(4)}"
    cluster.make_namespace(name)
    yield name
    if cluster.touched:
        cluster.restore()
    cluster.remove_namespace(name)


@pytest.fixture(scope="module")
def kwok(cluster: Cluster) -> Iterator[Cluster]:
    """Yield the cluster where kwok can play nodes (`fake_nodes`).

    They are removed after the module.
    """
    need("kwok")
    yield cluster
    fakes.remove(cluster)


def with_controller(cluster: Cluster, part: str, controller: ModuleType) -> Iterator[Cluster]:
    """Yield the cluster with a controller, which is removed afterwards; `part`: what it needs."""
    need(part)
    controller.start(cluster)
    yield cluster
    controller.stop(cluster)


@pytest.fixture(scope="module")
def mpijobs(cluster: Cluster) -> Iterator[Cluster]:
    """Yield the cluster with Kubeflow's MPI operator, which is removed after the module."""
    yield from with_controller(cluster, "mpijob", operator)


@pytest.fixture(scope="module")
def jobsets(mpijobs: Cluster) -> Iterator[Cluster]:
    """Yield the cluster with names of pods and JobSet's controller, removed after the module."""
    yield from with_controller(mpijobs, "jobset", jobset_controller)


@pytest.fixture(scope="module")
def trainjobs(jobsets: Cluster) -> Iterator[Cluster]:
    """Yield the cluster with JobSet's and Trainer's controllers, removed after the module."""
    yield from with_controller(jobsets, "trainer", trainer_controller)
