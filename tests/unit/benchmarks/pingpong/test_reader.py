"""fi_pingpong's output: real logs, and any table cut anywhere."""

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabbench.benchmarks.libfabric.facts import printed_count, printed_size
from fabbench.benchmarks.pingpong.reader import HEADER, PingpongRow, joined, read_row, row_size
from fabbench.model.log import Ending, Log, Outcome, Point, begin_marker, end_marker, tag_line
from fabbench.model.plan import Proof
from fabbench.runs.parse_file import parse_file
from tests.support.paths import LOGS
from tests.support.read_logs import read_lines, read_one

LOGS = LOGS / "fi_pingpong"
HEADER_LINE = "bytes   #sent   #ack     total       time     MB/sec    usec/xfer   Mxfers/sec"


def log_of(name: str, fabric: str | None = None) -> Log:
    (log,) = parse_file(LOGS / f"{name}.txt", proof=Proof(fabric=fabric) if fabric else None)
    return log


def table(*rows: str) -> list[str]:
    return [HEADER_LINE, *rows]


def row(size: int, sent: int, latency: str) -> str:
    """A row as the program prints it, for a one-way time in microseconds."""
    us = float(latency)
    elapsed = us * sent * 2
    return PingpongRow(
        size=printed_size(size),
        sent=printed_count(sent),
        sign="=",
        ack=printed_count(sent),
        total=printed_size(size * sent * 2),
        time=f"{elapsed / 1e6:.2f}",
        bandwidth=f"{size / us:.2f}",
        latency=latency,
        rate=f"{1 / us:.2f}",
    ).layout()


# ---------------------------------------------------------------- real logs


GOOD = {
    "net-msg": 6,
    "net-rdm": 6,
    "shm-rdm": 6,
    "sockets-dgram": 6,
    "sockets-msg": 6,
    "sockets-rdm": 6,
    "tcp-msg": 6,
    "tcp-msg-Sall-I1000": 46,
    "tcp-msg-d-ignored": 6,
    "tcp-rdm": 6,
    "tcp-rdm-S0": 1,
    "tcp-rdm-S1500-I1234": 1,
    "tcp-rdm-S64-I10000": 1,
    "tcp-rdm-check": 6,
    "tcp-rdm-d-ignored-unknown": 6,
    "tcp-rdm-default-iface": 6,
    "tcp-rdm-ports": 6,
    "tcp-rdm-tagged": 6,
    "tcp-rdm-v": 6,
    "udp-dgram": 3,
    "udp-rdm": 6,
}
FAILED = {
    "bad-eptype.server": "The server said: Unknown endpoint : foo",
    "bad-option.client": "The client said: fi_pingpong: invalid option -- 's'",
    "efa-absent.server": "The server said: fi_getinfo(): util/pingpong.c:1489, ret=-61 (No data available)",
    "efa-absent.client": "The client said: [error] util/pingpong.c:568 : "
    "ctrl/read: no data or remote connection closed",
    "verbs-absent.server": "The server said: fi_getinfo(): util/pingpong.c:1489, ret=-61 (No data available)",
    "tcp-dgram.server": "The server said: fi_getinfo(): util/pingpong.c:1489, ret=-61 (No data available)",
    "tcp-rdm-iters-differ.client": "The client said: ctrl/read(): util/pingpong.c:563 , "
    "ret=-104 (Connection reset by peer)",
    "tcp-rdm-sizes-differ.server": "The server said: [error] util/pingpong.c:1119: cq_readerr: Success",
    "tcp-rdm-check-one-side.client": "The client said: Error at iteration=1 size=64 byte=0",
}


@pytest.mark.parametrize("side", ["server", "client"])
@pytest.mark.parametrize("name", GOOD)
def test_good_logs(name: str, side: str) -> None:
    log = log_of(f"{name}.{side}")
    assert (log.benchmark, log.case, log.outcome, log.reason) == ("pingpong", "pingpong", "ok", None)
    assert len(log.points) == GOOD[name]
    assert log.facts["complete"] == "unknown"
    assert {point.labels["side"] for point in log.points} == {side}
    assert {point.labels["endpoint"] for point in log.points} == {name.split("-")[1]}


