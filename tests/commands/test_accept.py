"""`fabbench accept`: what is refused before anything starts."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import Result

from fabbench.cli import cli
from fabbench.report.certificate import Certificate
from fabbench.runs.acceptance import certificate_path
from fabbench.runs.document import write
from tests.support.command_line import runner

NEW = Certificate(
    id="20261126T080000Z-a1b2c3", level="quick", profile="hpc", target="local", started=1.0
)


def accept(store: Path, *words: str) -> Result:
    return runner({"FABBENCH_STORE": str(store)}).invoke(cli, ["accept", *words])


def stored(store: Path) -> str:
    path = certificate_path(store, NEW.id)
    path.parent.mkdir(parents=True)
    write(path, NEW)
    return NEW.id


@pytest.mark.parametrize(
    ("document", "status", "named"),
    [
        ('{"pairs": "busbw>=1GB/s"}', 3, "Expected `array`"),
        ("pairs: [busbw>=1GB/s]", 3, "limits.json"),
        ('{"pair": ["busbw>=1GB/s"]}', 2, "pair is"),
        ('{"check": []}', 2, "check is"),
        ('{"pairs": ["busbw>1GB/s"]}', 2, "Invalid gate"),
    ],
)
def test_thresholds_that_mean_nothing_are_refused(
    tmp_path: Path, document: str, status: int, named: str
) -> None:
    limits = tmp_path / "limits.json"
    limits.write_text(document)
    done = accept(tmp_path / "store", "--on", "local", "--thresholds", str(limits))
    assert (done.exit_code, done.stdout) == (status, ""), done.stderr
    assert named in done.stderr
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("--resume", "last", "--level", "full"), "--level has no effect with --resume"),
        (("--resume", "last", "-o", "x.html"), "has no effect with --resume"),
        (("--resume", "last", "--print-cordon", "kubectl"), "--print-cordon has no effect with"),
        (("--compare", "last", "last"), "--compare"),
        (("--resume", "nothing"), "nothing"),
        (("--on", "local", "--soak", "9"), "--soak has no effect without --level soak"),
        (("--on", "skypilot"), "skypilot"),
        (("--on", "local", "--host", "node1"), "--host"),
        (("--on", "local", "--max-time", "0"), "--max-time"),
    ],
)
def test_options_without_effect_are_refused(
    tmp_path: Path, words: tuple[str, ...], named: str
) -> None:
    stored(tmp_path)
    done = accept(tmp_path, *words)
    assert (done.exit_code, done.stdout) == (2, ""), done.stderr
    assert named in done.stderr
    assert len(list(certificate_path(tmp_path, "").parent.iterdir())) == 1


@pytest.mark.parametrize(
    ("words", "begins"),
    [
        (("show", "--json"), "{"),
        (("show", "--format", "text"), "Incomplete: 0 nodes"),
        (("report",), "<!DOCTYPE html>"),
    ],
)
def test_a_stored_certificate_is_shown_later(
    tmp_path: Path, words: tuple[str, ...], begins: str
) -> None:
    command, *how = words
    done = runner().invoke(cli, [command, stored(tmp_path), "--store", str(tmp_path), *how])
    assert (done.exit_code, done.stdout[: len(begins)]) == (4, begins)


def test_a_damaged_certificate_is_no_crash(tmp_path: Path) -> None:
    certificate_path(tmp_path, stored(tmp_path)).write_text("{")
    assert accept(tmp_path, "--resume", "last").exit_code == 3
    assert runner().invoke(cli, ["show", NEW.id, "--store", str(tmp_path)]).exit_code == 3


def test_certificates_are_among_the_runs(tmp_path: Path) -> None:
    name = stored(tmp_path)
    done = runner().invoke(cli, ["runs", "--store", str(tmp_path), "--json"])
    (run,) = json.loads(done.stdout)["runs"]
    assert (run["id"], run["benchmark"], run["outcomes"]) == (name, "accept", {"incomplete": 1})
    for words, count in ((["--benchmark", "nccl"], 0), (["--benchmark", "accept"], 1)):
        done = runner().invoke(cli, ["runs", "--store", str(tmp_path), "--json", *words])
        assert len(json.loads(done.stdout)["runs"]) == count


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (("--level", "quick"), 3),
        (("--level=quick", "--host", "b.invalid", "--host", "a.invalid"), 3),
        (("--level", "full"), 2),
        (("--host", "c.invalid"), 2),
        (("--background",), 2),
    ],
)
def test_an_option_that_repeats_the_stored_command_line_is_no_error(
    tmp_path: Path, words: tuple[str, ...], status: int
) -> None:
    hosts = ("--host", "a.invalid", "--host", "b.invalid")
    begun = ("fabbench", "accept", "--on", "ssh", *hosts, "--level", "quick")
    write(certificate_path(tmp_path, stored(tmp_path)), replace(NEW, target="ssh", command=begun))
    done = accept(tmp_path, "--resume", "last", *words)
    assert (done.exit_code, "has no effect" in done.stderr) == (status, status == 2), done.stderr
