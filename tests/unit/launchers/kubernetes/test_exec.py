"""How programs in pods end, as the API tells it."""

import json
import select
from collections.abc import Sequence
from typing import Any

import pytest

from fabbench.launchers.kubernetes.api import PodConnection, PodPipe, exit_status, lost
from fabbench.model.compat import override
from fabbench.model.errors import MachineError
from fabbench.model.hosts import Host, Inventory
from fabbench.model.plan import Command, Step
from fabbench.remote.host import RemoteHost
from fabbench.remote.session import RemoteAllocation, RemoteSession
from fabbench.remote.transport import LostError, Transport
from tests.support.secrets_watch import VALUE


def status(**fields: Any) -> bytes:
    return json.dumps({"metadata": {}, **fields}).encode()


def exit_code(code: str) -> dict[str, Any]:
    return {
        "status": "Failure",
        "reason": "NonZeroExitCode",
        "message": f"command terminated with non-zero exit code: exit status {code}",
        "details": {"causes": [{"reason": "ExitCode", "message": code}]},
    }


@pytest.mark.parametrize(
    ("fields", "own", "ended"),
    [
        ({"status": "Success"}, "0", 0),
        (exit_code("7"), "7", 7),
        # Killed before it could say so itself.
        (exit_code("137"), "", 137),
        ({"status": "Failure", "message": "command terminated", "details": None}, "3", 3),
    ],
)
def test_a_program_that_ended(fields: dict[str, Any], own: str, ended: int) -> None:
    assert exit_status(status(**fields), own, "pod-0") == ended


@pytest.mark.parametrize(
    "text",
    [
        # Seen while containerd restarted.
        status(),
        status(status=""),
        status(status="Unknown", message="?"),
        b"",
        b"{",
        b"null",
        b"[]",
        status(status="Success"),
        status(
            status="Failure",
            message='unable to upgrade connection: container not found ("fabbench")',
        ),
        status(
            status="Failure",
            message=(
                'error sending request: Post "https://10.0.0.1:10250/exec/a/b": dial tcp: refused'
            ),
        ),
    ],
)
def test_an_end_that_says_neither_is_a_lost_connection(text: bytes) -> None:
    with pytest.raises(LostError, match="pod-0 broke: "):
        exit_status(text, "", "pod-0")


def test_what_the_program_said_does_not_count_where_the_api_says_nothing() -> None:
    """There may be more output, which came no longer."""
    with pytest.raises(LostError):
        exit_status(status(), "0", "pod-0")


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        (
            {"message": 'exec: "fi_pingpong": executable file not found.'},
            "executable file not found",
        ),
        ({"reason": "InternalError"}, "InternalError"),
        ({}, "no reason given"),
    ],
)
def test_a_program_that_could_not_be_started(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(MachineError, match=r"^Cannot run .* pod-0: .*[^.]\.$") as caught:
        exit_status(status(status="Failure", **fields), "", "pod-0")
    assert said in str(caught.value)
    assert not isinstance(caught.value, LostError)


class Answering(PodPipe):
    """The streams of a program that says what the agent says first, and ends."""

    def __init__(self, sent: list[bytes]) -> None:
        super().__init__(None, "pod-0")
        self._sent = sent

    @override
    def send(self, data: bytes) -> None:
        self._sent.append(data)

    @override
    def read(self, timeout_s: float) -> list[str]:
        self.status, self.closed = 0, True
        return ["fabbench-agent: here"]

    @override
    def close(self) -> None:
        """Nothing is open."""


class Pod(PodConnection):
    """A pod that notes what the API is asked to start, and what goes to its standard input."""

    def __init__(self) -> None:
        Transport.__init__(self, "pod-0", "exec pod-0")
        self.words: list[Sequence[str]] = []
        self.sent: list[bytes] = []

    @override
    def open(self, argv: Sequence[str]) -> PodPipe:
        self.words.append(argv)
        return Answering(self.sent)


def test_a_variable_from_the_environment_goes_through_standard_input(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The command of an exec is in the API's audit log, and on the command line in the pod."""
    monkeypatch.setenv("MY_TOKEN", VALUE)
    pod = Pod()
    remote = RemoteHost("pod-0", pod, token="t", lost_after_s=60)
    inventory = Inventory(target="pods", hosts=(Host(name="pod-0"),))
    held = RemoteAllocation(inventory=inventory, remotes=(remote,))
    command = Command(argv=("fi_pingpong",), role="server", inherited=("MY_TOKEN",))
    step = Step(id="000-tcp-r1/a", label="a", commands=(command,), timeout_s=9)
    RemoteSession(held, step).exec(command)
    assert "s3cr" not in str(pod.words)
    assert [b"s3cr" in data for data in pod.sent] == [True]
    assert any(
        "/tmp/fabbench-t/environment" in words and "fi_pingpong" in words for words in pod.words
    )


def test_a_stream_that_another_thread_closed_is_named_so() -> None:
    """The client polls a socket that is None then."""
    with pytest.raises(TypeError) as error:
        select.select([None], [], [])  # type: ignore[type-var]
    assert str(lost("pod-0", error.value)).endswith("pod-0 broke: it was closed.")
    assert str(lost("pod-0", OSError("reset."))).endswith("pod-0 broke: reset.")
