"""What readers find: the records of findings.toml. Pure."""

from collections.abc import Mapping
from functools import cache

import msgspec

from fabbench.model import records
from fabbench.model.log import Finding, Severity


class Sentences(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a finding says: a record of findings.toml."""

    code: str
    meaning: str
    advice: str = ""
    of: str = ""
    severity: Severity = Severity.WARNING


@cache
def _known() -> Mapping[tuple[str, str], Sentences]:
    every = records.load("fabbench.benchmarks", "findings.toml", Sentences)
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
