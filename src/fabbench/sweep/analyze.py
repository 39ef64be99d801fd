"""Results of a sweep → suspects, with evidence in words."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain

import numpy as np

from fabbench.model.fabrics import natural_order
from fabbench.model.hostlist import compress_hostlist
from fabbench.model.mappings import Names, distinct
from fabbench.model.messages import counted, listed, quoted
from fabbench.model.units import format_decimal
from fabbench.model.values import frozen
from fabbench.sweep.beliefs import DOUBTED, USUAL_WEIGHT, all_healthy
from fabbench.sweep.evidence import EvidenceWriter
from fabbench.sweep.explained import accounted_for, maybe_hanging, slow_now_and_then, unexplained
from fabbench.sweep.fit import TOLERANCE, Fit, FittedClass, certain, fit
from fabbench.sweep.groups import FEW, Grouping, slower_of_two
from fabbench.sweep.held_out import holds
from fabbench.sweep.rails import slow_rails, with_shared_as_one
from fabbench.sweep.readings import Flags, Readings, by_key
from fabbench.sweep.values import Diagnosis, NodeGroup, Suspect, SuspectKind, pair_text

CONFIDENCE = 0.99
"""From this confidence on, something counts as bad."""
_REPORTABLE = 0.1
"""From this chance on, something may be bad."""
_REPORTABLE_LINK = 0.03
"""The same of a link that is slow in most of its tests: one test rarely shows more."""
_ONE_OF_MANY = 0.5
"""From this chance on, one of a test's nodes may be bad, although no single one is reportable."""
_TWO_OF = 6
"""Of so many nodes, two may be bad."""
_PARTLY = 0.3
"""An accused node is slow only partly if more than this part of its tests is fast."""
_FEW_FLAKY = 0.05
"""More than this part of the nodes is not flaky."""
_AS_LIKELY = 0.5
"""As likely bad as fine: below this confidence, something is rather fine."""


def analyze(
    readings: Readings, *, tolerance: float = TOLERANCE, confidence: float = CONFIDENCE
) -> Diagnosis:
    """Name what is bad with at least `confidence`, and what may be bad."""
    return diagnosis(readings, fit(readings, tolerance=tolerance), confidence=confidence)


def diagnosis(readings: Readings, fitted: Fit, *, confidence: float = CONFIDENCE) -> Diagnosis:
    """Name what a fit shows to be bad, or possibly bad.

    What is likely enough is accused, unless the accused contradict each other: then nothing is
    called bad. Added are slow paths, rails and groups; the less likely is undecided. A slow or
    failed test that none of these explains is left to a flaky node, or to chance, or is itself
    undecided. At last, if nothing is bad, whether the figures could have shown it.
    """
    writer = EvidenceWriter(readings, fitted, confidence)
    named = _suspects(readings, fitted, writer)
    likeliest_first = sorted(named, key=lambda each: -each.confidence)
    accused = [each for each in likeliest_first if each.confidence >= confidence]
    contradiction = _contradiction(fitted, confidence, accused)
    # Found groups that other tests do not confirm are neither shown nor accused.
    groups_hold = _groups_hold(fitted)
    groups = [*_groups(readings, fitted)] if groups_hold else []
    slow_groups = [*_slow_groups(readings, fitted, groups)] if groups_hold else []
    slow_path: list[Suspect] = []
    suspects: list[Suspect] = []
    if contradiction:
        accused = []  # all of them are doubtful, too
    else:
        slow_path += _slow_path(fitted, writer, confidence) if groups_hold else ()
        suspects += [*slow_path, *slow_rails(fitted, confidence), *with_shared_as_one(accused)]
    undecided = [each.suspect for each in slow_groups if not each.known]
    doubtful = [each for each in likeliest_first if each not in accused]
    undecided += _not_explained(doubtful, suspects)
    # A group that is slower explains its tests, whether or not its type is known.
    of_other_types = [each.suspect for each in slow_groups if each.known]
    left_over = [*unexplained(fitted, [*suspects, *undecided, *of_other_types])]
    flaky = slow_now_and_then(fitted, left_over)
    undecided += [_as_node(fitted, writer, node) for node in sorted(flaky)]
    pairs = [each for each in left_over if not each.is_of(flaky)]
    by_chance = [each for each in pairs if each.by_chance]
    undecided += [
        _as_pair(fitted, writer, each.tests, each.row) for each in pairs if not each.by_chance
    ]
    why_too_coarse = _why_too_coarse(readings, fitted)
    # Nothing looks bad. The same field says why that is not sure: the figures could not have shown
    # it, most tests are slow, or nodes differ by more than noise.
    if not (suspects or undecided or contradiction):
        contradiction = (
            why_too_coarse or _too_noisy(fitted) or _most_slow(fitted) or next(_uneven(fitted), "")
        )
    are_found = groups_hold and fitted.groups is not None and not fitted.groups.given
    return Diagnosis(
        groups=groups,
        groups_found=are_found,
        misgrouped=bool(readings.group_of) and are_found,  # the user named others
        slow_path=bool(slow_path),
        contradiction=contradiction,
        suspects=suspects,
        undecided=undecided,
        by_chance=[_as_pair(fitted, writer, each.tests, each.row) for each in by_chance],
        failed_once=any(each.failed for each in by_chance),
        out_of_time=_out_of_time(readings, suspects),
        differences=[each.evidence for each in of_other_types],
        required=confidence,
        typicals=_typicals(readings, fitted) if groups_hold and not why_too_coarse else {},
        too_coarse=bool(why_too_coarse) and contradiction == why_too_coarse,
        spread=_measured_noise(fitted),
        tests=readings.count,
        nodes=tuple(readings.nodes),
        links=_tested_and_all_links(fitted),
    )


