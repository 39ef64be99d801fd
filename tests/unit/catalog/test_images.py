"""Which images have a benchmark, and which nodes they work on."""

import pytest

from fabbench.benchmarks import benchmarks, runnable_names
from fabbench.catalog.images import DEFAULT, default_image, images, require_fit, why_unfit
from fabbench.model.errors import MachineError, RequestError
from fabbench.model.hosts import Host

TORCH = "public.ecr.aws/deep-learning-containers/pytorch-training"
COREWEAVE = "ghcr.io/coreweave/nccl-tests"
OLDER = "cuda12.8.1-efa1.43.2-ofiv1.16.3-ncclv2.27.7-1-testsv2.16.9"


def test_images_name_benchmarks_that_there_are_and_their_sources() -> None:
    for each in images():
        assert set(each.benchmarks.split()) <= set(runnable_names()), each.image
        assert each.source
    assert images()[0].image == DEFAULT


def test_the_default_of_each_benchmark() -> None:
    assert {
        default_image(name, fabrics) for name in ("nccl", "pingpong") for fabrics in ((), ("ib",))
    } == {DEFAULT}
    assert default_image("torch", ("efa",)).startswith(f"{TORCH}:")
    assert default_image("perftest", ("ib",)).startswith(f"{COREWEAVE}:")
    assert {
        default_image("perftest", ("efa",)),
        default_image("perftest"),
        default_image("osu"),
    } == {""}


@pytest.mark.parametrize(
    ("image", "gpu", "driver", "seen", "advice"),
    [
        (DEFAULT, "NVIDIA H100 80GB HBM3", "580.82.07", "", ""),
        (DEFAULT, "NVIDIA H100 80GB HBM3", "550.90.07", "driver 580", OLDER),
        (DEFAULT, "Tesla V100-SXM2-32GB", "580.82.07", "V100", "older CUDA"),
        (
            f"{TORCH}:2.9.0-gpu-py312-cu130-ubuntu22.04-ec2",
            "NVIDIA H100",
            "550.1",
            "driver 580",
            "2.8.0-gpu",
        ),
        (f"{COREWEAVE}:12.9.1-devel-ubuntu22.04", "NVIDIA H100", "535.1", "", ""),
        ("registry:5000/team/nccl:13.1", "NVIDIA H100", "470.1", "", ""),  # a version of its own
        ("", "Tesla V100", "450", "", ""),
    ],
)
def test_an_image_needs_a_driver_and_a_gpu_that_its_cuda_knows(
    image: str, gpu: str, driver: str, seen: str, advice: str
) -> None:
    found = why_unfit(image, gpu, driver)
    assert (seen in found[0], advice in found[1], bool(found[0])) == (True, True, bool(seen))
    if seen:
        with pytest.raises(MachineError, match="a: CUDA"):
            require_fit(image, [Host(name="a", gpu_model=gpu, versions={"nvidia_driver": driver})])


def test_a_benchmark_that_an_image_lacks_is_refused() -> None:
    benchmarks()["nccl"].require_image(DEFAULT)
    benchmarks()["nvshmem"].require_image("registry.example/mine:1")
    for lacking, hint in (
        ("nvshmem", "docker/benchmark"),
        ("perftest", COREWEAVE),
        ("torch", TORCH),
        ("osu", "--image"),
    ):
        with pytest.raises(RequestError) as caught:
            benchmarks()[lacking].require_image(f"docker:{DEFAULT}")
        assert hint in str(caught.value.hint)
