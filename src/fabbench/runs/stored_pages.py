"""Stored runs → the sections of a report, on all cores where they are many."""

import os
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from fabbench.benchmarks import benchmarks
from fabbench.report.page import RunSection, run_section
from fabbench.runs.processes import processes
from fabbench.runs.store import StoredRun
from fabbench.runs.stored_results import run_page
from fabbench.runs.sweep_page import sweep_page
from fabbench.runs.sweep_store import is_sweep

_FEW = 16
"""So many runs are written in less time than processes take to start."""
_TOGETHER = 8
MANY = 100
"""Of more runs a page has one metric each: browsers would take long to open it."""
BRIEF = f"Of more than {MANY} runs one metric each is shown, the usual one or that of --metric."


class StoredSection(NamedTuple):
    """A run as a section, and what is to be said of it besides."""

    section: RunSection
    path: Path
    damage: Sequence[str]
    measured: bool
    """Whether any of it has a log."""


def stored_sections(
    runs: Sequence[Path], metric: str | None = None, *, cores: int | None = None
) -> Iterator[StoredSection]:
    """Yield the sections of runs in order."""
    count = cores or os.cpu_count() or 1
    written = partial(_section, metric, len(runs) > MANY)
    numbers = range(1, len(runs) + 1)
    if count < 2 or len(runs) <= _FEW:
        yield from map(written, runs, numbers)
        return
    benchmarks()  # before there are copies of this process
    with processes(count) as pool:
        yield from pool.map(written, runs, numbers, chunksize=_TOGETHER)


def _section(metric: str | None, brief: bool, path: Path, number: int) -> StoredSection:  # noqa: FBT001 - partial
    run = StoredRun(path)
    if is_sweep(path):
        page = sweep_page(run)
        return StoredSection(run_section(page, number), path, page.damage, page.sweep is not None)
    section = run_section(run_page(run, metric, brief=brief), number)
    measured = any(execution.logs for execution in run.executions)
    return StoredSection(section, path, run.damage, measured)
