"""The agent's lock on authorized_keys, with the agent itself."""

import os
import subprocess
from pathlib import Path

import pytest

from fabbench.remote.host import agent_script, put_words
from tests.support.hosts import processes


@pytest.mark.parametrize("leftover", ["of this run", "of another"])
def test_the_lock_of_an_agent_that_was_killed_is_removed(tmp_path: Path, leftover: str) -> None:
    """By the clean-up of its own run; that of another run leaves it, which may be in use."""
    folder, lock = tmp_path / "run", tmp_path / ".ssh/authorized_keys.fabbench-lock"
    folder.mkdir()
    (tmp_path / ".ssh").mkdir()
    agent = tmp_path / "agent"
    agent.write_text(agent_script())
    (tmp_path / ".ssh/authorized_keys").write_text("ssh-ed25519 AAAA somebody\n")
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    adding = subprocess.Popen(
        ["sh", agent, "key", folder, "ours"], env=env, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
    )
    with adding:
        assert processes.eventually(lambda: os.path.lexists(lock))
        adding.kill()
    assert os.path.lexists(lock)
    if leftover == "of another":
        folder, token = tmp_path / "other", "theirs"
        folder.mkdir()
    else:
        token = "ours"
    subprocess.run(["sh", agent, "clean", folder, token], env=env, check=True, capture_output=True)
    assert os.path.lexists(lock) == (leftover == "of another")


@pytest.mark.parametrize("part", [0.0, 0.5, 0.99])
def test_an_agent_that_does_not_come_whole_leaves_nothing(tmp_path: Path, part: float) -> None:
    """As where fabbench is killed while it sends it."""
    folder, text = tmp_path / "fabbench-1", agent_script().encode()
    done = subprocess.run(
        put_words(str(folder), "1", "9"), input=text[: int(part * len(text))], capture_output=True, check=False
    )
    assert (done.returncode, done.stdout) == (1, b"")
    assert not folder.exists()
