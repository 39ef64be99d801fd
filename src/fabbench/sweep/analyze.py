"""Results of a sweep → suspects, with evidence in words."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from fabbench.sweep.evidence import Witness
from fabbench.sweep.fit import TOLERANCE, Fit, fit
from fabbench.sweep.readings import Readings
from fabbench.sweep.values import Diagnosis, Suspect, SuspectKind, Typical

CONFIDENCE = 0.99
"""From this on something counts as bad."""
_WORTH_A_WORD = 0.1
"""From this on something may be bad."""
_ONE_OF_MANY = 0.5
"""From this chance on one of a test's nodes may be bad, although none of them is worth a word by itself."""
_LEAST = 0.01
"""Below this a node is not among them."""


def analyze(readings: Readings, *, tolerance: float = TOLERANCE, confidence: float = CONFIDENCE) -> Diagnosis:
    """Name what is bad with at least `confidence`, and what may be bad."""
    return diagnosis(readings, fit(readings, tolerance=tolerance), confidence=confidence)


def diagnosis(readings: Readings, found: Fit, *, confidence: float = CONFIDENCE) -> Diagnosis:
    """Name what is bad as far as a fit shows it."""
    everything = sorted(_suspects(readings, found, confidence), key=lambda each: -each.confidence)
    sure = [each for each in everything if each.confidence >= confidence]
    suspects = _grouped(sure, readings.group_of)
    said = {node for each in suspects if each.kind is SuspectKind.GROUP for node in each.nodes}
    rest = [each for each in everything if each.confidence < confidence and not said.issuperset(each.nodes)]
    unsure = {node for each in rest if each.kind is not SuspectKind.LINK for node in each.nodes}
    unconfirmed = [each for each in rest if each.kind is SuspectKind.LINK and unsure.isdisjoint(each.nodes)]
    typicals = list(_typicals(readings, found))
    return Diagnosis(
        suspects=suspects,
        unconfirmed=unconfirmed,
        undecided=[each for each in rest if each not in unconfirmed],
        bad=bool(sure) or _something(found, confidence),
        required=confidence,
        typical=typicals[0].figure if len(typicals) == 1 else None,
        typicals=typicals if len(typicals) > 1 else (),
        spread=found.noise,
        tests=readings.count,
        nodes=tuple(readings.nodes),
    )


def _typicals(readings: Readings, found: Fit) -> Iterator[Typical]:
    """Yield the typical figures of what was measured, where figures of one kind can be compared."""
    known = [each for each in found.classes if not np.isnan(each.tests.values).all()]
    if any(len(each.tests.known_series()) > 1 for each in known):
        return
    grouped = len({each.tests.between for each in known}) > 1
    for each in known:
        where = ("between groups" if each.tests.between else "within groups") if grouped else ""
        yield Typical(
            of=", ".join(filter(None, (each.tests.rail, where))),
            figure=readings.figure(float(each.typical[each.tests.series[0]])),
            tests=len(each.tests.values),
        )


def _something(found: Fit, confidence: float) -> bool:
    """Return whether something of some pair is bad, be it known what or not."""
    for each in found.classes:
        chance = found.bad[each.pairs].sum(axis=1) + each.link
        if each.tests.rail:
            nics = [
                sum(found.nics.get((node, each.tests.rail), 0.0) for node in pair)
                for pair in each.pairs.tolist()
            ]
            chance = chance + np.array(nics)
        if (chance >= confidence).any():
            return True
    return False


def _ones_of_many(found: Fit) -> Iterator[int]:
    """Yield the nodes of large tests of which some node seems bad, and nobody can say which."""
    for each in found.classes:
        chances = found.bad[each.pairs]
        rows = (chances.sum(axis=1) >= _ONE_OF_MANY) & (chances.max(axis=1, initial=0.0) < _WORTH_A_WORD)
        yield from each.pairs[rows][chances[rows] >= _LEAST].tolist()


def _suspects(readings: Readings, found: Fit, confidence: float) -> Iterator[Suspect]:
    witness = Witness(readings, found, confidence)
    for node in sorted({*np.flatnonzero(found.bad >= _WORTH_A_WORD).tolist(), *_ones_of_many(found)}):
        name = found.nodes[node]
        yield Suspect(
            kind=SuspectKind.NODE,
            name=name,
            nodes=(name,),
            confidence=float(found.bad[node]),
            evidence=witness.of_node(node),
        )
    for (node, rail), chance in found.nics.items():
        if chance >= _WORTH_A_WORD:
            name = found.nodes[node]
            yield Suspect(
                kind=SuspectKind.NIC,
                name=f"{name}:{rail}",
                nodes=(name,),
                confidence=chance,
                evidence=witness.of_nic(node, rail),
            )
    for group, chance in found.uplinks.items():
        if chance >= _WORTH_A_WORD:
            yield Suspect(
                kind=SuspectKind.GROUP,
                name=group,
                nodes=tuple(node for node in found.nodes if readings.group_of.get(node, "") == group),
                confidence=chance,
                evidence=witness.of_uplink(group),
            )
    yield from _links(found, witness)


def _links(found: Fit, witness: Witness) -> Iterator[Suspect]:
    for each in found.classes:
        for row in np.flatnonzero(each.link >= _WORTH_A_WORD).tolist():
            nodes = tuple(found.nodes[node] for node in each.pairs[row].tolist())
            yield Suspect(
                kind=SuspectKind.LINK,
                name=" – ".join(nodes) + (f" ({each.tests.rail})" if each.tests.rail else ""),
                nodes=nodes,
                confidence=float(each.link[row]),
                evidence=witness.of_link(each, row),
            )


_LEAST_GROUP = 3
"""Nodes of a group that are all bad make the group bad."""


def _grouped(suspects: Sequence[Suspect], group_of: Mapping[str, str]) -> Sequence[Suspect]:
    """Name a group in place of its nodes where all of them are bad."""
    sizes: dict[str, int] = {}
    for group in group_of.values():
        sizes[group] = sizes.get(group, 0) + 1
    bad: dict[str, list[Suspect]] = {}
    for each in suspects:
        if each.kind is SuspectKind.NODE and each.name in group_of:
            bad.setdefault(group_of[each.name], []).append(each)
    whole = {group: nodes for group, nodes in bad.items() if sizes[group] == len(nodes) >= _LEAST_GROUP}
    taken = {each.name for nodes in whole.values() for each in nodes}
    rest = [each for each in suspects if each.kind is not SuspectKind.NODE or each.name not in taken]
    groups = [
        replace(
            min(nodes, key=lambda each: each.confidence),
            kind=SuspectKind.GROUP,
            name=group,
            nodes=tuple(each.name for each in nodes),
            evidence=f"All {len(nodes)} nodes of {group} are bad. {nodes[0].evidence}",
        )
        for group, nodes in whole.items()
    ]
    return [*groups, *rest]