def _out_of_time(readings: Readings, suspects: Sequence[Suspect]) -> str:
    """Return which tests hung too soon to show anything, and what to pass; empty: none did.

    Those of a bad node are explained by it.
    """
    bad = _nodes_of(suspects, SuspectKind.NODE)
    open_nodes = maybe_hanging(readings)
    once = [each for each in readings.hung_once if not open_nodes.isdisjoint(each.test.nodes)]
    hung = [*readings.hung, *once]
    left = [each for each in hung if bad.isdisjoint(each.test.nodes)]
    if not left:
        return ""
    tests = listed(distinct(str(each.test) for each in left))
    least_s = readings.least_s
    advice = f"Pass --timeout {least_s:.0f} or more, twice what healthy tests take."
    if math.isinf(least_s):  # as of logs
        advice = "How long healthy tests take is not known: test these again with more time."
    return f"Out of time, which shows nothing: {tests}. {advice}"


def _tested_and_all_links(fitted: Fit) -> tuple[int, int]:
    """Return how many pairs of nodes were tested, and how many there are."""
    count = len(fitted.nodes)
    tested = np.unique(fitted.pairs.links(count))
    return len(tested), math.comb(count, 2)


def _not_explained(doubtful: Sequence[Suspect], suspects: Sequence[Suspect]) -> Iterator[Suspect]:
    """Yield what may be bad, and no suspect says why.

    One does if all of its nodes are behind a bad uplink; or if it is rather fine, and a link of a
    bad node: tests of a node that loses packets vary.
    """
    bad = _nodes_of(suspects, SuspectKind.NODE)
    behind_uplinks = _nodes_of(suspects, SuspectKind.GROUP)
    for each in doubtful:
        rather_fine = each.kind is SuspectKind.LINK and each.confidence < _AS_LIKELY
        of_bad_node = not bad.isdisjoint(each.nodes)
        if not ((rather_fine and of_bad_node) or behind_uplinks.issuperset(each.nodes)):
            yield each


def _nodes_of(suspects: Sequence[Suspect], kind: SuspectKind) -> set[str]:
    """Return the nodes of all suspects of a kind."""
    return {node for each in suspects if each.kind is kind for node in each.nodes}


def _groups_hold(fitted: Fit) -> bool:
    """Return whether found groups also hold for pairs that they were not fitted to."""
    if fitted.groups is None or fitted.groups.given:
        return True
    pairs = fitted.pairs_below_best
    return holds(fitted.groups, pairs, fitted.bad, fitted.slow, -fitted.least_apart)


def _as_node(fitted: Fit, writer: EvidenceWriter, node: int) -> Suspect:
    """Return a node as a suspect."""
    name = fitted.nodes[node]
    chance = float(fitted.bad[node])
    evidence = writer.of_node(node)
    shared = writer.shared_by(node)  # suspects that share it become one
    return Suspect(SuspectKind.NODE, name, (name,), chance, evidence, shared=shared)


