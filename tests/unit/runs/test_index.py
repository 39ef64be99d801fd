"""The index of a store: never trusted over the directories, and mended whatever happens to it."""

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from fabbench.model.log import METRICS
from fabbench.runs.index import FILE, open_index
from fabbench.runs.indexed_run import IndexedRun
from tests.performance.store import write_store

COUNT = 3
BUSBW = METRICS["busbw"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    store = tmp_path_factory.mktemp("made") / "store"
    write_store(store, COUNT)
    return store


@pytest.fixture
def store(made: Path, tmp_path: Path) -> Path:
    """A store of runs that were written long ago."""
    return Path(shutil.copytree(made, tmp_path / "store"))


def indexed(store: Path) -> tuple[tuple[IndexedRun, ...], int]:
    """Return the runs of a store, and how many directories were read for them."""
    count = 0

    @contextmanager
    def reading(total: int) -> Iterator[Callable[[], None]]:
        nonlocal count
        count += total
        yield lambda: None

    with open_index(store, reading) as index:
        return index.runs, count


def newest(store: Path) -> Path:
    return max(path for path in store.iterdir() if path.is_dir())


def test_a_run_is_read_once(store: Path) -> None:
    runs, read = indexed(store)
    assert read == COUNT
    assert [run.path for run in runs] == sorted((path.name for path in store.glob("*-nccl-*")), reverse=True)
    first = runs[0]
    assert (first.sizes, first.outcomes, first.is_ok) == ("8 B - 2 GB", {"ok": 2}, True)
    assert first.setup.configurations[0].versions == {"nccl": "2.27.5", "cuda": "12.8"}
    assert (first.setup.instance_types, first.setup.target) == (["p4d.24xlarge"], "prod")
    assert indexed(store) == (runs, 0)


def test_what_was_measured_is_kept(store: Path) -> None:
    with open_index(store) as index:
        found = index.figures(BUSBW, 2 << 30)
        best = index.figures(BUSBW)
        quickest = index.figures(METRICS["time"])
        assert list(index.figures(METRICS["latency"])) == list(index.figures(BUSBW, 3)) == []
    run, figure = found[0]
    assert run == index.runs[0]
    assert [each.configuration for _, each in found[:2]] == ["socket", "tcp"]
    assert dict(figure.key)["case"] == "all_reduce"
    assert 60e9 < figure.value < 80e9
    assert best[0][1].value >= figure.value
    assert quickest[0][1].value < 1e-3  # the best time is the least


def test_runs_of_one_setup_share_it(store: Path) -> None:
    """Of thousands of runs it is read once; texts that no run has any more are forgotten."""
    runs, _ = indexed(store)
    with open_index(store) as index:
        assert len({id(run.setup) for run in index.runs}) == 2  # the last one has another NCCL
    shutil.rmtree(store / runs[0].path)
    indexed(store)
    with closing(sqlite3.connect(store / FILE)) as database:
        assert database.execute("SELECT count(*) FROM texts").fetchone() == (2,)  # a setup and a key


@pytest.mark.parametrize("file", ["request.json", "exec/000-socket-r1/output.log", "exec/000-socket-r1/run.json"])
def test_a_file_that_changed_is_read_again(store: Path, file: str) -> None:
    runs, _ = indexed(store)
    path = newest(store) / file
    status, text = path.stat(), path.read_bytes()
    path.write_bytes(text[:-1] + b"x")  # as long as before
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 10**9))
    changed, read = indexed(store)
    assert (read, len(changed)) == (1, COUNT)
    assert changed[1:] == runs[1:]
    path.write_bytes(text)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert indexed(store) == (runs, 1)


def test_a_damaged_run_is_reported_beside_the_others(store: Path) -> None:
    (newest(store) / "request.json").write_text("{")
    runs, _ = indexed(store)
    assert len(runs) == COUNT
    assert "is damaged" in runs[0].damaged[0]
    assert not runs[0].is_ok
    with open_index(store) as index:
        assert runs[0].path not in {run.path for run, _ in index.figures(BUSBW)}


def test_files_that_appear_are_seen(store: Path) -> None:
    indexed(store)
    (newest(store) / "verdict.json").write_text('{"format": 1, "status": 1, "breaches": []}')
    (changed, *_), read = indexed(store)
    assert (changed.gate, changed.is_ok, read) == ("failed", False, 1)


def test_a_run_that_was_just_written_is_not_taken_for_settled(store: Path) -> None:
    indexed(store)
    later = time.time() + 3600
    os.utime(newest(store) / "request.json", (later, later))
    assert indexed(store)[1] == 1
    assert indexed(store)[1] == 1  # it may have changed again within one tick of the clock of its file system


