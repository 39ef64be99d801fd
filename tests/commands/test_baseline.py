"""Runs that others are compared with: by name, and the last good one."""

import json
import shutil
from pathlib import Path

from click.testing import Result

from fabbench.cli import cli
from tests.support.command_line import runner


def fabbench(store: Path, *words: str) -> Result:
    return runner({"FABBENCH_STORE": str(store)}).invoke(cli, words)


def folders(store: Path) -> list[Path]:
    """The runs, the oldest first."""
    return sorted(store.glob("*-nccl-*"))


def ids(store: Path) -> list[str]:
    return [path.name.rpartition("-")[2] for path in folders(store)]


def sources(done: Result) -> list[str]:
    return [column["source"] for column in json.loads(done.stdout)["columns"]]


def test_a_run_is_compared_with_a_name(store: Path) -> None:
    first, *_, newest = ids(store)
    assert fabbench(store, "baseline", "set", "good", first).exit_code == 0
    listed = json.loads(fabbench(store, "baseline", "list", "--format", "json").stdout)["baselines"]
    assert listed == [{"name": "good", "run": folders(store)[0].name, "exists": True}]
    done = fabbench(store, "compare", newest, "--baseline", "good:socket", "--format", "json")
    assert sources(done) == [f"run {newest}", f"run {newest}", f"run {first}"]
    alone = ("compare", f"{newest}:socket", "--baseline", "good", "--format", "json")
    assert sources(fabbench(store, *alone)) == [f"run {newest}", f"run {first}"]
    assert fabbench(store, *alone, "--gate", "busbw@1G:2%", "--strict").exit_code == 1
    assert fabbench(store, "baseline", "rm", "good").exit_code == 0
    gone = fabbench(store, *alone)
    assert (gone.exit_code, "Run good not found" in gone.stderr) == (2, True)
    assert fabbench(store, "baseline", "list").stderr == f"No baselines in {store}.\n"


def test_a_run_with_a_name_is_kept(store: Path) -> None:
    first, *others = ids(store)
    fabbench(store, "baseline", "set", "good", first)
    done = fabbench(store, "runs", "rm", "--keep", "0", "--yes")
    assert f"{first} is the baseline good" in done.stderr
    assert ids(store) == [first]
    assert others


def test_a_baseline_whose_run_is_gone_says_so(store: Path) -> None:
    first, *_, newest = ids(store)
    fabbench(store, "baseline", "set", "good", first)
    shutil.rmtree(folders(store)[0])
    done = fabbench(store, "compare", f"{newest}:socket", "--baseline", "good")
    assert done.exit_code == 2
    assert "fabbench baseline set good RUN" in done.stderr
    assert "(removed)" in fabbench(store, "baseline", "list").stdout


def test_what_is_no_baseline(store: Path) -> None:
    newest = folders(store)[-1]
    assert "cannot be the name" in fabbench(store, "baseline", "set", "last-good", "last").stderr
    assert "cannot be the name" in fabbench(store, "baseline", "set", "../x", "last").stderr
    assert "Baseline x not found" in fabbench(store, "baseline", "rm", "x").stderr
    (newest / "verdict.json").write_text('{"format": 1, "status": 1, "breaches": []}')
    done = fabbench(store, "baseline", "set", "x", "last")
    assert (done.exit_code, "a gate failed" in done.stderr) == (2, True)
    (newest / "exec" / "000-socket-r1" / "run.json").unlink()
    (newest / "verdict.json").unlink()
    assert "1 truncated" in fabbench(store, "baseline", "set", "x", "last").stderr


def test_the_last_good_run(store: Path) -> None:
    first, second, third, newest = ids(store)
    words = ("compare", f"{newest}:socket", "--baseline", "last-good", "--format", "json")
    assert sources(fabbench(store, *words)) == [f"run {newest}", f"run {third}"]
    (folders(store)[2] / "verdict.json").write_text('{"format": 1, "status": 1, "breaches": []}')
    (folders(store)[2] / "summary.json").unlink()
    assert sources(fabbench(store, *words)) == [f"run {newest}", f"run {second}"]
    request = folders(store)[1] / "request.json"
    document = json.loads(request.read_text())
    document["request"]["target"] = "elsewhere"
    request.write_text(json.dumps(document))
    (folders(store)[1] / "summary.json").unlink()
    assert sources(fabbench(store, *words)) == [f"run {newest}", f"run {first}"]
    none = fabbench(store, "compare", f"{first}:socket", "--baseline", "last-good")
    assert (none.exit_code, "No earlier run" in none.stderr) == (2, True)
