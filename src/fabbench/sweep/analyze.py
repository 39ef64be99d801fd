"""Results of a sweep → suspects, with evidence in words."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from fabbench.sweep.evidence import EvidenceWriter
from fabbench.sweep.fit import TOLERANCE, Fit, fit
from fabbench.sweep.readings import Readings
from fabbench.sweep.values import Diagnosis, Suspect, SuspectKind, Typical

CONFIDENCE = 0.99
"""From this confidence on, something counts as bad."""
_REPORTABLE = 0.1
"""From this chance on, something may be bad."""
_ONE_OF_MANY = 0.5
"""From this chance on, one of a test's nodes may be bad, although no single one is worth reporting."""
_LEAST = 0.01
"""Below this chance, a node is not among them."""


def analyze(readings: Readings, *, tolerance: float = TOLERANCE, confidence: float = CONFIDENCE) -> Diagnosis:
    """Name what is bad with at least `confidence`, and what may be bad."""
    return diagnosis(readings, fit(readings, tolerance=tolerance), confidence=confidence)


def diagnosis(readings: Readings, fitted: Fit, *, confidence: float = CONFIDENCE) -> Diagnosis:
    """Name what a fit shows to be bad, or possibly bad."""
    everything = sorted(_suspects(readings, fitted, confidence), key=lambda each: -each.confidence)
    sure = [each for each in everything if each.confidence >= confidence]
    suspects = _grouped(sure, readings.group_of)
    in_groups = {node for each in suspects if each.kind is SuspectKind.GROUP for node in each.nodes}
    unsure = [each for each in everything if each.confidence < confidence]
    rest = [each for each in unsure if not in_groups.issuperset(each.nodes)]
    doubtful = {node for each in rest if each.kind is not SuspectKind.LINK for node in each.nodes}
    unconfirmed = [each for each in rest if each.kind is SuspectKind.LINK and doubtful.isdisjoint(each.nodes)]
    typicals = list(_typicals(readings, fitted))
    return Diagnosis(
        suspects=suspects,
        unconfirmed=unconfirmed,
        undecided=[each for each in rest if each not in unconfirmed],
        bad=bool(sure) or _anything_bad(fitted, confidence),
        required=confidence,
        typical=typicals[0].figure if len(typicals) == 1 else None,
        typicals=typicals if len(typicals) > 1 else (),
        spread=fitted.noise,
        tests=readings.count,
        nodes=tuple(readings.nodes),
    )


def _typicals(readings: Readings, fitted: Fit) -> Iterator[Typical]:
    """Yield the typical figure of each kind of test, if figures of one kind can be compared."""
    known = [each for each in fitted.classes if not np.isnan(each.tests.values).all()]
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


def _anything_bad(fitted: Fit, confidence: float) -> bool:
    """Return whether something in any pair is bad, whether it is known what or not."""
    for each in fitted.classes:
        chance = fitted.bad[each.pairs].sum(axis=1) + each.link
        if each.tests.rail:
            nics = [sum(fitted.nics.get((node, each.tests.rail), 0.0) for node in pair) for pair in each.pairs.tolist()]
            chance = chance + np.array(nics)
        if (chance >= confidence).any():
            return True
    return False


def _ones_of_many(fitted: Fit) -> Iterator[int]:
    """Yield the nodes of large tests in which some node seems bad, but it is unknown which."""
    for each in fitted.classes:
        chances = fitted.bad[each.pairs]
        rows = (chances.sum(axis=1) >= _ONE_OF_MANY) & (chances.max(axis=1, initial=0.0) < _REPORTABLE)
        yield from each.pairs[rows][chances[rows] >= _LEAST].tolist()


def _suspects(readings: Readings, fitted: Fit, confidence: float) -> Iterator[Suspect]:
    writer = EvidenceWriter(readings, fitted, confidence)
    likely = np.flatnonzero(fitted.bad >= _REPORTABLE).tolist()
    succeeded = [np.unique(each.tests.members[~np.isnan(each.tests.values)]).tolist() for each in fitted.classes]
    without_figure = set(range(len(fitted.nodes))).difference(*succeeded)
    for node in sorted({*likely, *_ones_of_many(fitted), *without_figure}):
        name = fitted.nodes[node]
        yield Suspect(
            kind=SuspectKind.NODE,
            name=name,
            nodes=(name,),
            confidence=float(fitted.bad[node]),
            evidence=writer.of_node(node),
        )
    for (node, rail), chance in fitted.nics.items():
        if chance >= _REPORTABLE:
            name = fitted.nodes[node]
            yield Suspect(
                kind=SuspectKind.NIC,
                name=f"{name}:{rail}",
                nodes=(name,),
                confidence=chance,
                evidence=writer.of_nic(node, rail),
            )
    for group, chance in fitted.uplinks.items():
        if chance >= _REPORTABLE:
            yield Suspect(
                kind=SuspectKind.GROUP,
                name=group,
                nodes=tuple(node for node in fitted.nodes if readings.group_of.get(node, "") == group),
                confidence=chance,
                evidence=writer.of_uplink(group),
            )
    yield from _links(fitted, writer)


def _links(fitted: Fit, writer: EvidenceWriter) -> Iterator[Suspect]:
    for each in fitted.classes:
        for row in np.flatnonzero(each.link >= _REPORTABLE).tolist():
            nodes = tuple(fitted.nodes[node] for node in each.pairs[row].tolist())
            yield Suspect(
                kind=SuspectKind.LINK,
                name=" – ".join(nodes) + (f" ({each.tests.rail})" if each.tests.rail else ""),
                nodes=nodes,
                confidence=float(each.link[row]),
                evidence=writer.of_link(each, row),
            )


_LEAST_GROUP = 3
"""A group is bad if all of its nodes are, and it has at least so many."""


def _grouped(suspects: Sequence[Suspect], group_of: Mapping[str, str]) -> Sequence[Suspect]:
    """Name a group instead of its nodes if all of them are bad."""
    sizes: dict[str, int] = {}
    for group in group_of.values():
        sizes[group] = sizes.get(group, 0) + 1
    bad: dict[str, list[Suspect]] = {}
    for each in suspects:
        if each.kind is SuspectKind.NODE and each.name in group_of:
            bad.setdefault(group_of[each.name], []).append(each)
    whole = {group: nodes for group, nodes in bad.items() if sizes[group] == len(nodes) >= _LEAST_GROUP}
    replaced = {each.name for nodes in whole.values() for each in nodes}
    rest = [each for each in suspects if each.kind is not SuspectKind.NODE or each.name not in replaced]
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
