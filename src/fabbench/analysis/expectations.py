"""Is a number normal? A configuration's figures against the ceiling of its NICs, and published figures. Pure.

With reduction inside nodes first, all_reduce moves 2(k - 1)/k of the data over the NICs of each of k nodes, so busbw
may exceed their rate with few nodes. A low figure comes with the likeliest causes that its log does not exclude.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from fabbench.analysis.compare import Comparison
from fabbench.analysis.setting import Setting, setting_of
from fabbench.catalog.expectations import NVLINK, Published, Role, published
from fabbench.model.log import METRICS, Metric
from fabbench.model.units import Scale, format_decimal, format_size

SLACK = 1.03
"""More than this factor above the ceiling is impossible; less is rounding of nominal rates."""
TOLERANCE = 0.9
"""Fraction of the lowest published rate that is still normal; the inverse for times."""
SMALLER = 0.75
"""The same at sizes that are smaller than the published one by up to a factor of `NEAR`."""
NEAR = 4
_LARGE: Mapping[str, int] = {"busbw": 1 << 30, "bandwidth": 1 << 20}
"""The smallest size that counts as large, where a source states none."""


class Assessment(StrEnum):
    """Whether a number is normal."""

    NORMAL = "normal"
    LOW = "low"
    """A rate that is too low, or a time that is too long."""
    ABOVE = "above-ceiling"
    """Impossible, if the nodes are as stated."""
    UNKNOWN = "no-published-figure"


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """One configuration and what was expected of it, in base units."""

    column: str
    key: Mapping[str, str]
    setting: Setting
    metric: Metric
    scale: Scale
    size: int
    value: float
    assessment: Assessment
    ceiling: float | None = None
    figures: Sequence[Published] = ()
    causes: Sequence[str] = ()
    remark: str = ""

    @property
    def share(self) -> float | None:
        """The fraction of the ceiling; None without a ceiling."""
        return self.value / self.ceiling if self.ceiling else None

    @property
    def range(self) -> tuple[float, float] | None:
        """The smallest and the largest published figure; None without any."""
        values = [figure.value for figure in self.figures]
        return (min(values), max(values)) if values else None

    def sentence(self) -> str:
        """Return the assessment in one line, without the name of the configuration."""
        write = self.scale.quantity
        words = "above the ceiling" if self.assessment is Assessment.ABOVE else self.assessment.replace("-", " ")
        if self.assessment is Assessment.UNKNOWN:
            words += " to judge by" if self.figures else f" for {self.setting.words}"
        text = f"{words}: {write(self.value)} at {format_size(self.size)}"
        if self.ceiling and self.share:
            text += f", {format_decimal(100 * self.share, 0)} % of the ceiling of the NICs"
            text += f" ({write(self.ceiling)})"
        text += f". {self._published()}" if self.figures else "."
        if self.causes:
            text += f" Likely causes: {'; '.join(self.causes)}."
        return f"{text} {self.remark}".rstrip()

    def _published(self) -> str:
        ends = dict.fromkeys(self.range or ())
        figures = self.scale.quantity(max(ends))
        if len(ends) > 1:
            figures = f"{self.scale.text(min(ends))} to {figures}"
        sizes = {figure.size for figure in self.figures}
        at = "".join(f" at {format_size(size)}" for size in sizes if size and sizes != {self.size})
        return f"Published for {self.setting.words}: {figures}{at}."


def expectations(comparison: Comparison) -> tuple[Expectation, ...]:
    """Return an expectation for each configuration whose instance type is known."""
    found = []
    for section in comparison.sections:
        metric, better = section.metric, min if section.metric.lower_is_better else max
        for index, (column, _) in enumerate(comparison.inputs):
            setting = setting_of(column, section) if section.shown[index] else None
            figures = {row.size: figure.value for row in section.rows if (figure := row.figures[index])}
            if setting is not None and any(figures.values()):
                best, ceiling = better(figures, key=figures.__getitem__), setting.ceiling(metric)
                judged = _judge(_Measured(setting, metric, section.scale, figures, best, ceiling))
                value, low = figures[judged.size], judged.assessment is Assessment.LOW
                expectation = Expectation(
                    column=column.label,
                    key=section.key,
                    setting=setting,
                    metric=metric,
                    scale=section.scale,
                    value=value,
                    ceiling=ceiling,
                    causes=likely_causes(setting, metric, value) if low else (),
                    **judged._asdict(),
                )
                found.append(expectation)
    return tuple(found)


class _Measured(NamedTuple):
    setting: Setting
    metric: Metric
    scale: Scale
    figures: Mapping[int, float]
    best: int
    """The size of the best figure."""
    ceiling: float | None


class _Judged(NamedTuple):
    size: int
    assessment: Assessment
    figures: Sequence[Published] = ()
    remark: str = ""


def _judge(measured: _Measured) -> _Judged:
    setting, best = measured.setting, measured.best
    if measured.ceiling is not None and measured.figures[best] > measured.ceiling * SLACK:
        remark = "That is impossible: the type or number of nodes is wrong, or the data stayed inside a node."
        if setting.fabric in {"ib", "roce"}:
            remark = "Only in-network reduction (SHARP) exceeds it; else the type or number of nodes is wrong."
        return _Judged(best, Assessment.ABOVE, remark=remark)
    known = [figure for figure in published() if setting.fits(figure, measured.metric)]
    deciding = [figure for figure in known if figure.role in {Role.REFERENCE, Role.CONFLICT}]
    if measured.metric.lower_is_better:  # by the smallest measured size that is also published
        size = min((each.size for each in deciding if each.size and each.size in measured.figures), default=None)
        if size is None:
            return _Judged(best, Assessment.UNKNOWN)
        figures = [figure for figure in deciding if figure.size == size]
        slow = measured.figures[size] > max(figure.value for figure in figures) / TOLERANCE
        return _Judged(size, Assessment.LOW if slow else Assessment.NORMAL, figures)
    if deciding:
        return _rate(measured, deciding)
    bad = [figure for figure in known if figure.role is Role.MISTUNED]
    if any(measured.figures[best] <= figure.value / TOLERANCE for figure in bad):
        return _Judged(best, Assessment.LOW, bad, "That figure was published as too low.")
    return _Judged(best, Assessment.UNKNOWN, (), "" if setting.nodes else _NO_NODES)


def _rate(measured: _Measured, known: Sequence[Published]) -> _Judged:
    """Judge by the largest published size that was measured: rates do not fall as sizes grow."""
    least, largest = _LARGE.get(measured.metric.name, 1 << 20), max(measured.figures)
    sizes = {figure.size or least for figure in known}
    reached = [size for size in sizes if size <= largest]
    near = [size for size in sizes if size <= largest * NEAR]
    chosen = max(reached, default=min(near or sizes))
    figures = [figure for figure in known if (figure.size or least) == chosen]
    above = [size for size in measured.figures if size >= chosen]
    at = min(above) if above and any(figure.size for figure in figures) else measured.best
    settled = [figure for figure in figures if figure.role is Role.REFERENCE]
    contested = "" if settled else "Sources disagree about this figure, so it decides nothing."
    needed = min(figure.value for figure in settled or figures) * (TOLERANCE if above else SMALLER)
    if measured.figures[at] >= needed:
        return _Judged(at, Assessment.NORMAL, figures, contested or _other_bound(measured))
    unclear = contested or ("" if near else "The sweep ends too early to compare.")
    return _Judged(at, Assessment.UNKNOWN if unclear else Assessment.LOW, figures, unclear)


def _other_bound(measured: _Measured) -> str:
    """Explain what bounds a rate besides the NICs, or why busbw may exceed their rate."""
    setting, write = measured.setting, measured.scale.quantity
    nvlink, rate = NVLINK.get(setting.system.gpu_model), setting.nic_rate
    if setting.fabric == "tcp" and setting.system.is_ec2:
        return "Sockets are bounded by their flows (5 to 10 Gb/s each), not by the NICs."
    if measured.metric is not METRICS["busbw"] or measured.ceiling is None:
        return ""
    if nvlink is not None and setting.gpus == 8 and nvlink < measured.ceiling:
        return f"NVLink is the limit, at about {write(nvlink)}, before the NICs are."
    exceeds = rate is not None and measured.figures[measured.best] > rate * SLACK
    return (
        f"Between {setting.nodes} nodes busbw may exceed the rate of the NICs ({write(rate or 0)})." if exceeds else ""
    )


_NO_NODES = "The log does not state the nodes: pass --nodes."
_OF_SOCKETS = (
    "each flow is limited to 5 Gb/s (10 Gb/s in a cluster placement group)",
    "few sockets (NCCL_SOCKET_NTHREADS, NCCL_NSOCKS_PERTHREAD)",
    "another interface (NCCL_SOCKET_IFNAME)",
)
_OF_TIME = (
    "the nodes are not in one placement group or zone",
    "the figure includes connection set-up: measure with warm-up",
    "CPU clocks, or other load",
)
_SHOWN = {
    "nic-idle": "NICs of the fabric were idle",
    "nic-wrong-network": "other NICs carried the data",
    "nic-errors": "NICs counted drops, retransmissions or link errors",
    "nic-imbalance-tx": "NICs sent unevenly",
    "nic-imbalance-rx": "NICs received unevenly",
    "gdr-disabled": "GPUDirect RDMA is off",
    "write-emulated": "RDMA writes are emulated",
    "nics-disagree": "ranks found different numbers of NICs",
}
"""Findings that explain a low figure."""


def likely_causes(setting: Setting, metric: Metric, value: float) -> tuple[str, ...]:
    """Return up to three causes: those that the log shows, then those that it does not exclude."""
    shown = [words for code, words in _SHOWN.items() if code in setting.findings]
    others = _OF_SOCKETS if setting.fabric == "tcp" else tuple(_of_rate(setting, value))
    if metric.lower_is_better:
        unstated = ("the data went over TCP: the log does not show the provider",)
        others = (*(() if setting.is_stated else unstated), *_OF_TIME)
    return tuple(dict.fromkeys([*shown, *others]))[:3]


def _of_rate(setting: Setting, value: float) -> Iterator[str]:
    gdr, protocol, nics = (setting.facts.get(name) for name in ("gdr", "protocol", "nics"))
    usual, used = min(setting.system.nics, default=0), nics if isinstance(nics, int) else None
    sendrecv = protocol == "SENDRECV" and not setting.system.name.startswith(("p4", "p3", "g5"))
    causes = {
        f"{_over_tcp(setting, value)}: the log does not show the network (NCCL_DEBUG=INFO)": not setting.is_stated,
        f"{nics} of {usual} NICs were used": used is not None and usual > used,
        f"fewer than {usual} NICs": usual > 1 and used is None,
        "GPUDirect RDMA was not used": gdr == "no",
        "GPUDirect RDMA was used on some channels only": gdr == "partly",
        "no GPUDirect RDMA": gdr is None and setting.system.gpus,
        "the plugin used SENDRECV, not RDMA": sendrecv,
        "an algorithm or protocol that NCCL_ALGO, NCCL_PROTO or a tuner chose": setting.collective,
        "an older NCCL or network plugin": setting.collective,
        "one slow node or GPU (measure pairs of nodes)": True,
        "clocks of GPUs or CPUs": True,
    }
    return (words for words, applies in causes.items() if applies)


def _over_tcp(setting: Setting, value: float) -> str:
    """Return ``TCP``, with the published rates of TCP where the value is close to them."""
    published_for = (setting.system.name, setting.nodes, "tcp", setting.case)
    rates = [each.value for each in published() if (each.system, each.nodes, each.fabric, each.case) == published_for]
    if rates and value <= max(rates) * 1.25:
        return (
            f"TCP, which gave {' to '.join(dict.fromkeys(f'{end / 1e9:g}' for end in (min(rates), max(rates))))} GB/s"
        )
    return "TCP"
