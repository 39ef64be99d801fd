"""Results of a sweep → suspects, with evidence in words."""

from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

import numpy as np

from fabbench.model.fabrics import natural_order
from fabbench.model.messages import counted, quoted
from fabbench.model.units import scale
from fabbench.sweep.beliefs import DOUBTED
from fabbench.sweep.fit import SURE, TOLERANCE, Fit, FittedClass, fit
from fabbench.sweep.groups import FEW
from fabbench.sweep.readings import Flags, Floats, Ints, Readings
from fabbench.sweep.values import Diagnosis, NodeGroup, Suspect, SuspectKind

CONFIDENCE = 0.99
"""From this confidence on, something counts as bad."""
_REPORTABLE = 0.1
"""From this chance on, something may be bad."""
_REPORTABLE_LINK = 0.03
"""The same of a link that is slow in most of its tests: one test rarely shows more."""
_ONE_OF_MANY = 0.5
"""From this chance on, one of a test's nodes may be bad, although no single one is worth reporting."""
_PARTLY, _FEW_FLAKY = 0.3, 0.05
"""More nodes than this, with so many tests that are not slow, are not flaky."""


def analyze(
    readings: Readings, *, tolerance: float = TOLERANCE, confidence: float = CONFIDENCE
) -> Diagnosis:
    """Name what is bad with at least `confidence`, and what may be bad."""
    return diagnosis(readings, fit(readings, tolerance=tolerance), confidence=confidence)


def diagnosis(readings: Readings, fitted: Fit, *, confidence: float = CONFIDENCE) -> Diagnosis:
    """Name what a fit shows to be bad, or possibly bad."""
    everything = sorted(_suspects(readings, fitted, confidence), key=lambda each: -each.confidence)
    contradiction = _contradiction(fitted, confidence)
    path = [] if contradiction else list(_slow_path(readings, fitted, confidence))
    suspects = (
        []
        if contradiction
        else [*path, *(each for each in everything if each.confidence >= confidence)]
    )
    explained = {node for each in suspects if each.kind is SuspectKind.GROUP for node in each.nodes}
    rest = [
        each for each in everything if each not in suspects and not explained.issuperset(each.nodes)
    ]
    found, count = fitted.groups is not None and not fitted.groups.given, len(fitted.nodes)
    return Diagnosis(
        groups=list(_groups(readings, fitted)),
        found=found,
        misgrouped=bool(readings.group_of) and found,
        slow_path=bool(path),
        contradiction=contradiction,
        suspects=suspects,
        undecided=rest,
        required=confidence,
        typicals=_typicals(readings, fitted),
        spread=fitted.noise,
        tests=readings.count,
        nodes=tuple(readings.nodes),
        links=(
            len(np.unique(np.sort(fitted.pairs.members) @ np.array([count, 1]))),
            count * (count - 1) // 2,
        ),
    )


def _slow_path(readings: Readings, fitted: Fit, confidence: float) -> Iterator[Suspect]:
    """Yield the path between found groups as a suspect, if it is slower than the slowest of them is by itself."""
    groups, inside, between = (
        fitted.groups,
        dict[tuple[str, int], float](),
        dict[tuple[str, int], float](),
    )
    if groups is None or groups.given:
        return
    for each in fitted.classes:
        fine = (
            ~each.failed
            & (fitted.bad[each.tests.members] < DOUBTED).all(axis=1)
            & (each.tests.size == 2)
        )
        side, nearest = (between, max) if each.tests.between else (inside, min)
        for series in each.tests.known_series():
            if (chosen := fine & (each.tests.series == series)).any():
                kind, median = (
                    (each.tests.rail, series % each.tests.kinds),
                    float(np.median(each.tests.values[chosen])),
                )
                side[kind] = nearest(median, side.get(kind, median))
    kinds = inside.keys() & between.keys()
    if kinds and all(between[kind] < inside[kind] + np.log1p(-TOLERANCE) for kind in kinds):
        name = (
            " – ".join(groups.names)
            if len(groups.names) < 4
            else f"{groups.names[0]} … {groups.names[-1]}"
        )
        evidence = EvidenceWriter(readings, fitted, confidence).of_path()
        yield Suspect(SuspectKind.GROUP, name, (), max(confidence, 1 - np.exp(-SURE)), evidence)


