"""``fabbench watch``: its formats, its files, and what it refuses."""

import csv
import json
from pathlib import Path

import pytest
from click.testing import Result

from fabbench.cli import cli
from tests.support.command_line import runner

pytestmark = pytest.mark.local


def watch(*words: str, on: str = "local") -> Result:
    return runner().invoke(cli, ["watch", "--on", on, *words])


def test_a_full_disk_leaves_the_file_of_a_collector_as_it_was(tmp_path: Path) -> None:
    before = tmp_path / "x.prom"
    before.write_text("what node_exporter read last\n")
    (tmp_path / ".x.prom.new").symlink_to("/dev/full")
    done = watch("--for", "1", "-o", str(before))
    assert (done.exit_code, "No space left on device" in done.stderr) == (3, True), done.stderr
    assert before.read_text() == "what node_exporter read last\n"
    assert [*tmp_path.iterdir()] == [before]


def test_files_in_the_formats_of_their_suffixes(tmp_path: Path) -> None:
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
    assert {row["name"] for row in rows} == names
    page = (tmp_path / "x.html").read_text()
    assert page.startswith("<!DOCTYPE html>")
    assert all(name in page for name in names)
    metrics = (tmp_path / "x.prom").read_text()
    assert metrics.endswith("# EOF\n")
    assert "# TYPE fabbench_watch_tx_bytes_per_second gauge" in metrics
    assert "fabbench_watch_exit_status " in metrics


def test_a_launcher_that_reaches_no_hosts_names_the_way() -> None:
    done = watch(on="slurm")
    assert done.exit_code == 2
    assert "--on ssh" in done.stderr
    assert "squeue" in done.stderr


@pytest.mark.parametrize("words", [("--for", "0"), ("--every", "0.5"), ("--host", "a")])
def test_what_has_no_sense_is_refused(words: tuple[str, str]) -> None:
    assert watch(*words).exit_code == 2


def test_a_host_that_cannot_be_reached_is_named() -> None:
    done = watch("--host", "no-such-host.invalid", "--for", "1", on="ssh")
    assert done.exit_code == 3
    assert "no-such-host.invalid could not be watched" in done.stdout
