"""`fabbench sweep` on virtual nodes of this machine, with a stand-in for nccl-tests."""

import json
import re
import signal
import socket
from pathlib import Path

import pytest

from tests.support.host_fixtures import STANDIN
from tests.support.local_runs import eventually, fabbench, start_program
from tests.support.sweeps import stored

pytestmark = pytest.mark.local

SWEEP = (*("sweep", "nccl", "--on", "local", "--bin-dir", str(STANDIN)), *("-b", "1M", "-e", "1M"))
PAIRS = (*SWEEP, "--fabric", "tcp", "--mode", "pairs")


def test_all_pairs_and_what_is_kept_of_them(tmp_path: Path) -> None:
    done = fabbench(tmp_path, *PAIRS, "--gpus", "3", "--virtual-nodes", "3", "--tolerance", "80%")
    assert done.returncode == 0, done.stderr
    assert "3 tests of 3 nodes" in done.stdout
    found = stored(tmp_path)
    assert [each["outcome"] for each in found] == ["ok"] * 3
    assert len({frozenset(each["nodes"]) for each in found}) == 3
    (path,) = tmp_path.iterdir()
    assert sorted(each.name for each in (path / "logs").iterdir()) == [
        f"{number:06}.log.gz" for number in range(3)
    ]
    assert list((path / "exec").iterdir()) == list((path / "counters").iterdir()) == []
    assert fabbench(tmp_path, "show").stdout.endswith(done.stdout)
    page = fabbench(tmp_path, "report").stdout
    assert page.count("<svg") == 2  # the markers of plots, and the heat map
    assert "Tests: 3 ok" in page
    assert "No bad nodes found. 3 tests of 3 nodes" in page
    shown = fabbench(tmp_path, "show", "--format", "html").stdout
    assert shown.partition("<main")[2].partition("<footer")[0] in page
    assert (
        json.loads(fabbench(tmp_path, "runs", "--format", "json").stdout)["runs"][0]["gate"]
        == "passed"
    )
    # One of them is measured again.
    (path / "tests/000001.json").unlink()
    again = fabbench(tmp_path, "run", "--resume", "last")
    assert again.returncode == 0, again.stderr
    assert "2 tests kept" in again.stderr
    pairs = {frozenset(each["nodes"]) for each in found}
    assert {frozenset(each["nodes"]) for each in stored(tmp_path)} == pairs
    assert len(stored(tmp_path)) == 3


SIX = ("--gpus", "6", "--virtual-nodes", "6", "--tolerance", "80%")


@pytest.mark.slow
def test_an_interrupted_sweep_says_what_it_did_not_test(tmp_path: Path) -> None:
    with start_program(tmp_path, (*PAIRS, *SIX)) as run:
        assert eventually(lambda: len(stored(tmp_path)) >= 1)
        run.send_signal(signal.SIGINT)
        out, err = run.communicate(timeout=60)
    assert run.returncode == 130, err
    assert re.match(
        r"No .*\. Not tested: \d tests? of round \d \(all pairs, round \d of 5\) and any", out
    )
    shown = [fabbench(tmp_path, *words).stdout for words in (("show",), ("report",))]
    assert all("Not tested: " in text for text in shown)
    assert not any("No bad nodes found. " in text for text in (out, *shown))
    done = fabbench(tmp_path, "run", "--resume", "last")
    assert (done.returncode, done.stdout.split(". ")[0]) == (0, "No bad nodes found"), done.stderr
    assert len(stored(tmp_path)) == 15


@pytest.mark.slow
def test_a_sweep_that_is_out_of_time_is_undecided(tmp_path: Path) -> None:
    """Pairs take more than a second each: some nodes are never reached."""
    slow = {"STANDIN_ROW_S": "1.5"}
    done = fabbench(tmp_path, *PAIRS, *SIX, "--max-time", "4", "--format", "json", **slow)
    assert done.returncode == 4, done.stderr
    document = json.loads(done.stdout)
    assert document["unfinished"].startswith(
        "3 tests of round 2" if len(stored(tmp_path)) == 3 else ""
    )
    tested = {
        node for each in stored(tmp_path) if each["outcome"] == "ok" for node in each["nodes"]
    }
    assert {each["name"] for each in document["undecided"]} >= set(document["nodes"]) - tested


@pytest.mark.slow
def test_nodes_alone(tmp_path: Path) -> None:
    own = (*SWEEP, "--mode", "single", "--gpus", "4", "--virtual-nodes", "2")
    done = fabbench(tmp_path, *own, "--tolerance", "80%")
    assert done.returncode == 0, (done.stdout, done.stderr)
    assert {(each["outcome"], len(each["nodes"])) for each in stored(tmp_path)} == {("ok", 1)}


@pytest.mark.slow
def test_within_groups_and_between_them(tmp_path: Path) -> None:
    groups = tmp_path / "groups"
    groups.write_text(f"{socket.gethostname()}-v[0-1] one\n{socket.gethostname()}-v[2-3] two\n")
    own = ("--fabric", "tcp", "--groups", str(groups), "--tolerance", "80%")
    done = fabbench(tmp_path / "runs", *SWEEP, *own, "--gpus", "4", "--virtual-nodes", "4")
    assert done.returncode == 0, (done.stdout, done.stderr)
    assert "within groups" in done.stdout
    assert "between groups" in done.stdout
    within = [
        len({name[-1] in "01" for name in each["nodes"]}) == 1 for each in stored(tmp_path / "runs")
    ]
    assert within == [True] * 2 + [False] * 14


def test_what_is_refused_before_anything_starts(tmp_path: Path) -> None:
    alone = fabbench(tmp_path, *PAIRS, "--gpus", "1")
    assert alone.returncode == 2
    assert "needs 2 nodes or more, not 1" in alone.stderr
    no_nics = fabbench(tmp_path, *PAIRS[:-1], "rails", "--gpus", "2", "--virtual-nodes", "2")
    assert no_nics.returncode == 2
    assert "none that nccl on " in no_nics.stderr
    batch = fabbench(tmp_path, "sweep", "nccl", "--on", "skypilot")
    assert batch.returncode == 2
    assert "run on skypilot" in batch.stderr
    assert fabbench(tmp_path, "run", "--resume", "last").returncode == 2
    assert fabbench(tmp_path, "sweep", "torch").returncode == 2
    assert list(tmp_path.iterdir()) == []
