"""Images as archives that `ctr images import` reads, made without Docker.

The format is that of `docker save`: https://github.com/moby/docker-image-spec (image tar, v1.2).
"""

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """An image: layers from the bottom up, each a tar file."""

    name: str
    layers: Sequence[Path]
    command: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict)


def write(archive: Path, images: Sequence[Image]) -> None:
    """Write images to an archive; a layer that several have is in it once."""
    sums: dict[Path, str] = {}
    manifest = []
    with tarfile.open(archive, "w") as tar:
        for image in images:
            for layer in image.layers:
                if layer not in sums:
                    sums[layer] = _sum(layer)
                    tar.add(layer, f"{sums[layer]}.tar")
            config = json.dumps(_config(image, [sums[layer] for layer in image.layers])).encode()
            name = f"{hashlib.sha256(config).hexdigest()}.json"
            _add(tar, name, config)
            layers = [f"{sums[layer]}.tar" for layer in image.layers]
            manifest.append({"Config": name, "RepoTags": [image.name], "Layers": layers})
        _add(tar, "manifest.json", json.dumps(manifest).encode())


def layer(path: Path, files: Mapping[str, Path | None]) -> Path:
    """Write a layer: where a file lies in the image → the file, or None, which takes it away.

    Symbolic links stay what they are.
    """
    with tarfile.open(path, "w") as tar:
        for name, source in files.items():
            if source is None:
                folder, _, base = name.lstrip("/").rpartition("/")
                _add(tar, f"{folder}/.wh.{base}", b"")
            else:
                tar.add(source, name.lstrip("/"), filter=_of_root)
    return path


def _of_root(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    member.uid = member.gid = 0
    return None if member.name.endswith("__pycache__") else member


def _config(image: Image, sums: Sequence[str]) -> dict[str, object]:
    env = {"PATH": _PATH, **image.env}
    return {
        "architecture": "amd64",
        "os": "linux",
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}" for digest in sums]},
        "config": {
            "Cmd": [*image.command],
            "Env": [f"{key}={value}" for key, value in env.items()],
        },
    }


def _sum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    tar.addfile(member, io.BytesIO(content))
