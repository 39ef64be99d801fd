"""Log files as runs: each with its time and its figures, so that they have a history."""

from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime
from operator import attrgetter
from pathlib import Path

from fabbench.logs.signs import Unread
from fabbench.model.errors import RequestError
from fabbench.model.log import Log
from fabbench.model.patterns import lazy
from fabbench.runs.inputs import Source, read_source
from fabbench.runs.parse_file import open_log
from fabbench.runs.summary import FullSummary, figures_of, stated_versions

_STAMPED = lazy(
    r"(?:^|\n)[\[(<]?(20\d\d-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?)"
    r"(?! [+-]\d)"
)
"""A line that begins with a date and a time, as loggers write them."""
_NAMED = lazy(r".*(?<!\d)(20\d\d-?\d\d-?\d\d(?:[T_-]\d\d:?\d\d(?::?\d\d)?Z?)?)(?!\d)")
"""A path with a date, with or without a time: of several the last one."""


def log_summaries(sources: Iterable[Source], left_out: list[Unread]) -> list[FullSummary]:
    """Return files as summaries of runs, the newest first; others are `left_out`, with the reason.

    Raise RequestError for what is no file: it has no time.
    """
    runs: list[FullSummary] = []
    for source in sources:
        name = source.name
        if source.run or name == "-":
            raise RequestError(
                f"{name} is not a log file.",
                hint="Leave LOG out for the runs of a store, and give files or folders of others.",
            )
        logs: list[Log] = []
        for _, entry in read_source(source, tables=True):
            if isinstance(entry, Unread):
                left_out.append(entry)
            elif entry.outcome == "ok":
                logs.append(entry)
            else:
                left_out.append(Unread(name, f"{entry.outcome}, and left out", remark=True))
        if logs:
            runs.append(_summary(name, logs))
    return sorted(runs, key=attrgetter("created"), reverse=True)


def _summary(name: str, logs: list[Log]) -> FullSummary:
    """Return a file as a run, whose configurations are the transports that its logs show."""
    about = {"benchmark": "", "case": "", "configuration": "", "type": logs[0].instance_type}
    measured = tuple(figures_of(logs, about))
    moment, dated = time_of(name)
    return FullSummary(
        id=name,
        created=moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        benchmark="",
        circumstances=dict.fromkeys(
            (each.configuration for each in measured), stated_versions(logs)
        ),
        measured=measured,
        dated=dated,
    )


def time_of(name: str) -> tuple[datetime, str]:
    """Return when a log file was written, and what says so: `log`, `name` or `mtime`.

    The first line with a time counts. A time without a zone is taken as UTC.
    """
    with open_log(name) as file:
        text = file.read().decode("utf-8", "replace")
    for dated, match in (("log", _STAMPED.search(text)), ("name", _NAMED.match(name))):
        with suppress(ValueError):  # digits that are no time
            if match is not None:
                moment = datetime.fromisoformat(match[1])
                return moment.replace(tzinfo=moment.tzinfo or UTC), dated
    return datetime.fromtimestamp(Path(name).stat().st_mtime, UTC), "mtime"
