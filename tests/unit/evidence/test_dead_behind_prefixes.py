"""Runs that died, as launchers, collectors of logs and pages show them: behind prefixes."""

import pytest

from tests.support.prefix_forms import FORMS, NUMBERED, behind
from tests.support.read_logs import read_kinds
from tests.support.tiers import sampled
from tests.unit.evidence.test_dead_runs import CASES

NAMES = (
    *(name for name in FORMS if name.startswith(("kubectl", "Open MPI", "SkyPilot", "ts"))),
    "CRI",
    "docker build",
    "docker compose",
    "docker's json-file",
    "gh run view --log",
    "GitHub Actions",
    "GitLab",
    "journalctl",
    "journalctl -o short-iso",
    "JSON, nested",
    "Markdown code",
    "python logging",
    "quote",
    "Ray",
    "tab",
    *NUMBERED,
)
FEWEST_LINES = 3
"""Of one line or two, a prefix is not always certain."""


@pytest.mark.parametrize("form", sampled(NAMES, 12))
def test_runs_that_died_are_explained_the_same_behind_a_prefix(form: str) -> None:
    texts = [case["text"].strip("\n") for case in CASES[::6]]
    longer = [text for text in texts if text.count("\n") >= FEWEST_LINES - 1]
    others = [
        text for text in longer if read_kinds(behind(form, text.split("\n"))) != read_kinds(text)
    ]
    assert len(others) <= 0.07 * len(longer), others[:2]
