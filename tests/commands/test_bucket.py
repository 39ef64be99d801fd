"""Stores in buckets: everything that reads a store reads the copy of one."""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import fsspec
import pytest
from click.testing import Result

from fabbench.cli import cli
from tests.performance.store import write_store
from tests.support.command_line import runner

COUNT = 3
BUCKET = "memory://results/of/all"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Stores of two machines in one folder, and a baseline."""
    folder = tmp_path_factory.mktemp("made")
    for number, machine in enumerate(("a", "b")):
        write_store(folder / machine, COUNT, seed=number)
    run = max((folder / "a").iterdir())
    (run / "rendered").mkdir(exist_ok=True)
    (run / "rendered/job.yaml").write_text("kind: Job\n")
    (folder / "baselines").mkdir()
    (folder / "baselines/usual.json").write_text(json.dumps({"format": 1, "run": f"a/{run.name}"}))
    return folder


@pytest.fixture
def bucket(made: Path) -> Iterator[Any]:
    system = fsspec.filesystem("memory")
    system.put(f"{made}/", "/results/of/all/", recursive=True)
    yield system
    system.rm("/results", recursive=True)


def ask(caches: Path, *words: str, store: str = BUCKET, env: Mapping[str, str] | None = None) -> Result:
    given = {"XDG_CACHE_HOME": str(caches), **(env or {})}
    return runner(given).invoke(cli, [*words, "--store", store])


def listed(caches: Path, store: str = BUCKET) -> list[dict[str, Any]]:
    done = ask(caches, "runs", "--format", "json", store=store)
    assert done.exit_code == 0, done.output
    found: list[dict[str, Any]] = json.loads(done.stdout)["runs"]
    return found


def copy(caches: Path) -> Path:
    (folder,) = (caches / "fabbench/stores").iterdir()
    return folder


def test_all_that_reads_a_store_reads_a_bucket(bucket: Any, tmp_path: Path) -> None:
    runs = listed(tmp_path)
    assert len(runs) == 2 * COUNT
    assert {Path(run["path"]).parent.name for run in runs} == {"a", "b"}
    assert "2 ok" in ask(tmp_path, "runs").stdout
    newest, older = runs[0]["id"], runs[2]["id"]
    for words, expected in {
        ("history", "busbw@1G", "--where", "store=a"): "6 runs in 2 series",
        ("compare", f"{newest}:socket", f"{older}:socket"): "socket",
        ("compare", f"{newest}:socket", "--baseline", "last-good"): "socket",
        ("compare", f"{newest}:socket", "--baseline", "usual:tcp"): "tcp",
        ("report", newest, older): "<h1>2 fabbench runs</h1>",
        ("show", newest): "Configurations: socket, tcp",
        ("baseline", "list"): "usual  a/",
        ("runs", "export", older): "all_reduce",
    }.items():
        done = ask(tmp_path, *words)
        assert (done.exit_code, expected in done.stdout) == (0, True), (words, done.output)


def test_what_is_new_changed_or_gone_is_so_in_the_copy(bucket: Any, tmp_path: Path) -> None:
    runs = listed(tmp_path)
    kept, gone = (Path(run["path"]) for run in runs[:2])
    assert not list(copy(tmp_path).glob("*/*/rendered"))
    before = {path: path.stat().st_ino for path in kept.rglob("*") if path.is_file()}
    bucket.rm(f"/results/of/all/{gone.parent.name}/{gone.name}", recursive=True)
    verdict = f"/results/of/all/{kept.parent.name}/{kept.name}/verdict.json"
    bucket.pipe_file(verdict, b'{"format": 1, "status": 1, "breaches": []}')
    found = listed(tmp_path)
    assert [run["id"] for run in found] == [run["id"] for run in runs if run is not runs[1]]
    assert found[0]["gate"] == "failed"
    assert not gone.exists()
    # What was copied before is there still: nothing is copied twice.
    assert {path: path.stat().st_ino for path in before} == before


def test_a_copy_that_was_interrupted_or_damaged_is_mended(bucket: Any, tmp_path: Path) -> None:
    runs = listed(tmp_path)
    folder = copy(tmp_path)
    (folder / ".incoming").mkdir()
    (folder / ".incoming/0").write_text("half")
    (folder / ".copied.json").write_text("{")
    (Path(runs[0]["path"]) / "request.json").write_text("{")
    assert listed(tmp_path) == runs
    shutil.rmtree(folder)
    assert listed(tmp_path) == runs


def test_any_file_system_of_fsspec(made: Path, tmp_path: Path) -> None:
    assert len(listed(tmp_path, f"file://{made}")) == 2 * COUNT
    assert len(listed(tmp_path, f"file://{made}/a")) == COUNT


def test_names_that_lead_elsewhere_are_left_out(bucket: Any, tmp_path: Path) -> None:
    for name in ("a/.hidden", "readme.txt", ".index.sqlite3", "a/notes/request.json", "baselines/x/y.json"):
        bucket.pipe_file(f"/results/of/all/{name}", b"x")
    listed(tmp_path)
    own = {".copied.json", ".index.sqlite3", ".lock", "a", "b", "baselines"}
    assert {path.name for path in copy(tmp_path).iterdir()} == own
    assert not (copy(tmp_path) / "a/notes").exists()
    assert (copy(tmp_path) / ".index.sqlite3").stat().st_size > 1


@pytest.mark.parametrize(
    ("words", "store", "status", "expected"),
    [
        (("runs", "rm", "last"), BUCKET, 2, "is read-only"),
        (("baseline", "set", "x", "last"), BUCKET, 2, "is read-only"),
        (("rerun", "last"), BUCKET, 2, "is read-only"),
        (("run", "pingpong", "--on", "local"), "s3://a/b", 2, "runs are written to a directory"),
        (("runs",), "nope://a", 2, "Protocol not known"),
        (("runs",), "memory://nothing-there", 3, "Nothing found at memory://"),
        (("runs",), "zip:///etc/hostname", 2, "cannot be opened"),
    ],
)
def test_what_cannot_be_is_an_error(
    tmp_path: Path, words: tuple[str, ...], store: str, status: int, expected: str
) -> None:
    done = ask(tmp_path, *words, store=store)
    assert (done.exit_code, expected in done.stderr) == (status, True), done.output


@pytest.mark.local
def test_without_fsspec_an_error_says_what_to_install(tmp_path: Path) -> None:
    program = "import sys; sys.modules['fsspec'] = None; from fabbench.__main__ import main; main()"
    argv = [sys.executable, "-c", program, "runs", "--store", "s3://bucket/path"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 2
    assert "needs fsspec, which is not installed" in done.stderr
    assert "fabbench[s3]" in done.stderr
