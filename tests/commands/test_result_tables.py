"""Tables that fabbench itself wrote quote logs, and are none: they are named and refused."""

import json
from pathlib import Path

import pytest

from fabbench.cli import cli
from tests.support.command_line import runner
from tests.support.paths import EXAMPLES, LOGS

EFA, TCP = (str(EXAMPLES / f"logs/published-p4d-{name}.txt") for name in ("efa", "tcp"))
FAILED = str(LOGS / "nccl/fail-killed.txt")
COMPARED = ("compare", EFA, TCP)
READERS = ("parse", "explain", "compare", "report")
WRITTEN = [
    (words, form, READERS)
    for words in (COMPARED, ("parse", EFA, TCP), ("parse", FAILED))
    for form in ("csv", "json")
]


@pytest.mark.parametrize(
    ("words", "form", "readers"), [*WRITTEN, (COMPARED, "markdown", ("compare", "report"))]
)
def test_what_was_written_is_no_log_and_says_so(
    words: tuple[str, ...], form: str, readers: tuple[str, ...], tmp_path: Path
) -> None:
    path = tmp_path / "results"
    path.write_text(runner().invoke(cli, [*words, "--format", form]).stdout)
    for command in readers:
        refused = runner().invoke(cli, [command, str(path)])
        assert (refused.exit_code, "pass the logs" in refused.stderr) == (3, True), command


@pytest.mark.parametrize("form", ["markdown", "csv", "json"])
def test_a_table_beside_the_logs_that_it_was_made_of_is_no_repeat(
    form: str, tmp_path: Path
) -> None:
    (tmp_path / "a.log").write_bytes(Path(EFA).read_bytes())
    written = runner().invoke(cli, ["compare", EFA, TCP, "--format", form])
    (tmp_path / "results").write_text(written.stdout)
    result = runner().invoke(cli, ["compare", str(tmp_path), "--format", "json"])
    (column,) = json.loads(result.stdout)["columns"]
    assert (result.exit_code, column["executions"], column["outcome"]) == (0, 1, "ok")
    assert runner().invoke(cli, ["parse", str(tmp_path)]).exit_code == 0
