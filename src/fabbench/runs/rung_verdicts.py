"""What a rung of ``fabbench accept`` says about its nodes: one function per rule. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import NamedTuple

from fabbench.analysis.compare import Comparison
from fabbench.analysis.expectations import Assessment, Expectation, expectations
from fabbench.analysis.gate_results import Verdict
from fabbench.analysis.headline import headline_row, headlines
from fabbench.evidence.known_errors import causes, fault_of
from fabbench.hosts.check import Check, Status, fault_of_check
from fabbench.model.errors import Fault, gravest
from fabbench.model.hostlist import compress_hostlist
from fabbench.model.log import METRICS, Log, Outcome
from fabbench.model.mappings import Reasons, Sentences, distinct, gathered, without
from fabbench.model.messages import listed
from fabbench.plan.gates import AT_LEAST, Gate
from fabbench.remote.transport import SilentHostError
from fabbench.report.certificate import RungFigure, RungResult, State
from fabbench.runs.document import TestResult
from fabbench.runs.run import RunResult
from fabbench.runs.store import StoredSweep
from fabbench.runs.summary import neighbors
from fabbench.runs.sweep import SweepRun, diagnosed, unfinished
from fabbench.sweep.values import Diagnosis, NodeGroup, Suspect, SuspectKind

_FAULT_OF_WRONG = {Outcome.CORRUPT: Fault.HARDWARE, Outcome.OFF_FABRIC: Fault.SOFTWARE}
"""Outcomes that speak against the nodes: what was measured is wrong, or is not of the fabric."""
_DIED_OR_HUNG = frozenset({Outcome.FAILED, Outcome.TIMEOUT})
"""Outcomes of a program that did not come to its end."""
_OF_NODES = frozenset({SuspectKind.NODE, SuspectKind.NIC, SuspectKind.RAIL})
"""Suspects that are nodes, or NICs of nodes."""
_FLOOR = 0.5
"""Fraction of the ceiling of its NICs that a figure must reach if none is published."""
_TOO_GOOD = frozenset({Assessment.ABOVE, Assessment.HIGH})
_PUBLISHED = frozenset({Assessment.NORMAL, Assessment.LOW})


class Judgment(NamedTuple):
    """What rules say about the figures of a rung."""

    limits: tuple[str, ...] = ()  # What the figures were judged by
    missed: Sentences = ()  # Which of them failed
    doubts: Sentences = ()  # Why nothing is certain
    sources: tuple[str, ...] = ()  # Where the limits are from; empty: the user knows


def judged(result: RungResult, missed: Sentences = (), doubts: Sentences = ()) -> RungResult:
    """Return a result with its state; figures speak of hardware if nothing else is known.

    It failed if something is bad or missed, and is incomplete if there are doubts. `missed`: which
    limits, a sentence each, and then of all nodes together.
    """
    bad = dict(result.bad)
    doubted = tuple(filter(None, doubts))
    named = [f"Bad: {listed([*bad])}."] if bad else []
    if missed:
        bad["all nodes"] = " ".join(missed)
    if bad:
        state = State.FAILED
    elif doubted:
        state = State.INCOMPLETE
    else:
        state = State.PASSED
    sentences = [*named, *missed, result.why, *doubted]
    why = " ".join(filter(None, sentences))
    fault = result.fault_class
    if state is State.FAILED:
        fault = fault or Fault.HARDWARE
    elif state is State.PASSED:
        fault = None
    return replace(result, state=state, why=why, bad=bad, fault_class=fault, doubts=doubted)


def judge_lost(lost: Reasons, blank: RungResult) -> RungResult:
    """Return that nodes were lost; `lost`: node → why."""
    return judged(replace(blank, bad=lost, nodes=lost, fault_class=Fault.INFRASTRUCTURE))


# ---------------------------------------------------------------- checks


def judge_checks(checks: Sequence[Check], blank: RungResult, missing: Sentences = ()) -> RungResult:
    """Return what checks say: what is only installed wrongly leaves a node out, and is a doubt.

    `missing`: sentences on programs of later rungs that nodes lack.
    """
    bad: dict[str, str] = {}
    left_out: dict[str, str] = {}
    faults: dict[str, Fault] = {}
    for host, each in _gravest_checks(checks).items():
        faults[host] = fault_of_check(each.name)
        reasons = left_out if faults[host] is Fault.SOFTWARE else bad
        reasons[host] = f"{each.name}: {each.seen}"
    skipped = all(each.status is Status.SKIP for each in checks)
    doubts = [f"{name}: {why}" for name, why in left_out.items()]
    doubts += ["Nothing could be checked."] if skipped else []
    fault = gravest(faults.values())
    if missing and fault is None:
        fault = Fault.SOFTWARE
    result = replace(blank, bad=bad, nodes=bad, left_out=left_out, fault_class=fault)
    return judged(result, doubts=[*doubts, *missing])


def _gravest_checks(checks: Sequence[Check]) -> Mapping[str, Check]:
    """Return the failed check of each host whose fault is the gravest, the first of several."""
    order = [*Fault]  # the gravest first

    def gravity(check: Check) -> int:
        return order.index(fault_of_check(check.name))

    failed = (each for each in checks if each.status is Status.FAIL)
    by_host = gathered((each.host, each) for each in failed)
    return {host: min(of_host, key=gravity) for host, of_host in by_host.items()}


# ---------------------------------------------------------------- without figures


def _judged_without_figures(
    result: RungResult, error: Exception | None, ended: Sequence[Log | TestResult]
) -> RungResult:
    """Return a result without figures.

    Failed only by what more of the same program would show again: wrong data, another fabric,
    broken hardware, a lost host. A program that does not start, crashes or hangs is a doubt.
    """
    if isinstance(error, SilentHostError):
        return judge_lost({error.host: str(error)}, result)
    if error:
        return judged(replace(result, fault_class=Fault.INFRASTRUCTURE), doubts=[str(error)])
    wrong = [each for each in ended if each.outcome != Outcome.OK]
    why = _why_wrong(wrong)
    faults = [fault for fault in map(_fault_of_nodes, wrong) if fault]
    if faults:
        return judged(replace(result, fault_class=gravest(faults)), missed=[why])
    fault = gravest(_fault_to_mend(each) for each in wrong)
    return judged(replace(result, fault_class=fault), doubts=[why])


def _fault_of_nodes(ended: Log | TestResult) -> Fault | None:
    """Return what a failure shows to be wrong with nodes; None: it says nothing about them.

    Wrong data or another fabric speak against them, a program that died only by a hardware fault.
    """
    outcome = Outcome(ended.outcome)
    if outcome in _FAULT_OF_WRONG:
        return _FAULT_OF_WRONG[outcome]
    broken = outcome in _DIED_OR_HUNG and _fault_to_mend(ended) is Fault.HARDWARE
    return Fault.HARDWARE if broken else None


def _fault_to_mend(ended: Log | TestResult) -> Fault | None:
    """Return what has to be mended after a failure.

    Of a program that died or hung without an explanation that is itself, as it is installed.
    """
    fault = fault_of(ended) if isinstance(ended, Log) else ended.fault
    if fault is None and ended.outcome in _DIED_OR_HUNG:
        return Fault.SOFTWARE
    return fault


def _why_wrong(wrong: Sequence[Log | TestResult]) -> str:
    """Return how the first failure ended, what its program said, and its likeliest cause."""
    if not wrong:
        return "Nothing was measured."
    first = wrong[0]
    reason = (first.reason or "no reason was printed").rstrip(".")
    sentences = [f"{first.outcome}: {reason}."]
    if first.said and first.said not in reason and first.outcome in _DIED_OR_HUNG:
        sentences.append(f"The program said: {first.said}.")
    # First the causes, the likeliest first; the other findings explain nothing.
    likely = causes(first)[0] if isinstance(first, Log) else []
    if likely:
        likeliest = likely[0].finding
        sentences += [likeliest.meaning, likeliest.advice]
    return " ".join(sentences).rstrip()


# ---------------------------------------------------------------- a sweep


def judge_sweep(ended: SweepRun, blank: RungResult, gates: Sequence[Gate]) -> RungResult:
    """Return what a sweep says about its nodes."""
    stored = ended.sweep
    document = stored.document
    blank = replace(blank, run=stored.path.name)
    failure = str(ended.failure or "")
    if not any(each.result.is_measured for each in stored.tests):
        if failure:
            return judged(blank, doubts=[failure])
        # None: no error ended it early.
        return _judged_without_figures(blank, error=None, ended=stored.tests)
    diagnosis = diagnosed(document, stored.results)
    figures = tuple(_typical(diagnosis, document.metric))
    # One that ran out of time and was repeated with a longer limit does not count.
    repeated = {each.result.test.usual for each in stored.tests if each.longer}
    # Every test that succeeded has proved what carried its data.
    proven = not diagnosis.failed_once and all(
        each.outcome == Outcome.OK
        or (each.outcome == Outcome.TIMEOUT and each.result.test in repeated)
        for each in stored.tests
    )
    step = max((each.step for each in stored.tests), default=0.0)
    judgment = _together(_judged_by_limit(figures, gate, step) for gate in gates)
    software_failures = _software_failures(diagnosis, stored.tests)
    doubts = (
        *software_failures.values(),
        _undecided(diagnosis),
        diagnosis.contradiction,
        diagnosis.out_of_time,
        _not_tested(ended),
        failure,
        next((said for each in stored.tests for said in each.neighbors), ""),
        "" if proven else f"Not every test succeeded and proved that it used {document.fabric}.",
        *judgment.doubts,
    )
    bad = _not_in(_suspects(diagnosis), software_failures)
    nodes = _not_in(_bad_nodes(diagnosis), software_failures)
    result = replace(
        blank,
        bad=bad,
        nodes=nodes,
        left_out=software_failures,
        fault_class=_fault_of_sweep(stored, diagnosis, software_failures),
        figures=figures,
        limits=judgment.limits,
        fabric=document.fabric if proven else "",
    )
    return judged(result, judgment.missed, doubts)


def _typical(diagnosis: Diagnosis, metric: str) -> Iterator[RungFigure]:
    """Yield the figure of healthy tests, such as of groups or NICs: of several kinds the worst.

    None where the tests cannot be compared.
    """
    worst = max if METRICS[metric].lower_is_better else min
    if diagnosis.typicals:
        yield RungFigure(
            metric=metric,
            size=None,
            value=worst(diagnosis.typicals.values()),
            repeats=diagnosis.tests,
        )


def _judged_by_limit(figures: Sequence[RungFigure], gate: Gate, step: float) -> Judgment:
    """Hold the first figure, the typical one of a sweep, against a limit.

    `step` is its last printed digit, of which half may have made it miss the limit.

    What the limit is not for, or what rounding leaves open, is a doubt.
    """
    if not figures or not _is_plain_limit_of(gate, figures[0]):
        return Judgment(doubts=(f"{gate.text}: nothing to compare was measured.",))
    typical = f"{gate.text}: typical is {figures[0]}"
    beyond = _missed_by(gate, figures[0].value)
    if 0 < beyond <= step / 2:  # rounding may have made it miss the limit
        return Judgment((gate.text,), doubts=(f"{typical}, within half of its last digit.",))
    missed = (f"{typical}.",) if beyond > 0 else ()
    return Judgment((gate.text,), missed)


def _together(judgments: Iterable[Judgment]) -> Judgment:
    """Return what all rules say, field by field."""
    by_field = zip(*judgments, strict=True)
    return Judgment(*(tuple(chain.from_iterable(of_rules)) for of_rules in by_field))


def _is_plain_limit_of(gate: Gate, figure: RungFigure) -> bool:
    """Return whether a limit is a plain number for the metric of a figure of any size."""
    plain = not (gate.sizes or gate.relative or gate.needs_baseline)
    return plain and gate.metric == METRICS[figure.metric]


def _missed_by(gate: Gate, value: float) -> float:
    """Return by how much a value misses a limit; 0 or less: it keeps it."""
    return gate.bound - value if gate.kind == AT_LEAST else value - gate.bound


def _undecided(diagnosis: Diagnosis) -> str:
    names = [each.name for each in diagnosis.undecided]
    return f"{listed(names)} may be bad." if names else ""


def _not_tested(ended: SweepRun) -> str:
    missing = "" if ended.whole else unfinished(ended.sweep)
    return f"Not tested: {missing}." if missing else ""


def _suspects(diagnosis: Diagnosis) -> Reasons:
    """Return what is bad → why; for a group also which nodes the groups have."""
    groups = "; ".join(map(_members_in_words, diagnosis.groups))

    def why(suspect: Suspect) -> str:
        if suspect.kind is not SuspectKind.GROUP:
            return suspect.evidence
        return f"{suspect.evidence} {groups}."

    return {each.name: why(each) for each in diagnosis.suspects}


def _members_in_words(group: NodeGroup) -> str:
    nodes = compress_hostlist(group.nodes)
    return f"{group.name} is {nodes}"


def _not_in(named: Reasons, others: Reasons) -> Reasons:
    return without(named, others)


def _software_failures(diagnosis: Diagnosis, tests: Sequence[TestResult]) -> Reasons:
    """Return the suspected nodes whose failed tests all fail by what is installed → why."""
    reasons: dict[str, str] = {}
    for suspect in diagnosis.suspects:
        if suspect.kind is not SuspectKind.NODE:
            continue
        failed = [each for each in _died_or_hung(tests) if suspect.name in each.nodes]
        if {each.fault for each in failed} == {Fault.SOFTWARE}:
            quote = f" It said: {failed[0].said}" if failed[0].said else ""
            reasons[suspect.name] = f"{suspect.evidence}{quote}"
    return reasons


def _died_or_hung(tests: Sequence[TestResult]) -> Iterator[TestResult]:
    return (each for each in tests if each.outcome in _DIED_OR_HUNG)


def _fault_of_sweep(
    stored: StoredSweep, diagnosis: Diagnosis, software_failures: Reasons
) -> Fault | None:
    """Return what has to be mended: the way between nodes, a node, or what is installed there.

    A failure that says why outranks those that say nothing: a host that is lost times out, too.
    """
    bad = [each for each in diagnosis.suspects if each.name not in software_failures]
    if not bad and software_failures:  # all who are accused fail by their software
        return Fault.SOFTWARE
    if not bad:  # no node is accused, but single tests may have failed
        return gravest(map(_fault_to_mend, _died_or_hung(stored.tests)))
    if all(each.is_between for each in bad):
        return Fault.INFRASTRUCTURE
    nodes = {node for each in bad for node in each.nodes}
    theirs = [each for each in stored.tests if nodes.intersection(each.nodes)]
    fault = gravest(each.fault for each in theirs)
    # Nodes that are slow, or fail by more than their software, are broken.
    return fault if fault is Fault.INFRASTRUCTURE else Fault.HARDWARE


def _bad_nodes(diagnosis: Diagnosis) -> Reasons:
    """Return nodes that are bad, or have a bad NIC → why."""
    of_nodes = [each for each in diagnosis.suspects if each.kind in _OF_NODES]
    # A NIC that is bad on all nodes accuses none of them.
    accused = [each for each in of_nodes if not each.of_all]
    return {node: each.evidence for each in accused for node in each.nodes}


# ---------------------------------------------------------------- a run on all nodes


def judge_run(ended: RunResult, blank: RungResult) -> RungResult:
    """Return what a run on all nodes says about them."""
    blank = replace(blank, run=ended.path.name)
    logs = [log for column in ended.columns for log in column.logs]
    comparison = ended.comparison
    failed = any(log.outcome is not Outcome.OK for log in logs)
    if ended.failure or comparison is None or failed:
        return _judged_without_figures(blank, ended.failure, logs)
    alone = len(comparison.columns) == 1  # without the column of a baseline
    if ended.verdict:
        judgment = _judged_by_gates(ended.verdict)
    elif alone:
        judgment = _together(map(_judged_by_expectation, expectations(comparison)))
    else:  # without a gate, the difference from a baseline is only shown
        judgment = Judgment()
    result = replace(
        blank,
        fabric=ended.columns[0].label,  # a configuration is called as its fabric
        figures=tuple(_figures(comparison)),
        limits=judgment.limits,
        sources=distinct(judgment.sources) or blank.sources,
        why="" if alone else " ".join(headlines(comparison)),
    )
    doubts = distinct((*judgment.doubts, *neighbors(logs)))
    return judged(result, judgment.missed, doubts)


def _judged_by_gates(verdict: Verdict) -> Judgment:
    limits = tuple(each.gate for each in verdict.results)
    return Judgment(limits, verdict.breaches, verdict.undecided)


def _judged_by_expectation(expected: Expectation) -> Judgment:
    """Judge a figure by published ones; without any, by its ceiling. Too good is a doubt.

    Without a ceiling, too, nothing judges it: that is no doubt of the figure.
    """
    if expected.assessment in _TOO_GOOD:
        return Judgment(doubts=(expected.sentence(),))
    sources = distinct(each.source for each in expected.figures)
    if expected.assessment in _PUBLISHED:
        like = expected.setting.words
        low_end, _ = expected.range or (0.0, 0.0)  # of the published figures
        least = expected.scale.quantity(low_end)
        limit = f"published for {like}: {least}"
        low = expected.assessment is Assessment.LOW
    elif expected.share is not None:
        percent = format(100 * _FLOOR, "g")
        bound = expected.setting.bound
        limit = f"{percent} % of the ceiling of {bound}"
        low = expected.share < _FLOOR
    else:
        return Judgment()
    missed = (expected.sentence(),) if low else ()
    return Judgment((limit,), missed, sources=sources)


def _figures(comparison: Comparison) -> Iterator[RungFigure]:
    """Yield the figure of each headline: that of the first column."""
    for section in comparison.sections:
        row = headline_row(section)
        first = row.figures[0] if row else None
        if row and first:
            yield RungFigure(
                metric=section.metric.name, size=row.size, value=first.value, repeats=first.n
            )
