"""Variants over ssh and in scripts.

Real sshd and mpirun between hosts, and libraries that ranks find.
"""

import json
import re
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fabbench.cli import cli
from fabbench.model.log import Outcome
from tests.support.command_line import runner
from tests.support.host_fixtures import STANDIN, Labs, Mpi, mpi_flavour
from tests.support.hosts import HOME, Lab
from tests.support.ssh_runs import nccl, nothing_left, pingpong, run, the_run

if TYPE_CHECKING:
    from subprocess import CompletedProcess

pytestmark = pytest.mark.lab

FAST = ("-e", "1K", "--repeat", "2", "--no-efa")


def words(*variants: str) -> list[str]:
    return [word for variant in variants for word in ("--variant", variant)]


def nccl_of(site: Lab, numbers: Sequence[int], version: str, folder: str = "") -> str:
    """Put a NCCL of some version on hosts; gives its directory."""
    prefix = f"/tmp/{folder or f'nccl-{version}'}"
    for number in numbers:
        lib = site[number].path(f"{prefix}/lib")
        lib.mkdir(parents=True, exist_ok=True)
        (lib / f"libnccl.so.{version}").write_text("")
        link = lib / "libnccl.so.2"
        link.unlink(missing_ok=True)
        link.symlink_to(f"libnccl.so.{version}")
    return prefix


@pytest.fixture
def site(lab: Labs) -> Lab:
    """Two hosts with two versions of NCCL."""
    two = lab(2)
    for version in ("2.21.5", "2.30.4"):
        nccl_of(two, (0, 1), version)
    return two


OLD, NEW = "old=/tmp/nccl-2.21.5", "new=/tmp/nccl-2.30.4"


def test_every_rank_finds_its_variants_library(site: Lab, mpi: Mpi) -> None:
    """The stand-in does not start where the ranks find several versions, as NCCL itself."""
    with nothing_left(site):
        own = ("--mpirun", str(mpi.mpirun), "--gpus", "2")
        done = run(site, nccl(site, *FAST, *own, *words(NEW, OLD, "plain=STANDIN_SPEED=2")))
    assert done.returncode == 0, done.stderr + done.stdout
    stored = the_run(site)
    assert [execution.id[4:] for execution in stored.executions] == [
        *("new-r1", "old-r1", "plain-r1", "plain-r2", "old-r2", "new-r2")
    ]
    found = {
        configuration.label: {log.facts["nccl"] for log in stored.logs(configuration.label)}
        for configuration in stored.configurations
    }
    assert found == {"new": {"2.30.4"}, "old": {"2.21.5"}, "plain": {"2.28.9"}}
    assert "nccl differs: 2.30.4 in new, 2.21.5 in old, 2.28.9 in plain." in done.stdout


@pytest.mark.slow
def test_ranks_of_several_versions_do_not_count(site: Lab) -> None:
    """The directory is there on every host, and has something else in it."""
    nccl_of(site, (0,), "2.21.5", "nccl-mixed")
    nccl_of(site, (1,), "2.30.4", "nccl-mixed")
    done = run(site, nccl(site, *FAST, *words("mixed=/tmp/nccl-mixed", "plain=")))
    assert done.returncode == 4
    stored = the_run(site)
    assert {log.outcome for log in stored.logs("mixed")} == {Outcome.FAILED}
    assert {log.outcome for log in stored.logs("plain")} == {Outcome.OK}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("variant", "expected"),
    [
        ("half=/tmp/half", "With the variant half: Directory not found: /tmp/half on node1."),
        ("none=/tmp/none", "Directory not found: /tmp/none on node[0-1]."),
        ("fast=interface=fab7", "With the variant fast: node0 has no interface fab7"),
        ("five=mpirun=/opt/none/bin/mpirun", "/opt/none/bin/mpirun not found on node0"),
    ],
)
def test_what_a_host_lacks_is_reported_before_anything_starts(
    site: Lab, variant: str, expected: str
) -> None:
    site[0].path("/tmp/half").mkdir(exist_ok=True)
    with nothing_left(site):
        done = run(site, nccl(site, *FAST, *words("plain=", variant)))
    assert (done.returncode, done.stdout) == (3, "")
    assert expected in done.stderr
    assert "execution" not in done.stderr


