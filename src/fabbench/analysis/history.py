"""What runs measured over time: one series per key, and what changed together with a level.

Pure.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from fabbench.analysis.change_points import FEWEST, LEAST, level_shifts
from fabbench.analysis.statistics import median
from fabbench.model.log import Metric


class HistoryPoint(NamedTuple):
    """The value of one run, by its id."""

    run: str
    created: str
    value: float
    circumstances: Mapping[str, str]
    """What may differ within a series: versions, image, nodes, environment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelChange:
    """A change of level, at the first run that has the new one."""

    index: int
    before: float
    """The median of the level before."""
    after: float
    """The median of the new level; of a drift, of its last runs."""
    drift: bool
    """Whether the level moved slowly, so that no run began it."""
    different: Mapping[str, tuple[str, str]]
    """What differs between most runs just before it and most runs just after it.

    Name → both values.
    """

    @property
    def ratio(self) -> float:
        """The value after it as a multiple of the value before it."""
        return self.after / self.before


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """The runs of one key, the oldest first."""

    key: Mapping[str, str]
    points: Sequence[HistoryPoint]
    changes: Sequence[LevelChange] = ()

    @property
    def level(self) -> float:
        """The median since the last change."""
        return (
            self.changes[-1].after if self.changes else median(point.value for point in self.points)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """The series of one metric."""

    metric: Metric
    size: int | None
    """None: the best value of each run."""
    series: Sequence[Series]
    span: str = ""  # of the sizes that count, if not all do

    def distinguishing(self, named: Sequence[str]) -> tuple[str, ...]:
        """Return the names in keys that distinguish series with the same values for `named`."""
        groups: dict[tuple[str | None, ...], list[Series]] = {}
        for each in self.series:
            groups.setdefault(tuple(each.key.get(name) for name in named), []).append(each)
        return tuple(
            name
            for name in dict.fromkeys(name for each in self.series for name in each.key)
            if name not in named
            and any(len({each.key.get(name) for each in group}) > 1 for group in groups.values())
        )


def with_changes(key: Mapping[str, str], points: Sequence[HistoryPoint]) -> Series:
    """Return a series with its changes."""
    values = [point.value for point in points]
    found = level_shifts(values)
    ends = (0, *(shift.start for shift in found), len(points))
    changes = [
        LevelChange(
            index=index,
            before=median(values[start:index]),
            after=median(values[max(index, end - LEAST) if drift else index : end]),
            drift=drift,
            different=_different(
                points[max(start, index - FEWEST) : index], points[index : index + FEWEST]
            ),
        )
        for (index, _, drift, _), start, end in zip(found, ends, ends[2:], strict=False)
    ]
    return Series(key=key, points=points, changes=changes)


def _different(
    before: Sequence[HistoryPoint], after: Sequence[HistoryPoint]
) -> dict[str, tuple[str, str]]:
    """Compare several runs on each side: noise may move a change by a run or two."""
    names = dict.fromkeys(name for point in (*before, *after) for name in point.circumstances)
    pairs = {name: (_usual(before, name), _usual(after, name)) for name in names}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def _usual(points: Sequence[HistoryPoint], name: str) -> str:
    return Counter(point.circumstances.get(name, "") for point in points).most_common(1)[0][0]
