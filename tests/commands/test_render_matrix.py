"""`fabbench render`: every benchmark in every format, for every system that can run it."""

import re
from collections.abc import Sequence

import pytest
import yaml

from fabbench.benchmarks import runnable_names
from fabbench.catalog.systems import systems
from fabbench.cli import cli
from fabbench.launchers import renderings
from tests.support.command_line import runner
from tests.support.render_matrix import (
    BENCHMARKS,
    DEVICE,
    IB,
    IMAGE,
    IN_IMAGES,
    IN_PODS,
    SYSTEMS,
    rendered,
)

LONGEST = 120  # Lines, without what a benchmark runs in Python
# Of pairs, whose script has both sides: SkyPilot's has tcp, too, Modal's app 45 lines of its own, a
# TrainJob a runtime.
OF_PAIRS = {"skypilot": 125, "modal": 137, "trainjob": 130}
LONGEST_LINE = 250  # Characters
ALL = [
    (system, form, benchmark)
    for system in SYSTEMS
    for form in sorted(renderings())
    for benchmark in sorted(runnable_names())
    if form != "modal" or system == "p5.48xlarge"  # whose clusters are on AWS, with eight H100
]
FEW = [
    ("p5.48xlarge", "modal", "torch"),
    ("p5.48xlarge", "slurm", "nccl"),
    ("h100-ib", "kubernetes", "perftest"),
]


def refused(form: str, *words: str) -> str:
    done = runner().invoke(cli, ["render", "nccl", *words, "--as", form])
    assert (done.exit_code, done.stdout) == (2, ""), (form, words)
    return done.stderr


@pytest.mark.parametrize(
    "cells", [FEW, pytest.param(ALL, marks=pytest.mark.slow)], ids=["few", "all"]
)
def test_every_benchmark_has_a_short_document(cells: list[tuple[str, str, str]]) -> None:
    for system, form, benchmark in cells:
        words = [benchmark, "--instance-type", system, *BENCHMARKS.get(benchmark, ())]
        if form in IN_PODS:
            words += SYSTEMS[system]
        text = rendered(form, *words, *(IMAGE if form in IN_IMAGES else ()))
        text = re.sub(r"(?s)<<'PYTHON'\n.*?\n\s*PYTHON\n", "\n", text)
        lines = text.splitlines()
        assert len(lines) <= OF_PAIRS.get(form, LONGEST), (system, form, benchmark)
        assert max(map(len, lines)) <= LONGEST_LINE, (system, form, benchmark)


@pytest.mark.parametrize("form", IN_PODS)
@pytest.mark.parametrize(
    "words",
    [
        ("--fabric", "ib", "--instance-type", "h100-ib"),
        ("--instance-type", "BM.GPU.H100.8"),  # its fabric is RoCE
        ("--fabric", "ib", "--gpus", "8", "--nics", "8", "--pod-request", "nvidia.com/gpu=8"),
        ("--fabric", "nvlink", "--instance-type", "gb200-nvl72"),
        ("--fabric", "roce", "--instance-type", "BM.GPU.H100.8", "--pod-request", f"{IB[1]}"),
    ],
)
def test_pods_need_a_way_to_the_fabric(form: str, words: Sequence[str]) -> None:
    said = refused(form, *words)
    assert "needs a way into pods of" in said
    assert "--pod-request" in said


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--fabric", "tcp", "--instance-type", "h100-ib"), "nvidia.com/gpu: '8'"),
        (("--instance-type", "h100-ib", *IB), "rdma/ib: '1'"),
        (("--instance-type", "gd-8xh100ib-i128"), "rdma/ib: '1'"),
        (("--instance-type", "gpu-h200-sxm"), "nvidia.com/gpu: '8'"),
        (("--instance-type", "a3-ultragpu-8g", *IMAGE), "NCCL_NET=gIB"),
        (("--instance-type", "a3-megagpu-8g", *IMAGE), "name: tcpxo-daemon"),
        (("--fabric", "nvlink", "--instance-type", "gb200-4x"), "name: NVIDIA_IMEX_CHANNELS"),
        (
            ("--instance-type", "BM.GPU.H200.8", "--cluster-profile", "oke-rdma-vf"),
            "nvidia.com/rdma-vf: '8'",
        ),
    ],
)
def test_a_row_says_how_pods_get_the_fabric(words: Sequence[str], expected: str) -> None:
    assert expected in rendered("kubernetes", "nccl", *words)


