"""The TAB key in real shells, which load what `fabbench completion` prints."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.needed import need
from tests.support.paths import DATA
from tests.support.tiers import sampled

pytestmark = pytest.mark.local

# Each completes $line, and prints the candidates, one per line, perhaps with a description.
BASH = (DATA / "completion/bash").read_text("utf-8")
FISH = """
fabbench completion fish | source
complete --do-complete $line
"""
ZSH = (DATA / "completion/zsh").read_text("utf-8")
ZSHRC = (DATA / "completion/zshrc").read_text("utf-8")
"""zsh completes on a terminal only. It has one of its own, and does so before it reads a key."""
SHELLS = {
    "bash": ("bash", "--norc", "-c", BASH),
    "zsh": ("zsh", "-f", "-c", ZSH),
    "fish": ("fish", "--private", "-c", FISH),
}

LINES = {
    "fabbench run nccl --dtype bf": {"bfloat16"},
    "fabbench s": {"show", "sweep"},
    "fabbench run pingpong --fabric ef": {"efa"},
}


@pytest.mark.parametrize("shell", sampled([*SHELLS], every=2))
@pytest.mark.parametrize("line", sampled([*LINES], every=4))
def test_tab_completes(shell: str, line: str, tmp_path: Path) -> None:
    need(shell)
    (tmp_path / ".zshrc").write_text(ZSHRC)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    kept = {name: value for name, value in os.environ.items() if not name.startswith("FABBENCH_")}
    done = subprocess.run(
        SHELLS[shell],
        env={**kept, "line": line, "PATH": path, "HOME": str(tmp_path), "ZDOTDIR": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert {word.partition("\t")[0] for word in done.stdout.splitlines()} == LINES[line], (
        done.stderr
    )