def _contradiction(fitted: Fit, confidence: float) -> str:
    """Return why those who look bad cannot all be bad, as a sentence; empty if they can."""
    accused, pairs, count = fitted.bad >= confidence, fitted.pairs, len(fitted.nodes)
    number, fast = int(accused.sum()), pairs.slower >= fitted.slow
    if number > max(1, FEW * count):
        return (
            f"{number} of {count} nodes are slow with the others: so many are of another "
            "type, switch or setting."
        )
    among = accused[pairs.members].all(axis=1)
    if 2 * fast[among].sum() > among.sum():
        tests = f"{fast[among].sum()} of {among.sum()} pairs"
        return f"{tests} of the {number} nodes that look bad are fast: the path to others is slow."
    nodes, own = pairs.members[~pairs.between].reshape(-1), np.repeat(fast[~pairs.between], 2)
    fine = np.bincount(nodes, own, count) > _PARTLY * np.bincount(nodes, minlength=count)
    if (partly := int((accused & fine).sum())) > max(2, _FEW_FLAKY * count):
        return (
            f"{partly} of {count} nodes are slow with some partners, fast with others: a path "
            "between them is slow."
        )
    return ""


def _groups(readings: Readings, fitted: Fit) -> Iterator[NodeGroup]:
    """Yield the groups, with their figures if these can be compared."""
    groups, pairs = fitted.groups, fitted.pairs
    if groups is None:
        return
    # Figures of different things cannot be compared.
    several = (
        len(
            {
                number % each.tests.kinds
                for each in fitted.classes
                for number in each.tests.known_series()
            }
        )
        > 1
    )
    known = ~np.isnan(pairs.values)
    healthy = known & (fitted.bad[pairs.members] < DOUBTED).all(axis=1)
    measured = np.bincount(pairs.members[known].reshape(-1), minlength=len(fitted.nodes)) > 0
    for number, name in enumerate(groups.names):
        mine = healthy & (groups.of[pairs.members] == number).any(axis=1)
        inside, between = (
            readings.figure(float(np.median(pairs.values[side])))
            if side.any() and not several
            else None
            for side in (mine & ~pairs.between, mine & pairs.between)
        )
        members = np.flatnonzero((groups.of == number) & (measured | groups.given)).tolist()
        yield NodeGroup(
            name,
            sorted((fitted.nodes[node] for node in members), key=natural_order),
            inside,
            between,
        )


def _typicals(readings: Readings, fitted: Fit) -> Mapping[str, float]:
    """Return the typical figure of each kind of test, if figures of one kind can be compared."""
    known = [each for each in fitted.classes if not each.failed.all()]
    if any(len(each.tests.known_series()) > 1 for each in known):
        return {}
    where = (
        ("within groups", "between groups")
        if len({each.tests.between for each in known}) > 1
        else ("", "")
    )
    kinds = [
        ", ".join(filter(None, (each.tests.rail, where[each.tests.between]))) for each in known
    ]
    figures = [readings.figure(float(each.typical[each.tests.series[0]])) for each in known]
    return dict(zip(kinds, figures, strict=True))


def _ones_of_many(fitted: Fit) -> Iterator[int]:
    """Yield the nodes of large tests in which some node seems bad, but it is unknown which."""
    for each in fitted.classes:
        chances = fitted.bad[each.pairs]
        rows = (chances.sum(axis=1) >= _ONE_OF_MANY) & (
            chances.max(axis=1, initial=0.0) < _REPORTABLE
        )
        yield from each.pairs[rows].reshape(-1).tolist()