@pytest.mark.slow
def test_two_mpiruns_in_one_run(site: Lab) -> None:
    four, five = mpi_flavour("openmpi4").mpirun, mpi_flavour("openmpi5").mpirun
    with nothing_left(site):
        done = run(site, nccl(site, *FAST, *words(f"four=mpirun={four}", f"five=mpirun={five}")))
    assert done.returncode == 0, done.stderr + done.stdout
    stored = the_run(site)
    assert [
        log.outcome
        for configuration in stored.configurations
        for log in stored.logs(configuration.label)
    ] == [Outcome.OK] * 4
    variants = json.loads((stored.path / "request.json").read_text("utf-8"))["variants"]
    kinds = [seen[0]["versions"]["mpi"] for seen in variants.values()]
    assert [kind.split()[2][0] for kind in kinds] == ["4", "5"]


@pytest.mark.slow
def test_two_networks_in_one_run(lab: Labs) -> None:
    """One command has both interfaces, each with its rate, and the ratio."""
    site = lab(2, fresh=True)
    for host in site.hosts:
        host.rate("200mbit", "fab0")
        host.rate("50mbit", "fab1")
    with nothing_left(site):
        measured = ("--fabric", "tcp", "--size", "1M", "--repeat", "3", "--iterations", "10")
        variants = words("fast=interface=fab0", "slow=interface=fab1")
        done = run(site, pingpong(site, *measured, "--metric", "bandwidth", *variants))
    assert done.returncode == 0, done.stderr
    stored = the_run(site)
    rates = {}
    for name, interface in (("fast", "fab0"), ("slow", "fab1")):
        logs = stored.logs(name)
        assert [log.facts["domain"] for log in logs] == [interface] * 3
        rates[name] = statistics.median(
            point.values[point.metrics.index("bandwidth")]
            for log in logs
            for point in log.points
            if point.labels.get("side") == "client"
        )
    assert rates["fast"] == pytest.approx(25e6, rel=0.2)
    assert rates["slow"] == pytest.approx(6.25e6, rel=0.2)
    (ratio,) = (
        float(text) for text in re.findall(r"^\| 1 MB .* ([\d.]+) x \|", done.stdout, re.MULTILINE)
    )
    assert ratio == pytest.approx(rates["fast"] / rates["slow"], abs=0.06)


@pytest.mark.slow
def test_nccl_over_two_interfaces_in_one_run(site: Lab) -> None:
    """mpirun reaches the hosts by both, with the key of the run."""
    variants = words("fast=interface=fab0", "slow=interface=fab1")
    with nothing_left(site):
        done = run(site, nccl(site, *FAST, *variants))
    assert done.returncode == 0, done.stderr + done.stdout
    for name, interface in (("fast", "fab0"), ("slow", "fab1")):
        assert {log.facts["interface"] for log in the_run(site).logs(name)} == {interface}


# ---------------------------------------------------------------- scripts


def script(site: Lab, *more: str) -> "CompletedProcess[str]":
    """Render a script of the stand-in, and run it on the first host."""
    options = (
        "nccl",
        "--no-efa",
        "--gpus",
        "1",
        "-e",
        "1K",
        "--repeat",
        "2",
        "--bin-dir",
        str(STANDIN),
    )
    rendered = runner().invoke(cli, ["render", *options, *more, "--as", "script"])
    assert rendered.exit_code == 0, rendered.output
    site[0].path(HOME / "script").write_text(rendered.stdout)
    return site[0].sh(["bash", str(HOME / "script"), "node0", "node1"], check=False, timeout=120)


@pytest.fixture
def trusting(lab: Labs) -> Lab:
    """Hosts that may ssh to each other, with two versions of NCCL."""
    two = lab(2, trust=True)
    for version in ("2.21.5", "2.30.4"):
        nccl_of(two, (0, 1), version)
    return two


@pytest.mark.slow
def test_a_script_runs_all_variants(trusting: Lab, mpi: Mpi, tmp_path: Path) -> None:
    if mpi.name == "mpich":
        pytest.skip("its name is mpirun: a script takes it for Open MPI's")
    other = f"other=mpirun={mpi_flavour('openmpi5').mpirun}"
    done = script(trusting, "--mpirun", str(mpi.mpirun), *words(NEW, OLD, other))
    assert (done.returncode, done.stderr) == (0, "")
    found = re.findall(
        r"^#@fabbench begin \d+-(\w+)-r|nccl-library=(\d+)", done.stdout, re.MULTILINE
    )
    names = [name or code for name, code in found]
    once = ["new", "23004", "old", "22105", "other", "22809"]
    assert names == [*once, *(word for pair in (4, 2, 0) for word in once[pair : pair + 2])]
    (tmp_path / "out").write_text(done.stdout)
    compared = runner().invoke(cli, ["compare", str(tmp_path / "out")])
    assert "nccl differs: 2.30.4 in new, 2.21.5 in old, 2.28.9 in other." in compared.stdout
