"""The benchmark image as far as package archives alone lead; its sshd and scripts run in it.

setup/cluster builds the CPU image whole, by its own Dockerfile; the pods of tests/cluster run it.
"""

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.dockerfile import Instruction, Root, read
from tests.support.needed import need, refuse, strict
from tests.support.paths import DATA, ROOT

pytestmark = [pytest.mark.lab, pytest.mark.slow]

BENCHMARK = ROOT / "docker/benchmark"
ALL = read(BENCHMARK / "Dockerfile")
ELSEWHERE = ("--mount=", "--from=", 'fetch-efa "', "libcudart")
"""In what takes NVIDIA's base images, the EFA installer, or what GitHub's sources made."""
NOT_REACHED = 69


def from_archives(stage: str) -> list[Instruction]:
    return [
        each
        for each in ALL
        if each.stage == stage and not any(word in each.text for word in ELSEWHERE)
    ]


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Root]:
    """Ubuntu 24.04 with what the first and last stage bring from its archive and this folder."""
    if os.name != "posix" or os.geteuid() != 0:
        refuse("needs root: it makes a root of its own", fail=strict("FABBENCH_REQUIRE_LAB"))
    need("apt-get", "unshare", "ip")
    folder = tmp_path_factory.mktemp("image") / "root"
    made = subprocess.run(
        [str(ROOT / "setup/root"), "ubuntu", str(folder)],
        env={**os.environ, "UPDATES": "no"},
        capture_output=True,
        text=True,
        check=False,
    )
    if made.returncode == NOT_REACHED:
        pytest.skip(made.stderr.splitlines()[-1])
    assert made.returncode == 0, made.stderr
    root = Root(folder)
    for stage in ("efa-installer", "benchmark"):
        root.build(BENCHMARK, from_archives(stage))
    yield root
    subprocess.run(["rm", "-rf", "--one-file-system", str(folder)], check=True)


def test_nothing_else_of_the_first_and_the_last_stage_is_left_out() -> None:
    for stage, left_out in LEFT_OUT.items():
        done = from_archives(stage)
        others = [each for each in ALL if each.stage == stage and each not in done]
        assert [
            f"{each.name} {each.text}"[: len(start)]
            for each, start in zip(others, left_out, strict=True)
        ] == left_out


LEFT_OUT = {
    "efa-installer": ["RUN fetch-efa"],
    "benchmark": [
        "RUN --mount=type=bind,source=base-image",
        "RUN --mount=type=bind,from=efa-installer",
        "COPY --from=nccl",
        "COPY --from=nvshmem",
        "COPY --from=rdma",
        "COPY --from=gdrcopy",
        "RUN ln -s",
    ],
}


def test_the_compilers_stage_names_packages_that_exist(image: Root) -> None:
    (install,) = [
        found[1]
        for each in ALL
        if each.stage == "toolchain" and each.name == "RUN"
        if (
            found := re.search(
                r"apt-get install --yes --no-install-recommends (autoconf .*?) &&", each.text
            )
        )
    ]
    simulate = (
        f"apt-get update && apt-get install --simulate --no-install-recommends {install} "
        "libibumad-dev"
    )
    done = image.run("sh", "-c", simulate, network=True)
    assert done.returncode == 0, done.stdout
    assert "Inst build-essential" in done.stdout


def test_no_host_key_is_left_in_the_image(image: Root) -> None:
    assert image.run("test", "-x", "/usr/sbin/sshd").returncode == 0
    assert list((image.folder / "etc/ssh").glob("ssh_host_*")) == []


LOGIN = (DATA / "image/login").read_text("utf-8")


def test_a_login_to_its_sshd_has_the_variables_of_the_image(image: Root) -> None:
    done = image.run("bash", "-c", LOGIN)
    assert done.returncode == 0, done.stdout
    lines = done.stdout.splitlines()
    for name in ("PATH", "LD_LIBRARY_PATH"):
        assert f"{name}={image.environment[name]}" in lines, done.stdout
    assert "without a key: refused" in lines


FETCH = (DATA / "image/fetch").read_text("utf-8")


def test_its_curl_and_gpg_check_the_installer(image: Root) -> None:
    done = image.run("bash", "-euc", FETCH)
    assert "efa_installer.sh\n" in done.stdout, done.stdout
    assert done.returncode == 1
    assert "is signed, and not by the key" in done.stdout


def test_ubuntu_without_cuda_is_no_base_of_it(image: Root) -> None:
    versions = dict(
        each.text.split("=", 1) for each in ALL if each.name == "ARG" and not each.stage
    )
    wanted = (versions["CUDA_VERSION"], versions["UBUNTU_VERSION"])
    script = (BENCHMARK / "base-image").read_text("utf-8")
    refused = image.run("bash", "-c", script, "base-image", *wanted)
    assert refused.returncode == 1
    assert "has no CUDA" in refused.stdout
    Path(image.folder, f"usr/local/cuda-{wanted[0].rpartition('.')[0]}").mkdir()
    assert image.run("bash", "-c", script, "base-image", *wanted).returncode == 0
