"""`fabbench report`: stored runs as a page."""

from pathlib import Path

from click.testing import Result

from fabbench.cli import cli
from tests.commands.test_compare import store_run
from tests.support.command_line import runner


def report(store: Path, *arguments: str) -> Result:
    return runner().invoke(cli, ["report", *arguments, "--store", str(store)])


def test_a_run_becomes_a_page(tmp_path: Path) -> None:
    run = store_run(tmp_path, {"socket": [2.0, 8.0, 4.0], "tcp": [1.0, 2.0, 3.0]})
    target = tmp_path / "report.html"
    result = report(tmp_path, "-o", str(target))
    assert result.exit_code == 0, result.output
    assert result.stdout == ""
    text = target.read_text("utf-8")
    assert text.startswith("<!DOCTYPE html>")
    assert f"Run {run}" in text
    assert "socket 4 GB/s vs tcp 2 GB/s at 1 GB (2x)" in text
    assert "shaded: 95 % interval" in text
    assert "[send] via NET/Socket/0" in text  # the proof, with its line
    assert str(tmp_path) not in text


def test_a_damaged_run_is_reported_beside_the_others(tmp_path: Path) -> None:
    good = store_run(tmp_path, {"socket": [2.0]})
    bad = store_run(tmp_path, {"tcp": [2.0]})
    (path,) = tmp_path.glob(f"*-{bad}")
    (path / "request.json").write_text("{")
    result = report(tmp_path, good, bad)
    assert result.exit_code == 3
    assert f"Run {good}" in result.stdout
    assert "Damaged: " in result.stdout
    assert "is damaged: " in result.stderr
