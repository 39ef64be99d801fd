"""Results of a sweep as arrays, compact: the nodes of each test, and its figure."""

import math
from array import array
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from fabbench.model.values import frozen
from fabbench.sweep.repeats import Endings
from fabbench.sweep.values import (
    LONGER,
    SweepOutcome,
    SweepResult,
    SweepTest,
    not_zero,
    rounded_part,
)

if TYPE_CHECKING:
    from fabbench.model.log import Metric

Shape: TypeAlias = tuple[int, ...]
Floats: TypeAlias = np.ndarray[Shape, np.dtype[np.floating]]
Ints: TypeAlias = np.ndarray[Shape, np.dtype[np.integer]]
Flags: TypeAlias = np.ndarray[Shape, np.dtype[np.bool_]]
_Seconds: TypeAlias = "array[float]"


def _no_seconds() -> _Seconds:
    return array("f")


class ByKey(NamedTuple):
    """Values by their keys: those of one key are neighbors, ascending."""

    keys: Ints
    """Each key once, ascending."""
    starts: Ints
    """Key → its first value."""
    counts: Ints
    """Key → how many values it has."""
    values: Floats


def by_key(keys: Ints, values: Floats) -> ByKey:
    """Return values sorted by their keys, and ascending within each."""
    order = np.lexsort((values, keys))
    ordered = keys[order]
    starts = np.flatnonzero(np.diff(ordered, prepend=-1))
    counts = np.diff(starts, append=len(ordered))
    return ByKey(ordered[starts], starts, counts, values[order])


_LATE = 0.75
"""Healthy tests take as long as this part of a node's tests, and of the nodes.

Whatever path they took: most nodes and their tests are healthy. Each node counts once, as one that
is bad is tested most often, and the tests of it that do end take long.
"""
_ENOUGH = 1.25
"""So many times what its repeat took, and what healthy tests take, is time enough for a test."""
_MOST_ROUNDED = 0.9
"""A typical figure is no smaller than this part of half of its last digit."""


def _late(seconds: Sequence[float]) -> float:
    """Return which of these times `_LATE` of them do not exceed."""
    return float(np.quantile(seconds, _LATE, method="lower"))


@frozen
class TestClass:
    """Tests with the same number of nodes, on the same rail, within a group or not.

    A row of each array per test.
    """

    nodes_per_test: int
    rail: str
    between: bool
    """Whether the nodes of each test are of different groups."""
    members: Ints
    """Test × slot → index of the node, ascending in a row."""
    server: Ints
    """Test → index of the node that was the first of the test: of a pair, the server."""
    series: Ints
    """Test → the number of what was measured: figures of one series can be compared."""
    kinds: int
    """How many things were measured; a series modulo this is the same one, of whatever group."""
    sign: float
    """-1: the figures are times, of which less is better; 1: more is better."""
    values: Floats
    """The logarithm of the figure, negative for times: larger is better. NaN: it failed or hung."""
    rounded: Floats
    """Half of the last printed digit, relative to the figure."""

    def log_ratio(self, typical: Floats) -> Floats:
        """Return by how much each test differs from the typical figures, as a logarithm.

        What rounding can explain is no difference: a figure, and the typical one, stand for all
        that are printed alike.
        """
        apart = self.values - typical[self.series]
        of_typical = self.rounded * np.exp(apart * self.sign)  # the digit, as a part of the typical
        # As logarithms: the figure half a digit higher, the typical one half a digit lower. What is
        # printed as 0 is between 0 and half of a digit.
        own_rounding = np.log1p(np.minimum(self.rounded, 1.0))
        typical_rounding = -np.log1p(-np.minimum(of_typical, _MOST_ROUNDED))
        unexplained = np.maximum(np.abs(apart) - own_rounding - typical_rounding, 0.0)
        return np.sign(apart) * unexplained

    @property
    def kind(self) -> Ints:
        """Return test → the number of what was measured, in whatever group."""
        return self.series % self.kinds

    def is_like(self, other: "TestClass") -> bool:
        """Return whether both have the same number of nodes, and the same rail."""
        return self.nodes_per_test == other.nodes_per_test and self.rail == other.rail

    def known_series(self) -> list[int]:
        """Return the series in use, ascending.

        `np.unique` would take seconds for millions of tests.
        """
        return np.flatnonzero(np.bincount(self.series)).tolist()


