"""Real runs on this machine, for tests: start them, and see that nothing of them is left."""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from fabbench.cli import cli
from fabbench.runs.store import StoredRun, runs
from tests.support.command_line import runner
from tests.support.hosts import processes

ROW = re.compile(r"\[fabbench:(server|client)\] (\d[\d.]*[kmg]? .*\d)")
QUICK = ("--iterations", "10")
alive, eventually = processes.alive, processes.eventually


def environment(store: Path) -> dict[str, str]:
    """An environment that also marks every program of a run: they inherit it."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("FABBENCH_")}
    own = {"FABBENCH_STORE": str(store), "FABBENCH_NEIGHBORS": "ignore", "COLUMNS": "200"}
    return {**kept, **own}


def argv(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "fabbench", *arguments]


def fabbench(store: Path, *arguments: str, **options: str) -> "subprocess.CompletedProcess[str]":
    """Run a command to its end, in this process: neither signals nor streams matter to it."""
    done = runner({**environment(store), **options}).invoke(cli, arguments)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return subprocess.CompletedProcess(arguments, done.exit_code, done.stdout, done.stderr)


def pingpong(store: Path, *arguments: str, **options: str) -> subprocess.CompletedProcess[str]:
    return fabbench(store, "run", "pingpong", "--on", "local", *arguments, **options)


def start(
    store: Path, arguments: Sequence[str], *, before: Callable[[], None] | None = None
) -> "subprocess.Popen[str]":
    """Start a run that goes on until something happens to it; `before` is called in its process."""
    return start_program(store, ("run", "pingpong", "--on", "local", *arguments), before=before)


def start_program(
    store: Path, arguments: Sequence[str], *, before: Callable[[], None] | None = None
) -> "subprocess.Popen[str]":
    """Start fabbench; `before` is called in its process."""
    return subprocess.Popen(
        argv(*arguments),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(store),
        preexec_fn=before,  # noqa: PLW1509 - the tests have no threads of their own
    )


def programs(store: Path) -> Iterator[tuple[int, str]]:
    """The running programs that were started for a store: process id and command line."""
    mark = f"FABBENCH_STORE={store}".encode()
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if alive(int(path.name)) and mark in (path / "environ").read_bytes().split(b"\0"):
                yield int(path.name), (path / "cmdline").read_text().replace("\0", " ")
        except OSError:
            continue


def nothing_left(store: Path) -> bool:
    return eventually(lambda: not list(programs(store)))


def output(store: Path) -> str:
    """The logs of all executions of a store so far."""
    return "".join(
        path.read_text(errors="replace") for path in sorted(store.glob("*/exec/*/output.log"))
    )


def rows(store: Path) -> list[str]:
    """The rows in the logs, found without fabbench's parser."""
    return [match[2] for line in output(store).splitlines() if (match := ROW.fullmatch(line))]


def the_run(store: Path) -> StoredRun:
    (path,) = runs(store)
    return StoredRun(path)


def client(run: "subprocess.Popen[str]", store: Path, size: int) -> int:
    """The process id of the client that measures a size, once it is there."""
    found: list[int] = []

    def look() -> bool:
        words = [
            (pid, line)
            for pid, line in programs(store)
            if line.partition(" ")[0].endswith("fi_pingpong")
        ]
        found[:] = [pid for pid, line in words if f"-S {size} " in line and "127.0.0.1" in line]
        return bool(found) or run.poll() is not None

    assert eventually(look)
    assert found, run.communicate()
    return found[0]
