"""Sweeps of simulated clusters with known faults: what is found, rightly or not, and by how many tests."""

import random
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from fabbench.model.log import METRICS
from fabbench.sweep.analyze import analyze
from fabbench.sweep.diagnose import DiagnosePlanner
from tests.support.simulated_sweeps import Cluster, named

NOISES = (0.03, 0.05, 0.08)
"""Between executions, as recorded (tests/data/aa has 8 %)."""
OUTLIERS = 0.002
RACK = 8
NICS = ("mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3")


@dataclass(frozen=True)
class Found:
    """What came of one sweep."""

    right: int
    bad: int
    wrong: int
    tests: int
    rounds: int
    seconds: float


def severity(chance: random.Random) -> float:
    """One fault in three fails all tests; the others are 25 to 90 % slower."""
    return 1.0 if chance.random() < 1 / 3 else chance.uniform(0.25, 0.9)


def cluster(count: int, fault: str, noise: float, seed: int) -> tuple[Cluster, set[str]]:
    """Draw a cluster with a fault; return it and the names of what is bad."""
    chance, nodes = random.Random(f"{count} {fault} {noise} {seed}"), named(count)
    drawn = Cluster(nodes, noise=noise, outliers=OUTLIERS, seed=seed)
    bad: Mapping[str, float] = {}
    if fault in {"node", "flaky node"}:
        bad = {chance.choice(nodes): severity(chance)}
        drawn.flaky = 0.5 if fault == "flaky node" else 1.0
    elif fault == "three nodes":
        bad = {name: severity(chance) for name in chance.sample(nodes, 3)}
    elif fault == "rack":
        first = RACK * chance.randrange(count // RACK // 2 + 1)
        slower = chance.uniform(0.25, 0.9)
        bad = dict.fromkeys(nodes[first : first + RACK], slower)
    elif fault == "NIC":
        drawn.nics = NICS
        where = (chance.choice(nodes), chance.choice(NICS))
        # One that fails leaves no figure of the others: rails find it.
        drawn.bad_nics = {where: chance.uniform(0.25, 0.9)}
        return drawn, {":".join(where)}
    drawn.bad_nodes = bad
    return drawn, set(bad)


def diagnosed(count: int, fault: str, noise: float, seed: int) -> Found:
    """Draw a cluster, and let the planner find what is bad in it."""
    fault, _, partners = fault.partition(" / ")
    drawn, bad = cluster(count, fault, noise, seed)
    if fault in {"link", "flaky link"}:
        # A link is found where its nodes meet: in one of the random pairs that screen.
        screening = DiagnosePlanner(drawn.nodes, METRICS["busbw"], seed=seed).next_round()
        assert screening is not None
        pair = random.Random(seed).choice(screening.tests).nodes
        drawn.bad_links = {frozenset(pair): severity(random.Random(seed))}
        drawn.flaky = 0.5 if fault == "flaky link" else 1.0
        bad = {" – ".join(sorted(pair))}
    begin = time.perf_counter()
    many = int(partners) if partners else None
    planner = DiagnosePlanner(drawn.nodes, METRICS["busbw"], seed=seed, partners=many)
    readings, rounds = drawn.carried_out(planner)
    named_bad = {suspect.name for suspect in analyze(readings).suspects}
    return Found(
        right=len(named_bad & bad),
        bad=len(bad),
        wrong=len(named_bad - bad),
        tests=drawn.tests,
        rounds=rounds,
        seconds=time.perf_counter() - begin,
    )


def cases(count: int) -> Iterator[str]:
    """Yield what is simulated: faults, with the partners that nodes have if more than 4."""
    for fault in (
        *("none", "none / 9", "node", "three nodes", "flaky node", "flaky node / 9"),
        *("link", "flaky link", "NIC", "rack"),
    ):
        if fault != "rack" or count > 2 * RACK:
            yield fault


def line(count: int, fault: str, found: Sequence[Found]) -> str:
    """Write what came of many sweeps."""
    bad, tests = sum(each.bad for each in found), sorted(each.tests for each in found)
    healthy = sum(count - each.bad for each in found)
    recall = f"{100 * sum(each.right for each in found) / bad:5.1f} %" if bad else "      -"
    wrong = sum(each.wrong for each in found)
    rounds = sum(each.rounds for each in found) / len(found)
    return (
        f"  {count:5}  {fault:<14} {len(found):4}  {recall} of {bad:<5} {wrong:3} "
        f"({100 * wrong / healthy:.4f} %)  {tests[len(tests) // 2]:6} {tests[-1]:6} {rounds:6.1f}"
        f"  {max(each.seconds for each in found):6.2f} s"
    )


def repeats(times: int, count: int, fault: str) -> int:
    """Return how many clusters to draw of each noise: few large ones."""
    many = max(1, min(times, times * 256 // count))
    # What is flaky is found by chance: it takes many to say how often.
    return many * (8 if count <= 64 else 2 if count < 1000 else 1) if "flaky" in fault else many


def sweeps(times: int, counts: Sequence[int] = (8, 64, 232, 1024, 4096)) -> None:
    """Print a table."""
    print(f"sweeps of simulated clusters, noise {', '.join(f'{noise:.0%}' for noise in NOISES)}")
    head = ("nodes", "fault", "runs", "found", "wrong", "tests", "most", "rounds", "longest")
    print("  {:>5}  {:<14} {:>4} {:>16} {:>14} {:>7} {:>6} {:>6} {:>9}".format(*head))
    for count in counts:
        for fault in cases(count):
            seeds = [(noise, seed) for seed in range(repeats(times, count, fault)) for noise in NOISES]
            print(line(count, fault, [diagnosed(count, fault, noise, seed) for noise, seed in seeds]))


if __name__ == "__main__":
    sweeps(30)
