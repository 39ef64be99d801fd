"""A metric over the runs of a store."""

import csv
import io
import json
import os
from pathlib import Path

import pytest
from click.testing import Result

from fabbench.cli import cli
from tests.performance.store import write_store
from tests.support.command_line import runner
from tests.support.paths import EXAMPLES

COUNT = 40
CHANGED = 30
"""From here on the store's first configuration is slower, with another NCCL."""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    store = tmp_path_factory.mktemp("made") / "store"
    write_store(store, COUNT)
    return store


def history(store: Path, *words: str) -> Result:
    return runner({"FABBENCH_STORE": str(store)}).invoke(cli, ("history", *words))


def ids(store: Path) -> list[str]:
    return [path.name.rpartition("-")[2] for path in sorted(store.glob("*-nccl-*"))]


def test_a_change_is_named_with_its_run_and_what_came_with_it(store: Path) -> None:
    document = json.loads(history(store, "busbw@1G", "--format", "json").stdout)
    assert (document["metric"], document["size"]) == ("busbw", 1 << 30)
    slower, same = document["series"]
    assert [each["key"]["configuration"] for each in (slower, same)] == ["socket", "tcp"]
    assert [point["run"] for point in slower["points"]] == ids(store)
    (change,) = slower["changes"]
    assert [change["previous"], change["run"]] == ids(store)[CHANGED - 1 : CHANGED + 1]
    assert change["ratio"] == pytest.approx(0.9, abs=0.03)
    assert change["different"] == {"nccl": ["2.26.2", "2.27.5"]}
    assert slower["level"] == change["after"]
    assert same["changes"] == []
    assert (same["runs_needed"], same["runs_to_see"]) == (0, 5)


def test_the_table(store: Path) -> None:
    lines = history(store, "busbw@1G").stdout.splitlines()
    assert lines[0] == "busbw at 1 GB: 80 runs in 2 series, 1 change."
    named = ("configuration", "benchmark", "case", "target")
    assert lines[2].split()[1::2] == [*named, "runs", "level", "latest", "change"]
    slower, seen, same = lines[-3:]
    assert f"with run {ids(store)[CHANGED]}, 1998-08-08" in slower
    assert slower.endswith("Changed with it: nccl 2.26.2 → 2.27.5.")
    assert seen.startswith(
        "- nccl all_reduce on prod: socket: A change of 10 % would be seen after"
    )
    assert same.startswith("- nccl all_reduce on prod: tcp: A change of 10 % would be seen after")


def test_rows_for_other_programs(store: Path) -> None:
    text = history(store, "busbw@1G", "--where", "configuration=socket", "--format", "csv").stdout
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [row["run"] for row in rows] == ids(store)
    assert (rows[0]["unit"], rows[0]["size"], rows[0]["case"]) == (
        "B/s",
        str(1 << 30),
        "all_reduce",
    )


def test_conditions(store: Path) -> None:
    def count(*words: str) -> int:
        return sum(
            len(each["points"])
            for each in json.loads(history(store, "busbw", *words, "--format", "json").stdout)[
                "series"
            ]
        )

    assert count() == 2 * COUNT
    assert count("--where", "configuration=soc*", "--where", "nccl=2.27.5") == COUNT - CHANGED
    assert count("--where", "name=nightly") == 0
    assert count("--since", "1d") == 0
    assert count("--size", "1G..") == 2 * COUNT
    assert count("--size", "3..7") == 0
    assert history(store, "busbw", "--size", "1M..1G").stdout.startswith(
        "busbw, best of each run from 1 MB to 1 GB: 80"
    )
    assert history(store, "busbw", "--size", "1G").stdout == history(store, "busbw@1G").stdout
    assert history(store, "busbw@1G", "--size", "1G").exit_code == 2
    assert history(store, "busbw", "--where", "case=none").stderr == f"No run in {store} matches.\n"


