"""Runs as jobs of a real Slurm: submitted from a login node, over ssh and in an allocation."""

import json
import re
import shlex
import sys

import pytest
from _pytest.mark.structures import ParameterSet

from fabbench.model.log import Outcome
from fabbench.runs.store import StoredRun, runs
from tests.support.host_fixtures import Labs, standin
from tests.support.hosts import HOME, Lab
from tests.support.hosts.host import PATH
from tests.support.hosts.slurm import await_idle
from tests.support.slurm_runs import (
    PAIRS,
    RANKS,
    jobs,
    nccl,
    nothing_left,
    on,
    on_login_node,
    osu,
    pingpong,
    rendered,
    run,
    taken,
    the_job,
    without_command,
)
from tests.support.ssh_runs import STORE, the_log, the_run

pytestmark = pytest.mark.lab
ARMS = ("--fabric", "ofi-tcp", "--fabric", "tcp")


def site(lab: Labs) -> Lab:
    return lab(3, slurm=True)


def directives(script: str) -> list[str]:
    return [line for line in script.splitlines() if line.startswith("#SBATCH")]


def slow(*values: object) -> ParameterSet:
    return pytest.param(*values, marks=pytest.mark.slow)


def test_what_render_prints_is_a_step_of_the_job_that_requests_it(
    lab: Labs,
) -> None:
    hosts = site(lab)
    with nothing_left(hosts):
        done = run(hosts, pingpong(*ARMS, "--repeat", "2"))
    assert done.returncode == 0, done.stderr
    stored = the_run(hosts)
    found = [log for label in ("ofi-tcp", "tcp") for log in stored.logs(label)]
    assert [log.outcome for log in found] == [Outcome.OK] * 4
    assert {point.size for log in found for point in log.points} == {64, 1024}
    text = (stored.path / "rendered/job.sbatch").read_text()
    assert without_command(text) == without_command(
        rendered(hosts, "pingpong", *PAIRS, *ARMS, "--repeat", "2")
    )
    job = the_job(hosts[0])
    submitted = hosts[0].sh(["scontrol", "write", "batch_script", job, "-"]).stdout
    assert directives(submitted) == directives(text)
    for said in (f"Job {job} was submitted on node0.", "[4/4] ofi-tcp, repeat 2: 2 of 2 sizes, ok"):
        assert said in done.stderr


@pytest.mark.parametrize(
    "mpi", [("--mpi", "srun"), ("--mpi", "mpirun", "--mpirun", "/usr/bin/mpirun")]
)
def test_ranks_are_started_by_srun_or_mpirun(lab: Labs, mpi: tuple[str, ...]) -> None:
    hosts = site(lab)
    with nothing_left(hosts):
        done = on_login_node(hosts, nccl(*ARMS, "--repeat", "1", "--gpus", "2", *mpi))
    assert done.returncode == 0, done.stderr
    stored = StoredRun(next(runs(hosts[0].path(STORE))))
    (one,), (two,) = stored.logs("ofi-tcp"), stored.logs("tcp")
    assert (one.outcome, one.facts["ranks"], one.facts["transport"]) == (
        Outcome.OK,
        4,
        "libfabric-tcp",
    )
    assert (two.outcome, two.facts["hosts"], two.facts["transport"]) == (Outcome.OK, 2, "socket")


@pytest.mark.slow
@pytest.mark.parametrize(
    "mpi", [("--mpi", "srun"), ("--mpi", "mpirun", "--mpirun", "/usr/bin/mpirun")]
)
def test_osu_is_started_by_srun_or_mpirun(lab: Labs, mpi: tuple[str, ...]) -> None:
    """Open MPI's own lines prove the transport of each configuration."""
    hosts = site(lab)
    with nothing_left(hosts):
        done = on_login_node(hosts, osu(*ARMS, "--repeat", "1", *mpi))
    assert done.returncode == 0, done.stderr
    stored = StoredRun(next(runs(hosts[0].path(STORE))))
    (one,), (two,) = stored.logs("ofi-tcp"), stored.logs("tcp")
    for log, transport in ((one, "libfabric-tcp"), (two, "socket")):
        assert (log.case, log.outcome, log.facts["transport"]) == (
            "osu_latency",
            Outcome.OK,
            transport,
        )
        assert (log.facts["ranks"], log.facts["hosts"]) == (2, 2)
        assert [point.size for point in log.points] == [1, 2, 4, 8, 16, 32, 64]


