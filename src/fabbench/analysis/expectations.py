"""Is a number normal? A configuration's figures against the ceiling of its NICs, and published figures. Pure.

The ceiling is what the NICs of a node can carry at most. Reduced inside of nodes first, all_reduce moves
2(k - 1)/k of the data over the NICs of each of k nodes, so busbw may exceed the NICs' own rate between few
nodes: at two, almost twice.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from fabbench.analysis.aggregate import Column
from fabbench.analysis.causes import likely_causes
from fabbench.analysis.compare import Comparison, ComparisonSection
from fabbench.analysis.setting import Setting, setting_of
from fabbench.catalog.expectations import NVLINK, Published, Role, published
from fabbench.model.log import METRICS, Metric
from fabbench.model.units import Scale, format_decimal, format_size

SLACK = 1.03
"""Beyond the ceiling by more than this is impossible; less is rounding of nominal rates."""
TOLERANCE = 0.9
"""Part of the least published rate that is still normal; the inverse for times."""
SMALLER = 0.75
"""The same at sizes that are smaller than the published one by up to `NEAR`."""
NEAR = 4
_LARGE: Mapping[str, int] = {"busbw": 1 << 30, "bandwidth": 1 << 20}
"""The least size that counts as large, where a source states none."""


class Assessment(StrEnum):
    """Whether a number is normal."""

    NORMAL = "normal"
    LOW = "low"
    """A rate that is too low, or a time that is too long."""
    ABOVE = "above-ceiling"
    """Impossible, if what is said of the nodes is true."""
    UNKNOWN = "no-published-figure"


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """One configuration and what was to be expected of it, in base units."""

    column: str
    key: Mapping[str, str]
    """Of the comparison's section."""
    setting: Setting
    metric: Metric
    scale: Scale
    size: int
    """At which it was judged."""
    value: float
    assessment: Assessment
    ceiling: float | None = None
    figures: Sequence[Published] = ()
    """The published figures that it was held against."""
    causes: Sequence[str] = ()
    remark: str = ""
    """A sentence."""

    @property
    def share(self) -> float | None:
        """The part of the ceiling; None: there is none."""
        return self.value / self.ceiling if self.ceiling else None

    @property
    def range(self) -> tuple[float, float] | None:
        """The least and the largest published figure; None: there is none."""
        values = [figure.value for figure in self.figures]
        return (min(values), max(values)) if values else None

    def sentence(self) -> str:
        """Say it in one line, without the name of the configuration."""
        write = self.scale.quantity
        words = _WORDS[self.assessment]
        if self.assessment is Assessment.UNKNOWN:
            words += " to judge by" if self.figures else f" for {self.setting.words}"
        told = f"{words}: {write(self.value)} at {format_size(self.size)}"
        if self.ceiling and self.share:
            told += f", {format_decimal(100 * self.share, 0)} % of the ceiling of the NICs"
            told += f" ({write(self.ceiling)})"
        told += f". {self._published()}" if self.figures else "."
        if self.causes:
            told += f" Likely causes: {'; '.join(self.causes)}."
        return f"{told} {self.remark}".rstrip()

    def _published(self) -> str:
        low, high = self.range or (0.0, 0.0)
        figures = self.scale.quantity(high)
        if low < high:
            figures = f"{self.scale.text(low)} to {figures}"
        sizes = {figure.size for figure in self.figures}
        at = "".join(f" at {format_size(size)}" for size in sizes if size and sizes != {self.size})
        return f"Published for {self.setting.words}: {figures}{at}."


_WORDS: Mapping[Assessment, str] = {
    Assessment.NORMAL: "normal",
    Assessment.LOW: "low",
    Assessment.ABOVE: "above the ceiling",
    Assessment.UNKNOWN: "no published figure",
}


def expectations(comparison: Comparison) -> tuple[Expectation, ...]:
    """Return what was to be expected of each configuration whose instance type is known."""
    found = []
    for section in comparison.sections:
        for index, (column, _) in enumerate(comparison.inputs):
            setting = setting_of(column, section) if section.shown[index] else None
            figures = {row.size: figure.value for row in section.rows if (figure := row.figures[index])}
            if setting is not None and any(figures.values()):
                found.append(_judged(_Measured(column.label, section, setting, figures)))
    return tuple(found)


def ceiling_of(column: Column, section: ComparisonSection, size: int) -> float | None:
    """Return the most that a column's figure can be, as gates ask for it; None: not known."""
    del size
    setting = setting_of(column, section)
    return setting.ceiling(section.metric) if setting else None


