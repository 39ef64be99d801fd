"""Rails: which devices are paired, what they come to, and how that is shown; pingpong over all domains."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabbench import rails
from fabbench.benchmarks.pingpong.steps import PingpongWork
from fabbench.compare import compare
from fabbench.drive import drive
from fabbench.errors import MachineError, RequestError
from fabbench.launchers.local import LocalSession
from fabbench.machines import Host
from fabbench.model import Ending, Log, Outcome, Point, Trial
from fabbench.parse import Session, logs
from fabbench.pool import Column
from fabbench.report import render
from fabbench.report.rails import table
from rails_planned import first_trial


def log_of(
    figures: Mapping[str, Sequence[float]],
    *,
    metric: str = "bandwidth",
    outcome: Outcome = Outcome.OK,
    facts: Mapping[str, str] | None = None,
) -> Log:
    """A log with one row for each figure of each device, at 64 KB."""
    points = [
        Point(65536, {"device": device, "side": "client"}, (metric,), (value,))
        for device, values in figures.items()
        for value in values
    ]
    return Log(
        source="x",
        benchmark="perftest",
        case="ib_write_bw",
        outcome=outcome,
        reason=None,
        facts={"transport": "RC", **(facts or {})},
        points=points,
    )


# ---------------------------------------------------------------- which rails there are


def test_names_with_numbers_are_in_their_order() -> None:
    names = ["mlx5_10", "mlx5_9", "rdmap101s0", "rdmap79s0", "mlx5_bond_0"]
    assert sorted(names, key=rails.natural) == ["mlx5_9", "mlx5_10", "mlx5_bond_0", "rdmap79s0", "rdmap101s0"]


@given(st.lists(st.text(alphabet="ab09_²", max_size=30)))
def test_any_names_can_be_sorted(names: list[str]) -> None:
    assert sorted(sorted(names, key=rails.natural)) == sorted(names)


def test_hosts_with_the_same_names_pair_them_whatever_the_order() -> None:
    assert rails.pairs(("b", "a"), ("a", "b"), ("x", "y")) == (("a", "a"), ("b", "b"))


def test_other_names_pair_in_order_and_other_numbers_do_not() -> None:
    assert rails.pairs(("m_2", "m_10"), ("n_0", "n_1"), ("x", "y")) == (("m_2", "n_0"), ("m_10", "n_1"))
    with pytest.raises(RequestError, match=r"x has 2 and y has 1\. Only one of them has b"):
        rails.pairs(("a", "b"), ("a",), ("x", "y"))


@given(st.integers(1, 64), st.integers(1, 16))
def test_every_gpu_gets_as_many_rails_as_the_others(number: int, gpus: int) -> None:
    used = [rails.gpu(index, number, gpus) for index in range(number)]
    counts = [used.count(gpu) for gpu in range(gpus)]
    assert sum(counts) == number
    assert max(counts) - min(counts) <= 1


# ---------------------------------------------------------------- what they come to


def test_mean_sum_and_the_slowest() -> None:
    (spread,) = rails.spreads([log_of({"mlx5_1": [10e9], "mlx5_0": [12e9], "mlx5_2": [5e9]})], "bandwidth")
    assert (spread.size, spread.mean, spread.total, spread.slowest) == (65536, 9e9, 27e9, "mlx5_2")
    assert spread.behind() == {"mlx5_2": pytest.approx(4 / 9)}


def test_latencies_do_not_add_up_and_the_longest_is_the_slowest() -> None:
    (spread,) = rails.spreads([log_of({"a": [2e-6], "b": [3e-6]}, metric="latency")], "latency")
    assert (spread.total, spread.slowest, list(spread.behind())) == (None, "b", ["b"])


def test_repeats_give_their_median_and_logs_that_are_not_ok_nothing() -> None:
    good = [log_of({"a": [value], "b": [1.0]}) for value in (1.0, 2.0, 9.0)]
    bad = log_of({"a": [100.0], "b": [100.0]}, outcome=Outcome.OFF_FABRIC)
    (spread,) = rails.spreads([*good, bad], "bandwidth")
    assert spread.figures == {"a": 2.0, "b": 1.0}
    assert rails.spreads([bad], "bandwidth") == ()


def test_one_device_is_no_rails() -> None:
    assert rails.spreads([log_of({"a": [1.0]})], "bandwidth") == ()
    assert table("ib", [log_of({"a": [1.0]})], "bandwidth") is None


def test_the_client_counts_where_both_sides_printed() -> None:
    log = log_of({"a": [2.0], "b": [3.0]})
    server = [Point(65536, {"device": "a", "side": "server"}, ("bandwidth",), (9.0,))]
    (spread,) = rails.spreads([replace(log, points=[*server, *log.points])], "bandwidth")
    assert spread.figures == {"a": 2.0, "b": 3.0}


@pytest.mark.parametrize(
    ("facts", "told"), [({}, "one after another"), ({"together": "yes"}, "at the same time")]
)
def test_the_table_says_how_to_read_the_sum(facts: Mapping[str, str], told: str) -> None:
    shown = table("ib", [log_of({"a": [10e9], "b": [10e9], "c": [7e9]}, facts=facts)], "bandwidth")
    assert shown is not None
    assert shown.title == "Rails of ib: bandwidth"
    assert list(shown.rows) == [["64 KB", "3", "9", "27", "7", "10", "c (7)"]]
    first, second = shown.notes
    assert told in first
    assert second.startswith("c stands out at 64 KB: 7 GB/s, 22 % worse than the mean of 9 GB/s")


def test_rails_are_no_repeats_in_a_comparison_and_share_its_table() -> None:
    column = Column(label="ib", logs=(log_of({"mlx5_0": [10e9], "mlx5_1": [5e9]}),), source="x")
    comparison = compare([column])
    figures = [row.figures[0] for section in comparison.sections for row in section.rows]
    assert [(figure.value, figure.n) for figure in figures if figure] == [(10e9, 1), (5e9, 1)]
    text = render(comparison, arms={"ib": column.logs})
    lines = [line.split() for line in text.splitlines()]
    assert ["|", "mlx5_0", "|", "64", "KB", "|", "10", "|"] in lines
    assert ["|", "mlx5_1", "|", "64", "KB", "|", "5", "|"] in lines
    assert "### Rails of ib: bandwidth" in text
    assert "Rails" not in render(comparison)
    assert '"sum": 15000000000.0' in render(comparison, "json", arms={"ib": column.logs})


def test_single_devices_of_other_names_are_compared_all_the_same() -> None:
    one, other = (
        Column(label=name, logs=(log_of({name: [value]}),), source=name)
        for name, value in (("mlx5_0", 10e9), ("mlx5_1", 5e9))
    )
    (section,) = compare([one, other]).sections
    assert section.rows[0].ratios == (2.0, None)


def test_an_arm_without_rails_stands_beside_each_of_them() -> None:
    tcp = replace(log_of({}), points=[Point(65536, {"side": "client"}, ("bandwidth",), (2e9,))])
    columns = [
        Column(label=label, logs=(log,), source="x")
        for label, log in (("ib", log_of({"mlx5_0": [10e9], "mlx5_1": [5e9]})), ("tcp", tcp))
    ]
    sections = compare(columns).sections
    assert [(section.key["device"], section.rows[0].ratios) for section in sections] == [
        ("mlx5_0", (5.0, None)),
        ("mlx5_1", (2.5, None)),
    ]


# ---------------------------------------------------------------- pingpong over all domains

EFA = {"efa": frozenset({"rdm", "dgram"}), "tcp": frozenset({"msg"})}
DOMAINS = {"efa": ("rdmap0s6-rdm", "rdmap0s6-dgrm", "rdmap16s27-rdm", "rdmap16s27-dgrm")}
P4D = Host(name="p4d", providers=EFA, domains=DOMAINS)


def trial_of(work: PingpongWork, fabric: str, *hosts: Host) -> Trial:
    return first_trial("pingpong", work, fabric, hosts)


def test_pingpong_over_each_efa_domain() -> None:
    trial = trial_of(PingpongWork(sizes=(64, 4096), all_domains=True), "efa", P4D, P4D)
    assert [step.id.partition("/")[2] for step in trial.steps] == [
        *("rdmap0s6-64", "rdmap0s6-4096", "rdmap16s27-64", "rdmap16s27-4096"),
    ]
    assert [step.facts["device"] for step in trial.steps] == ["rdmap0s6"] * 2 + ["rdmap16s27"] * 2
    argv = trial.steps[-1].commands[1].argv
    assert argv[argv.index("-d") + 1] == "rdmap16s27-rdm"
    assert trial.proof.domain is None
    assert not trial.together


def test_datagrams_have_domains_of_their_own() -> None:
    trial = trial_of(PingpongWork(sizes=(64,), endpoint="dgram", all_domains=True), "efa", P4D)
    assert [step.facts["domain"] for step in trial.steps] == ["rdmap0s6-dgrm", "rdmap16s27-dgrm"]


def test_all_domains_of_a_fabric_that_has_none() -> None:
    (step,) = trial_of(PingpongWork(sizes=(64,), all_domains=True), "tcp", P4D).steps
    assert "device" not in step.facts
    with pytest.raises(MachineError, match="lists no domain of its provider efa"):
        trial_of(PingpongWork(sizes=(64,), all_domains=True), "efa", replace(P4D, domains={}))
    with pytest.raises(RequestError, match="exclude each other"):
        PingpongWork(sizes=(64,), all_domains=True, domain="x")


@pytest.mark.local
@pytest.mark.parametrize(("wanted", "outcome"), [("lo", Outcome.OK), ("eth7", Outcome.OFF_FABRIC)])
def test_each_steps_own_domain_is_proven(wanted: str, outcome: Outcome) -> None:
    """Two real ping-pongs over lo, as steps of two devices; the second one says that it is on `wanted`."""
    host = Host(name="here", providers={"tcp": frozenset({"msg"})})
    (step,) = trial_of(PingpongWork(sizes=(64,), iterations=100, domain="lo"), "tcp", host).steps
    trial = trial_of(PingpongWork(sizes=(64,), iterations=100), "tcp", host)
    steps = [
        replace(step, id=f"{trial.id}/{name}-64", facts={**step.facts, "device": name, "domain": domain})
        for name, domain in (("one", "lo"), ("two", wanted))
    ]
    lines = list(drive(lambda each: LocalSession(each, host), replace(trial, steps=tuple(steps))))
    session = Session("x", proof=trial.proof)
    (log,) = logs([*session.feed_lines(lines), *session.close(Ending(status=0, planned_sizes=(64,)))])
    assert log.outcome is outcome, log.reason
    assert [point.labels["device"] for point in log.points] == ["one", "one", "two", "two"]
    if outcome is Outcome.OFF_FABRIC:
        assert log.reason is not None
        assert re.fullmatch(r"Step two-64 was asked for on domain eth7, but the \w+ used lo\.", log.reason)