@pytest.mark.parametrize(
    ("form", "request_of_all"),
    [
        ("slurm", "#SBATCH --gpus-per-node=8\n"),
        ("pbs", ":ngpus=8\n"),
        ("lsf", "#BSUB -gpu num=8\n"),
        ("flux", "#flux: --gpus-per-slot=8\n"),
        ("kubernetes", "nvidia.com/gpu: '8'"),
        ("mpijob", "nvidia.com/gpu: '8'"),
    ],
)
def test_gpus_are_requested_if_they_are_used(form: str, request_of_all: str) -> None:
    cuda = ("--memory", "cuda")
    image = IMAGE if form in IN_IMAGES else ()
    for words, used in (
        (("nccl",), True),
        (("fabtests", *DEVICE), True),  # its buffers are on GPUs where hosts have some
        (("osu",), False),
        (("osu", *cuda), True),
        (("perftest", *DEVICE), False),
        (("perftest", *DEVICE, *cuda), True),
        (("nixl",), False),
        (("pingpong",), False),
        (("pingpong", "--gpus", "8"), True),
    ):
        text = rendered(form, *words, "--instance-type", "p5.48xlarge", *image)
        assert (request_of_all in text) == used, (form, words)


def test_pods_go_to_nodes_with_the_label_of_a_cloud() -> None:
    label = "nodeSelector: {node.kubernetes.io/instance-type: "
    tcp = ("--fabric", "tcp", "--instance-type")
    assert f"{label}BM.GPU4.8}}" in rendered("kubernetes", "nccl", *tcp, "bm.gpu4.8")
    assert "nodeSelector" not in rendered("kubernetes", "nccl", *tcp, "h100-ib")


def test_skypilot_gives_the_fabric_or_says_that_it_does_not() -> None:
    words = ("--fabric", "ib", "--instance-type", "h100-ib")
    task = yaml.safe_load(rendered("skypilot", "nccl", *words))
    assert task["resources"]["network_tier"] == "best"
    assert task["resources"]["accelerators"] == "H100:8"
    requested = yaml.safe_load(rendered("skypilot", "nccl", *words, *IB))
    assert "network_tier" not in requested["resources"]
    (container,) = requested["config"]["kubernetes"]["pod_config"]["spec"]["containers"]
    assert container["resources"]["limits"] == {"rdma/ib": 1}
    for more in (("--infra", "aws"), ("--set", "network-tier=standard")):
        assert "ib needs a way into SkyPilot's" in refused("skypilot", *words, *more)
    assert "ib needs a way into Modal's" in refused("modal", *words)
    slurm = yaml.safe_load(rendered("skypilot", "nccl", *words, "--infra", "slurm/hpc"))
    assert "network_tier" not in slurm["resources"]


def test_systems_whose_nics_no_source_states_measure_tcp_or_what_users_say() -> None:
    unknown = ("--instance-type", "a3-highgpu-8g")
    assert "NCCL_NET=Socket" in rendered("script", "nccl", *unknown)
    said = rendered("script", "nccl", *unknown, "--fabric", "roce", "--nics", "4")
    assert "NCCL_NET=IB" in said


def test_a_row_with_a_fabric_has_its_nics() -> None:
    for name, known in systems().items():
        assert not known.fabric or (known.nics and known.rate), name
        assert not known.pods or known.cloud, name
