"""Executions of one configuration that stand apart, and drift over their order. Pure.

Each execution has one score: the sum of its sizes, each divided by its standard deviation. An
outlier is an execution that the others do not predict (a t-test of it against them); the first one,
if it is worse, is warm-up. Drift is a slope over the order of executions. Both are tested at 1 %,
and named only where they are large enough to matter.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from operator import sub
from statistics import fmean, median

from fabbench.analysis.aggregate import UNUSABLE, Column
from fabbench.analysis.compare import Comparison, ComparisonSection
from fabbench.analysis.statistics import dot, squares, t_quantile
from fabbench.model import records
from fabbench.model.log import Log, Severity
from fabbench.model.mappings import Sentences
from fabbench.model.messages import key_words
from fabbench.model.units import format_percent

LEVEL = 0.01
LEAST = 4
"""Minimum number of executions for an outlier; drift needs one more."""
OUTLIER = 0.05
"""An outlier differs from the others by at least this fraction."""
DRIFT = 0.02
"""Drift from the first to the last execution is at least this fraction."""
_note = partial(records.sentence, "fabbench.analysis", "footnotes.toml")
"""Return a note by its code, with the values that are in it."""


def irregularities(comparison: Comparison) -> Sentences:
    """Return a sentence for each outlier, warm-up and drift, of every column."""
    sentences: dict[str, None] = {}
    for section in comparison.sections:
        # What distinguishes a section's figures from others', such as their data type
        where = "".join(f", {words}" for words in key_words(section.key))
        for index, (column, _) in enumerate(comparison.inputs):
            if section.shown[index]:
                irregular = _outliers_and_drift(column, _deviations(section, index), where)
                sentences |= dict.fromkeys(irregular)
    return tuple(sentences)


def _deviations(section: ComparisonSection, index: int) -> Mapping[int, list[float]]:
    """Return each execution's logarithms minus the median of their size, where all have it.

    Execution → one for each size; positive is better. Empty if no size is of all executions.
    """
    sign = -1 if section.metric.lower_is_better else 1
    sizes = [dict(figure.executions) for _, figure in section.figures(index)]
    everything = set().union(*sizes)
    in_order = sorted(everything)
    deviations: dict[int, list[float]] = {execution: [] for execution in in_order}
    for values in sizes:
        if len(values) == len(everything) and min(values.values()) > 0:
            logarithms = {execution: sign * math.log(value) for execution, value in values.items()}
            middle = median(logarithms.values())
            for execution, value in logarithms.items():
                deviations[execution].append(value - middle)
    return deviations if all(deviations.values()) else {}


def _outliers_and_drift(
    column: Column, deviations: Mapping[int, list[float]], where: str
) -> Iterator[str]:
    """Yield a sentence on each outlier, and one on a drift of the other executions.

    `deviations`: those of `_deviations`; `where`: what distinguishes the section.
    """
    if len(deviations) < LEAST:
        return
    scores = _scores(deviations)  # in standard deviations, which the tests are about
    # Execution → how it typically differs, as a logarithm: positive is better.
    middles = [median(each) for each in deviations.values()]
    order = list(deviations)
    steady: list[int] = []  # numbers of executions that are no outliers
    for number, middle in enumerate(middles):
        effect = math.expm1(middle)
        if abs(effect) >= OUTLIER and _stands_apart(scores, number):
            yield _outlier(column, order, number, effect, where)
        else:
            steady.append(number)
    steady_scores = [scores[number] for number in steady]
    # A drift takes one more than an outlier
    if len(steady) > LEAST and _drifts(steady_scores):
        change = _change_from_first_to_last([middles[number] for number in steady])
        if abs(change) >= DRIFT:
            direction = "worse" if change < 0 else "better"
            yield _note(
                "drifts",
                column=column,
                where=where,
                count=len(steady),
                direction=direction,
                change=_percent(change),
            )


def _change_from_first_to_last(logarithms: Sequence[float]) -> float:
    """Return by what fraction values change from the first to the last, if steadily."""
    # The means of the halves are this far apart: count - half of the count - 1 steps.
    count = len(logarithms)
    half = count // 2
    earlier = fmean(logarithms[:half])
    later = fmean(logarithms[-half:])
    halves_apart = later - earlier
    return math.expm1(halves_apart * (count - 1) / (count - half))


def _scores(deviations: Mapping[int, list[float]]) -> list[float]:
    """Return each execution's sum over its sizes, each divided by the spread of that size."""
    sizes = zip(*deviations.values(), strict=True)
    spreads = [math.sqrt(squares(size)) for size in sizes]
    return [_score(values, spreads) for values in deviations.values()]


def _score(values: Sequence[float], spreads: Sequence[float]) -> float:
    pairs = zip(values, spreads, strict=True)
    return sum(value / spread for value, spread in pairs if spread > 0)


def _stands_apart(scores: Sequence[float], number: int) -> bool:
    """Return whether a score is farther from the others than they predict."""
    others = [score for index, score in enumerate(scores) if index != number]
    count = len(others)
    variance = squares(others) / (count - 1)
    deviation = math.sqrt(variance * (1 + 1 / count))  # Of one more score from the others' mean
    critical = t_quantile(LEVEL / 2 / len(scores), count - 1)
    return abs(scores[number] - fmean(others)) > critical * deviation


def _drifts(scores: Sequence[float]) -> bool:
    """Return whether scores are shown to have a slope over their order, by least squares."""
    count = len(scores)
    level = fmean(scores)
    places = [place - (count - 1) / 2 for place in range(count)]
    spread = dot(places, places)
    slope = dot(places, scores) / spread
    line = [level + slope * place for place in places]
    apart = map(sub, scores, line)
    variance = sum(each**2 for each in apart) / (count - 2)
    critical = t_quantile(LEVEL / 2, count - 2)
    return abs(slope) > critical * math.sqrt(variance / spread)


def _outlier(column: Column, order: Sequence[int], number: int, effect: float, where: str) -> str:
    """Return the sentence on an outlier: the execution `number`, from 0, of those in `order`.

    `order`: the executions as indexes into the logs of the column. `effect`: by which fraction it
    is better, or worse if negative. One that is worse and the first is a warm-up.
    """
    log = column.logs[order[number]]
    others = [column.logs[each] for each in order if each != order[number]]
    usable = [other for other in others if other.outcome not in UNUSABLE]
    shown = "; ".join(_shown_by_it_alone(log, usable))
    return _note(
        "warm-up" if number == 0 and effect < 0 else "outlier",
        number=number + 1,
        count=len(order),
        column=column,
        where=where,
        effect=_percent(effect),
        direction="worse" if effect < 0 else "better",
        log=log,
        cause=_note("outlier.shown", shown=shown) if shown else _note("outlier.not-shown"),
    )


def _shown_by_it_alone(log: Log, others: Sequence[Log]) -> list[str]:
    """Return what one log shows and no other does: findings and facts, three at most.

    A fact counts where all others have the same value, or none of them has it.
    """
    codes = {each.code for other in others for each in other.findings}
    shown = [
        each.meaning.removesuffix(".")
        for each in log.findings
        if each.code not in codes and each.severity is not Severity.NOTE
    ]
    for name, value in log.facts.items():
        usual = {other.facts.get(name) for other in others}
        if len(usual) == 1 and value not in usual:
            theirs = usual.pop() or "not stated"
            shown.append(f"{name} {value} (others: {theirs})")
    return shown[:3]


def _percent(part: float) -> str:
    return format_percent(abs(part), 1)