def _suspects(readings: Readings, fitted: Fit, confidence: float) -> Iterator[Suspect]:
    writer, names = EvidenceWriter(readings, fitted, confidence), fitted.nodes
    likely = np.flatnonzero(fitted.bad >= _REPORTABLE).tolist()
    succeeded = [np.unique(each.tests.members[~each.failed]).tolist() for each in fitted.classes]
    without_figure = set(range(len(names))).difference(*succeeded)
    for node in sorted({*likely, *_ones_of_many(fitted), *without_figure}):
        chance = float(fitted.bad[node])
        yield Suspect(SuspectKind.NODE, names[node], (names[node],), chance, writer.of_node(node))
    for (node, rail), chance in fitted.nics.items():
        if chance >= _REPORTABLE:
            name = f"{names[node]}:{rail}"
            yield Suspect(SuspectKind.NIC, name, (names[node],), chance, writer.of_nic(node, rail))
    for group, chance in fitted.uplinks.items():
        # Of found groups, the path between them is a suspect.
        nodes = tuple(node for node in names if readings.group_of.get(node, "") == group)
        if chance >= _REPORTABLE and nodes:
            yield Suspect(SuspectKind.GROUP, group, nodes, chance, writer.of_uplink(group))
    for each in fitted.classes:
        slow = np.bincount(each.factor_of, ~(each.slower >= fitted.slow), len(each.pairs))
        mostly = 2 * slow > np.bincount(each.factor_of, minlength=len(each.pairs))
        for row in np.flatnonzero(
            each.link >= np.where(mostly, _REPORTABLE_LINK, _REPORTABLE)
        ).tolist():
            nodes = tuple(names[node] for node in each.pairs[row].tolist())
            name = " – ".join(nodes) + (f" ({each.tests.rail})" if each.tests.rail else "")
            yield Suspect(
                SuspectKind.LINK, name, nodes, float(each.link[row]), writer.of_link(each, row)
            )
    known = {tuple(sorted(pair)) for each in fitted.classes for pair in each.pairs.tolist()}
    for members, reason in readings.unusable.items():
        if members not in known and without_figure.isdisjoint(members):
            nodes = tuple(names[node] for node in members)
            evidence = f"Its only log says nothing: {quoted(reason)}"
            yield Suspect(SuspectKind.LINK, " – ".join(nodes), nodes, 0.0, evidence)


_LONGEST = 90  # reason why a test failed
Array = TypeVar("Array", Floats, Ints, Flags)


