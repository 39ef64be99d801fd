"""Lines of NCCL's inspector: who comes last to a call sets its time, and the others wait for it."""

import json
import shutil
from pathlib import Path

import pytest

from fabbench.cli import cli
from fabbench.evidence.inspector import records
from fabbench.model.log import Log, Outcome, Record
from fabbench.runs.load_columns import load
from fabbench.runs.parse_file import parse_file, parse_together
from tests.support.command_line import runner
from tests.support.paths import DATA

FOLDER = DATA / "inspector"
OLD = (
    '{"header":{"id":"0x7f8c496ae9f661","rank":2,"n_ranks":8,"nnodes":1},"metadata":'
    '{"inspector_output_format_version":"v4.0","git_rev":"","rec_mechanism":"profiler_plugin",'
    '"dump_timestamp_us":1748030377748202,"hostname":"node-a","pid":1639453},"coll_perf":'
    '{"coll":"AllReduce","coll_sn":1407,"coll_msg_size_bytes":17179869184,'
    '"coll_exec_time_us":61974,"coll_algobw_gbs":277.210914,"coll_busbw_gbs":485.119099}}'
)
"""The example of NCCL 2.28's README."""


def of_job(kind: str) -> dict[str, Log]:
    names = sorted(map(str, (FOLDER / kind).iterdir()))
    return {str(log.case): log for log in parse_together(names)}


def codes(log: Log | Record) -> list[str]:
    return [each.code for each in log.findings]


def only(text: str) -> Record:
    (record,) = records(text.split("\n"))
    return record


def line(rank: int, number: int, time_us: int, *, name: str = "AllReduce", ranks: int = 4) -> str:
    fields = json.loads(OLD)
    fields["header"] |= {"rank": rank, "n_ranks": ranks}
    algbw = fields["coll_perf"]["coll_msg_size_bytes"] / time_us / 1e3
    fields["coll_perf"] |= {
        "coll": name,
        "coll_sn": number,
        "coll_exec_time_us": time_us,
        "coll_algobw_gbs": round(algbw, 6),
        "coll_busbw_gbs": round(algbw * 2 * (ranks - 1) / ranks, 6),
    }
    return json.dumps(fields)


def waited_for(*lines: str) -> list[str]:
    found = [each.meaning for record in records(lines) for each in record.findings]
    return [meaning for meaning in found if "comes last" in meaning]


def test_a_call_is_as_fast_as_the_rank_that_comes_last() -> None:
    """The rank that sleeps has the shortest times, and is the one that is named."""
    log = of_job("skewed")["all_reduce"]
    (found,) = [each for each in log.findings if each.code == "rank-waited-for"]
    assert "rank 1 (node-a, process 1674) comes last to 30 of 30 calls" in found.meaning
    middle, slowest = log.points
    assert middle.size == 64 << 20
    assert dict(middle.labels) == {}
    assert dict(slowest.labels) == {"stat": "slowest"}
    figures = dict(zip(middle.metrics, middle.values, strict=True))
    assert figures["calls"] == 30
    assert figures["time"] == pytest.approx(242e-6, rel=0.02)
    assert figures["busbw"] == pytest.approx(277e9, rel=0.02)
    assert dict(log.facts) == {
        "ranks": 2,
        "hosts": 1,
        "timing": "kernel_gpu",
        "complete": "unknown",
    }


@pytest.mark.parametrize(
    ("printed", "altered"),
    [
        ("17179869184", "17979869184"),
        ("61974", "61944"),
        ("277.210914", "277.310914"),
        ("485.119099", "465.119099"),
    ],
)
def test_a_line_whose_figures_contradict_each_other_is_damaged(printed: str, altered: str) -> None:
    healthy = only(OLD)
    assert (len(healthy.points), healthy.damaged) == (2, [])
    whole = OLD.replace("1407", "1408")
    record = only(f"{whole}\n{OLD.replace(printed, altered)}")
    assert [damaged.line for damaged in record.damaged] == [2]
    assert {point.values for point in record.points} == {point.values for point in healthy.points}


def test_one_rank_alone_shows_its_waiting_and_accuses_nobody() -> None:
    by_case = {log.case: log for log in parse_file(FOLDER / "skewed/node-a-pid1673.log")}
    log = by_case["all_reduce"]
    assert codes(log) == ["inspector-calls", "inspector-ranks"]
    assert log.points[0].values[0] == pytest.approx(20.4e-3, rel=0.05)


