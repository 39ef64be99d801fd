"""`compare` and `report` read the JSON that fabbench itself wrote.

A column like any other, and nothing is proven.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from fabbench.cli import cli
from tests.support.command_line import runner
from tests.support.corpus import CORPUS
from tests.support.paths import EXAMPLES, LOGS

EFA, TCP = (str(EXAMPLES / f"logs/published-p4d-{name}.txt") for name in ("efa", "tcp"))
PROVEN = str(LOGS / "nccl/x-net-socket.txt")
SEVERAL = [
    str(CORPUS / f"{name}.txt")
    for name in ("ep/v2-elastic-buffer", "perftest/perftest-among-other-benchmarks")
]
WRITTEN = [
    ("compare", EFA, TCP, "--label", "EFA", "--label", "TCP"),
    ("parse", PROVEN),
    ("compare", PROVEN, PROVEN),
    *(("parse", several) for several in SEVERAL),
    *(("compare", several, several) for several in SEVERAL),
]


def compared(*arguments: str) -> dict[str, Any]:
    result = runner().invoke(cli, ["compare", *arguments, "--format", "json"])
    document = dict(json.loads(result.stdout))
    in_question = document["columns"][:-1] or document["columns"]
    trusted = all(column["outcome"] == "ok" for column in in_question)
    assert result.exit_code == (0 if trusted else 4), result.output
    return document


def figures(document: dict[str, Any]) -> list[tuple[Any, ...]]:
    names = ("size", "metric", "benchmark", "case", "dtype", "placement")
    rows = [row for row in document["rows"] if row["column"] == document["columns"][0]["label"]]
    return [
        (*(row[name] for name in names), float(f"{row['value']:.10g}"))
        for row in rows
        if row["value"]
    ]


@pytest.mark.parametrize("arguments", WRITTEN)
def test_what_was_written_is_read_as_the_same_figures_unproven(
    arguments: tuple[str, ...], tmp_path: Path
) -> None:
    written = runner().invoke(cli, [*arguments, "--format", "json"])
    path = tmp_path / "results"
    path.write_text(written.stdout)
    labels = ["--label", "a", "--label", "b"] if arguments[0] == "compare" else ["--label", "a"]
    again = compared(str(path), *labels)
    logs = [each for each in arguments[1:] if each in {EFA, TCP, PROVEN, *SEVERAL}]
    assert figures(again) == figures(compared(*logs, *labels))
    assert {column["outcome"] for column in again["columns"]} == {"unproven"}
    facts = [column["facts"] for column in again["columns"]]
    assert not {"transport", "network", "provider", "nics"} & {
        name for each in facts for name in each
    }
    assert runner().invoke(cli, ["parse", str(path)]).exit_code == 4
    page = runner().invoke(cli, ["report", str(path)])
    assert (page.exit_code, "unproven" in page.stdout) == (4, True)


def test_a_table_passes_no_gate_and_serves_as_a_baseline(tmp_path: Path) -> None:
    path = tmp_path / "efa.json"
    path.write_text(runner().invoke(cli, ["parse", EFA, "--format", "json"]).stdout)
    gate = ["--gate", "busbw:5%"]
    assert runner().invoke(cli, ["compare", str(path), EFA, *gate]).exit_code == 4
    assert runner().invoke(cli, ["compare", EFA, str(path), *gate]).exit_code == 0
    assert runner().invoke(cli, ["compare", TCP, str(path), *gate]).exit_code == 1


@pytest.mark.parametrize("form", ["markdown", "csv", "json"])
def test_a_table_beside_the_logs_that_it_was_made_of_is_no_repeat(
    form: str, tmp_path: Path
) -> None:
    (tmp_path / "a.log").write_bytes(Path(EFA).read_bytes())
    written = runner().invoke(cli, ["compare", EFA, TCP, "--format", form])
    (tmp_path / "results").write_text(written.stdout)
    (column,) = compared(str(tmp_path))["columns"]
    assert (column["executions"], column["outcome"]) == (1, "ok")
    assert runner().invoke(cli, ["parse", str(tmp_path)]).exit_code == 0


def test_what_failed_stays_failed(tmp_path: Path) -> None:
    path = tmp_path / "failed.json"
    path.write_text(
        runner()
        .invoke(cli, ["parse", str(LOGS / "nccl/fail-killed.txt"), "--format", "json"])
        .stdout
    )
    result = runner().invoke(cli, ["compare", str(path), EFA])
    assert (result.exit_code, "failed" in result.stdout) == (4, True)


@pytest.mark.parametrize(
    ("words", "form"),
    [
        (("compare", EFA, TCP), "markdown"),
        (("compare", EFA, TCP), "csv"),
        (("parse", EFA), "csv"),
        (("parse", str(LOGS / "nccl/fail-killed.txt")), "csv"),
    ],
)
def test_other_tables_are_not_read_back_and_say_what_is(
    words: tuple[str, ...], form: str, tmp_path: Path
) -> None:
    path = tmp_path / "results"
    path.write_text(runner().invoke(cli, [*words, "--format", form]).stdout)
    for command in ("compare", "report"):
        refused = runner().invoke(cli, [command, str(path), "--format", "html"])
        assert (refused.exit_code, "JSON" in refused.stderr) == (3, True)


def log_text(sample: str) -> str:
    return (
        '{"format":1,"logs":[{"benchmark":"nccl","case":"all_reduce","outcome":"ok","facts":{},'
        f'"samples":[{{"labels":{{}},{sample}}}]}}]}}'
    )


@pytest.mark.parametrize(
    ("text", "status"),
    [
        (log_text('"size":8,"metric":"busbw","value":1e9'), 4),
        (log_text('"size":8,"metric":"busbw","value":NaN'), 3),
        (log_text('"size":8,"metric":"busbw","value":1e999'), 3),
        (log_text('"size":8,"metric":"busbw","value":-1'), 3),
        (log_text('"size":8,"metric":"busbw"'), 3),
        (log_text('"size":-8,"metric":"busbw","value":1'), 3),
        (log_text('"size":8,"metric":"speed","value":1'), 3),
        (log_text('"size":8,"metric":"busbw\\n","value":1'), 3),
        (log_text('"size":"8","metric":"busbw","value":1'), 3),
        ('{"format":2,"logs":[]}', 3),
        ('{"format":1,"logs":[', 3),
        ('{"format":1,"logs":[{"facts":{}}]}', 3),
        ('{"format":1,"logs":[1]}', 3),
    ],
)
def test_a_damaged_table_is_refused(text: str, status: int, tmp_path: Path) -> None:
    path = tmp_path / "results"
    path.write_text(text)
    assert runner().invoke(cli, ["compare", str(path)]).exit_code == status
