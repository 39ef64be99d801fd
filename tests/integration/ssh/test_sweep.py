"""`fabbench sweep` over ssh: pairs of hosts at once, and every way in which it ends."""

import itertools
import json
import signal
from collections.abc import Sequence

import pytest

from tests.support.host_fixtures import BOTH_SSH_CLIENTS, STANDIN, Labs, standin
from tests.support.hosts import Lab, processes
from tests.support.paths import FAKE_PROGRAMS
from tests.support.ssh_faults import running
from tests.support.ssh_runs import STORE, argv, nothing_left
from tests.support.sweeps import going_on, kept_tests, stored, sweep

pytestmark = pytest.mark.lab

QUICK = ("--size", "64K", "--iterations", "10")
"""Not smaller: on a busy machine the bandwidth would be printed as 0.00, which is none."""
LONG = ("--size", "64M", "--iterations", "2000")
"""A test that takes long enough for anything to happen to it."""
ANSWERED = {0, 1, 4}
"""Exit statuses of a sweep that has ended.

Figures of hosts that are not shaped vary with the load here.
"""


def pairs(lab: Lab) -> set[frozenset[str]]:
    return {
        frozenset(pair) for pair in itertools.combinations((host.name for host in lab.hosts), 2)
    }


def fresh(lab: Lab) -> Lab:
    lab.run(["rm", "-rf", STORE])
    return lab


def test_mpirun_starts_on_any_host(lab: Labs) -> None:
    """Pairs of NCCL: half of them begin on a host that is not the first.

    One does not answer, and is left out.
    """
    site = fresh(lab(4, homes="own"))
    words = sweep(
        site, "nccl", "--mode", "pairs", "--bin-dir", str(STANDIN), "--gpus", "1", "-b", "1M"
    )
    with nothing_left(site):
        words += ["-e", "1M", "--host", "nowhere.invalid"]
        done = site.run(words, timeout=240)
    assert done.returncode == 4, done.stderr
    assert "nowhere.invalid is left out" in done.stderr
    assert "nowhere.invalid has no usable test" in done.stdout
    found = kept_tests(site)
    assert {frozenset(each["nodes"]) for each in found} == pairs(site)
    assert {each["outcome"] for each in found} == {"ok"}
    assert len({each["nodes"][0] for each in found}) > 1


@pytest.mark.slow
def test_what_is_bad_is_named_and_nothing_else(lab: Labs) -> None:
    """Of eight hosts one is slow, one loses packets, and a link between two others is cut."""
    site = fresh(lab(8))
    # All are shaped so strongly that the load of this machine matters little: 260 ms a message.
    # Sessions go by fab0.
    for host in site.hosts:
        host.rate("2mbit")
    site[5].rate("512kbit")
    site[6].lose(20, rate="2mbit")
    site[1].wall(site[3])
    own = ("--interface", "fab1", "--size", "64K", "--iterations", "4", "--tolerance", "30%")
    with nothing_left(site):
        words = sweep(
            site, "pingpong", "--mode", "pairs", *own, "--timeout", "12", "--format", "json"
        )
        done = site.run(words, timeout=400)
    assert done.returncode == 1, (done.stdout, done.stderr)
    found = json.loads(done.stdout)
    assert {(each["verdict"], each["kind"], each["name"]) for each in found["suspects"]} == {
        ("bad", "node", "node5"),
        ("bad", "node", "node6"),
        ("bad", "link", "node1 – node3"),
    }, (found, kept_tests(site))
    assert found["undecided"] == [], (found["undecided"], kept_tests(site))
    assert "node5" in done.stderr.partition("suspects: ")[2]


@pytest.mark.slow
@pytest.mark.parametrize("slow", [set(), {"node2"}])
def test_hosts_behind_two_switches_are_two_groups(lab: Labs, slow: set[str]) -> None:
    """A slow path between switches of five and three hosts; then also one slow host."""
    site = fresh(lab(8))
    for host in site.hosts:
        host.rate("512kbit" if host.name in slow else "8mbit")
    site.second_switch([5, 6, 7], "3mbit")
    own = (
        "--interface",
        "fab1",
        "--size",
        "64K",
        "--iterations",
        "6",
        "--tolerance",
        "30%",
        "--format",
        "json",
    )
    with nothing_left(site):
        done = site.run(sweep(site, "pingpong", *own), timeout=500)
    assert done.returncode == 1, (done.stdout, done.stderr)
    found = json.loads(done.stdout)
    assert {each["name"] for each in found["suspects"] if each["kind"] == "node"} == slow, found
    assert [each["kind"] for each in found["suspects"]].count("group") == 1
    groups = {frozenset(each["nodes"]) - slow for each in found["groups"]}
    assert groups == {
        frozenset(f"node{n}" for n in some) - slow for some in ((0, 1, 2, 3, 4), (5, 6, 7))
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "tests", "benchmark"),
    [
        ("rails", 12, ("perftest", "--bin-dir", str(FAKE_PROGRAMS / "rails"))),
        ("pairs", 6, ("perftest", "--bin-dir", str(FAKE_PROGRAMS / "rails"))),
        ("rails", 12, ("nccl", "--bin-dir", str(STANDIN), "--gpus", "1", "-b", "1M", "-e", "1M")),
    ],
)
def test_a_bad_nic_is_named(lab: Labs, mode: str, tests: int, benchmark: Sequence[str]) -> None:
    """Each NIC of four hosts with the same one of the others: one of one host is slow."""
    site = fresh(lab(4))
    nics = [word for number in (0, 1) for word in ("--device", f"mlx5_{number}")]
    words = sweep(site, *benchmark, "--mode", mode, *nics, "--format", "json", fabric="ib")
    with standin(site[2], BAD_NIC="mlx5_1"), nothing_left(site):
        done = site.run(words, timeout=240)
    assert done.returncode == 1, (done.stdout, done.stderr)
    found = json.loads(done.stdout)
    assert [(each["kind"], each["name"]) for each in found["suspects"]] == [("nic", "node2:mlx5_1")]
    assert len(kept_tests(site)) >= tests


