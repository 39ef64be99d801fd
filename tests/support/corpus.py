"""Every log of the repository, and what it is read as.

One golden file, whose changes are reviewed as a diff.

`python -m tests.support.corpus` rewrites it.
"""

import json
import re
from collections.abc import Iterator, Sequence
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any
from unittest.mock import patch

from fabbench.evidence.judge import judge
from fabbench.logs import parser
from fabbench.model.errors import RequestError
from fabbench.model.log import Log, Point, Proof, Record
from fabbench.runs import parse_file
from tests.support.paths import DATA, EXAMPLES, LOGS, ROOT

CORPUS = DATA / "corpus"
"""The smallest log of each thing that readers must know. Their folders are benchmarks."""
GOLDEN = DATA / "corpus.json"
FOLDERS = (
    CORPUS,
    LOGS,
    DATA / "verdicts",
    DATA / "mpirun",
    EXAMPLES / "logs",
    EXAMPLES / "pair-logs",
)
FABRICS = ("efa", "ib", "roce", "tcp", "ofi-tcp", "cxi", "shm", "p2p")
_SHOWN = 8
"""Logs of more points show the first and the last of them; the hash is of all."""


def paths() -> list[Path]:
    """Return the log files."""
    files = (path for folder in FOLDERS for path in folder.rglob("*") if path.is_file())
    return sorted(path for path in files if path.name != "README.md")


def name_of(path: Path) -> str:
    """Return the name of a log file in the golden file."""
    return path.relative_to(ROOT).as_posix()


@cache
def recorded() -> dict[str, list[dict[str, Any]]]:
    """Return log file → what each log in it is read as, as the golden file has it."""
    known: dict[str, list[dict[str, Any]]] = json.loads(GOLDEN.read_text())
    return known


def golden() -> dict[str, list[str]]:
    """Return log file → a line per log in it, as the golden file has it."""
    return {name: [_line(log) for log in logs] for name, logs in recorded().items()}


def read_as(path: Path) -> list[str]:
    """Return a line per log of a file.

    What it is read as now, and its outcome where a fabric was requested.
    """
    outcomes: dict[int, dict[str, str]] = {}

    def judged(record: Record, **given: Any) -> Log:
        log = judge(record, **given)
        outcomes[id(log)] = {fabric: _outcome(record, fabric) for fabric in FABRICS}
        return log

    with patch.object(parser, "judge", judged), patch.object(parse_file, "judge", judged):
        logs = list(parse_file.parse_file(path))
    return [_line(_record(log, outcomes[id(log)])) for log in logs]


def _outcome(record: Record, fabric: str) -> str:
    try:
        return str(judge(record, source="", proof=Proof(fabric=fabric)).outcome)
    except RequestError:
        return "refused"


def _record(log: Log, asked: dict[str, str]) -> dict[str, Any]:
    by_outcome: dict[str, list[str]] = {}
    for fabric, outcome in asked.items():
        by_outcome.setdefault(outcome, []).append(fabric)
    points = [_shown(point) for point in log.points]
    record = {
        "benchmark": log.benchmark,
        "case": log.case,
        "outcome": log.outcome,
        "reason": log.reason,
        "also": sorted(log.also),
        "asked": {outcome: " ".join(fabrics) for outcome, fabrics in by_outcome.items()},
        "facts": dict(sorted(log.facts.items())),
        "evidence": {fact: line[:80] for fact, line in sorted(log.evidence.items())},
        "hosts": sorted(log.hosts),
        "execution": log.execution,
        "findings": [
            _finding(finding.code, finding.severity, finding.meaning) for finding in log.findings
        ],
        "damaged": [row.line for row in log.damaged],
        "points": len(points),
        "hash": sha256("\n".join(points).encode()).hexdigest()[:12] if points else "",
        "values": points if len(points) <= _SHOWN else [points[0], points[-1]],
    }
    return {name: value for name, value in record.items() if value not in ([], {}, "")}


def _finding(code: str, severity: str, meaning: str) -> str:
    """Return a finding without its wording.

    Its code, its severity, and the figures and units in it.
    """
    return " ".join(
        (
            code,
            severity,
            *re.findall(r"(?<![\w.])\d[\w.]*(?: [kMGT]?B\b| %)?|\b[A-Za-z]+/s(?:ec)?\b", meaning),
        )
    )


def _shown(point: Point) -> str:
    labels = (f"{name}={value}" for name, value in sorted(point.labels.items()))
    values = (
        f"{metric} {value!r}" for metric, value in zip(point.metrics, point.values, strict=True)
    )
    return " ".join((str(point.size), *labels, *values))


def _line(record: dict[str, Any]) -> str:
    return json.dumps(record, ensure_ascii=False)


def _written(lines: dict[str, Sequence[str]]) -> Iterator[str]:
    yield "{"
    last = len(lines) - 1
    for number, (name, logs) in enumerate(lines.items()):
        comma = "," if number < last else ""
        if len(logs) < 2:
            yield f"{json.dumps(name)}: [{''.join(logs)}]{comma}"
            continue
        yield f"{json.dumps(name)}: ["
        yield ",\n".join(f"  {log}" for log in logs)
        yield f"]{comma}"
    yield "}\n"


def main() -> None:
    """Rewrite the golden file."""
    GOLDEN.write_text("\n".join(_written({name_of(path): read_as(path) for path in paths()})))


if __name__ == "__main__":
    main()
