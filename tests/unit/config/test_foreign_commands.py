"""What a fabbench.yaml has run on this machine by files that it names, and when that is said."""

from pathlib import Path

import pytest

from fabbench.config.foreign_commands import foreign_commands
from fabbench.config.sections import Config
from fabbench.launchers.kubernetes import KubernetesOptions
from fabbench.launchers.ssh import SshLauncherOptions
from fabbench.model.hosts import Target

KUBECONFIG = """\
users:
- {name: a, user: {token: x}}
- name: b
  user: {exec: {command: aws}}
"""


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
        ("ssh-config", '"ProxyCommand" x\n', '"ProxyCommand" x'),
        ("ssh-config", 'Match host a exec "true"\n', 'Match host a exec "true"'),
        ("ssh-config", "Include ~/x\nMatch exec a\nMatch exec b\nMatch exec c\n", "Match exec b and 1 more"),
        ("kubeconfig", KUBECONFIG, "exec {'command': 'aws'}"),
        ("kubeconfig", "users: [{name: a, user: {token: x}}]", ""),
        ("kubeconfig", "users: {", ""),
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
        assert sentence.startswith(
            f"Warning: {config.path} names {named}, which can run commands on this machine: "
        )
        assert f"{quoted}. --{key} names another file." in sentence


def test_the_users_own_file_is_no_surprise(tmp_path: Path) -> None:
    named = tmp_path / "named"
    named.write_text("ProxyCommand x")
    own = Config(path=tmp_path / ".config/fabbench/fabbench.yaml")
    assert list(foreign_commands(own, target("ssh-config", named), (), {"HOME": str(tmp_path)})) == []
    assert (
        list(foreign_commands(own, target("ssh-config", tmp_path / "none"), (), {"HOME": "/nowhere"})) == []
    )
    given = {"ssh_config": "other"}
    assert list(foreign_commands(own, target("ssh-config", named), given, {"HOME": "/nowhere"})) == []