class EvidenceWriter:
    """Describes the evidence against a node, a NIC or a link."""

    def __init__(self, readings: Readings, fitted: Fit, confidence: float) -> None:
        self._readings, self._fit, self._bad = readings, fitted, fitted.bad >= confidence
        # All tests, of one class after another.
        self._values = self._all(lambda each: each.tests.values)
        self._slower = np.nan_to_num(self._all(lambda each: each.slower), nan=-np.inf)
        self._kinds = np.cumsum(self._all(lambda each: np.arange(len(each.slower)) == 0)) << 16
        self._kinds += self._all(lambda each: each.tests.series).astype(np.int64)
        self._slow: Flags = self._slower < fitted.slow
        self._failed: Flags = np.isnan(self._values)
        best = float(np.max(self._values, initial=-np.inf, where=~self._failed))
        self._scale = scale(
            readings.metric.unit, readings.figure(best) if np.isfinite(best) else 1.0
        )

    def of_node(self, node: int) -> str:
        """Return the evidence against a node."""
        name, mine = self._fit.nodes[node], self._tests_of(node)
        if not mine.any():
            reasons = [
                reason for members, reason in self._readings.unusable.items() if node in members
            ]
            return f"{name} has no usable test{f': {quoted(reasons[0])}' if reasons else '.'}"
        sizes = self._all(lambda each: np.full(len(each.slower), each.tests.size))
        if not (pairs := mine & (sizes == 2)).any():
            return (
                f"{name} {self._how(mine)} "
                f"{'alone' if (sizes[mine] == 1).any() else 'in groups'}{self._figures(mine)}."
            )
        others = self._bad.copy()
        others[node] = False
        healthy = pairs & ~self._all(
            lambda each: np.asarray(others[each.tests.members].any(axis=1))
        )
        return f"{name} {self._often(healthy, 'pairs with healthy nodes' if others.any() else 'pairs')}."

    def of_nic(self, node: int, rail: str) -> str:
        """Return the evidence against one NIC of a node."""
        rails = np.array([each.tests.rail for each in self._fit.classes])
        rail_of, mine = (
            np.repeat(rails, [len(each.slower) for each in self._fit.classes]),
            self._tests_of(node),
        )
        others = {*rail_of[mine].tolist()} - {rail, *rail_of[mine & self._slow].tolist()}
        rest = f"; its other {counted(len(others), 'NIC')} are fine" if len(others) > 1 else ""
        return (
            f"{rail} of {self._fit.nodes[node]} "
            f"{self._often(mine & (rail_of == rail), 'pairs', rest)}."
        )

    def of_uplink(self, group: str) -> str:
        """Return the evidence against the uplink of a group."""
        assert self._fit.groups is not None  # noqa: S101 - one of them is bad
        inside = self._fit.groups.of == list(self._fit.groups.names).index(group)
        tests = self._all(
            lambda each: (
                (inside[each.tests.members].sum(axis=1) == 1)
                if each.tests.between
                else each.failed & False
            )
        )
        return f"{group} {self._often(tests, 'pairs with other groups')}."

    def of_path(self) -> str:
        """Return the evidence against the path between found groups."""
        pairs = self._fit.pairs
        fine = ~np.isnan(pairs.values) & (self._fit.bad[pairs.members] < DOUBTED).all(axis=1)
        several = len(np.unique(self._all(lambda each: each.tests.series % each.tests.kinds))) > 1
        sides = [pairs.values[fine & side] for side in (pairs.between, ~pairs.between)]
        figures = [
            "" if several else f": {self._range(values)} {self._scale.unit}" for values in sides
        ]
        return (
            f"{counted(len(sides[0]), 'pair')} between groups{figures[0]}; {len(sides[1])} "
            f"within{figures[1]}."
        )

    def of_link(self, each: FittedClass, row: int) -> str:
        """Return the evidence against the link between the nodes of a pair."""
        pair = each.pairs[row].tolist()
        nodes = [self._fit.nodes[node] for node in pair]
        name = " – ".join(nodes) if len(nodes) == 2 else f"{nodes[0]} and {len(nodes) - 1} others"
        fine = all((self._tests_of(node) & ~self._slow).any() for node in pair)
        tests = self._all(
            lambda other: np.full(len(other.slower), other is each) & (other.factor_of == row)
        )
        return f"{name} {self._often(tests, 'tests', '; each node is fine with others' if fine else '')}."

    def _all(self, values: Callable[[FittedClass], Array]) -> Array:
        """Return the values of all tests."""
        return np.concatenate([np.zeros(0, dtype=np.bool_), *map(values, self._fit.classes)])

    def _tests_of(self, node: int) -> Flags:
        return self._all(lambda each: np.asarray((each.tests.members == node).any(axis=1)))

    def _often(self, tests: Flags, what: str, rest: str = "") -> str:
        count = (tests & self._slow).sum()
        return f"{self._how(tests)} in {count} of {tests.sum()} {what}{rest}{self._figures(tests)}"

    def _how(self, tests: Flags) -> str:
        failed = (tests & self._failed).sum()
        how = "fails" if failed == (tests & self._slow).sum() else "is slow or fails"
        return how if failed else "is slow"

    def _figures(self, tests: Flags) -> str:
        """Return, in parentheses, the figures of these tests, and those of others."""
        words, unit = [], f" {self._scale.unit}"
        # Figures of different things cannot be compared.
        several = len(np.unique(self._kinds[tests & ~self._failed])) > 1
        if (slow := tests & self._slow & ~self._failed).any():
            ends = [
                f"{np.exp(end(self._slower[slow])):.0%}".rstrip("%") for end in (np.min, np.max)
            ]
            part = f"{'–'.join(dict.fromkeys(ends))}% of the typical figure"
            words, unit = [part if several else f"{self._range(self._values[slow])}{unit}"], ""
        if (tests & self._failed).any():
            words.append(f"{(tests & self._failed).sum()} failed{self._reason(tests)}")
        if words and not several and (rest := ~tests & ~self._slow).any():
            words.append(f"others {self._range(self._values[rest])}{unit}")
        return f" ({'; '.join(words)})" if words else ""

    def _reason(self, tests: Flags) -> str:
        names = [tuple(row) for each in self._fit.classes for row in each.tests.members.tolist()]
        for test in np.flatnonzero(tests & self._failed).tolist():
            if reason := quoted(self._readings.reasons.get(names[test], "")).rstrip("."):
                cut = f"{reason[:_LONGEST].rpartition(' ')[0]} …"
                return f": {reason if len(reason) <= _LONGEST else cut}"
        return ""

    def _range(self, values: Floats) -> str:
        """Return the range of figures (of many, of 90 % of them) to the two digits that noise allows."""
        ends = (
            np.quantile(values, (0.05, 0.95)) if len(values) > 20 else (values.min(), values.max())
        )
        figures = sorted(self._readings.figure(float(end)) for end in ends)
        return "–".join(dict.fromkeys(self._scale.text(float(f"{each:.2g}")) for each in figures))
