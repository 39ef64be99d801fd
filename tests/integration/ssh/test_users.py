"""Several users of the same hosts: other uids, the same /tmp, and nobody in anybody's way."""

import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import pytest

from fabbench.model.log import Outcome
from tests.support.host_fixtures import Labs, standin
from tests.support.hosts import Lab, processes, traces
from tests.support.ssh_faults import SIZES, SLOW, sizes
from tests.support.ssh_runs import kill_all, nccl, nothing_left, pingpong
from tests.support.ssh_users import OWN_CONNECTIONS, User

if TYPE_CHECKING:
    import subprocess

pytestmark = [pytest.mark.lab, pytest.mark.slow]
TWO = ("ann", "bob")
PAIR = ("--fabric", "tcp", "--size", "64", "--iterations", "2000", "--repeat", "1")


def users_of(site: Lab) -> tuple[User, User]:
    ann, bob = (User(site, name) for name in TWO)
    return ann, bob


def homes(site: Lab) -> dict[str, str]:
    """What lies in the users' .ssh: their client's and their hosts'."""
    found: dict[str, str] = {}
    for name in TWO:
        found |= traces.files(site[0].root, f"/home/{name}/.ssh")
    return found


def rows(user: User) -> int:
    """How many lines of results the user's run has kept."""
    logs = user.lab.path(user.home / "runs").glob("*/exec/*/output.log")
    return sum(path.read_text(errors="replace").count(" float ") for path in logs)


def test_two_at_once(lab: Labs) -> None:
    """Neither gets at anything of the other's while both measure, and both measure all there is.

    By OpenSSH, which leaves most on the client: the folders of masters.
    """
    site = lab(2, users=TWO)
    ann, bob = users_of(site)
    for user in (ann, bob):
        config = site.path(user.home / ".ssh/config")
        if not config.read_text().startswith(OWN_CONNECTIONS):
            config.write_text(OWN_CONNECTIONS + config.read_text())
    before = homes(site)
    masters: list[set[str]] = []
    told: list[bool] = []
    with nothing_left(site):
        with standin(*site.hosts, WAIT_AT=SIZES[2]):  # both measure until all has been looked at
            started = [
                user.start(nccl(site, *SLOW, "--set", "ssh-client=openssh", "-v"))
                for user in (ann, bob)
            ]
            assert processes.eventually(
                lambda: min(rows(ann), rows(bob)) >= 1 or ended(started), 60
            )
            assert all(user.owns(host) for user in (ann, bob) for host in site.hosts)
            for host in site.hosts:
                host.sh(bob.argv("sh", "-c", "umask 022; echo for all >/tmp/open"))
            assert ann.can_get_at(bob) == ["/tmp/open"] * len(site.hosts)
            for host in site.hosts:
                host.path("/tmp/open").unlink()
            assert ann.can_get_at(bob) == []
            assert bob.can_get_at(ann) == []
            for _ in range(2):  # a first answer to a heartbeat is read before the second is sent
                heard = heartbeats(site)
                assert processes.eventually(partial(have_all_moved_on, site, heard), 60)
            assert ended(started) == []
        for process in started:
            _, err = process.communicate(timeout=90)
            assert process.returncode == 0, err
            masters.append(set(re.findall(r"ssh -M .*? -S (\S+)", err)))
            told.append("fabbench already runs on" in err)
    assert any(told)  # the one that started later
    assert [len(each) for each in masters] == [2, 2]
    assert masters[0].isdisjoint(masters[1])
    assert homes(site) == before
    for user in (ann, bob):
        assert (user.log().outcome, sizes(user.log())) == (Outcome.OK, SIZES)
        assert "neighbor" in {each.code for each in user.log().findings}  # stored, of both


def heartbeats(site: Lab) -> dict[str, int]:
    """When each run last heard from fabbench on each host: file → its time in ns."""
    files = (file for host in site.hosts for file in host.path("/tmp").glob("fabbench-*/beat"))
    return {str(file): file.stat().st_mtime_ns for file in files}


def have_all_moved_on(site: Lab, heard: Mapping[str, int]) -> bool:
    return not heard.items() & heartbeats(site).items()


def ended(started: Sequence["subprocess.Popen[str]"]) -> list["subprocess.Popen[str]"]:
    return [each for each in started if each.poll() is not None]


def test_two_pairs_at_once(lab: Labs) -> None:
    """Programs that listen on ports of the same hosts."""
    site = lab(2, users=TWO)
    with nothing_left(site):
        for process in [user.start(pingpong(site, *PAIR)) for user in users_of(site)]:
            _, err = process.communicate(timeout=90)
            assert process.returncode == 0, err
    assert [user.log().outcome for user in users_of(site)] == [Outcome.OK, Outcome.OK]


def test_after_a_crash_of_another_user_s(lab: Labs) -> None:
    """All of a user's processes are killed everywhere.

    What they leave is in nobody's way, and stays.
    """
    site = lab(2, users=TWO)
    ann, bob = users_of(site)
    with nothing_left(site):
        with standin(*site.hosts, ROW_S=0.5):
            run = ann.start(nccl(site, *SLOW))
            assert processes.eventually(lambda: rows(ann) >= 1 or run.poll() is not None, 60)
            assert run.poll() is None, run.communicate()
            kill_all(run)
            run.communicate()
            for host in site.hosts:
                host.sh(["pkill", "-KILL", "-u", ann.name], check=False)
        left = {host.name: ann.owns(host) for host in site.hosts}
        assert all(left.values())
        for user in (bob, ann):
            process = user.start(nccl(site, *SLOW))
            _, err = process.communicate(timeout=90)
            assert process.returncode == 0, err
            assert user.log().outcome is Outcome.OK
        assert {host.name: ann.owns(host) for host in site.hosts} == left
        for host in site.hosts:
            host.sh(["sh", "-c", "rm -rf /tmp/fabbench-*"])
