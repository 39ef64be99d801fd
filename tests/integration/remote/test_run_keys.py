"""The keys that agents add to one ~/.ssh/authorized_keys concurrently, and take away again."""

import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fabbench.remote.host import agent_script

pytestmark = [pytest.mark.lab, pytest.mark.slow]
RUNS, TIMES = 8, 4


class Agent:
    """An agent in a directory of its own, for one user."""

    def __init__(self, home: Path, token: str) -> None:
        self.home, self.token = home, token
        self.keys = home / ".ssh/authorized_keys"
        self.folder = home / f"fabbench-{token}"
        self.folder.mkdir()
        (self.folder / "agent").write_text(agent_script())

    def do(self, mode: str, given: str = "") -> str:
        """Let it do something: what it says is wrong, or left."""
        argv = ["sh", str(self.folder / "agent"), mode, str(self.folder), self.token]
        env = {"PATH": os.environ["PATH"], "HOME": str(self.home)}
        done = subprocess.run(argv, env=env, input=given, capture_output=True, text=True, check=False)
        return f"{mode}: {done.stderr}" if done.returncode else done.stdout.partition("left")[2]

    @property
    def known(self) -> bool:
        return f" fabbench-{self.token}\n" in self.keys.read_text()


def come_and_go(home: Path, number: int) -> list[str]:
    """Several runs, one after the other: what went wrong."""
    wrong = []
    for time_ in range(TIMES):
        agent = Agent(home, f"{number}{time_}")
        wrong.append(agent.do("key", f"ssh-ed25519 AAAA fabbench-{agent.token}\n"))
        wrong += [""] if agent.known else [f"the key of {agent.token} is not there"]
        wrong.append(agent.do("clean"))
    return [each for each in wrong if each]


def test_what_another_user_s_run_has_left_says_nothing_of_ours(tmp_path: Path) -> None:
    """Root sees into it: an authorized_keys that was empty before stays where the other run had made one."""
    keys = tmp_path / ".ssh/authorized_keys"
    keys.parent.mkdir(mode=0o700)
    keys.touch()
    left = tmp_path / "fabbench-left"
    left.mkdir(mode=0o700)
    for made in ("key-file-made", "key-folder-made"):
        (left / made).touch()
        os.chown(left / made, 2001, 2001)
    agent = Agent(tmp_path, "ours")
    assert agent.do("key", "ssh-ed25519 AAAA fabbench-ours\n") == ""
    assert agent.known
    assert agent.do("clean") == ""
    assert keys.exists()
    assert keys.read_text() == ""


@pytest.mark.parametrize("there", ["a key", "nothing", "a folder"])
def test_runs_that_come_and_go_in_one_home(tmp_path: Path, there: str) -> None:
    """Every key is there for its run, and goes with it; what was there before is left.

    Two runs that begin and end in the same moment may leave the empty file that one of them has made.
    """
    folder = tmp_path / ".ssh"
    if there != "nothing":
        folder.mkdir(mode=0o700)
    before = "ssh-rsa AAAA mine\n" if there == "a key" else ""
    if before:
        (folder / "authorized_keys").write_text(before)
    with ThreadPoolExecutor(RUNS) as pool:
        assert [*pool.map(lambda number: come_and_go(tmp_path, number), range(RUNS))] == [[]] * RUNS
    left = {path.name: path.read_text() for path in tmp_path.rglob("*") if path.is_file()}
    assert left in ([{"authorized_keys": before}] if before else [{}, {"authorized_keys": ""}])