@pytest.mark.slow
def test_gpus_are_asked_for_where_slurm_counts_them(lab: Labs) -> None:
    hosts = lab(2, slurm=True, gpus=2)
    words = [
        word
        for word in nccl("--no-efa", "--nodes", "2")
        if word not in {"--gpus", "1", "--set", "no-gres=true"}
    ]
    done = run(hosts, words)
    assert done.returncode == 0, done.stderr
    assert the_run(hosts).logs("tcp")[0].facts["ranks"] == 4
    assert jobs(hosts[0])[the_job(hosts[0])]["TresPerNode"] == "gres:gpu:2"
    text = (the_run(hosts).path / "rendered/job.sbatch").read_text()
    assert without_command(text) == without_command(
        rendered(hosts, "nccl", "--no-efa", "--gpus", "2", *RANKS[:2], *RANKS[6:])
    )


def test_in_an_allocation_the_script_runs_there(lab: Labs) -> None:
    hosts = site(lab)
    own = [
        sys.executable,
        "-m",
        "fabbench",
        "run",
        "nccl",
        *RANKS,
        "--no-efa",
        "--store",
        str(STORE),
    ]
    with nothing_left(hosts):
        done = on(hosts[0], "salloc", "-N2", "-p", "rest", "--exclusive", *own)
    assert done.returncode == 0, done.stderr
    assert "Target slurm (node1, node2)" in done.stderr
    assert "submitted" not in done.stderr
    stored = StoredRun(next(runs(hosts[0].path(STORE))))
    assert stored.logs("tcp")[0].outcome is Outcome.OK
    over = on(hosts[0], *own, SLURM_JOB_ID="999", SLURM_JOB_NODELIST="node[1-2]")
    assert over.returncode == 3
    assert "Job 999, which held the nodes, has ended" in over.stderr
    too_many = on(hosts[0], "salloc", "-N1", *own, "--nodes", "2")
    assert too_many.returncode == 3
    assert "2 nodes requested" in too_many.stderr


def test_check_in_an_allocation_looks_at_its_nodes(lab: Labs) -> None:
    hosts = site(lab)
    check = (sys.executable, "-m", "fabbench", "check", "--benchmark", "pingpong")
    with nothing_left(hosts):
        salloc = ("salloc", "-N2", "-p", "rest", "--exclusive", "--quiet")
        done = on(hosts[0], *salloc, *check, "--format", "json")
    assert done.returncode == 0, done.stderr
    found = {(each["host"], each["check"]): each for each in json.loads(done.stdout)["checks"]}
    for node in ("node1", "node2"):
        assert "fi_pingpong" in found[node, "programs"]["seen"]
        assert (node, "state") in found
    assert "node0" not in {host for host, _ in found}


def test_two_runs_in_one_allocation_are_told_in_both(lab: Labs) -> None:
    hosts = site(lab)
    command = shlex.join([sys.executable, "-m", "fabbench", "run", "nccl", *RANKS, "--no-efa"])
    stores = [STORE / "first", STORE / "second"]
    both = " & ".join(f"{command} --store {store}" for store in stores)
    salloc = ("salloc", "-N2", "-p", "rest", "--exclusive", "sh", "-c", f"{both} & wait")
    with nothing_left(hosts), standin(*hosts.hosts, ROW_S=0.5):
        done = on(hosts[0], *salloc)
    for store in stores:
        stored = StoredRun(next(runs(hosts[0].path(store))))
        (log,) = stored.logs("tcp")
        assert log.outcome is Outcome.OK, done.stderr
        assert "neighbor" in {each.code for each in log.findings}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--partition", "nope"), "Unknown partition nope"),
        (("--nodes", "9"), "9 nodes requested"),
        slow(("--partition", "one"), "the partition one has 1"),
        slow(("--partition", "closed"), "The partition closed is DOWN"),
        slow(("--constraint", "h100"), "Invalid feature specification"),
        slow(("--partition", "short"), "(Partition"),
        slow(("--partition", "short", "--time", "5"), "(Partition"),
    ],
)
def test_what_can_never_start_is_refused(lab: Labs, words: tuple[str, ...], said: str) -> None:
    hosts = site(lab)
    with nothing_left(hosts):
        done = run(hosts, nccl("--no-efa", *words))
    assert (done.returncode, done.stdout) == (3, "")
    assert said in done.stderr
    assert "Hint: " in done.stderr


