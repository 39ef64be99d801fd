"""What a fabbench.yaml has run on this machine by files that it names, and when that is said."""

from pathlib import Path

import pytest

from fabbench.config.foreign_commands import foreign_commands
from fabbench.config.sections import Config
from fabbench.launchers.kubernetes import KubernetesOptions
from fabbench.launchers.ssh import SshLauncherOptions
from fabbench.model.hosts import Target


def target(key: str, named: Path) -> Target:
    options = (
        KubernetesOptions(kubeconfig=named)
        if key == "kubeconfig"
        else SshLauncherOptions(**{key.replace("-", "_"): named})  # type: ignore[arg-type]
    )
    return Target(name="t", launcher="own", options=options)


@pytest.mark.parametrize("key", ["ssh-config", "kubeconfig"])
def test_a_file_that_can_run_commands_is_named(tmp_path: Path, key: str) -> None:
    config = Config(path=tmp_path / "fabbench.yaml")
    named = tmp_path / "named"
    (sentence,) = foreign_commands(config, target(key, named), (), {"HOME": "/nowhere"})
    assert sentence.startswith(f"Warning: {config.path} names {named}, ")
    assert sentence.endswith(f"--{key} names another file.")


def test_what_the_user_gives_is_no_surprise(tmp_path: Path) -> None:
    named = target("ssh-config", tmp_path / "named")
    identity = target("identity", tmp_path / "named")
    own = Config(path=tmp_path / ".config/fabbench/fabbench.yaml")
    foreign = Config(path=tmp_path / "fabbench.yaml")
    home = {"HOME": str(tmp_path)}
    assert list(foreign_commands(own, named, (), home)) == []
    assert list(foreign_commands(foreign, named, {"ssh_config": "other"}, home)) == []
    assert list(foreign_commands(foreign, identity, (), home)) == []
    assert len(list(foreign_commands(foreign, named, (), home))) == 1
