"""Why something on Kubernetes did not work, in one or two sentences and with advice. Pure."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Why a pod does not run, or what ended it."""

    code: str
    """One word or two for programs: `insufficient`, `image`, `quota`, `oom-killed`, …"""
    text: str
    """One or two sentences, with the cluster's own words where they say more."""
    advice: str
    """What to do next."""
    final: bool = True
    """Whether waiting does not help."""

    def __str__(self) -> str:
        return f"{self.text} {self.advice}"


class Words(NamedTuple):
    """Words of Kubernetes, and what they mean. ``{name}`` in the texts is a group of the pattern."""

    pattern: re.Pattern[str]
    code: str
    text: str
    advice: str
    final: bool = True


def words(pattern: str, code: str, text: str, advice: str, *, final: bool = True) -> Words:
    """Make an entry of a table."""
    return Words(re.compile(pattern, re.IGNORECASE | re.DOTALL), code, text, advice, final)


def first(table: Iterable[Words], said: str, **known: str) -> Explanation | None:
    """Find the first entry whose pattern is in what was said; `known` fills other braces."""
    for entry in table:
        if match := entry.pattern.search(said):
            found = {name: text or "" for name, text in match.groupdict().items()}
            filled = {"said": brief(said), **known, **found}
            return Explanation(
                code=entry.code,
                text=entry.text.format(**filled),
                advice=entry.advice.format(**filled),
                final=entry.final,
            )
    return None


def brief(said: str, most: int = 300) -> str:
    """Give somebody's words on one line, without the full stop; the middle of long ones is left out.

    Errors of Kubernetes begin with what was tried, and end with the cause.
    """
    line = " ".join(said.split()).rstrip(".")
    half = most // 2
    return line if len(line) <= most else f"{line[:half].rstrip()} … {line[-half:].lstrip()}"
