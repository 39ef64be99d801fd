"""Findings of one log → what explains its outcome or its figures, the most likely first. Pure."""

from collections.abc import Sequence
from typing import NamedTuple

from fabbench.evidence.known_errors import BY_CODE
from fabbench.model.log import Finding, Log, Severity

_RANKS = (Severity.ERROR, Severity.WARNING, Severity.NOTE)


class Cause(NamedTuple):
    """A finding that explains, with what speaks against it."""

    found: Finding
    against: str
    """The fact that contradicts it, with its line if there is one; empty: nothing does."""
    decide: str
    """A command that would decide; empty: none is known."""


def causes(log: Log) -> tuple[list[Cause], list[Finding]]:
    """Return the causes that a log shows, the most likely first, and its other findings.

    Errors come before warnings, what starts a failure before what follows from one, what nothing contradicts before
    what something does, and of the others the one that was printed first.
    """
    explaining = [each for each in log.findings if each.code in BY_CODE and "remark" not in BY_CODE[each.code].marks]
    found = [Cause(each, _against(log, each.code), BY_CODE[each.code].decide) for each in explaining]
    found.sort(key=lambda cause: (_RANKS.index(cause.found.severity), _follows(cause), bool(cause.against)))
    return found, _by_severity([each for each in log.findings if each not in explaining])


def _follows(cause: Cause) -> bool:
    return "effect" in BY_CODE[cause.found.code].marks


def _by_severity(findings: Sequence[Finding]) -> list[Finding]:
    return sorted(findings, key=lambda each: _RANKS.index(each.severity))


def _against(log: Log, code: str) -> str:
    fact, values = BY_CODE[code].against
    if not fact or str(log.facts.get(fact, "")) not in values.split("|"):
        return ""
    return " ".join(filter(None, (f"{fact} {log.facts[fact]}", log.evidence.get(fact, "").strip()[:120])))