def test_a_damaged_run_is_left_out_and_named(tmp_path: Path) -> None:
    write_store(tmp_path, 2)
    broken = min(tmp_path.glob("*-nccl-*"))
    (broken / "request.json").write_text("{")
    done = history(tmp_path, "busbw", "--format", "json")
    assert f"{broken.name} is damaged" in done.stderr
    assert [len(each["points"]) for each in json.loads(done.stdout)["series"]] == [1, 1]


def test_a_page(store: Path, tmp_path: Path) -> None:
    target = tmp_path / "history.html"
    done = history(store, "busbw@1G", "-o", str(target))
    assert (done.exit_code, done.stdout) == (0, "")
    text = target.read_text("utf-8")
    assert text.startswith("<!DOCTYPE html>")
    assert text.count("<figure>") == 2
    assert f"with run {ids(store)[CHANGED]}, 1998-08-08" in text
    nothing = history(store, "busbw", "--where", "case=none", "--format", "html")
    assert (nothing.exit_code, nothing.stdout) == (0, "")


LOG = Path("examples/logs/allreduce-2node-socket.txt")


def test_log_files_have_a_history_by_the_time_that_each_has(tmp_path: Path) -> None:
    text = LOG.read_text("utf-8")
    (tmp_path / "by-name-20260301T040000.txt").write_text(text)
    (tmp_path / "2026-01-01-by-log.txt").write_text(f"2026-02-01 02:00:00+02:00 begin\n{text}")
    (tmp_path / "by-mtime-20269999.txt").write_text(text)  # No date has these digits
    os.utime(tmp_path / "by-mtime-20269999.txt", (1767225600, 1767225600))
    (tmp_path / "cut-2026-04-01.txt").write_text(text[:900])
    done = history(tmp_path, "busbw@64K,1M", str(tmp_path), "--format", "json")
    (series,) = json.loads(done.stdout)["series"]
    assert done.exit_code == 0
    assert series["key"]["configuration"] == "socket"
    assert [(point["created"], point["dated"]) for point in series["points"]] == [
        ("2026-01-01T00:00:00Z", "mtime"),
        ("2026-02-01T00:00:00Z", "log"),
        ("2026-03-01T04:00:00Z", "name"),
    ]
    assert "cut-2026-04-01.txt: truncated" in done.stderr
    recent = history(tmp_path, "busbw", str(tmp_path), "--since", "1d", "--format", "json")
    assert json.loads(recent.stdout)["series"] == []


def test_logs_of_one_time_stay_in_the_order_of_their_names(tmp_path: Path) -> None:
    for number in range(5):
        path = tmp_path / f"run{number}.txt"
        path.write_bytes(LOG.read_bytes())
        os.utime(path, (1767225600, 1767225600))
    done = history(tmp_path, "busbw", str(tmp_path), "--format", "json")
    (series,) = json.loads(done.stdout)["series"]
    runs = [Path(point["run"]).stem for point in series["points"]]
    assert runs == ["run0", "run1", "run2", "run3", "run4"]


def test_a_log_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    done = history(tmp_path, "busbw", str(LOG), str(tmp_path / "missing.log"))
    assert done.exit_code == 3
    assert "missing.log" in done.stderr
    assert "1 run in 1 series" in done.stdout


def test_logs_without_a_figure_have_no_history(tmp_path: Path) -> None:
    """As for the other commands: 3 if nothing is there, 4 if it is not ok, 2 for another metric."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "cut.txt").write_text(LOG.read_text("utf-8")[:900])
    for words, status, said in (
        (("busbw", "empty"), 3, "empty: No log found in it."),
        (("busbw", "cut.txt"), 4, "cut.txt: truncated"),
        (("latency", str(LOG.resolve())), 2, "No log has latency."),
    ):
        name, path = words
        for form in ("text", "json"):
            done = history(tmp_path, name, str(tmp_path / path), "--format", form)
            assert (done.exit_code, said in done.stderr) == (status, True)


def test_a_log_that_does_not_show_its_transport_has_no_empty_name(tmp_path: Path) -> None:
    done = history(tmp_path, "busbw", str(EXAMPLES / "logs/published-p4d-efa.txt"))
    assert done.exit_code == 0
    assert "- nccl all_reduce: 9 more" in done.stdout
