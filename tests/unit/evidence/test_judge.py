"""Each rule by which a record of an execution becomes a verdict, by records written by hand."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from fabbench.evidence.judge import judge, refusal, with_slower_paths
from fabbench.evidence.known_errors import finding
from fabbench.model.log import (
    MPI_DEBUG,
    NCCL_DEBUG,
    Damaged,
    Ending,
    Finding,
    Log,
    Outcome,
    Point,
    Proof,
    Record,
    Severity,
)

ROW = Point(1024, {}, ("busbw",), (1e9,))
LARGER = Point(2048, {}, ("busbw",), (2e9,))
EFA = Proof(fabric="efa")


def error(code: str) -> Finding:
    return Finding(code=code, severity=Severity.ERROR, meaning=f"{code} is meant.")


def note(code: str, line: str = "") -> Finding:
    return Finding(code=code, severity=Severity.WARNING, meaning=f"{code} is meant.", line=line)


def whole(**changes: Any) -> Record:
    """A complete table of nccl-tests, with nothing wrong."""
    parts: dict[str, Any] = {"points": [ROW, LARGER], "finished": True}
    parts |= {"benchmark": "nccl", "case": "all_reduce"} | changes
    return Record(**parts)


def judged(
    record: Record, proof: Proof | None = None, ending: Ending | None = None
) -> tuple[str, str]:
    """Return the outcome and the reason."""
    log = judge(record, source="x", proof=proof, ending=ending)
    return log.outcome.value, log.reason or ""


def of(facts: Mapping[str, Any], proof: Proof | None = None) -> Log:
    """Judge a complete table that states these facts."""
    return judge(whole(facts=dict(facts)), source="x", proof=proof)


def codes(log: Log) -> list[str]:
    return [each.code for each in log.findings]


# ---------------------------------------------------------------- how it ended


@pytest.mark.parametrize(
    ("changes", "ending", "outcome", "reason"),
    [
        ({}, None, "ok", ""),
        ({}, Ending(status=0), "ok", ""),
        ({"wrong": 1}, None, "corrupt", "1 failed check."),
        ({"wrong": 3}, None, "corrupt", "3 failed checks."),
        ({"timed_out": "It hung."}, None, "timeout", "It hung. The last row is of 2 KB."),
        ({"timed_out": "It hung.", "points": []}, None, "timeout", "It hung."),
        # What the watchdog says is said after the program's own words.
        ({"timed_out": "It hung."}, Ending(timed_out="3 s."), "timeout", "3 s. The last row"),
        ({"failures": ["It broke.", "So did this."]}, None, "failed", "It broke."),
        ({"findings": [error("xid")]}, None, "failed", "xid is meant."),
        ({"findings": [note("xid")]}, None, "ok", ""),
        ({}, Ending(status=7), "failed", "status 7"),
        # What carried the data ended no run: it was another fabric.
        ({"findings": [error("nics-disagree")]}, None, "off-fabric", "nics-disagree is meant."),
        ({}, Ending(stopped="It was interrupted."), "truncated", "It was interrupted."),
        ({"finished": False}, None, "truncated", "closing lines"),
        ({"finished": None}, None, "ok", ""),
        ({"incomplete": "A table is missing."}, None, "truncated", "A table is missing."),
        ({"points": []}, None, "truncated", "before the first result"),
        ({"points": [], "benchmark": None}, None, "truncated", "no benchmark output"),
        ({"points": [Point(8, {}, (), ())]}, None, "truncated", "No row has a usable value."),
        ({}, Ending(planned_sizes=(1024, 2048)), "ok", ""),
        ({}, Ending(planned_sizes=(4096, 2048, 512)), "truncated", "measured: 512 B, 4 KB."),
        ({"off_fabric": "mlx5_1 was used."}, None, "off-fabric", "mlx5_1 was used."),
        ({"lost_fabric": "efa was lost."}, None, "off-fabric", "efa was lost."),
        ({}, Ending(refused="tcp is used."), "off-fabric", "tcp is used."),
    ],
)
def test_what_ended_an_execution_is_its_outcome_and_reason(
    changes: Mapping[str, Any], ending: Ending | None, outcome: str, reason: str
) -> None:
    found, said = judged(whole(**changes), ending=ending)
    assert found == outcome
    assert reason in said
    assert bool(said) is (outcome != "ok")


def test_the_gravest_outcome_is_said_and_others_apply_too() -> None:
    """What fabbench itself refused comes before what followed from it."""
    worst = whole(
        wrong=1, timed_out="It hung.", failures=["It broke."], finished=False, off_fabric="tcp."
    )
    log = judge(worst, source="x")
    assert log.outcome is Outcome.CORRUPT
    assert log.also == {Outcome.TIMEOUT, Outcome.FAILED, Outcome.TRUNCATED, Outcome.OFF_FABRIC}
    assert judge(whole(), source="x").also == frozenset()
    refused = judge(worst, source="x", ending=Ending(refused="tcp is used."))
    assert (refused.outcome, Outcome.OFF_FABRIC in refused.also) == (Outcome.CORRUPT, True)
    cut = judge(whole(timed_out="It hung."), source="x", ending=Ending(refused="tcp is used."))
    assert cut.outcome is Outcome.OFF_FABRIC
    assert cut.also == {Outcome.TIMEOUT}


def test_a_log_has_what_its_record_has() -> None:
    record = whole(
        facts={"ranks": 16},
        evidence={"ranks": "16 ranks"},
        hosts=frozenset({"a"}),
        execution="000-efa-r1",
        findings=[note("xid")],
        damaged=[Damaged(7, "…")],
    )
    log = judge(record, source="x.log", proof=EFA)
    assert (log.source, log.benchmark, log.case) == ("x.log", "nccl", "all_reduce")
    assert (log.points, log.damaged) == ([ROW, LARGER], (Damaged(7, "…"),))
    assert (log.evidence, log.hosts, log.execution) == (
        record.evidence,
        record.hosts,
        record.execution,
    )
    assert (log.facts["ranks"], codes(log), log.proof) == (16, ["xid"], EFA)


@pytest.mark.parametrize(
    ("count", "said"),
    [
        (1, "1 row could not be read or trusted (line 1)."),
        (5, "5 rows could not be read or trusted (line 1, 2, 3, 4, 5)."),
        (6, "6 rows could not be read or trusted (line 1, 2, 3, 4, 5 …)."),
    ],
)
def test_rows_that_cannot_be_read_are_named_by_their_first_five_lines(
    count: int, said: str
) -> None:
    damaged = [Damaged(line, "…") for line in range(1, count + 1)]
    assert judged(whole(damaged=damaged)) == ("truncated", said)


@pytest.mark.parametrize(
    ("side", "outcome"), [("client", "truncated"), ("server", "ok"), ("", "ok")]
)
def test_of_a_pair_the_clients_rows_are_the_headline(side: str, outcome: str) -> None:
    empty = Point(1024, {"side": side}, (), ())
    assert judged(whole(points=[empty, ROW]))[0] == outcome


def test_a_clock_that_the_program_could_not_measure_is_why_no_row_has_a_value() -> None:
    record = whole(points=[Point(8, {}, (), ())], findings=[note("clock-unmeasured", "No clock!")])
    assert judged(record) == ("truncated", "No row has a usable value: No clock!.")


# ---------------------------------------------------------------- logs of no benchmark


@pytest.mark.parametrize(
    ("changes", "outcome", "said"),
    [
        ({"case": NCCL_DEBUG}, "observed", "NCCL's debug lines do not show the network;"),
        (
            {"case": NCCL_DEBUG, "facts": {"network": "efa"}},
            "observed",
            "NCCL's debug lines show the network;",
        ),
        (
            {"case": NCCL_DEBUG, "facts": {"transport": "efa"}},
            "observed",
            "NCCL's debug lines show the network;",
        ),
        ({"case": MPI_DEBUG}, "observed", "MPI's, UCX's or libfabric's debug lines do not show"),
        ({"findings": [note("counters")]}, "observed", "NIC counters, and none known to count"),
        (
            {"findings": [note("counters"), note("counted-errors")]},
            "observed",
            "This is a report of NIC counters.",
        ),
        # With anything else it is a log of which the benchmark is missing.
        ({"findings": [note("counters"), note("xid")]}, "truncated", "no benchmark output"),
        ({"findings": []}, "truncated", "no benchmark output"),
        ({"benchmark": "nccl", "findings": [note("counters")]}, "truncated", "the first result"),
    ],
)
def test_a_log_of_no_benchmark_misses_no_result(
    changes: Mapping[str, Any], outcome: str, said: str
) -> None:
    nothing: dict[str, Any] = {"benchmark": None, "case": None, "points": [], "finished": None}
    found, reason = judged(whole(**{**nothing, **changes}))
    assert found == outcome
    assert said in reason


@pytest.mark.parametrize(
    ("code", "is_bad"),
    [
        ("counters", False),
        ("counters-unjudged", False),
        ("counted-errors", True),
        ("nic-paused", True),
        ("nic-unmarked", True),
        ("nic-pausing", True),
        ("nic-marked", True),
        ("nic-slowed", True),
        ("nic-waited", True),
    ],
)
def test_pasted_counters_are_a_report_whatever_they_show(code: str, is_bad: bool) -> None:
    outcome, reason = judged(Record(benchmark=None, findings=[note("counters"), note(code)]))
    assert outcome == "observed"
    assert ("none known" in reason) is not is_bad


def test_what_fabbench_started_is_a_benchmark_and_not_observed() -> None:
    debug = Record(benchmark=None, case=NCCL_DEBUG)
    assert judged(debug)[0] == "observed"
    assert judged(debug, ending=Ending(status=0))[0] == "truncated"


def test_counters_are_a_report_and_no_finding_among_others() -> None:
    log = judge(Record(benchmark=None, findings=[note("counters")]), source="x")
    assert (log.facts["report"], codes(log)) == ("NIC counters", [])
    assert "report" not in judge(whole(), source="x").facts


@pytest.mark.parametrize(
    ("record", "ending", "complete"),
    [
        (whole(), None, "yes"),
        (whole(), Ending(status=0), "yes"),
        (whole(finished=False), None, "no"),
        (whole(timed_out="It hung."), None, "no"),
        (whole(incomplete="Something is missing."), None, "no"),
        # Without closing lines, and with nothing that says where it ended, nobody knows.
        (whole(finished=None), None, "unknown"),
        (whole(finished=None), Ending(status=0), "yes"),
        (whole(finished=None, points=[]), None, "no"),
        (whole(finished=None, damaged=[Damaged(1, "…")]), None, "no"),
        (whole(finished=None, incomplete="Something is missing."), None, "no"),
        (Record(benchmark=None, case=NCCL_DEBUG), None, "unknown"),
    ],
)
def test_whether_a_log_is_complete(record: Record, ending: Ending | None, complete: str) -> None:
    assert judge(record, source="x", ending=ending).facts["complete"] == complete


@pytest.mark.parametrize("by_program", [True, False])
def test_a_failure_of_what_was_lost_is_its_environments(by_program: bool) -> None:
    record = whole(failures=["It broke."], lost=by_program)
    assert judge(record, source="x", ending=Ending(lost=not by_program)).lost
    assert not judge(record, source="x").lost
    assert not judge(replace(record, lost=False), source="x", ending=Ending()).lost


# ---------------------------------------------------------------- what carried the data


@pytest.mark.parametrize(
    ("fabric", "facts", "outcome", "said"),
    [
        ("efa", {"transport": "efa"}, "ok", ""),
        ("efa", {"transport": "socket"}, "off-fabric", "but socket carried the data"),
        ("efa", {}, "unproven", "does not show what carried the data"),
        ("efa", {"transport": "libfabric"}, "unproven", "which libfabric provider"),
        ("ib", {"transport": "libfabric"}, "off-fabric", "but libfabric carried the data"),
        ("efa", {"network": "socket"}, "off-fabric", "the library chose socket"),
        ("efa", {"network": "efa"}, "unproven", "does not show what carried the data"),
        ("efa", {"transport": "efa", "network": "socket"}, "ok", ""),
        # These need no network: the one that was chosen says nothing.
        ("p2p", {"network": "socket"}, "unproven", "does not show what carried the data"),
        ("roce", {"transport": "ib", "link": "RoCE"}, "ok", ""),
        ("roce", {"transport": "ib", "link": "IB"}, "off-fabric", "the link of the NICs was IB"),
        ("ib", {"transport": "ib", "link": "RoCE"}, "off-fabric", "the link of the NICs was RoCE"),
        ("ib", {"transport": "ib", "link": "IB+RoCE"}, "ok", ""),
        ("ib", {"transport": "ib", "link": "Ethernet"}, "off-fabric", "NICs was Ethernet"),
        ("roce", {"transport": "ib", "link": "Ethernet"}, "ok", ""),
        ("ib", {"transport": "ib", "link": "InfiniBand"}, "ok", ""),
        ("roce", {"transport": "ib", "link": "InfiniBand"}, "off-fabric", "was InfiniBand"),
        ("ib", {"transport": "ib", "link": "Other"}, "ok", ""),
        ("ib", {"transport": "ib"}, "ok", ""),
        ("efa", {"transport": "efa", "link": "IB"}, "ok", ""),
        ("", {"transport": "socket"}, "ok", ""),
    ],
)
def test_what_carried_the_data_is_what_was_requested(
    fabric: str, facts: Mapping[str, str], outcome: str, said: str
) -> None:
    log = of(facts, Proof(fabric=fabric))
    assert log.outcome == outcome
    assert said in (log.reason or "")


def test_a_log_that_shows_a_lost_fabric_is_judged_by_the_requested_one() -> None:
    record = whole(facts={"transport": "socket"}, lost_fabric="efa was lost.")
    assert judged(record, Proof(fabric="tcp")) == ("ok", "")
    assert judged(record, Proof())[0] == "off-fabric"


def test_what_is_wrong_comes_before_what_is_unknown() -> None:
    proof = Proof(fabric="efa", domain="rdmap0s6-rdm")
    log = of({"domain": "rdmap0s9-rdm"}, proof)
    assert log.outcome is Outcome.OFF_FABRIC
    assert "rdmap0s9-rdm was used" in (log.reason or "")
    assert log.also == {Outcome.UNPROVEN}


@pytest.mark.parametrize(
    ("domain", "outcome", "said"),
    [
        ("rdmap0s6-rdm", "ok", ""),
        ("rdmap0s9-rdm", "off-fabric", "but rdmap0s9-rdm was used"),
        ("", "unproven", "does not show which was used"),
    ],
)
def test_the_domain_is_the_requested_one(domain: str, outcome: str, said: str) -> None:
    facts = {"transport": "efa"} | ({"domain": domain} if domain else {})
    log = of(facts, Proof(fabric="efa", domain="rdmap0s6-rdm"))
    assert log.outcome == outcome
    assert said in (log.reason or "")
    assert of({"transport": "efa", "domain": "any"}, EFA).outcome is Outcome.OK


@pytest.mark.parametrize(
    ("facts", "proof", "said"),
    [
        ({"nics": 4}, Proof(fabric="efa", nics=4), ""),
        ({"nics": 3}, Proof(fabric="efa", nics=4), "efa was requested with 4 NICs per rank, but 3"),
        ({"nics": 1}, Proof(fabric="efa", nics=4), "but 1 was used"),
        ({}, Proof(fabric="efa", nics=4), ""),
        # 0: any number.
        ({"nics": 0}, Proof(fabric="efa", nics=0), ""),
        # Without a number, that of the instance type; of several valid ones the least.
        ({"nics": 3, "instance_type": "p4d.24xlarge"}, EFA, "p4d.24xlarge has 4 EFA interfaces"),
        ({"nics": 4, "instance_type": "p4d.24xlarge"}, EFA, ""),
        ({"nics": 3}, Proof(fabric="efa", instance_type="p4d.24xlarge"), "has 4 EFA interfaces"),
        ({"nics": 3, "instance_type": "p4d.24xlarge"}, None, "has 4 EFA interfaces"),
        ({"nics": 1, "instance_type": "unknown.24xlarge"}, EFA, ""),
        ({"nics": 1, "instance_type": "h100-ib"}, EFA, ""),
        ({"nics": 1}, EFA, ""),
        ({"nics": 0}, EFA, ""),
        ({"nics": 4, "instance_type": "p6e-gb200.36xlarge"}, EFA, ""),
        ({"nics": 3, "instance_type": "p6e-gb200.36xlarge"}, EFA, "has 4 EFA interfaces"),
        # Without a fabric, what must be shown counts where EFA is used.
        ({"nics": 1}, Proof(nics=2), "The log must show 2 NICs per rank, but 1 was used"),
        ({"nics": 1, "network": "ib"}, Proof(nics=2), ""),
        ({"nics": 0, "network": "ib"}, None, ""),
    ],
)
def test_each_rank_uses_as_many_nics_as_it_must(
    facts: Mapping[str, Any], proof: Proof | None, said: str
) -> None:
    log = of({"transport": "efa", "network": "efa", **facts}, proof)
    assert log.outcome is (Outcome.OFF_FABRIC if said else Outcome.OK)
    assert said in (log.reason or "")


def test_an_instance_type_counts_interfaces_of_efa_alone() -> None:
    facts = {"transport": "ib", "network": "ib", "nics": 1, "instance_type": "p4d.24xlarge"}
    assert of(facts, Proof(fabric="ib")).outcome is Outcome.OK


@pytest.mark.parametrize(
    ("facts", "devices", "outcome", "said"),
    [
        ({"nics": 1, "devices": "mlx5_1"}, ("mlx5_1",), "ok", ""),
        ({"nics": 2, "devices": "mlx5_1+mlx5_2"}, ("mlx5_1", "mlx5_2", "mlx5_3"), "ok", ""),
        ({"nics": 1, "devices": "mlx5_2"}, ("mlx5_1",), "off-fabric", "mlx5_1, but used mlx5_2"),
        ({"nics": 2}, ("rdmap0s6",), "off-fabric", "but used 2 NICs"),
        ({"nics": 1}, ("rdmap0s6",), "ok", ""),
        ({}, ("rdmap0s6",), "unproven", "does not show which NICs were used"),
        ({}, (), "ok", ""),
    ],
)  # fmt: skip
def test_ranks_use_only_the_nics_that_were_chosen(
    facts: Mapping[str, Any], devices: tuple[str, ...], outcome: str, said: str
) -> None:
    log = of(facts, Proof(devices=devices))
    assert log.outcome == outcome
    assert said in (log.reason or "")


@pytest.mark.parametrize(
    ("severity", "nics", "proof", "outcome"),
    [
        # An error always contradicts a fabric, and a warning where nothing shows enough NICs.
        (Severity.ERROR, None, None, Outcome.OFF_FABRIC),
        (Severity.WARNING, None, None, Outcome.OK),
        (Severity.WARNING, None, EFA, Outcome.OFF_FABRIC),
        (Severity.WARNING, 4, EFA, Outcome.OFF_FABRIC),
        (Severity.WARNING, 4, Proof(fabric="efa", nics=4), Outcome.OK),
        (Severity.WARNING, 4, Proof(nics=4), Outcome.OK),
        (Severity.WARNING, None, Proof(fabric="efa", nics=4), Outcome.OFF_FABRIC),
        (Severity.ERROR, 4, Proof(fabric="efa", nics=4), Outcome.OFF_FABRIC),
    ],
)
@pytest.mark.parametrize(
    "code", ["networks-disagree", "nics-disagree", "nics-unused", "mixed-provider"]
)
def test_findings_about_what_carried_the_data_contradict_a_fabric(
    code: str, severity: Severity, nics: int | None, proof: Proof | None, outcome: Outcome
) -> None:
    facts = {"transport": "efa"} | ({"nics": nics} if nics else {})
    found = replace(error(code), severity=severity)
    log = judge(whole(facts=facts, findings=[found]), source="x", proof=proof)
    assert log.outcome is outcome


# ---------------------------------------------------------------- findings


@pytest.mark.parametrize(
    ("facts", "proof", "said"),
    [
        ({}, None, []),
        ({"network": "efa", "nics": 4}, None, ["nics-unchecked"]),
        ({"network": "efa", "nics": 4}, Proof(instance_type="p4d.24xlarge"), []),
        ({"network": "efa", "nics": 4, "instance_type": "p4d.24xlarge"}, None, []),
        ({"network": "efa", "nics": 4}, Proof(nics=4), []),
        ({"network": "efa"}, None, []),
        ({"network": "ib", "nics": 4}, None, []),
        ({"transport": "libfabric-tcp"}, None, ["provider-not-efa"]),
        ({"transport": "libfabric-tcp"}, Proof(), ["provider-not-efa"]),
        ({"transport": "libfabric-tcp"}, Proof(fabric="ofi-tcp"), []),
        ({"transport": "efa", "gdr": "no"}, None, ["gdr-off"]),
        ({"iterations": 1, "warmup": 0}, None, ["one-iteration"]),
        ({"iterations": 1, "warmup": 1}, None, []),
        ({"iterations": 20, "warmup": 0}, None, []),
        ({"iterations": 2, "warmup": 0}, None, []),
        ({"iterations": 0, "warmup": 5}, None, ["no-iterations"]),
        (
            {"instance_type": "p5.48xlarge"},
            Proof(instance_type="p4d.24xlarge"),
            ["instance-type-differs"],
        ),
        ({"instance_type": "p5.48xlarge"}, Proof(instance_type="p5.48xlarge"), []),
        ({"instance_type": "p5.48xlarge"}, Proof(), []),
        ({"instance_type": "p5.48xlarge"}, None, []),
        ({}, Proof(instance_type="p4d.24xlarge"), []),
    ],
)
def test_facts_that_a_reader_should_know(
    facts: Mapping[str, Any], proof: Proof | None, said: Sequence[str]
) -> None:
    log = of(facts, proof)
    assert codes(log) == said
    assert not any(each.line for each in log.findings)


@pytest.mark.parametrize(
    ("gpus", "nics", "stated", "said", "differs"),
    [
        (["NVIDIA A100-SXM4-40GB"], 4, "p4d.24xlarge", "", False),
        (["NVIDIA A100-SXM4-40GB"], 4, "", "p4d.24xlarge", False),
        (["NVIDIA A100-SXM4-80GB"], 4, "p4d.24xlarge", "", True),
        (["NVIDIA H100 80GB HBM3"], 32, "", "p4d.24xlarge", True),
        (["NVIDIA A100-SXM4-40GB", "NVIDIA H100 80GB HBM3"], 4, "p4d.24xlarge", "", True),
        (["NVIDIA A100-SXM4-40GB"], 4, "hpc6a.48xlarge", "", True),
        ([""], 32, "p4d.24xlarge", "", True),
        ([""], 1, "c5n.18xlarge", "", False),
        (["NVIDIA H100 80GB HBM3"], 4, "", "", False),
        (["NVIDIA H100 80GB HBM3"], 4, "", "roce-100", False),
        (["NVIDIA GB200"], 4, "", "8xH100", True),
        (["NVIDIA GB200"], 4, "", "gb200-nvl72", False),
        (["NVIDIA H100 80GB HBM3"], 4, "", "8xH100", False),
        (["NVIDIA H100 80GB HBM3"], 8, "", "h100-ib", False),
        (["NVIDIA H200"], 8, "", "h100-ib", True),
        (["NVIDIA H100"], 4, "hpc6a.48xlarge", "", True),
    ],
)
def test_an_instance_type_has_the_gpus_and_nics_of_the_log(
    gpus: list[str], nics: int, stated: str, said: str, *, differs: bool
) -> None:
    facts = {"network": "efa", "nics": nics} | ({"instance_type": stated} if stated else {})
    record = whole(facts=facts, gpus=frozenset(gpus))
    log = judge(record, source="x", proof=Proof(instance_type=said))
    assert ("other-hardware" in codes(log)) is differs


@pytest.mark.parametrize(
    ("facts", "proof", "of_fact", "code"),
    [
        ({"network": "efa", "nics": 4}, None, "nics", "nics-unchecked"),
        ({"transport": "libfabric-tcp"}, None, "provider", "provider-not-efa"),
        ({"transport": "efa", "gdr": "no"}, None, "gdr", "gdr-off"),
        (
            {"instance_type": "p5.48xlarge"},
            Proof(instance_type="p4d.24xlarge"),
            "instance_type",
            "instance-type-differs",
        ),
    ],
)
def test_a_finding_quotes_the_line_that_states_its_fact(
    facts: dict[str, str | int], proof: Proof | None, of_fact: str, code: str
) -> None:
    record = whole(facts=facts, evidence={of_fact: f"{of_fact} is printed here"})
    (found,) = judge(record, source="x", proof=proof).findings
    assert (found.code, found.line) == (code, f"{of_fact} is printed here")


def test_a_way_inside_the_fabric_is_said_unless_another_finding_has_said_so() -> None:
    record = whole(facts={"transport": "efa", "gdr": "no"}, findings=[finding("gdr-disabled")])
    assert codes(judge(record, source="x")) == ["gdr-disabled"]


def test_a_reason_shows_its_cause_once_and_not_what_a_line_has_shown() -> None:
    reasons = [
        "IB device mlx5_9 not found",
        "exited on signal 9 (Killed)",
        "Did not detect devices",
    ]
    assert codes(judge(whole(failures=reasons), source="x")) == ["no-rdma-device", "killed"]
    shown = whole(failures=reasons, findings=[note("no-rdma-device")])
    assert codes(judge(shown, source="x")) == ["no-rdma-device", "killed"]
    repeated = judge(shown, source="x").findings[0]
    assert repeated.meaning == "no-rdma-device is meant."


@pytest.mark.parametrize(
    ("status", "said"), [(127, ["program-missing"]), (1, ["cause-not-shown"]), (0, [])]
)
def test_an_exit_status_shows_its_cause(status: int, said: Sequence[str]) -> None:
    assert codes(judge(whole(), source="x", ending=Ending(status=status))) == said


# ---------------------------------------------------------------- the first error of what died

STRANGE = "A strange thing"
LONG = "A thing that is " + "very " * 40 + "strange"


@pytest.mark.parametrize(("transport", "said"), [("efa", []), ("ib", ["gdr-off"])])
def test_a_way_that_a_gpu_does_not_have_on_a_network_is_not_missed(
    transport: str, said: Sequence[str]
) -> None:
    record = whole(facts={"transport": transport, "gdr": "no"})
    record.gpus = frozenset({"Tesla T4"})
    assert codes(judge(record, source="x")) == said


@pytest.mark.parametrize(
    ("said", "hint", "findings", "first"),
    [
        # Nothing explains the run but what it said last, or that it ended.
        ("", "", [], [("cause-not-shown", "It broke.")]),
        (STRANGE, "", [], [("first-error", STRANGE)]),
        ("", "A hint", [], [("first-error", "A hint")]),
        (STRANGE, "A hint", [], [("first-error", STRANGE)]),
        ("IB device mlx5_9 not found", "", [], [("no-rdma-device", "IB device mlx5_9 not found")]),
        # A warning that no cause is known of gives way to the error that it is, and no other does.
        (STRANGE, "", [finding("nccl-warning", STRANGE)], [("first-error", STRANGE)]),
        (
            STRANGE,
            "",
            [finding("nccl-warning", "Another")],
            [("nccl-warning", "Another"), ("first-error", STRANGE)],
        ),
        # What quotes the first error is first, also where one of the two was cut.
        (
            STRANGE,
            "",
            [finding("xid", "NVRM"), finding("imex", STRANGE)],
            [("imex", STRANGE), ("xid", "NVRM")],
        ),
        (LONG, "", [finding("xid", LONG[:170])], [("xid", LONG[:170])]),
        # A known root explains the run; what follows from one, or that a process ended, does not.
        (STRANGE, "", [finding("xid", "NVRM")], [("xid", "NVRM")]),
        (
            STRANGE,
            "",
            [finding("peer-closed", "closed")],
            [("peer-closed", "closed"), ("first-error", STRANGE)],
        ),
        ("", "A hint", [finding("crashed", "ended")], [("crashed", "ended")]),
        (
            "",
            "A hint",
            [finding("process-ended", "ended")],
            [("process-ended", "ended"), ("first-error", "A hint")],
        ),
        ("", "", [finding("process-ended", "ended")], [("process-ended", "ended")]),
    ],
)
def test_what_explains_the_first_error_comes_first_and_else_that_error_is_the_cause(
    said: str, hint: str, findings: list[Finding], first: list[tuple[str, str]]
) -> None:
    record = whole(failures=["It broke."], first_error=said, hint=hint, findings=findings)
    log = judge(record, source="x")
    assert [(each.code, each.line) for each in log.findings] == first


@pytest.mark.parametrize(
    ("said", "hint", "shown"),
    [(STRANGE, "A hint", STRANGE), ("", "A hint", "A hint"), ("", "", "")],
)
def test_a_log_has_the_first_error_or_else_words_of_one(said: str, hint: str, shown: str) -> None:
    assert judge(whole(first_error=said, hint=hint), source="x").said == shown


def test_another_run_on_the_same_nodes_is_said() -> None:
    log = judge(whole(), source="x", ending=Ending(status=0, neighbors=("node-7",)))
    (found,) = log.findings
    assert (found.code, "node-7" in found.meaning) == ("neighbor", True)


@pytest.mark.parametrize(("finished", "said"), [(None, ["followed"]), (True, [])])
def test_what_followed_is_said_where_no_end_is_shown(
    finished: bool | None, said: Sequence[str]
) -> None:
    assert codes(judge(whole(finished=finished, followed="And then?"), source="x")) == said


def test_what_did_not_die_has_no_first_error() -> None:
    assert judge(whole(first_error=STRANGE, hint="A hint"), source="x").findings == ()


# ---------------------------------------------------------------- logs of one test


def timed(
    times: Mapping[int, float],
    facts: Mapping[str, Any],
    metric: str = "latency",
    **changes: Any,
) -> Log:
    """A log of messages that took so long, in us."""
    points = [Point(size, {}, (metric,), (time * 1e-6,)) for size, time in times.items()]
    record = whole(benchmark="pingpong", points=points, facts=dict(facts), hosts=frozenset("ab"))
    return replace(judge(record, source="x"), **changes)


@pytest.mark.parametrize(
    ("delay", "rate", "code"),
    [
        # Noise makes three times of one measurement, and what is slow at both ends is slow alike.
        (3.1, 1.0, "path-delay"),
        (1.0, 3.1, "path-rate"),
        (2.9, 1.0, ""),
        (6.3, 3.1, "path-delay"),
        (6.1, 3.1, ""),
    ],
)
@pytest.mark.parametrize("metric", ["latency", "time"])
def test_a_path_is_slow_in_messages_or_in_bytes(
    delay: float, rate: float, code: str, metric: str
) -> None:
    slow = timed({8: 10 * delay, 1 << 20: 100 * rate}, {}, metric)
    last = timed({8: 10, 1 << 20: 100}, {}, metric)
    assert [codes(log) for log in with_slower_paths([slow, last])] == [[code] if code else [], []]


SLOW = {8: 50.0, 1 << 20: 100.0}
USUAL = {8: 10.0, 1 << 20: 100.0}


@pytest.mark.parametrize(
    ("facts", "changes"),
    [
        ({"transport": "tcp"}, {}),
        ({"ranks": 4}, {}),
        ({"qps": 2}, {}),
        ({}, {"case": "pingpong"}),
        ({}, {"benchmark": "osu"}),
        ({}, {"hosts": frozenset("ac")}),
    ],
)
def test_only_logs_of_one_test_are_compared(
    facts: Mapping[str, Any], changes: Mapping[str, Any]
) -> None:
    same: dict[str, Any] = {"transport": "efa", "ranks": 2, "qps": 1}
    logs = [timed(SLOW, same), timed(USUAL, {**same, **facts}, **changes)]
    assert [codes(log) for log in with_slower_paths(logs)] == [[], []]
    slow, last = with_slower_paths([timed(SLOW, same), timed(USUAL, same)])
    assert (codes(slow), codes(last)) == (["path-delay"], [])
    assert re.search(r"8 B.*50 us.*10 us", slow.findings[0].meaning)


def test_logs_of_unknown_nodes_are_not_compared() -> None:
    logs = [timed(times, {}, hosts=frozenset()) for times in (SLOW, USUAL)]
    assert [codes(log) for log in with_slower_paths(logs)] == [[], []]


@pytest.mark.parametrize(
    ("times", "said"),
    [
        ({8: 50.0, 1024: 50.0}, ["path-delay"]),
        ({8: 50.0, 64: 1.0, 1024: 50.0, 4096: 1.0}, ["path-delay"]),
        ({64: 50.0, 4096: 5000.0}, []),
        # A message of 0 bytes is an empty row of some benchmarks, and 0 us are not known.
        ({0: 500.0, 8: 10.0, 1024: 50.0}, []),
        ({8: 0.0, 1024: 50.0}, []),
    ],
)
def test_sizes_that_both_logs_have_are_compared(
    times: Mapping[int, float], said: Sequence[str]
) -> None:
    usual = {0: 10.0, 8: 10.0, 1024: 50.0}
    assert codes(with_slower_paths([timed(times, {}), timed(usual, {})])[0]) == said


# ---------------------------------------------------------------- while it runs


@pytest.mark.parametrize(
    ("facts", "proof", "said"),
    [
        ({"network": "socket"}, EFA, "the library chose socket"),
        ({"network": "efa", "nics": 1}, Proof(fabric="efa", nics=4), "but 1 was used"),
        ({"network": "ib", "nics": 2}, Proof(fabric="ib", devices=("mlx5_0",)), "used 2 NICs"),
        (
            {"network": "ib", "devices": "mlx5_1"},
            Proof(fabric="ib", devices=("mlx5_0",)),
            "but used mlx5_1",
        ),
        ({"network": "efa"}, EFA, ""),
        # Nothing is settled before the library has chosen a network; what carries data may change.
        ({"nics": 1}, Proof(fabric="efa", nics=4), ""),
        ({"network": "efa", "transport": "socket"}, EFA, ""),
        ({"network": "efa", "domain": "a"}, Proof(fabric="efa", domain="b"), ""),
    ],
)
def test_a_running_execution_is_refused_by_what_no_longer_changes(
    facts: Mapping[str, Any], proof: Proof, said: str
) -> None:
    found = refusal(facts, proof, "nccl")
    assert said in found
    assert bool(found) is bool(said)


H100 = frozenset({"NVIDIA H100 80GB HBM3"})
P5 = {"network": "efa", "transport": "efa", "nics": 32, "gpus_per_host": 8}


def test_the_only_type_that_fits_is_assumed() -> None:
    found = judge(whole(gpus=H100, facts=P5), source="a.log")
    assert (found.instance_type, found.assumed_type) == ("p5.48xlarge", "p5.48xlarge")
    assert not found.findings  # and so it is known that no NIC is missing


def test_gpus_that_one_system_alone_has_name_it() -> None:
    found = judge(whole(gpus=frozenset({"NVIDIA GB10"}), facts={"network": "ib"}), source="a.log")
    assert (found.instance_type, found.assumed_type) == ("dgx-spark", "dgx-spark")
    both = frozenset({"NVIDIA GB10", "NVIDIA H200"})
    assert not judge(whole(gpus=both), source="a.log").assumed_type


@pytest.mark.parametrize(
    ("changes", "proof", "known"),
    [
        ({"facts": {**P5, "instance_type": "p5e.48xlarge"}}, None, "p5e.48xlarge"),
        ({}, Proof(instance_type="p5e.48xlarge"), "p5e.48xlarge"),
        ({"facts": {**P5, "nics": 16}}, None, ""),
        ({"facts": {**P5, "network": "ib"}}, None, ""),
        ({"gpus": frozenset()}, None, ""),
    ],
)
def test_no_type_is_assumed_where_one_is_stated_or_none_fits(
    changes: dict[str, Any], proof: Proof | None, known: str
) -> None:
    record = whole(**{"gpus": H100, "facts": P5, **changes})
    found = judge(record, source="a.log", proof=proof)
    assert (found.instance_type, found.assumed_type) == (known, "")
