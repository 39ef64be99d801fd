"""What fabbench left in a cluster, and how it is deleted."""

import contextlib
import math
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from fabbench.catalog.kubernetes_resources import PodResources
from fabbench.launchers import Leftover, ObjectRef
from fabbench.launchers.kubernetes import objects
from fabbench.launchers.kubernetes.api import AbsentError, KubernetesApi, UnansweredError
from fabbench.launchers.kubernetes.manifests import RunSpec, owned_by, workload
from fabbench.launchers.kubernetes.objects import group_leftovers, remove
from fabbench.model.errors import MachineError
from tests.support.clock import Clock

NOW = datetime(2026, 5, 4, 9, 0, tzinfo=UTC)


def made(
    run: str, *, minutes: int, namespace: str = "bench", owned: bool = True
) -> list[dict[str, Any]]:
    """Return the objects of a run as the API lists them, with a pod that its Job made."""
    run_spec = RunSpec(run=run, count=1, resources=PodResources(), deadline_s=60)
    created = (NOW - timedelta(minutes=minutes)).isoformat().replace("+00:00", "Z")
    (job,) = (stored(each, namespace, created) for each in workload(run_spec))
    pod: dict[str, Any] = {
        "kind": "Pod",
        "metadata": {
            **job["spec"]["template"]["metadata"],
            "name": f"{job['metadata']['name']}-0-x7k2p",
        },
        "status": {"phase": "Running"},
    }
    pod = stored(pod, namespace, created)
    return [*(owned_by([pod], job) if owned else [pod]), job]


def stored(thing: dict[str, Any], namespace: str, created: str) -> dict[str, Any]:
    given = {
        "namespace": namespace,
        "uid": f"{thing['kind']}-{thing['metadata']['name']}-{namespace}",
    }
    return {**thing, "metadata": {**thing["metadata"], **given, "creationTimestamp": created}}


def deleted(found: Leftover) -> list[tuple[str, str]]:
    return [(thing.kind, thing.name) for thing in found.things]


def test_runs_are_told_apart_the_oldest_first() -> None:
    found = group_leftovers(
        [*made("a", minutes=5), *made("b", minutes=90), *made("a", minutes=1, namespace="x")], NOW
    )
    assert [(each.run, each.namespace) for each in found] == [
        ("b", "bench"),
        ("a", "bench"),
        ("a", "x"),
    ]
    assert found[0].age == timedelta(minutes=90)


def test_what_its_owner_takes_along_is_not_deleted_by_itself() -> None:
    (found,) = group_leftovers(made("a", minutes=5), NOW)
    assert deleted(found) == [("Job", "fabbench-a")]
    assert found.things[0].uid == "Job-fabbench-a-bench"
    assert found.running


def test_a_run_that_was_killed_between_two_objects_is_found_whole() -> None:
    (found,) = group_leftovers(made("a", minutes=5, owned=False), NOW)
    assert deleted(found) == [("Job", "fabbench-a"), ("Pod", "fabbench-a-0-x7k2p")]


def test_what_outlived_its_owner_is_deleted() -> None:
    rest = [each for each in made("a", minutes=5) if each["kind"] != "Job"]
    rest[-1]["status"]["phase"] = "Failed"
    (found,) = group_leftovers(rest, NOW)
    assert [kind for kind, _ in deleted(found)] == ["Pod"]
    assert not found.running


@pytest.mark.parametrize(
    ("condition", "running"),
    [
        (None, True),
        ({"type": "Failed", "status": "False"}, True),
        ({"type": "Failed", "status": "True"}, False),
        ({"type": "Complete", "status": "True"}, False),
    ],
)
def test_a_job_whose_pods_do_not_run_yet_runs_until_it_has_ended(
    condition: dict[str, str] | None, running: bool
) -> None:
    *_, pod, job = made("a", minutes=5)
    pod["status"]["phase"] = "Pending"
    job["status"] = {"conditions": [condition] if condition else None}
    (found,) = group_leftovers([pod, job], NOW)
    assert found.running is running


def test_clocks_that_disagree_give_no_negative_age() -> None:
    (found,) = group_leftovers(made("a", minutes=-3), NOW)
    assert found.age == timedelta(0)


class Controllers:
    """A cluster whose Job is deleted at once, and whose pod so many seconds later."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
        self.clock, self.seconds, self.silent_at = Clock(), seconds, math.inf
        monkeypatch.setattr(objects, "time", self.clock)

    def delete(self, *_: object, **__: object) -> None:
        if self.clock.now >= self.silent_at:
            raise UnansweredError("silent", hint="")
        raise AbsentError("job", hint="")

    def read(self, *_: object) -> dict[str, Any]:
        return {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}

    def pods(self) -> list[dict[str, Any]]:
        pod = {"metadata": {"name": "pod-0"}, "spec": {"nodeName": "node-0"}}
        return [pod] if self.clock.now < self.seconds else []


THINGS = [ObjectRef("Job", "bench", "job", "u-1")]


@pytest.mark.parametrize(
    ("seconds", "notes", "left"), [(5, 0, False), (120, 1, False), (999, 1, True)], ids=str
)
def test_pods_that_controllers_remove_late_are_waited_for(
    seconds: float,
    notes: int,
    left: bool,
    monkeypatch: pytest.MonkeyPatch,
    logged: list[str],
) -> None:
    api = Controllers(monkeypatch, seconds)
    with (
        pytest.raises(MachineError, match=r" 15\d s: pod-0\.$")
        if left
        else contextlib.nullcontext()
    ):
        remove(cast("KubernetesApi", api), THINGS, api.pods)
    assert ["pod-0" in message for message in logged] == [True] * notes


@pytest.mark.parametrize("silent_at", [0, 60])
def test_a_silent_api_is_given_up_sooner(silent_at: float, monkeypatch: pytest.MonkeyPatch) -> None:
    api = Controllers(monkeypatch, 999)
    api.silent_at = silent_at
    with pytest.raises(MachineError, match="Job job cannot be removed: "):
        remove(cast("KubernetesApi", api), THINGS, api.pods)
    assert api.clock.now == pytest.approx(silent_at + 30, abs=1)
