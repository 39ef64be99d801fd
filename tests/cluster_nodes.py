"""Fixtures: a cluster of two real nodes, and a namespace in it for each test."""

import os
import secrets
from collections.abc import Iterator

import pytest

from cluster import Cluster, fakes, missing, operator


def _required() -> bool:
    """Whether a cluster that cannot start is a failure: where nobody would notice skipped tests."""
    return bool(os.environ.get("CI") or os.environ.get("FABBENCH_REQUIRE_CLUSTER"))


def need(*parts: str) -> None:
    """Fail, or skip where that is noticed, if a cluster with these parts cannot be brought up here."""
    if reason := missing(*parts):
        (pytest.fail if _required() else pytest.skip)(reason)


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Give the cluster that all tests share."""
    need()
    with Cluster(tmp_path_factory.mktemp("cluster", numbered=False)) as up:
        yield up


@pytest.fixture
def namespace(cluster: Cluster) -> Iterator[str]:
    """Give a namespace of the test's own. Afterwards it is removed, and nodes and API are as they were."""
    name = f"test-{secrets.token_hex(4)}"
    cluster.make_namespace(name)
    yield name
    if cluster.touched:
        cluster.restore()
    cluster.remove_namespace(name)


@pytest.fixture(scope="module")
def kwok(cluster: Cluster) -> Iterator[Cluster]:
    """Give the cluster where kwok can play nodes (`fake_nodes`); they are removed after the module."""
    need("kwok")
    yield cluster
    fakes.remove(cluster)


@pytest.fixture(scope="module")
def mpijobs(cluster: Cluster) -> Iterator[Cluster]:
    """Give the cluster with Kubeflow's MPI operator, which is removed after the module."""
    need("mpijob")
    operator.start(cluster)
    yield cluster
    operator.stop(cluster)
