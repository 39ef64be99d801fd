"""Distributions for tests, as pip leaves them.

Modules in a directory, and what they offer beside them.
"""

from collections.abc import Mapping
from pathlib import Path


def install(
    folder: Path, name: str, offers: Mapping[str, Mapping[str, str]], **modules: str
) -> None:
    """Put a distribution into a directory.

    Group → entry point → object, and its modules by name.
    """
    folder.mkdir(exist_ok=True)
    for module, text in modules.items():
        (folder / f"{module}.py").write_text(text, "utf-8")
    about = folder / f"{name.replace('-', '_')}-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    groups = (
        f"[{group}]\n" + "".join(f"{key} = {value}\n" for key, value in points.items())
        for group, points in offers.items()
    )
    (about / "entry_points.txt").write_text("\n".join(groups))
