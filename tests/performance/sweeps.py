"""Sweeps of simulated clusters with known faults.

What is found, rightly or not, and by how many tests.
"""

import math
import os
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from time import process_time
from typing import Any

from fabbench.model.log import METRICS
from fabbench.sweep.analyze import analyze
from fabbench.sweep.diagnose import DiagnosePlanner
from fabbench.sweep.planner import all_pairs
from tests.support.simulated_sweeps import Cluster, blocks, named

NOISES = (0.03, 0.05, 0.08)
"""Between executions, as recorded (tests/data/aa has 8 %)."""
NICS = ("mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3")
CONGESTED: dict[str, Any] = {"congestion": 0.02}


@dataclass(frozen=True)
class Case:
    """Clusters of one kind. `more` are fields of Cluster."""

    name: str
    more: dict[str, Any] = field(default_factory=dict)
    bad: int = 0
    """How many nodes are bad."""
    groups: tuple[float, ...] = ()
    """The shares of nodes in each island."""
    older: float = 0.0
    """The share of nodes of an older type, 20 to 50 % slower as a whole."""
    other: str = ""
    """A link or NIC that is bad."""
    pairs: bool = False
    """Whether all pairs are tested first."""


def cases() -> Iterator[Case]:
    healthy: dict[str, dict[str, Any]] = {
        "healthy": {},
        "2 % congested": CONGESTED,
        "5 % congested": {"congestion": 0.05},
        "3 % fail": {"failures": 0.03},
        "tails of t3": {"tails": "t3"},
        "skewed": {"tails": "skewed"},
        "nodes differ by 4 %": {"spread": 0.04, "noise": 0.02},
        "mean of nodes": {"sums": True, **CONGESTED},
    }
    yield from (Case(name, more) for name, more in healthy.items())
    yield Case("healthy, pairs", CONGESTED, pairs=True)
    shares = {"9:8": (9, 8), "5:3": (5, 3), "3:1": (3, 1), "4 racks": (1, 1, 1, 1)}
    for name, sizes in shares.items():
        yield Case(f"groups {name}", CONGESTED, groups=sizes)
        yield Case(f"groups {name}, bad node", CONGESTED, 1, sizes)
    yield Case("groups 9:8, pairs", CONGESTED, groups=(9, 8), pairs=True)
    yield Case("a third older", CONGESTED, older=0.34)
    yield Case("a third older, bad node", CONGESTED, 1, older=0.34)
    yield Case("half older", CONGESTED, older=0.5)
    yield Case("node", CONGESTED, 1)
    yield Case("node, 5 % congested", {"congestion": 0.05}, 1)
    yield Case("node, mean of nodes", {"sums": True, **CONGESTED}, 1)
    yield Case("node, t3", {"tails": "t3"}, 1)
    yield Case("node, 3 % fail", {"failures": 0.03}, 1)
    yield Case("three nodes", CONGESTED, 3)
    yield Case("node slow in half", {"flaky": 0.5}, 1)
    yield Case("node slow in a quarter", {"flaky": 0.25}, 1)
    yield Case("link, pairs", CONGESTED, other="link", pairs=True)
    yield Case("NIC", {"nics": NICS}, other="NIC")


@dataclass(frozen=True)
class Found:
    """What came of one sweep."""

    right: int
    bad: int
    wrong: int
    grouped: bool
    """Whether the groups are those of the cluster."""
    silent: bool
    """Whether nothing was said to be bad, undecided, or a contradiction."""
    tests: int
    seconds: float


def severity(chance: random.Random) -> float:
    """One fault in three fails all tests; the others are 25 to 90 % slower."""
    return 1.0 if chance.random() < 1 / 3 else chance.uniform(0.25, 0.9)