@pytest.mark.slow
def test_a_pair_that_hangs_is_a_result(lab: Labs) -> None:
    """One link is cut without a word: its test hangs, and all others count."""
    site = fresh(lab(4))
    site[0].wall(site[2])
    with nothing_left(site):
        done = site.run(
            sweep(site, "pingpong", "--mode", "pairs", *QUICK, "--timeout", "10"), timeout=240
        )
    assert done.returncode in {1, 4}, done.stderr
    outcomes = {frozenset(each["nodes"]): each["outcome"] for each in kept_tests(site)}
    assert set(outcomes) == pairs(site)
    assert outcomes.pop(frozenset({"node0", "node2"})) == "timeout"
    assert "ok" in outcomes.values(), kept_tests(site)


@pytest.mark.slow
@BOTH_SSH_CLIENTS
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted(lab: Labs, number: signal.Signals) -> None:
    """What had ended is told; what went on is ended, and nothing is left."""
    site = fresh(lab(4))
    with (
        nothing_left(site),
        running(site, sweep(site, "pingpong", "--mode", "pairs", *LONG)) as run,
    ):
        run.until(lambda: going_on(site) == 2)
        run.process.send_signal(number)
        assert run.ends() == 130, run.err
    assert "fabbench run --resume" in run.err
    assert going_on(site) == 0


@pytest.mark.slow
@BOTH_SSH_CLIENTS
def test_killed_and_resumed(lab: Labs) -> None:
    """Tests that had ended are kept, and the others measured: each once."""
    site = fresh(lab(4))
    # Some test goes on while another one has ended.
    site[3].rate("2mbit", "fab0")
    own = ("--size", "1M", "--iterations", "10", "--set", "lost-after=3")
    words = sweep(site, "pingpong", "--mode", "pairs", *own)
    with nothing_left(site, 120):
        with running(site, words) as run:
            run.until(lambda: len(kept_tests(site)) >= 1 and going_on(site) >= 1, 120)
            run.process.kill()
            run.process.wait()
        kept = kept_tests(site)
        site[3].rate("off", "fab0")
        assert processes.eventually(lambda: not still_there(site), 120)
        done = site.run(argv("run", "--resume", "last"), timeout=240)
    assert done.returncode in ANSWERED, done.stderr
    found = kept_tests(site)
    assert found[: len(kept)] == kept
    assert f"mode pairs, {len(kept)} test" in done.stderr
    # Each pair once, and only then again those that stand out, as the load of this machine has it.
    assert sorted(map(sorted, (each["nodes"] for each in found[:6]))) == sorted(
        map(sorted, pairs(site))
    )
    assert going_on(site) == 0


def still_there(site: Lab) -> list[str]:
    return [line for host in site.hosts for line in host.traces() if "fabbench-" in line]


@pytest.mark.slow
@BOTH_SSH_CLIENTS
def test_a_host_that_dies(lab: Labs) -> None:
    """Its tests fail, the others go on, and after two that fail alike it is left out."""
    site = fresh(lab(4))
    # It takes long, so that it dies before its tests have ended.
    site[3].rate("10mbit", "fab0")
    own = ("--size", "256K", "--iterations", "10", "--set", "lost-after=5")
    words = sweep(site, "pingpong", "--mode", "pairs", *own)
    with nothing_left(site), running(site, words) as run:
        run.until(lambda: len(kept_tests(site)) + going_on(site) >= 1)
        site[3].kill()
        status = run.ends(240)
    assert status in {1, 3, 4}, run.err
    outcomes = {frozenset(each["nodes"]): each["outcome"] for each in kept_tests(site)}
    assert {pair for pair in pairs(site) if "node3" not in pair} <= set(outcomes) <= pairs(site)
    assert any(outcomes[pair] == "ok" for pair in outcomes if "node3" not in pair), kept_tests(site)
    assert any(outcomes[pair] != "ok" for pair in outcomes if "node3" in pair), outcomes


@pytest.mark.slow
def test_a_full_disk_on_the_laptop(lab: Labs) -> None:
    """What had ended is kept, nothing runs on, and once there is room the sweep goes on."""
    site = fresh(lab(4))
    folder = site.small_folder("1m", "sweeps")
    # Its tests go on while another one has ended.
    site[3].rate("2mbit", "fab0")
    words = sweep(site, "pingpong", "--mode", "pairs", "--size", "64K", "--iterations", "10")
    words[words.index("--store") + 1] = str(folder)
    with nothing_left(site):
        with running(site, words) as run:
            run.until(lambda: stored(site.path(folder)), 120)
            site.run(["dd", "if=/dev/zero", f"of={folder}/filler", "bs=512"])
            assert run.ends() == 3, run.err
        assert "No space left" in run.err
        assert "fabbench run --resume" in run.err
        kept = stored(site.path(folder))
        site.run(["rm", folder / "filler"], check=True)
        site[3].rate("off", "fab0")
        again = [*argv("run", "--resume", "last")[:-1], str(folder)]
        done = site.run(again, timeout=240)
    assert done.returncode in ANSWERED, done.stderr
    found = stored(site.path(folder))
    assert found[: len(kept)] == kept
    assert {frozenset(each["nodes"]) for each in found} == pairs(site)
