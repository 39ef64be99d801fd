"""The planner that finds what is bad with few tests: it screens all nodes, then what stands out.

Screening puts every node into eight random pairs, half of them within groups where these are known;
or it is any requested rounds, such as all pairs. After that, each round tests what is undecided:
nodes that may be bad, each with a healthy one, and again pairs whose link may be bad. It ends when
every node and link is either bad or healthy with the requested confidence, or when further tests of
the rest no longer help. Once a test ran out of time too soon to show anything, all later rounds
have the longer limit. After screening it is repeated; if the repeat ended in the usual time, more
tests of its nodes must show that none of them hangs now and then.
"""

import math
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from fabbench.model.messages import counted, listed
from fabbench.sweep.analyze import CONFIDENCE
from fabbench.sweep.beliefs import DOUBTED, all_healthy
from fabbench.sweep.explained import maybe_hanging, maybe_now_and_then
from fabbench.sweep.fit import TOLERANCE, Fit, fit, judging
from fabbench.sweep.planner import Planner, grouped, matchings
from fabbench.sweep.readings import Flags, Ints, Readings
from fabbench.sweep.repeats import Pair
from fabbench.sweep.values import LONGER, Round, SweepResult, SweepTest

if TYPE_CHECKING:
    from fabbench.model.log import Metric

SCREENING = 8
"""Pairs of each node before anything is judged, unless another number is requested.

A node that is slow in a fraction p of its tests shows in k tests with the chance 1 − (1 − p)^k: 8
pairs miss 4 nodes in 1,000 if p is half, and 10 in 100 if it is a quarter.
"""
_CLEAR = 0.008
"""Below this chance, a node or a link is healthy."""
_SHOWN = 0.001
"""Below this chance, an end of a link was shown to be fine: the link itself is tested again."""
MAX_ROUNDS = 40
"""Maximum number of rounds after screening."""
_TELLING = 3
"""Tests that mostly tell what is bad from chance: of a pair, of a node after screening."""
_MAX_REPEATS = 8
"""Maximum number of tests of one pair."""
_MAX_REPEATS_OF_TWO = _TELLING
"""The same where there are only two nodes: no number of tests tells which of them it is."""
_AMONG = 2
"""Other bad nodes that a bad node is tested with."""
_MAX_TESTS = 24
"""Maximum number of tests of an undecided node after screening."""
_MAX_TESTS_LIKELY = 40
"""The same of a node that is likely bad, or slow now and then: each test may show little."""
_MORE_TIME = f", with {LONGER} times the limit"