@pytest.mark.parametrize("side", ["server", "client"])
@pytest.mark.parametrize("name", GOOD)
def test_every_printed_figure_is_read_exactly(name: str, side: str) -> None:
    """Compare with the file's own words, split on blanks and nothing more."""
    text = (LOGS / f"{name}.{side}.txt").read_text()
    words = [line.split() for line in text.splitlines() if line[:1].isdigit()]
    points = log_of(f"{name}.{side}").points
    assert len(words) == len(points)
    for (_, _, ack, *_, bandwidth, latency, rate), point in zip(words, points, strict=True):
        assert ack.startswith("=")
        printed = {"latency": f"{latency}e-6", "bandwidth": f"{bandwidth}e6", "message_rate": f"{rate}e6"}
        expected = {name: float(text) for name, text in printed.items() if float(text)}
        assert dict(zip(point.metrics, point.values, strict=True)) == expected


def test_what_timeout_ended_has_timed_out() -> None:
    log = log_of("shm-rdm-crosshost.server")
    assert (log.outcome, log.reason) == (Outcome.TIMEOUT, "The exit status was 124: it timed out.")


def test_the_sizes_of_all() -> None:
    steps = sorted({0, *(1 << k for k in range(23)), *(3 << k for k in range(22))})
    assert [point.size for point in log_of("tcp-msg-Sall-I1000.client").points] == steps


@pytest.mark.parametrize("name", FAILED)
def test_failures(name: str) -> None:
    log = log_of(name)
    assert (log.outcome, log.reason) == (Outcome.FAILED, FAILED[name])
    assert log.points == []


def test_facts_of_verbose_output() -> None:
    facts = log_of("tcp-rdm-v.client").facts
    assert facts == {
        "endpoint": "rdm",
        "source_address": "198.18.1.11",
        "dest_address": "198.18.1.10",
        "domain": "fab0",
        "fabric": "198.18.1.0/24",
        "provider": "tcp;ofi_rxm",
        "transport": "tcp;ofi_rxm",
        "libfabric": "1.17",
        "iterations": 10,
        "complete": "unknown",
    }


def test_proof() -> None:
    assert log_of("tcp-rdm-v.client", "tcp").outcome is Outcome.OK
    assert log_of("tcp-rdm-v.client", "efa").outcome is Outcome.OFF_FABRIC
    assert log_of("tcp-rdm.client", "tcp").outcome is Outcome.UNPROVEN


def test_the_domain_that_was_asked_for() -> None:
    lines = (LOGS / "tcp-msg-d-ignored.client.txt").read_text().splitlines()
    assert read_one(lines, Proof(fabric="tcp", domain="fab1")).outcome is Outcome.OK
    log = read_one(lines, Proof(fabric="tcp", domain="fab0"))
    assert (log.outcome, log.reason) == (Outcome.OFF_FABRIC, "Domain fab0 was requested, but fab1 was used.")


def test_setup_inside_the_timing_is_marked() -> None:
    (finding,) = log_of("tcp-rdm.client").findings
    assert finding.code == "setup-time"
    assert finding.meaning == "Connection set-up may be more than 1 % of the figure at 64 B."
    assert log_of("tcp-msg.client").findings == ()


# ---------------------------------------------------------------- sizes


@given(st.integers(0, 1 << 34))
def test_the_size_that_was_asked_for_is_kept(size: int) -> None:
    read_back = read_row(row(size, 1000, "12.50"))
    assert read_back is not None
    assert row_size(read_back, requested=size, sent=1000) == (size, True)