def _as_pair(fitted: Fit, writer: EvidenceWriter, fitted_class: FittedClass, row: int) -> Suspect:
    """Return the nodes of a test as a suspect: a link, or a node that was tested alone."""
    rail = fitted_class.tests.rail
    nodes = _names_of(fitted.nodes, fitted_class.pairs[row].tolist())
    kind = SuspectKind.LINK if len(nodes) > 1 else SuspectKind.NODE
    chance = float(fitted_class.link[row])
    evidence = writer.of_link(fitted_class, row)
    return Suspect(kind, pair_text(nodes, rail), nodes, chance, evidence, rail)


@frozen
class _SlowGroup:
    """A group that is slower than others, also among its own nodes."""

    suspect: Suspect
    known: bool
    """Whether the types of its nodes are known to be others."""


def _slow_groups(
    readings: Readings, fitted: Fit, groups: Sequence[NodeGroup]
) -> Iterator[_SlowGroup]:
    """Yield groups whose own pairs are slower than those of the fastest group."""
    if fitted.groups is None:
        return
    speeds = _speeds_of_groups(fitted, fitted.groups)  # by number of the group; larger is faster
    if len(speeds) < 2:
        return
    fastest = max(speeds, key=speeds.__getitem__)
    best = groups[fastest]  # `groups` are in the order of their numbers
    which = "other" if len(speeds) == 2 else "fastest"
    for number, speed in speeds.items():
        if speed >= speeds[fastest] + fitted.tolerated:  # less apart than is tolerated
            continue
        nodes = groups[number].nodes
        name = compress_hostlist(nodes)
        types = _types_differ(readings, nodes, best.nodes)
        factor = format_decimal(math.exp(speeds[fastest] - speed), 1)
        text = f"{name} are {factor}x slower than the {which} {len(best.nodes)}"
        why = types or "another type, or bad"
        evidence = f"{text}, also among themselves: {why}."
        # It is slow for sure; whether it is bad is as likely as not.
        suspect = Suspect(SuspectKind.SLOW_GROUP, name, tuple(nodes), DOUBTED, evidence)
        yield _SlowGroup(suspect=suspect, known=bool(types))


def _speeds_of_groups(fitted: Fit, groups: Grouping) -> Mapping[int, float]:
    """Return group → the median logarithm of its own pairs, relative to the best group."""
    pairs = fitted.pairs_below_best
    fine = all_healthy(fitted.bad, pairs.members) & np.isfinite(pairs.log_ratio)
    first, second = groups.of[pairs.members].T
    speeds: dict[int, float] = {}
    for number, _ in enumerate(groups.names):
        inside = fine & (first == number) & (second == number)
        if inside.any():
            speeds[number] = float(np.median(pairs.log_ratio[inside]))
    return speeds


def _types_differ(readings: Readings, nodes: Sequence[str], others: Sequence[str]) -> str:
    """Return how the instance types of nodes differ from those of others.

    Empty: some type is not known, or both have it.
    """
    mine = {readings.type(node) for node in nodes}
    theirs = {readings.type(node) for node in others}
    if "" in mine | theirs or mine & theirs:
        return ""
    named = listed(sorted(mine))
    return f"they are {named}, the others {listed(sorted(theirs))}"


def _slow_path(fitted: Fit, writer: EvidenceWriter, confidence: float) -> Iterator[Suspect]:
    """Yield the path between found groups, if tests through it are slower than those within.

    Types have no path between them: a test is as fast as its slower node.
    """
    groups = fitted.groups
    if groups is None or groups.given:  # uplinks of given groups are suspects themselves
        return
    paths = [each.path for each in fitted.of_two() if each.tests.between]
    # Negative logarithms: the rail that the path slows least counts.
    if paths and max(paths) < fitted.tolerated:
        sure = certain(confidence)
        name = _path_name(groups.names)
        yield Suspect(SuspectKind.GROUP, name, (), confidence=sure, evidence=writer.of_path())


def _path_name(groups: Sequence[str]) -> str:
    """Return the name of the path between some groups."""
    if len(groups) < 4:
        return " – ".join(groups)
    first, *_, last = groups
    return f"{first} … {last}"