class DiagnosePlanner(Planner):
    """Plans rounds from the results of earlier ones."""

    def __init__(  # noqa: PLR0913 - what is known, and what is requested
        self,
        nodes: Sequence[str],
        metric: "Metric",
        *,
        group_of: Mapping[str, str] | None = None,
        size: int = 2,
        confidence: float = CONFIDENCE,
        tolerance: float = TOLERANCE,
        seed: int = 0,
        partners: int | None = None,
        screening: Iterable[Round] | None = None,
        raises_limit: bool = False,
        max_rounds: int | None = None,
    ) -> None:
        """`size`: nodes per test, 1 or 2.

        `screening`: the first rounds; else each node meets `partners` at random. `raises_limit`:
        whether tests that ran out of time may have more. `max_rounds`: how many screening has, if
        only these follow.
        """
        groups = {*(group_of or {}).values()}
        if screening is None and group_of and len(groups) > 1:
            screening = grouped(group_of, partners or SCREENING, seed=seed)
        elif screening is None:  # partners meet again if more are requested than there are nodes
            screening = matchings(nodes, partners or SCREENING, seed, again=partners is not None)
        super().__init__(self._planned_rounds(screening), max_rounds=max_rounds)
        self.readings = Readings(metric, nodes, group_of=group_of)
        self.size = min(size, len(nodes))
        self.confidence = confidence
        self._raises_limit = raises_limit
        self._tolerance = tolerance
        self.random = random.Random(seed)  # noqa: S311 - no secret
        self.screened = 0  # Rounds of screening that there were: about as many tests of each node

    def _close(self, results: Sequence[SweepResult]) -> None:
        # A round is over: what follows is planned with its results.
        for result in results:
            self.readings.add(result)
        self.readings.judge_hung()

    def _planned_rounds(self, screening: Iterable[Round]) -> Iterator[Round]:
        # Each round is planned when it is asked for: with the results of all before it. `screened`
        # is the number of the last round of screening.
        for self.screened, each in enumerate(screening, 1):
            yield self._of_screening(each)
        if len(self.readings.nodes) < 2:  # it has no partner
            return
        first = self.screened + 1
        for number in range(first, first + (self.max_rounds or MAX_ROUNDS)):
            if self.max_rounds and not self.readings.hung:  # nothing else follows
                return
            fitted = fit(self.readings, tolerance=self._tolerance)
            tests = tuple(self._tests_again(fitted))
            purpose = counted(len(tests), "test") + f" again{_MORE_TIME}"
            if not (tests or self.max_rounds):
                plan = _Plan(self, fitted)
                tests = tuple(plan.tests())
                purpose = plan.purpose(len(tests))
            if not tests:
                return
            yield Round(number=number, tests=tests, purpose=purpose)

    def _of_screening(self, planned: Round) -> Round:
        """Return a round without nodes that cannot run the program, with the limit of now."""
        broken = {self.readings.nodes[node] for node in self.readings.endings.nodes()}
        left = [test for test in planned.tests if broken.isdisjoint(test.nodes)]
        planned = replace(planned, tests=tuple(left))
        return _with_more_time(planned) if self.limit_was_short else planned

    @property
    def limit_was_short(self) -> bool:
        """Whether a test ran out of time too soon: all later ones have the longer limit."""
        return bool(self.readings.repeated) or any(self._too_soon())

    def _too_soon(self) -> Iterator[SweepTest]:
        """Yield tests that ran out of time too soon, and have enough for healthy ones with more."""
        healthy_s = self.readings.healthy_s if self._raises_limit else math.inf
        for each in self.readings.hung:
            if healthy_s <= LONGER * each.seconds and not each.test.longer:
                yield each.test

    def _tests_again(self, fitted: Fit) -> Iterator[SweepTest]:
        """Yield tests that ran out of time too soon, and share no node, for a longer limit.

        Not those of accused nodes, which explain them.
        """
        used = {*_named(fitted, fitted.bad >= self.confidence)}
        for test in self._too_soon():
            if used.isdisjoint(test.nodes):
                used.update(test.nodes)
                yield replace(test, longer=True)


def _with_more_time(planned: Round) -> Round:
    """Return a round whose tests have the longer limit."""
    tests = tuple(replace(test, longer=True) for test in planned.tests)
    return replace(planned, tests=tests, purpose=planned.purpose + _MORE_TIME)


def _named(fitted: Fit, flags: Flags) -> Sequence[str]:
    """Return the names of nodes with a flag."""
    return [fitted.nodes[node] for node in np.flatnonzero(flags).tolist()]


class _History:
    """How often nodes were tested, and with whom."""

    def __init__(self, fitted: Fit) -> None:
        count = len(fitted.nodes)
        self._times_served: Ints = np.zeros((count, count), dtype=np.int32)
        """Server × client → the number of their tests; a node alone is both."""
        for each in fitted.classes:
            server = each.tests.server
            client = each.ends.sum(axis=1) - server  # the other end; of one node, itself
            of_class = np.zeros_like(self._times_served)
            np.add.at(of_class, (server, client), 1)
            # Several NICs of one test count once.
            self._times_served = np.maximum(self._times_served, of_class)
        alone = np.diag(np.diag(self._times_served))
        self.met: Ints = self._times_served + self._times_served.T - alone
        """Node × node → the number of their tests."""
        self.tested: Ints = self.met.sum(axis=1)
        """Node → number of its tests."""

    def served_less(self, pair: Sequence[int]) -> Sequence[int]:
        """Return two nodes, first the one that was the server less often: a direction may be slow.

        In tests of this pair; if equally often, as a part of all its tests.
        """

        def times(node: int) -> tuple[int, float]:
            (other,) = {*pair} - {node}
            of_pair = int(self._times_served[node, other])
            in_all = int(self._times_served[node].sum())
            return of_pair, in_all / max(int(self.tested[node]), 1)

        return sorted(pair, key=times)


