"""`fabbench tune` on this machine: real mpirun, and a stand-in for NCCL that plays recordings.

Arms are really faster or slower: the stand-in's speed is one of their variables.
"""

import resource
import signal
from pathlib import Path

import pytest

from fabbench.runs.store import StoredRun, runs
from tests.support.host_fixtures import STANDIN
from tests.support.local_runs import (
    QUICK,
    eventually,
    fabbench,
    nothing_left,
    output,
    start_program,
)

pytestmark = pytest.mark.local

FASTER = """
[[arms]]
name = "faster"
env = {STANDIN_SPEED = "1.5", NCCL_ALGO = "RING"}
"""
OTHERS = """
[[arms]]
name = "slower"
env = {STANDIN_SPEED = "0.5", NCCL_ALGO = "TREE"}

[[arms]]
name = "deaf"
env = {STANDIN_SPEED = "1.5", STANDIN_DEAF = "1", NCCL_ALGO = "TREE"}

[[arms]]
name = "dead"
env = {STANDIN_EXIT_AT = "64:0:1"}
"""
BUFFERS = """
[[arms]]
name = "prefetch-0"
env = {FI_TCP_PREFETCH_RBUF_SIZE = "0"}
"""
EQUAL = """
[[arms]]
name = "simple"
env = {NCCL_PROTO = "SIMPLE"}
"""

USED = ("run", "nccl", "--on", "local", "--gpus", "2", "--bin-dir", str(STANDIN), "-e", "1K")


def arguments(folder: Path, arms: str, *more: str) -> tuple[str, ...]:
    file = folder / "arms.toml"
    file.write_text(arms)
    where = ("--on", "local", "--gpus", "2", "--bin-dir", str(STANDIN), "-b", "1M", "-e", "2M")
    how = ("--arms", str(file), "--max-repeats", "4", "--env", "STANDIN_JITTER=0.005")
    return ("tune", "nccl", *where, *how, *more)


def stored(store: Path) -> list[StoredRun]:
    return sorted(map(StoredRun, runs(store)), key=lambda run: run.path.name)


def test_what_is_faster_is_confirmed_and_written(tmp_path: Path) -> None:
    store = tmp_path / "store"
    settings = tmp_path / "tuned.yaml"
    done = fabbench(store, *arguments(tmp_path, FASTER + OTHERS, "-o", str(settings)))
    assert done.returncode == 0, done.stderr
    assert "deaf is out: void: NCCL_ALGO is not what NCCL ran: RING" in done.stderr
    assert "dead is out: failed" in done.stderr
    assert "slower is out: likely nowhere better than what leads" in done.stderr
    first, second = stored(store)
    labels = [execution.configuration for execution in first.executions]
    assert [labels.count(name) for name in ("deaf", "dead", "slower")] == [1, 1, 3]
    assert labels.count("faster") == labels.count("default")
    assert {execution.configuration for execution in second.executions} == {"faster", "default"}
    assert second.name == f"confirms-{first.id}"
    text = settings.read_text()
    assert second.id in text
    assert 'STANDIN_SPEED: "1.5"' in text
    assert nothing_left(store)
    used = (*USED, "--config", str(settings), "--variant", "tuned")
    assert "Tune again" not in fabbench(store, *used).stderr
    elsewhere = fabbench(store, *used, "--virtual-nodes", "2")
    assert "tuned was measured with nodes 1; here: nodes 2. Tune again." in elsewhere.stderr
    assert fabbench(store, "show", first.id).returncode in {0, 4}


@pytest.mark.slow
def test_without_a_gain_no_file_is_written(tmp_path: Path) -> None:
    settings = tmp_path / "nccl.conf"
    done = fabbench(tmp_path / "store", *arguments(tmp_path, EQUAL, "-o", str(settings)))
    assert done.returncode == 1, done.stderr
    assert "Nothing beats the default." in done.stderr
    assert not settings.exists()
    assert len(stored(tmp_path / "store")) == 1


@pytest.mark.slow
def test_an_interrupted_tune_goes_on(tmp_path: Path) -> None:
    store = tmp_path / "store"
    running = start_program(store, arguments(tmp_path, FASTER))
    assert eventually(lambda: output(store).count("Avg bus bandwidth") > 2 or running.poll())
    running.send_signal(signal.SIGINT)
    said, errors = running.communicate(timeout=60)
    assert running.returncode == 130, errors
    assert "Interrupted. To go on: fabbench run --resume" in said
    (run,) = stored(store)
    ended = [execution.id for execution in run.executions if execution.is_ok]
    assert len(ended) > 1
    again = fabbench(store, "run", "--resume", str(run.path))
    assert again.returncode == 0, again.stderr
    assert "Better than the default, and nowhere likely slower: STANDIN_SPEED=1.5" in again.stdout
    first, _ = stored(store)
    assert first.id == run.id
    assert nothing_left(store)