def _contradiction(fitted: Fit, confidence: float, accused: Sequence[Suspect]) -> str:
    """Return why those who look bad cannot all be bad, as a sentence; empty if they can.

    They are too many; or what does not look bad has two speeds, too; or they are fast with each
    other; or many of them are fast with some partners: the path is slow, not the nodes.
    """
    looks_bad = fitted.bad >= confidence
    number = int(looks_bad.sum())
    count = len(fitted.nodes)
    few = 2 if count >= _TWO_OF else 1  # so many may be bad, whatever part of the nodes it is
    if number > max(few, FEW * count):
        return (
            f"{number} of {count} nodes are slow with the others: so many are of another "
            "type, switch or setting."
        )
    if number and (two_speeds := _two_speeds_of_healthy(fitted, accused)):
        return two_speeds
    pairs = fitted.pairs
    fast = pairs.log_ratio >= fitted.slow
    among = looks_bad[pairs.members].all(axis=1)  # tests of two that look bad
    fast_among = int(fast[among].sum())
    if 2 * fast_among > among.sum():
        tests = f"{fast_among} of {among.sum()} pairs"
        return f"{tests} of the {number} nodes that look bad are fast: the path to others is slow."
    inside = ~pairs.between  # those between groups may be slow by their path
    nodes = pairs.members[inside].reshape(-1)
    tested = np.bincount(nodes, minlength=count)  # node → its tests; then, how many are fast
    fast_tests = np.bincount(nodes, np.repeat(fast[inside], 2), count)
    partly = int((looks_bad & (fast_tests > _PARTLY * tested)).sum())
    if partly > max(2, _FEW_FLAKY * count):
        return (
            f"{partly} of {count} nodes are slow with some partners, fast with others: a path "
            "between them is slow."
        )
    return ""


def _two_speeds_of_healthy(fitted: Fit, accused: Sequence[Suspect]) -> str:
    """Return, as a sentence, that what does not look bad has two speeds, too.

    Empty: it has one, or there are groups, which explain several.
    """
    if fitted.groups is not None:
        return ""
    others: list[float] = []
    for each in fitted.of_two():
        of_others = ~accounted_for(fitted, each, accused) & ~each.failed
        others += each.log_ratio[of_others].tolist()
    if len(others) < _ENOUGH_TESTS:
        return ""
    slow = slower_of_two(np.array(others), -fitted.least_apart)
    if not slow:
        return ""
    return (
        f"Of the others' {len(others)} tests, {slow} are slow too: the nodes are of several types, "
        "or a path between them is slow."
    )


_ENOUGH_TESTS = 6
"""Of fewer tests, two speeds may be chance."""


def _measured_noise(fitted: Fit) -> float:
    """Return the noise; 0: most of it is what was assumed, as few healthy tests measured it."""
    healthy = 0
    for each in fitted.classes:
        fine = all_healthy(fitted.bad, each.tests.members) & ~each.failed
        healthy += len(np.flatnonzero(fine))
    return fitted.noise if healthy > USUAL_WEIGHT else 0.0


def _too_noisy(fitted: Fit) -> str:
    """Return that healthy tests differ too much to find what is slower than the tolerance.

    Empty: they do not. The noise is a fraction; `tolerated` is a negative logarithm.
    """
    if fitted.noise <= -fitted.tolerated:
        return ""
    noise = format(fitted.noise, ".0%")
    slower = format(-math.expm1(fitted.tolerated), ".0%")
    return f"The tests differ by ± {noise}: nodes that are {slower} slower would not show."


def _most_slow(fitted: Fit) -> str:
    """Return that some tests are faster than most can be by chance; empty: there are none.

    Faults make tests slower, never faster.
    """
    above = max(-fitted.least_apart, _FASTER * fitted.noise)  # a logarithm; positive is faster
    log_ratio = fitted.pairs.log_ratio
    faster = log_ratio[log_ratio > above]
    tests = len(log_ratio)
    if len(faster) <= min(_FEW_ERRORS, _ERRORS * tests):
        return ""
    factor = format_decimal(math.exp(np.median(faster)), 1)
    return f"{len(faster)} of {tests} tests are {factor}x faster than most: these are slow."


_FASTER = 6.0
"""So many standard deviations above what is typical, no healthy test is by chance."""
_FEW_ERRORS = 2
"""So many tests that are faster are errors of measurement."""
_ERRORS = 0.07
"""Of few tests, at most this part is."""


