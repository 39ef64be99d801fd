"""The fabtests' output: every layout since 2014, from the printf statements; no log of others is needed."""

import random
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabbench.benchmarks.libfabric.facts import printed_count, printed_size
from fabbench.model.log import Outcome
from fabbench.model.plan import Proof
from fabbench.runs.parse_file import parse_file
from tests.support.libfabric_text import (
    ERAS,
    PINGPONG_HEADER,
    Measured,
    cnt_str,
    fabtests_row,
    fabtests_table,
    machine_row,
    pingpong_row,
    size_str,
)
from tests.support.read_logs import figures, read_lines, read_one

ROWS = (
    Measured(64, 20000, 29947),
    Measured(1024, 20000, 34340),
    Measured(65536, 2000, 21178),
    Measured(1572864, 200, 45592),
    Measured(4194304, 200, 122435),
)
SIZES = [row.size for row in ROWS]
COMMAND = "$ fi_rdm_tagged_bw -p efa -E=4000 -S all 10.0.0.1"


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize(("times", "program"), [(1, "fi_rdm_bw"), (2, "fi_rdm_pingpong")])
def test_every_printed_figure_is_read_exactly(era: str, times: int, program: str) -> None:
    """Compare with the text's own words, split on blanks and nothing more.

    The time of one transfer among many is no latency.
    """
    lines = fabtests_table(ROWS, era, times)
    log = read_one([f"$ {program} -S all 10.0.0.1", *lines])
    assert (log.benchmark, log.case, log.outcome, log.findings) == ("fabtests", program, Outcome.OK, ())
    assert [point.size for point in log.points] == SIZES
    form = ERAS[era]
    for line, point in zip(lines[1:], log.points, strict=True):
        words = line.split()[3 + bool(form.name) + form.xfers + 1 :]
        bandwidth = float(f"{words[0]}e9") / 8 if form.bits else float(f"{words[0]}e6")
        expected = {"latency" if times == 2 else "time": float(f"{words[1]}e-6"), "bandwidth": bandwidth}
        if form.rate:
            expected["message_rate"] = float(f"{words[2]}e6")
        assert figures(point) == {name: value for name, value in expected.items() if value}


@pytest.mark.parametrize("separated", [True, False])
@pytest.mark.parametrize("bits", [True, False])
def test_machine_readable_rows(*, bits: bool, separated: bool) -> None:
    rows = [machine_row(row, 1, bits=bits, separated=separated) for row in ROWS]
    log = read_one(["---", "./benchmarks/fi_rma_bw -m -p verbs -e rdm -S all 10.0.0.1 :", *rows])
    assert (log.case, log.outcome) == ("fi_rma_bw", Outcome.OK)
    assert [point.size for point in log.points] == SIZES
    assert log.points[0].labels == {"side": "client", "endpoint": "rdm"}
    for row, point in zip(rows, log.points, strict=True):
        printed = dict(re.findall(r"([A-Za-z]+/[a-z]+): (\d+\.\d{6})", row))
        rate = float(printed["Gb/sec"] + "e9") / 8 if bits else float(printed["MB/sec"] + "e6")
        assert figures(point)["bandwidth"] == rate
        assert figures(point)["time"] == float(printed["usec/xfer"] + "e-6")
        assert ("message_rate" in point.metrics) is not bits


def test_the_first_machine_readable_form() -> None:
    log = read_one(["--- # ./fi_rdm_pingpong -m ", machine_row(ROWS[0], 2, bits=True)])
    assert (log.case, log.points[0].labels["way"], log.facts["iterations"]) == ("fi_rdm_pingpong", "one-way", 20000)


def test_rows_without_their_dash_or_their_arguments() -> None:
    row = machine_row(ROWS[0], 1).removeprefix("- ")
    log = read_one([row])
    assert (log.outcome, log.case, [point.size for point in log.points]) == (Outcome.OK, None, [64])


def test_the_unit_in_the_header_decides() -> None:
    lines = fabtests_table(ROWS, "2016-02-11")
    bits = [lines[0].replace("MB/sec", "Gb/sec"), *lines[1:]]
    bytes_log, bits_log = read_one(lines), read_one(bits)
    assert (bytes_log.outcome, len(bytes_log.points)) == (Outcome.OK, len(ROWS))
    # Every row contradicts its header then.
    assert (bits_log.outcome, len(bits_log.damaged)) == (Outcome.TRUNCATED, len(ROWS))


