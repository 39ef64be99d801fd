"""`fabbench run` over ssh: real sshd, real mpirun and fi_pingpong between namespaced hosts."""

import math
import re
import statistics
from pathlib import Path

import pytest

from fabbench.model.log import Log, Outcome
from tests.support.host_fixtures import Labs, Mpi
from tests.support.ssh_runs import STORE, argv, hosts, nccl, nothing_left, osu, pingpong, run, the_log, the_run

pytestmark = pytest.mark.lab

FAST = ("-e", "1K", "--repeat", "1")


@pytest.mark.parametrize("count", [2, *(pytest.param(count, marks=pytest.mark.slow) for count in (4, 8))])
def test_nccl_across_hosts(lab: Labs, count: int) -> None:
    site = lab(count)
    with nothing_left(site):
        done = run(site, nccl(site, "--no-efa", *FAST))
    assert done.returncode == 0, done.stderr
    log = the_log(site, "tcp")
    assert log.outcome is Outcome.OK
    assert (log.facts["ranks"], log.facts["hosts"], log.facts["transport"]) == (count, count, "socket")
    assert len({point.size for point in log.points}) == 8


def test_a_dry_run_shows_the_plan_and_starts_nothing(lab: Labs) -> None:
    site = lab(2)
    stored = {*site.path(STORE).glob("*")}
    with nothing_left(site):
        done = run(site, nccl(site, "--no-efa", *FAST, "--dry-run"))
    assert (done.returncode, done.stderr) == (0, "\nDry run: nothing was started.\n")
    for host in site.hosts:
        assert f"{host.name}: 1 GPU\n" in done.stdout
    assert "mpirun " in done.stdout
    assert {*site.path(STORE).glob("*")} == stored


@pytest.mark.slow
def test_each_kind_of_mpi(lab: Labs, mpi: Mpi) -> None:
    """Open MPI 4 and 5 and hydra are told apart on the first host, and get what they want."""
    site = lab(2)
    with nothing_left(site):
        done = run(site, nccl(site, "--gpus", "2", "--no-efa", "--mpirun", str(mpi.mpirun), *FAST))
    assert done.returncode == 0, done.stderr + done.stdout
    log = the_log(site, "tcp")
    assert (log.outcome, log.facts["ranks"], log.facts["hosts"]) == (Outcome.OK, 4, 2)


@pytest.mark.slow
def test_osu_across_hosts(lab: Labs) -> None:
    """Open MPI's own lines prove the transport; a pair of ranks is one on each host."""
    site = lab(2)
    tests = ("--test", "osu_latency", "--test", "osu_allreduce")
    with nothing_left(site):
        done = run(site, osu(site, "--no-efa", *tests, "--repeat", "1", "-e", "64"))
    assert done.returncode == 0, done.stderr + done.stdout
    logs = the_run(site).logs("tcp")
    assert [(log.case, log.outcome, log.facts["transport"]) for log in logs] == [
        ("osu_latency", Outcome.OK, "socket"),
        ("osu_allreduce", Outcome.OK, "socket"),
    ]
    assert [(log.facts["ranks"], log.facts["hosts"]) for log in logs] == [(2, 2)] * 2
    assert [[point.size for point in log.points] for log in logs] == [[1, 2, 4, 8, 16, 32, 64]] * 2


@pytest.mark.slow
def test_the_users_own_arrangement(lab: Labs) -> None:
    site = lab(2, trust=True)
    with nothing_left(site):
        done = run(site, nccl(site, "--no-efa", "--mpi-ssh", "existing", *FAST))
    assert done.returncode == 0, done.stderr
    assert the_log(site, "tcp").outcome is Outcome.OK


@pytest.mark.slow
def test_hosts_with_homes_of_their_own(lab: Labs) -> None:
    site = lab(3, homes="own")
    with nothing_left(site):
        done = run(site, nccl(site, "--no-efa", *FAST))
    assert done.returncode == 0, done.stderr
    assert the_log(site, "tcp").facts["hosts"] == 3


@pytest.mark.slow
def test_hosts_behind_a_host(lab: Labs) -> None:
    """ProxyJump: the second host is reached through the first."""
    site = lab(2, behind=(1,))
    with nothing_left(site):
        done = run(site, nccl(site, "--no-efa", *FAST))
    assert done.returncode == 0, done.stderr
    assert the_log(site, "tcp").facts["hosts"] == 2


