"""The script that scores the parser against a folder of published logs."""

import json
from pathlib import Path
from typing import Any

import pytest

import score
from reading import LOGS

RUN: dict[str, Any] = {
    "rows": 9,
    "ranks_listed": 4,
    "hosts_listed": 1,
    "max_size": 67108864,
    "oop_busbw_at_max": "265.01",
    "ip_wrong_at_max": "N/A",
    "program": "alltoall_perf",
    "outcome": "ok",
    "header_seen": True,
}


def folder_with(run: dict[str, Any], folder: Path) -> Path:
    (folder / "nccl-tests").mkdir()
    (folder / "nccl-tests/a.txt").write_text((LOGS / "nccl/alltoall-mpi.txt").read_text())
    told = json.dumps({"runs": [run], "transport": "none stated in the log"})
    (folder / "INDEX.tsv").write_text(f"file\tspecial\tfacts\nnccl-tests/a.txt\t-\t{told}\n")
    return folder


def test_facts_that_hold_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert score.main(folder_with(RUN, tmp_path)) == 0
    assert "10 of 10 facts of 1 files" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("key", "value"), [("rows", 8), ("oop_busbw_at_max", "265.02"), ("outcome", "failed")]
)
def test_a_fact_that_does_not_hold_is_printed(
    key: str, value: object, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert score.main(folder_with({**RUN, key: value}, tmp_path)) == 1
    out = capsys.readouterr().out
    assert f"MISMATCH  nccl-tests/a.txt: {key}: " in out
    assert "9 of 10 facts of 1 files" in out


def test_an_index_without_a_file_of_ours_is_no_success(tmp_path: Path) -> None:
    (tmp_path / "INDEX.tsv").write_text("file\tspecial\tfacts\n")
    assert score.main(tmp_path) == 1
