"""How much is said: --quiet, --verbose."""

import re

import pytest

from fabbench.cli import cli
from fabbench.model.messages import action
from tests.support.command_line import runner

CHECK = ("check", "--host", "nosuch.invalid", "--ssh-config", "/dev/null", "--format", "csv")


def test_quiet_leaves_results_and_errors() -> None:
    assert "Target ssh" in runner().invoke(cli, CHECK).stderr
    for words in ([*CHECK, "-q"], ["-q", *CHECK]):
        done = runner().invoke(cli, words)
        assert (done.stderr, "nosuch.invalid,reachable,fail" in done.stdout) == ("", True)
    assert (
        "Error: Run nosuch not found" in runner().invoke(cli, ["show", "nosuch", "--quiet"]).stderr
    )


def test_actions_are_written_with_their_time(capsys: pytest.CaptureFixture[str]) -> None:
    line = re.compile(r"(?m)^\d\d:\d\d:\d\d\.\d{3} ssh nosuch.invalid: connect \(openssh\)$")
    for words in ([*CHECK, "-v"], ["-v", *CHECK], ["-v", *CHECK, "-v"]):
        assert len(line.findall(runner().invoke(cli, words).stderr)) == 1
    action("here", "nobody listens")
    assert capsys.readouterr().err == ""


def test_actions_have_no_secrets(capsys: pytest.CaptureFixture[str]) -> None:
    from fabbench.cli.commands import _logged

    with _logged():
        action("here", ("env", "MY_TOKEN=s3cr3t", "sh", "-c", "one\ntwo"))
        action("api c", "GET /api?token=s3cr3t 200")
    text = capsys.readouterr().err
    assert "s3cr3t" not in text
    assert "'MY_TOKEN=(redacted)' sh -c 'one …'\n" in text