@pytest.mark.slow
def test_two_networks_with_a_known_ratio(lab: Labs) -> None:
    """Each is found by the interface that is asked for, with its rate, and the comparison finds the ratio."""
    site = lab(2, fresh=True)
    for host in site.hosts:
        host.rate("80mbit", "fab0")
        host.rate("20mbit", "fab1")
    found, spreads = [], []
    for interface, rate in (("fab0", 10e6), ("fab1", 2.5e6)):
        with nothing_left(site):
            words = ("--fabric", "tcp", "--domain", interface, "--size", "1M", "--repeat", "3")
            done = run(site, pingpong(site, *words, "--iterations", "6"))
        assert done.returncode == 0, done.stderr
        stored = the_run(site)
        logs = stored.logs("tcp")
        assert [log.facts["domain"] for log in logs] == [interface] * 3
        figures = [_bandwidth(log) for log in logs]
        assert statistics.median(figures) == pytest.approx(rate, rel=0.15)
        spreads.append(max(figures) / min(figures))
        found.append(stored.path.name)
    done = run(site, argv("compare", *found, "--metric", "bandwidth"))
    assert done.returncode == 0, done.stderr
    (ratio,) = (float(text) for text in re.findall(r"^\| 1 MB .* ([\d.]+) x \|", done.stdout, re.MULTILINE))
    assert 4 / math.prod(spreads) * 0.9 <= ratio <= 4 * math.prod(spreads) * 1.1


def _bandwidth(log: Log) -> float:
    """What the client of a ping-pong measured, in B/s."""
    (value,) = (
        point.values[point.metrics.index("bandwidth")] for point in log.points if point.labels.get("side") == "client"
    )
    return value


@pytest.mark.slow
def test_the_network_that_was_not_asked_for(lab: Labs) -> None:
    """libfabric 1.17 ignores a domain that is not there, and measures another: that is refused."""
    site = lab(2)
    done = run(site, pingpong(site, "--fabric", "tcp", "--domain", "fab9", "--size", "64"))
    assert done.returncode == 4, done.stderr
    log = the_log(site, "tcp")
    assert log.outcome is Outcome.OFF_FABRIC
    assert "fab9 was requested" in (log.reason or "")


@pytest.mark.slow
def test_without_a_domain_the_hosts_own_network_is_measured(lab: Labs) -> None:
    """The address of the server alone would let libfabric take whichever network it lists first."""
    site = lab(2)
    done = run(site, pingpong(site, "--fabric", "tcp", "--size", "64", "--iterations", "10"))
    assert done.returncode == 0, done.stderr
    assert the_log(site, "tcp").facts["domain"] == "fab0"


@pytest.mark.slow
def test_the_interface_decides_for_nccl_too(lab: Labs) -> None:
    site = lab(2)
    done = run(site, nccl(site, "--no-efa", "--interface", "fab1", *FAST))
    assert done.returncode == 0, done.stderr
    plan = (the_run(site).path / "exec/000-tcp-r1/plan.json").read_text()
    assert '"NCCL_SOCKET_IFNAME": "=fab1"' in plan


def test_efa_where_there_is_none(lab: Labs) -> None:
    site = lab(2)
    with nothing_left(site):
        done = run(site, nccl(site, "--efa", *FAST))
    assert done.returncode == 3
    assert "efa is not available on node0" in done.stderr


@pytest.mark.slow
def test_a_target_of_the_configuration(lab: Labs, tmp_path: Path) -> None:
    site = lab(2)
    names = "[node0, node1]"
    file = tmp_path / "fabbench.yaml"
    file.write_text(f"targets:\n  prod: {{launcher: ssh, hosts: {names}, interface: fab0}}\ndefault: prod\n")
    words = pingpong(site, "--fabric", "tcp", "--size", "64", "--iterations", "10")
    words = [word for word in words if word not in {"--on", "ssh", "--host", *hosts(site)}]
    done = run(site, [*words, "--config", str(file)])
    assert done.returncode == 0, done.stderr
    assert "Target prod (node0, node1)" in done.stderr