def test_a_rate_that_is_not_stated_is_not_guessed() -> None:
    """Without a header, a row without Mxfers/sec may be in MB/sec or in Gb/sec."""
    assert read_lines(fabtests_table(ROWS, "2016-02-11")[1:]) == []
    log = read_one(fabtests_table(ROWS)[1:])
    assert [point.size for point in log.points] == SIZES


def test_what_the_print_left_nothing_of_is_absent() -> None:
    (point,) = read_one(fabtests_table([Measured(4194304, 200, 122435)])).points
    assert point.metrics == ("time", "bandwidth")
    (point,) = read_one(fabtests_table([Measured(1, 1000, 900_000)], "2015")).points
    assert point.metrics == ("time",)


# ---------------------------------------------------------------- sizes


@given(st.integers(0, 1 << 40), st.integers(0, 1 << 40))
def test_sizes_and_counts_are_printed_as_the_source_does(size: int, count: int) -> None:
    assert printed_size(size) == size_str(size)
    assert printed_count(count) == cnt_str(count)


@pytest.mark.parametrize("size", [1536, 1572864, 98304, 6291456])
def test_the_sizes_of_all_need_no_command(size: int) -> None:
    assert read_one(fabtests_table([Measured(size, 2000, 50_000)])).points[0].size == size


def test_an_odd_size_is_narrowed_by_the_other_columns() -> None:
    log = read_one(["$ fi_rdm_bw 10.0.0.1", *fabtests_table([Measured(1500, 20000, 34340)])])
    assert abs(log.points[0].size - 1500) <= 8
    assert [finding.code for finding in log.findings] == ["size-truncated"]
    from_command = read_one(["$ fi_rdm_bw -S 1500 10.0.0.1", *fabtests_table([Measured(1500, 20000, 34340)])])
    assert (from_command.points[0].size, from_command.findings) == (1500, ())


def test_the_total_narrows_a_size() -> None:
    """1500 bytes 1234 times to and fro are 3.5m, and MB/sec says next to nothing."""
    table = fabtests_table([Measured(1500, 1234, 1234 * 2 * 9000)], times=2)
    assert table[1].split()[:3] == ["1.4k", "1k", "3.5m"]
    found = read_one(["$ fi_rdm_pingpong -I 1234 10.0.0.1", *table])
    assert 1486 <= found.points[0].size <= 1500
    assert found.facts["iterations"] == 1234


def test_a_total_that_contradicts_the_row_is_damage() -> None:
    (header, row) = fabtests_table([Measured(1500, 1234, 1234 * 2 * 9000)], times=2)
    assert read_one([header, row]).outcome is Outcome.OK
    log = read_one(["$ fi_rdm_pingpong -I 1234 10.0.0.1", header, row.replace("3.5m", "7.5m")])
    assert (log.outcome, [damaged.line for damaged in log.damaged]) == (Outcome.TRUNCATED, [3])


@given(st.integers(1, 1 << 32), st.integers(1, 10**5), st.integers(1, 10**7), st.sampled_from([1, 2]))
def test_a_size_fits_what_was_printed(size: int, iterations: int, us: int, times: int) -> None:
    (point,) = read_one(fabtests_table([Measured(size, iterations, us)], times=times)).points
    assert size_str(point.size) == size_str(size)


# ---------------------------------------------------------------- names, sides, facts


def test_the_name_column_tells_rows_apart() -> None:
    banner = ["RPCs Inflight: 64", "MR mode: FI_MR_ALLOCATED, FI_MR_PROV_KEY", "Provider: cxi"]
    rows = [*fabtests_table(ROWS, "now, named", name="msg_req")]
    rows += fabtests_table(ROWS[:2], "now, named", name="tag_req")[1:]
    log = read_one([*banner, *rows], Proof(fabric="cxi"))
    assert (log.outcome, log.facts["provider"], log.facts["transport"]) == (Outcome.OK, "cxi", "cxi")
    assert [(point.size, point.labels) for point in log.points] == [
        *((size, {"name": "msg_req"}) for size in SIZES),
        *((size, {"name": "tag_req"}) for size in SIZES[:2]),
    ]


def test_names_that_repeat_the_size_are_no_labels() -> None:
    log = read_one(fabtests_table(ROWS, "2015", name="64_lat"))
    assert {tuple(point.labels) for point in log.points} == {()}


def test_a_provider_above_something_else_says_nothing() -> None:
    log = read_one(["provider: efa", "    fabric: efa", "done", *fabtests_table(ROWS)], Proof(fabric="efa"))
    assert (log.outcome, "provider" in log.facts) == (Outcome.UNPROVEN, False)


