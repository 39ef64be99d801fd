"""Pod images, and where images and hosts have programs that are not on every PATH. Pure."""

from collections.abc import Sequence

REPOSITORY = "public.ecr.aws/hpc-cloud/nccl-tests"
DEFAULT = f"{REPOSITORY}:cuda13.0.2-efa1.48.0-ofiv1.19.0-ncclv2.30.4-1-testsv2.18.3"
"""AWS's image of nccl-tests, for amd64 and arm64, with sshd and Open MPI. Pinned, as ``latest`` moves."""

_NVSHMEM = ("host/pt-to-pt", "host/coll*", "device/pt-to-pt", "device/coll*")
PROGRAM_FOLDERS = (
    # EFA installer (Open MPI 4 in openmpi, 5 in openmpi5).
    "/opt/amazon/efa/bin", "/opt/amazon/openmpi/bin", "/opt/amazon/openmpi5/bin",
    # Images of nccl-tests, and AWS's Deep Learning AMIs.
    "/opt/nccl-tests/build", "/usr/local/cuda/efa/test-cuda-*", "/usr/local/cuda-*/efa/test-cuda-*",
    "/usr/local/nccl-tests/build", "~/nccl-tests/build",
    # perftest and fabtests.
    "/opt/perftest/bin", "/opt/amazon/efa/libexec/fabtests", "/usr/local/libexec/fabtests",
    # NVSHMEM: the directory is coll in one release and collective in another.
    *(f"/opt/nvshmem/{below}/{side}" for below in ("bin/perftest", "*/perftest") for side in _NVSHMEM),
    # HPC-X, and what sshd's PATH for commands leaves out.
    "/opt/hpcx/ompi/bin", "/usr/local/mpi/bin", "/usr/local/bin", "/usr/bin", "/bin", "/usr/local/sbin", "/usr/sbin",
    "/sbin",
)  # fmt: skip
"""Directories searched on a host after its PATH, in this order; shell patterns."""

BELOW_PREFIX = (
    "",
    "bin",
    "build",
    *(
        f"{folder}perftest/{side}/{kind}"
        for folder in ("bin/", "")
        for side in ("device", "host")
        for kind in ("coll", "collective", "pt-to-pt")
    ),
    "libexec/fabtests",
)
"""Where programs are below an install prefix, in this order."""

LIBRARIES_BELOW_PREFIX = ("lib", "lib64", "")
"""Where libraries are below an install prefix, in this order."""

LIBRARY_FOLDERS = (
    # The plugin aws-ofi-nccl: since EFA installer 1.48, before it, and in images of 2024 and older.
    "/opt/amazon/ofi-nccl/lib",
    "/opt/amazon/ofi-nccl/lib/*-linux-gnu",
    "/opt/aws-ofi-nccl/install/lib",
    "/opt/aws-ofi-nccl/lib",
    "/opt/nccl/build/lib", "/usr/local/cuda/lib64", "/usr/local/lib", "/opt/nvshmem/lib",
    "/opt/hpcx/nccl_rdma_sharp_plugin/lib",
)  # fmt: skip
"""Where NCCL, its plugins and NVSHMEM are looked for, besides LD_LIBRARY_PATH and the linker's cache."""


def program_folders(paths: Sequence[str]) -> tuple[str, ...]:
    """Return the directories of programs below install prefixes."""
    return tuple(below(path, name) for path in paths for name in BELOW_PREFIX)


def library_folders(paths: Sequence[str]) -> tuple[str, ...]:
    """Return the directories of libraries below install prefixes."""
    return tuple(below(path, name) for path in paths for name in LIBRARIES_BELOW_PREFIX)


def below(path: str, name: str) -> str:
    """Return the directory `name` below `path`; `path` itself for no name."""
    return f"{path.rstrip('/')}/{name}".rstrip("/") or "/"
