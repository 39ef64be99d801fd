"""`fabbench render --as kubernetes|mpijob`.

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