class _Plan:
    """One round of tests of what is undecided: nodes that may be bad, and pairs to test again.

    Of a node that is accused already, a few more tests must confirm it.
    """

    def __init__(self, planner: DiagnosePlanner, fitted: Fit) -> None:
        self._fit = fitted
        self._alone = planner.size == 1
        self._longer = planner.limit_was_short
        self._history = _History(fitted)
        count = len(fitted.nodes)
        self._max_repeats = _MAX_REPEATS if count > 2 else _MAX_REPEATS_OF_TWO
        self._bad: Flags = fitted.bad >= planner.confidence
        beyond_screening = self._history.tested - planner.screened  # node → its tests since then
        # Bad with enough confidence, or one of its NICs is.
        accused = self._bad | self._with_nic(planner.confidence, math.inf)
        open_links = dict(_open_links(fitted, planner.confidence))
        self._pairs_to_test_again = dict.fromkeys(_slow_pairs(fitted, accused), _TELLING)
        """Pairs whose link may be bad, or which were always slow → the maximum of their tests."""
        self._pairs_to_test_again |= dict.fromkeys(open_links, self._max_repeats)
        now_and_then = maybe_now_and_then(fitted, accused)
        now_and_then |= np.isin(fitted.nodes, [*maybe_hanging(planner.readings)])
        likely = now_and_then | (fitted.bad >= DOUBTED)
        # Node → its most tests; each test of one that is bad now and then may show little.
        most = np.where(likely, _MAX_TESTS_LIKELY, _MAX_TESTS)
        doubted = now_and_then | self._doubted(planner.confidence, open_links)
        self._doubtful: Flags = doubted & ~accused & (beyond_screening < most)
        bad = {*_named(fitted, self._bad)}
        hung = [each.test.nodes for each in planner.readings.hung]
        # If one has a bad node, that explains it.
        out_of_time = {node for nodes in hung for node in bad.intersection(nodes) or nodes}
        # Nothing is learned from more tests of these.
        given_up = [*fitted.broken, *map(planner.readings.index, out_of_time)]
        self._doubtful[given_up] = False
        # Nobody is accused for the tests by which it stood out: more of them decide.
        self._unconfirmed: Flags = accused & (beyond_screening < _TELLING)
        self._open: Flags = self._doubtful | self._unconfirmed
        self._most_tests_left = self._tests_left(most, beyond_screening)
        """The most tests that may follow, with those of this round."""
        self._free: Flags = ~self._bad | self._open
        """Nodes that are not in a test of this round yet, except bad ones."""
        self._free[given_up] = False
        self._group_of: Ints = np.zeros(count, dtype=np.int64)
        if fitted.groups is not None:
            self._group_of = fitted.groups.of
        self._random_order = np.array(planner.random.sample(range(count), count))
        """Of nodes that are equally good partners."""

    def _doubted(self, confidence: float, open_links: Mapping[Pair, float]) -> Flags:
        """Return the nodes of which it is open whether they are bad."""
        bad = self._fit.bad
        doubted: Flags = self._with_nic(_CLEAR, confidence) | (bad >= _CLEAR)
        # A link can be bad only where its ends are fine elsewhere: that must be shown. A pair that
        # met once is tested again first.
        for pair, chance in open_links.items():
            if chance >= DOUBTED and self._history.met[pair] > 1:
                ends = [*pair]
                doubted[ends] |= bad[ends] > _SHOWN
        return doubted

    def _with_nic(self, least: float, limit: float) -> Flags:
        """Return the nodes with a NIC whose chance to be bad is from `least` to below `limit`."""
        flagged = np.zeros(len(self._fit.nodes), dtype=np.bool_)
        for (node, _), chance in self._fit.nics.items():
            flagged[node] |= least <= chance < limit
        return flagged

    def _tests_left(self, most: Ints, beyond_screening: Ints) -> int:
        """Return the most tests that may be needed, of nodes and of pairs.

        `most`: node → the maximum of its tests after screening; `beyond_screening`: those it had.
        """
        of_doubted = most - beyond_screening
        of_accused = _TELLING - beyond_screening
        left = int(of_doubted[self._doubtful].sum())
        left += int(of_accused[self._unconfirmed].sum())
        for pair, most_of_pair in self._pairs_to_test_again.items():
            left += max(most_of_pair - int(self._history.met[pair]), 0)
        return left

    def purpose(self, count: int) -> str:
        """Return what so many tests are for, and how many may follow."""
        aims: list[str] = []
        for verb, flags in (("confirm", self._unconfirmed), ("decide", self._doubtful)):
            if flags.any():
                names = listed(_named(self._fit, flags))
                aims.append(f"{verb} {names}")
        if self._pairs_to_test_again:
            links = counted(len(self._pairs_to_test_again), "pair")
            aims.append(f"test {links} again")
        tests = counted(count, "test")
        most = counted(max(self._most_tests_left - count, 0), "test")
        what = ", ".join(aims) or "tell groups apart"  # without aims, bad nodes meet each other
        return f"{tests} to {what}; at most {most} after these"

    def tests(self) -> Iterator[SweepTest]:
        """Yield tests that share no node: first what may tell most."""
        # If bad nodes are fast with each other, a path is slow, and none of them is bad.
        yield from self._tests_among_bad()
        # Before nodes, a few tests of each pair that may be bad itself: they may clear its nodes.
        yield from self._tests_of_pairs_again(_TELLING)
        worst_first = np.argsort(-self._fit.bad, kind="stable")
        for node in worst_first[self._open[worst_first]].tolist():
            if not self._free[node]:
                continue
            if self._alone:
                yield self._take_test(node)
            elif (partner := self._partner(node)) is not None:
                yield self._take_test(node, partner)
        yield from self._tests_of_pairs_again(self._max_repeats)

    def _take_test(self, *nodes: int) -> SweepTest:
        # They are in no other test of this round; a pair is server and client, in this order.
        self._free[[*nodes]] = False
        roles = nodes if self._alone else self._history.served_less(nodes)
        names = tuple(self._fit.nodes[node] for node in roles)
        return SweepTest(names, longer=self._longer)

    def _tests_among_bad(self) -> Iterator[SweepTest]:
        """Yield pairs of bad nodes, each with two others: if they are fast, a path is slow."""
        if self._alone:  # tests of one node have no path
            return
        bad: list[int] = np.flatnonzero(self._bad).tolist()
        used: set[int] = set()
        for node in bad:
            met = [other for other in bad if self._history.met[node, other]]
            # Bad ones that it has not met, and that are not in a test of this round.
            fresh = [other for other in bad if other not in {node, *used, *met}]
            if node not in used and fresh and len(met) < _AMONG:
                used |= {node, fresh[0]}
                yield self._take_test(node, fresh[0])

    def _tests_of_pairs_again(self, repeats: int) -> Iterator[SweepTest]:
        """Yield pairs again that met less often than `repeats`, and than they may at most."""
        for pair, most in self._pairs_to_test_again.items():
            again = self._history.met[pair] < min(most, repeats)
            if again and self._free[[*pair]].all():
                yield self._take_test(*pair)

    def _partner(self, suspect: int) -> int | None:
        """Return its best free partner; None if all met it often enough.

        By this order: the surest to be fine; the one that it met least; of its own group until that
        met it a few times, then of the group that it met least, as it may be one of these.
        """
        bad = self._fit.bad
        groups = self._group_of
        met = self._history.met[suspect]
        often = np.bincount(groups, met)
        if often[groups[suspect]] < _TELLING:
            often[groups[suspect]] = -1  # before all others
        free = self._free & (met < self._max_repeats)
        free[suspect] = False
        doubt = np.where(bad < _CLEAR, 0.0, bad)
        # The last key counts most.
        best = np.lexsort((self._random_order, often[groups], met, doubt))
        best_free = best[free[best]]
        return int(best_free[0]) if len(best_free) else None


def _slow_pairs(fitted: Fit, accused: Flags) -> Iterator[Pair]:
    """Yield the pairs of nodes that are not accused and whose tests are all slower than tolerated.

    More of them tell a slow link from noise. Through a slow uplink they tell nothing.
    """
    for each in judging(fitted.classes, fitted.uplinks):
        slow = each.log_ratio < fitted.tolerated
        few = each.tests_of_factors() < _TELLING
        healthy = all_healthy(fitted.bad, each.pairs)
        healthy &= ~accused[each.pairs].any(axis=1)
        open_pairs = each.pairs[each.always(slow) & healthy & few]
        yield from map(tuple, open_pairs.tolist())


def _open_links(fitted: Fit, confidence: float) -> Iterator[tuple[Pair, float]]:
    """Yield pairs of which it is open whether the link is bad, with the chance that it is."""
    for each in fitted.of_two():
        rows = np.flatnonzero((each.link >= _CLEAR) & (each.link < confidence))
        chances = each.link[rows].tolist()
        pairs = map(tuple, each.pairs[rows].tolist())
        yield from zip(pairs, chances, strict=True)