def test_a_pair_by_its_commands() -> None:
    table = fabtests_table(ROWS)
    server, client = "$ fi_rdm_bw -p tcp", "$ time ./bin/fi_rdm_bw -p tcp 10.0.0.1"
    log = read_one([server, *table, client, *table])
    assert [point.labels for point in log.points[:: len(ROWS)]] == [
        {"side": "server", "endpoint": "rdm"},
        {"side": "client", "endpoint": "rdm"},
    ]
    assert len(read_lines([client, *table, client, *table])) == 2
    assert len(read_lines([server, *table, client.replace("rdm_bw", "msg_bw"), *table])) == 2


def test_one_table_of_a_pair_has_no_side() -> None:
    log = read_one(["$ fi_rma_bw -e rdm", "$ fi_rma_bw -e rdm 10.0.0.1", *fabtests_table(ROWS)])
    assert log.points[0].labels == {"endpoint": "rdm"}


def test_a_pair_by_its_streams() -> None:
    table = fabtests_table(ROWS)
    lines = [f"[pod/{pod}/main] {line}" for line in table for pod in ("server", "client")]
    assert len(read_one(lines).points) == 2 * len(ROWS)
    again = [f"[pod/server/main] {line}" for line in [*table, *table]]
    assert len(read_lines(again)) == 2
    tagged = [f"[fabbench:{side}] {line}" for line in table for side in ("server", "client")]
    log = read_one(tagged)
    assert [point.labels["side"] for point in log.points[:2]] == ["server", "client"]
    ranks = [f"[rank {rank}] {line}" for line in table for rank in (0, 1)]
    assert [point.labels["rank"] for point in read_one(ranks).points[:2]] == ["0", "1"]


@pytest.mark.parametrize(
    ("command", "case", "endpoint"),
    [
        ("[u@n fabtests]$ time ./fi_rdm_tagged_pingpong -f sockets -S all", "fi_rdm_tagged_pingpong", "rdm"),
        ("fi_dgram_pingpong -T 5 -E 10.0.0.1", "fi_dgram_pingpong", "dgram"),
        ("# .libs/lt-fi_msg_pingpong -I 100", "fi_msg_pingpong", "msg"),
        ("$ fi_rma_bw -p efa -o write -E -D cuda -e rdm --pin-core 1-2 10.0.0.1", "fi_rma_bw", "rdm"),
        ("+ fi_rma_bw -p efa 10.0.0.1 &", "fi_rma_bw", None),
    ],
)  # fmt: skip
def test_commands(command: str, case: str, endpoint: str | None) -> None:
    log = read_one([command, *fabtests_table(ROWS, times=2 if "pingpong" in case else 1)])
    assert (log.case, log.facts.get("endpoint")) == (case, endpoint)
    assert (log.points[0].labels.get("way") == "one-way") is case.endswith("pingpong")


@pytest.mark.parametrize(
    "line",
    [
        "We ran fi_rdm_pingpong on both hosts.",
        "fi_rma_bw",
        "$ fi_info -p efa",
        "$ fi_av_test -g 10.0.0.1",
        "bytes sent: 12",
        "fi_getinfo(): util/other.c:12, ret=-61 (No data available)",
        "64 12 14 0.03s",
        "64 20k 1.2m 0.03s 42.74 1.50 0.67",
        "See $ fi_rdm_bw -p efa and its table",
        "Provider: tcp",
    ],
)
def test_what_only_resembles_is_no_execution(line: str) -> None:
    assert read_lines([line]) == []


def test_a_ping_pong_of_libfabric_s_own_beside_it() -> None:
    own = [PINGPONG_HEADER, pingpong_row(64, 10, "3.00")]
    both = read_lines([*own, *fabtests_table(ROWS), *own])
    assert [log.benchmark for log in both] == ["pingpong", "fabtests", "pingpong"]
    assert [len(log.points) for log in both] == [1, len(ROWS), 1]


def test_an_fi_info_block_names_the_provider() -> None:
    block = ["fi_info:", "    fi_fabric_attr:", "        prov_name: verbs;ofi_rxm", "        name: IB-0xfe80"]
    log = read_one([COMMAND, *block, *fabtests_table(ROWS)], Proof(fabric="ib"))
    assert (log.outcome, log.facts["provider"]) == (Outcome.OK, "verbs;ofi_rxm")


