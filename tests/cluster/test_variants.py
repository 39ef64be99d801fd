"""Variants in pods.

Directories of the image, other images on the same nodes, and what an image lacks.
"""

import json
import signal
from pathlib import Path

import pytest

from fabbench.model.log import Outcome
from tests.support.kubernetes import Cluster
from tests.support.kubernetes.images import NCCL, OLDER
from tests.support.kubernetes_runs import Client

pytestmark = [pytest.mark.cluster, pytest.mark.slow]


@pytest.fixture
def client(cluster: Cluster, namespace: str, tmp_path: Path) -> Client:
    return Client(cluster, namespace, tmp_path)


@pytest.mark.parametrize("launcher", ["kubernetes", "mpijob"])
def test_a_directory_of_the_image_is_found_by_every_rank(
    client: Client, launcher: str, request: pytest.FixtureRequest
) -> None:
    client.launcher = launcher
    if launcher == "mpijob":
        request.getfixturevalue("mpijobs")
    variants = ("--variant", "old=/opt/nccl-2.21.5", "--variant", "plain=")
    with client.nothing_left():
        done = client.call(client.nccl("--image", OLDER, *variants))
    assert done.returncode == 0, done.stderr
    versions = {name: client.logs(name)[0].facts["nccl"] for name in ("old", "plain")}
    assert versions == {"old": "2.21.5", "plain": "2.28.9"}


def test_variants_of_several_images_run_in_pods_of_their_own(client: Client) -> None:
    """The directory is in one of the images only, and the pods are on the same nodes."""
    variants = (
        "--variant",
        f"old=image={OLDER},path=/opt/nccl-2.21.5",
        "--variant",
        f"new=image={NCCL}",
    )
    with client.nothing_left():
        done = client.call(client.nccl("--repeat", "2", *variants), timeout=400)
    assert done.returncode == 0, done.stderr
    assert f"; image {OLDER}, {NCCL}): set with --on." in done.stderr
    stored = client.the_run()
    assert [execution.configuration for execution in stored.executions] == [
        "old",
        "new",
        "new",
        "old",
    ]
    for name, version in (("old", "2.21.5"), ("new", "2.28.9")):
        logs = client.logs(name)
        assert [(log.outcome, log.facts["nccl"]) for log in logs] == [(Outcome.OK, version)] * 2
    assert f"old is /opt/nccl-2.21.5, image {OLDER}; new is image {NCCL}." in done.stdout


def test_pods_are_compared_with_their_nodes(client: Client) -> None:
    """The same nodes, in one command: pods in the pod network, and pods in their nodes' network."""
    variants = (
        "--fabric",
        "tcp",
        "--variant",
        "pod=",
        "--variant",
        "node=host-network",
        "--repeat",
        "2",
    )
    with client.nothing_left():
        done = client.call(client.pingpong(*variants), timeout=400)
    assert done.returncode == 0, done.stderr
    stored = client.the_run()
    assert [each.configuration for each in stored.executions] == ["pod", "node", "node", "pod"]
    outcomes = [log.outcome for name in ("pod", "node") for log in client.logs(name)]
    assert outcomes == [Outcome.OK] * 4
    assert "pod is no changes; node is host network." in done.stdout
    addresses = {node.name: node.address for node in client.cluster.nodes}
    variants = json.loads((stored.path / "request.json").read_text("utf-8"))["variants"]
    seen = {
        name: {host["name"]: host["address"] for host in hosts} for name, hosts in variants.items()
    }
    assert seen["node"] == addresses
    assert seen["pod"].keys() == addresses.keys()
    assert not {*seen["pod"].values()} & {*addresses.values()}


def test_an_interrupt_while_pods_change_leaves_nothing(client: Client) -> None:
    variants = ("--variant", f"old=image={OLDER}", "--variant", f"new=image={NCCL}")
    with client.nothing_left(), client.midway(*variants) as run:
        first = client.pods()
        run.goes_on()
        run.until(lambda: client.pods() != first)
        run.process.send_signal(signal.SIGINT)
        assert run.ends() == 130, run.err
    (log,) = client.logs("old")
    assert log.outcome is Outcome.OK


def test_what_an_image_lacks_is_reported_before_anything_starts(client: Client) -> None:
    variants = (
        "--variant",
        f"old=image={OLDER}",
        "--variant",
        f"new=image={NCCL},path=/opt/nccl-2.21.5",
    )
    with client.nothing_left():
        done = client.call(client.nccl(*variants))
    assert (done.returncode, done.stdout) == (3, "")
    assert "With the variant new: Directory not found: /opt/nccl-2.21.5 on " in done.stderr
    assert "execution" not in done.stderr
