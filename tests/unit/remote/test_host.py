"""What becomes of a host while it is cleaned up."""

from collections.abc import Sequence

import pytest

from fabbench.model.compat import override
from fabbench.model.errors import MachineError
from fabbench.remote import host
from fabbench.remote.host import RemoteHost
from fabbench.remote.transport import Done, HostGoneError, LostError, ProcessStream, Transport
from tests.support.clock import Clock


class Breaking(Transport):
    """A connection that breaks: of what it is asked, each answer is used up; the last one stays."""

    def __init__(
        self, runs: Sequence[MachineError | Done], connects: Sequence[MachineError | None]
    ) -> None:
        super().__init__("node1", "ssh node1")
        self.runs, self.connects = [*runs], [*connects]

    @override
    def connect(self) -> None:
        answer = self.connects.pop(0) if len(self.connects) > 1 else self.connects[0]
        if answer is not None:
            raise answer

    @override
    def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float = 30) -> Done:
        answer = self.runs.pop(0) if len(self.runs) > 1 else self.runs[0]
        if isinstance(answer, MachineError):
            raise answer
        return answer

    @override
    def _start(self, argv: Sequence[str]) -> ProcessStream:
        raise LostError("It has no streams.")

    @override
    def close(self) -> None:
        """Nothing is open."""


BROKE = LostError('The connection to the pod broke: container not found ("fabbench").')
GONE = HostGoneError("The pod was evicted.")
CLEAN = Done(status=0, out=["fabbench-agent: here"], err=[])


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "time", Clock())


def cleaned(connection: Breaking) -> tuple[RemoteHost, Sequence[str]]:
    remote = RemoteHost("a", connection, token="t", lost_after_s=60)
    remote._started = True
    remote._up.set()
    return remote, remote.clean()


def test_a_pod_whose_container_is_gone_is_asked_until_it_says_why() -> None:
    """Its phase is Running still when the connection breaks."""
    remote, left = cleaned(Breaking([BROKE], [None, None, None, GONE]))
    assert left == ()
    assert remote.lost is GONE


def test_a_connection_that_breaks_twice_is_made_anew() -> None:
    remote, left = cleaned(Breaking([BROKE, BROKE, CLEAN], [None]))
    assert left == []
    assert remote.lost is None


def test_a_host_that_stays_lost_is_reported() -> None:
    remote, left = cleaned(Breaking([BROKE], [None]))
    assert len(left) == 1
    assert left[0].startswith("a could not be cleaned up. ")
    assert remote.lost is None
