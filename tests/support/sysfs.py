"""A tree of /sys as of another machine, and what the probe says of it."""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from fabbench.hosts.probe import read_probe, script
from fabbench.hosts.probe_result import Probe
from tests.support.paths import DATA


def probe(folder: Path, changes: Mapping[str, str], *shell: str, path: str = "") -> Probe:
    return read_probe(answer(folder, changes, *shell, path=path))


def answer(folder: Path, changes: Mapping[str, str], *shell: str, path: str = "") -> list[str]:
    """Probe this machine with the tree of tests/data/sysfs, and other texts for some files."""
    text = script().replace("cd /sys", f"cd {made(folder / 'sys', changes)}")
    env = os.environ | ({"PATH": path} if path else {})
    done = subprocess.run(
        [*(shell or ("sh",)), "-c", text], env=env, capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines()


def made(root: Path, changes: Mapping[str, str]) -> Path:
    for line in (DATA / "sysfs/two-sockets.txt").read_text("utf-8").splitlines()[1:]:
        path, text = line.split(" ", 1)
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        text = next((other for end, other in changes.items() if path.endswith(end)), text)
        if text.startswith("-> "):
            file.symlink_to(f"{root}{text[3:]}" if text[3] == "/" else text[3:])
        elif file.name == "config":
            content = bytearray(4096)
            for offset, value in (pair.split(":") for pair in text.split()):
                content[int(offset, 16) : int(offset, 16) + 4] = int(value, 16).to_bytes(
                    4, "little"
                )
            file.write_bytes(content)
        else:
            file.write_text(text.replace("\\n", "\n") + "\n")
    return root
