"""Why something is suspected, in a sentence: "node-05 is in 7 of 7 slow pairs (31 GB/s; others 76–78)"."""

from collections.abc import Callable
from typing import TypeVar

import numpy as np

from fabbench.model.messages import counted, quoted
from fabbench.model.units import scale
from fabbench.sweep.chance import DOUBTED
from fabbench.sweep.fit import Fit, FittedClass
from fabbench.sweep.readings import Flags, Floats, Ints, Readings

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
        self._scale = scale(readings.metric.unit, readings.figure(best) if np.isfinite(best) else 1.0)

    def of_node(self, node: int) -> str:
        """Return the evidence against a node."""
        name, mine = self._fit.nodes[node], self._tests_of(node)
        if not mine.any():
            reasons = [reason for members, reason in self._readings.unusable.items() if node in members]
            return f"{name} has no usable test{f': {quoted(reasons[0])}' if reasons else '.'}"
        sizes = self._all(lambda each: np.full(len(each.slower), each.tests.size))
        if not (pairs := mine & (sizes == 2)).any():
            return (
                f"{name} {self._how(mine)} {'alone' if (sizes[mine] == 1).any() else 'in groups'}{self._figures(mine)}."
            )
        others = self._bad.copy()
        others[node] = False
        healthy = pairs & ~self._all(lambda each: np.asarray(others[each.tests.members].any(axis=1)))
        return f"{name} {self._often(healthy, 'pairs with healthy nodes' if others.any() else 'pairs')}."

    def of_nic(self, node: int, rail: str) -> str:
        """Return the evidence against one NIC of a node."""
        rails = np.array([each.tests.rail for each in self._fit.classes])
        rail_of, mine = np.repeat(rails, [len(each.slower) for each in self._fit.classes]), self._tests_of(node)
        others = {*rail_of[mine].tolist()} - {rail, *rail_of[mine & self._slow].tolist()}
        rest = f"; its other {counted(len(others), 'NIC')} are fine" if len(others) > 1 else ""
        return f"{rail} of {self._fit.nodes[node]} {self._often(mine & (rail_of == rail), 'pairs', rest)}."

    def of_uplink(self, group: str) -> str:
        """Return the evidence against the uplink of a group."""
        assert self._fit.groups is not None  # noqa: S101 - one of them is bad
        inside = self._fit.groups.of == list(self._fit.groups.names).index(group)
        tests = self._all(
            lambda each: (inside[each.tests.members].sum(axis=1) == 1) if each.tests.between else each.failed & False
        )
        return f"{group} {self._often(tests, 'pairs with other groups')}."

    def of_path(self) -> str:
        """Return the evidence against the path between found groups."""
        pairs = self._fit.pairs
        fine = ~np.isnan(pairs.values) & (self._fit.bad[pairs.members] < DOUBTED).all(axis=1)
        several = len(np.unique(self._all(lambda each: each.tests.series % each.tests.kinds))) > 1
        sides = [pairs.values[fine & side] for side in (pairs.between, ~pairs.between)]
        figures = ["" if several else f": {self._range(values)} {self._scale.unit}" for values in sides]
        return f"{counted(len(sides[0]), 'pair')} between groups{figures[0]}; {len(sides[1])} within{figures[1]}."

    def of_link(self, each: FittedClass, row: int) -> str:
        """Return the evidence against the link between the nodes of a pair."""
        pair = each.pairs[row].tolist()
        nodes = [self._fit.nodes[node] for node in pair]
        name = " – ".join(nodes) if len(nodes) == 2 else f"{nodes[0]} and {len(nodes) - 1} others"
        fine = all((self._tests_of(node) & ~self._slow).any() for node in pair)
        tests = self._all(lambda other: np.full(len(other.slower), other is each) & (other.factor_of == row))
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
            ends = [f"{np.exp(end(self._slower[slow])):.0%}".rstrip("%") for end in (np.min, np.max)]
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
        ends = np.quantile(values, (0.05, 0.95)) if len(values) > 20 else (values.min(), values.max())
        figures = sorted(self._readings.figure(float(end)) for end in ends)
        return "–".join(dict.fromkeys(self._scale.text(float(f"{each:.2g}")) for each in figures))