def test_ranks_of_a_healthy_job_take_turns() -> None:
    for log in of_job("healthy").values():
        assert codes(log) == ["inspector-calls"]
        assert log.outcome is Outcome.OK
        assert not log.shows_end


def test_sends_and_receives_are_calls_of_their_own() -> None:
    logs = of_job("p2p")
    assert {*logs} == {"send", "recv"}
    assert {log.facts["timing"] for log in logs.values()} == {"collective_cpu"}


def test_a_trace_behind_the_rates_is_left_out() -> None:
    (log,) = of_job("verbose").values()
    assert (log.case, log.damaged) == ("reduce_scatter", ())
    assert log.points[0].values[1] == 1


def test_the_first_version_and_blanks_of_other_writers() -> None:
    for text in (OLD, json.dumps(json.loads(OLD))):
        record = only(text)
        assert (record.case, record.facts["ranks"]) == ("all_reduce", 8)
        assert record.facts["timing"] == "unknown"
        assert record.points[0].values == pytest.approx((61974e-6, 1, 277.210914e9, 485.119099e9))


@pytest.mark.parametrize(
    "damage", [OLD[:200], OLD.replace("61974", '"61974"'), OLD.replace('"rank":2,', "")]
)
def test_a_line_that_is_not_whole_is_damaged(damage: str) -> None:
    record = only(f"{OLD}\n{damage}\n\n")
    assert [each.line for each in record.damaged] == [2]


def test_calls_without_a_rate_have_a_time() -> None:
    record = only(OLD.replace("277.210914", "0.000000").replace("485.119099", "0.000000"))
    assert record.points[0].metrics == ("time", "calls")


@pytest.mark.parametrize(
    ("calls", "late", "name"),
    [
        (17, 17, "AllReduce"),  # too few to tell
        (40, 35, "AllReduce"),  # others come last, too
        (40, 40, "Broadcast"),  # its root does not wait
    ],
)
def test_nobody_is_named_without_a_reason(calls: int, late: int, name: str) -> None:
    lines = [
        line(rank, number, 200 if rank == (3 if number < late else 1) else 9000, name=name)
        for number in range(calls)
        for rank in range(4)
    ]
    assert not waited_for(*lines)


def test_who_comes_last_most_of_the_time_is_named() -> None:
    lines = [
        line(rank, number, 200 if rank == (3 if number < 37 else 1) else 9000)
        for number in range(40)
        for rank in range(4)
    ]
    (meaning,) = waited_for(*lines)
    assert "rank 3 (node-a, process 1639453) comes last to 37 of 40 calls" in meaning
    assert "8800 us" in meaning


def test_short_waits_are_usual() -> None:
    lines = [line(rank, number, 8 + 9 * (rank > 0)) for number in range(40) for rank in range(4)]
    assert not waited_for(*lines)


def test_explain_and_compare_read_a_folder_as_one_job(tmp_path: Path) -> None:
    for kind in ("healthy", "skewed"):
        shutil.copytree(FOLDER / kind, tmp_path / kind)
    (tmp_path / "skewed/node-a-pid9.log").touch()  # the inspector had nothing to write
    call = runner({}).invoke
    done = call(cli, ["explain", "--json", str(tmp_path / "skewed")])
    assert done.exit_code == 0, done.stderr
    logs = {log["case"]: log for log in json.loads(done.stdout)["logs"]}
    assert {*logs} == {"all_reduce", "all_gather"}
    assert "rank-waited-for" in {each["code"] for each in logs["all_reduce"]["findings"]}
    columns = load(tmp_path / "healthy", tmp_path / "skewed")
    assert [len(column.logs) for column in columns] == [2, 2]
    done = call(cli, ["compare", str(tmp_path / "healthy"), str(tmp_path / "skewed")])
    assert done.exit_code == 0, done.stderr


def test_parse_has_rows_of_a_file() -> None:
    done = runner({}).invoke(cli, ["parse", "--json", str(FOLDER / "healthy/node-a-pid1609.log")])
    assert done.exit_code == 0, done.stderr
    logs = json.loads(done.stdout)["logs"]
    assert {(log["benchmark"], log["case"]) for log in logs} == {
        ("nccl-inspector", "all_gather"),
        ("nccl-inspector", "all_reduce"),
    }
    assert {each["metric"] for each in logs[0]["samples"]} == {"time", "calls", "algbw", "busbw"}
