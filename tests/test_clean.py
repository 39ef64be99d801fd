"""``fabbench clean``: what is left in a cluster is found, and removed when it is wanted."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from cluster import Cluster
from fabbench.cli import cli
from kube_runs import Laptop
from lab import processes


@pytest.fixture
def laptop(cluster: Cluster, namespace: str, tmp_path: Path) -> Laptop:
    return Laptop(cluster, namespace, tmp_path)


def clean(laptop: Laptop, *more: str, status: int = 0) -> list[list[str]]:
    """Clean the namespace: what is listed, as words."""
    done = laptop.call([*laptop.argv("clean"), *more])
    assert done.returncode == status, (done.stdout, done.stderr)
    return [line.split() for line in done.stdout.splitlines()]


@pytest.mark.cluster
def test_where_nothing_is_left_there_is_nothing_to_do(laptop: Laptop) -> None:
    assert clean(laptop) == []
    assert clean(laptop, "--all-namespaces", "--yes") == []


@pytest.mark.cluster
def test_what_does_not_run_is_listed_and_removed_with_yes(laptop: Laptop) -> None:
    with laptop.nothing_left():
        for name, labels in (("fabbench-a", {"fabbench/run": "a"}), ("other", {})):
            about: dict[str, Any] = {"name": name, "labels": {"app.kubernetes.io/name": "fabbench", **labels}}
            secret = {"apiVersion": "v1", "kind": "Secret", "metadata": about}
            laptop.kubectl("create", "-f", "-", given=secret)
        listed = clean(laptop, status=1)
        assert listed[0] == ["RUN", "NAMESPACE", "AGE", "RUNS", "REMOVE", "REQUEST"]
        assert [[row[0], row[1], *row[3:]] for row in listed[1:]] == [
            ["a", laptop.namespace, "no", "yes", "-"]
        ]
        assert "secret/fabbench-a" in laptop.kubectl("get", "secrets", "-o", "name")
        clean(laptop, "--yes")
        assert laptop.kubectl("get", "secrets", "-o", "name").split() == ["secret/other"]
        laptop.kubectl("delete", "secret", "other")


@pytest.mark.cluster
def test_a_killed_run_is_kept_while_it_may_run_and_removed_when_all_is(laptop: Laptop) -> None:
    with laptop.nothing_left():
        with laptop.midway() as run:
            run.process.kill()
            run.process.wait()
        assert [row[3:5] for row in clean(laptop, "--yes")] == [["RUNS", "REMOVE"], ["yes", "no"]]
        assert [row[4] for row in clean(laptop, "--yes", "--older-than", "1d")] == ["REMOVE", "no"]
        assert len(json.loads(laptop.kubectl("get", "pods", "-o", "json"))["items"]) == 2
        assert [row[4] for row in clean(laptop, "--yes", "--older-than", "1s")] == ["REMOVE", "yes"]
        assert processes.eventually(lambda: not laptop.pods(), 10)


def test_an_age_has_a_unit() -> None:
    done = CliRunner().invoke(cli, ["clean", "--older-than", "5"])
    assert done.exit_code == 2
    assert "'5' is no age: write 90s, 10m, 2h or 1d." in done.output