@pytest.mark.slow
def test_drained_nodes_are_named(lab: Labs) -> None:
    hosts = site(lab)
    for name in ("node1", "node2"):
        hosts[0].sh(["scontrol", "update", f"nodename={name}", "state=drain", "reason=fan broken"])
    try:
        done = run(hosts, nccl("--no-efa"))
        checked = run(hosts, [*nccl()[:3], "check", "--on", "slurm", "--login", "node0"])
    finally:
        for name in ("node1", "node2"):
            hosts[0].sh(["scontrol", "update", f"nodename={name}", "state=resume"])
        await_idle(hosts.hosts)
    assert done.returncode == 3
    assert "node1 (drain+idle: fan broken" in done.stderr
    assert checked.returncode == 3
    assert "fan broken" in checked.stdout


@pytest.mark.slow
def test_nodes_need_no_directory_in_common_with_the_login_node(lab: Labs) -> None:
    hosts = lab(3, slurm=True, homes="own")
    with nothing_left(hosts):
        done = run(hosts, nccl("--no-efa", "--partition", "rest"))
    assert done.returncode == 0, done.stderr
    assert the_log(hosts, "tcp").outcome is Outcome.OK


@pytest.mark.slow
def test_what_the_users_shell_has_set_does_not_decide(lab: Labs) -> None:
    """Variables count for sbatch and srun before the lines of a script.

    And a home may have any name.
    """
    hosts = site(lab)
    folder = hosts[0].home / "a b  x=y's"
    folder.mkdir()
    words = [
        word
        for word in pingpong("--no-efa", "--partition", "rest")
        if word not in {"--login", "node0"}
    ]
    wrong = (
        "PARTITION=one",
        "OUTPUT=/tmp/elsewhere",
        "EXPORT=NONE",
        "ARRAY_INX=1-2",
        "JOB_NAME=a b",
        "GPUS=7",
    )
    given = [
        "FABRIC=efa",
        "NL=a\nb",
        *(f"SBATCH_{word}" for word in wrong),
        "SLURM_EXPORT_ENV=NONE",
    ]
    with nothing_left(hosts):
        moved = ["env", "-C", str(HOME / folder.name), *given, *words, "--env", 'X=a "b" $c\n\'d']
        done = on(hosts[0], *moved)
        assert done.returncode == 0, done.stderr
    assert "runs on node[1-2]" in done.stderr
    assert [*folder.iterdir()] == []
    folder.rmdir()


@pytest.mark.slow
def test_idle_nodes_are_asked_by_a_short_job(lab: Labs) -> None:
    hosts = site(lab)
    check = [
        sys.executable,
        "-m",
        "fabbench",
        "check",
        "--on",
        "slurm",
        "--login",
        "node0",
        "--format",
        "json",
    ]
    with nothing_left(hosts), taken(hosts[0], "-p", "one"):
        done = run(hosts, [*check, "--deep", "--benchmark", "pingpong"])
    assert done.returncode == 0, done.stderr
    found = {(each["host"], each["check"]): each for each in json.loads(done.stdout)["checks"]}
    assert "fi_pingpong" in found["node1", "programs"]["seen"]
    assert ("node2", "libfabric") in found
    assert ("node0", "state") in found
    assert ("node0", "libfabric") not in found


PYXIS = """#!/usr/bin/env bash
# Takes the options of Pyxis, notes the call, and starts the program without a container.
printf '%s ' "$@" >>~/srun.calls; echo >>~/srun.calls
words=()
for word; do case $word in --container-*) ;; *) words+=("$word") ;; esac; done
exec /usr/bin/srun "${words[@]}"
"""


@pytest.mark.slow
@pytest.mark.parametrize("benchmark", ["nccl", "pingpong"])
def test_only_what_is_measured_is_started_in_a_container(lab: Labs, benchmark: str) -> None:
    hosts = lab(2, slurm=True)
    folder = hosts[0].home / f"pyxis-{benchmark}"
    folder.mkdir()
    (folder / "srun").write_text(PYXIS)
    (folder / "srun").chmod(0o755)
    words = (nccl if benchmark == "nccl" else pingpong)("--no-efa", "--image", "ghcr.io/a/b:1")
    path = f"{HOME / folder.name}:{PATH}"
    done = on_login_node(hosts, [*words, "--container-mounts", "/opt:/opt"], PATH=path)
    assert done.returncode == 0, done.stderr
    calls = (hosts[0].home / "srun.calls").read_text().splitlines()
    (hosts[0].home / "srun.calls").unlink()
    inside = [call for call in calls if "--container-image=docker://ghcr.io#a/b:1 " in call]
    assert all("--container-mounts=/opt:/opt " in call for call in inside)
    measured = [call for call in calls if re.search("env .*(all_reduce_perf|fi_pingpong) ", call)]
    assert len(measured) == (1 if benchmark == "nccl" else 4)
    assert set(measured) <= set(inside)
