"""Dumps of PyTorch's flight recorder say who is behind; hostile pickles are refused."""

import io
import json
import os
import pickle
import shutil
from pathlib import Path
from typing import Any

import pytest

from fabbench.cli import cli
from fabbench.evidence.plain_pickle import read_plain
from fabbench.model.errors import MachineError
from fabbench.runs.parse_file import parse_file, parse_together
from tests.support.command_line import runner
from tests.support.paths import DATA

FOLDER = DATA / "h200"
BEHIND = {
    "sleep": "Rank 1 had not started it (the last: 3)",
    "size": "Rank 1 called all_reduce of 1024 elements",
    "mismatch": "Rank 1 called _all_gather_base of 1048576 elements",
}


PROGRAM = "the program differs between ranks, it is not the network"
FOUR = {
    "4-sleep": "process group tensor_parallel. Rank 3 had not started it (the last: 3).",
    "4-mismatch": "Rank 3 called _all_gather_base of 1048576 elements at number 4 of tensor_par",
    "4-order": f"Rank 3, for which tensor_parallel waits, waits in expert_parallel: {PROGRAM}.",
    "4-pipeline": "more are queued behind it; Rank 3 waited in recv 3<-2 of 1048576 elements, "
    "sequence number 2 of process group default_pg. Rank 1 had not started it (the last: 1).",
    "8-batch": "Rank 3 waited in coalesced, sequence number 2 of process group default_pg. "
    "Rank 2 had not started it (the last: 1).",
    "8-caught": "Rank 6, for which default_pg waits, waits in data_parallel. Rank 4, for which "
    f"data_parallel waits, waits in default_pg: {PROGRAM}.",
    "order": f"Rank 0, for which expert_parallel waits, waits in tensor_parallel: {PROGRAM}.",
    "pipeline": "Rank 1 had not started it (the last: 1).",
    "fewer": f"Rank 0 called all_reduce of 1049600 elements, Rank 1 called all_reduce_barrier "
    f"of 1 element at that number: {PROGRAM}.",
}


def dumps(kind: str) -> list[str]:
    return [str(path) for path in sorted(FOLDER.glob(f"fr-{kind}-?"))]


@pytest.mark.parametrize("kind", FOUR)
def test_the_dumps_of_more_groups_accuse_nobody_who_waits_for_others(kind: str) -> None:
    (log,) = parse_together(dumps(kind))
    (found,) = log.findings
    assert (found.code, found.severity) == ("collective-timeout", "error")
    assert FOUR[kind] in found.meaning


@pytest.mark.parametrize(
    ("kind", "who"),
    [
        ("sleep", "Rank 1 had not started it (the last: 3)"),
        ("mismatch", "Rank 1 called all_gather of 1024 elements"),
    ],
)
def test_of_gloo_a_call_waits_until_it_is_retired(kind: str, who: str) -> None:
    (log,) = parse_together([str(DATA / "gloo" / f"fr-{kind}-{rank}") for rank in range(3)])
    (found,) = log.findings
    assert (found.code, found.severity) == ("collective-timeout", "error")
    assert who in found.meaning


def test_of_gloo_nobody_waits_in_a_healthy_job() -> None:
    (log,) = parse_together([str(DATA / "gloo" / f"fr-healthy-{rank}") for rank in range(3)])
    assert log.outcome == "observed"
    assert not log.findings


def test_a_rank_that_stopped_has_no_dump() -> None:
    (log,) = parse_together(dumps("4-stop"))
    (waits, missing) = log.findings
    assert log.outcome == "failed"
    assert waits.severity == "warning"
    assert missing.meaning == "Rank 3: there is no dump."


@pytest.mark.parametrize("kind", ["4-dumped", "8-pipeline"])
def test_dumps_of_a_healthy_job_show_nobody_who_waits(kind: str) -> None:
    """Of a batch of sends and receives, each one's entry stays as it was scheduled."""
    (log,) = parse_together(dumps(kind))
    assert log.outcome == "observed"
    assert not log.findings


@pytest.mark.parametrize("kind", BEHIND)
def test_the_dumps_of_a_job_say_who_is_behind(kind: str) -> None:
    (log,) = parse_together(dumps(kind))
    (found,) = log.findings
    assert log.outcome == "failed"
    assert (found.code, found.severity) == ("collective-timeout", "error")
    assert BEHIND[kind] in found.meaning
    assert "process group tensor_parallel" in found.meaning


@pytest.mark.parametrize("kind", BEHIND)
def test_json_says_the_same(kind: str, tmp_path: Path) -> None:
    names: list[str] = []
    for name in dumps(kind):
        copy = tmp_path / f"{Path(name).name}.json"
        copy.write_text(json.dumps(read_plain(Path(name).read_bytes())), "utf-8")
        names.append(str(copy))
    (log,) = parse_together(names)
    (pickled,) = parse_together(dumps(kind))
    assert log.findings == pickled.findings


