"""`fabbench render --as kubernetes|jobset|trainjob|mpijob`.

Documents that contact nothing, and that a cluster takes.
"""

import json
import subprocess
import sys
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest
import yaml
from click.testing import Result

from fabbench.cli import cli
from fabbench.launchers.pod_options import yaml_documents
from tests.support.command_line import runner
from tests.support.kubernetes import Cluster
from tests.support.kubernetes_schema import schema_problems

EIGHT = ("--pod-request", "nvidia.com/gpu=8")


def render(form: str, *more: str, benchmark: str = "nccl") -> Result:
    return runner().invoke(cli, ["render", benchmark, "--as", form, *more])


def documents(form: str, *more: str, benchmark: str = "nccl") -> list[dict[str, Any]]:
    done = render(form, *more, benchmark=benchmark)
    assert done.exit_code == 0, done.stderr
    return list(yaml.safe_load_all(done.stdout))


@pytest.mark.parametrize(
    ("more", "kept"), [(("--ab",), {"add": ["IPC_LOCK"]}), (("--no-efa",), None)]
)
def test_pods_have_the_capability_that_rdma_needs(more: Sequence[str], kept: object) -> None:
    *_, job = documents("kubernetes", *more, "--instance-type", "p5.48xlarge")
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert container.get("securityContext", {}).get("capabilities") == kept


@pytest.mark.parametrize("name", ["p5.48xlarge", "ml.p5.48xlarge"])
def test_pods_go_to_nodes_with_the_type_as_it_was_given(name: str) -> None:
    *_, job = documents(
        "kubernetes", "--ab", "--instance-type", name, "--node-selector", "pool=bench"
    )
    selector = job["spec"]["template"]["spec"]["nodeSelector"]
    assert selector == {"node.kubernetes.io/instance-type": name, "pool": "bench"}


def test_pods_of_a_rack_claim_a_channel_of_its_compute_domain() -> None:
    more = (
        "--fabric",
        "nvlink",
        "--efa",
        "--instance-type",
        "p6e-gb200.36xlarge",
        "--resource-claim",
        "channel",
    )
    pod = documents("kubernetes", *more)[-1]["spec"]["template"]["spec"]
    worker = documents("mpijob", *more)[0]["spec"]["mpiReplicaSpecs"]["Worker"]["template"]["spec"]
    for each in (pod, worker):
        assert each["containers"][0]["resources"]["claims"] == [{"name": "claim"}]
        assert each["resourceClaims"] == [{"name": "claim", "resourceClaimTemplateName": "channel"}]


