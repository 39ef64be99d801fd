"""Images (images.csv, cuda.csv), and where they and hosts have programs that are not on every PATH (folders.csv)."""

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cache

from fabbench.catalog.instances import records, rows_of
from fabbench.model.errors import MachineError
from fabbench.model.hosts import Host

REPOSITORY = "public.ecr.aws/hpc-cloud/nccl-tests"
DEFAULT = f"{REPOSITORY}:cuda13.0.2-efa1.48.0-ofiv1.19.0-ncclv2.30.4-1-testsv2.18.3"
"""AWS's image of nccl-tests, for amd64 and arm64, with sshd and Open MPI.

Pinned, as ``latest`` moves.
"""
_CUDA = re.compile(r"(?:\bcu(?:da)?-?|:(?=[\d.]+-(?:devel|runtime|base)))(1\d)\.?\d")


@dataclass(frozen=True, kw_only=True)
class Image:
    """An image, as images.csv documents it.

    `benchmarks` and `fabrics` are names with blanks between.
    """

    image: str
    cuda: str
    fabrics: str = ""
    benchmarks: str
    conditions: str = ""
    source: str


@cache
def images() -> Sequence[Image]:
    """Return the known images, the best first."""
    return tuple(records(Image, rows_of("images.csv")))


def default_image(benchmark: str, fabrics: Collection[str] = ()) -> str:
    """Return the best public image with a benchmark that measures these fabrics; empty.

    None is known.
    """
    fit = (
        each
        for each in images()
        if benchmark in each.benchmarks.split() and not each.image.startswith("docker/")
    )
    return next(
        (
            each.image
            for each in fit
            if not each.fabrics or {*each.fabrics.split()} >= {*fabrics} > set()
        ),
        "",
    )


def _tags(image: str) -> Sequence[Image]:
    """Return the known images of an image's repository."""
    name = image.removeprefix("docker:").partition(":")[0]
    return [each for each in images() if each.image.partition(":")[0] == name]


def lacks(image: str, benchmark: str) -> bool:
    """Return whether an image is known to have no such benchmark.

    All tags of a repository have the same.
    """
    return bool(known := _tags(image)) and all(
        benchmark not in each.benchmarks.split() for each in known
    )


def why_unfit(image: str, gpu_model: str, driver: str) -> tuple[str, str]:
    """Return why a GPU or a driver does not work with an image's CUDA, and advice.

    Empty if nothing is known.
    """
    match, release = _CUDA.search(image), driver.partition(".")[0]
    row = next((row for row in rows_of("cuda.csv") if match and row["cuda"] == match[1]), {})
    cuda = f"CUDA {row.get('cuda')} of the image {image}"
    if dropped := set(re.findall(r"\w+", gpu_model)) & {*row.get("dropped", "").split()}:
        return (
            f"{cuda} does not support {dropped.pop()}.",
            "Pass an image with an older CUDA, built for this GPU.",
        )
    if row and release.isdecimal() and int(release) < int(row["driver"]):
        older = [each.image for each in _tags(image) if each.cuda < row["cuda"]]
        advice = (
            "Update the driver, or pass an image with an older "
            f"CUDA{', such as ' + older[0] if older else ''}."
        )
        return f"{cuda} needs driver {row['driver']}, and the node has {driver}.", advice
    return "", ""


def require_fit(image: str, hosts: Iterable[Host]) -> None:
    """Raise MachineError for hosts whose GPUs or driver do not work with the CUDA of their image."""
    for host in hosts:
        why, advice = why_unfit(image, host.gpu_model, host.versions.get("nvidia_driver", ""))
        if why:
            raise MachineError(f"{host.name}: {why}", hint=f"Nothing was started. {advice}")


def _folders(kind: str) -> tuple[str, ...]:
    return tuple(row["folder"] for row in rows_of("folders.csv") if row["kind"] == kind)


PROGRAM_FOLDERS, BELOW_PREFIX = _folders("programs"), _folders("program")
"""Directories searched for programs on a host after its PATH (shell patterns), and below an install prefix."""
LIBRARY_FOLDERS, LIBRARIES_BELOW_PREFIX = _folders("libraries"), _folders("library")
"""The same for NCCL, its plugins and NVSHMEM."""
# "$1" and "$2": directories of programs and of libraries.
_SET_PATHS = (
    "PATH=$1${PATH:+:$PATH} LD_LIBRARY_PATH=$2${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}; "
    'export PATH LD_LIBRARY_PATH; shift 2; exec "$@"'
)


def program_folders(paths: Sequence[str]) -> tuple[str, ...]:
    """Return the directories of programs below install prefixes."""
    return tuple(below(path, name) for path in paths for name in BELOW_PREFIX)


def library_folders(paths: Sequence[str]) -> tuple[str, ...]:
    """Return the directories of libraries below install prefixes."""
    return tuple(below(path, name) for path in paths for name in LIBRARIES_BELOW_PREFIX)


def below(path: str, name: str) -> str:
    """Return the directory `name` below `path`; `path` itself for no name."""
    return f"{path.rstrip('/')}/{name}".rstrip("/") or "/"


def with_libraries(
    argv: Sequence[str], paths: Sequence[str], folders: Sequence[str] = ()
) -> tuple[str, ...]:
    """Return how to start a program with the libraries of `paths`.

    `folders` come first in its PATH.
    """
    if not paths and not folders:
        return tuple(argv)
    path = dict.fromkeys((*folders, *(below(each, "bin") for each in paths)))
    libraries = ":".join(library_folders(paths) if paths else folders)
    return ("sh", "-c", _SET_PATHS, "sh", ":".join(path), libraries, *argv)
