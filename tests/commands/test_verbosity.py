"""How much is said: --quiet, --verbose, --debug."""

import re
from pathlib import Path

from fabbench.cli import cli
from fabbench.model.messages import action
from tests.support.command_line import runner

CHECK = ("check", "--host", "nosuch.invalid", "--ssh-config", "/dev/null", "--format", "csv")


def test_quiet_leaves_results_and_errors() -> None:
    assert "Target ssh" in runner().invoke(cli, CHECK).stderr
    for words in ([*CHECK, "-q"], ["-q", *CHECK]):
        done = runner().invoke(cli, words)
        assert (done.stderr, "nosuch.invalid,reachable,fail" in done.stdout) == ("", True)
    assert "Error: Run nosuch not found" in runner().invoke(cli, ["show", "nosuch", "--quiet"]).stderr


def test_actions_are_written_with_their_time(tmp_path: Path) -> None:
    line = re.compile(r"(?m)^\d\d:\d\d:\d\d\.\d{3} ssh nosuch.invalid: connect \(openssh\)$")
    for words in ([*CHECK, "-v"], ["-v", *CHECK], ["-v", *CHECK, "-v"]):
        assert len(line.findall(runner().invoke(cli, words).stderr)) == 1
    file = tmp_path / "log"
    done = runner().invoke(cli, [*CHECK, "--debug", str(file)])
    assert not line.search(done.stderr)
    assert line.search(file.read_text("utf-8"))
    before = file.read_text("utf-8")
    action("here", "nobody listens")
    assert file.read_text("utf-8") == before
    wrong = runner().invoke(cli, [*CHECK, "--debug", str(tmp_path / "no/log")])
    assert (wrong.exit_code, "cannot be written" in wrong.stderr) == (3, True)


def test_actions_have_no_secrets(tmp_path: Path) -> None:
    from fabbench.cli.commands import _logged

    file = tmp_path / "log"
    with file.open("w", encoding="utf-8") as stream, _logged(stream):
        action("here", ("env", "MY_TOKEN=s3cr3t", "sh", "-c", "one\ntwo"))
        action("api c", "GET /api?token=s3cr3t 200")
    text = file.read_text("utf-8")
    assert "s3cr3t" not in text
    assert "'MY_TOKEN=(redacted)' sh -c 'one …'\n" in text
