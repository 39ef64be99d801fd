"""Sweeps of simulated clusters with known faults: what is found, rightly or not.

`python -m tests.performance.sweeps 12` prints a line per kind of cluster and number of nodes, 12
sweeps each, and then the rates that are promised. Arguments after the number choose kinds.
"""

import os
import random
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from time import process_time
from typing import TypeAlias

from fabbench.model.errors import Exit
from fabbench.model.hostlist import compress_hostlist
from fabbench.model.log import METRICS
from fabbench.sweep.analyze import CONFIDENCE, diagnosis
from fabbench.sweep.diagnose import DiagnosePlanner
from fabbench.sweep.fit import fit
from fabbench.sweep.planner import all_pairs
from fabbench.sweep.readings import Readings
from fabbench.sweep.values import Suspect, SuspectKind
from tests.support.simulated_sweeps import TYPICAL, Cluster, blocks, named

NOISES = (0.03, 0.05, 0.08)
"""Between executions, as recorded (tests/data/aa has 8 %)."""
RAILS = ("mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3")

Fault: TypeAlias = Callable[[random.Random, Cluster], Collection[str]]
"""Makes something of a cluster bad, and returns the names of it."""


@dataclass(frozen=True)
class Kind:
    """Clusters with faults of one kind."""

    faults: Sequence[Fault] = ()
    counts: Sequence[int] = (4, 6, 8, 16, 32, 64)
    """Numbers of nodes."""
    logs: bool = False
    """Whether all pairs are measured once, and nothing again."""
    pairs: bool = False
    """Whether all pairs are tested first."""
    congestion: float = 0.0
    failures: float = 0.0


def severity(chance: random.Random) -> float:
    """One fault in three fails all tests; the others are 25 to 90 % slower."""
    return 1.0 if chance.random() < 1 / 3 else slowness(chance)


def slowness(chance: random.Random) -> float:
    return chance.uniform(0.25, 0.9)


def bad_nodes(count: int) -> Fault:
    def fault(chance: random.Random, cluster: Cluster) -> Collection[str]:
        bad = chance.sample(list(cluster.nodes), count)
        cluster.bad_nodes = {node: severity(chance) for node in bad}
        return bad

    return fault


