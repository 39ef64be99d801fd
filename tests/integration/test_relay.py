"""What mpirun calls in place of ssh, and the agent that passes its requests on."""

import base64
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fabbench.remote.host import agent_script
from tests.support.paths import ROOT

pytestmark = pytest.mark.local

SCRIPT = ROOT / "src/fabbench/remote/relay.sh"
SERVED: list["Served"] = []


class Served:
    """The program through which the agent's requests come, on this machine."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "relay"
        self.asked: set[str] = set()
        (folder / "agent").write_text(agent_script())
        argv = ["sh", str(folder / "agent"), "relay", str(folder), "token"]
        self.process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        SERVED.append(self)
        assert [self.line(), self.line()] == ["fabbench-agent: here", "ready"]

    def end(self) -> None:
        subprocess.run(
            ["sh", "-c", 'kill -9 $(cat "$1")', "sh", self.folder / "server"], check=False
        )
        self.process.communicate()

    def line(self) -> str:
        assert self.process.stdout
        return self.process.stdout.readline().rstrip("\n")

    def request(self) -> tuple[str, str]:
        """Return the name and the text of the next request.

        One that came while the server began is shown twice.
        """
        word, name, text = self.line().split(" ")
        assert word == "request"
        if name in self.asked:
            return self.request()
        self.asked.add(name)
        return name, base64.b64decode(text).decode()

    def answer(self, *lines: str) -> None:
        assert self.process.stdin
        self.process.stdin.write("".join(f"{line}\n" for line in lines))
        self.process.stdin.flush()


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A directory of requests. What a test starts there ends with it."""
    yield tmp_path
    while SERVED:
        SERVED.pop().end()


@contextmanager
def agent(folder: Path, *words: str, trace: bool = False) -> Iterator[subprocess.Popen[str]]:
    argv = ["sh", *(["-x"] if trace else []), str(SCRIPT), str(folder / "relay"), *words]
    with subprocess.Popen(
        argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as call:
        try:
            yield call
        finally:
            call.kill()


def test_the_agent_is_called_as_ssh_and_ends_as_the_command(folder: Path) -> None:
    server = Served(folder)
    with agent(folder, "-x", "-p", "22", "10.0.0.2", "orted -a 'b  c'", "\\d") as call:
        name, text = server.request()
        assert text == "10.0.0.2\norted -a 'b  c' \\d\n"
        server.answer(f"{name} out one  \\n two", f"{name} ended 7")
        assert call.communicate(timeout=60)[0] == "one  \\n two\n"
    assert call.returncode == 7
    assert sorted(path.name for path in server.folder.iterdir()) == ["requests", "server"]


def test_requests_without_an_answer_are_asked_again_of_the_next_server(folder: Path) -> None:
    first = Served(folder)
    with agent(folder, "10.0.0.2", "orted") as call:
        before = first.request()
        second = Served(folder)
        assert first.process.wait(60) != 0
        assert second.request() == before
        second.answer(f"{before[0]} ended 0")
        assert call.wait(60) == 0


def test_an_answer_to_an_agent_that_is_gone_holds_nobody_up(folder: Path) -> None:
    server = Served(folder)
    with agent(folder, "10.0.0.2", "one") as gone:
        name, _ = server.request()
        gone.kill()
    with agent(folder, "10.0.0.2", "two") as call:
        other, _ = server.request()
        server.answer(*(f"{name} out {number}" for number in range(9)), f"{other} ended 3")
        assert call.wait(60) == 3


def test_hydra_which_calls_every_agent_with_x_hears_only_the_command(folder: Path) -> None:
    server = Served(folder)
    with agent(folder, "10.0.0.2", "proxy", trace=True) as call:
        name, _ = server.request()
        server.answer(f"{name} out hello", f"{name} ended 0")
        assert call.communicate(timeout=60)[0] == "hello\n"


def test_no_program_starts_where_its_output_has_no_room(folder: Path) -> None:
    (folder / "agent").write_text(agent_script())
    (folder / "full").touch()  # as `keep` notes it
    argv = [
        "sh",
        str(folder / "agent"),
        "run",
        str(folder),
        "token",
        "100",
        "1.0",
        "touch",
        str(folder / "started"),
    ]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (120, "fabbench-agent: no-room\n")
    assert not (folder / "started").exists()
