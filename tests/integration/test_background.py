"""Programs on this machine, started as on any other: from any thread, and ended with their stream."""

import threading

import pytest

from fabbench.model.errors import MachineError
from fabbench.remote.here import Here
from tests.support.hosts import processes


def test_a_program_has_an_input_and_two_outputs() -> None:
    found = []

    def run() -> None:
        found.append(Here("this machine").run(("sh", "-c", "cat; echo two >&2; printf three; exit 3"), stdin=b"one\n"))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(60)
    (done,) = found
    assert (done.status, done.out, done.err) == (3, ["one", "three"], ["two"])


def test_closing_ends_what_was_started() -> None:
    stream = Here("this machine").open(("sh", "-c", "echo $$; sleep 1000 & echo $!; wait"))
    lines = stream.lines()
    pids = [int(next(lines)), int(next(lines))]
    stream.close()
    assert processes.eventually(lambda: not any(map(processes.alive, pids)), 30)


def test_a_program_that_takes_too_long_is_ended() -> None:
    with pytest.raises(MachineError, match="timed out"):
        Here("this machine").run(("sleep", "1000"), timeout_s=0.5)
