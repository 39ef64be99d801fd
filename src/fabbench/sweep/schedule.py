"""Which tests to run, where results do not matter for that: rounds of tests that share no node."""

import random
from collections.abc import Iterator, Mapping, Sequence
from itertools import count, cycle

from fabbench.sweep.values import Round, SweepTest


def all_pairs(nodes: Sequence[str]) -> Iterator[Round]:
    """Yield every pair once, in as few rounds as there can be: N−1 of N/2 pairs; N where N is odd.

    The circle method: one node stays, the others move on by one place after each round.
    """
    circle: list[str | None] = [*nodes, *([None] if len(nodes) % 2 else [])]
    half, rounds = len(circle) // 2, len(circle) - 1
    for number in range(1, rounds + 1 if len(nodes) > 1 else 1):
        yield Round(
            number=number,
            tests=_pairs(zip(circle[:half], reversed(circle[half:]), strict=True)),
            purpose=f"all pairs, round {number} of {rounds}",
        )
        circle = [circle[0], circle[-1], *circle[1:-1]]


def matchings(nodes: Sequence[str], rounds: int, seed: int, *, again: bool = False) -> Iterator[Round]:
    """Yield random rounds in which every node has a new partner: some rounds of all pairs, shuffled.

    Of an odd number of nodes one rests in each round. There are no more rounds than all pairs have, unless
    partners may meet `again`.
    """
    shuffled = list(nodes)
    random.Random(seed).shuffle(shuffled)  # noqa: S311 - no secret
    most = len(nodes) - 1 + len(nodes) % 2
    rounds = 0 if len(nodes) < 2 else rounds if again else min(rounds, most)
    pairs = cycle(all_pairs(shuffled))
    for number, each in zip(range(1, rounds + 1), pairs, strict=False):
        yield Round(number=number, tests=each.tests, purpose=f"random pairs, round {number} of {rounds}")


def single(nodes: Sequence[str]) -> Iterator[Round]:
    """Yield one round in which every node is tested alone."""
    if nodes:
        yield Round(number=1, tests=tuple(SweepTest((node,)) for node in nodes), purpose="every node alone")


def rails(nodes: Sequence[str], nics: Sequence[str], *, rounds: int = 2, seed: int = 0) -> Iterator[Round]:
    """Yield random pairs, tested with one NIC after another, so that each NIC meets several partners."""
    numbers = count(1)
    for each in matchings(nodes, rounds, seed):
        for nic in nics:
            yield Round(
                number=next(numbers),
                tests=tuple(SweepTest(test.nodes, nic) for test in each.tests),
                purpose=f"{nic} of every node, partner {each.number} of {rounds}",
            )


def groups(group_of: Mapping[str, str], *, rounds: int = 2, seed: int = 0) -> Iterator[Round]:
    """Yield random pairs within each group (node → group), and then as many rounds between groups."""
    numbers = count(1)
    members: dict[str, list[str]] = {}
    for node, group in group_of.items():
        members.setdefault(group, []).append(node)
    within = [list(matchings(nodes, rounds, seed)) for nodes in members.values()]
    for index in range(max(map(len, within), default=0)):
        tests = (test for each in within if index < len(each) for test in each[index].tests)
        yield Round(number=next(numbers), tests=tuple(tests), purpose="pairs within groups")
    for number in range(rounds if len(members) > 1 else 0):
        yield Round(
            number=next(numbers),
            tests=_between(list(members.values()), random.Random(seed + number)),  # noqa: S311 - no secret
            purpose="pairs between groups",
        )


def _between(members: Sequence[Sequence[str]], chance: random.Random) -> tuple[SweepTest, ...]:
    """Pair nodes of different groups: each of the largest group left with one of another."""
    left = [chance.sample(list(nodes), len(nodes)) for nodes in members]
    chance.shuffle(left)
    tests = []
    while len(left := sorted(filter(None, left), key=len, reverse=True)) > 1:
        other = chance.randrange(1, len(left)) if len(left[0]) > len(left[1]) else 1
        tests.append(SweepTest((left[0].pop(), left[other].pop())))
    return tuple(tests)


def _pairs(found: "Iterator[tuple[str | None, str | None]]") -> tuple[SweepTest, ...]:
    return tuple(SweepTest((a, b)) for a, b in found if a is not None and b is not None)
