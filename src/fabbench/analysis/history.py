"""What runs measured over time: one series per key, and what changed together with a level.

Pure.
"""

from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import NamedTuple

from fabbench.analysis.change_points import FEWEST, watched
from fabbench.model.log import Metric
from fabbench.model.mappings import distinct, gathered, most_common
from fabbench.model.units import Sizes
from fabbench.model.values import frozen

NOTICED = 0.1
"""The loss of which a series says after how many runs it would be seen."""
LATEST = 8
"""How many of the last runs of a drift tell what it came to."""


class HistoryPoint(NamedTuple):
    """The value of one run, by its id."""

    run: str
    created: str
    value: float
    circumstances: Mapping[str, str]
    """What may differ within a series: versions, image, nodes, environment."""
    dated: str = "run"
    """What `created` is from; of a log file: `log`, `name` (of the file) or `mtime`."""


@frozen
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


@frozen
class Series:
    """The runs of one key, the oldest first."""

    key: Mapping[str, str]
    points: Sequence[HistoryPoint]
    changes: Sequence[LevelChange] = ()

    runs_needed: int = 0
    """How many runs are missing before any change can be seen; 0: none."""
    runs_to_see: int | None = None
    """After how many more runs a change by `NOTICED` would probably be reported.

    None: it would drown in noise, or too few runs show the noise.
    """

    @property
    def level(self) -> float:
        """The median since the last change."""
        if self.changes:
            return self.changes[-1].after
        return median(point.value for point in self.points)


@frozen
class History:
    """The series of one metric."""

    metric: Metric
    sizes: Sizes | None
    """Those of which the best value counts; None: all."""
    series: Sequence[Series]

    @property
    def size(self) -> int | None:
        """The only size that counts; None: the best value of each run."""
        smallest, largest = self.sizes.ends if self.sizes else (0, 1)  # all: several
        return smallest if smallest == largest else None

    def distinguishing(self, named: Sequence[str]) -> tuple[str, ...]:
        """Return the names in keys that distinguish series with the same values for `named`."""
        values = [tuple(map(each.key.get, named)) for each in self.series]
        groups = gathered(zip(values, self.series, strict=True))
        names = distinct(name for group in groups.values() for name in _differing(group))
        return tuple(name for name in names if name not in named)


def _differing(group: Sequence[Series]) -> Iterator[str]:
    """Yield the names in keys of which some series have other values."""
    for name in distinct(name for each in group for name in each.key):
        if len({each.key.get(name) for each in group}) > 1:
            yield name


def with_changes(key: Mapping[str, str], points: Sequence[HistoryPoint], assumed: float) -> Series:
    """Return a series with its changes.

    `assumed`: the standard deviation of the logarithm of a run's figure, as far as it is known
    beforehand.
    """
    values = [point.value for point in points]
    watch = watched(values, assumed)
    # Of each level; of a change, `before` begins the level before it, `after` ends the new one.
    starts = [0, *(shift.start for shift in watch.shifts), len(points)]
    changes = []
    for shift, before, after in zip(watch.shifts, starts, starts[2:], strict=False):
        index = shift.start
        level_from = max(index, after - LATEST) if shift.drift else index
        old = points[max(before, index - FEWEST) : index]
        new = points[index : index + FEWEST]
        change = LevelChange(
            index=index,
            before=median(values[before:index]),
            after=median(values[level_from:after]),
            drift=shift.drift,
            different=_different_circumstances(old, new),
        )
        changes.append(change)
    return Series(
        key=key,
        points=points,
        changes=changes,
        runs_needed=watch.needed,
        runs_to_see=watch.runs_to_see(-NOTICED),
    )


def _different_circumstances(
    before: Sequence[HistoryPoint], after: Sequence[HistoryPoint]
) -> dict[str, tuple[str, str]]:
    """Return the name of each circumstance that changed → its usual value before and after.

    Several runs on each side are compared: noise may move a change by a run or two.
    """
    points = (*before, *after)
    names = distinct(name for point in points for name in point.circumstances)
    different = {}
    for name in names:
        old = _usual_circumstance(before, name)
        new = _usual_circumstance(after, name)
        if old != new:
            different[name] = (old, new)
    return different


def _usual_circumstance(points: Sequence[HistoryPoint], name: str) -> str:
    return most_common((point.circumstances.get(name, "") for point in points), default="")
