"""What goes wrong: the lines that show it, what each means, what to do, and what would decide. Pure.

`causes.txt` has one entry per cause. Its first line: the code and its marks (a severity; `effect`: it follows from
another cause; `remark`: it explains nothing; `told`: looked for in the reason of a failure alone, not in every line;
`counted`: made of counters or figures, and says itself what it means); then, after a colon, texts of which a line must
have one. Below: lines that show it (:), patterns (indented), what it means (=), what to do (>), a fact that contradicts
it (!), a command that would decide (?), and the source (@).
`#` begins a comment.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.resources import files
from typing import NamedTuple

from fabbench.model.log import Finding, Log, Severity
from fabbench.model.messages import LONGEST_QUOTE
from fabbench.model.patterns import lazy


@dataclass(frozen=True, slots=True)
class KnownError:
    """One cause."""

    code: str
    marks: frozenset[str]
    words: tuple[str, ...]
    """Every line that the pattern matches contains one of these, so they are searched for first."""
    pattern: re.Pattern[str]
    meaning: str
    advice: str
    against: tuple[str, str]
    """A fact, and the values of it that contradict the cause, divided by `|`."""
    decide: str
    source: str
    examples: tuple[str, ...]

    @property
    def severity(self) -> Severity:
        """A warning, if none is stated; what a failure tells is an error."""
        if "told" in self.marks:
            return Severity.ERROR
        return next((each for each in Severity if each.value in self.marks), Severity.WARNING)

    def finding(self, line: str, **words: object) -> Finding:
        """Return the finding for a line; `words` fill in the texts."""
        meaning, advice = (text.format(**words) if words else text for text in (self.meaning, self.advice))
        quote = line.strip()[:LONGEST_QUOTE]
        return Finding(code=self.code, severity=self.severity, meaning=meaning, line=quote, advice=advice)


def _errors() -> Iterator[KnownError]:
    """Yield the entries of the file."""
    text = (files("fabbench.evidence") / "causes.txt").read_text("utf-8")
    for block in re.split(r"\n(?=\w)", re.sub(r"^#.*\n", "", text, flags=re.MULTILINE).strip()):
        head, *lines = block.split("\n")
        name, _, words = head.partition(":")
        code, *marks = name.split(", ")
        texts = tuple(words.strip().split(" | ")) if words else ()
        said = {sign: [line[4:] for line in lines if line[:4] == sign] for sign in _SIGNS}
        examples, patterns, *others = said.values()
        meaning, advice, against, decide, source = map(" ".join, others)
        fact, _, values = against.partition(" ")
        pattern = lazy("|".join(patterns or map(re.escape, texts)))
        facts = (fact, values)
        yield KnownError(
            code, frozenset(marks), texts, pattern, meaning, advice, facts, decide, source, tuple(examples)
        )


_SIGNS = ("  : ", "    ", "  = ", "  > ", "  ! ", "  ? ", "  @ ")
BY_CODE = {error.code: error for error in _errors()}
"""Every entry, in the order of the file."""
_TOLD = tuple(error for error in BY_CODE.values() if "told" in error.marks)
_SHOWN = tuple(error for error in BY_CODE.values() if error.words and error not in _TOLD)


def finding(code: str, line: str = "", **words: object) -> Finding:
    """Return a finding of the table; `words` fill in its texts."""
    return BY_CODE[code].finding(line, **words)


def told(failures: Iterable[str]) -> Iterator[Finding]:
    """Yield what the reasons of a failure, as programs state them, show."""
    for text in failures:
        yield from (error.finding(text) for error in matching_errors(text))
        yield from (error.finding(text) for error in _TOLD if error.pattern.search(text))


PLUGIN_FAILED = lazy(
    r"No eligible providers|initialization failed|Initializing plugin failed"
    r"|Failed to initialize (?!NET plugin (?:IB|Socket)\b)|Unable to find a protocol"
)
"""Printed when the network plugin gives up, but also once per protocol it tries in healthy runs."""

NOT_THE_NETWORK = lazy(r"\bGIN\b|\bgin:")
"""GPU-initiated networking, which NCCL 2.29+ tries besides the network: healthy runs have none."""

HARMLESS = lazy(
    r"GIN only supports RDMA|Failed to initialize any GIN plugin|Finalizing already finalized"
    r"|Failed to open libibverbs|TUNER/Plugin|PROFILER/Plugin"
)
"""Warnings that healthy runs print too."""


def matching_errors(text: str) -> Iterator[KnownError]:
    """Yield the known errors that a line shows; usually none."""
    for error in _SHOWN:
        for word in error.words:
            if word in text:
                if error.pattern.search(text):
                    yield error
                break


_STATUS = lazy(r"(?:\[exit status: (\d{1,9})\]|# exit status: (\d{1,9}))")


def exit_status(text: str) -> int | None:
    """Parse a line with the exit status of the output recorded above it; None for any other line."""
    match = _STATUS.fullmatch(text.strip()) if "exit status: " in text else None
    return int(match[1] or match[2]) if match else None


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
    effects = {code for code, error in BY_CODE.items() if "effect" in error.marks}
    found.sort(key=lambda cause: (_RANKS.index(cause.found.severity), cause.found.code in effects, bool(cause.against)))
    others = [each for each in log.findings if each not in explaining]
    return found, sorted(others, key=lambda each: _RANKS.index(each.severity))


def _against(log: Log, code: str) -> str:
    fact, values = BY_CODE[code].against
    if not fact or str(log.facts.get(fact, "")) not in values.split("|"):
        return ""
    return " ".join(filter(None, (f"{fact} {log.facts[fact]}", log.evidence.get(fact, "").strip()[:120])))