def test_osu_in_pods_and_in_an_mpijob() -> None:
    """Its transport is chosen in the ranks' own environment.

    The image's own parameters do not count.
    """
    words = (
        "--ab",
        "--program",
        "osu_allreduce",
        "--ranks-per-host",
        "8",
        "--instance-type",
        "p4d.24xlarge",
    )
    *_, job = documents("kubernetes", *words, "--image", "registry.example/osu:1", benchmark="osu")
    assert job["spec"]["completions"] == 2
    (mpijob,) = documents("mpijob", *words, "--image", "registry.example/osu:1", benchmark="osu")
    (launcher,) = mpijob["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["containers"]
    script = " ".join([*launcher.get("command", ()), *launcher.get("args", ())])
    for part in ("OMPI_MCA_mtl_ofi_provider_include=efa", "osu_allreduce -m"):
        assert part in script
    refused = render("mpijob", *words, benchmark="osu")
    assert refused.exit_code == 2
    assert "has no osu" in refused.stderr
    assert "docker/" not in refused.stderr


@pytest.mark.parametrize("benchmark", ["nccl", "torch", "pingpong"])
def test_a_jobset_and_a_trainjob_have_the_indexed_job(benchmark: str) -> None:
    """Pods have the names that JobSet gives them, and Kueue finds its label."""
    words = ["--ab", "--instance-type", "p5.48xlarge", "--image", "example.com/bench:1"]
    queue = {"kueue.x-k8s.io/queue-name": "team"}
    words += ["--pod-label", "kueue.x-k8s.io/queue-name=team"]
    *_, job = documents("kubernetes", *words, benchmark=benchmark)
    (jobset,) = documents("jobset", *words, benchmark=benchmark)
    runtime, trainjob = documents("trainjob", *words, benchmark=benchmark)
    name = "fabbench-rendered"
    for made, version, kind in (
        (job, "batch/v1", "Job"),
        (jobset, "jobset.x-k8s.io/v1alpha2", "JobSet"),
        (trainjob, "trainer.kubeflow.org/v1alpha1", "TrainJob"),
    ):
        assert (made["apiVersion"], made["kind"]) == (version, kind)
        assert made["metadata"] == {"name": name, "labels": queue}
    assert trainjob["spec"] == {"runtimeRef": {"kind": "TrainingRuntime", "name": name}}
    assert (runtime["apiVersion"], runtime["kind"], runtime["metadata"]) == (
        trainjob["apiVersion"],
        "TrainingRuntime",
        {"name": name},
    )
    assert runtime["spec"]["mlPolicy"] == {"numNodes": 2}
    (usual,) = job["spec"]["template"]["spec"]["containers"]
    script = usual["args"][0].replace(f"{name}-%g", f"{name}-node-0-%g")
    (of_set,) = jobset["spec"].pop("replicatedJobs")
    (of_runtime,) = runtime["spec"]["template"]["spec"].pop("replicatedJobs")
    assert jobset["spec"] == runtime["spec"]["template"]["spec"] == {}  # nothing is restarted
    ancestor = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
    assert of_runtime["template"].pop("metadata") == {"labels": ancestor}
    for made, container in ((of_set, usual["name"]), (of_runtime, "node")):
        spec = made["template"]["spec"]
        assert made == {"name": "node", "template": {"spec": spec}}
        assert list(schema_problems(spec, "V1JobSpec")) == []
        pod = spec["template"]["spec"]
        assert pod["containers"] == [{**usual, "name": container, "args": [script]}]
        (apart,) = pod["affinity"]["podAntiAffinity"].popitem()[1]
        assert apart["labelSelector"]["matchLabels"] == {"jobset.sigs.k8s.io/jobset-name": name}
        assert spec["completionMode"] == "Indexed"


def test_pods_have_as_many_gpus_as_are_asked_for() -> None:
    words = ("--fabric", "tcp", "--instance-type", "h100-ib")
    for more, gpus in ((), "8"), (("--gpus", "4"), "4"), (("--gpus", "4", *EIGHT), "8"):
        *_, job = documents("kubernetes", *words, *more)
        (container,) = job["spec"]["template"]["spec"]["containers"]
        assert container["resources"]["limits"]["nvidia.com/gpu"] == gpus
        ranks = 4 if more else 8
        assert f"ranks=$(({ranks} * " in container["args"][0].replace("$$", "$")


@pytest.mark.parametrize("form", ["kubernetes", "jobset", "trainjob", "mpijob"])
def test_huge_pages_are_requested_as_a_row_says_or_users(form: str) -> None:
    """A pod that requests them stays pending on nodes that have none."""

    def requested(system: str, *more: str) -> bool:
        done = render(form, "--efa", "--instance-type", system, *more)
        assert done.exit_code == 0, done.stderr
        return "hugepages-2Mi: 5120Mi" in done.stdout

    pages = ("--pod-request", "hugepages-2Mi=5120Mi")
    assert requested("p5.48xlarge")
    assert not requested("p5.48xlarge", "--pod-request", "hugepages-2Mi=0")
    assert not requested("p6e-gb200.36xlarge")
    assert requested("p6e-gb200.36xlarge", *pages)


def test_an_mpijob_runs_both_configurations_by_itself() -> None:
    (job,) = documents("mpijob", "--ab", "--instance-type", "p5.48xlarge", "--repeat", "2")
    assert (job["apiVersion"], job["kind"]) == ("kubeflow.org/v2beta1", "MPIJob")
    launcher = job["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["containers"][0]
    # Kubernetes takes $$( for $(.
    script = launcher["args"][-1].replace("$$", "$")
    subprocess.run(["bash", "-n"], input=script, text=True, check=True)
    assert "for execution in 000-efa-r1 001-tcp-r1 002-tcp-r2 003-efa-r2; do" in script
    assert "vpc.amazonaws.com/efa" not in launcher["resources"]["limits"]


def test_the_same_request_gives_the_same_bytes() -> None:
    """Whatever the order of its sets: each process has another."""
    words = ("kubernetes", "--efa", "--instance-type", "p5.48xlarge")
    argv = [sys.executable, "-m", "fabbench", "render", "nccl", "--as", *words]
    other = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert other.stdout == render(*words).stdout


@pytest.mark.parametrize("text", ["7e123456", "08123456", "12345678", "0o17", "y"])
def test_texts_stay_texts_for_readers_of_another_yaml(text: str) -> None:
    """The API reads 7e12 and 08 as numbers, which PyYAML writes without quotes."""
    done = render(
        "mpijob", "--efa", "--instance-type", "p5.48xlarge", "--pod-label", f"team={text}"
    )
    assert f"labels: {{team: '{text}'}}" in done.stdout


@pytest.mark.cluster
def test_the_api_server_takes_the_bytes_that_are_printed(cluster: Cluster, namespace: str) -> None:
    done = render("kubernetes", "--efa", "--instance-type", "p5.48xlarge")
    words = ("-n", namespace, "apply", "--dry-run=server", "--validate=strict", "-f", "-")
    output = cluster.kubectl(*words, given=done.stdout)
    assert output.count("created (server dry run)") == 2


@pytest.mark.cluster
def test_the_api_server_reads_texts_as_texts(cluster: Cluster, namespace: str) -> None:
    """Random ones of all characters that numbers have, and words that some take for truths."""
    random = Random(7)
    forms = (
        "0123456789abcdef",
        "0123456789e",
        "0189",
        "01_",
        "0123456789.e+-_",
        "0xob17",
        "-+.0123456789:",
    )
    texts = [
        "".join(random.choices(form, k=random.randint(1, 9))) for form in forms for _ in range(400)
    ]
    texts += [
        "y",
        "No",
        "ON",
        "off",
        "null",
        "~",
        "",
        ".inf",
        "-.INF",
        ".nan",
        "2026-11-21",
        "12:30:45",
        "1e3",
    ]
    data = {f"text-{number}": text for number, text in enumerate(texts)}
    about = {"name": "texts", "namespace": namespace}
    text = yaml_documents(
        [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": about, "data": data}], "Texts."
    )
    cluster.kubectl("create", "-f", "-", given=text)
    assert (
        json.loads(cluster.kubectl("-n", namespace, "get", "configmap/texts", "-o", "json"))["data"]
        == data
    )
