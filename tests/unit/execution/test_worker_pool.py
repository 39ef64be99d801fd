"""Work done by threads at once: all of it, until it fails or somebody has had enough."""

import threading
from contextlib import closing

import pytest

from fabbench.execution.worker_pool import concurrently, map_hosts, require_all, succeeded
from fabbench.model.errors import MachineError


def test_everything_is_done_at_once() -> None:
    """Nobody gets on before all are there."""
    together = threading.Barrier(3, timeout=60)

    def work(item: int) -> int:
        together.wait()
        return item * 10

    found = dict(concurrently([1, 2, 3], work, threading.Event()))
    assert found == {1: 10, 2: 20, 3: 30}


def test_one_worker_does_all_of_it() -> None:
    found = concurrently([1, 2], lambda _: threading.current_thread().name, threading.Event(), 1)
    assert list(found) == [(1, "fabbench part 0"), (2, "fabbench part 0")]


def test_a_failure_is_raised_where_results_are_asked_for() -> None:
    ended = threading.Event()

    def work(item: int) -> int:
        if item == 1:
            raise MachineError("The disk is full.")
        ended.wait(60)
        return item

    with pytest.raises(MachineError, match="disk is full"):
        list(concurrently([1, 2], work, ended))
    assert ended.is_set()


def test_leaving_it_ends_what_goes_on_before_it_returns() -> None:
    ended, left = threading.Event(), []

    def work(item: int) -> int:
        if item:
            ended.wait(60)
            left.append(item)
        return item

    with closing(concurrently([0, 1, 2], work, ended)) as results:
        assert next(results) == (0, 0)
    assert sorted(left) == [1, 2]


def test_an_interrupt_in_the_consumer_ends_it_too() -> None:
    ended = threading.Event()

    def interrupted() -> None:
        with closing(concurrently([0, 1], lambda item: item or ended.wait(60), ended)) as results:
            next(results)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert ended.is_set()


def test_results_and_errors_of_hosts_are_told_apart() -> None:
    def work(item: int) -> int:
        if item == 2:
            raise MachineError("The disk is full.", hint="Free some space.")
        return item * 10

    results = map_hosts({"a": 1, "b": 2, "c": 3}, work)
    assert succeeded(results) == {"a": 10, "c": 30}
    with pytest.raises(MachineError, match="disk is full") as caught:
        require_all(results)
    assert caught.value.hint == "Free some space."
