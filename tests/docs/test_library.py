"""Code of docs/library.md and of the notebooks, run as it stands there."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import fabbench

ROOT = Path(__file__).parents[2]
LIBRARY = (ROOT / "docs/library.md").read_text("utf-8")


def ran(program: str, folder: Path) -> str:
    """Run a program in a directory that has the examples; return what it prints."""
    shutil.copytree(ROOT / "examples", folder / "examples", dirs_exist_ok=True)
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_page_compares_logs(tmp_path: Path) -> None:
    (program,) = re.findall(r"```python\n(.*?)```", LIBRARY, re.DOTALL)
    assert "| Message Size | busbw ofi (GB/s) | busbw socket (GB/s) | Speed-up |" in ran(
        program, tmp_path
    )


@pytest.mark.slow
@pytest.mark.local
def test_the_page_runs_a_benchmark(tmp_path: Path) -> None:
    (program,) = re.findall(r"```python run\.py\n(.*?)```", LIBRARY, re.DOTALL)
    printed = ran(program, tmp_path).splitlines()
    assert printed[1] == "pingpong on shm and tcp: 4 executions."
    assert printed[-1].startswith(f"{tmp_path}/fabbench-runs/")


def test_the_page_names_every_function() -> None:
    named = set(re.findall(r"^\| `fabbench\.(\w+)\(", LIBRARY, re.MULTILINE))
    assert named == set(fabbench.__all__) - {"__version__"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "notebook", sorted((ROOT / "examples").glob("*.ipynb")), ids=lambda path: path.name
)
def test_a_notebook_runs(notebook: Path, tmp_path: Path) -> None:
    cells = json.loads(notebook.read_text("utf-8"))["cells"]
    programs = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    # What shows a picture runs in a notebook only
    programs = [each for each in programs if "IPython" not in each]
    assert all(cell["outputs"] == [] for cell in cells if cell["cell_type"] == "code")
    printed = ran(
        "\n".join(["import os", "os.chdir('examples')", *programs, "print(table)"]), tmp_path
    )
    assert "logs/x-net-socket.txt ok socket" in printed
    assert "Speed-up" in printed