def a_third_slow(chance: random.Random, cluster: Cluster) -> Collection[str]:
    """A third of the nodes is slow; nobody can say whether they are another type or bad."""
    slow = chance.sample(list(cluster.nodes), len(cluster.nodes) // 3)
    cluster.types = dict.fromkeys(slow, 1 - slowness(chance))
    return ()


def three_types(chance: random.Random, cluster: Cluster) -> Collection[str]:
    order = chance.sample(list(cluster.nodes), len(cluster.nodes))
    a_third = len(order) // 3
    slower = dict.fromkeys(order[:a_third], chance.uniform(0.6, 0.75))
    cluster.types = slower | dict.fromkeys(order[a_third : 2 * a_third], chance.uniform(0.3, 0.5))
    return ()


def evenly(slowest: float, *, healthy: bool = False) -> Fault:
    """Nodes get slower evenly, down to this part of the fastest; `healthy`: that is tolerated."""

    def fault(chance: random.Random, cluster: Cluster) -> Collection[str]:
        order = chance.sample(list(cluster.nodes), len(cluster.nodes))
        step = (1 - slowest) / (len(order) - 1)
        speeds = {node: 1 - step * place for place, node in enumerate(order)}
        if healthy:
            cluster.speed = speeds
        else:
            cluster.types = speeds
        return ()

    return fault


def islands(*shares: int) -> Fault:
    def fault(chance: random.Random, cluster: Cluster) -> Collection[str]:
        order = chance.sample(list(cluster.nodes), len(cluster.nodes))
        sizes = [len(order) * share // sum(shares) for share in shares[1:]]
        cluster.islands = blocks(order, len(order) - sum(sizes), *sizes)
        cluster.between = chance.uniform(0.3, 0.8)
        return ()

    return fault


def shared_path(chance: random.Random, cluster: Cluster) -> Collection[str]:
    cluster.shared = True
    return ()


def links(count: int, severity_of: Callable[[random.Random], float]) -> Fault:
    def fault(chance: random.Random, cluster: Cluster) -> Collection[str]:
        pairs = [sorted(chance.sample(list(cluster.nodes), 2)) for _ in range(count)]
        cluster.bad_links = {frozenset(pair): severity_of(chance) for pair in pairs}
        return {" – ".join(pair) for pair in pairs}

    return fault


def failing(_: random.Random) -> float:
    return 1.0


def one_nic(chance: random.Random, cluster: Cluster) -> Collection[str]:
    cluster.nics = RAILS
    where = (chance.choice(list(cluster.nodes)), chance.choice(RAILS))
    cluster.bad_nics = {where: slowness(chance)}
    return {":".join(where)}


def a_rail(chance: random.Random, cluster: Cluster) -> Collection[str]:
    """One NIC of every node is slow: its switch."""
    cluster.nics = RAILS
    rail = chance.choice(RAILS)
    slow = slowness(chance)
    cluster.bad_nics = {(node, rail): slow for node in cluster.nodes}
    return {rail}


def a_rail_of_some(chance: random.Random, cluster: Cluster) -> Collection[str]:
    """One NIC of a quarter of the nodes is slow."""
    cluster.nics = RAILS
    rail = chance.choice(RAILS)
    slow = slowness(chance)
    some = chance.sample(list(cluster.nodes), max(len(cluster.nodes) // 4, 2))
    cluster.bad_nics = {(node, rail): slow for node in some}
    return {f"{compress_hostlist(sorted(some))}:{rail}"}


def all_nics_of_one(chance: random.Random, cluster: Cluster) -> Collection[str]:
    cluster.nics = RAILS
    node = chance.choice(list(cluster.nodes))
    cluster.bad_nodes = {node: slowness(chance)}
    return {node}


def a_direction(chance: random.Random, cluster: Cluster) -> Collection[str]:
    """A node is slow as the server of a test only."""
    node = chance.choice(list(cluster.nodes))
    cluster.bad_servers = {node: slowness(chance)}
    return {node}


def flaky(part: float) -> Fault:
    def fault(chance: random.Random, cluster: Cluster) -> Collection[str]:
        cluster.flaky = part
        return bad_nodes(1)(chance, cluster)

    return fault


def heavy_tails(_: random.Random, cluster: Cluster) -> Collection[str]:
    """Noise of a loaded network: Student's t."""
    cluster.tails = "t3"
    return ()


def coarse_digits(chance: random.Random, cluster: Cluster) -> Collection[str]:
    """Figures are printed with one or two digits."""
    cluster.step = TYPICAL / chance.choice((1.5, 2.5, 5, 20))
    return ()


def cannot_run(chance: random.Random, cluster: Cluster) -> Collection[str]:
    node = chance.choice(list(cluster.nodes))
    cluster.bad_nodes = {**cluster.bad_nodes, node: 1.0}
    cluster.reasons = {node: "osu_bw: command not found"}
    return {*cluster.bad_nodes}


def busy(chance: random.Random, cluster: Cluster) -> Collection[str]:
    """Nodes are throttled: tests take nearly as long as they may, those of one a little longer."""
    cluster.limit_s = 30
    cluster.takes_s = cluster.limit_s * chance.uniform(0.6, 0.95)
    cluster.speed[chance.choice(list(cluster.nodes))] = 0.92
    return ()


def hanging(chance: random.Random, cluster: Cluster) -> Collection[str]:
    """Tests of a node hang, and have more than twice the time of the others."""
    cluster.limit_s = 30
    cluster.takes_s = cluster.limit_s * chance.uniform(0.05, 0.35)
    node = chance.choice(list(cluster.nodes))
    cluster.bad_nodes = {node: 1.0}
    return {node}


def hanging_late(part: float) -> Fault:
    """A node hangs in a part of its tests, and the limit is less than twice of what others take."""

    def fault(chance: random.Random, cluster: Cluster) -> Collection[str]:
        bad = hanging(chance, cluster)
        cluster.takes_s = cluster.limit_s * chance.uniform(0.6, 0.9)
        cluster.flaky = part
        return bad

    return fault


KINDS: Mapping[str, Kind] = {
    "healthy": Kind(),
    "healthy, 2 % congested": Kind(congestion=0.02),
    "healthy, 2 % fail": Kind(failures=0.02),
    "healthy, out of time": Kind([busy], counts=(4, 8, 16, 32)),
    "one hangs": Kind([hanging], counts=(4, 8, 16, 32)),
    "one hangs in half, out of time": Kind([hanging_late(0.5)], counts=(8, 16)),
    "one hangs in a quarter, out of time": Kind([hanging_late(0.25)], counts=(8, 16)),
    "one bad, out of time": Kind([bad_nodes(1), busy], counts=(4, 8, 16, 32)),
    "healthy, logs": Kind(counts=(4, 6, 8, 16), logs=True),
    "coarse digits": Kind([coarse_digits], counts=(4, 8, 16), logs=True),
    "coarse digits, live": Kind([coarse_digits], counts=(4, 8, 16)),
    "one bad": Kind([bad_nodes(1)]),
    "one bad, 2 % congested": Kind([bad_nodes(1)], congestion=0.02),
    "one bad, logs": Kind([bad_nodes(1)], counts=(4, 5, 6, 8, 16), logs=True),
    "one bad, heavy tails": Kind([bad_nodes(1), heavy_tails], counts=(8, 16)),
    "two bad": Kind([bad_nodes(2)], counts=(6, 8, 16, 32)),
    "two bad, logs": Kind([bad_nodes(2)], counts=(6, 8, 16), logs=True),
    "two bad of few": Kind([bad_nodes(2)], counts=(4, 5)),
    "a third slow": Kind([a_third_slow], counts=(6, 7, 9, 12, 16)),
    "a third slow, logs": Kind([a_third_slow], counts=(6, 7, 9, 12, 16), logs=True),
    "three types": Kind([three_types], counts=(8, 9, 16)),
    "evenly slower, to 65 %": Kind([evenly(0.65)], counts=(4, 6, 8, 16)),
    "evenly slower, to 75 %": Kind([evenly(0.75)], counts=(6, 8, 16)),
    "evenly slower, logs": Kind([evenly(0.65)], counts=(4, 6, 8, 16), logs=True),
    "healthy, 10 % apart": Kind([evenly(0.9, healthy=True)], counts=(4, 6, 8, 16, 32)),
    "islands 1:1": Kind([islands(1, 1)], counts=(8, 16, 32)),
    "islands 5:3, shared path": Kind([islands(5, 3), shared_path], counts=(8, 16)),
    "islands 5:3, one bad": Kind([islands(5, 3), bad_nodes(1)], counts=(8, 16, 32)),
    "failed pair": Kind([links(1, failing)], counts=(4, 5, 6, 8), pairs=True),
    "failed pair, logs": Kind([links(1, failing)], counts=(4, 5, 6, 8, 16), logs=True),
    "three failed pairs, logs": Kind([links(3, failing)], counts=(6, 8, 16), logs=True),
    "slow link": Kind([links(1, slowness)], counts=(4, 6, 8, 16), pairs=True),
    "slow link, logs": Kind([links(1, slowness)], counts=(4, 6, 8, 16), logs=True),
    "a NIC": Kind([one_nic], counts=(4, 8, 16)),
    "a rail": Kind([a_rail], counts=(4, 8, 16)),
    "a rail of a quarter": Kind([a_rail_of_some], counts=(8, 16, 32)),
    "all NICs of a node": Kind([all_nics_of_one], counts=(4, 8, 16)),
    "as server only": Kind([a_direction], counts=(6, 8, 16)),
    "as server only, logs": Kind([a_direction], counts=(6, 8, 16), logs=True),
    "slow in half": Kind([flaky(0.5)], counts=(8, 16)),
    "slow in a quarter": Kind([flaky(0.25)], counts=(8, 16)),
    "cannot run": Kind([cannot_run], counts=(4, 8, 16)),
    "cannot run, one bad": Kind([bad_nodes(1), cannot_run], counts=(6, 8, 16)),
}


@dataclass(frozen=True, kw_only=True)
class Found:
    """What came of one sweep."""

    kind: str
    nodes: int
    bad: int
    """How many things are bad that have a name."""
    named: int
    """How many of them are named."""
    wrong: int
    """How many healthy nodes, NICs and links are called bad."""
    told: tuple[int, int]
    """How much is said with the highest confidence, and how much of it is right."""
    status: Exit
    silent: bool
    """Whether a fault shows in a test, and the status is 0."""
    tests: int
    seconds: float


def drawn(name: str, count: int, noise: float, seed: int) -> tuple[Cluster, set[str]]:
    """Draw a cluster; return it and the names of what is bad."""
    kind = KINDS[name]
    chance = random.Random(f"{name} {count} {noise} {seed}")
    cluster = Cluster(named(count), noise=noise, seed=chance.randrange(2**32))
    cluster.congestion = kind.congestion
    cluster.failures = kind.failures
    cluster.varied = chance.random() < 0.5
    bad: set[str] = set()
    for fault in kind.faults:
        bad.update(fault(chance, cluster))
    return cluster, bad


def swept(cluster: Cluster, kind: Kind, seed: int) -> Readings:
    """Return the results of the tests that a sweep of this kind has."""
    if kind.logs:
        return cluster.readings(all_pairs(cluster.nodes))
    screening = all_pairs(cluster.nodes) if kind.pairs else None
    planner = DiagnosePlanner(
        cluster.nodes, METRICS["busbw"], seed=seed, screening=screening, raises_limit=True
    )
    readings, _ = cluster.carried_out(planner)
    return readings


def sweep(name: str, count: int, noise: float, seed: int) -> Found:
    """Draw a cluster, sweep it, and compare what is said with what is bad."""
    cluster, bad = drawn(name, count, noise, seed)
    begin = process_time()
    readings = swept(cluster, KINDS[name], seed)
    said = diagnosis(readings, fit(readings))
    sure = [each for each in said.suspects if each.confidence >= CONFIDENCE]
    right = [each for each in sure if is_right(each, cluster, bad)]
    accused = {name for each in said.suspects for name in names(each)}
    return Found(
        kind=name,
        nodes=count,
        bad=len(bad),
        named=len(accused & bad),
        wrong=sum(not is_right(each, cluster, bad) for each in said.suspects),
        told=(len(sure), len(right)),
        status=said.status,
        silent=bool(cluster.shown or cluster.hung) and said.status is Exit.FINE,
        tests=cluster.tests,
        seconds=process_time() - begin,
    )


def names(suspect: Suspect) -> Sequence[str]:
    """Return the names of what is bad: several nodes may be one suspect."""
    return suspect.nodes if suspect.kind is SuspectKind.NODE else (suspect.name,)


def is_right(suspect: Suspect, cluster: Cluster, bad: Collection[str]) -> bool:
    """Return whether a suspect is bad, or a path between groups that there are."""
    if suspect.kind is SuspectKind.GROUP:
        return bool(cluster.islands)
    # Two slow nodes may as well be bad; three types are none.
    slow_nodes = cluster.types if len(set(cluster.types.values())) == 1 else {}
    return {*names(suspect)} <= {*bad, *slow_nodes}


def all_sweeps(times: int, chosen: Sequence[str]) -> Iterator[Sequence[Found]]:
    """Yield the sweeps of each kind and number of nodes."""
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        for name, kind in KINDS.items():
            if chosen and name not in chosen:
                continue
            for count in kind.counts:
                jobs = []
                for number in range(times):
                    noise = NOISES[number % len(NOISES)]
                    jobs.append(pool.submit(sweep, name, count, noise, number))
                yield [job.result() for job in jobs]


def line(found: Sequence[Found]) -> str:
    """Write what came of the sweeps of one kind and number of nodes."""
    bad = sum(each.bad for each in found)
    named_rightly = sum(each.named for each in found)
    share = f"{100 * named_rightly / bad:.0f} %" if bad else "–"
    wrong = sum(each.wrong for each in found)
    silent = sum(each.silent for each in found)
    statuses = [sum(each.status is status for each in found) for status in ANSWERS]
    tests = sorted(each.tests for each in found)
    seconds = max(each.seconds for each in found)
    cells = [
        str(found[0].nodes),
        found[0].kind,
        str(len(found)),
        share,
        str(wrong),
        str(silent),
        " / ".join(map(str, statuses)),
        str(tests[len(tests) // 2]),
        str(tests[-1]),
        f"{seconds:.1f} s",
    ]
    return "| " + " | ".join(cells) + " |"


ANSWERS = (Exit.FINE, Exit.BAD_ANSWER, Exit.UNTRUSTED)


def rates(found: Sequence[Found]) -> Iterator[str]:
    """Yield a line for each rate that is promised."""
    silent = sum(each.silent for each in found)
    wrong = sum(each.wrong for each in found)
    told = sum(each.told[0] for each in found)
    right = sum(each.told[1] for each in found)
    yield f"| silent | 0 of 2,000 | {silent} of {len(found)} |"
    yield f"| healthy accused, per 100 sweeps | 0.5 | {100 * wrong / len(found):.2f} |"
    yield f"| what is said with > 99 % is right | 99 % | {_percent(right, told)} |"
    for name, promised in (("one bad", 95), ("two bad", 90), ("one bad, logs", 95)):
        own = [each for each in found if each.kind == name]
        named_rightly = sum(each.named for each in own)
        share = _percent(named_rightly, sum(each.bad for each in own))
        yield f"| {name} is named | {promised} % | {share} |"


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} % of {whole}" if whole else "–"


def sweeps(times: int, chosen: Sequence[str] = ()) -> None:
    """Print a table of all kinds, or of those with the names chosen, and the rates."""
    print(
        "| nodes | cluster | sweeps | named | wrong | silent | 0 / 1 / 4 | tests | most | longest |"
    )
    print("|---:|---|---:|---:|---:|---:|---:|---:|---:|---:|", flush=True)
    everything: list[Found] = []
    for found in all_sweeps(times, chosen):
        print(line(found), flush=True)
        everything += found
    print("\n| rate | promised | measured |\n|---|---:|---:|")
    print("\n".join(rates(everything)), flush=True)


if __name__ == "__main__":
    sweeps(int(sys.argv[1]), sys.argv[2:])
