"""Programs that are started from any thread, and end with whoever started them."""

import os
import threading

from fabbench.execution.background import BackgroundStream
from tests.support.hosts import processes


def test_a_stream_has_both_outputs_and_its_input() -> None:
    found: list[str] = []

    def follow() -> None:
        stream = BackgroundStream(["sh", "-c", "cat; echo two >&2; printf three"], b"one\n")
        found.extend(stream.lines())
        stream.close()

    thread = threading.Thread(target=follow)
    thread.start()
    thread.join(60)
    assert found == ["one", "two", "three"]


def test_closing_ends_what_was_started() -> None:
    stream = BackgroundStream(["sh", "-c", "echo $$; sleep 1000 & echo $!; wait"])
    lines = stream.lines()
    pids = [int(next(lines)), int(next(lines))]
    stream.close()
    assert processes.eventually(lambda: not any(map(processes.alive, pids)), 30)
    assert list(lines) == []
    assert os.getpid() not in pids
