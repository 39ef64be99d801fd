"""What keeps a run over ssh from starting.

Each with status 3, a sentence for each host, and a way out.
"""

import json
import sys
from collections.abc import Mapping

import pytest

from tests.support.host_fixtures import BOTH_SSH_CLIENTS, STANDIN, Labs
from tests.support.hosts import HOME, Host, Lab, processes
from tests.support.ssh_faults import SLOW
from tests.support.ssh_runs import argv, hosts, nccl, nothing_left, pingpong, run

SWEEP = ("--fabric", "tcp", "--size", "1M", "--iterations", "20", "--tolerance", "80%", "--json")
READ_ONLY = "/tmp on node1 cannot be written to"

pytestmark = [pytest.mark.lab, pytest.mark.slow, BOTH_SSH_CLIENTS]


def refused(site: Lab, words: list[str]) -> str:
    """Run in vain; gives what was said."""
    with nothing_left(site):
        done = run(site, words)
    assert done.returncode == 3, (done.returncode, done.stderr, done.stdout)
    assert "Traceback" not in done.stderr
    return done.stderr


def test_hosts_that_fail_in_different_ways(lab: Labs) -> None:
    """Every one of them is named, with what is wrong with it and what to do."""
    site = lab(4)
    site.new_host_key(0)
    site[1].kill_sshd(sessions=False)
    site[2].cut()
    known = site.home / ".ssh/known_hosts"
    known.write_text(
        "".join(line for line in known.read_text().splitlines(True) if "node3" not in line)
    )
    said = refused(site, [*nccl(site, *SLOW), "--host", "nowhere"])
    for text in (
        "node0",
        "has changed",
        "ssh-keygen",
        "node1",
        "node2",
        "node3",
        "--accept-new-host-keys",
        "nowhere",
    ):
        assert text in said


def test_a_wrong_key(lab: Labs) -> None:
    site = lab(2)
    site.touched = True
    site.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", HOME / ".ssh/other"], check=True)
    config = site.home / ".ssh/config"
    config.write_text(config.read_text().replace("lab_key", "other"))
    said = refused(site, nccl(site, *SLOW))
    assert all(f"ssh -o BatchMode=yes {host.name} true" in said for host in site.hosts)


def test_an_mpirun_that_is_not_there(lab: Labs) -> None:
    """Another one is not taken instead."""
    site = lab(2)
    said = refused(site, nccl(site, "--mpirun", "/nowhere/bin/mpirun", *SLOW))
    assert "/nowhere/bin/mpirun not found on node0" in said


def test_a_program_that_one_host_lacks_or_has_elsewhere(lab: Labs) -> None:
    site = lab(2)
    elsewhere = "/var/tmp/elsewhere"
    site[1].sh(["mkdir", elsewhere])
    site[1].sh(["mount", "--bind", STANDIN, elsewhere])
    site[1].sh(["mount", "-t", "tmpfs", "tmpfs", STANDIN])
    try:
        said = refused(site, nccl(site, *SLOW))
        assert "all_reduce_perf not found on node1." in said
        said = refused(site, nccl(site, "--bin-dir", elsewhere, *SLOW))
        assert f"{STANDIN}/all_reduce_perf on node0, {elsewhere}/all_reduce_perf on node1" in said
    finally:
        site[1].sh(["umount", STANDIN, elsewhere])
        site[1].sh(["rmdir", elsewhere])


@pytest.mark.parametrize("number", [0, 1])
def test_a_full_disk(lab: Labs, number: int) -> None:
    site = lab(2, homes="own")
    site[number].fill_disk()
    said = refused(site, nccl(site, *SLOW))
    site[number].free_disk()
    assert "No space left in /tmp/fabbench-" in said
    assert f"on node{number}" in said


@pytest.mark.parametrize("size", ["4k", "32k"])
def test_a_full_disk_on_the_laptop(lab: Labs, size: str) -> None:
    """Before anything is started, and after some rows."""
    site = lab(2)
    folder = site.small_folder(size, f"small{size}")
    words = nccl(site, "-i", "8", *SLOW)
    words[words.index("--store") + 1] = str(folder)
    with nothing_left(site):
        done = run(site, words)
    assert done.returncode == 3
    assert "No space left" in done.stderr
    assert "--store" in done.stderr


def test_a_host_whose_tmp_is_read_only_is_named(lab: Labs) -> None:
    """A check fails it, a sweep leaves it out, and a run of two hosts does not start."""
    site = lab(3, fresh=True, tmp="64m")
    site[1].sh(["mount", "-o", "remount,ro", "/tmp"])
    # The links of fresh hosts come up a moment after they do.
    assert processes.eventually(lambda: all(logs_in(site, host) for host in site.hosts))
    check = [sys.executable, "-m", "fabbench", "check", "--on", "ssh", *hosts(site), "--json"]
    with nothing_left(site):
        checked = run(site, check)
        swept = run(site, argv("sweep", "pingpong", "--on", "ssh", *hosts(site), *SWEEP))
    failed = {each["host"] for each in json.loads(checked.stdout) if is_failed(each)}
    assert failed == {"node1"}, checked.stdout
    found = json.loads(swept.stdout)
    assert (swept.returncode, found["suspects"]) == (4, []), found
    (undecided,) = found["undecided"]
    assert undecided["name"] == "node1"
    assert READ_ONLY in undecided["evidence"]
    said = refused(site, pingpong(site, "--fabric", "tcp", "--size", "64"))
    assert READ_ONLY in said
    assert "node1" in said


def logs_in(site: Lab, host: Host) -> bool:
    return site.run(["ssh", host.name, "true"]).returncode == 0


def is_failed(check: Mapping[str, str]) -> bool:
    return (check["check"], check["status"]) == ("files", "fail")
