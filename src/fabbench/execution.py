"""One execution of a run, while it is written: its folder in a run's directory (`fabbench.store`)."""

import json
import os
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from fabbench.counters import around
from fabbench.errors import MachineError
from fabbench.model import Ending, Log, Trial
from fabbench.redaction import redacted

FORMAT = 1
"""Number of the layout of a run directory."""
ENVIRONMENT_VARIABLE = "FABBENCH_STORE"


class ExecutionWriter:
    """One execution that is going on. A context manager, which closes its log."""

    def __init__(self, path: Path, counters: Path, trial: Trial) -> None:
        self.path = path
        self._counters = counters
        self._started = time.time()
        try:
            path.mkdir()
            write(path / "plan.json", redacted(asdict(trial)))
            self._log = self._opened()
        except OSError as error:
            raise unwritable(path, error) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._log)

    def _opened(self) -> int:
        return os.open(self.path / "output.log", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)

    def begin_anew(self) -> None:
        """Begin a new log: what the old one holds was interrupted, and is kept beside it."""
        earlier = len(list(self.path.glob("interrupted-*.log")))
        try:
            (self.path / "output.log").rename(self.path / f"interrupted-{earlier + 1}.log")
            os.close(self._log)
            self._log = self._opened()
        except OSError as error:
            raise unwritable(self.path / "output.log", error) from error

    def write(self, line: str) -> None:
        """Add a line to the log; when this returns, the line survives fabbench."""
        rest = line.encode("utf-8", "replace") + b"\n"
        try:
            while rest:
                rest = rest[os.write(self._log, rest) :]
        except OSError as error:
            raise unwritable(self.path / "output.log", error) from error

    def counters(self, counted: around.Around) -> None:
        """Write the NIC counters, in place of those written before."""
        try:
            # Without indentation: what 64 hosts count is long, and json is then ten times as fast.
            write(self._counters, around.document(counted), indent=None)
        except OSError as error:
            raise unwritable(self._counters, error) from error

    def finish(self, ending: Ending, logs: Sequence[Log]) -> None:
        """Write how the execution ended: from now on it counts as finished."""
        document = {
            "format": FORMAT,
            "started": self._started,
            "ended": time.time(),
            "ending": {**asdict(ending), "planned_sizes": list(ending.planned_sizes)},
            "outcomes": [{"outcome": log.outcome, "reason": log.reason} for log in logs],
        }
        try:
            os.fsync(self._log)
            write(self.path / "run.json", document)
        except OSError as error:
            raise unwritable(self.path / "run.json", error) from error


def write(path: Path, document: Any, *, indent: int | None = 1) -> None:
    """Write a file so that it is there whole, or not at all."""
    text = json.dumps(document, indent=indent, ensure_ascii=False, default=_plain) + "\n"
    unfinished = path.with_name(f".{path.name}.unfinished")
    with unfinished.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path)


def _plain(value: Any) -> Any:
    return sorted(value) if isinstance(value, set | frozenset) else str(value)


def unwritable(path: Path, error: OSError) -> MachineError:
    """Say that something of a run cannot be stored."""
    return MachineError(
        f"{path} cannot be written: {error.strerror or error}.",
        hint=f"Make room, or name another place with --store or {ENVIRONMENT_VARIABLE}.",
    )
