"""Runs over ssh to which something happens while they go on."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from subprocess import Popen

from fabbench.model.log import Log
from tests.support.host_fixtures import standin
from tests.support.hosts import Lab
from tests.support.running import Running
from tests.support.ssh_runs import STORE, nccl, the_log

ROW = re.compile(r"^(?:\[1,0\]<stdout>: ?|0: )?\s+(\d+)\s+\d+\s+float\s+sum\s", re.MULTILINE)
SIZES = [8, 16, 32, 64, 128, 256, 512, 1024]
SLOW = ("--no-efa", "-e", "1K", "--repeat", "1")
"""Eight rows; how long each takes the lab says."""


class RunningCommand(Running):
    """A run that goes on."""

    def __init__(self, lab: Lab, process: Popen[str]) -> None:
        super().__init__(process)
        self.lab = lab

    def text(self) -> str:
        """What its logs hold so far."""
        folder = self.lab.path(STORE)
        logs = sorted(folder.glob("*/exec/*/output.log"))
        return "".join(path.read_text(errors="replace") for path in logs)

    def rows(self) -> list[int]:
        """The sizes of the rows in its logs, found without fabbench's parser."""
        return [int(size) for size in ROW.findall(self.text())]

    def until_rows(self, count: int = 2) -> None:
        """Wait until it has so many rows."""
        self.until(lambda: len(self.rows()) >= count)

    def until_behind(self) -> None:
        """Wait until the ranks are two rows further than its logs.

        The stand-in says at which size it is.
        """
        places = self.lab[0].path("/var/tmp")
        self.until(
            lambda: any(
                int(_text(path)) > 4 * self.rows()[-1] for path in places.glob("standin-*/progress")
            )
        )


@contextmanager
def running(lab: Lab, words: Sequence[str]) -> Iterator[RunningCommand]:
    """Start fabbench on the client."""
    lab.run(["rm", "-rf", STORE])
    with lab.popen(list(words)) as process:
        try:
            yield RunningCommand(lab, process)
        finally:
            process.kill()


@contextmanager
def slow_run(lab: Lab, *more: str, row_s: float = 0.5, rows: int = 2) -> Iterator[RunningCommand]:
    """Start nccl's stand-in on all hosts, and wait for some of its rows."""
    with standin(*lab.hosts, ROW_S=row_s), running(lab, nccl(lab, *SLOW, *more)) as run:
        run.until_rows(rows)
        yield run


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else "0"


def sizes(log: Log) -> list[int]:
    """The sizes of a log's rows, in order."""
    return list(dict.fromkeys(point.size for point in log.points))


def tcp(lab: Lab) -> Log:
    """What became of the newest run's only configuration."""
    return the_log(lab, "tcp")
