"""Is a number normal? Figures against the ceiling of their NICs, and published figures. Pure.

With reduction inside nodes first, all_reduce moves 2(k - 1)/k of the data over the NICs of each of
k nodes, so busbw may exceed their rate with few nodes. A low figure comes with the likeliest causes
that its log does not exclude.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import Enum, StrEnum, auto
from functools import partial

from fabbench.analysis.compare import Comparison, ComparisonSection
from fabbench.analysis.setting import Setting, setting_of
from fabbench.catalog.expectations import Published, Role, deciding, published
from fabbench.catalog.systems import NVLINK, rows_of
from fabbench.model.log import METRICS, Metric
from fabbench.model.mappings import Sentences, distinct, gathered
from fabbench.model.units import Scale, format_decimal, format_ends, format_size
from fabbench.model.values import frozen
from fabbench.plan.gates import SLACK

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
    """A rate that is possible, and much higher than any published one.

    Or a time that is much shorter.
    """
    UNKNOWN = "no-published-figure"


@frozen
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
        if self.assessment is not Assessment.LOW:
            return ()
        return likely_causes(self.setting, self.metric, self.value)

    @property
    def share(self) -> float | None:
        """The fraction of the ceiling; None without a ceiling."""
        return self.value / self.ceiling if self.ceiling else None

    @property
    def range(self) -> tuple[float, float] | None:
        """The smallest and the largest published figure; None without any."""
        values = [figure.value for figure in self.figures]
        return (min(values), max(values)) if values else None

    def sentence(self, alike: Sequence["Expectation"] = ()) -> str:
        """Return the assessment in one line, without the name of the configuration.

        `alike`: those of others, of which all but the figures is the same.
        """
        known = (self, *alike)
        figures = format_ends([each.value for each in known], self.scale.text)
        unit = self.scale.unit
        text = f"{self._words()}: {figures} {unit}".rstrip()
        if self.size:
            text += " at " + format_ends([each.size for each in known], format_size)
        if self.ceiling and self.share:
            percent = format_ends([100 * (each.share or 0.0) for each in known], _whole)
            of = self.setting.bound
            ceiling = self.scale.quantity(self.ceiling)
            text += f", {percent} % of the ceiling of {of} ({ceiling})"
        return f"{text}. {self.grounds}".rstrip()

    @property
    def grounds(self) -> str:
        """What it is judged by: published figures, causes, a remark."""
        causes = "; ".join(self.causes)
        sentences = (
            self._published_words() if self.figures else "",
            f"Likely causes: {causes}." if causes else "",
            self.remark,
        )
        return " ".join(filter(None, sentences))

    @property
    def judgement(self) -> str:
        """The word beside an outcome: ``"low"``, ``"above the ceiling"``; ``"unknown"``."""
        if self.assessment is Assessment.UNKNOWN:
            return "unknown"
        if self.assessment is Assessment.ABOVE:
            return "above the ceiling"
        return self.assessment.replace("-", " ")

    def _words(self) -> str:
        words = self.assessment.replace("-", " ")
        if self.assessment is not Assessment.UNKNOWN:
            return self.judgement
        # Figures that are known, and do not decide, are published all the same.
        setting = self.setting
        return f"{words} to judge by" if self.figures else f"{words} for {setting.words}"

    def _published_words(self) -> str:
        """Return a sentence with the published figures, and the nodes and systems they are of."""
        unit = self.scale.unit
        figures = format_ends(self.range or (), self.scale.text)
        figures = f"{figures} {unit}"
        # Sizes are said unless they are that of the figure that is judged.
        sizes = {figure.size for figure in self.figures}
        if sizes != {self.size}:
            known = [format_size(size) for size in sorted(filter(None, sizes))]
            figures = " at ".join(filter(None, [figures, " and ".join(known)]))
        nodes = sorted({figure.nodes or 0 for figure in self.figures})
        systems = distinct(figure.system for figure in self.figures)
        words = self.setting.described(nodes, systems)
        return f"Published for {words}: {figures}."


_whole = partial(format_decimal, decimals=0)


def expectations(comparison: Comparison) -> tuple[Expectation, ...]:
    """Return an expectation for each configuration whose instance type is known."""
    of_columns: list[Expectation] = []
    for section in comparison.sections:
        for column in range(len(comparison.inputs)):
            expected = expectation_of(comparison, section, column)
            if expected is not None:
                of_columns.append(expected)
    return tuple(of_columns)


def expectation_of(
    comparison: Comparison, section: ComparisonSection, index: int
) -> Expectation | None:
    """Return the expectation of a column in a section.

    None: its instance type is not known, or it has no figure.
    """
    column, _ = comparison.inputs[index]
    setting = setting_of(column, section) if section.shown[index] else None
    figures = {size: figure.value for size, figure in section.figures(index)}
    if setting is None or not any(figures.values()):
        return None
    better = min if section.metric.lower_is_better else max
    measured = Expectation(
        column=column.label,
        key=section.key,
        setting=setting,
        metric=section.metric,
        scale=section.scale,
        measured=figures,
        size=better(figures, key=figures.__getitem__),
    )
    # A log may not show which of two networks it used: each is judged.
    alternatives = [replace(measured, setting=each) for each in setting.alternatives()]
    return _likeliest([_judged(each) for each in alternatives])


def _likeliest(alternatives: Sequence[Expectation]) -> Expectation:
    """Return the first alternative that is normal, else the first with published figures.

    Else the last. Where it is normal over NICs, a remark has what NVLink gives others.
    """
    normal = [each for each in alternatives if each.assessment is Assessment.NORMAL]
    judged = [each for each in alternatives if each.figures]
    chosen = [*normal, *judged, alternatives[-1]][0]
    over_nvlink = alternatives[0]  # If there are several: see `Setting.alternatives`
    if not normal or chosen is over_nvlink or not over_nvlink.figures:
        return chosen
    rate = chosen.scale.quantity(max(figure.value for figure in over_nvlink.figures))
    faster = f"The log does not show the network: over NVLink, others have {rate}."
    return replace(chosen, remark=f"{chosen.remark} {faster}".strip())


def _judged(expected: Expectation) -> Expectation:
    """Judge a figure by its ceiling, then by what is published.

    Of this system with as many nodes; else of all that fit, if need be by the nearest numbers of
    nodes below and above.
    """
    setting = expected.setting
    if expected.share and expected.share > SLACK:
        return _above_ceiling(expected)
    fitting = [figure for figure in published() if setting.fits(figure, expected.metric)]
    same_nodes = (figure for figure in fitting if figure.nodes in {None, setting.nodes})
    of_system = [figure for figure in same_nodes if setting.is_own(figure)]
    known = deciding(of_system, setting.nodes) or deciding(fitting, setting.nodes)
    if expected.metric.lower_is_better:
        return _judged_time(expected, known)
    return _judged_rate(expected, known) if known else _judged_alone(expected, of_system)


def _above_ceiling(expected: Expectation) -> Expectation:
    setting = expected.setting
    if not setting.nodes and not setting.fabric:  # then nothing says that data left the node
        return replace(expected, remark=_INSIDE)
    if setting.link:
        return replace(expected, assessment=Assessment.ABOVE, remark=_IMPOSSIBLE)
    # Switches that reduce (SHARP) spare the NICs a part of what busbw counts.
    sharp = setting.collective and setting.fabric in {"ib", "roce"}
    return replace(expected, assessment=Assessment.ABOVE, remark=_SHARP if sharp else _IMPOSSIBLE)


def _judged_alone(expected: Expectation, of_system: Sequence[Published]) -> Expectation:
    """Judge a rate for which nothing good is published, by bad figures and the rate of its NIC."""
    # Little more than a figure of bad settings is as bad.
    bad = [figure for figure in of_system if figure.role is Role.MISTUNED]
    if any(expected.value <= figure.value / TOLERANCE for figure in bad):
        return replace(expected, assessment=Assessment.LOW, figures=bad, remark=_MISTUNED)
    share = expected.share or 0.0
    if share and expected.setting.is_bound_by_link and max(expected.measured) >= _LINK_SIZE:
        if share < HALF:
            return replace(expected, assessment=Assessment.LOW)
        if share >= SMALLER:  # between the two nothing is certain
            return replace(expected, assessment=Assessment.NORMAL)
    return replace(expected, remark=_unstated_words(expected.setting))


def _unstated_words(setting: Setting) -> str:
    """Say what a log would have to state."""
    if setting.collective and not setting.nodes:
        return _NO_NODES
    return "" if setting.direction else _NO_DIRECTION


def _judged_time(expected: Expectation, known: Sequence[Published]) -> Expectation:
    """Judge a time by those published for the smallest size that both have.

    Without one, it stays unknown. Shorter is better: far below all others is suspicious.
    """
    sizes = [each.size for each in known if each.size]
    size = min((each for each in sizes if each in expected.measured), default=None)
    if size is None:
        return expected
    figures = [figure for figure in known if figure.size == size]
    expected = replace(expected, size=size, figures=figures)
    least, most = expected.range or (0.0, 0.0)
    if expected.value < least / SUSPICIOUS:
        return replace(expected, assessment=Assessment.HIGH, remark=_FAR_OFF)
    # Of a time the inverse of what is still normal of a rate
    return replace(
        expected,
        assessment=Assessment.LOW if expected.value > most / TOLERANCE else Assessment.NORMAL,
    )


def _judged_rate(expected: Expectation, known: Sequence[Published]) -> Expectation:
    """Judge by the largest published size that was measured, of each number of nodes.

    Rates do not fall with size, so one at a smaller size than the published one may be lower. Where
    sources only disagree, none is judged low. Sizes are in bytes.
    """
    least = _LARGE.get(expected.metric.name, 1 << 20)  # from this size on rates count as at peak
    largest = max(expected.measured) or least  # 0: a size that is not stated is large
    figures = _comparable(known, largest, least)
    if expected.value > SUSPICIOUS * max(figure.value for figure in known):
        return replace(expected, assessment=Assessment.HIGH, figures=figures, remark=_FAR_OFF)
    wanted = max(figure.size or least for figure in figures)
    reaching = [size for size in expected.measured if (size or largest) >= wanted]
    size_is_stated = any(figure.size for figure in figures)
    # The smallest that is comparable to the published one; else the best figure is judged.
    at = min(reaching) if reaching and size_is_stated else expected.size
    # From here on, its value is that at this size.
    expected = replace(expected, size=at, figures=figures)
    settled = [figure for figure in figures if figure.role is Role.REFERENCE]
    contested = "" if settled else _CONTESTED
    reach = _reach(largest, wanted)
    lowest = min(figure.value for figure in settled or figures)
    low = expected.value < lowest * _NORMAL_FROM[reach]
    # So far below the published size, only a low rate at a large size says something.
    too_early = reach is _Reach.FAR and (largest < least or not low)
    if too_early or (low and contested):
        return replace(expected, remark=contested or _TOO_EARLY)
    if low:
        return replace(expected, assessment=Assessment.LOW)
    return replace(
        expected, assessment=Assessment.NORMAL, remark=contested or _other_bound(expected)
    )


def _comparable(known: Sequence[Published], largest: int, least: int) -> list[Published]:
    """Return the figures of the comparable size, of each number of nodes."""
    by_nodes = gathered((figure.nodes, figure) for figure in known)
    return [
        figure
        for alike in by_nodes.values()
        for figure in _at_comparable_size(alike, largest, least)
    ]


def _at_comparable_size(figures: Sequence[Published], largest: int, least: int) -> list[Published]:
    """Return the figures of the largest size that was measured, else of the smallest one.

    A figure without a size is one of the size `least`.
    """
    sizes = {figure.size or least for figure in figures}
    measured = [size for size in sizes if size <= largest]
    comparable = max(measured) if measured else min(sizes)
    return [figure for figure in figures if (figure.size or least) == comparable]


def _reach(largest: int, wanted: int) -> _Reach:
    # `largest` size that was measured, and the one `wanted` for the comparison, in bytes.
    if largest >= wanted:
        return _Reach.SAME
    return _Reach.FAR if wanted > largest * NEAR else _Reach.NEAR


def _other_bound(expected: Expectation) -> str:
    """Explain what bounds a rate besides the NICs, or why busbw may exceed their rate.

    Empty: nothing of this is known, or the metric is not busbw.
    """
    setting = expected.setting
    write = expected.scale.quantity
    # Inside one node NVLink is no other bound: it is the ceiling itself.
    nvlink = None if setting.link else NVLINK.get(setting.system.gpu_model)
    if setting.fabric == "tcp" and setting.system.is_ec2:
        return "Sockets are bounded by their flows (5 to 10 Gb/s each), not by the NICs."
    if expected.metric is not METRICS["busbw"] or expected.ceiling is None:
        return ""
    # The figures in NVLINK are of nodes of 8 GPUs.
    if nvlink is not None and setting.gpus == 8 and nvlink < expected.ceiling:
        return f"NVLink is the limit, at about {write(nvlink)}, before the NICs are."
    # busbw also counts data that GPUs of one node exchange, which no NIC carries.
    rate = setting.nic_rate
    largest = max(expected.measured.values())
    if rate is None or largest <= rate * SLACK:
        return ""
    return f"Between {setting.nodes} nodes busbw may exceed the rate of the NICs ({write(rate)})."


_MISTUNED = "That figure was published as too low."
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


def likely_causes(setting: Setting, metric: Metric, value: float) -> Sentences:
    """Return up to three causes of a low figure, in the order of slow.csv.

    The column `when` there has the code of a finding, or what is slow and one of `conditions`.
    """
    usual = min(setting.system.nics, default=0)  # 0: not known
    used = setting.nics
    gdr = setting.facts.get("gdr")
    sendrecv = setting.facts.get("protocol") == "SENDRECV"
    # What slow.csv calls a condition → whether it holds
    conditions = {
        "": True,
        "unknown network": not setting.is_stated,
        "NICs left out": used and usual > used,
        "NICs not counted": usual > 1 and not used,
        # Without GPUs, GPUDirect RDMA (gdr) is no cause, unless a log states something of it.
        "gdr " + str(gdr or "unknown"): gdr or setting.system.gpus,
        # These have no RDMA write: there SENDRECV is no cause, but the only protocol.
        "SENDRECV": sendrecv and not setting.system.name.startswith(("p4", "p3", "g5")),
        "collective": setting.collective,
    }
    kind = _kind_of_cause(setting, metric)
    holding = (f"{kind} {name}" for name, applies in conditions.items() if applies)
    holds = {*setting.findings, *map(str.strip, holding)}
    words = {"nics": used, "usual": usual, "tcp": _tcp_words(setting, value)}
    rows = (row for row in rows_of("slow.csv") if row["when"] in holds)
    causes = (row["cause"].format(**words) for row in rows)
    return distinct(causes)[:3]


def _kind_of_cause(setting: Setting, metric: Metric) -> str:
    """Return what is slow, as slow.csv names it."""
    if metric.lower_is_better:
        return "time"
    if setting.link:
        return "link"
    if setting.fabric == "tcp":
        return "sockets"
    return "one NIC" if setting.one_nic else "rate"


def _tcp_words(setting: Setting, value: float) -> str:
    """Return ``TCP``, with the published rates of TCP where the value is close to them.

    `value` and rates are in bytes per second.
    """
    tcp = replace(setting, fabric="tcp")
    known = (each for each in published() if tcp.fits(each, METRICS["busbw"]))
    rates = sorted(each.value for each in deciding(known, setting.nodes))
    if not rates or value > rates[-1] * 1.25:  # much faster than any TCP
        return "TCP"
    both = format_ends([rate / 1e9 for rate in rates], "{:g}".format)
    return f"TCP, which gave {both} GB/s"
