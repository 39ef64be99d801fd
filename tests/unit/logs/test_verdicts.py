"""Logs whose verdict was once wrong: each with the right outcome, cases and findings. By kind."""

from dataclasses import replace

import pytest

from fabbench.analysis.aggregate import Column
from fabbench.analysis.compare import compare
from fabbench.model.errors import RequestError
from fabbench.model.log import Log, Outcome, Proof
from fabbench.runs.parse_file import parse_file
from tests.support.paths import DATA
from tests.support.read_logs import read

FOLDER = DATA / "verdicts"


def logs_of(name: str, fabric: str = "") -> tuple[Log, ...]:
    return tuple(parse_file(FOLDER / name, proof=Proof(fabric=fabric) if fabric else None))


@pytest.mark.parametrize(
    ("name", "outcome", "reason"),
    [
        ("03-socket-reset.txt", "failed", "could not reach another one over a socket"),
        ("04-nvls-401.txt", "failed", "Cuda failure 401"),
        ("05-efa-unresponsive.txt", "failed", "EFA packets do not reach the peer"),
        ("06-ibv-create-qp.txt", "failed", "Memory could not be locked"),
        ("07-ibv-reg-mr.txt", "failed", "Memory could not be locked"),
        ("08-duplicate-gpu.txt", "failed", "Two ranks use the same GPU"),
        ("09-port-error.txt", "failed", "A port or a NIC failed"),
        ("10-topo-arch.txt", "failed", "Attribute arch of node cpu not found"),
        ("12-torch-watchdog.txt", "timeout", "SeqNum=1580, OpType=ALLREDUCE, NumelIn=466119168"),
        ("13-torch-disterror.txt", "failed", "Two ranks use the same GPU"),
        ("torch-sleep.log", "timeout", "SeqNum=4, OpType=ALLREDUCE, NumelIn=16777216"),
        ("torch-raise.log", "failed", "[rank1]: RuntimeError: loss is nan"),
        ("torch-dupgpu.log", "failed", "Two ranks use the same GPU"),
        ("nt-noplugin.log", "failed", "could not be loaded"),
        ("nt-killed-tcp.log", "failed", "rank 1 with PID 2228 on node vm exited on signal 9 (Killed)."),
        ("tool-01.txt", "failed", "MPI_ERR_TRUNCATE: message truncated"),
        ("tool-02.txt", "failed", "OFI poll failed"),
        ("tool-03.txt", "failed", "No components were able to be opened in the pml framework."),
        ("tool-04.txt", "failed", "process rank 1 with PID 0 on node vm exiting improperly"),
        ("tool-26.txt", "failed", "MPI_ERRORS_ARE_FATAL"),
        ("tool-27.txt", "failed", "command terminated with exit code 137"),
    ],
)
def test_a_run_that_died_is_never_ok(name: str, outcome: str, reason: str) -> None:
    (log,) = logs_of(name)
    assert (log.outcome, reason in (log.reason or "")) == (outcome, True), log.reason


def test_a_network_that_was_asked_for_and_not_found_carried_nothing() -> None:
    (log,) = logs_of("nt-noplugin.log")
    assert "network" not in log.facts
    assert log.facts["transport"] == "unknown"


@pytest.mark.parametrize("name", ["01a-two-commands-base.txt", "01b-two-commands-new.txt"])
def test_a_run_is_named_by_the_command_line_above_it(name: str) -> None:
    assert [log.case for log in logs_of(name)] == ["all_reduce", "reduce_scatter"]


@pytest.mark.parametrize(
    ("name", "case"), [("02-unnamed-vs-named.txt", "reduce_scatter"), ("26-sendrecv-rows.txt", "sendrecv")]
)
def test_a_run_without_a_command_line_is_named_by_what_is_unique(name: str, case: str) -> None:
    assert [(log.case, log.outcome) for log in logs_of(name)] == [(case, Outcome.OK)]


def test_sections_without_headers_are_separate_runs() -> None:
    first, second = logs_of("15-headerless-loop.txt")
    assert first.outcome is second.outcome is Outcome.OK
    assert len(first.points) == len(second.points) == 4


@pytest.mark.parametrize(
    ("name", "fabric", "alone", "finding"),
    [
        ("proof-04.txt", "efa", Outcome.OFF_FABRIC, "nics-unused"),  # channels over 1 of 4 NICs
        ("proof-23.txt", "ib", Outcome.OFF_FABRIC, "nics-unused"),  # channels over 1 of 8 HCAs
        ("proof-08.txt", "efa", Outcome.OFF_FABRIC, "networks-disagree"),  # one process on sockets
        ("proof-26.txt", "efa", Outcome.OK, "one-machine"),  # two names of one machine
        ("18-fewer-nics-on-one-rank.txt", "roce", Outcome.OBSERVED, "nics-disagree"),
        ("30-ofi-tcp-provider.txt", "efa", Outcome.TRUNCATED, "provider-not-efa"),
        ("tool-15.txt", "roce", Outcome.OK, None),  # iWARP
    ],
)
def test_what_contradicts_a_fabric_is_not_ok_and_told_without_it(
    name: str, fabric: str, alone: Outcome, finding: str | None
) -> None:
    (log,) = logs_of(name, fabric)
    assert Outcome.OFF_FABRIC in {log.outcome, *log.also}
    (log,) = logs_of(name)
    assert log.outcome is alone
    assert finding is None or finding in {each.code for each in log.findings}