def _uneven(fitted: Fit) -> Iterator[str]:
    """Yield, as a sentence, that nodes differ by more than the tests of one of them do.

    An analysis of variance, for tests of one kind. Each counts for both of its nodes.
    """
    for each in fitted.of_two():
        log_ratio = np.repeat(np.nan_to_num(each.log_ratio), 2)  # what failed shows nothing
        tests = by_key(each.tests.members.ravel(), log_ratio)
        means = np.add.reduceat(tests.values, tests.starts) / tests.counts
        of_nodes = np.repeat(means, tests.counts)
        between = np.var(of_nodes) * tests.counts.mean()
        if between <= _UNEVEN * np.var(tests.values):
            continue
        by_noise = np.var(tests.values - of_nodes)
        without_noise = math.sqrt(1 - by_noise / between)  # this part of what means differ by
        apart = -np.ptp(means) * without_noise
        if apart < fitted.tolerated:
            percent = format(-np.expm1(apart), ".0%")
            yield f"Nodes differ by up to {percent}, more than the tests of one node do."


_UNEVEN = 1.8
"""So many times what noise alone makes, nodes differ by noise in 5 of 1,000 sweeps of 8 nodes."""


def _why_too_coarse(readings: Readings, fitted: Fit) -> str:
    """Return that the printed digits are too few to find what is slower than the tolerance."""
    parts = [each.tests.rounded[~each.failed] for each in fitted.classes]
    rounded = chain.from_iterable(parts)
    tolerance = -math.expm1(fitted.tolerated)
    return too_coarse(readings.metric.name, rounded, tolerance)


_EXACT = 1 + 1e-6
"""Less is the precision of numbers."""