@given(st.integers(1, 1 << 34), st.integers(1, 10**6), st.decimals("0.5", 10**6, places=2))
def test_a_size_said_to_be_exact_fits_all_columns(size: int, sent: int, latency: object) -> None:
    read_back = read_row(row(size, sent, str(latency)))
    assert read_back is not None
    found = row_size(read_back)
    assert printed_size(found.value) == printed_size(size)
    low, high = size * 0.89, size * 1.11  # a decimal digit more cannot be lost
    assert low <= found.value <= high


@pytest.mark.parametrize(
    ("size", "sent", "latency", "expected"),
    [
        (1500, 10, "20.00", (1500, True)),  # MB/sec x usec/xfer is 1500
        (1536, 10, "2000.00", (1536, True)),  # as -S all has it
        (65536, 10, "2000.00", (65536, True)),
        (64, 10, "3.00", (64, True)),
    ],
)
def test_sizes_without_a_command_line(size: int, sent: int, latency: str, expected: tuple[int, bool]) -> None:
    log = read_one(table(row(size, sent, latency)))
    assert log.points[0].size == expected[0]
    assert log.findings == ()


def test_a_size_that_nothing_determines_is_a_finding() -> None:
    log = read_one(table(row(1300, 1234, "9000.00")))
    assert printed_size(log.points[0].size) == "1.2k"
    assert [finding.code for finding in log.findings] == ["size-truncated"]


# ---------------------------------------------------------------- rows


@pytest.mark.parametrize(
    ("sign", "ack", "sentence"),
    [
        ("+", "2", "2 of 10 messages of 64 B were not acknowledged."),
        ("-", "1", "1 more messages of 64 B were acknowledged than the 10 sent."),
    ],
)
def test_unacknowledged_messages_fail(sign: str, ack: str, sentence: str) -> None:
    line = row(64, 10, "3.00").replace("=10     ", f"{sign}{ack:<7}")
    log = read_one(table(line))
    assert (log.outcome, log.reason) == (Outcome.FAILED, sentence)
    assert len(log.points) == 1


def test_what_the_print_left_nothing_of_is_absent() -> None:
    (point,) = read_one(table(row(4194304, 10, "479.75"))).points
    assert point.metrics == ("latency", "bandwidth")
    (point,) = read_one(table(row(0, 10, "5.00"))).points
    assert point.metrics == ("latency", "message_rate")


def test_infinite_rates_are_absent() -> None:
    line = PingpongRow("64", "10", "=", "10", "1.2k", "0.00", "inf", "0.00", "inf").layout()
    log = read_one(table(line))
    assert log.points == [Point(64, {}, (), ())]
    assert (log.outcome, log.reason) == (Outcome.TRUNCATED, "No row has a usable value.")


def test_a_header_alone_is_truncated() -> None:
    log = read_one([HEADER_LINE])
    assert (log.outcome, log.points) == (Outcome.TRUNCATED, [])


@given(
    st.lists(
        st.tuples(st.integers(1, 1 << 32), st.integers(1, 10**7), st.decimals("0.01", 10**5, places=2)),
        min_size=1,
        max_size=8,
    ),
    st.data(),
)
def test_a_table_cut_anywhere(cells: Sequence[tuple[int, int, object]], data: st.DataObject) -> None:
    """Rows are exact or reported: what is whole is read, and what is cut is damaged."""
    lines = table(*[row(size, sent, str(latency)) for size, sent, latency in cells])
    text = "\n".join(lines)
    cut = data.draw(st.integers(0, len(text)))
    kept = text[:cut].split("\n")
    whole = len(kept) - 1 if kept[-1] not in lines[len(kept) - 1 : len(kept)] else len(kept)
    complete = read_one(lines).points
    found = read_lines(kept)
    if not found:
        assert whole == 0
        return
    (log,) = found
    assert log.points == complete[: max(whole - 1, 0)]
    rest = kept[-1].strip() if len(kept) > max(whole, 1) else ""
    assert [damaged.text.strip() for damaged in log.damaged] == ([rest] if rest else [])
    assert log.outcome is (Outcome.TRUNCATED if rest or whole < 2 else Outcome.OK)


