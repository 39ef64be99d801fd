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
- {name: a, user: {token: x, client-key-data: eA==, as: someone}}
- name: b
  user: {exec: {command: aws}}
"""
NAMED = (
    *("AddKeysToAgent yes", "CertificateFile ~/.ssh/id-cert.pub", "ControlPath ~/.ssh/production"),
    *("ForwardAgent yes", "GlobalKnownHostsFile x", "GSSAPIDelegateCredentials yes"),
    *("HostKeyAlias github.com", "HostbasedAuthentication yes", "IdentityAgent /tmp/x", "Include ~/x"),
    *("KnownHostsCommand x", "LocalCommand x", "LocalForward 1 a:2", "PKCS11Provider /x.so"),
    *("PermitLocalCommand yes", "ProxyCommand x", "ProxyUseFdpass yes", "RemoteCommand x"),
    *("RemoteForward 1 a:2", "SecurityKeyProvider /x.so", "SendEnv *", "SetEnv A=1", "Tunnel yes"),
    *("UserKnownHostsFile ~/.bashrc", "VerifyHostKeyDNS yes", "XAuthLocation /x", "DirectiveOfTomorrow x"),
    *('Match host a exec "true"', "Match !exec true", 'Match e"x"ec true', "Match 'exec' true"),
    *("Match ex\\ec true", 'IdentityFile "pkcs11:id=1?module-path=/x.so"', "proxycommand=x"),
    *('"ProxyCommand" x', '""ProxyCommand x', "=ProxyCommand=x", "\tPROXYCOMMAND\tx", "ProxyCommand"),
    *("User\x0bProxyCommand x", "UserX y", "\ufeffUser x"),
)
UNNAMED = (
    *("", "  ", "# ProxyCommand x", "\t#x", "Host *", "Host=a b !c", "HostName 10.0.0.1", "User root"),
    *("user = x", "Port 22", "Port=22", "IdentityFile ~/.ssh/id_x", "IdentityFile=%d/.ssh/id"),
    *("IdentitiesOnly yes", "ProxyJump a,b:22", "StrictHostKeyChecking no", "ServerAliveInterval 5"),
    *("Match all", "Match host a,b user c", "Match !host=a originalhost *.b", "LogLevel ERROR"),
)


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
        ("ssh-config", "Include ~/x\nMatch exec a\nMatch exec b\nMatch exec c\n", "Match exec b and 1 more"),
        ("kubeconfig", KUBECONFIG, "exec {'command': 'aws'}"),
        ("kubeconfig", "users: [{name: a, user: {token: x}}]", ""),
        ("kubeconfig", "users: {", ""),
        ("kubeconfig", "users: [{name: a, user: {tokenFile: /home/you/secret}}]", "tokenFile /home/you/secret"),
        ("kubeconfig", "users: [{name: a, user: {client-key: you.key}}]", "client-key you.key"),
        ("kubeconfig", "users: [{name: a, user: {auth-provider: {name: gcp}}}]", "auth-provider {'name': 'gcp'}"),
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
    assert list(foreign_commands(own, target("ssh-config", named), (), {"HOME": str(tmp_path)})) == []
    assert list(foreign_commands(own, target("ssh-config", tmp_path / "none"), (), {"HOME": "/nowhere"})) == []
    given = {"ssh_config": "other"}
    assert list(foreign_commands(own, target("ssh-config", named), given, {"HOME": "/nowhere"})) == []
