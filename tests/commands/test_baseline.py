"""The last good run, which others are compared with."""

import json
from pathlib import Path

from click.testing import Result

from fabbench.cli import cli
from tests.support.command_line import runner
from tests.support.paths import EXAMPLES


def fabbench(store: Path, *words: str) -> Result:
    return runner({"FABBENCH_STORE": str(store)}).invoke(cli, words)


def folders(store: Path) -> list[Path]:
    """The runs, the oldest first."""
    return sorted(store.glob("*-nccl-*"))


def ids(store: Path) -> list[str]:
    return [path.name.rpartition("-")[2] for path in folders(store)]


def sources(done: Result) -> list[str]:
    return [column["source"] for column in json.loads(done.stdout)["columns"]]


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


def test_a_baseline_that_is_named_twice_is_the_last_column_once(tmp_path: Path) -> None:
    one, other = (str(EXAMPLES / "logs" / f"x-{name}.txt") for name in ("net-socket", "ofi-tcp"))
    done = fabbench(tmp_path, "compare", one, other, "--baseline", one, "--json")
    assert (sources(done), done.stderr) == ([other, one], "")
    for words in ((one, one), (one, "--baseline", one)):
        done = fabbench(tmp_path, "compare", *words, "--json")
        assert (sources(done), "is named 2 times" in done.stderr) == ([one, one], True)