@given(st.integers(1, 80), st.integers(0, 3))
def test_a_row_torn_apart_is_put_together(at: int, debug: int) -> None:
    lines = table(row(64, 10, "3.00"), row(1500, 1234, "19.98"))
    torn = lines[-1]
    at = min(at, len(torn) - 1)
    noise = ["[debug] util/pingpong.c:697 : Syncing nodes"] * debug
    log = read_one([*lines[:-1], torn[:at], *noise, torn[at:]])
    if debug == 0 and not log.damaged:
        assert log.points == read_one(lines).points
    expected = read_one(lines).points
    assert log.points == expected or (log.points == expected[:1] and log.damaged)


@given(st.text(max_size=90), st.text(max_size=90))
def test_pieces_are_joined_only_to_the_program_s_layout(first: str, second: str) -> None:
    whole = joined(first, second)
    assert whole is None or (read_row(whole) is not None and whole in first + second)


def test_full_columns_have_no_blank_between_them() -> None:
    first, second = row(53687092, 10**7, "500.00"), row(10000, 1, "0.01")
    assert "1000000g10000.00s" in first
    assert "0.00s1000000.00" in second
    assert [point.values[0] for point in read_one(table(first, second)).points] == [500e-6, 1e-8]


def test_two_different_rows_never_become_one() -> None:
    first, second = row(64, 10, "3.00"), row(256, 10, "4.25")
    for at in range(1, len(first)):
        for other in range(1, len(second)):
            whole = joined(first[:at], second[other:])
            assert whole is None or whole in {first, second} or at == other


@given(st.lists(st.text(max_size=100) | st.sampled_from([HEADER_LINE, row(64, 10, "3.00"), "fi_info:"])))
def test_any_text_is_survived_and_no_row_invented(lines: list[str]) -> None:
    found = read_lines(lines)
    known = row(64, 10, "3.00").split()
    rows = sum(line.split() == known for line in lines)
    assert sum(len(log.points) for log in found) <= rows or any(
        read_row(line) for line in lines if line.split() != known
    )


# ---------------------------------------------------------------- who printed it


def test_the_two_logs_of_a_pair_in_one_file() -> None:
    pair = [*table(row(64, 10, "3.00")), "", *table(row(64, 10, "3.25"))]
    assert len(read_lines(pair)) == 2  # nothing says that these belong together
    titled = ["Server Log:", *pair[:2], "Client Log:", *pair[3:]]
    log = read_one(titled)
    assert [point.labels for point in log.points] == [{"side": "server"}, {"side": "client"}]
    commands = ["$ fi_pingpong -p tcp -e rdm", *pair[:2], "$ fi_pingpong -p tcp -e rdm 10.0.0.1", *pair[3:]]
    log = read_one(commands)
    assert [point.labels["side"] for point in log.points] == ["server", "client"]


def test_three_commands_are_three_executions() -> None:
    lines = [
        *["u@h:~$ bin/fi_pingpong -p tcp -e rdm", *table(row(64, 10, "3.00"))],
        *["u@h:~$ bin/fi_pingpong -p tcp -e msg", *table(row(64, 10, "2.00"))],
        *["u@h:~$ bin/fi_pingpong -p tcp -e msg -d eno1", "fi_getinfo(): util/pingpong.c:1433, ret=-61 (No d"],
    ]
    assert [log.outcome for log in read_lines(lines)] == ["ok", "ok", "failed"]


def test_ranks() -> None:
    lines = [
        "[rank 0] Running: /opt/amazon/efa/bin/fi_pingpong -p efa",
        "[rank 1] Running: /opt/amazon/efa/bin/fi_pingpong -p efa 10.100.0.1",
        *[f"[rank 1] {line}" for line in table(row(64, 10, "3.00"))],
        *[f"[rank 0] {line}" for line in table(row(64, 10, "3.25"))],
    ]
    log = read_one(lines)
    assert [point.labels for point in log.points] == [{"side": "client", "rank": "1"}, {"side": "server", "rank": "0"}]


