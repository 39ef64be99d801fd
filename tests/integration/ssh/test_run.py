"""`fabbench run` over ssh: real sshd, real mpirun and fi_pingpong between namespaced hosts."""

from pathlib import Path

import pytest

from fabbench.model.log import Outcome
from tests.support.host_fixtures import FLAVOURS, Labs, mpi_flavour
from tests.support.ssh_runs import (
    STORE,
    hosts,
    nccl,
    nothing_left,
    osu,
    pingpong,
    run,
    the_log,
    the_run,
)

pytestmark = pytest.mark.lab

FAST = ("-e", "1K", "--repeat", "1")


@pytest.mark.parametrize(
    "count", [2, *(pytest.param(count, marks=pytest.mark.slow) for count in (4, 8))]
)
def test_nccl_across_hosts(lab: Labs, count: int) -> None:
    site = lab(count)
    with nothing_left(site):
        done = run(site, nccl(site, "--no-efa", *FAST))
    assert done.returncode == 0, done.stderr
    log = the_log(site, "tcp")
    assert log.outcome is Outcome.OK
    assert (log.facts["ranks"], log.facts["hosts"], log.facts["transport"]) == (
        count,
        count,
        "socket",
    )
    assert len({point.size for point in log.points}) == 8


def test_a_dry_run_shows_the_plan_and_starts_nothing(lab: Labs) -> None:
    site = lab(2)
    stored = {*site.path(STORE).glob("*")}
    with nothing_left(site):
        done = run(site, nccl(site, "--no-efa", *FAST, "--dry-run"))
    assert (done.returncode, "Dry run" in done.stderr) == (0, True), done.stderr
    for host in site.hosts:
        assert f"{host.name}: 1 GPU\n" in done.stdout
    assert "mpirun " in done.stdout
    assert {*site.path(STORE).glob("*")} == stored


@pytest.mark.parametrize("kind", FLAVOURS)
def test_each_kind_of_mpi(lab: Labs, kind: str) -> None:
    """Open MPI 4 and 5 and hydra are told apart on the first host, and get what they want."""
    site, mpi = lab(2), mpi_flavour(kind)
    with nothing_left(site):
        done = run(site, nccl(site, "--gpus", "2", "--no-efa", "--mpirun", str(mpi.mpirun), *FAST))
    assert done.returncode == 0, done.stderr + done.stdout
    log = the_log(site, "tcp")
    assert (log.outcome, log.facts["ranks"], log.facts["hosts"]) == (Outcome.OK, 4, 2)


def test_osu_across_hosts(lab: Labs) -> None:
    """Open MPI's own lines prove the transport; a pair of ranks is one on each host."""
    site = lab(2)
    tests = ("--program", "osu_latency", "--program", "osu_allreduce")
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


def test_hosts_with_homes_of_their_own(lab: Labs) -> None:
    site = lab(3, homes="own")
    with nothing_left(site):
        done = run(site, nccl(site, "--no-efa", *FAST))
    assert done.returncode == 0, done.stderr
    assert the_log(site, "tcp").facts["hosts"] == 3


def test_hosts_behind_a_host(lab: Labs) -> None:
    """ProxyJump: the second host is reached through the first."""
    site = lab(2, behind=(1,))
    with nothing_left(site):
        done = run(site, nccl(site, "--no-efa", *FAST))
    assert done.returncode == 0, done.stderr
    assert the_log(site, "tcp").facts["hosts"] == 2


def test_the_network_that_was_not_asked_for(lab: Labs) -> None:
    """libfabric 1.17 ignores a domain that is not there, and measures another: that is refused."""
    site = lab(2)
    done = run(site, pingpong(site, "--fabric", "tcp", "--device", "fab9", "--size", "64"))
    assert done.returncode == 4, done.stderr
    log = the_log(site, "tcp")
    assert log.outcome is Outcome.OFF_FABRIC
    assert "fab9 was requested" in (log.reason or "")


def test_without_a_domain_the_hosts_own_network_is_measured(lab: Labs) -> None:
    """The address of the server alone would let libfabric take whichever network it lists first."""
    site = lab(2)
    done = run(site, pingpong(site, "--fabric", "tcp", "--size", "64", "--iterations", "10"))
    assert done.returncode == 0, done.stderr
    assert the_log(site, "tcp").facts["domain"] == "fab0"


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
    assert "not available on node0" in done.stderr


def test_a_target_of_the_configuration(lab: Labs, tmp_path: Path) -> None:
    site = lab(2)
    names = "[node0, node1]"
    file = tmp_path / "fabbench.yaml"
    file.write_text(
        f"targets:\n  prod: {{launcher: ssh, hosts: {names}, interface: fab0}}\ndefault: prod\n"
    )
    words = pingpong(site, "--fabric", "tcp", "--size", "64", "--iterations", "10")
    words = [word for word in words if word not in {"--on", "ssh", "--host", *hosts(site)}]
    done = run(site, [*words, "--config", str(file)])
    assert done.returncode == 0, done.stderr
    assert "Target prod (node0, node1)" in done.stderr
