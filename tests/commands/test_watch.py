"""``fabbench watch``: its formats, its files, and what it refuses."""

import csv
import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeAlias

import pytest
from click.testing import Result

from fabbench.cli import cli
from tests.support.command_line import runner
from tests.support.paths import DATA

pytestmark = pytest.mark.local
Watch: TypeAlias = Callable[..., Result]


@pytest.fixture
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("store")


@pytest.fixture
def watch(store: Path) -> Watch:
    def call(*words: str, on: str = "local") -> Result:
        env = {"FABBENCH_STORE": str(store)}
        return runner(env).invoke(cli, ["watch", "--on", on, *words])

    return call


def test_a_full_disk_leaves_the_file_of_a_collector_as_it_was(watch: Watch, tmp_path: Path) -> None:
    before = tmp_path / "x.prom"
    before.write_text("what node_exporter read last\n")
    (tmp_path / ".x.prom.new").symlink_to("/dev/full")
    done = watch("--for", "1", "-o", str(before))
    assert (done.exit_code, "No space left on device" in done.stderr) == (3, True), done.stderr
    assert before.read_text() == "what node_exporter read last\n"
    assert [*tmp_path.iterdir()] == [before]


def test_files_in_the_formats_of_their_suffixes(watch: Watch, tmp_path: Path) -> None:
    """Nothing moves on a machine of tests, or not over NICs: status 4, and all is there."""
    for suffix in ("json", "csv", "html", "prom", "md"):
        done = watch("--for", "1", "-o", str(tmp_path / f"x.{suffix}"))
        assert done.exit_code in {0, 1, 4}, done.stderr
    assert len([*tmp_path.iterdir()]) == 5  # nothing beside them
    document = json.loads((tmp_path / "x.json").read_text())
    assert document["format"] == 1
    assert document["first"].startswith(("ok: ", "bad: ", "undecided: "))
    (nics,) = (each["nics"] for each in document["carriers"].values())
    names = {each["name"] for each in nics}
    rows = csv.DictReader((tmp_path / "x.csv").read_text().splitlines())
    assert {row["name"] for row in rows} & names  # another watch: something else may move
    page = (tmp_path / "x.html").read_text()
    assert page.startswith("<!DOCTYPE html>")
    assert any(name in page for name in names)
    metrics = (tmp_path / "x.prom").read_text()
    assert metrics.endswith("# EOF\n")
    assert "# TYPE fabbench_watch_tx_bytes_per_second gauge" in metrics
    assert "fabbench_watch_exit_status " in metrics


def test_a_launcher_that_reaches_no_hosts_names_the_way(watch: Watch) -> None:
    done = watch(on="pbs")
    assert done.exit_code == 2
    assert "--on ssh" in done.stderr


@pytest.mark.parametrize(("on", "option"), [("slurm", "--job"), ("kubernetes", "--pod")])
def test_a_launcher_with_jobs_wants_the_name_of_one(watch: Watch, on: str, option: str) -> None:
    done = watch(on=on)
    assert (done.exit_code, f"Pass {option}" in done.stderr) == (2, True), done.stderr
    done = watch(option, "4711")
    assert (done.exit_code, f"{option} has no effect" in done.stderr) == (2, True), done.stderr


def test_a_watch_is_an_object_of_the_store(watch: Watch, store: Path) -> None:
    done = watch("--for", "1", "--json")
    (path,) = (store / "watches").iterdir()
    assert json.loads(path.read_text()) == json.loads(done.stdout)
    call = partial(runner({"FABBENCH_STORE": str(store)}).invoke, cli)
    (run,) = json.loads(call(["runs", "--json"]).stdout)["runs"]
    verdict = json.loads(done.stdout)["first"].partition(":")[0]
    assert (run["id"], run["benchmark"], run["outcomes"]) == (path.stem, "watch", {verdict: 1})
    assert run["target"] == "local"
    assert len(run["hosts"]) == 1
    begins = {"json": "{", "csv": "host,", "html": "<!DOCTYPE html>", "openmetrics": "# HELP"}
    for form, begin in (begins | {"markdown": "### NICs"}).items():
        shown = call(["show", path.stem, "--format", form])
        assert (shown.exit_code, shown.stdout[: len(begin)]) == (done.exit_code, begin)
    assert call(["report", path.stem]).stdout.startswith("<!DOCTYPE html>")


def test_watches_are_removed_like_runs(watch: Watch, store: Path) -> None:
    assert watch("--for", "1").exit_code in {0, 1, 4}
    (first,) = (store / "watches").iterdir()
    for number in range(3):
        copy = json.loads(first.read_text()) | {"id": f"copy{number}", "started": number}
        first.with_stem(f"copy{number}").write_text(json.dumps(copy))
    remove = partial(runner({"FABBENCH_STORE": str(store)}).invoke, cli)
    assert remove(["runs", "rm", "copy1", "--yes"]).exit_code == 0
    assert {each.stem for each in first.parent.iterdir()} == {first.stem, "copy0", "copy2"}
    done = remove(["runs", "rm", "--keep", "1", "--yes"])
    assert (done.exit_code, [*first.parent.iterdir()]) == (0, [first]), done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("--for", "0"),
        ("--every", "0.5"),
        ("--wait", "0"),
        ("--host", "a"),
        ("--ras", "28028"),
        ("--job", "a job"),
    ],
)
def test_what_has_no_sense_is_refused(watch: Watch, words: tuple[str, str]) -> None:
    assert watch(*words).exit_code == 2


def test_a_host_that_cannot_be_reached_is_named_once(watch: Watch) -> None:
    done = watch("--host", "no-such-host.invalid", "--for", "1", on="ssh")
    assert done.exit_code == 3
    assert done.stdout.count("no-such-host.invalid could not be watched") == 1


def test_a_missing_file_of_hosts_has_advice(watch: Watch) -> None:
    done = watch("--hostfile", "no-such-file", on="ssh")
    assert done.exit_code == 3
    assert "no-such-file" in done.stderr
    assert "--host " in done.stderr


def test_an_inspector_that_writes_nothing_is_said(watch: Watch, tmp_path: Path) -> None:
    shutil.copy(DATA / "inspector/skewed/node-a-pid1673.log", tmp_path)  # older than the watch
    for folder in (tmp_path, tmp_path / "no-such-folder"):
        done = watch("--for", "1", "--json", "--inspector", str(folder))
        (note,) = [each for each in json.loads(done.stdout)["notes"] if "inspector" in each]
        assert f"NCCL's inspector has written nothing new to {folder}" in note
        assert "rank-waited-for" not in done.stdout


def test_where_dumps_cannot_be_written_is_refused_before_the_watch(
    watch: Watch, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    done = watch("--for", "60", "--dumps", str(tmp_path / "file" / "dumps"))
    assert (done.exit_code, done.stdout) == (3, "")


def test_a_type_of_nodes_that_nobody_knows_is_refused(watch: Watch) -> None:
    more = ("--inspector", "/nowhere")
    assert watch("--for", "1", "--instance-type", "p99.large", *more).exit_code == 2


def test_a_type_of_nodes_has_no_effect_without_an_inspector(watch: Watch) -> None:
    done = watch("--for", "1", "--instance-type", "p5.48xlarge")
    assert (done.exit_code, done.stdout) == (2, "")
