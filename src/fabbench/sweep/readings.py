"""Results of a sweep as arrays: the nodes of each test, and its figure. Compact, for millions of results."""

import math
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from fabbench.sweep.values import SweepOutcome, SweepResult

if TYPE_CHECKING:
    from fabbench.model.log import Metric

Floats: TypeAlias = np.ndarray[tuple[int, ...], np.dtype[np.floating]]
Ints: TypeAlias = np.ndarray[tuple[int, ...], np.dtype[np.integer]]
Flags: TypeAlias = np.ndarray[tuple[int, ...], np.dtype[np.bool_]]


@dataclass(frozen=True, slots=True, kw_only=True)
class TestClass:
    """Tests with the same number of nodes, on the same rail, within a group or not.

    One row of `members`, `series` and `values` for each test.
    """

    size: int
    rail: str
    between: bool
    """Whether the nodes of each test are of different groups."""
    members: Ints
    """Test × role → index of the node, ascending in a row."""
    series: Ints
    """Test → the number of what was measured: figures of one series can be compared."""
    values: Floats
    """The logarithm of the figure, negative for times: larger is better. NaN: it failed or hung."""

    def known_series(self) -> list[int]:
        """Return the series in use, ascending. `np.unique` would take seconds for millions of tests."""
        return np.flatnonzero(np.bincount(self.series)).tolist()


@dataclass(slots=True)
class _Rows:
    members: "array[int]" = field(default_factory=lambda: array("i"))
    series: "array[int]" = field(default_factory=lambda: array("H"))
    values: "array[float]" = field(default_factory=lambda: array("f"))


class Readings:
    """Results, collected as they arrive."""

    def __init__(
        self, metric: "Metric", nodes: Iterable[str] = (), *, group_of: Mapping[str, str] | None = None
    ) -> None:
        """`nodes` are those of the sweep; others are added when results name them.

        `group_of` has the rack or spine of each node, as far as known.
        """
        self.metric = metric
        self.group_of = group_of or {}
        self.nodes: list[str] = []
        self.count = 0
        self.reasons: dict[tuple[int, ...], str] = {}
        """Nodes → why their last failed test failed."""
        self._index: dict[str, int] = {}
        self._rows: dict[tuple[int, str, bool], _Rows] = {}
        self._series: dict[str, int] = {}
        self._sign = -1.0 if metric.lower_is_better else 1.0
        for node in nodes:
            self.index(node)

    def index(self, node: str) -> int:
        """Return the number of a node."""
        found = self._index.get(node)
        if found is None:
            found = self._index[node] = len(self.nodes)
            self.nodes.append(node)
        return found

    def add(self, result: SweepResult) -> None:
        """Add a result."""
        members = sorted(map(self.index, result.test.nodes))
        groups = {self.group_of.get(node) for node in result.test.nodes} if self.group_of else ()
        series = self._series.setdefault(result.series, len(self._series))
        figure = result.figure if result.outcome is SweepOutcome.OK else None
        figures = result.nics if figure and result.nics else {result.test.rail: figure}
        for rail, each in figures.items():
            rows = self._rows.setdefault((len(members), rail, len(groups) > 1), _Rows())
            rows.members.extend(members)
            rows.series.append(series)
            rows.values.append(self._sign * math.log(each) if each else math.nan)
        if not figure:
            self.reasons[tuple(members)] = result.reason
        self.count += 1

    def classes(self) -> Sequence[TestClass]:
        """Return all tests, by class."""
        return [
            TestClass(
                size=size,
                rail=rail,
                between=between,
                members=np.array(rows.members, dtype=np.int32).reshape(-1, size),
                series=np.array(rows.series, dtype=np.int32),
                values=np.array(rows.values, dtype=np.float32),
            )
            for (size, rail, between), rows in self._rows.items()
        ]

    def figure(self, value: float) -> float:
        """Return the figure of a value."""
        return float(np.exp(self._sign * value))
