"""What fabbench reads in directories of logs: a line per log or file, and totals.

It stops at no file.

`make score FOLDER=…` runs it. Each line has the outcome, the rows read and damaged, what was run,
and the reason. A file that fabbench fails on is `fault`, one that gave no result `unread`.
"""

import sys
from collections import Counter
from collections.abc import Iterator, Sequence

from fabbench.model.log import Log
from fabbench.model.messages import counted, one_line
from fabbench.runs.inputs import Source, expand, read_source


def entries(source: Source) -> Iterator[tuple[str, int, int, str, str]]:
    """Yield the outcome, rows, damaged rows, benchmark and reason of each log of a file."""
    try:
        for _, found in read_source(source):
            if isinstance(found, Log):
                name = found.case or found.benchmark or "no benchmark"
                yield (
                    found.outcome.value,
                    len(found.points),
                    len(found.damaged),
                    name,
                    found.reason or "",
                )
            else:
                yield "unread", 0, 0, "-", found.reason
    except Exception as error:  # noqa: BLE001 - the next file may be read
        yield "fault", 0, 0, "-", f"{type(error).__name__}: {error}"


def main(folders: Sequence[str]) -> int:
    """Print a line for each log; return 1 if fabbench failed on a file."""
    outcomes, rows, lost, empty = Counter[str](), 0, 0, 0
    sources = list(expand(folders))
    for source in sources:
        silent = True
        for outcome, points, damaged, name, reason in entries(source):
            silent = False
            outcomes[outcome] += 1
            rows, lost = rows + points, lost + damaged
            print(one_line(f"{outcome} {points} {damaged} {name} {source.name} {reason}"))
        empty += silent
    summary = ", ".join(f"{outcome} {count}" for outcome, count in outcomes.most_common())
    print(f"{counted(len(sources), 'file')}, {empty} without a benchmark: {summary or 'no logs'}")
    print(f"{counted(rows, 'point')}, {counted(lost, 'damaged row')}")
    return 1 if outcomes["fault"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