def drawn(case: Case, count: int, noise: float, seed: int) -> tuple[Cluster, set[str]]:
    """Draw a cluster; return it and the names of what is bad."""
    chance, nodes = random.Random(f"{case.name} {count} {noise} {seed}"), named(count)
    order = chance.sample(nodes, count)
    cluster = Cluster(nodes, seed=chance.randrange(2**32), **{"noise": noise, **case.more})
    if case.groups:
        sizes = [round(count * share / sum(case.groups)) for share in case.groups[:-1]]
        cluster.islands, cluster.between = (
            blocks(order, *sizes, count - sum(sizes)),
            chance.uniform(0.3, 0.8),
        )
    cluster.types = dict.fromkeys(order[: math.ceil(case.older * count)], chance.uniform(0.5, 0.8))
    # Of the larger half: a node that is alone in its group cannot be told from a slow path to it.
    bad = {
        name: severity(chance)
        for name in chance.sample(
            order[count // 2 :] if case.older else order[: count // 2], case.bad
        )
    }
    cluster.bad_nodes = bad
    if case.other == "link":
        pair = sorted(chance.sample(nodes, 2))
        cluster.bad_links = {frozenset(pair): severity(chance)}
        return cluster, {" – ".join(pair)}
    if case.other == "NIC":
        where = chance.choice(nodes), chance.choice(NICS)
        cluster.bad_nics = {where: chance.uniform(0.25, 0.9)}
        return cluster, {":".join(where)}
    return cluster, set(bad)


def diagnosed(case: Case, count: int, noise: float, seed: int) -> Found:
    """Draw a cluster, and let the planner find what is bad in it."""
    cluster, bad = drawn(case, count, noise, seed)
    begin = process_time()
    screening = all_pairs(cluster.nodes) if case.pairs else None
    readings, _ = cluster.carried_out(
        DiagnosePlanner(cluster.nodes, METRICS["busbw"], seed=seed, screening=screening)
    )
    said = analyze(readings)
    accused = {each.name for each in said.suspects if each.kind != "group"}
    truth: dict[str, set[str]] = {}
    for node in cluster.nodes if cluster.islands or cluster.types else ():
        truth.setdefault(f"{cluster.islands.get(node)} {cluster.types.get(node)}", set()).add(node)
    groups = {frozenset(each.nodes) for each in said.groups}
    return Found(
        right=len(accused & bad),
        bad=len(bad),
        # One that happens to be slower than the tolerance is neither right nor wrong.
        wrong=len(accused - bad - cluster.slow()),
        # A bad node shows nothing of its group.
        grouped={each - bad for each in groups}
        == {frozenset(each - bad) for each in truth.values()},
        silent=not (said.suspects or said.undecided or said.contradiction),
        tests=cluster.tests,
        seconds=process_time() - begin,
    )


def line(case: Case, count: int, found: Sequence[Found]) -> str:
    """Write what came of many sweeps."""
    sweeps, bad, tests = (
        len(found),
        sum(each.bad for each in found),
        sorted(each.tests for each in found),
    )
    recall = f"{100 * sum(each.right for each in found) / bad:5.1f} %" if bad else "      –"
    per_100 = 100 / sweeps
    wrong, grouped, silent = (
        per_100 * sum(each)
        for each in zip(*((x.wrong, x.grouped, x.silent) for x in found), strict=True)
    )
    return (
        f"| {count:5} | {case.name:<24} | {sweeps:4} | {recall} | {wrong:5.2f} | {grouped:5.1f} "
        f"% | {silent:5.1f} % | "
        f"{tests[sweeps // 2]:6} | {tests[-1]:6} | {max(each.seconds for each in found):6.1f} s |"
    )


def sweeps(
    times: int, counts: Sequence[int] = (8, 17, 64, 256, 1024), chosen: Sequence[str] = ()
) -> None:
    """Print a table, of all cases or of those with the names chosen."""
    print(
        "| nodes | cluster | sweeps | found | wrong per 100 | groups right | nothing said | "
        "tests | most | longest |"
    )
    print("|---:|---|---:|---:|---:|---:|---:|---:|---:|---:|", flush=True)
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        run: Callable[..., Iterator[Found]] = pool.map
        for count in counts:
            many = max(1, min(times, times * 64 // count))
            for case in cases():
                left_out = (case.pairs and count > 64) or (case.bad > 1 and count < 12)
                if not left_out and (not chosen or case.name in chosen):
                    seeds = [(noise, seed) for seed in range(many) for noise in NOISES]
                    found = run(
                        diagnosed, *zip(*((case, count, *each) for each in seeds), strict=True)
                    )
                    print(line(case, count, list(found)), flush=True)


if __name__ == "__main__":
    sweeps(int(sys.argv[1]), [int(each) for each in sys.argv[2].split(",")], sys.argv[3:])