def test_a_pair_on_two_pods() -> None:
    lines = [
        *[f"[pod/server/main] {line}" for line in table(row(64, 10, "3.00"))],
        *[f"[pod/client/main] {line}" for line in table(row(64, 10, "3.25"))],
    ]
    assert len(read_one(lines).points) == 2


def test_a_table_inside_json() -> None:
    text = json.dumps({"raw_output": "\n".join([*table(row(64, 10, "3.00"), row(256, 10, "4.00")), ""])})
    assert [point.size for point in read_one([text]).points] == [64, 256]


@pytest.mark.parametrize(
    "line",
    [
        "Localhost fi_pingpong test: Attempt 1 (max 3)...",
        "fi_pingpong: SUCCESS!",
        "We ran fi_pingpong on both hosts.",
        "fi_pingpong",
        "See $ fi_pingpong -p efa and its table",
        "bytes sent",
    ],
)
def test_what_only_names_the_program_is_no_execution(line: str) -> None:
    assert read_lines([line]) == []


# ---------------------------------------------------------------- fabbench's own logs


def step(number: int, size: int, iterations: int, *, sides: str = "sc", status: int | None = 0) -> list[str]:
    """The lines of one step, with what each side said under -v."""
    facts: dict[str, str | int] = {"benchmark": "pingpong", "size": size, "iterations": iterations}
    lines = [begin_marker(f"00{number}-tcp-r1/{size}", {**facts, "endpoint": "msg"})]
    for side in (name for name in ("server", "client") if name[0] in sides):
        verbose = (LOGS / f"tcp-msg-d-ignored.{side}.txt").read_text().splitlines()
        lines += [tag_line(side, line) for line in verbose if line.startswith(("[debug]", " ", "fi_info", "nic"))]
        lines += [tag_line(side, line) for line in table(row(size, iterations, "12.50"))]
    return [*lines, end_marker(f"00{number}-tcp-r1/{size}", status)] if status is not None else lines


PLANNED = Ending(status=0, planned_sizes=(64, 1500))


def test_all_steps_of_an_execution_are_one_log() -> None:
    log = read_one([*step(0, 64, 9000), *step(0, 1500, 1234)], Proof(fabric="tcp"), PLANNED)
    assert (log.outcome, log.reason) == (Outcome.OK, None)
    assert [(point.size, point.labels["side"]) for point in log.points] == [
        (64, "server"),
        (64, "client"),
        (1500, "server"),
        (1500, "client"),
    ]
    assert (log.facts["provider"], log.facts["domain"], log.facts["complete"]) == ("tcp", "fab1", "yes")
    assert log.facts["source_address"] == "198.18.2.11"  # as the client says


def test_the_next_execution_is_the_next_log() -> None:
    assert len(read_lines([*step(0, 64, 10), *step(1, 64, 10)])) == 2


def test_a_step_that_fails() -> None:
    log = read_one([*step(0, 64, 10), *step(0, 1500, 10, sides="s", status=103)])
    assert log.outcome is Outcome.FAILED
    assert log.reason == "pingpong exited with status 103 in step 1500."
    assert len(log.points) == 3


def test_a_step_without_its_end_is_truncated() -> None:
    log = read_one([*step(0, 64, 10), *step(0, 1500, 10, status=None)])
    assert log.outcome is Outcome.TRUNCATED


def test_a_size_that_was_planned_and_is_missing() -> None:
    log = read_one(step(0, 64, 10), None, PLANNED)
    assert (log.outcome, log.reason) == (Outcome.TRUNCATED, "Planned but not measured: 1500 B.")


