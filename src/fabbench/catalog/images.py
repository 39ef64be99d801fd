"""Images, and where they and hosts have programs that are not on every PATH.

The files are images.csv, cuda.csv and folders.csv.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache

from fabbench.catalog.systems import records, rows_of
from fabbench.model.errors import MachineError
from fabbench.model.hosts import Host
from fabbench.model.mappings import Paths, distinct
from fabbench.model.plan import Words
from fabbench.model.units import parse_whole
from fabbench.model.values import frozen

REPOSITORY = "public.ecr.aws/hpc-cloud/nccl-tests"
DEFAULT = f"{REPOSITORY}:cuda13.0.2-efa1.48.0-ofiv1.19.0-ncclv2.30.4-1-testsv2.18.3"
"""AWS's image of nccl-tests, for amd64 and arm64, with sshd and Open MPI.

Pinned, as ``latest`` moves.
"""
_CUDA = re.compile(r"(?:\bcu(?:da)?-?|:(?=[\d.]+-(?:devel|runtime|base)))(1\d)\.?\d")


@frozen
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

    @property
    def repository(self) -> str:
        """Its name without the tag."""
        return self.image.partition(":")[0]

    def has(self, benchmark: str) -> bool:
        """Return whether it has the programs of a benchmark."""
        return benchmark in self.benchmarks.split()

    def reaches(self, fabrics: Collection[str]) -> bool:
        """Return whether it measures these fabrics; if it has only some, there must be one."""
        fabrics_of_image = set(self.fabrics.split())
        return not fabrics_of_image or (bool(fabrics) and fabrics_of_image.issuperset(fabrics))


@cache
def images() -> Sequence[Image]:
    """Return the known images, the best first."""
    return tuple(records(Image, rows_of("images.csv")))


def default_image(benchmark: str, fabrics: Collection[str] = ()) -> str:
    """Return the best public image with a benchmark that measures these fabrics.

    Empty: none is known.
    """
    for known in images():
        is_public = not known.image.startswith("docker/")  # a recipe here, for users to build
        if is_public and known.has(benchmark) and known.reaches(fabrics):
            return known.image
    return ""


def _known_tags(image: str) -> Sequence[Image]:
    """Return the known images of an image's repository."""
    repository = image.removeprefix("docker:").partition(":")[0]
    return [known for known in images() if known.repository == repository]


def lacks(image: str, benchmark: str) -> bool:
    """Return whether an image is known to have no such benchmark.

    All tags of a repository have the same.
    """
    tags = _known_tags(image)
    has_it = [tag.has(benchmark) for tag in tags]
    return bool(tags) and not any(has_it)


def why_unfit(image: str, gpu_model: str, driver: str) -> tuple[str, str]:
    """Return why a GPU or a driver does not work with an image's CUDA, and advice.

    Both empty if nothing is known against it. An empty or odd `driver` is not known.
    """
    row = _cuda_of(image)
    if row is None:
        return "", ""
    cuda = f"CUDA {row['cuda']} of the image {image}"
    words = re.findall(r"\w+", gpu_model)
    for dropped in row["dropped"].split():
        if dropped in words:
            advice = "Pass an image with an older CUDA, built for this GPU."
            return f"{cuda} does not support {dropped}.", advice
    release = parse_whole(driver.partition(".")[0])
    needed = row["driver"]
    if release is not None and release < int(needed):
        why = f"{cuda} needs driver {needed}, and the node has {driver}."
        return why, _older_cuda(image, row["cuda"])
    return "", ""


def _cuda_of(image: str) -> Mapping[str, str] | None:
    """Return what cuda.csv says of an image's CUDA; None: its name shows none that is known."""
    version = _CUDA.search(image)
    if version is None:
        return None
    for row in rows_of("cuda.csv"):
        if row["cuda"] == version[1]:
            return row
    return None


def _older_cuda(image: str, cuda: str) -> str:
    """Return the advice for a driver that is too old for a CUDA."""
    advice = "Update the driver, or pass an image with an older CUDA"
    for tag in _known_tags(image):
        if tag.cuda < cuda:  # as text: no CUDA of two-digit major versions has a minor one of two
            return f"{advice}, such as {tag.image}."
    return f"{advice}."


def require_fit(image: str, hosts: Iterable[Host]) -> None:
    """Raise MachineError for hosts whose GPUs or driver do not work with the image's CUDA."""
    for host in hosts:
        driver = host.versions.get("nvidia_driver", "")
        why, advice = why_unfit(image, host.gpu_model, driver)
        if why:
            raise MachineError(f"{host.name}: {why}", hint=f"Nothing was started. {advice}")


def _folders_of_kind(kind: str) -> Paths:
    # `program` and `library` are those below an install prefix, `programs` and `libraries` others.
    rows = rows_of("folders.csv")
    return tuple(row["folder"] for row in rows if row["kind"] == kind)


PROGRAM_FOLDERS = _folders_of_kind("programs")
"""Directories searched for programs on a host after its PATH (shell patterns)."""
BELOW_PREFIX = _folders_of_kind("program")
"""Directories of programs below an install prefix."""
LIBRARY_FOLDERS = _folders_of_kind("libraries")
"""Directories searched for NCCL, its plugins and NVSHMEM."""
LIBRARIES_BELOW_PREFIX = _folders_of_kind("library")
"""The same below an install prefix."""
# "$1" and "$2": directories of programs and of libraries.
_SET_PATHS = (
    "PATH=$1${PATH:+:$PATH} LD_LIBRARY_PATH=$2${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}; "
    'export PATH LD_LIBRARY_PATH; shift 2; exec "$@"'
)


def program_folders(paths: Sequence[str]) -> Paths:
    """Return the directories of programs below install prefixes."""
    return tuple(below(path, name) for path in paths for name in BELOW_PREFIX)


def library_folders(paths: Sequence[str]) -> Paths:
    """Return the directories of libraries below install prefixes."""
    return tuple(below(path, name) for path in paths for name in LIBRARIES_BELOW_PREFIX)


def below(path: str, name: str) -> str:
    """Return the directory `name` below `path`; `path` itself for no name."""
    return f"{path.rstrip('/')}/{name}".rstrip("/") or "/"


def with_libraries(argv: Sequence[str], paths: Sequence[str], folders: Sequence[str] = ()) -> Words:
    """Return how to start a program with the libraries of `paths`, which are install prefixes.

    `folders`, where the program itself may be, come first in its PATH. Without prefixes its
    libraries may be there, too.
    """
    if not paths and not folders:
        return tuple(argv)
    program_paths = [*folders, *(below(path, "bin") for path in paths)]
    programs = ":".join(distinct(program_paths))
    libraries = ":".join(library_folders(paths) if paths else folders)
    # The script puts both before what is set, and becomes the program.
    return ("sh", "-c", _SET_PATHS, "sh", programs, libraries, *argv)
