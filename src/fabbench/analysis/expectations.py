"""Is a number normal? A configuration's figures against the ceiling of its NICs, and published figures. Pure.

With reduction inside nodes first, all_reduce moves 2(k - 1)/k of the data over the NICs of each of k nodes, so busbw
may exceed their rate with few nodes. A low figure comes with the likeliest causes that its log does not exclude.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, StrEnum, auto

from fabbench.analysis.compare import Comparison
from fabbench.analysis.setting import Setting, setting_of
from fabbench.catalog.expectations import NVLINK, Published, Role, deciding, published
from fabbench.catalog.instances import rows_of
from fabbench.model.log import METRICS, Metric
from fabbench.model.units import Scale, format_decimal, format_size

SLACK = 1.03
"""More than this factor above the ceiling is impossible; less is rounding of nominal rates."""
TOLERANCE = 0.9
"""Fraction of the lowest published rate that is still normal; the inverse for times."""
SMALLER = 0.75
"""The same at sizes that are smaller than the published one by up to a factor of `NEAR`."""
NEAR = 4
HALF = 0.5
"""The same at large sizes that are smaller by more.

A busbw that far below has other causes than the size.
"""


class _Reach(Enum):
    """How far the measured sizes reach toward the published one."""

    SAME = auto()
    """The published size, or a larger one, was measured."""
    NEAR = auto()
    FAR = auto()


_NORMAL_FROM = {_Reach.SAME: TOLERANCE, _Reach.NEAR: SMALLER, _Reach.FAR: HALF}
"""Fraction of the lowest published rate that is still normal, by what was measured."""
SUSPICIOUS = 1.5
"""More than this factor above all published rates is suspicious; the inverse for times."""
_LARGE: Mapping[str, int] = {"busbw": 1 << 30, "bandwidth": 1 << 20}
"""The smallest size that counts as large, where a source states none."""
_LINK_SIZE = 64 << 10
"""From this size on, a test of bandwidth should come close to the rate of its NIC."""


class Assessment(StrEnum):
    """Whether a number is normal."""

    NORMAL = "normal"
    LOW = "low"
    """A rate that is too low, or a time that is too long."""
    ABOVE = "above-ceiling"
    """Impossible, if the nodes are as stated."""
    HIGH = "suspiciously-high"
    """A rate that is possible, and much higher than any published one, or a time that is much shorter."""
    UNKNOWN = "no-published-figure"


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """One configuration and what was expected of it, in base units."""

    column: str
    key: Mapping[str, str]
    setting: Setting
    metric: Metric
    scale: Scale
    measured: Mapping[int, float]
    """Size → figure."""
    size: int
    """That of the figure that was judged; until then, of the best one."""
    assessment: Assessment = Assessment.UNKNOWN
    figures: Sequence[Published] = ()
    remark: str = ""

    @property
    def value(self) -> float:
        """The figure that was judged."""
        return self.measured[self.size]

    @property
    def ceiling(self) -> float | None:
        """The most that the NICs carry; None: unknown."""
        return self.setting.ceiling(self.metric)

    @property
    def causes(self) -> Sequence[str]:
        """The likely causes of a low figure."""
        return (
            likely_causes(self.setting, self.metric, self.value)
            if self.assessment is Assessment.LOW
            else ()
        )

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
        words = (
            "above the ceiling"
            if self.assessment is Assessment.ABOVE
            else self.assessment.replace("-", " ")
        )
        if self.assessment is Assessment.UNKNOWN:
            words += " to judge by" if self.figures else f" for {self.setting.words}"
        text = f"{words}: {write(self.value)}" + (
            f" at {format_size(self.size)}" if self.size else ""
        )
        if self.ceiling and self.share:
            of = "NIC" if self.setting.one_nic else "NICs"
            text += (
                f", {format_decimal(100 * self.share, 0)} % of the ceiling of the {of} "
                f"({write(self.ceiling)})"
            )
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
        at = " and ".join(
            format_size(size) for size in sorted(filter(None, sizes)) if sizes != {self.size}
        )
        nodes = sorted({figure.nodes or 0 for figure in self.figures})
        words = self.setting.described(
            nodes, dict.fromkeys(figure.system for figure in self.figures)
        )
        return f"Published for {words}: {figures}{' at ' * bool(at)}{at}."


def expectations(comparison: Comparison) -> tuple[Expectation, ...]:
    """Return an expectation for each configuration whose instance type is known."""
    found = []
    for section in comparison.sections:
        better = min if section.metric.lower_is_better else max
        for index, (column, _) in enumerate(comparison.inputs):
            setting = setting_of(column, section) if section.shown[index] else None
            figures = {
                row.size: figure.value for row in section.rows if (figure := row.figures[index])
            }
            if setting is not None and any(figures.values()):
                measured = Expectation(
                    column=column.label,
                    key=section.key,
                    setting=setting,
                    metric=section.metric,
                    scale=section.scale,
                    measured=figures,
                    size=better(figures, key=figures.__getitem__),
                )
                found.append(
                    _likeliest(
                        [
                            _judged(replace(measured, setting=each))
                            for each in setting.alternatives()
                        ]
                    )
                )
    return tuple(found)


def _likeliest(tried: Sequence[Expectation]) -> Expectation:
    """Return the first that is normal of what a log may be, else the first that others have published."""
    normal = (each for each in tried if each.assessment is Assessment.NORMAL)
    chosen = next(normal, next((each for each in tried if each.figures), tried[-1]))
    others = [figure.value for each in tried if each is not chosen for figure in each.figures]
    if chosen.assessment is not Assessment.NORMAL or not others:
        return chosen
    faster = (
        "The log does not show the network: over NVLink, others have "
        f"{chosen.scale.quantity(max(others))}."
    )
    return replace(chosen, remark=f"{chosen.remark} {faster}".strip())


def _judged(it: Expectation) -> Expectation:
    setting, share = it.setting, it.share or 0.0
    if share > SLACK:
        if not setting.nodes and not setting.fabric:
            return replace(it, remark=_INSIDE)
        sharp = setting.collective and setting.fabric in {"ib", "roce"}
        return replace(it, assessment=Assessment.ABOVE, remark=_SHARP if sharp else _IMPOSSIBLE)
    fitting = [figure for figure in published() if setting.fits(figure, it.metric)]
    own = [
        figure
        for figure in fitting
        if figure.nodes in {None, setting.nodes} and setting.is_own(figure)
    ]
    known = deciding(own, setting.nodes) or deciding(fitting, setting.nodes)
    if known or it.metric.lower_is_better:
        return _judged_time(it, known) if it.metric.lower_is_better else _judged_rate(it, known)
    bad = [figure for figure in own if figure.role is Role.MISTUNED]
    if any(it.value <= figure.value / TOLERANCE for figure in bad):
        return replace(
            it,
            assessment=Assessment.LOW,
            figures=bad,
            remark="That figure was published as too low.",
        )
    if (
        share
        and setting.is_bound_by_link
        and max(it.measured) >= _LINK_SIZE
        and not HALF <= share < SMALLER
    ):
        return replace(it, assessment=Assessment.LOW if share < HALF else Assessment.NORMAL)
    unstated = (
        _NO_NODES
        if setting.collective and not setting.nodes
        else ""
        if setting.direction
        else _NO_DIRECTION
    )
    return replace(it, remark=unstated)


def _judged_time(it: Expectation, known: Sequence[Published]) -> Expectation:
    """Judge by the smallest measured size that is also published."""
    size = min(
        (each.size for each in known if each.size and each.size in it.measured), default=None
    )
    if size is None:
        return it
    it = replace(it, size=size, figures=[figure for figure in known if figure.size == size])
    least, most = it.range or (0.0, 0.0)
    if it.value < least / SUSPICIOUS:
        return replace(it, assessment=Assessment.HIGH, remark=_FAR_OFF)
    return replace(
        it, assessment=Assessment.LOW if it.value > most / TOLERANCE else Assessment.NORMAL
    )


def _judged_rate(it: Expectation, known: Sequence[Published]) -> Expectation:
    """Judge by the largest published size that was measured, of each number of nodes.

    Rates do not fall with size.
    """
    least = _LARGE.get(it.metric.name, 1 << 20)
    largest = max(it.measured) or least  # 0: a size that is not stated is large
    figures: list[Published] = []
    for nodes in dict.fromkeys(figure.nodes for figure in known):
        alike = [figure for figure in known if figure.nodes == nodes]
        figures += _at_comparable_size(alike, largest, least)
    if it.value > SUSPICIOUS * max(figure.value for figure in known):
        return replace(it, assessment=Assessment.HIGH, figures=figures, remark=_FAR_OFF)
    wanted = max(figure.size or least for figure in figures)
    reaching = [size for size in it.measured if (size or largest) >= wanted]
    size_is_stated = any(figure.size for figure in figures)
    at = min(reaching) if reaching and size_is_stated else it.size
    it = replace(it, size=at, figures=figures)
    settled = [figure for figure in figures if figure.role is Role.REFERENCE]
    contested = "" if settled else _CONTESTED
    reach = _reach(largest, wanted)
    lowest = min(figure.value for figure in settled or figures)
    low = it.value < lowest * _NORMAL_FROM[reach]
    # So far below the published size, only a low rate at a large size says something.
    too_early = reach is _Reach.FAR and (largest < least or not low)
    if too_early or (low and contested):
        return replace(it, remark=contested or _TOO_EARLY)
    if low:
        return replace(it, assessment=Assessment.LOW)
    return replace(it, assessment=Assessment.NORMAL, remark=contested or _other_bound(it))


def _at_comparable_size(figures: Sequence[Published], largest: int, least: int) -> list[Published]:
    """Return the figures of the largest size that was measured, else of the smallest one.

    A figure without a size is one of the size `least`.
    """
    sizes = {figure.size or least for figure in figures}
    measured = [size for size in sizes if size <= largest]
    comparable = max(measured) if measured else min(sizes)
    return [figure for figure in figures if (figure.size or least) == comparable]


def _reach(largest: int, wanted: int) -> _Reach:
    if largest >= wanted:
        return _Reach.SAME
    return _Reach.FAR if wanted > largest * NEAR else _Reach.NEAR


def _other_bound(it: Expectation) -> str:
    """Explain what bounds a rate besides the NICs, or why busbw may exceed their rate."""
    setting, ceiling, write, rate = it.setting, it.ceiling, it.scale.quantity, it.setting.nic_rate
    nvlink = NVLINK.get(setting.system.gpu_model)
    if setting.fabric == "tcp" and setting.system.is_ec2:
        return "Sockets are bounded by their flows (5 to 10 Gb/s each), not by the NICs."
    if it.metric is not METRICS["busbw"] or ceiling is None:
        return ""
    if nvlink is not None and setting.gpus == 8 and nvlink < ceiling:
        return f"NVLink is the limit, at about {write(nvlink)}, before the NICs are."
    if rate is None or max(it.measured.values()) <= rate * SLACK:
        return ""
    return f"Between {setting.nodes} nodes busbw may exceed the rate of the NICs ({write(rate)})."


_CONTESTED = "Sources disagree about this figure, so it decides nothing."
_TOO_EARLY = "The sweep ends too early to compare."
_NO_NODES = "The log does not state the nodes: pass --nodes."
_NO_DIRECTION = (
    "The log does not show whether it adds both directions: the ceiling is that of both."
)
_IMPOSSIBLE = (
    "That is impossible: the type or number of nodes is wrong, or the data stayed inside a node."
)
_SHARP = "Only in-network reduction (SHARP) exceeds it; else the type or number of nodes is wrong."
_INSIDE = (
    "No NIC carries that: the data stayed inside a node (shared memory, NVLink), or the "
    "type is wrong."
)
_FAR_OFF = (
    "Others have published nothing near it: check the type and the nodes, and that the "
    "data left the nodes."
)


def likely_causes(setting: Setting, metric: Metric, value: float) -> tuple[str, ...]:
    """Return up to three causes (slow.csv).

    Those that the log shows, then those that it does not exclude.
    """
    usual, used, gdr = min(setting.system.nics, default=0), setting.nics, setting.facts.get("gdr")
    kind = "sockets" if setting.fabric == "tcp" else "one NIC" if setting.one_nic else "rate"
    sendrecv = setting.facts.get("protocol") == "SENDRECV"
    conditions = {
        "": True,
        "unknown network": not setting.is_stated,
        "NICs left out": used and usual > used,
        "NICs not counted": usual > 1 and not used,
        f"gdr {gdr or 'unknown'}": gdr or setting.system.gpus,
        "SENDRECV": sendrecv and not setting.system.name.startswith(("p4", "p3", "g5")),
        "collective": setting.collective,
    }
    kind = "time" if metric.lower_is_better else kind
    holds = {
        *setting.findings,
        *(f"{kind} {name}".strip() for name, applies in conditions.items() if applies),
    }
    words = {"nics": used, "usual": usual, "tcp": _over_tcp(setting, value)}
    causes = (row["cause"].format(**words) for row in rows_of("slow.csv") if row["when"] in holds)
    return tuple(dict.fromkeys(causes))[:3]


def _over_tcp(setting: Setting, value: float) -> str:
    """Return ``TCP``, with the published rates of TCP where the value is close to them."""
    tcp = replace(setting, fabric="tcp")
    known = (each for each in published() if tcp.fits(each, METRICS["busbw"]))
    rates = sorted(each.value for each in deciding(known, setting.nodes))
    ends = " to ".join(dict.fromkeys(f"{end / 1e9:g}" for end in (*rates[:1], *rates[-1:])))
    return f"TCP, which gave {ends} GB/s" if rates and value <= rates[-1] * 1.25 else "TCP"