def test_efa_and_efa_direct_are_one_network() -> None:
    (log,) = logs_of("proof-32.txt", "efa")
    assert (log.outcome, log.facts["transport"]) == (Outcome.OK, "efa")


def test_a_suffix_of_ray_is_no_part_of_a_network_s_name() -> None:
    for log in logs_of("14-ray-repeated.txt"):
        assert (log.outcome, log.findings) == (Outcome.OBSERVED, ())
    assert log.facts["network"] == "socket"


def test_advice_about_efa_is_given_only_where_efa_is_meant() -> None:
    (log,) = logs_of("19-ibext-on-nvlink-node.txt")
    assert not any("efa" in f"{finding.advice}{finding.meaning}".lower() for finding in log.findings)


@pytest.mark.parametrize("name", ["proof-05.txt", "proof-06.txt"])
def test_gpudirect_that_is_off_is_a_finding(name: str) -> None:
    (log,) = logs_of(name, "efa")
    assert [finding.code for finding in log.findings] == ["gdr-off"]


def test_rows_whose_factor_is_not_that_of_the_ranks_are_of_another_run() -> None:
    (log,) = logs_of("proof-21b.txt")
    assert log.outcome is Outcome.TRUNCATED


def test_what_is_rounded_as_a_c_float_is_a_valid_row() -> None:
    (log,) = logs_of("tool-07.txt")
    assert (log.outcome, len(log.points)) == (Outcome.OK, 3)


def test_decimal_gigabytes_of_nccom_are_read() -> None:
    (log,) = logs_of("tool-05.txt")
    assert (log.outcome, len(log.points)) == (Outcome.OK, 3)
    assert log.points[-1].values[1:] == pytest.approx((19.10e9, 37.01e9))


def test_what_open_mpi_s_help_system_logs_is_no_failure() -> None:
    (log,) = logs_of("21-cliff-in-table.txt")
    assert log.outcome is Outcome.OK


COUNTERS = """
MPICH Slingshot CXI Counter Summary:
Counter                             Samples          Min     (/s)         Mean     (/s)          Max     (/s)
CQ_CQ_OXE_NUM_STALLS_0                    8            0      0.0        12345     12.3        98765     45.6
HNI_TX_PAUSED_0                           8         1024      1.5         2048      2.5         4096      3.5
"""


@pytest.mark.parametrize("name", ["02-unnamed-vs-named.txt", "tool-27.txt"])
def test_counters_below_a_table_are_no_rows(name: str) -> None:
    text = (FOLDER / name).read_text().replace("command terminated with exit code 137", "")
    (log,) = read(text + COUNTERS)
    assert (log.outcome, log.damaged) == (Outcome.OK, ())


@pytest.mark.parametrize(
    ("command", "outcome"),
    [
        ("$ mpirun -np 2 ./osu_latency", Outcome.TRUNCATED),
        ("+ srun osu_latency -m 4:8", Outcome.TRUNCATED),
        ("$ mpirun -np 2 ./osu_latency -m 1", Outcome.OK),
        ("", Outcome.OK),
    ],
)
def test_a_table_without_closing_lines_that_ends_before_its_command_does_is_truncated(
    command: str, outcome: Outcome
) -> None:
    table = "# OSU MPI Latency Test v5.6.2\n# Size    Latency (us)\n0          1.21\n1          1.25\n"
    assert [log.outcome for log in read(f"{command}\n{table}")] == [outcome]


def test_an_unknown_case_is_not_compared_as_a_known_one() -> None:
    named = Column(label="a", source="a", logs=logs_of("01a-two-commands-base.txt")[:1])
    unnamed = Column(label="b", source="b", logs=tuple(replace(log, case=None) for log in named.logs))
    with pytest.raises(RequestError, match="case"):
        compare([named, unnamed])
    both = Column(label="c", source="c", logs=(*named.logs, *unnamed.logs))
    assert [section.key["case"] for section in compare([both, both]).sections] == ["all_reduce", "unknown"]


def test_runs_over_different_networks_are_no_repeats() -> None:
    runs = {"efa": "01a-two-commands-base.txt", "socket": "01b-two-commands-new.txt"}
    logs = [(logs_of(name)[0], network) for network, name in runs.items()]
    over = tuple(replace(log, facts={**log.facts, "transport": network}) for log, network in logs)
    column = Column(label="a", source="a", logs=over)
    assert [section.key["transport"] for section in compare([column, column]).sections] == [*runs]
