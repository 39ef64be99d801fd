"""The follower of batch jobs, over a system that plays its answers."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from fabbench.launchers.jobs import Job, Phase, follow
from fabbench.model.compat import override
from fabbench.model.errors import MachineError
from fabbench.model.known_messages import Explanation


class PlayedJob(Job):
    """A job that has one phase after another."""

    system = "The scheduler"

    def __init__(self, *phases: Phase, final: bool = False, remains: bool = False) -> None:
        self.phases = iter(phases)
        self.final = final
        self.remains = remains
        self.calls: list[str] = []

    @override
    def submit(self, document: str) -> None:
        self.calls.append(f"submit {document}")

    @override
    def phase(self) -> Phase:
        return next(self.phases)

    @override
    def why_pending(self) -> Explanation:
        return Explanation(code="queue", text="It waits.", advice="Wait.", final=self.final)

    @override
    def lines(self) -> Iterator[str]:
        yield from ("one", "two")

    @override
    def cancel(self) -> None:
        self.calls.append("cancel")
        if self.remains:
            raise MachineError("It may still exist.")

    @override
    def reason(self) -> MachineError:
        return MachineError("It has died.")


def test_a_job_is_waited_for_read_and_ended() -> None:
    job = PlayedJob(Phase.PENDING, Phase.UNKNOWN, Phase.RUNS)
    assert [*follow(job, "script")] == ["one", "two"]
    assert job.calls == ["submit script", "cancel"]


def test_closing_it_ends_the_job() -> None:
    job = PlayedJob(Phase.RUNS)
    with closing(follow(job, "script")) as lines:
        assert next(lines) == "one"
    assert job.calls == ["submit script", "cancel"]


@pytest.mark.parametrize(
    ("phase", "final", "limit_s", "said"),
    [
        (Phase.OVER, False, None, "It has died"),
        (Phase.PENDING, True, None, "It waits"),
        (Phase.PENDING, False, 0, "not started after 0 s"),
    ],
)
def test_one_that_cannot_start_is_ended(
    phase: Phase, final: bool, limit_s: float | None, said: str
) -> None:
    job = PlayedJob(phase, final=final)
    job.start_timeout_s = limit_s
    with pytest.raises(MachineError, match=said):
        next(follow(job, "script"))
    assert job.calls == ["submit script", "cancel"]


def test_one_that_could_not_be_ended_is_said_beside_the_error() -> None:
    with pytest.raises(MachineError, match="It has died") as caught:
        next(follow(PlayedJob(Phase.OVER, remains=True), "script"))
    assert caught.value.__notes__ == ["It may still exist."]
    with pytest.raises(MachineError, match="may still exist"):
        [*follow(PlayedJob(Phase.RUNS, remains=True), "script")]
    left = follow(PlayedJob(Phase.RUNS, remains=True), "script")
    next(left)
    with pytest.raises(MachineError, match="may still exist"):
        left.close()