def too_coarse(metric: str, rounded: Iterable[float], tolerance: float) -> str:
    """Return that the last printed digit hides what is slower than a tolerance; empty: it does not.

    `rounded`: of each test, half of this digit as a part of its figure.
    """
    parts = sorted(rounded)
    typical = parts[len(parts) // 2] if parts else 0.0
    if typical <= tolerance * _EXACT:  # a digit that is as large as the tolerance still shows it
        return ""
    half = format(typical, ".0%")
    how = f"half of its last printed digit is {half}"
    if typical > 1:  # `rounded_part` is 2 of what is printed as 0
        how = "most tests print it as 0"
    percent = format(tolerance, ".0%")
    doublings = math.ceil(math.log2(typical / tolerance))
    times = 1 << doublings
    return (
        f"The size is too small: of {metric}, {how}, so that nodes that are {percent} slower "
        f"would not show. Test a size {times} times as large."
    )


def _groups(readings: Readings, fitted: Fit) -> Iterator[NodeGroup]:
    """Yield the groups, with the figures of what most of their tests measured."""
    groups = fitted.groups
    if groups is None:
        return
    pairs = fitted.pairs
    known = ~np.isnan(pairs.values)
    healthy = known & all_healthy(fitted.bad, pairs.members)
    healthy &= _of_most_measured(fitted)
    tested = np.unique(pairs.members[known])
    for number, name in enumerate(groups.names):
        of_group = (groups.of[pairs.members] == number).sum(axis=1)
        inside = healthy & (of_group == 2)
        to_others = healthy & (of_group == 1)
        members = np.flatnonzero(groups.of == number)
        if not groups.given:  # of a node without a figure, the tests show no group
            members = np.intersect1d(members, tested)
        nodes = _names_of(fitted.nodes, members.tolist())
        yield NodeGroup(
            name=name,
            nodes=sorted(nodes, key=natural_order),
            inside=_median_figure(readings, fitted, inside),
            between=_median_figure(readings, fitted, to_others),
            pairs=(int(inside.sum()), int(to_others.sum())),
        )


def _of_most_measured(fitted: Fit) -> Flags:
    """Return the tests of pairs of what most tests measured: other figures cannot be compared."""
    nothing = np.zeros(0, dtype=np.int64)
    kinds = [each.tests.kind for each in fitted.of_two()]
    kind = np.concatenate([nothing, *kinds])
    times = np.bincount(kind, minlength=1)
    return kind == times.argmax()


def _median_figure(readings: Readings, fitted: Fit, tests: Flags) -> float | None:
    """Return the median figure of some pairs; None: there are none."""
    if not tests.any():
        return None
    return readings.figure(float(np.median(fitted.pairs.values[tests])))


def _typicals(readings: Readings, fitted: Fit) -> Mapping[str, float]:
    """Return the typical figure of each kind of test, if figures of one kind can be compared.

    Keys as in `Diagnosis.typicals`. Empty if tests of one kind are in series that differ.
    """
    known = [each for each in fitted.classes if not each.failed.all()]
    if any(len(each.tests.known_series()) > 1 for each in known):
        return {}
    several_ways = len({each.tests.between for each in known}) > 1
    typicals: dict[str, float] = {}
    for each in known:
        where = ""
        if several_ways:
            where = "between groups" if each.tests.between else "within groups"
        kind = ", ".join(filter(None, (each.tests.rail, where)))
        typical = each.typical[each.tests.series[0]]
        typicals[kind] = readings.figure(float(typical))
    return typicals


def _ones_of_many(fitted: Fit) -> Iterator[int]:
    """Yield the nodes of tests of which one is likely bad, although none alone is reportable."""
    for each in fitted.classes:
        chances = fitted.bad[each.pairs]
        someone = chances.sum(axis=1) >= _ONE_OF_MANY
        nobody = chances.max(axis=1, initial=0.0) < _REPORTABLE
        yield from each.pairs[someone & nobody].ravel().tolist()


def _suspects(readings: Readings, fitted: Fit, writer: EvidenceWriter) -> Iterator[Suspect]:
    """Yield all that may be bad: nodes, their NICs, uplinks of given groups, and links."""
    # Of a node without any figure nothing is known: it is named, too. Nodes are numbers here.
    untested = _without_figure(fitted).difference(fitted.broken)
    yield from _broken(readings, fitted)
    likely = np.flatnonzero(fitted.bad >= _REPORTABLE).tolist()
    for node in sorted({*likely, *_ones_of_many(fitted), *untested}):
        yield _as_node(fitted, writer, node)
    for (node, rail), chance in fitted.nics.items():
        if chance >= _REPORTABLE:
            name = fitted.nodes[node]
            evidence = writer.of_nic(node, rail)
            nic = f"{name}:{rail}"
            yield Suspect(SuspectKind.NIC, nic, (name,), chance, evidence, rail, shared=rail)
    for group, chance in fitted.uplinks.items():
        # Found groups are none of the user's and get no nodes here: their path is a suspect.
        nodes = tuple(node for node in fitted.nodes if readings.group(node) == group)
        if chance >= _REPORTABLE and nodes:
            yield Suspect(SuspectKind.GROUP, group, nodes, chance, writer.of_uplink(group))
    for each in fitted.classes:
        yield from (_as_pair(fitted, writer, each, row) for row in _reportable_links(fitted, each))
    yield from _unreadable(readings, fitted, untested)


def _broken(readings: Readings, fitted: Fit) -> Iterator[Suspect]:
    """Yield the nodes that cannot run the program."""
    for node in sorted(fitted.broken):
        name = fitted.nodes[node]
        failed = readings.endings.failed(node)
        reason = readings.reasons[failed[0]] or "its tests fail"
        why = quoted(reason).rstrip(".")
        tests = counted(len(failed), "test")
        evidence = f"{name} cannot run it: {why}. All of its {tests} end so, and no others."
        yield Suspect(
            SuspectKind.NODE, name, (name,), confidence=1.0, evidence=evidence, cannot_run=True
        )


def _without_figure(fitted: Fit) -> set[int]:
    """Return the nodes of which no test succeeded."""
    nodes = set(range(len(fitted.nodes)))
    for each in fitted.classes:
        measured = np.unique(each.tests.members[~each.failed])
        nodes.difference_update(measured.tolist())
    return nodes


def _reportable_links(fitted: Fit, fitted_class: FittedClass) -> Sequence[int]:
    """Return the rows of pairs whose link may be bad."""
    fast = fitted_class.log_ratio >= fitted.slow
    # A pair that is slow in most of its tests is reported at a smaller chance: few tests rarely
    # show more.
    mostly = 2 * fitted_class.per_factor(~fast) > fitted_class.tests_of_factors()
    least = np.where(mostly, _REPORTABLE_LINK, _REPORTABLE)
    return np.flatnonzero(fitted_class.link >= least).tolist()


def _unreadable(readings: Readings, fitted: Fit, untested: set[int]) -> Iterator[Suspect]:
    """Yield pairs whose only log says nothing, unless an untested node is named already."""
    tested = {tuple(pair) for each in fitted.classes for pair in each.pairs.tolist()}
    for members, reason in readings.unusable.items():
        if members not in tested and untested.isdisjoint(members):
            nodes = _names_of(fitted.nodes, members)
            evidence = f"Its only log says nothing: {quoted(reason)}"
            yield Suspect(
                SuspectKind.LINK,
                pair_text(nodes, rail=""),
                nodes,
                confidence=0.0,  # no test speaks against it
                evidence=evidence,
            )


def _names_of(names: Sequence[str], nodes: Sequence[int]) -> Names:
    return tuple(names[node] for node in nodes)
