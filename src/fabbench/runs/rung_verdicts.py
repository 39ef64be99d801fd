"""What a rung of ``fabbench accept`` says about its nodes: one function per rule. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from fabbench.analysis.compare import Comparison
from fabbench.analysis.expectations import Assessment, Expectation, expectations
from fabbench.analysis.gate_results import Verdict
from fabbench.analysis.headline import headline, headline_row
from fabbench.evidence.known_errors import causes, told
from fabbench.model.errors import MachineError
from fabbench.model.hostlist import compress_hostlist
from fabbench.model.log import METRICS, Log, Outcome
from fabbench.model.messages import listed
from fabbench.plan.gates import AT_LEAST, Gate
from fabbench.report.certificate import RungFigure, RungResult, State
from fabbench.runs.document import TestResult
from fabbench.runs.run import RunResult
from fabbench.runs.store import StoredSweep
from fabbench.runs.sweep import SweepRun, diagnosed, unfinished
from fabbench.sweep.values import Diagnosis, NodeGroup, Suspect, SuspectKind

_DOUBTFUL = frozenset({Outcome.UNPROVEN, Outcome.TRUNCATED, Outcome.SKIPPED})
"""Outcomes that say nothing about the nodes."""
_NOT_STARTED = "program-missing"
"""The code of a failure that says nothing about them either."""
_FLOOR = 0.5
"""Fraction of the ceiling of its NICs that a figure must reach if none is published."""
_TOO_GOOD = frozenset({Assessment.ABOVE, Assessment.HIGH})
_PUBLISHED = frozenset({Assessment.NORMAL, Assessment.LOW})


@dataclass(frozen=True, slots=True)
class Judgment:
    """What rules say about the figures of a rung."""

    limits: tuple[str, ...] = ()  # What the figures were judged by
    missed: tuple[str, ...] = ()  # Sentences: which of them failed
    doubts: tuple[str, ...] = ()  # Sentences: why nothing is certain


Sentences: TypeAlias = Sequence[str]


def judged(result: RungResult, missed: Sentences = (), doubts: Sentences = ()) -> RungResult:
    """Return a result with its state.

    It failed if something is bad or missed, and is incomplete if there are doubts.
    """
    bad = dict(result.bad)
    named = [f"Bad: {listed([*bad])}."] if bad else []
    if missed:
        bad["all nodes"] = " ".join(missed)
    if bad:
        state = State.FAILED
    elif any(doubts):
        state = State.INCOMPLETE
    else:
        state = State.PASSED
    sentences = [*named, *missed, result.why, *doubts]
    why = " ".join(filter(None, sentences))
    return replace(result, state=state, why=why, bad=bad)


# ---------------------------------------------------------------- without figures


def _unmeasured(
    result: RungResult, error: Exception | None, ended: Sequence[Log | TestResult]
) -> RungResult:
    """Return a result without figures.

    Failed, unless nothing is proven about the nodes or nothing was started.
    """
    if error:
        why = str(error)
        failed = isinstance(error, MachineError)
    else:
        wrong = [each for each in ended if each.outcome != Outcome.OK]
        why = _why_wrong(wrong)
        failed = _nodes_failed(wrong)
    if failed:
        return judged(result, missed=[why])
    return judged(result, doubts=[why])


def _nodes_failed(wrong: Sequence[Log | TestResult]) -> bool:
    """Return whether a failure is one of the nodes: not in doubt, and of a program that started."""
    for each in wrong:
        if each.outcome in _DOUBTFUL:
            continue
        codes = {finding.code for finding in told([each.reason or ""])}
        if _NOT_STARTED not in codes:
            return True
    return False


def _why_wrong(wrong: Sequence[Log | TestResult]) -> str:
    """Return how the first failure ended, and its likeliest cause."""
    if not wrong:
        return "Nothing was measured."
    first = wrong[0]
    reason = first.reason or "no reason was printed."
    why = f"{first.outcome}: {reason}"
    found = causes(first)[0] if isinstance(first, Log) else []
    if found:
        likeliest = found[0].found
        why = f"{why} {likeliest.meaning} {likeliest.advice}"
    return why.rstrip()


# ---------------------------------------------------------------- a sweep


def judge_sweep(ended: SweepRun, blank: RungResult, gates: Sequence[Gate]) -> RungResult:
    """Return what a sweep says about its nodes."""
    stored = ended.sweep
    blank = replace(blank, run=stored.path.name)
    failure = str(ended.failure or "")
    if not any(each.result.figure for each in stored.tests):
        if failure:
            return judged(blank, doubts=[failure])
        return _unmeasured(blank, None, stored.tests)
    found = diagnosed(stored.document, stored.results)
    figures = tuple(_typical(found, stored.document.metric))
    proven = _is_proven(stored)
    judgment = _judged_by_limits(figures, gates)
    doubts = (
        _undecided(found),
        found.contradiction,
        _not_tested(ended),
        failure,
        "" if proven else _not_proven(stored.document.fabric),
        *judgment.doubts,
    )
    result = replace(
        blank,
        bad=_suspects(found),
        nodes=_bad_nodes(found),
        figures=figures,
        limits=judgment.limits,
        fabric=stored.document.fabric if proven else "",
    )
    return judged(result, judgment.missed, doubts)


def _typical(found: Diagnosis, metric: str) -> Iterator[RungFigure]:
    """Yield the figure of healthy tests, of several kinds the worst; none where none compare."""
    worst = max if METRICS[metric].lower_is_better else min
    if found.typicals:
        yield RungFigure(metric, None, worst(found.typicals.values()), found.tests)


def _judged_by_limits(figures: Sequence[RungFigure], gates: Sequence[Gate]) -> Judgment:
    """Judge the typical figure of a sweep by limits; one that nothing fits is a doubt."""
    limits = list[str]()
    missed = list[str]()
    doubts = list[str]()
    for gate in gates:
        if not figures or not _fits(gate, figures[0]):
            doubts.append(f"{gate.text}: nothing to compare was measured.")
            continue
        limits.append(gate.text)
        if _misses(gate, figures[0].value):
            missed.append(f"{gate.text}: typical is {figures[0]}.")
    return Judgment(tuple(limits), tuple(missed), tuple(doubts))


def _fits(gate: Gate, figure: RungFigure) -> bool:
    """Return whether a limit is a plain number for the metric of a figure of any size."""
    plain = not (gate.sizes or gate.relative or gate.needs_baseline)
    return plain and gate.metric == METRICS[figure.metric]


def _misses(gate: Gate, value: float) -> bool:
    return value < gate.bound if gate.kind == AT_LEAST else value > gate.bound


def _undecided(found: Diagnosis) -> str:
    names = [each.name for each in found.undecided]
    return f"{listed(names)} may be bad." if names else ""


def _not_tested(ended: SweepRun) -> str:
    left = "" if ended.whole else unfinished(ended.sweep)
    return f"Not tested: {left}." if left else ""


def _is_proven(stored: StoredSweep) -> bool:
    """Return whether every test succeeded, and so proved what carried its data."""
    return all(each.outcome == Outcome.OK for each in stored.tests)


def _not_proven(fabric: str) -> str:
    return f"Not every test succeeded and proved that it used {fabric}."


def _suspects(found: Diagnosis) -> Mapping[str, str]:
    """Return what is bad → why; for a group also which nodes the groups have."""
    groups = "; ".join(map(_members, found.groups))

    def why(suspect: Suspect) -> str:
        if suspect.kind is not SuspectKind.GROUP:
            return suspect.evidence
        return f"{suspect.evidence} {groups}."

    return {each.name: why(each) for each in found.suspects}


def _members(group: NodeGroup) -> str:
    nodes = compress_hostlist(group.nodes)
    return f"{group.name} is {nodes}"


def _bad_nodes(found: Diagnosis) -> Mapping[str, str]:
    """Return nodes that are bad, or have a bad NIC → why."""
    of_one_node = {SuspectKind.NODE, SuspectKind.NIC}
    bad = [each for each in found.suspects if each.kind in of_one_node]
    return {each.nodes[0]: each.evidence for each in bad}


# ---------------------------------------------------------------- a run on all nodes


def judge_run(ended: RunResult, blank: RungResult) -> RungResult:
    """Return what a run on all nodes says about them."""
    blank = replace(blank, run=ended.path.name)
    logs = [log for column in ended.columns for log in column.logs]
    comparison = ended.comparison
    failed = any(log.outcome is not Outcome.OK for log in logs)
    if ended.failure or comparison is None or failed:
        return _unmeasured(blank, ended.failure, logs)
    alone = len(comparison.columns) == 1
    if ended.verdict:
        judgment = _judged_by_gates(ended.verdict)
    elif alone:
        judgment = _judged_by_expectations(comparison)
    else:
        judgment = Judgment()
    result = replace(
        blank,
        fabric=ended.columns[0].label,
        figures=tuple(_figures(comparison)),
        limits=judgment.limits,
        why="" if alone else _headlines(comparison),
    )
    return judged(result, judgment.missed, judgment.doubts)


def _judged_by_gates(verdict: Verdict) -> Judgment:
    limits = tuple(each.gate for each in verdict.results)
    return Judgment(limits, missed=tuple(verdict.breaches))


def _judged_by_expectations(comparison: Comparison) -> Judgment:
    """Judge figures that no limit of the user judges."""
    judgments = [_judged_by_expectation(each) for each in expectations(comparison)]
    return Judgment(
        limits=tuple(limit for each in judgments for limit in each.limits),
        missed=tuple(sentence for each in judgments for sentence in each.missed),
        doubts=tuple(sentence for each in judgments for sentence in each.doubts),
    )


def _judged_by_expectation(expected: Expectation) -> Judgment:
    """Judge a figure by published ones; without any, by the ceiling of its NICs."""
    if expected.assessment in _TOO_GOOD:
        return Judgment(doubts=(expected.sentence(),))
    if expected.assessment in _PUBLISHED:
        like = expected.setting.words
        limit = f"published for {like}"
        low = expected.assessment is Assessment.LOW
    elif expected.share is not None:
        percent = format(100 * _FLOOR, "g")
        limit = f"{percent} % of the ceiling of its NICs"
        low = expected.share < _FLOOR
    else:
        return Judgment()
    return Judgment((limit,), missed=(expected.sentence(),) if low else ())


def _figures(comparison: Comparison) -> Iterator[RungFigure]:
    """Yield the figure of each headline: that of the first column."""
    for section in comparison.sections:
        row = headline_row(section)
        first = row.figures[0] if row else None
        if row and first:
            yield RungFigure(section.metric.name, row.size, first.value, first.n)


def _headlines(comparison: Comparison) -> str:
    sections = range(len(comparison.sections))
    return " ".join(headline(comparison, section) for section in sections)
