"""What suspects share: a rail, a direction or a group makes one suspect of several.

A rail is the NICs of one name on all nodes, which share a switch. All rails of a pair are measured
by the same nodes, so that they are compared with each other: a rail that is slow everywhere is no
node's fault.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import median
from typing import TypeAlias

import numpy as np

from fabbench.model.hostlist import compress_hostlist
from fabbench.model.mappings import gathered, map_values
from fabbench.model.messages import listed
from fabbench.model.units import format_decimal
from fabbench.sweep.beliefs import all_healthy
from fabbench.sweep.fit import Fit, certain
from fabbench.sweep.readings import Floats
from fabbench.sweep.values import Suspect, SuspectKind

_ALWAYS = 0.8
"""A rail is slow if it is so in this part of its tests."""
_TELLING = 3
"""As many tests tell."""
Key: TypeAlias = tuple[int, ...]
"""What was measured, and the nodes."""
Figures: TypeAlias = Mapping[Key, float]
"""The median logarithm of the tests of one key; minus infinity: they fail."""


def slow_rails(fitted: Fit, confidence: float) -> Iterator[Suspect]:
    """Yield the rails that are slower than the fastest one between the same nodes."""
    rails = _figures_of_rails(fitted)
    if len(rails) < 2:
        return
    fastest = max(rails.values(), key=_typical)  # larger is faster
    slow: dict[str, Floats] = {}
    for name, figures in rails.items():
        log_ratio = _relative_to_fastest(fastest, figures)
        if _is_slow(log_ratio, fitted):
            slow[name] = log_ratio
    others = [name for name in rails if name not in slow]
    for name, log_ratio in slow.items():
        # A key is what was measured, then the nodes.
        numbers = {node for _, *nodes in rails[name] for node in nodes}
        nodes = tuple(fitted.nodes[number] for number in sorted(numbers))
        how = _how_slow(float(np.median(log_ratio)), listed(others))
        yield Suspect(
            kind=SuspectKind.RAIL,
            name=name,
            nodes=nodes,
            confidence=certain(confidence),  # enough, whatever is required
            evidence=f"{name} of all {len(nodes)} nodes {how}: look at its switch.",
            rail=name,
            of_all=True,
        )


def _figures_of_rails(fitted: Fit) -> Mapping[str, Figures]:
    """Return rail → the figures of healthy nodes, by what was measured and between whom."""
    rails = gathered(_healthy_tests(fitted))
    return map_values(_medians, rails)


def _healthy_tests(fitted: Fit) -> Iterator[tuple[str, tuple[Key, float]]]:
    """Yield each test of healthy nodes on a rail: the rail, the key of the test, and its figure."""
    for each in fitted.classes:
        healthy = all_healthy(fitted.bad, each.tests.members)
        if not each.tests.rail:
            continue
        keys = np.column_stack((each.tests.kind, each.tests.members))[healthy]
        values = np.nan_to_num(each.tests.values[healthy], nan=-np.inf)
        for key, value in zip(keys.tolist(), values.tolist(), strict=True):
            yield each.tests.rail, (tuple(key), value)


def _medians(tests: Iterable[tuple[Key, float]]) -> Figures:
    return map_values(median, gathered(tests))


def _typical(figures: Figures) -> float:
    return median(figures.values())  # a logarithm


def _relative_to_fastest(fastest: Figures, figures: Figures) -> Floats:
    """Return how a rail differs from the fastest one, per measurement and nodes.

    As logarithms: negative is slower, minus infinity failed. What the fastest rail did not measure,
    or failed in, is left out.
    """
    measured = {key for key, figure in fastest.items() if math.isfinite(figure)}
    known = [key for key in figures if key in measured]
    return np.array([figures[key] - fastest[key] for key in known])


def _is_slow(log_ratio: Floats, fitted: Fit) -> bool:
    """Return whether a rail is slow: nearly all tests by half of the tolerance, the median by all.

    `log_ratio`: as `_relative_to_fastest` returns it; the tolerance is a negative logarithm, too.
    """
    if len(log_ratio) < _TELLING:
        return False
    slow_part = float((log_ratio < fitted.tolerated / 2).mean())
    typical = float(np.median(log_ratio))
    return slow_part >= _ALWAYS and typical < fitted.tolerated


def _how_slow(log_ratio: float, others: str) -> str:
    """Return by how much a rail is slower than others, in words; minus infinity: it fails."""
    if not math.isfinite(log_ratio):
        return f"fails, and {others} do not"
    factor = format_decimal(math.exp(-log_ratio), 1)
    return f"is {factor}x slower than {others}"


def with_shared_as_one(suspects: Sequence[Suspect]) -> Iterator[Suspect]:
    """Yield suspects, those of one kind that share a rail, a direction or a group as one."""
    # Kind and what is shared → the suspects, the first of them first
    sharing = gathered(((each.kind, each.shared), each) for each in suspects)
    for each in suspects:
        alike = sharing[each.kind, each.shared] if each.shared else [each]
        if each is alike[0]:  # one for all of them
            yield each if len(alike) == 1 else _as_one_suspect(alike)


def _as_one_suspect(suspects: Sequence[Suspect]) -> Suspect:
    """Return nodes, or NICs of one rail, as one suspect."""
    first = suspects[0]
    nodes = [each.nodes[0] for each in suspects]
    names = compress_hostlist(nodes)
    kind = first.kind
    name = names
    which = f"{names} ({first.shared})"
    if first.rail:  # they are NICs
        kind = SuspectKind.RAIL
        name = f"{names}:{first.rail}"
        which = f"{first.rail} of {names}"
    look = "look at what they share, such as a switch or a setting"
    return Suspect(
        kind=kind,
        name=name,
        nodes=tuple(nodes),
        confidence=min(each.confidence for each in suspects),
        evidence=f"{which} are slow: {look}. {first.evidence}",
        rail=first.rail,
    )