class _Rows:
    """Tests of so many nodes on one rail, as they arrive: the columns of `TestClass`."""

    def __init__(self) -> None:
        self.members = array("i")
        """The nodes of one test after another."""
        self.server = array("i")
        self.series = array("H")
        self.values = array("f")
        self.rounded = array("f")


TYPE = "type="
"""What the name of a group begins with that is a type of machine, and not a place."""


def _types_among(group_of: Mapping[str, str]) -> Mapping[str, str]:
    """Return node → its type, of groups that are types: ``type=NAME``."""
    return {
        node: group.removeprefix(TYPE)
        for node, group in group_of.items()  # of places, too
        if group.startswith(TYPE)
    }


class Readings:
    """Results, collected as they arrive."""

    def __init__(
        self,
        metric: "Metric",
        nodes: Iterable[str] = (),
        results: Iterable[SweepResult] = (),
        *,
        group_of: Mapping[str, str] | None = None,
        types: Mapping[str, str] | None = None,
    ) -> None:
        """Begin with the nodes of the sweep and the results so far; results may name other nodes.

        `group_of`: node → its rack or spine, `types`: its instance type, as far as known.
        """
        self.types = {**(types or {}), **_types_among(group_of or {})}
        self.metric = metric
        self.group_of = group_of or {}
        self.nodes: list[str] = []
        self.count = 0  # Tests that were added and say something
        self.reasons: dict[tuple[int, ...], str] = {}
        """Nodes → why their last failed test failed."""
        self.unusable: dict[tuple[int, ...], str] = {}
        """Nodes → why a result of them says nothing."""
        self.endings = Endings()
        self.hung: list[SweepResult] = []
        """Tests that ran out of time: not judged yet, or too soon to show anything."""
        self.hung_once: list[SweepResult] = []
        """Tests that ran out of time, and were repeated in time, if not by much: undecided."""
        self.repeated: dict[SweepTest, float] = {}
        """Test with the usual limit → how long it took with a longer one; infinite: no figure."""
        self._seconds: dict[int, _Seconds] = defaultdict(_no_seconds)
        """Node → how long each of its tests took that was measured."""
        self._index: dict[str, int] = {}  # Node → its number, which is its place in `nodes`
        self._rows: dict[tuple[int, str], _Rows] = {}
        """Number of nodes and rail → its tests."""
        self._series: dict[str, int] = {}
        """What was measured (`SweepResult.series`) → its number, in the order of arrival."""
        self._sign = -1.0 if metric.lower_is_better else 1.0
        for node in nodes:
            self.index(node)
        for result in results:
            self.add(result)

    def index(self, node: str) -> int:
        """Return the number of a node."""
        if node not in self._index:
            self._index[node] = len(self.nodes)
            self.nodes.append(node)
        return self._index[node]

    def group(self, node: str) -> str:
        """Return the group that the user named for a node; empty: none."""
        return self.group_of.get(node, "")

    def type(self, node: str) -> str:
        """Return the type of a node; empty: it is not known."""
        return self.types.get(node, "")

    def add(self, result: SweepResult) -> None:
        """Add a result; one that hung counts from the next `judge_hung` on, if it shows something.

        By then more is known of how long healthy ones take. One that is repeated with more time
        counts by that alone, unless the usual limit was enough for the repeat.
        """
        if result.test.longer:
            self.repeated[result.test.usual] = result.seconds if result.is_measured else math.inf
        if result.outcome is SweepOutcome.HUNG:
            self.hung.append(result)
        else:
            self._add(result)

    def _add(self, result: SweepResult) -> None:
        """Add a row for each NIC that has a figure, NaN where the test failed or hung."""
        roles = list(map(self.index, result.test.nodes))  # the first is the server
        members = sorted(roles)
        if result.outcome is SweepOutcome.UNUSABLE:
            self.unusable[tuple(members)] = result.reason
            return
        series = self._series.setdefault(result.series, len(self._series))
        measured = result.outcome is SweepOutcome.OK and result.is_measured
        # NIC → its figure; NaN: it failed.
        figures = {result.test.rail: (result.figure or 0.0) if measured else math.nan}
        if measured and result.nics:
            figures = {**result.nics}
        # Several NICs of one test are as many rows, of different rails.
        for rail, figure in figures.items():
            rows = self._rows.setdefault((len(members), rail), _Rows())
            rows.members.extend(members)
            rows.server.append(roles[0])
            rows.series.append(series)
            rows.values.append(self._value(figure, result.step))
            rows.rounded.append(rounded_part(figure, result.step))
        if measured and result.seconds:
            for node in members:
                self._seconds[node].append(result.seconds)
        if not measured:
            self.reasons[tuple(members)] = result.reason
        self.endings.add(tuple(members), result)
        self.count += 1

    @property
    def healthy_s(self) -> float:
        """How many seconds healthy tests take; infinite: it is not known."""
        if not self._seconds:
            return math.inf
        return _late([*map(_late, self._seconds.values())])

    @property
    def least_s(self) -> float:
        """From how many seconds on a test that hung shows something; infinite: it is not known.

        One that ended sooner may be as healthy as those that took long: nodes may be busy or
        throttled.
        """
        return LONGER * self.healthy_s

    def in_time(self, node: str) -> int:
        """Return how many tests of a node ended in time, of those whose time is known."""
        return len(self._seconds.get(self.index(node), ()))

    def judge_hung(self) -> None:
        """Judge tests that hung by all that is known now of how long healthy ones take."""
        healthy_s = self.healthy_s
        set_aside = self.hung
        self.hung = []
        for result in set_aside:
            again_s = self.repeated.get(result.test)  # None: it was not repeated
            enough_s = LONGER * healthy_s
            if again_s is not None:
                enough_s = _ENOUGH * max(again_s, healthy_s)
            if result.seconds >= enough_s:
                self._add(result)
            elif again_s is None:
                self.hung.append(result)
            elif again_s <= result.seconds:  # else the limit was too short, and nothing is wrong
                self.hung_once.append(result)

    def classes(
        self,
        groups: Ints | None = None,
        *,
        apart: bool = False,
        without: Collection[int] = (),
    ) -> Sequence[TestClass]:
        """Return all tests by class: their number of nodes, rail, and whether they cross groups.

        `without`: nodes whose tests are left out. `groups`: node → number of its group; `apart`:
        each of these has figures of its own, the fastest first. A test then has the
        figures of the slowest that takes part, and no path.
        """
        classes_of_tests = []
        kinds = len(self._series)  # how many things were measured
        for (nodes_per_test, rail), rows in self._rows.items():
            nodes: Ints = np.array(rows.members)
            members = nodes.reshape(-1, nodes_per_test)
            series: Ints = np.array(rows.series, dtype=np.int32)
            group_of = np.zeros_like(members) if groups is None else groups[members]
            across = (group_of != group_of[:, :1]).any(axis=1)
            if apart:  # the series of a slower group are numbered after those of the fastest
                slowest = group_of.max(axis=1).astype(np.int32)
                series = series + kinds * slowest
                across[:] = False
            columns: dict[str, Any] = {
                "members": members,
                "server": np.array(rows.server),
                "series": series,
                "values": np.array(rows.values),
                "rounded": np.array(rows.rounded),
            }
            left = ~np.isin(members, list(without)).any(axis=1)
            for between in (False, True):
                chosen = left & (across == between)
                if chosen.any():
                    chosen_rows = {name: column[chosen] for name, column in columns.items()}
                    tests = TestClass(
                        nodes_per_test=nodes_per_test,
                        rail=rail,
                        between=between,
                        kinds=kinds,
                        sign=self._sign,
                        **chosen_rows,
                    )
                    classes_of_tests.append(tests)
        return classes_of_tests

    def _value(self, figure: float, step: float) -> float:
        """Return the logarithm of a figure, larger is better; NaN: the test has none.

        One that is printed as 0, in steps, is not zero.
        """
        known = not_zero(figure, step)
        return self._sign * math.log(known) if known else math.nan

    def figure(self, value: float) -> float:
        """Return the figure, in the metric's base unit, whose logarithm a value is."""
        return float(np.exp(self._sign * value))
