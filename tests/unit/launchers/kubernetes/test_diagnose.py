"""Why pods do not run, from what clusters really say."""

import json
import re
from typing import Any

import pytest

from fabbench.launchers.kubernetes.explain import explain_killed, explain_owner, explain_pod
from fabbench.launchers.kubernetes.nodes import read_nodes
from fabbench.model.known_messages import Explanation
from tests.support.paths import DATA
from tests.support.pod_objects import EFA, GPU, node_object, pod_object

BAD = "registry.example/bench:1"
SAID: dict[str, list[list[Any]]] = json.loads((DATA / "status_messages.json").read_text("utf-8"))
"""What clusters say, and what of it must be in the explanation."""


def a_pod(**status: Any) -> dict[str, Any]:
    """Return a pod bound to p5-1 and p5-2 that asks for 32 EFA devices, 8 GPUs and 50 GiB."""
    requests = {EFA: "32", GPU: "8", "memory": "50Gi", "cpu": "4", "hugepages-2Mi": "10256Mi"}
    expression = {"key": "kubernetes.io/hostname", "operator": "In", "values": ["p5-1", "p5-2"]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    return {
        "metadata": {"name": "fabbench-a-0", "uid": "u-1"},
        "spec": {
            "containers": [{"name": "fabbench", "image": BAD, "resources": {"requests": requests}}],
            "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}},
        },
        "status": {"phase": "Pending", **status},
    }


def placed(**status: Any) -> dict[str, Any]:
    pod = a_pod(**status)
    pod["spec"]["nodeName"] = "p5-1"
    return pod


def event(
    reason: str, message: str, *, at: str = "2026-05-04T09:00:00Z", uid: str = "u-1"
) -> dict[str, Any]:
    return {
        "reason": reason,
        "message": message,
        "lastTimestamp": at,
        "involvedObject": {"kind": "Pod", "name": "fabbench-a-0", "uid": uid},
    }


def unschedulable(message: str) -> dict[str, Any]:
    condition = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": message,
    }
    return a_pod(conditions=[condition])


def container(state: str, **details: Any) -> list[dict[str, Any]]:
    return [{"name": "fabbench", "image": BAD, "state": {state: details}}]


def sound(found: Explanation | None) -> Explanation:
    assert found
    assert found.text.endswith(".")
    assert ".." not in found.text.replace("...", "")
    assert found.advice.endswith(".")
    assert not re.search(r"\{\w+\}", found.text + found.advice)
    return found


NODES = read_nodes(
    [node_object("p5", "p5-1"), node_object("p5", "p5-2"), node_object("c7gn", "arm")],
    [pod_object("p5-2", {EFA: "32", GPU: "8"}), pod_object("p5-1", {GPU: "1"})],
)


@pytest.mark.parametrize(("said", "code", "advice"), SAID["scheduling"])
def test_nodes_that_keep_pods_away_are_reported(said: str, code: str, advice: str) -> None:
    found = sound(explain_pod(unschedulable(said)))
    assert (found.code, advice in found.advice) == (code, True), found


def test_the_latest_event_counts_where_the_pod_has_no_condition() -> None:
    old = event("FailedScheduling", f"0/1 nodes are available: 1 Insufficient {GPU}.")
    new = event(
        "FailedScheduling",
        "0/1 nodes are available: 1 Insufficient cpu.",
        at="2026-05-04T09:00:05Z",
    )
    assert "Insufficient cpu" in sound(explain_pod(a_pod(), [new, old])).text


def test_events_of_other_pods_do_not_count() -> None:
    assert (
        explain_pod(
            a_pod(), [event("FailedScheduling", "no nodes available to schedule pods", uid="u-2")]
        )
        is None
    )


@pytest.mark.parametrize(("said", "code", "text", "final"), SAID["pulls"])
@pytest.mark.parametrize("backed_off", [False, True])
def test_an_image_that_cannot_be_pulled_is_reported_with_the_registrys_words(
    said: str, code: str, text: str, *, final: bool, backed_off: bool
) -> None:
    if backed_off:
        message = 'Back-off pulling image "registry.example/bench:1"'
        pod = placed(
            containerStatuses=container("waiting", reason="ImagePullBackOff", message=message)
        )
        events = [event("Failed", said), event("BackOff", message, at="2026-05-04T09:00:09Z")]
    else:
        pod = placed(containerStatuses=container("waiting", reason="ErrImagePull", message=said))
        events = []
    found = sound(explain_pod(pod, events, NODES))
    assert (found.code, text in found.text, found.final) == (code, True, final), found
    assert BAD in found.text


@pytest.mark.parametrize(("reason", "said", "code"), SAID["waiting"])
def test_a_container_that_cannot_be_made_is_reported(reason: str, said: str, code: str) -> None:
    pod = placed(containerStatuses=container("waiting", reason=reason, message=said))
    assert sound(explain_pod(pod)).code == code