# ---------------------------------------------------------------- failures


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (
            "fi_getinfo(): common/shared.c:1110, ret=-61 (No data available)",
            "The program said: fi_getinfo(): common/shared.c:1110, ret=-61 (No data available)",
        ),
        (
            "[error] 1700000000:fabtests:common/shared.c:925: cq_readerr 5,  provider",
            "The program said: [error] 1700000000:fabtests:common/shared.c:925: cq_readerr 5, provider",
        ),
        ("fi_rma_bw: invalid option -- 'y'", "The program said: fi_rma_bw: invalid option -- 'y'"),
        ("bash: line 1: fi_rdm_bw: command not found", "The program said: bash: line 1: fi_rdm_bw: command not found"),
        ("fi_sread(): benchmarks/rdm_pingpong.c:52, ret=-110 (Conn", None),
    ],
)
def test_errors_alone_are_failures(line: str, reason: str | None) -> None:
    log = read_one([line])
    assert (log.benchmark, log.outcome) == ("fabtests", Outcome.FAILED)
    assert log.reason == (reason or f"The program said: {line}")


@pytest.mark.parametrize(
    "line",
    ["Event queue read -259 (Error available)", "fi_connect(): x.c:12, ret=-111 (No)", "fi_bind: -22 (No)"],
)  # fmt: skip
def test_errors_inside(line: str) -> None:
    assert read_lines([line]) == []
    log = read_one([*fabtests_table((), "2015"), line])
    assert (log.outcome, log.reason) == (Outcome.FAILED, f"The program said: {line}")


def test_the_cause_comes_before_its_echo() -> None:
    echo = "fi_connect(): common/shared.c:1317, ret=-111 (Connection refused)"
    cause = "fi_getinfo(): common/shared.c:1110, ret=-61 (No data available)"
    assert read_one([echo, cause]).reason == f"The program said: {cause}"


def test_wrong_data_and_time_limits() -> None:
    table = fabtests_table(ROWS)
    wrong = "Data check error (a!=b) at byte 12 for buffer of size 64"
    assert read_one([*table, wrong]).outcome is Outcome.CORRUPT
    late = read_one([*table, "5s timeout expired"])
    assert (late.outcome, late.reason) == (Outcome.TIMEOUT, "The program said: 5s timeout expired")


def test_nothing_measured_is_truncated() -> None:
    assert read_one([ERAS["now"].header]).outcome is Outcome.TRUNCATED
    assert read_one([ERAS["now"].header[:30]]).outcome is Outcome.TRUNCATED
    assert read_one([COMMAND]).outcome is Outcome.TRUNCATED


# ---------------------------------------------------------------- any table


def measured() -> st.SearchStrategy[list[Measured]]:
    row = st.builds(Measured, st.integers(1, 1 << 32), st.integers(1, 10**6), st.integers(1, 10**9))
    return st.lists(row, min_size=1, max_size=6)


PREFIXES = (
    "",
    "[1,0]<stdout>:",
    "[1,0]<stdout>: ",
    "[rank 3] ",
    "2026-11-21T10:35:09.123456789Z ",
    "[host-1:0]:",
    "> ",
)
NOISE = (
    "node0:100:100 [0] NCCL INFO Using network Socket",
    "libfabric:1:1700000000::efa:av:efa_av_open():12<warn> hello",
    "Warning: Permanently added '10.0.0.1' (ED25519) to the list of known hosts.",
    "",
    "real 0m3.2s",
)  # fmt: skip


@given(measured(), st.sampled_from(list(ERAS)), st.sampled_from([1, 2]), st.sampled_from(PREFIXES), st.data())
def test_any_table_survives_prefixes_and_other_lines(
    rows: list[Measured], era: str, times: int, prefix: str, data: st.DataObject
) -> None:
    table = fabtests_table(rows, era, times)
    expected = read_one(table).points
    lines = [*table]
    for noise in data.draw(st.lists(st.sampled_from(NOISE), max_size=4)):
        lines.insert(data.draw(st.integers(1, len(lines))), noise)
    (log,) = (log for log in read_lines([prefix + line for line in lines]) if log.benchmark)
    assert len(expected) == len(rows)
    found = [(point.size, point.metrics, point.values) for point in log.points]
    assert found == [(point.size, point.metrics, point.values) for point in expected]
    assert log.damaged == ()