@dataclass(frozen=True, slots=True)
class _Measured:
    """The figures of one configuration by size."""

    column: str
    section: ComparisonSection
    setting: Setting
    figures: Mapping[int, float]
    ceiling: float | None = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "ceiling", self.setting.ceiling(self.section.metric))

    @property
    def best(self) -> int:
        """The size of the best figure."""
        better = min if self.section.metric.lower_is_better else max
        return better(self.figures, key=lambda size: self.figures[size])

    def assess(
        self, size: int, assessment: Assessment, figures: Sequence[Published] = (), remark: str = ""
    ) -> Expectation:
        """Return an assessment at one size."""
        low = assessment is Assessment.LOW
        return Expectation(
            column=self.column,
            key=self.section.key,
            setting=self.setting,
            metric=self.section.metric,
            scale=self.section.scale,
            size=size,
            value=self.figures[size],
            assessment=assessment,
            ceiling=self.ceiling,
            figures=figures,
            causes=likely_causes(self.setting, self.section.metric, self.figures[size]) if low else (),
            remark=remark,
        )


def _judged(measured: _Measured) -> Expectation:
    value, ceiling = measured.figures[measured.best], measured.ceiling
    if ceiling is not None and value > ceiling * SLACK:
        return measured.assess(measured.best, Assessment.ABOVE, remark=_why_above(measured.setting))
    known = [figure for figure in published() if measured.setting.fits(figure, measured.section.metric)]
    judge = _time if measured.section.metric.lower_is_better else _rate
    return judge(measured, known)


def _why_above(setting: Setting) -> str:
    if setting.fabric in {"ib", "roce"}:
        return "Only in-network reduction (SHARP) exceeds it; else the type or number of nodes is wrong."
    return "That is impossible: the type or number of nodes is wrong, or the data stayed inside a node."


def _time(measured: _Measured, known: Sequence[Published]) -> Expectation:
    """Judge by the smallest size that is published, too."""
    own: dict[int, list[Published]] = {}
    for figure in filter(_decides, known):
        if figure.size in measured.figures:
            own.setdefault(figure.size or 0, []).append(figure)
    if not own:
        return measured.assess(measured.best, Assessment.UNKNOWN)
    size = min(own)
    slow = measured.figures[size] > max(figure.value for figure in own[size]) / TOLERANCE
    return measured.assess(size, Assessment.LOW if slow else Assessment.NORMAL, own[size])


def _decides(figure: Published) -> bool:
    return figure.role in {Role.REFERENCE, Role.CONFLICT}


def _rate(measured: _Measured, known: Sequence[Published]) -> Expectation:
    """Judge by the largest published size that was measured: rates do not fall with the size."""
    least = _LARGE.get(measured.section.metric.name, 1 << 20)
    sizes = {figure.size or least for figure in known if _decides(figure)}
    if not sizes:
        return _unpublished(measured, known)
    reached = [size for size in sizes if size <= max(measured.figures)]
    near = [size for size in sizes if size <= max(measured.figures) * NEAR]
    wanted = max(reached, default=min(near, default=min(sizes)))
    figures = [figure for figure in known if _decides(figure) and (figure.size or least) == wanted]
    above = [size for size in measured.figures if size >= wanted]
    stated = any(figure.size for figure in figures)
    at = min(above) if above and stated else measured.best
    settled = [figure for figure in figures if figure.role is Role.REFERENCE]
    needed = min(figure.value for figure in settled or figures) * (TOLERANCE if above else SMALLER)
    value = measured.figures[at]
    if value >= needed:
        remark = "" if settled else _CONTESTED
        return measured.assess(at, Assessment.NORMAL, figures, remark or _other_bound(measured))
    if not settled:
        return measured.assess(at, Assessment.UNKNOWN, figures, _CONTESTED)
    if not reached and not near:
        return measured.assess(at, Assessment.UNKNOWN, figures, _TOO_EARLY)
    return measured.assess(at, Assessment.LOW, figures)


_TOO_EARLY = "The sweep ends too early to compare."
_CONTESTED = "Sources disagree about this figure, so it decides nothing."


def _unpublished(measured: _Measured, known: Sequence[Published]) -> Expectation:
    """Judge where nobody published a normal figure; some published ones that were too low."""
    bad = [figure for figure in known if figure.role is Role.MISTUNED]
    if any(measured.figures[measured.best] <= figure.value / TOLERANCE for figure in bad):
        return measured.assess(measured.best, Assessment.LOW, bad, "That figure was published as too low.")
    remark = "" if measured.setting.nodes else "The log does not state the nodes: pass --nodes."
    return measured.assess(measured.best, Assessment.UNKNOWN, remark=remark)


def _other_bound(measured: _Measured) -> str:
    """Say what else than the NICs bounds a rate, or why busbw may exceed their own rate."""
    setting, most = measured.setting, NVLINK.get(measured.setting.system.gpu_model)
    if setting.fabric == "tcp" and setting.system.is_ec2:
        return "Sockets are bounded by their flows (5 to 10 Gb/s each), not by the NICs."
    if measured.section.metric is not METRICS["busbw"] or measured.ceiling is None:
        return ""
    if most is not None and setting.gpus == 8 and most < measured.ceiling:
        return f"NVLink ends at about {measured.section.scale.quantity(most)} before the NICs do."
    rate = setting.nic_rate
    if rate is not None and measured.figures[measured.best] > rate * SLACK:
        own = measured.section.scale.quantity(rate)
        return f"Between {setting.nodes} nodes busbw may exceed the rate of the NICs ({own})."
    return ""