@pytest.mark.slow
def test_a_tuner_csv_has_a_row_for_all_that_nccl_asks_for(tmp_path: Path) -> None:
    file = tmp_path / "tuner.csv"
    trees = '[[arms]]\nname = "tree"\nenv = {NCCL_ALGO = "TREE"}\n'
    speed = ("--env", "STANDIN_SPEED_TREE=1.5")
    done = fabbench(tmp_path / "store", *arguments(tmp_path, trees, *speed, "-o", str(file)))
    assert done.returncode == 0, done.stderr
    rows = [line for line in file.read_text().splitlines() if not line.startswith("#")]
    last = 2**64 - 1
    assert rows[:2] == [
        f"reducescatter,16,{last},ring,simple,16,1,2",
        f"reduce,8,{last},ring,simple,16,1,2",
    ]
    # From 4 MB on as NCCL chooses by itself; 1 and 2 MB were better as a tree.
    assert [row for row in rows if row.startswith("allreduce")] == [
        f"allreduce,4194304,{last},ring,simple,16,1,2",
        f"allreduce,1048576,{last},tree,simple,16,1,2",
        f"allreduce,8,{last},ring,simple,16,1,2",
        f"allreduce,8,{last},ring,simple,16,-1,-1",
        f"allreduce,0,{last},ring,simple,2,-1,-1",
    ]
    names = {row.partition(",")[0] for row in rows}
    assert names == {"allreduce", "allgather", "reducescatter", "broadcast", "reduce"}
    assert all(len(line) < 256 for line in file.read_text().splitlines())
    _, second, third = stored(tmp_path / "store")
    assert third.name == f"choices-{second.id}"
    assert {execution.configuration for execution in third.executions} == {"default"}


@pytest.mark.slow
def test_a_csv_whose_last_run_failed_is_written_by_going_on(tmp_path: Path) -> None:
    """What won is not measured again."""
    file = tmp_path / "tuner.csv"
    store = tmp_path / "store"
    trees = '[[arms]]\nname = "tree"\nenv = {NCCL_ALGO = "TREE"}\n'
    speed = ("--env", "STANDIN_SPEED_TREE=1.5")
    words = arguments(tmp_path, trees, *speed, "-o", str(file))
    # 1 GB is a size of the last run only
    done = fabbench(store, *words, STANDIN_EXIT_AT="1G:0:1")
    assert done.returncode == 3, done.stderr
    first, second, third = stored(store)
    assert f"What won is stored. To go on: fabbench run --resume {second.path}" in done.stderr
    assert third.name == f"choices-{second.id}"
    assert not file.exists()
    before = [(run.path, run.schedule) for run in (first, second)]
    again = fabbench(store, "run", "--resume", str(second.path))
    assert again.returncode == 0, again.stderr
    assert f"allreduce,1048576,{2**64 - 1},tree,simple,16,1,2" in file.read_text()
    after = stored(store)
    assert [(run.path, run.schedule) for run in after[:2]] == before
    assert len(after) == 4


@pytest.mark.slow
def test_a_file_that_cannot_be_written_is_said_beside_the_answer(tmp_path: Path) -> None:
    words = arguments(tmp_path, FASTER, "--format", "conf", "-o", "/dev/full")
    with start_program(tmp_path / "store", words) as running:
        _, errors = running.communicate(timeout=120)
    assert running.returncode == 3, errors
    assert "/dev/full could not be written or read: No space left on device" in errors
    assert "Better than the default, and nowhere likely slower: STANDIN_SPEED=1.5" in errors


@pytest.mark.slow
def test_a_full_disk_ends_a_tune(tmp_path: Path) -> None:
    """Files may have 30 KB, which an execution of three sizes exceeds."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, 30_000))

    arms = tmp_path / "arms.toml"
    arms.write_text(BUFFERS)
    settings = tmp_path / "tuned.yaml"
    words = ("tune", "pingpong", "--on", "local", "--fabric", "tcp", *QUICK)
    sizes = [word for size in ("64", "128", "256") for word in ("--size", size)]
    how = ("--arms", str(arms), "--max-repeats", "4", "-o", str(settings))
    with start_program(tmp_path / "store", (*words, *sizes, *how), before=limit) as running:
        _, errors = running.communicate(timeout=120)
    assert running.returncode == 3, errors
    assert "output.log cannot be written: File too large." in errors
    assert "Not decided." in errors
    assert "Traceback" not in errors
    assert not settings.exists()
    assert nothing_left(tmp_path / "store")


def test_a_tuner_csv_stands_for_algorithms_and_protocols_alone(tmp_path: Path) -> None:
    more = ("--dry-run", "-o", str(tmp_path / "tuner.csv"))
    assert fabbench(tmp_path, *arguments(tmp_path, FASTER, *more)).returncode == 2
    done = fabbench(tmp_path, "tune", "torch", "--on", "local", "--arms", "basic", *more)
    assert done.returncode == 2


def test_arms_of_another_benchmark_are_refused(tmp_path: Path) -> None:
    done = fabbench(tmp_path, "tune", "pingpong", "--on", "local", "--arms", "efa", "--dry-run")
    assert done.returncode == 2
    done = fabbench(tmp_path, "tune", "pingpong", "--on", "local", "--dry-run", "--fabric", "tcp")
    assert done.returncode == 0, done.stderr
    assert "rx-size-512" in done.stdout
    done = fabbench(tmp_path, "tune", "pingpong", "--on", "local", "--dry-run")  # on shm
    assert done.returncode == 2


def test_one_fabric_is_tuned(tmp_path: Path) -> None:
    done = fabbench(tmp_path, "tune", "pingpong", "--on", "local", "--ab", "--dry-run")
    assert done.returncode == 2
    assert "tune takes one fabric" in done.stderr


@pytest.mark.slow
def test_without_a_default_there_is_no_answer(tmp_path: Path) -> None:
    store = tmp_path / "store"
    done = fabbench(store, *arguments(tmp_path, EQUAL, "--env", "STANDIN_EXIT_AT=1M:0:1"))
    assert done.returncode == 4, done.stderr
    assert "The default is not ok. failed" in done.stderr
    assert "Not decided." in done.stdout
