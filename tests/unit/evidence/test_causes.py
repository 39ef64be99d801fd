"""causes.toml: each entry is shown by its own lines, and by those of no other."""

import pytest

from fabbench.evidence.judge import with_slower_paths
from fabbench.evidence.known_errors import KnownError, by_code, causes, finding, findings_of
from fabbench.model import records
from fabbench.model.literals import needed_texts
from fabbench.model.log import Log, Outcome, Point
from fabbench.runs.inputs import parse
from tests.support.corpus import recorded
from tests.support.paths import DATA

# tests/unit/analysis/test_curve.py
OF_CURVES = {
    "dip",
    "cliff",
    "latency-jump",
    "still-grows",
    "sides-differ",
}
KNOWN = by_code()
CODES = [each.code for each in records.load("fabbench.evidence", "causes.toml", KnownError)]
COUNTEREXAMPLES = [(error, line) for error in KNOWN.values() for line in error.counterexamples]
EXAMPLES = [(error, line) for error in KNOWN.values() for line in error.examples]


def test_a_code_is_that_of_one_cause() -> None:
    """Of two records with one code, the first would be none."""
    assert sorted(set(CODES)) == sorted(CODES)


@pytest.mark.parametrize(
    ("error", "line"), EXAMPLES, ids=[f"{error.code}-{line}" for error, line in EXAMPLES]
)
def test_a_line_shows_its_cause_and_what_follows_from_one(error: KnownError, line: str) -> None:
    facts = {each.fact: each.values[0] for each in error.only}
    found = [each.code for each in findings_of([line], facts)]
    roots = [each for each in found if "effect" not in KNOWN[each].marks or each == error.code]
    assert roots == [error.code]


def test_a_cause_needs_its_facts() -> None:
    for error in KNOWN.values():
        for needed in error.only:
            assert not error.applies({})
            assert error.applies({needed.fact: needed.values[0]})
        for excluding in error.never:
            assert error.applies({})
            assert not error.applies({excluding.fact: excluding.values[0]})


@pytest.mark.parametrize(
    ("error", "line"), COUNTEREXAMPLES, ids=[error.code for error, _ in COUNTEREXAMPLES]
)
def test_a_counterexample_does_not_show_the_cause(error: KnownError, line: str) -> None:
    assert error.code not in {each.code for each in findings_of([line])}


@pytest.mark.parametrize("error", KNOWN.values(), ids=KNOWN)
def test_each_pattern_compiles(error: KnownError) -> None:
    for pattern in error.patterns:
        assert needed_texts(pattern)


def test_every_entry_says_what_it_means_what_to_do_and_where_it_is_from() -> None:
    for error in KNOWN.values():
        # tests/unit/counters, tests/integration/ssh/test_causes.py
        counted = "counted" in error.marks
        assert counted or error.meaning.endswith((".", "}")), error.code
        assert error.advice or {"remark", "counted"} & error.marks, error.code
        assert not counted or error.decide, error.code
        is_shown = bool(error.texts or error.patterns)
        assert bool(error.examples) is is_shown, error.code
        assert bool(error.counterexamples) is is_shown, error.code
        assert error.source or not error.examples, error.code


def test_what_no_line_shows_is_found_in_some_log_and_not_in_all() -> None:
    found = [
        {code.split()[0] for log in logs for code in log.get("findings", ())}
        for logs in recorded().values()
    ]
    for error in KNOWN.values():
        if (
            not error.examples
            and not {"remark", "counted"} & error.marks
            and error.code not in OF_CURVES
        ):
            assert any(error.code in codes for codes in found), error.code
        assert not all(error.code in codes for codes in found), error.code


def test_what_starts_a_failure_comes_before_what_follows_and_a_contradicted_cause_last() -> None:
    codes = ("gdr-limited", "p2p-disabled", "peer-reset", "memlock", "nics-unchecked")
    found = [finding(code, nics=4) for code in codes]
    log = Log(
        source="a",
        benchmark=None,
        case=None,
        outcome=Outcome.OK,
        reason="",
        facts={"gdr": "yes"},
        findings=found,
    )
    ranked, others = causes(log)
    assert [each.finding.code for each in ranked] == [
        "memlock",
        "peer-reset",
        "p2p-disabled",
        "gdr-limited",
    ]
    assert ([each.against for each in ranked][-2:], others) == (["", "gdr yes"], found[-1:])


@pytest.mark.parametrize("name", ["verdicts/proof-05.txt", "verdicts/proof-06.txt"])
def test_gpu_memory_that_goes_through_the_host_is_the_first_cause(name: str) -> None:
    (log,) = parse(DATA / name)
    assert [each.finding.code for each in causes(log)[0]][:1] == ["gdr-off"]


@pytest.mark.parametrize(
    ("factors", "nodes", "codes"),
    [
        ((1.0, 1.5, 4.0), "ab", ["path-rate"]),
        ((4.0, 2.0, 1.1), "ab", ["path-delay"]),
        # By the same factor, by less than noise may make, and on other nodes: nothing is said.
        ((4.0, 4.0, 4.0), "ab", []),
        ((1.0, 1.0, 2.9), "ab", []),
        ((1.0, 1.5, 4.0), "cd", []),
        ((0.2, 0.5, 1.0), "ab", []),
    ],
)
@pytest.mark.parametrize("metric", ["latency", "bandwidth"])
def test_a_log_far_slower_than_the_last_one_is_slow_in_messages_or_in_bytes(
    factors: tuple[float, ...], nodes: str, codes: list[str], metric: str
) -> None:
    def log(times: dict[int, float], nodes: str) -> Log:
        values = {
            size: time if metric == "latency" else size / time for size, time in times.items()
        }
        points = [Point(size, {}, (metric,), (value,)) for size, value in values.items()]
        points += [
            Point(size, {"stat": "max"}, (metric,), (number,))
            for number, size in enumerate(times, 1)
        ]
        return Log(
            source="a",
            benchmark="pingpong",
            case="x",
            outcome=Outcome.OK,
            reason=None,
            facts={},
            points=points,
            hosts=frozenset(nodes),
        )

    usual = {64: 1e-5, 4096: 2e-5, 1 << 20: 1e-3}
    slow = {
        size: time * factor for (size, time), factor in zip(usual.items(), factors, strict=True)
    }
    first, last = with_slower_paths([log(slow, nodes), log(usual, "ab")])
    assert ([each.code for each in first.findings], last.findings) == (codes, ())
