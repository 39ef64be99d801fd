"""`fabbench accept` on virtual nodes of this machine, with a stand-in for nccl-tests."""

import json
import shlex
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.host_fixtures import STANDIN
from tests.support.local_runs import argv, eventually, fabbench, nothing_left, start_program
from tests.support.paths import ROOT

pytestmark = pytest.mark.local

HERE = ("--on", "local", "--bin-dir", str(STANDIN), "--tolerance", "80%")
LADDER = ("accept", *HERE, "--virtual-nodes", "2", "--gpus", "2", "--format", "json")


def certificate(folder: Path) -> dict[str, Any]:
    (path,) = (folder / "certificates").glob("*.json")
    found: dict[str, Any] = json.loads(path.read_text())
    return found


@pytest.mark.slow
def test_limits_of_a_good_run_decide(tmp_path: Path) -> None:
    limits = tmp_path / "limits.json"
    first = fabbench(tmp_path / "first", *LADDER, "--write-thresholds", str(limits))
    assert first.returncode == 4, first.stderr
    assert set(json.loads(first.stdout)["untested"]) == {"limits"}
    good = fabbench(tmp_path / "good", *LADDER, "--thresholds", str(limits))
    assert (good.returncode, json.loads(good.stdout)["verdict"]) == (0, "accepted"), good.stderr
    # Ten times as much is not reached.
    limits.write_text(
        json.dumps({**json.loads(limits.read_text()), "all:all_reduce": ["busbw@1GB>=9000GB/s"]})
    )
    bad = fabbench(tmp_path / "bad", *LADDER, "--thresholds", str(limits))
    assert (bad.returncode, set(json.loads(bad.stdout)["bad"])) == (1, {"all nodes"}), bad.stderr


@pytest.mark.slow
def test_a_killed_ladder_goes_on(tmp_path: Path) -> None:
    with start_program(tmp_path, LADDER) as program:
        assert eventually(
            lambda: any(each["name"] == "gpus" for each in certificate_so_far(tmp_path))
        )
        program.kill()
    kept = {each["name"]: each["run"] for each in certificate_so_far(tmp_path)}
    assert "all:all_reduce" not in kept
    done = fabbench(tmp_path, "accept", "--resume", "last")
    assert done.returncode == 4, done.stderr
    found = certificate(tmp_path)
    assert found["ended"] is not None
    runs = {each["name"]: each["run"] for each in found["rungs"]}
    assert kept.items() <= runs.items()
    assert runs["all:all_reduce"]
    assert fabbench(tmp_path, "accept", "--resume", "last").returncode == 2


@pytest.mark.slow
def test_an_interrupted_ladder_says_how_it_goes_on(tmp_path: Path) -> None:
    """Ctrl-C in the midst of a sweep, of a run of all nodes, and of the load."""
    words: tuple[str, ...] = (
        *LADDER,
        "--virtual-nodes",
        "4",
        "--gpus",
        "8",
        "--level",
        "soak",
        "--soak",
        "5",
    )
    moments = {
        "pairs": lambda: len(list(tmp_path.glob("*/logs"))) > 1,
        "all:all_reduce": lambda: (
            has(tmp_path, "pairs") and any(tmp_path.glob("*/exec/*/output.log"))
        ),
        "soak": lambda: has(tmp_path, "all:reduce_scatter"),
    }
    for name, reached in moments.items():
        with start_program(tmp_path, words) as program:
            assert eventually(reached, 300)
            program.send_signal(signal.SIGINT)
            _, said = program.communicate(timeout=60)
        assert (program.returncode, "--resume" in said) == (130, True), said
        assert nothing_left(tmp_path)
        assert not has(tmp_path, name)
        words = ("accept", "--resume", "last")
    done = fabbench(tmp_path, *words)
    assert done.returncode == 4, done.stderr
    states = {each["name"]: each["state"] for each in certificate(tmp_path)["rungs"]}
    assert {states[each] for each in ("pairs", "soak", "drift:all_gather")} == {"passed"}, states


@pytest.mark.slow
def test_a_ladder_without_time_goes_on_later(tmp_path: Path) -> None:
    first = fabbench(tmp_path, *LADDER, "--max-time", "5")
    assert (first.returncode, "--resume" in first.stderr) == (4, True), first.stderr
    assert {"pairs", "all:all_reduce"} <= json.loads(first.stdout)["untested"].keys()
    second = fabbench(tmp_path, "accept", "--resume", "last", "--max-time", "600")
    found = json.loads(second.stdout)
    assert (second.returncode, set(found["untested"])) == (4, {"limits"}), second.stderr
    assert len({each["name"] for each in found["rungs"]}) == len(found["rungs"])


@pytest.mark.slow
def test_a_program_that_ranks_do_not_find_says_nothing_about_nodes(tmp_path: Path) -> None:
    (tmp_path / "all_reduce_perf").write_text("#!/bin/sh\nexec sh -c missing_program\n")
    (tmp_path / "all_reduce_perf").chmod(0o755)
    nodes = ("--virtual-nodes", "2", "--gpus", "2", "--bin-dir", str(tmp_path), "--json")
    done = fabbench(tmp_path / "store", "accept", "--on", "local", *nodes)
    found = json.loads(done.stdout)
    assert (done.returncode, found["verdict"], found["bad"]) == (4, "incomplete", {}), found
    assert {"pairs", "all:all_reduce"} <= found["untested"].keys()


@pytest.mark.lab
def test_a_full_disk_ends_a_ladder_that_can_go_on(tmp_path: Path) -> None:
    store = tmp_path / "store"
    store.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", store], check=True)
    try:
        with start_program(store, LADDER) as program:
            _, said = program.communicate(timeout=200)
        assert (program.returncode, "--resume" in said) == (3, True), said
        subprocess.run(["mount", "-o", "remount,size=64m", store], check=True)
        done = fabbench(store, "accept", "--resume", "last")
        assert (done.returncode, set(json.loads(done.stdout)["untested"])) == (4, {"limits"}), (
            done.stderr
        )
    finally:
        subprocess.run(["umount", "--lazy", store], check=True)


def has(folder: Path, name: str) -> bool:
    return any(each["name"] == name for each in certificate_so_far(folder))


def certificate_so_far(folder: Path) -> list[dict[str, Any]]:
    paths = list((folder / "certificates").glob("*.json"))
    return list(json.loads(paths[0].read_text())["rungs"]) if paths else []


def test_one_node_by_the_example_of_an_init_container(tmp_path: Path) -> None:
    (pod,) = yaml.safe_load_all((ROOT / "examples/before-a-job/pod.yaml").read_text())
    (container,) = pod["spec"]["initContainers"]
    shell, option = container["command"]
    (words,) = container["args"]
    assert words.startswith("fabbench accept --on local ")
    more = ("accept", *HERE, "--gpus", "2", "--store", str(tmp_path))
    words = words.replace("fabbench accept --on local", shlex.join(argv(*more))).replace(
        "--store /tmp/fabbench", ""
    )
    assert subprocess.run([shell, option, words], check=False, timeout=120).returncode == 0
    assert {
        each["name"] for each in certificate(tmp_path)["rungs"] if each["state"] == "passed"
    } == {"check", "gpus"}