def test_a_run_that_is_gone_is_forgotten(store: Path) -> None:
    runs, _ = indexed(store)
    shutil.rmtree(newest(store))
    assert indexed(store) == (runs[1:], 0)


def test_stores_of_several_machines_in_one_directory(store: Path, tmp_path: Path) -> None:
    own, _ = indexed(store)
    together = tmp_path / "together"
    shutil.copytree(store, together / "a")
    shutil.copytree(store, together / "b")
    runs, _ = indexed(together)
    assert len(runs) == 2 * COUNT
    assert [run.path for run in runs[:2]] == [f"b/{own[0].path}", f"a/{own[0].path}"]
    assert {run.folder for run in runs} == {"a", "b"}


# ---------------------------------------------------------------- what may happen to the index


def spoil_bytes(path: Path) -> None:
    path.write_bytes(b"no database at all" * 500)


def spoil_pages(path: Path) -> None:
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xa5" * (size - 4096))


def spoil_end(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def _statement(text: str) -> Callable[[Path], None]:
    def spoil(path: Path) -> None:
        with sqlite3.connect(path) as database:
            database.execute(text)
        database.close()

    return spoil


SPOILERS: Mapping[str, Callable[[Path], None]] = {
    "bytes": spoil_bytes,
    "pages": spoil_pages,
    "end": spoil_end,
    "empty": lambda path: os.truncate(path, 0),
    "gone": lambda path: path.unlink(),
    "tables": _statement("DROP TABLE measured"),
    "format": _statement("PRAGMA user_version = 99"),
    "text": _statement("""UPDATE texts SET text = number || '{"path"'"""),
    "setup": _statement("UPDATE texts SET text = printf('%*s{}', number, '')"),
    "outcomes": _statement("UPDATE runs SET outcomes = '{'"),
}


@pytest.mark.parametrize("name", SPOILERS)
def test_an_index_that_cannot_be_used_is_made_anew(store: Path, name: str) -> None:
    runs, _ = indexed(store)
    SPOILERS[name](store / FILE)
    with open_index(store) as index:
        assert len(index.figures(BUSBW)) == 2 * COUNT
        assert index.runs == runs
    assert indexed(store) == (runs, 0)


def test_runs_that_another_release_read_are_read_again(store: Path) -> None:
    runs, _ = indexed(store)
    _statement("UPDATE runs SET reader = '0.0.1'")(store / FILE)
    assert indexed(store) == (runs, COUNT)


def test_a_store_that_is_not_there_has_no_runs(tmp_path: Path) -> None:
    assert indexed(tmp_path / "none") == ((), 0)
    assert not (tmp_path / "none").exists()
    assert indexed(tmp_path) == ((), 0)
    assert list(tmp_path.iterdir()) == []


KILLED = """\
import os, signal, sys
from contextlib import closing, contextmanager
from pathlib import Path
from fabbench.runs import index
index._BATCH_S = 0
left = 2
@contextmanager
def reading(total):
    def read():
        global left
        left -= 1
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)
    yield read
index.open_index(Path(sys.argv[1]), reading)
"""
KILLED_IN_A_TRANSACTION = """\
import os, signal, sqlite3, sys
database = sqlite3.connect(sys.argv[1] + "/.index.sqlite3", isolation_level=None)
database.execute("PRAGMA cache_size = 1")
database.execute("BEGIN IMMEDIATE")
database.execute("UPDATE runs SET files = 'x' || files || files")
database.execute("DELETE FROM measured")
os.kill(os.getpid(), signal.SIGKILL)
"""


def killed(program: str, store: Path) -> bool:
    done = subprocess.run([sys.executable, "-c", program, str(store)], check=False)
    return done.returncode == -signal.SIGKILL


def test_a_process_that_is_killed_leaves_what_it_committed(store: Path) -> None:
    assert killed(KILLED, store)
    runs, read = indexed(store)
    assert len(runs) == COUNT
    assert read == COUNT - 1
    assert killed(KILLED_IN_A_TRANSACTION, store)
    assert (store / f"{FILE}-journal").exists()
    assert indexed(store) == (runs, 0)
    with open_index(store) as index:
        assert len(list(index.figures(BUSBW))) == 2 * COUNT


LISTED = """\
import sys
import time
from pathlib import Path
from fabbench.runs import index
index._BATCH_S = 0
with index.open_index(Path(sys.argv[1])) as found:
    print(len(found.runs))
"""


@pytest.mark.slow
def test_processes_at_once(store: Path) -> None:
    argv = [sys.executable, "-c", LISTED, str(store)]
    started = [subprocess.Popen(argv, stdout=subprocess.PIPE) for _ in range(2)]
    assert [process.communicate()[0] for process in started] == [b"3\n"] * 2
    assert indexed(store)[1] == 0
