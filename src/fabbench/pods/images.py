"""Images of pods: the default one, what its tag says, and what it does not have. Pure."""

import re
from collections.abc import Mapping
from typing import Any

from fabbench.errors import RequestError

REPOSITORY = "public.ecr.aws/hpc-cloud/nccl-tests"
DEFAULT = f"{REPOSITORY}:cuda13.0.2-efa1.48.0-ofiv1.19.0-ncclv2.30.4-1-testsv2.18.3"
"""AWS's image of nccl-tests, for amd64 and arm64, with sshd and Open MPI. Pinned, as ``latest`` moves."""

_HAS = frozenset({"nccl", "pingpong"})
"""Benchmarks in that image. fi_pingpong comes with the EFA installer."""
_TAG = re.compile(
    r"cuda(?P<cuda>[\d.]+)-efa(?P<efa_installer>[\d.]+)-ofiv?(?P<plugin>[\d.]+)-ncclv?(?P<nccl>[\d.]+(?:-\d+)?)"
    r"-tests?v?(?P<nccl_tests>[\d.]+)"
)


def image_of(settings: Mapping[str, Any]) -> str:
    """Give the image of pods: the one that was asked for, else the default one."""
    return str(settings.get("image") or DEFAULT)


def image_parts(image: str) -> Mapping[str, str]:
    """Read the versions in a tag of AWS's image: `cuda`, `efa_installer`, `plugin`, `nccl`, `nccl_tests`.

    Empty for any other tag: nothing is known of it.
    """
    repository, _, tag = image.partition("@")[0].rpartition(":")
    match = _TAG.fullmatch(tag) if repository and "/" not in tag else None
    return match.groupdict() if match else {}


def require_benchmark(benchmark: str, image: str) -> None:
    """Raise RequestError where an image is known not to have a benchmark."""
    if image.startswith(REPOSITORY) and benchmark not in _HAS:
        raise RequestError(
            f"The image {image} has no {benchmark}: it is AWS's image of nccl-tests.",
            hint=f"Name an image that has {benchmark} with --image. fabbench's docker/ builds one.",
        )
