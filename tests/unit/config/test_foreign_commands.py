"""What a fabbench.yaml has run on this machine by files that it names, and when that is said."""

import json
from pathlib import Path

import pytest

from fabbench.config.foreign_commands import foreign_commands
from fabbench.config.sections import Config
from fabbench.launchers.kubernetes import KubernetesOptions
from fabbench.launchers.ssh import SshLauncherOptions
from fabbench.model.hosts import Target
from tests.support.paths import DATA

KUBECONFIG = """\
users:
- {name: a, user: {token: x, client-key-data: eA==, as: someone}}
- name: b
  user: {exec: {command: aws}}
"""
DIRECTIVES = json.loads((DATA / "ssh_directives.json").read_text("utf-8"))
NAMED = DIRECTIVES["named"]
UNNAMED = DIRECTIVES["unnamed"]


def target(key: str, named: Path) -> Target:
    options = (
        KubernetesOptions(kubeconfig=named)
        if key == "kubeconfig"
        else SshLauncherOptions(**{key.replace("-", "_"): named})  # type: ignore[arg-type]
    )
    return Target(name="t", launcher="own", options=options)


@pytest.mark.parametrize(
    ("key", "text", "quoted"),
    [
        ("ssh-config", "Host *\n  User root\n# ProxyCommand x\n", ""),
        ("ssh-config", "Host *\n\tPROXYCOMMAND=touch  x\n", "PROXYCOMMAND=touch x"),
        (
            "ssh-config",
            "Include ~/x\nMatch exec a\nMatch exec b\nMatch exec c\n",
            "Match exec b and 1 more",
        ),
        ("kubeconfig", KUBECONFIG, "exec {'command': 'aws'}"),
        ("kubeconfig", "users: [{name: a, user: {token: x}}]", ""),
        ("kubeconfig", "users: {", ""),
        (
            "kubeconfig",
            "users: [{name: a, user: {tokenFile: /home/you/secret}}]",
            "tokenFile /home/you/secret",
        ),
        ("kubeconfig", "users: [{name: a, user: {client-key: you.key}}]", "client-key you.key"),
        (
            "kubeconfig",
            "users: [{name: a, user: {auth-provider: {name: gcp}}}]",
            "auth-provider {'name': 'gcp'}",
        ),
        ("identity", "ProxyCommand x", ""),
    ],
)
def test_commands_are_quoted(tmp_path: Path, key: str, text: str, quoted: str) -> None:
    named = tmp_path / "named"
    named.write_text(text)
    config = Config(path=tmp_path / "fabbench.yaml")
    said = list(foreign_commands(config, target(key, named), (), {"HOME": "/nowhere"}))
    if not quoted:
        assert said == []
    else:
        (sentence,) = said
        assert sentence.startswith(f"Warning: {config.path} names {named}, ")
        assert f"{quoted}. --{key} names another file." in sentence


def ssh_warnings(tmp_path: Path, text: str) -> list[str]:
    named = tmp_path / "named"
    named.write_text(text)
    config = Config(path=tmp_path / "fabbench.yaml")
    return list(foreign_commands(config, target("ssh-config", named), (), {"HOME": "/nowhere"}))


def test_a_directive_is_named_unless_it_is_known_to_be_harmless(tmp_path: Path) -> None:
    assert [line for line in NAMED if not ssh_warnings(tmp_path, f"Host *\n{line}\n")] == []
    assert ssh_warnings(tmp_path, "\n".join(UNNAMED)) == []


def test_every_kubeconfig_of_a_list_is_read(tmp_path: Path) -> None:
    (tmp_path / "b").write_text(KUBECONFIG)
    config = Config(path=tmp_path / "fabbench.yaml")
    several = target("kubeconfig", Path(f"{tmp_path}/a:{tmp_path}/b"))
    (sentence,) = foreign_commands(config, several, (), {"HOME": "/nowhere"})
    assert "exec {'command': 'aws'}" in sentence


def test_the_users_own_file_is_no_surprise(tmp_path: Path) -> None:
    named = tmp_path / "named"
    named.write_text("ProxyCommand x")
    own = Config(path=tmp_path / ".config/fabbench/fabbench.yaml")
    assert (
        list(foreign_commands(own, target("ssh-config", named), (), {"HOME": str(tmp_path)})) == []
    )
    assert (
        list(
            foreign_commands(own, target("ssh-config", tmp_path / "none"), (), {"HOME": "/nowhere"})
        )
        == []
    )
    given = {"ssh_config": "other"}
    assert (
        list(foreign_commands(own, target("ssh-config", named), given, {"HOME": "/nowhere"})) == []
    )
