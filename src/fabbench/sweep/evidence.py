"""Why something is suspected, in a sentence: "node-05 is in 7 of 7 slow pairs (31 GB/s; others 76–78)"."""

from collections.abc import Sequence

import numpy as np

from fabbench.model.messages import counted, quoted
from fabbench.model.units import Scale, scale
from fabbench.sweep.fit import Fit, FittedClass
from fabbench.sweep.readings import Flags, Floats, Readings

_LONGEST = 90
"""Maximum length of the reason why a test failed."""


class EvidenceWriter:
    """Describes the evidence against a node, a NIC or a link."""

    def __init__(self, readings: Readings, fitted: Fit, confidence: float) -> None:
        self._readings = readings
        self._fit = fitted
        self._bad = fitted.bad >= confidence
        self._scale = figures_scale(readings, fitted)

    def of_node(self, node: int) -> str:
        """Return the evidence against a node."""
        name, classes = self._fit.nodes[node], self._fit.classes
        masks = [(each, (each.tests.members == node).any(axis=1)) for each in classes]
        if not any(mask.any() for _, mask in masks):
            return f"{name} was not tested."
        pairs = [(each, mask) for each, mask in masks if each.tests.size == 2 and mask.any()]
        if not pairs:
            alone = any(each.tests.size == 1 and mask.any() for each, mask in masks)
            return f"{name} {self._how(masks)} {'alone' if alone else 'in groups'}{self._figures(masks)}."
        count, total = self._count(pairs), sum(int(self._slow(each).sum()) for each, _ in pairs)
        if count == total and not self._bad[np.arange(len(self._bad)) != node].any():
            fine = sum(int(mask.sum()) for _, mask in pairs) - count
            rest = f", and in {counted(fine, 'other')}" if fine else ""
            what = "failed" if self._how(pairs) == "fails" else "slow"
            return f"{name} is in {count} of {total} {what} pairs{rest}{self._figures(pairs)}."
        partners = ((each, mask, np.where(each.tests.members == node, -1, each.tests.members)) for each, mask in pairs)
        healthy = [(each, mask & ~self._bad[others.max(axis=1)]) for each, mask, others in partners]
        tested = sum(int(mask.sum()) for _, mask in healthy)
        how = f"{self._how(healthy)} in {self._count(healthy)} of {tested} pairs with healthy nodes"
        return f"{name} {how}{self._figures(healthy)}."

    def of_nic(self, node: int, rail: str) -> str:
        """Return the evidence against one NIC of a node."""
        name = self._fit.nodes[node]
        masks = [(each, (each.tests.members == node).any(axis=1)) for each in self._fit.classes]
        pairs = [(each, mask) for each, mask in masks if each.tests.rail == rail and mask.any()]
        tested = sum(int(mask.sum()) for _, mask in pairs)
        others = [
            each for each, mask in masks if each.tests.rail != rail and mask.any() and not self._count([(each, mask)])
        ]
        rest = f"; its other {counted(len(others), 'NIC')} are fine" if len(others) > 1 else ""
        how = f"{self._how(pairs)} in {self._count(pairs)} of {tested} pairs"
        return f"{rail} of {name} {how}{rest}{self._figures(pairs)}."

    def of_uplink(self, group: str) -> str:
        """Return the evidence against the uplink of a group."""
        inside = [self._readings.group_of.get(node, "") == group for node in self._fit.nodes]
        flags = np.array(inside, dtype=bool)
        masks = [(each, flags[each.tests.members].sum(axis=1) == 1) for each in self._fit.classes if each.tests.between]
        tested = sum(int(mask.sum()) for _, mask in masks)
        how = f"{self._how(masks)} in {self._count(masks)} of {tested} pairs with other groups"
        return f"{group} {how}{self._figures(masks)}."

    def of_link(self, each: FittedClass, row: int) -> str:
        """Return the evidence against the link between the nodes of a pair."""
        masks = [(each, each.factor_of == row)]
        a, *rest = (self._fit.nodes[node] for node in each.pairs[row].tolist())
        nodes = f"{a} and {rest[0]}" if len(rest) == 1 else f"{a} and {len(rest)} others"
        succeeded = each.tests.members[~self._slow(each)]
        fine = "; each is fine with others" if np.isin(each.pairs[row], succeeded).all() else ""
        how = {"is slow": "are slow", "fails": "fail"}.get(self._how(masks), "are slow or fail")
        count = f"{self._count(masks)} of {counted(int(masks[0][1].sum()), 'test')}"
        return f"{nodes} {how} together in {count}{fine}{self._figures(masks)}."

    def _count(self, masks: Sequence[tuple[FittedClass, Flags]]) -> int:
        """Return how many tests are slow or failed."""
        return sum(int((self._slow(each) & mask).sum()) for each, mask in masks)

    def _how(self, masks: Sequence[tuple[FittedClass, Flags]]) -> str:
        failed = sum(int((np.isnan(each.slower) & mask).sum()) for each, mask in masks)
        if not failed:
            return "is slow"
        return "fails" if failed == self._count(masks) else "is slow or fails"

    def _slow(self, each: FittedClass) -> Flags:
        return np.asarray(np.isnan(each.slower) | (np.nan_to_num(each.slower) < self._fit.slow))

    def _figures(self, masks: Sequence[tuple[FittedClass, Flags]]) -> str:
        """Return, in parentheses, the figures of these tests, and those of others."""
        words = []
        failed = sum(int((np.isnan(each.slower) & mask).sum()) for each, mask in masks)
        values = [each.tests.values[mask & self._slow(each) & ~np.isnan(each.slower)] for each, mask in masks]
        known = np.concatenate(values) if values else np.zeros(0)
        # Figures of different things cannot be compared.
        several = sum(len(np.unique(each.tests.series[mask & ~np.isnan(each.slower)])) for each, mask in masks) > 1
        if len(known):
            words.append(self._slowdown(masks) if several else f"{self._range(known)} {self._scale.unit}")
        if failed:
            words.append(f"{failed} failed{self._reason(masks)}")
        if words and not several:
            rest = np.concatenate([each.tests.values[~mask & ~self._slow(each)] for each, mask in masks])
            unit = "" if len(known) else f" {self._scale.unit}"
            words += [f"others {self._range(rest)}{unit}"] if len(rest) else []
        return f" ({'; '.join(words)})" if words else ""

    def _slowdown(self, masks: Sequence[tuple[FittedClass, Flags]]) -> str:
        values = [each.slower[mask & self._slow(each) & ~np.isnan(each.slower)] for each, mask in masks]
        parts = np.exp(np.quantile(np.concatenate(values), (0.0, 1.0)))
        low, high = (f"{part:.0%}".rstrip("%") for part in parts)
        return f"{low if low == high else f'{low}–{high}'}% of the typical figure"

    def _reason(self, masks: Sequence[tuple[FittedClass, Flags]]) -> str:
        for each, mask in masks:
            for members in each.tests.members[mask & np.isnan(each.slower)].tolist():
                if reason := quoted(self._readings.reasons.get(tuple(members), "")).rstrip("."):
                    short = f"{reason[:_LONGEST].rpartition(' ')[0]} …"
                    return f": {reason if len(reason) <= _LONGEST else short}"
        return ""

    def _range(self, values: Floats) -> str:
        """Return the range of figures (of many, of 90 % of them), or one figure if both ends look the same."""
        ends = np.quantile(values, (0.05, 0.95)) if len(values) > 20 else (values.min(), values.max())
        low, high = sorted(self._readings.figure(float(end)) for end in ends)
        texts = [rounded(self._scale, figure) for figure in (low, high)]
        return texts[0] if texts[0] == texts[1] else "–".join(texts)


def rounded(scale: Scale, figure: float) -> str:
    """Format a figure with no more digits than noise allows: whole numbers from 10 on."""
    number = figure / scale.factor
    return f"{number:.0f}" if number >= 10 else scale.text(float(f"{figure:.2g}"))


def figures_scale(readings: Readings, fitted: Fit) -> Scale:
    """Return the scale for the figures of a sweep."""
    tops = [np.nanmax(each.tests.values) for each in fitted.classes if not np.isnan(each.tests.values).all()]
    largest = max((readings.figure(float(top)) for top in tops), default=1.0)
    return scale(readings.metric.unit, largest)