@given(measured(), st.sampled_from([*ERAS, "machine"]), st.data())
def test_any_table_cut_anywhere(rows: list[Measured], era: str, data: st.DataObject) -> None:
    """Rows are exact or reported: what is whole is read, and what is cut is damaged."""
    machine = ["fi_rdm_bw -m :", *(machine_row(row, 1) for row in rows)]
    lines = machine if era == "machine" else fabtests_table(rows, era)
    complete = read_one(lines).points
    text = "\n".join(lines)
    at = data.draw(st.integers(len(lines[0]), len(text)))
    kept = text[:at].split("\n")
    whole = sum(line == other for line, other in zip(kept[1:], lines[1:], strict=False))
    log = read_one(kept)
    assert log.points == complete[:whole]
    rest = kept[-1] if len(kept) > whole + 1 else ""
    # A name alone, and a machine readable row's first words, could be anything.
    expected = len(rest.split()) > 1 if ERAS.get(era, ERAS["2015"]).name else bool(rest)
    expected = "xfer_size:" in rest if era == "machine" else expected
    assert [damaged.text for damaged in log.damaged] == ([rest] if expected else [])
    assert log.outcome is (Outcome.TRUNCATED if expected or not whole else Outcome.OK)


def test_pieces_of_two_rows_never_become_one() -> None:
    first, second = (fabtests_row(row, ERAS["now"], 1) for row in ROWS[:2])
    for at in range(1, len(first)):
        for other in range(1, len(second)):
            log = read_one([ERAS["now"].header, first[:at], second[other:]])
            assert all(point.size in SIZES for point in log.points)
            assert not log.points or at == other or {first[:at].strip(), second[other:].strip()} & {first, second}


def test_iterations_are_a_fact_if_all_rows_have_them() -> None:
    assert "iterations" not in read_one(fabtests_table(ROWS)).facts
    assert "iterations" not in read_one(fabtests_table(ROWS[:2])).facts
    assert read_one(fabtests_table(ROWS[3:])).facts["iterations"] == 200


@given(st.integers(1, 90), st.sampled_from([*ERAS, "machine"]))
def test_a_row_torn_apart_is_put_together(at: int, era: str) -> None:
    lines = (
        ["fi_rdm_bw -m :", *(machine_row(row, 1) for row in ROWS)] if era == "machine" else fabtests_table(ROWS, era)
    )
    complete, torn = read_one(lines).points, lines[2]
    log = read_one([*lines[:2], torn[:at], torn[at:], *lines[3:]])
    # What cannot be told for sure is missing or reported, and never another figure.
    assert all(point in complete for point in log.points)
    assert len(log.points) == len(complete) or log.damaged


def test_seeded_noise_invents_nothing() -> None:
    """Characters changed, lost and doubled: no exception, and no row that is not in the text."""
    row = re.compile(r"\d+(?:\.\d)?[kmg]?\s+.*\d\.\d\ds\s*.*\d\.\d\d\s*$|.*xfer_size.*\}\s*$")
    known = "\n".join([COMMAND, *fabtests_table(ROWS), "---", "fi_rdm_bw -m :", machine_row(ROWS[0], 1)])
    for seed in range(300):
        source = random.Random(seed)
        letters = list(known)
        for _ in range(source.randint(1, 40)):
            at = source.randrange(len(letters))
            letters[at : at + source.randint(0, 2)] = source.choice(["", " ", "\n", "9", ".", "k", "s", "\x00", "{"])
        lines = "".join(letters).split("\n")
        found = read_lines(lines)
        assert sum(len(log.points) for log in found) <= sum(bool(row.search(line)) for line in lines)


@given(st.lists(st.text(max_size=80) | st.sampled_from([*fabtests_table(ROWS), COMMAND, "fi_info:", "---"])))
def test_any_text_is_survived(lines: list[str]) -> None:
    rows = sum(line in fabtests_table(ROWS)[1:] for line in lines)
    found = [log for log in read_lines(lines) if log.benchmark == "fabtests"]
    assert sum(len(log.points) for log in found) <= rows


def test_a_file(tmp_path: Path) -> None:
    path = tmp_path / "bw.log"
    path.write_text("\r\n".join([COMMAND, *fabtests_table(ROWS), ""]))
    (log,) = parse_file(path)
    assert (log.outcome, [point.size for point in log.points]) == (Outcome.OK, SIZES)


def test_the_layouts_differ() -> None:
    """The generator is not blind: each era prints its rows otherwise."""
    assert len({(form.header, fabtests_row(ROWS[0], form, 2)) for form in ERAS.values()}) == len(ERAS)