def test_sides_that_disagree() -> None:
    lines = [*step(0, 64, 10), *step(0, 1500, 10)]
    changed = [
        line.replace("prov_name: tcp", "prov_name: sockets").replace("name: fab1", "name: fab0")
        if line.startswith("[fabbench:client]")
        else line
        for line in lines
    ]
    log = read_one(changed, Proof(fabric="tcp"))
    assert (log.outcome, log.reason) == (Outcome.OFF_FABRIC, "tcp was requested, but mixed carried the data.")
    assert [finding.code for finding in log.findings] == ["mixed-provider", "mixed-domain"]
    assert log.facts["provider"] == "tcp, sockets"


def test_the_cause_comes_before_its_echo() -> None:
    lines = [
        begin_marker("000-efa-r1/64", {"benchmark": "pingpong", "size": 64}),
        tag_line("client", "[error] util/pingpong.c:568 : ctrl/read: no data or remote connection closed"),
        tag_line("server", "fi_getinfo(): util/pingpong.c:1489, ret=-61 (No data available)"),
        end_marker("000-efa-r1/64", 103),
    ]
    log = read_one(lines)
    assert log.reason == FAILED["efa-absent.server"]


def test_wrong_data_in_a_step_is_corrupt() -> None:
    lines = step(0, 64, 10)
    lines.insert(-1, tag_line("client", "Error at iteration=1 size=64 byte=0"))
    assert read_one(lines).outcome is Outcome.CORRUPT


@cache
def own_log() -> tuple[list[str], list[Point]]:
    lines = [*step(0, 64, 9000), *step(0, 1500, 1234)]
    return lines, list(read_one(lines).points)


@given(st.integers(0, 4000))
def test_our_own_log_cut_anywhere(at: int) -> None:
    lines, complete = own_log()
    text = "\n".join(lines)
    at = len(text) - min(at, len(text))
    kept = text[:at].split("\n")
    whole_rows = sum(
        line.split()[1:] in [row(64, 9000, "12.50").split(), row(1500, 1234, "12.50").split()] for line in kept
    )
    found = read_lines(kept, Proof(fabric="tcp"), Ending(stopped="stopped"))
    assert [point for log in found for point in log.points] == complete[:whole_rows]
    assert all(log.outcome is not Outcome.OK for log in found)


def test_the_header_is_known() -> None:
    assert tuple(HEADER_LINE.split()) == HEADER


@given(st.data())
def test_noise_around_rows_changes_nothing(data: st.DataObject) -> None:
    """Lines of other programs between the lines of a table: every row is still there, exactly once."""
    lines = table(*[row(1 << power, 10, f"{power}.25") for power in range(8)])
    noise = st.sampled_from(
        [
            "node1:12:34 [0] NCCL INFO Using network Socket",
            "libfabric:5144:1700000000::core:core:fi_getinfo_():1234<warn> no",
            "[debug] util/pingpong.c:697 : Syncing nodes",
            "mpirun: this is fine",
            "",
            "    indented: text",
        ]
    )
    noisy = [text for line in lines for text in (*data.draw(st.lists(noise, max_size=3)), line)]
    log = read_one(noisy)
    assert log.points == read_one(lines).points
    assert log.outcome is Outcome.OK


@given(st.binary(max_size=2000), st.sampled_from(sorted(LOGS.glob("*.txt"))), st.data())
def test_real_logs_with_bytes_replaced(noise: bytes, path: Path, data: st.DataObject) -> None:
    """Never an exception; and no row that the damaged text does not print."""
    raw = path.read_bytes()[-4000:]
    at = data.draw(st.integers(0, len(raw)))
    text = (raw[:at] + noise + raw[at + data.draw(st.integers(0, 40)) :]).decode("utf-8", "replace")
    # A row torn by a line's end is put together again: so the undamaged log's rows count as printed, too.
    lines = [*text.replace("\\n", "\n").split("\n"), *raw.decode().split("\n")]
    printed = {each.latency for line in lines if (each := read_row(line))}
    figures = {float(f"{latency}e-6") for latency in printed if latency[0].isdigit()}
    for log in read_lines(text.split("\n")):
        for point in log.points:
            assert set(point.values[:1] if "latency" in point.metrics else ()) <= figures
