"""What ssh's configuration comes to: asked of ssh itself, and read without it."""

import getpass
import os
import pwd
import threading
from pathlib import Path
from typing import Any

import pytest

from fabbench.model.errors import RequestError
from fabbench.remote.ssh_config import SshSettings, all_settings

pytestmark = pytest.mark.local


@pytest.fixture(params=["ssh -G", "without ssh"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    if request.param == "without ssh":
        monkeypatch.setenv("PATH", str(tmp_path))
    return str(request.param)


@pytest.fixture
def config(tmp_path: Path) -> str:
    (tmp_path / "more.conf").write_text("Host node?\n  User ubuntu\n")
    (tmp_path / "config").write_text(
        f"""
Host node1
  HostName 10.0.0.1
  Include {tmp_path}/*.conf
  Port 2201
Include {tmp_path}/*.conf
Host late
  User late
Host node* behind
  IdentityFile ~/.ssh/cluster_%h
  IdentitiesOnly yes
  UserKnownHostsFile /a/known_hosts "/b c/known_hosts"
Host node2
  HostKeyAlias cluster
  IdentityAgent none
  ProxyCommand relay --to %h:%p --as %r --name %n 100%%
Match host behind user bob
  ProxyJump first,alice@second:2222
Host second
  HostName 10.0.0.2
  User nobody
Host never
  ProxyJump none
Host loop1
  ProxyJump loop2
Host loop2
  ProxyJump loop1
"""
    )
    return str(tmp_path / "config")


def settings_of(name: str, **given: Any) -> SshSettings:
    (found,) = all_settings((name,), **given)
    return found


def test_a_host_is_as_the_configuration_says(way: str, config: str) -> None:
    found = settings_of("node1", config=config)
    assert (found.name, found.address, found.port, found.user) == ("node1", "10.0.0.1", 2201, "ubuntu")
    assert found.identities == (str(Path("~/.ssh/cluster_10.0.0.1").expanduser()),)
    assert found.identities_only
    assert found.known_hosts[:2] == ("/a/known_hosts", "/b c/known_hosts")
    assert any(file.startswith("/etc/ssh/") for file in found.known_hosts)
    assert (found.jumps, found.proxy_command, found.host_key_alias) == ((), None, None)
    assert str(found) == "node1 (ubuntu@10.0.0.1:2201)"
    assert settings_of("late", config=config).user == "late"  # what an included file begins ends with it


def test_tokens_of_a_proxy_command_are_filled_in(way: str, config: str) -> None:
    found = settings_of("node2", config=config)
    assert found.proxy_command == f"relay --to node2:22 --as {getpass.getuser()} --name node2 100%"
    assert found.host_key_alias == "cluster"
    assert found.identity_agent == "none"


def test_match_sees_the_user_that_was_asked_for(way: str, config: str) -> None:
    assert settings_of("behind", config=config).jumps == ()
    found = settings_of("behind", config=config, user="bob")
    first, second = found.jumps
    assert (first.name, first.user, first.jumps) == ("first", getpass.getuser(), ())
    assert (second.name, second.address, second.port, second.user) == ("second", "10.0.0.2", 2222, "alice")
    assert second.jumps == (first,)


def test_options_count_more_than_files(way: str, config: str) -> None:
    found = settings_of("node1", config=config, user="root", port=22, identity="/my/key")
    assert (found.user, found.port, found.identities[0]) == ("root", 22, "/my/key")
    found = settings_of("root@node1", config=config)
    assert (found.name, found.user, found.address) == ("root@node1", "root", "10.0.0.1")


def test_a_host_that_nothing_is_said_of_has_ssh_s_defaults(way: str, config: str) -> None:
    found = settings_of("fd00::1", config=config)
    assert (found.address, found.port, found.user) == ("fd00::1", 22, getpass.getuser())
    assert str(Path("~/.ssh/id_ed25519").expanduser()) in found.identities
    # OpenSSH asks the password database for the user's home, and not HOME.
    home = Path(pwd.getpwuid(os.getuid()).pw_dir if way == "ssh -G" else "~").expanduser()
    assert found.known_hosts[0] == str(home / ".ssh/known_hosts")
    assert found.identity_agent is None
    assert settings_of("never", config=config).jumps == ()


def test_configurations_that_cannot_be_used_are_refused(way: str, config: str, tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="loop1 → loop2 → loop1"):
        settings_of("loop1", config=config)
    with pytest.raises(RequestError, match="No such file"):
        settings_of("node1", config=str(tmp_path / "none"))
    if way == "ssh -G":
        (tmp_path / "bad").write_text("Host *\n  Usr x\n")
        with pytest.raises(RequestError, match="line 2"):
            settings_of("node1", config=str(tmp_path / "bad"))


@pytest.mark.parametrize("name", ["a b", "-oProxyCommand=touch x", "", "$(id)"])
def test_what_is_no_name_is_refused(name: str, config: str) -> None:
    with pytest.raises(RequestError):
        settings_of(name, config=config)


def test_many_hosts_are_asked_about_in_one_go_and_in_order(config: str) -> None:
    names, before = [f"host{number}" for number in range(64)], threading.active_count()
    found = all_settings([*names, "node1", "host3"], config=config)
    assert [one.name for one in found] == [*names, "node1", "host3"]
    assert found[-1] == found[3]
    assert len({*found}) == 65
    assert threading.active_count() == before
