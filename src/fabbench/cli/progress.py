"""A progress bar on stderr, where that is a terminal; nothing anywhere else."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_MANY = 16


@contextmanager
def files_progress(count: int) -> Iterator[Callable[[], None]]:
    """Show how many of `count` files have been read; gives what to call after each."""
    if count < _MANY or not sys.stderr.isatty():
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("reading"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("reading", total=count)
        yield lambda: progress.advance(task)