@pytest.mark.parametrize(("reason", "said", "code"), SAID["setup"])
def test_a_pod_that_is_not_set_up_is_reported(reason: str, said: str, code: str) -> None:
    scheduled = event("Scheduled", "Successfully assigned", at="2026-05-04T08:59:00Z")
    pod = placed(containerStatuses=container("waiting", reason="ContainerCreating"))
    assert sound(explain_pod(pod, [event(reason, said), scheduled], NODES)).code == code


@pytest.mark.parametrize(("status", "code", "text"), SAID["ended"])
def test_what_ended_a_pod_is_reported(status: dict[str, Any], code: str, text: str) -> None:
    found = sound(explain_pod(placed(phase="Failed", **status)))
    assert (found.code, text in found.text, found.final) == (code, True, True), found


def test_an_eviction_is_reported_before_the_pods_status_says_so() -> None:
    """The container is killed first."""
    killed = placed(
        phase="Failed", containerStatuses=container("terminated", exitCode=137, reason="Error")
    )
    assert sound(explain_pod(killed)).code == "killed"
    details = event("Evicted", "The node was low on resource: memory. Threshold quantity: 100Mi. ")
    found = sound(explain_pod(killed, [event("Started", "Started container"), details]))
    assert found.code == "ended"
    assert "The node was low on resource" in found.text
    # Nodes come back, and evictions do not end: what else was told of the pod decides nothing.
    back = event("NodeNotReady", "Node is not ready")
    assert sound(explain_pod(killed, [back])).code == "killed"


def test_a_program_that_was_killed_for_its_memory_is_reported() -> None:
    v2, v1 = (
        "low 0\nhigh 0\nmax 31\noom 2\noom_kill {}\n",
        "oom_kill_disable 0\nunder_oom 0\noom_kill {}\n",
    )
    for form in (v1, v2):
        assert explain_killed(placed(), form.format(1), form.format(1)) is None
        found = sound(explain_killed(placed(), form.format(1), form.format(2)))
        assert ("OOM-killed" in found.text, "50 GiB" in found.text) == (True, True)
    assert explain_killed(placed(), "", "") is None


def test_a_lost_node_is_reported_before_the_pod_knows() -> None:
    nodes = read_nodes(
        [node_object("p5", "p5-1", not_ready="Kubelet stopped posting node status.")]
    )
    running = placed(phase="Running", containerStatuses=container("running"))
    assert "Kubelet stopped posting node status" in sound(explain_pod(running, nodes=nodes)).text
    assert sound(explain_pod(running, nodes=NODES[2:])).code == "node-lost"
    assert explain_pod(running, nodes=NODES) is None


def test_a_pod_that_somebody_deletes_is_reported() -> None:
    pod = placed(phase="Running")
    pod["metadata"]["deletionTimestamp"] = "2026-05-04T09:00:00Z"
    assert sound(explain_pod(pod, nodes=NODES)).code == "deleted"


@pytest.mark.parametrize(
    "pod",
    [
        a_pod(),
        placed(phase="Running", containerStatuses=container("running")),
        placed(
            phase="Succeeded",
            containerStatuses=container("terminated", reason="Completed", exitCode=0),
        ),
        placed(containerStatuses=container("waiting", reason="PodInitializing")),
        {},
    ],
)
def test_where_nothing_is_wrong_nothing_is_reported(pod: dict[str, Any]) -> None:
    assert explain_pod(pod) is None


JOB = {"metadata": {"name": "fabbench-a", "uid": "u-1"}, "status": {}}


@pytest.mark.parametrize(("said", "code", "text"), SAID["refused"])
def test_what_is_forbidden_is_reported(said: str, code: str, text: str) -> None:
    found = sound(explain_owner(JOB, "Job", [event("FailedCreate", f"Error creating: {said}")]))
    # The Job controller's own rights are missing only while an API server starts.
    assert (found.code, text in found.text, found.final) == (code, True, code != "rights")


def test_what_is_not_known_is_reported_and_may_pass() -> None:
    found = sound(explain_owner(JOB, "Job", [event("FailedCreate", "etcd leader changed")]))
    assert (found.code, "leader changed" in found.text, found.final) == ("create", True, False)


def test_a_failed_job_is_reported() -> None:
    failed = {
        "type": "Failed",
        "status": "True",
        "reason": "DeadlineExceeded",
        "message": "Job was active longer",
    }
    assert sound(explain_owner({**JOB, "status": {"conditions": [failed]}}, "Job")).code == "ended"
    failed = {
        **failed,
        "reason": "BackoffLimitExceeded",
        "message": "Job has reached the specified backoff limit",
    }
    # The cluster also warns of it.
    warned = {**event(failed["reason"], failed["message"]), "type": "Warning"}
    found = sound(explain_owner({**JOB, "status": {"conditions": [failed]}}, "Job", [warned]))
    assert ("backoff limit" in found.text, found.code, found.final) == (True, "ended", True)
    assert explain_owner(JOB, "Job") is None
