"""The key that a run adds to ~/.ssh/authorized_keys: however that file is, it is afterwards as before."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.host_fixtures import BOTH_SSH_CLIENTS, Labs, standin
from tests.support.hosts import HOME
from tests.support.ssh_faults import SLOW, running
from tests.support.ssh_runs import nccl, nothing_left, run

pytestmark = [pytest.mark.lab, pytest.mark.slow, BOTH_SSH_CLIENTS]

KEYS = ".ssh/authorized_keys"
TWO_PLACES = ("AuthorizedKeysFile /etc/ssh/keys .ssh/authorized_keys",)
"""sshd lets the client in whatever becomes of the file in the home."""


def without_an_end(home: Path) -> None:
    (home / KEYS).write_bytes((home / KEYS).read_bytes().rstrip(b"\n"))


def a_link(home: Path) -> None:
    (home / KEYS).rename(home / "keys")
    (home / KEYS).symlink_to("../keys")


def empty(home: Path) -> None:
    (home / KEYS).write_bytes(b"")


def no_file(home: Path) -> None:
    (home / KEYS).unlink()


def no_folder(home: Path) -> None:
    shutil.rmtree(home / ".ssh")


KINDS: tuple[Callable[[Path], None], ...] = (without_an_end, a_link, empty, no_file, no_folder)


def test_a_file_of_any_kind(lab: Labs) -> None:
    """Each kind on a host that mpirun's first host logs in to: the first one gets no key."""
    site = lab(1 + len(KINDS), fresh=True, homes="own", sshd=TWO_PLACES)
    for host, made in zip(site.hosts, (lambda _: None, *KINDS), strict=True):
        host.sh(["cp", HOME / KEYS, "/etc/ssh/keys"])
        made(host.home)
    before = [look(host.home) for host in site.hosts]
    with nothing_left(site):
        done = run(site, nccl(site, *SLOW))
    assert done.returncode == 0, done.stderr
    assert [look(host.home) for host in site.hosts] == before


def look(home: Path) -> tuple[bool, bool, bytes]:
    """What there is: directory, link, content."""
    keys = home / KEYS
    content = (home / "keys") if keys.is_symlink() else keys
    return keys.parent.exists(), keys.is_symlink(), content.read_bytes() if content.exists() else b"none"


def test_somebody_adds_a_key_meanwhile(lab: Labs) -> None:
    """Another line behind ours stays."""
    site = lab(2, homes="own")
    keys = site[1].home / KEYS
    before = keys.read_bytes()
    with standin(*site.hosts, ROW_S=0.3), running(site, nccl(site, *SLOW)) as going_on:
        going_on.until_rows()
        with keys.open("ab") as file:
            file.write(b"# mine\n")
        assert going_on.ends() == 0, going_on.err
    assert keys.read_bytes() == before + b"# mine\n"


def test_runs_at_the_same_time_in_one_home(lab: Labs) -> None:
    """Each has its own directory, key and mark; ending one leaves the others alone."""
    site = lab(3)
    with nothing_left(site), standin(*site.hosts, ROW_S=0.5):
        words = nccl(site, *SLOW)
        stores = [str(HOME / f"runs-{number}") for number in range(2)]
        others = [site.popen([*words[:-1], store]) for store in stores]
        with running(site, words) as interrupted:
            interrupted.until_rows()
            interrupted.process.terminate()
            assert interrupted.ends() == 130
        for each in others:
            _, err = each.communicate(timeout=60)
            assert each.returncode == 0, err
            assert "8 of 8 sizes, ok" in err
