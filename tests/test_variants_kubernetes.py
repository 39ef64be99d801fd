"""Variants in pods: folders of the image, other images on the same nodes, and what an image lacks."""

import signal
from pathlib import Path

import pytest

from cluster import Cluster
from cluster.images import NCCL, OLDER
from fabbench.model import Outcome
from kube_runs import Laptop

pytestmark = pytest.mark.cluster


@pytest.fixture
def laptop(cluster: Cluster, namespace: str, tmp_path: Path) -> Laptop:
    return Laptop(cluster, namespace, tmp_path)


@pytest.mark.parametrize("agent", ["ssh", "exec"])
def test_a_folder_of_the_image_is_found_by_every_rank(laptop: Laptop, agent: str) -> None:
    variants = ("--variant", "old=/opt/nccl-2.21.5", "--variant", "plain=")
    with laptop.nothing_left():
        done = laptop.call(laptop.nccl("--image", OLDER, "--mpi-agent", agent, *variants))
    assert done.returncode == 0, done.stderr
    versions = {name: laptop.logs(name)[0].facts["nccl"] for name in ("old", "plain")}
    assert versions == {"old": "2.21.5", "plain": "2.28.9"}


def test_variants_of_several_images_run_in_pods_of_their_own(laptop: Laptop) -> None:
    """The folder is in one of the images only, and the pods are on the same nodes."""
    variants = ("--variant", f"old=image={OLDER},path=/opt/nccl-2.21.5", "--variant", f"new=image={NCCL}")
    with laptop.nothing_left():
        done = laptop.call(laptop.nccl("--repeat", "2", *variants), timeout=400)
    assert done.returncode == 0, done.stderr
    assert f"; image {OLDER}, {NCCL}): --on says so." in done.stderr
    stored = laptop.the_run()
    assert [trial.arm for trial in stored.trials] == ["old", "new", "new", "old"]
    for name, version in (("old", "2.21.5"), ("new", "2.28.9")):
        logs = laptop.logs(name)
        assert [(log.outcome, log.facts["nccl"]) for log in logs] == [(Outcome.OK, version)] * 2
    assert f"old is /opt/nccl-2.21.5, image {OLDER}; new is image {NCCL}." in done.stdout


def test_an_interrupt_while_pods_change_leaves_nothing(laptop: Laptop) -> None:
    variants = ("--variant", f"old=image={OLDER}", "--variant", f"new=image={NCCL}")
    with laptop.nothing_left(), laptop.midway(*variants) as run:
        first = laptop.pods()
        run.goes_on()
        run.until(lambda: laptop.pods() != first)
        run.process.send_signal(signal.SIGINT)
        assert run.ends() == 130, run.err
    (log,) = laptop.logs("old")
    assert log.outcome is Outcome.OK


def test_what_an_image_lacks_is_said_before_anything_starts(laptop: Laptop) -> None:
    variants = ("--variant", f"old=image={OLDER}", "--variant", f"new=image={NCCL},path=/opt/nccl-2.21.5")
    with laptop.nothing_left():
        done = laptop.call(laptop.nccl(*variants))
    assert (done.returncode, done.stdout) == (3, "")
    assert "With the variant new: There is no folder /opt/nccl-2.21.5 on " in done.stderr
    assert "execution" not in done.stderr


def test_variants_of_an_mpijob(mpijobs: Cluster, namespace: str, tmp_path: Path) -> None:
    """In the launcher's script; the folder is looked for in the workers."""
    laptop = Laptop(mpijobs, namespace, tmp_path)
    laptop.launcher = "mpijob"
    variants = ("--variant", "old=/opt/nccl-2.21.5", "--variant", "plain=")
    with laptop.nothing_left():
        done = laptop.call(laptop.nccl("--image", OLDER, *variants))
    assert done.returncode == 0, done.stderr
    versions = {name: laptop.logs(name)[0].facts["nccl"] for name in ("old", "plain")}
    assert versions == {"old": "2.21.5", "plain": "2.28.9"}
    with laptop.nothing_left():
        done = laptop.call(laptop.nccl(*variants))
    assert done.returncode in {3, 4}
    assert "There is no folder /opt/nccl-2.21.5 on " in done.stdout + done.stderr
