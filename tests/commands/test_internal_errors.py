"""Failures of threads and finalizers: those of the program end it with 70, others do not."""

import gc
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import click
import pytest
from click.testing import Result

from fabbench.cli import Commands, cli
from tests.support.command_line import runner

PROGRAM = """
import threading
import click
import fabbench.cli
from fabbench.__main__ import main

class Finalized:
    def __del__(self):
        int("x")

def thread():
    started = threading.Thread(target=lambda: int("x"))
    started.start()
    started.join()

def finalizer():
    Finalized()

def interrupt():
    thread()
    raise KeyboardInterrupt

fabbench.cli.cli.loaded = lambda _, name: click.Command(name, callback=globals()[name])
main()
"""


@pytest.mark.parametrize(
    ("failing", "status"), [("thread", 70), ("finalizer", 70), ("interrupt", 130)]
)
def test_what_fails_elsewhere_in_the_program_is_no_success(failing: str, status: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, failing], capture_output=True, text=True, check=False
    )
    assert done.returncode == status
    assert "Internal error: ValueError" in done.stderr


def command(work: Callable[[], object]) -> Result:
    """Call something as a command in this process."""

    class Group(Commands):
        def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command:
            del ctx
            return click.Command(cmd_name, callback=work)

    return runner().invoke(Group(name="fabbench", callback=cli.callback), ["do"])


def test_a_thread_from_before_a_command_is_not_its_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    failures: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", failures.append)
    begun = threading.Event()

    def work() -> None:
        begun.wait()
        raise ValueError("of an earlier command")

    thread = threading.Thread(target=work)
    thread.start()

    def go_on() -> None:
        begun.set()
        thread.join()

    done = command(go_on)
    assert (done.exit_code, done.stderr) == (0, "")
    assert [each.exc_type for each in failures] == [ValueError]


class Garbage:
    """Only the collector finds it, and its finalizer fails."""

    def __init__(self) -> None:
        self.itself = self

    def __del__(self) -> None:
        raise ValueError("of an earlier command")


def test_garbage_from_before_a_command_is_not_its_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    failures: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", failures.append)
    Garbage()
    done = command(gc.collect)
    assert (done.exit_code, done.stderr) == (0, "")
    assert [each.exc_type for each in failures] == [ValueError]
