"""Names of container images as Pyxis takes them. Pure.

Pyxis gives them to enroot, which wants ``docker://REGISTRY#PATH``: without the ``#`` it asks Docker's own
registry (AWS's guide for its Parallel Computing Service; enroot's doc/cmd/import.md). A file is a squashfs
image.
"""

_SCHEME = "docker://"


def image(name: str) -> str:
    """Write an image's name for ``--container-image``.

    ``public.ecr.aws/hpc-cloud/nccl-tests:latest`` becomes ``docker://public.ecr.aws#hpc-cloud/nccl-tests:latest``.
    """
    if name.startswith(("/", "./", "~")) or name.endswith(".sqsh"):
        return name
    path = name.removeprefix(_SCHEME)
    first, slash, rest = path.partition("/")
    if "#" not in path and slash and ("." in first or ":" in first or first == "localhost"):
        path = f"{first}#{rest}"
    return f"{_SCHEME}{path}"