def test_a_directory_of_dumps_is_one_job(tmp_path: Path) -> None:
    for name in dumps("sleep"):
        shutil.copy(name, tmp_path)
    result = runner().invoke(cli, ["explain", str(tmp_path)])
    assert result.exit_code == 4
    assert result.output.count("Rank 1 had not started it") == 2  # the reason and the finding


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (pickle.dumps({"pg_config": os.system}), "more than plain data"),
        (pickle.dumps(os.system), "more than plain data"),
        (pickle.dumps([1, 2]), "no list of entries"),
        (pickle.dumps({"entries": []}, 0), "protocol 2 or later"),
        (pickle.dumps({"entries": [True]}, 1), "protocol 2 or later"),
    ],
)
def test_a_pickle_that_is_no_dump_is_refused_with_the_reason(
    content: bytes, why: str, tmp_path: Path
) -> None:
    name = tmp_path / "fr-0"
    name.write_bytes(content)
    result = runner().invoke(cli, ["explain", str(name)])
    assert result.exit_code == 3
    assert why in result.stderr


def test_one_dump_alone_accuses_nobody() -> None:
    (log,) = parse_file(dumps("sleep")[0])
    assert log.outcome == "observed"
    assert [found.severity for found in log.findings] == ["warning"]


def test_a_rank_without_a_dump_is_named(tmp_path: Path) -> None:
    names: list[str] = []
    for rank, name in enumerate(dumps("sleep")):
        content = read_plain(Path(name).read_bytes())
        content["pg_config"]["0"]["ranks"] = "[0, 1, 2]"
        copy = tmp_path / f"fr-{rank}"
        copy.write_bytes(pickle.dumps(content, 2))
        names.append(str(copy))
    (log,) = parse_together(names)
    missing = [found.meaning for found in log.findings if found.code == "ranks-missing"]
    assert missing == ["Rank 2: there is no dump."]


class Command:
    """What runs a command when Python's own reader builds it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self.path}",)


class Persistent(pickle.Pickler):
    """Writes lists as names of objects elsewhere."""

    def persistent_id(self, obj: Any) -> Any:
        return "elsewhere" if isinstance(obj, list) else None


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


def hostile(tmp_path: Path) -> dict[str, bytes]:
    within: list[Any] = []
    within.append(within)
    elsewhere = io.BytesIO()
    Persistent(elsewhere, 2).dump({"entries": []})
    key = b"\x80\x02})" + 1000 * b"\x85" + b"Ns."
    return {
        "command": pickle.dumps({"pg_config": Command(tmp_path / "ran")}),
        "text-command": b"cos\nsystem\n(S'true'\ntR.",
        "class": pickle.dumps({"entries": Path("x")}),
        "elsewhere": elsewhere.getvalue(),
        "deep": pickle.dumps(nested(100), 2),
        "within-itself": pickle.dumps(within, 2),
        "deep-key": key,
        "tuple-keys": pickle.dumps({(1,): 1, (2,): 2}, 2),
        "cut": pickle.dumps({"entries": [1, 2, 3]}, 2)[:-5],
        "too-long": b"\x80\x04\x8d" + b"\xff" * 7 + b"\x7f",
        "memo": b"\x80\x02j\xff\xff\xff\x7f.",
        "no-mark": b"\x80\x02]e.",
        "empty": b"\x80\x02.",
    }


@pytest.mark.parametrize("kind", hostile(Path("x")))
def test_a_hostile_pickle_is_refused_and_runs_nothing(kind: str, tmp_path: Path) -> None:
    data = hostile(tmp_path)[kind]
    with pytest.raises(ValueError, match=r"damaged|deep|plain|pickle|expected|bytes|opcode|data"):
        read_plain(data)
    assert list(tmp_path.iterdir()) == []


def test_a_refusal_is_a_clear_sentence(tmp_path: Path) -> None:
    name = tmp_path / "fr-0"
    name.write_bytes(pickle.dumps({"pg_config": Command(tmp_path / "ran"), "entries": []}))
    with pytest.raises(MachineError, match="more than plain data"):
        list(parse_file(name))
    assert [path.name for path in tmp_path.iterdir()] == ["fr-0"]


@pytest.mark.parametrize("entry", [{}, {"process_group": 3}, 7, {"process_group": ["0", "a"]}])
def test_a_dump_with_other_entries_is_refused(entry: Any, tmp_path: Path) -> None:
    name = tmp_path / "fr-0"
    name.write_text(json.dumps({"pg_config": {}, "entries": [entry]}), "utf-8")
    with pytest.raises(MachineError, match="damaged"):
        list(parse_file(name))


@pytest.mark.parametrize("protocol", range(2, 6))
def test_plain_data_is_read_as_by_python(protocol: int) -> None:
    data = {"a": [1, -2, 1 << 40, 2.5, None, True, False, "é", (), (1,), (1, 2), (1, 2, 3, 4)]}
    assert read_plain(pickle.dumps(data, protocol)) == data
