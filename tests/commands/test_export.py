"""`fabbench runs export`: samples of stored runs, for other programs."""

import csv
import io
import json
from importlib import import_module
from pathlib import Path

from click.testing import Result

from fabbench.cli import cli
from fabbench.runs.export import HEADER
from tests.commands.test_compare import store_run
from tests.support.command_line import runner


def export(store: Path, *arguments: str | Path) -> Result:
    return runner().invoke(cli, ["runs", "export", *map(str, arguments), "--store", str(store)])


def test_every_format_has_the_same_rows(tmp_path: Path) -> None:
    run = store_run(tmp_path, {"socket": [2.0, 8.0], "tcp": [1.0, 2.0]})
    text = export(tmp_path)
    assert text.exit_code == 0, text.output
    rows = list(csv.DictReader(io.StringIO(text.stdout)))
    busbw = [row for row in rows if row["metric"] == "busbw" and row["placement"] == "out-of-place"]
    found = [(row["configuration"], row["execution"][-2:], float(row["value"])) for row in busbw]
    assert found == [*(("socket", "r1", 2e9), ("socket", "r2", 8e9)), *(("tcp", "r1", 1e9), ("tcp", "r2", 2e9))]
    assert {row["run"] for row in rows} == {run}
    assert {row["fabric"] for row in busbw} == {"socket", "tcp"}
    lines = [json.loads(line) for line in export(tmp_path, "--format", "jsonl").stdout.splitlines()]
    assert [tuple(line) for line in lines] == [HEADER] * len(rows)
    assert [{k: "" if v is None else str(v) for k, v in line.items()} for line in lines] == rows


def test_parquet_keeps_types(tmp_path: Path) -> None:
    parquet = import_module("pyarrow.parquet")
    store_run(tmp_path, {"socket": [2.0]})
    result = export(tmp_path, "-o", tmp_path / "all.parquet")
    assert result.exit_code == 0, result.output
    table = parquet.read_table(tmp_path / "all.parquet")
    assert tuple(table.column_names) == HEADER
    assert [str(table.schema.field(name).type) for name in ("size", "value")] == ["int64", "double"]
    assert len(export(tmp_path).stdout.splitlines()) == table.num_rows + 1


def test_a_damaged_run_is_left_out_and_named(tmp_path: Path) -> None:
    good, bad = (store_run(tmp_path, {"socket": [2.0]}) for _ in range(2))
    (path,) = tmp_path.glob(f"*-{bad}")
    (path / "request.json").write_text("{")
    result = export(tmp_path, "-o", tmp_path / "all.csv")
    assert result.exit_code == 3
    assert f"-{bad} is damaged, and was left out: " in result.stderr
    rows = list(csv.DictReader(io.StringIO((tmp_path / "all.csv").read_text("utf-8"))))
    assert {row["run"] for row in rows} == {good}
