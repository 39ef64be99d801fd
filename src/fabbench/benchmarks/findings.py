"""What readers find: the records of findings.toml. Pure."""

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING

from fabbench.model.log import Finding

if TYPE_CHECKING:
    from fabbench.model.benchmark_records import FindingText


@cache
def _known() -> Mapping[tuple[str, str], "FindingText"]:
    """Return code and what it is of → what a finding says."""
    from fabbench.model import records
    from fabbench.model.benchmark_records import FindingText

    every = records.load("fabbench.benchmarks", "findings.toml", FindingText)
    return {(each.code, each.of): each for each in every}


def finding(code: str, of: str = "", /, line: str = "", **values: object) -> Finding:
    """Return a finding by its code, and by what it is of if several have it.

    `line` shows it; `values` fill in its sentences.
    """
    said = _known()[code, of]
    return Finding(
        code=code,
        severity=said.severity,
        meaning=said.meaning.format(**values),
        line=line,
        advice=said.advice.format(**values),
    )
