"""Log files as runs: each with its time and its figures, so that they have a history."""

from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING

from fabbench.logs.signs import Unread
from fabbench.model.patterns import lazy
from fabbench.runs.inputs import Source, read_source
from fabbench.runs.parse_file import open_log
from fabbench.runs.summary import FullSummary, figures_of, stated_versions

if TYPE_CHECKING:
    from fabbench.model.log import Log

_STAMPED = lazy(
    r"(?:^|\n)[\[(<]?(20\d\d-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?)"
    r"(?! [+-]\d)"
)
"""A line that begins with a date and a time, as loggers write them."""
_NAMED = lazy(r".*(?<!\d)(20\d\d-?\d\d-?\d\d(?:[T_-]\d\d:?\d\d(?::?\d\d)?Z?)?)(?!\d)")
"""A path with a date, with or without a time: of several the last one."""


def log_summaries(sources: Iterable[Source], left_out: list[Unread]) -> list[FullSummary]:
    """Return files as summaries of runs, the newest first; others are `left_out`, with the reason.

    Of one time the last that was named is the newest: names may have days alone, and copies are of
    one second. Their configurations are the transports that the logs show. Raise MachineError for
    what has no time: standard input and runs.
    """
    runs: list[FullSummary] = []
    for source in sources:
        logs: list[Log] = []
        for _, entry in read_source(source, tables=True):
            if isinstance(entry, Unread):
                left_out.append(entry)
            elif entry.outcome == "ok":
                logs.append(entry)
            else:
                left_out.append(Unread(source.name, f"{entry.outcome}, and left out", remark=True))
        if logs:
            created, dated = time_of(source.name)
            # Empty parts of the key: what the logs show takes their places.
            measured = tuple(figures_of(logs, {"benchmark": "", "case": "", "configuration": ""}))
            versions = stated_versions(logs)
            run = FullSummary(
                id=source.name,
                created=created,
                dated=dated,
                benchmark="",
                circumstances={each.configuration: versions for each in measured},
                measured=measured,
            )
            runs.append(run)
    return sorted(runs, key=attrgetter("created"))[::-1]


def time_of(name: str) -> tuple[str, str]:
    """Return when a log file was written, and what says so: `log`, `name` or `mtime`.

    The first line with a time counts. A time without a zone is taken as UTC.
    """
    with open_log(name) as file:
        text = file.read().decode("utf-8", "replace")
        moment = datetime.fromtimestamp(Path(name).stat().st_mtime, UTC)
        dated = "mtime"
    # A time in the log outranks one in its name, and that the file's.
    by_source = {"name": _NAMED.match(name), "log": _STAMPED.search(text)}
    for source, match in by_source.items():
        with suppress(ValueError):  # digits that are no time
            if match is not None:
                moment = datetime.fromisoformat(match[1])
                dated = source
    utc = moment.replace(tzinfo=moment.tzinfo or UTC).astimezone(UTC)
    return utc.strftime("%Y-%m-%dT%H:%M:%SZ"), dated
