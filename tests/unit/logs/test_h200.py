"""Runs of NCCL 2.30.7, PyTorch and nixlbench on two GPUs are read as what happened."""

import tomllib

import pytest

from fabbench.evidence.known_errors import causes
from fabbench.model.log import Log
from fabbench.runs.parse_file import parse_file
from tests.support.paths import DATA

FOLDER = DATA / "h200"
TRUTH = tomllib.loads((FOLDER / "truth.toml").read_text("utf-8"))


def log_of(name: str) -> Log:
    (path,) = FOLDER.glob(f"{name}.txt*")
    (log,) = parse_file(path)
    return log


def test_the_truth_of_every_log_is_known() -> None:
    logs = {path.name.partition(".")[0] for path in FOLDER.glob("*.txt*")}
    assert {name for name in logs if not name.startswith("ras-")} == {*TRUTH}


@pytest.mark.parametrize("name", [*TRUTH])
def test_a_run_is_read_as_what_happened(name: str) -> None:
    truth = TRUTH[name]
    log = log_of(name)
    assert log.outcome == truth["outcome"]
    known = ("transport", "channels", "channels_used", "algorithms", "rma")
    facts = {fact: truth[fact] for fact in known if fact in truth}
    assert {fact: str(log.facts.get(fact)) for fact in facts} == facts
    found, _ = causes(log)
    if "cause" in truth:
        assert found[0].finding.code == truth["cause"]
        assert truth.get("says", "") in found[0].finding.meaning
        assert truth.get("never", "\n") not in found[0].finding.meaning
    if truth["outcome"] in {"ok", "observed"}:
        assert [finding.code for finding in log.findings if finding.severity == "error"] == []


@pytest.mark.parametrize("form", ["txt", "json"])
@pytest.mark.parametrize(
    ("name", "outcome"), [("ras-healthy", "observed"), ("ras-stopped", "failed")]
)
def test_a_ras_report_says_who_does_not_answer(name: str, outcome: str, form: str) -> None:
    (log,) = parse_file(FOLDER / f"{name}.{form}")
    assert log.outcome == outcome
    silent = [finding for finding in log.findings if finding.code == "ras-incomplete"]
    assert bool(silent) == (outcome == "failed")
    assert all("15267" in finding.meaning for finding in silent)


@pytest.mark.parametrize("form", ["txt", "json"])
def test_a_ras_report_names_the_process_that_is_behind_in_two_communicators(form: str) -> None:
    (log,) = parse_file(FOLDER / f"ras-4-sleep.{form}")
    behind = [each.meaning for each in log.findings if each.code == "ras-mismatch"]
    assert len(behind) == 2
    assert all("process 12625" in each for each in behind)


def test_the_exception_that_ended_a_rank_is_the_reason() -> None:
    assert "ValueError: batch 17 is empty" in (log_of("torch-raise").reason or "")
