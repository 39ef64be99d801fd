"""EFA against sockets, over ssh.

Hosts that show EFA devices in /sys, and a stand-in that plays recordings.

What the ranks play depends on the environment that each of them really received.
"""

import json
import re

import pytest

from fabbench.model.log import Outcome
from tests.support.host_fixtures import STANDIN, Labs, standin, with_efa
from tests.support.hosts import Lab
from tests.support.ssh_runs import nccl, nothing_left, run, the_log, the_run
from tests.support.sweeps import kept_tests, sweep

pytestmark = pytest.mark.lab

FAST = ("-e", "1K")


@pytest.fixture(scope="module")
def efa(lab: Labs) -> Lab:
    return with_efa(lab)


def test_efa_against_sockets_in_one_command(efa: Lab) -> None:
    with nothing_left(efa):
        done = run(efa, nccl(efa, "--gpus", "2", "--ab", *FAST, "--repeat", "2"))
    assert done.returncode == 0, done.stderr
    assert "efa = efa (4 NICs per rank); tcp = socket" in done.stdout
    stored = the_run(efa)
    assert [execution.id for execution in stored.executions] == [
        "000-efa-r1",
        "001-tcp-r1",
        "002-tcp-r2",
        "003-efa-r2",
    ]
    assert {log.facts["transport"] for log in stored.logs("efa")} == {"efa"}
    assert {log.facts["transport"] for log in stored.logs("tcp")} == {"socket"}


def test_nvlink_between_hosts_against_efa(efa: Lab) -> None:
    with standin(*efa.hosts, RACK=1), nothing_left(efa):
        done = run(efa, nccl(efa, "--fabric", "nvlink", "--efa", *FAST, "--repeat", "1"))
    assert done.returncode == 0, done.stderr
    assert "nvlink = mnnvl; efa = efa" in done.stdout
    facts = the_log(efa, "nvlink").facts
    assert (facts["network"], facts["nodes"]) == ("socket", 2)


@pytest.mark.slow
def test_nvlink_that_is_not_there_is_off_fabric(efa: Lab) -> None:
    done = run(efa, nccl(efa, "--fabric", "nvlink", *FAST))
    assert done.returncode == 4, done.stderr
    log = the_log(efa, "nvlink")
    assert (log.outcome, log.facts["transport"]) == (Outcome.OFF_FABRIC, "socket")


@pytest.mark.slow
def test_what_shells_and_images_have_set_does_not_decide(efa: Lab) -> None:
    """The published baseline was an empty variable.

    The configurations here set and unset what they say.
    """
    wrong = "export FI_PROVIDER= NCCL_NET=IB NCCL_ALGO=Ring NCCL_P2P_DISABLE=1 NCCL_HOSTID=same\n"
    for host in efa.hosts:
        (host.home / ".bashrc").write_text(wrong)
    try:
        done = run(efa, nccl(efa, "--ab", *FAST, "--repeat", "1"))
    finally:
        for host in efa.hosts:
            (host.home / ".bashrc").write_text("")
    assert done.returncode == 0, done.stderr
    assert the_log(efa, "efa").facts["transport"] == "efa"
    assert the_log(efa, "tcp").facts["transport"] == "socket"


@pytest.mark.slow
def test_efa_that_fails_on_one_host_fails_closed(efa: Lab) -> None:
    with standin(efa[1], NO_EFA=1), nothing_left(efa):
        done = run(efa, nccl(efa, "--efa", *FAST))
    assert done.returncode == 4, done.stderr
    # Real ranks would wait for each other; of the stand-ins the first one goes on alone.
    assert {log.outcome for log in the_run(efa).logs("efa")} == {Outcome.FAILED}
    assert re.search(r"^\| - +\| +failed \|$", done.stdout, re.MULTILINE)


@pytest.mark.slow
def test_fewer_nics_than_the_hosts_have_is_off_fabric_at_once(efa: Lab) -> None:
    with standin(*efa.hosts, NICS=1, ROW_S=30), nothing_left(efa):
        done = run(efa, nccl(efa, "--efa", *FAST))
    assert done.returncode == 4, done.stderr
    log = the_log(efa, "efa")
    assert log.outcome is Outcome.OFF_FABRIC
    assert "4 NICs" in (log.reason or "")
    assert "fabbench then aborted it" in (log.reason or "")
    # The first row would come after 30 s.
    assert log.points == []


@pytest.mark.slow
def test_a_pair_of_a_sweep_has_to_prove_its_fabric_too(lab: Labs) -> None:
    """One host has fewer NICs than its devices: pairs with it are off-fabric, and no figures."""
    site = with_efa(lab, hosts=3)
    words = sweep(
        site, "nccl", "--mode", "pairs", "--bin-dir", str(STANDIN), "--gpus", "1", fabric="efa"
    )
    with standin(site[2], NICS=1), nothing_left(site):
        done = site.run([*words, "-b", "1M", "-e", "1M"], timeout=240)
    assert done.returncode == 1, done.stderr
    found = {frozenset(each["nodes"]): each for each in kept_tests(site)}
    assert found.pop(frozenset({"node0", "node1"}))["outcome"] == "ok"
    assert {(each["outcome"], each["value"]) for each in found.values()} == {("off-fabric", None)}


@pytest.mark.slow
def test_keep_going_lets_it_finish_and_it_counts_for_nothing(efa: Lab) -> None:
    with standin(*efa.hosts, NICS=1):
        done = run(efa, nccl(efa, "--efa", "--keep-going", *FAST))
    assert done.returncode == 4, done.stderr
    log = the_log(efa, "efa")
    assert log.outcome is Outcome.OFF_FABRIC
    assert len({point.size for point in log.points}) == 8
    assert re.search(r"^\| - +\| +off-fabric \|$", done.stdout, re.MULTILINE)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("behaviour", "outcome"), [({"WRONG": 256}, Outcome.CORRUPT), ({"NO_MPI": 1}, Outcome.FAILED)]
)
def test_wrong_data_and_a_build_without_mpi_are_no_result(
    efa: Lab, behaviour: dict[str, int], outcome: Outcome
) -> None:
    with standin(*efa.hosts, **behaviour):
        done = run(efa, nccl(efa, "--efa", *FAST))
    assert done.returncode == 4, done.stderr
    assert the_log(efa, "efa").outcome is outcome


@pytest.mark.slow
def test_a_variable_of_the_users_own_arrives_with_its_blanks(efa: Lab) -> None:
    done = run(efa, nccl(efa, "--efa", "--env", "NCCL_ALGO=a b'c\"$HOME", *FAST))
    assert done.returncode == 0, done.stderr
    plan = json.loads((the_run(efa).path / "exec/000-efa-r1/plan.json").read_text())
    (command,) = plan["steps"][0]["commands"]
    assert command["env"]["NCCL_ALGO"] == "a b'c\"$HOME"
    assert command["env"]["NCCL_NET"] == "AWS Libfabric"
    assert "NCCL_ALGO" not in command["unset"]
    assert the_log(efa, "efa").facts["network"] == "efa"
