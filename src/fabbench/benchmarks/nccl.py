"""nccl-tests (`all_reduce_perf` and its siblings): reads their text, v1.0 to 2.19.

Formats, by version, with the source lines they were read in: docs/formats.md.
"""

from collections.abc import Sequence
from typing import Final

from fabbench.benchmarks import Benchmark, Reading, Shortcut
from fabbench.benchmarks import nccl_text as text_of
from fabbench.benchmarks.nccl_run import Run
from fabbench.markers import Marker
from fabbench.model import Line, Record


class NcclReader:
    """Splits a stream group's lines into executions, and reads each."""

    def __init__(self) -> None:
        self._run: Run | None = None
        self._ghosts: list[Run] = []
        self._hint: str | None = None

    def feed(self, line: Line) -> Sequence[Reading] | None:
        """Read one line; None if it is nothing of nccl-tests."""
        headless = self._run is None
        if headless and not line.text[:1].isspace() and not line.text[:1].isdigit():
            return self._state(line)
        run = self._run or Run(self._hint)
        points, mine = run.row(line, headless=headless)
        if mine:
            self._run = run
            return points
        readings = self._state(line)
        return [*points, *(readings or ())] if points else readings

    def _state(self, line: Line) -> Sequence[Reading] | None:
        """Take in what a line states besides rows; it may begin another execution."""
        statement = text_of.read(line.text)
        if statement is None:
            self._hint = text_of.program(line.text) or self._hint
            return None
        out: list[Reading] = []
        run = self._run
        if run is not None and run.ended_by(line, statement):
            if run.headless_so_far:
                self._ghosts.append(run)
            else:
                out += self.close()
            self._run = None
        if self._run is None:
            self._run = Run(self._hint)
        self._run.state(line, statement)
        if self._ghosts:
            out += self._settle_ghosts()
        return out

    def _settle_ghosts(self) -> list[Record]:
        """Decide about banners without a table: other copies of one program, or runs that were cut short.

        Copies print all their banners, then all their headers.
        """
        run = self._run
        if run is None or not (run.copies or run.footers):
            return []
        ghosts, self._ghosts = self._ghosts, []
        if run.copies:
            for ghost in ghosts:
                run.adopt(ghost)
            return []
        return [ghost.finish() for ghost in ghosts]

    def shortcut(self, rank: str) -> Shortcut | None:
        """Give a quick way to read more rows of the table that is open."""
        return self._run.shortcut(rank) if self._run is not None else None

    def mark(self, marker: Marker) -> Sequence[Reading]:
        """Begin another execution at each step. How it ends is not known before the text does."""
        return self.close() if marker.kind == "begin" else ()

    def close(self) -> Sequence[Reading]:
        """Give the execution that is still open, and those before it that never came to a table."""
        out: list[Reading] = list(self._settle_ghosts())
        run, self._run = self._run, None
        ghosts, self._ghosts = self._ghosts, []
        out += [ghost.finish() for ghost in ghosts]
        if run is not None:
            out += run.flush()
            out.append(run.finish())
            self._hint = None
        return out


class Nccl:
    """The nccl-tests programs."""

    name: Final = "nccl"
    joins_groups: Final = False

    def reader(self) -> NcclReader:
        """Give a fresh reader."""
        return NcclReader()


BENCHMARK: Benchmark = Nccl()
