"""An interrupt within paramiko: short calls end first; a call that waits is left to its thread."""

import signal
import threading
import time
from collections.abc import Iterator
from types import FrameType

import pytest

from fabbench.remote.paramiko_library import apart, uninterrupted


@pytest.fixture(autouse=True)
def interruptible() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_a_signal_waits_for_the_end_of_the_outermost_block() -> None:
    done = []
    with pytest.raises(KeyboardInterrupt), uninterrupted():  # noqa: PT012 - what the block does is the test
        with uninterrupted():
            signal.raise_signal(signal.SIGINT)
            done.append("within")
        done.append("without")
    assert done == ["within", "without"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize("error", [TimeoutError("no answer"), ValueError("no")])
def test_what_another_thread_returns_or_raises_comes_through(error: Exception) -> None:
    def fail() -> None:
        raise error

    assert apart(threading.current_thread) is not threading.main_thread()
    with pytest.raises(type(error)) as caught:
        apart(fail)
    assert caught.value is error


def test_an_interrupt_ends_the_waiting_and_not_the_call() -> None:
    begun, go, ended = threading.Event(), threading.Event(), threading.Event()

    def call() -> None:
        begun.set()
        go.wait(60)
        ended.set()

    def interrupt() -> None:
        begun.wait(60)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        apart(call)
    assert not ended.is_set()
    go.set()
    assert ended.wait(60)


def test_other_threads_call_directly_and_change_no_handler() -> None:
    seen: list[object] = []

    def other() -> None:
        with uninterrupted():
            seen.append(signal.getsignal(signal.SIGINT))
        seen.append(apart(threading.current_thread))

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert seen == [signal.default_int_handler, thread]


def test_a_signal_of_a_time_does_not_cut_the_waiting_short() -> None:
    """The live screen's clock ticks meanwhile."""
    ticks: list[int] = []

    def tick(number: int, frame: FrameType | None) -> None:
        del frame
        ticks.append(number)

    before = signal.signal(signal.SIGALRM, tick)
    signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
    try:
        apart(lambda: time.sleep(0.1))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert ticks
