"""Rails: the NICs of one name on all nodes, which share a switch.

All rails of a pair are measured by the same nodes, so that they are compared with each other: a
rail that is slow everywhere is no node's fault. Slow NICs of one rail are one suspect.
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import TypeAlias

import numpy as np

from fabbench.model.hostlist import compress_hostlist
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
Tests: TypeAlias = Mapping[tuple[int, ...], list[float]]
"""What was measured and the nodes → the logarithms of the figures."""


@dataclass(frozen=True, slots=True)
class _Rail:
    """The tests of healthy nodes on one rail."""

    name: str
    tests: Tests = field(default_factory=lambda: defaultdict(list))

    def typical(self) -> float:
        """Return its median test; minus infinity: it fails."""
        of_pairs = [median(values) for values in self.tests.values()]
        return median(of_pairs)

    def slower_than(self, other: "_Rail") -> Floats:
        """Return the logarithms by which it differs from another rail between the same nodes."""
        both = [key for key in self.tests if key in other.tests]
        mine = np.array([median(self.tests[key]) for key in both])
        theirs = np.array([median(other.tests[key]) for key in both])
        measured = np.isfinite(theirs)
        return np.asarray(mine[measured] - theirs[measured])

    def nodes(self) -> set[int]:
        """Return the nodes that it was tested on."""
        return {node for _, *nodes in self.tests for node in nodes}


def slow_rails(fitted: Fit, confidence: float) -> Iterator[Suspect]:
    """Yield the rails that are slower than the fastest one between the same nodes."""
    rails = _rails(fitted)
    if len(rails) < 2:
        return
    fastest = max(rails, key=_Rail.typical)
    slow = [rail for rail in rails if _is_slow(rail.slower_than(fastest), fitted)]
    others = [rail.name for rail in rails if rail not in slow]
    for rail in slow:
        numbers = sorted(rail.nodes())
        nodes = tuple(fitted.nodes[number] for number in numbers)
        log_ratio = float(np.median(rail.slower_than(fastest)))
        how = _how_slow(log_ratio, listed(others))
        yield Suspect(
            kind=SuspectKind.RAIL,
            name=rail.name,
            nodes=nodes,
            confidence=certain(confidence),
            evidence=f"{rail.name} of all {len(nodes)} nodes {how}: look at its switch.",
            rail=rail.name,
            of_all=True,
        )


def _rails(fitted: Fit) -> Sequence[_Rail]:
    """Return the rails with the tests of healthy nodes."""
    rails: dict[str, _Rail] = {}
    for each in fitted.classes:
        name = each.tests.rail
        if not name:
            continue
        healthy = all_healthy(fitted.bad, each.tests.members)
        values = np.nan_to_num(each.tests.values, nan=-np.inf)
        kinds = each.tests.series % each.tests.kinds
        rail = rails.setdefault(name, _Rail(name))
        for test in np.flatnonzero(healthy).tolist():
            nodes: list[int] = each.tests.members[test].tolist()
            kind = int(kinds[test])
            of_pair = rail.tests[kind, *nodes]
            of_pair.append(float(values[test]))
    return [rail for rail in rails.values() if rail.tests]


def _is_slow(slower: Floats, fitted: Fit) -> bool:
    """Return whether nearly all tests of a rail are slower than tolerated."""
    if len(slower) < _TELLING:
        return False
    always = float((slower < fitted.tolerated / 2).mean())
    typical = float(np.median(slower))
    return always >= _ALWAYS and typical < fitted.tolerated


def _how_slow(slower: float, others: str) -> str:
    """Return by how much a rail is slower than others, in words."""
    if not math.isfinite(slower):
        return f"fails, and {others} do not"
    factor = format_decimal(math.exp(-slower), 1)
    return f"is {factor}x slower than {others}"


def joined_by_rail(suspects: Sequence[Suspect]) -> Iterator[Suspect]:
    """Yield suspects, with slow NICs of one rail as one."""
    nics = defaultdict[str, list[Suspect]](list)
    for each in suspects:
        if each.kind is SuspectKind.NIC:
            nics[each.rail].append(each)
    for each in suspects:
        of_rail = nics[each.rail] if each.kind is SuspectKind.NIC else [each]
        if each is of_rail[0]:
            yield each if len(of_rail) == 1 else _as_one(of_rail)


def _as_one(nics: Sequence[Suspect]) -> Suspect:
    """Return the slow NICs of one rail as one suspect."""
    rail = nics[0].rail
    nodes = [each.nodes[0] for each in nics]
    names = compress_hostlist(nodes)
    evidence = f"{rail} of {names} are slow: look at what they share, such as its switch."
    worst = nics[0].evidence
    return Suspect(
        kind=SuspectKind.RAIL,
        name=f"{names}:{rail}",
        nodes=tuple(nodes),
        confidence=min(each.confidence for each in nics),
        evidence=f"{evidence} {worst}",
        rail=rail,
    )
