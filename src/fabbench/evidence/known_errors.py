"""What goes wrong: what programs print when a run dies, and the lines that show why. Pure.

`fatal.toml` is one table for all benchmarks and launchers, and stands before them: a line that it
knows is no row, and a run with one is never ok, wherever the line stands.

`causes.toml` has what single lines show, and what to do: a record for each cause. Its marks
`hardware` and `infrastructure` say what has to be mended; else it is software.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import cache, lru_cache
from operator import itemgetter
from types import MappingProxyType
from typing import Literal, NamedTuple

import msgspec

from fabbench.evidence.first_error import kind_of_error
from fabbench.model import records
from fabbench.model.errors import Fault, gravest
from fabbench.model.literals import Index, required_literals
from fabbench.model.log import Facts, Finding, Log, Outcome, Severity, fact_text
from fabbench.model.mappings import ValueT
from fabbench.model.messages import quoted, single_spaced
from fabbench.model.patterns import Match, expand, lazy


class Kind(IntEnum):
    """What a text says about a run. Of several, the first in this order is the reason."""

    TIMEOUT = 0
    """A time limit ended it."""
    KILLED = 1
    """A signal, the kernel or the batch system ended it.

    A benchmark's own errors follow from that.
    """
    DIED = 2
    """A library or a launcher ended it: a benchmark's own error says more."""
    NOT_STARTED = 3
    """Nothing was started: tables that follow are of other runs."""
    SHELL = 4
    """A shell did not find a program, which need not be the benchmark.

    It counts if nothing was measured.
    """
    STATUS = 5
    """It ended with an error; why is not said."""


_KINDS = {kind.name.lower().replace("_", " "): kind for kind in Kind}
_NAMES = {
    "MPIRUN": r"(?:mpirun|prterun|orterun|mpiexec|oshrun|prun)(?:\.\w{1,20})?",
    "DEATH": (
        "(?:Terminated|Segmentation fault|Bus error|Aborted|Illegal instruction|Floating "
        "point exc\\w+)"
    ),
    "ERROR": r"(?:\w+\.)*(?:[A-Z]\w*)?(?:Error|Exception|Interrupt)\b",
}


class FatalText(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a program prints when a run dies: a record of fatal.toml."""

    source: str
    kind: str
    patterns: tuple[str, ...]
    examples: tuple[str, ...]
    counterexamples: tuple[str, ...]
    lost: bool = False
    report: bool = False
    own: bool = False
    outlived: bool = False
    lines: int = 1

    def __post_init__(self) -> None:
        """Refuse a kind that there is not, and a pattern that does not compile."""
        if self.kind not in _KINDS:
            kinds = ", ".join(_KINDS)
            raise ValueError(f"the kind {self.kind!r} is none of {kinds}")
        for expression in self.expressions:
            required_literals(expression)  # raises ValueError

    @property
    def expressions(self) -> list[str]:
        """The patterns, with the names in them replaced."""
        return [expand(pattern, _NAMES) for pattern in self.patterns]


@cache
def fatal_texts() -> tuple[FatalText, ...]:
    """Return the records of fatal.toml."""
    return records.load("fabbench.evidence", "fatal.toml", FatalText)


@cache
def _fatal_patterns() -> Index[FatalText]:
    """Return the expressions of all fatal texts, each with its record."""
    return Index((each, text) for text in fatal_texts() for each in text.expressions)


@lru_cache(maxsize=512)  # many lines of one log are the same
def first_fatal_text(line: str) -> tuple[int, FatalText] | None:
    """Return where the first fatal text of a line begins, and the first record that has it."""
    found = _found(_fatal_patterns(), line)
    places = [(match.start(), text) for match, text in found]
    return min(places, key=itemgetter(0), default=None)


def _found(patterns: Index[ValueT], line: str) -> Iterator[tuple[Match, ValueT]]:
    """Yield the matches in a line, each with what its pattern stands for."""
    # Few lines have the texts that a match needs: only with these is a pattern compiled.
    for pattern, value in patterns.possible(line):
        match = _compiled(pattern).search(line)
        if match is not None:
            yield match, value


# What may stand before a text: nothing, or what ends in a sign, a number, a time or a level.
# Sentences that quote a text have a word or a quotation mark there, and tables have tabs.
_PREFIX = lazy(r"(?:.*(?:[]>:)|*#%=}-]|\dZ?|\b[A-Z]+|\bstd(?:err|out)))?\s*", re.DOTALL)
_CELLS = lazy(r" *\|.*\| *")
_TAG = lazy(r"^\s*(?:\[[^\]]*\]:? ?)?(?:\*{3} *|=   ?)?")
_RULE = lazy(r"[-=*+~]{10,}")
_COUNTER = lazy(r"(?:==> )?((?:\S*/)?[a-z0-9]+_\w+)(?: <==)?[:=]?")  # its name, above its number
_FRAME = lazy(r"\w+\(\d+\)\.*: *\S")
"""A frame of MPICH's error stack with a reason; the innermost comes last."""
_STACK = lazy(rf"(?:(?:: Other MPI error)?, error stack:|: {_FRAME.pattern}).*")
_GAVE_UP = "Parser function exited with Error"
_LONGEST = 500
"""Characters of a message that are quoted."""


@dataclass(slots=True)
class Message:
    """A message of the table, as far as it has been read."""

    source: str
    kind: Kind
    text: str
    left: int = 0
    """How many lines may follow."""
    lost: bool = False
    """Whether a host or the job was lost: the environment ended the run."""
    is_report: bool = False
    """Whether it only reports that another program ended."""
    is_own: bool = False
    """Whether its source did that itself, if it has said before that it ends the job."""
    may_be_outlived: bool = False
    """Whether the program may go on, as what follows shows."""

    def takes(self, line: str) -> bool:
        """Add a line that no benchmark knows, if the message goes on; return whether it did.

        It goes on up to its last line, a rule, or an empty line that no colon or comma announces.
        """
        body = _TAG.sub("", line, 1).strip()  # without `[host:1]`, `***` or `=` before each line
        if not self.left or _RULE.fullmatch(body):
            self.left = 0
            return False
        if _FRAME.match(body):  # a reason further inside replaces the one so far
            self.text = _STACK.sub(":", self.text)
        if body:
            words = single_spaced(body)
            self.text = f"{self.text} {words}"
            self.left -= 1
            return True
        if not self.text.endswith((":", ",")):
            self.left = 0
        return False

    @property
    def sentence(self) -> str:
        """The message, and who printed it."""
        text = quoted(self.text, _LONGEST)
        return f"{self.source} reported: {text}" if self.source else text


def with_cause(text: str, above: str) -> str:
    """Return a line with the one above it, if that explains it.

    It does if the line only says that the program gave up, or is the number of a counter.
    """
    # As `grep` or `head` prints counters: `==> …/port_xmit_wait <==`, and below it `17`.
    number = text.strip()
    if number.isdigit() and (counter := _COUNTER.fullmatch(above)) is not None:
        return f"{counter[1]} {number}"
    if _GAVE_UP not in text:
        return text
    gave_up = text.rstrip()
    return f"{gave_up}: {above}"


def by_cause(failures: Sequence[str]) -> list[str]:
    """Return what a program said when it failed, the cause first.

    What only follows, from it or from the other side, comes last. A prefix that only says that the
    program gave up is left out.
    """
    alone = (each.replace(f"{_GAVE_UP}: ", "") for each in failures)
    return sorted(alone, key=kind_of_error)


def fatal_message(text: str) -> Message | None:
    """Return the message that begins with a line; None if the line shows no end of a run."""
    first = first_fatal_text(text)
    # Tables may quote such a text, and sentences, which have words before it.
    if first is None or "\t" in text or _CELLS.fullmatch(text):
        return None
    start, known = first
    if not _PREFIX.fullmatch(text, 0, start):
        return None
    sentence = single_spaced(text).removeprefix(f"{known.source}: ")
    kind = _KINDS[known.kind]
    is_report = known.report or kind is Kind.STATUS
    following = known.lines - 1  # besides this one
    return Message(
        known.source,
        kind,
        sentence,
        following,
        known.lost,
        is_report,
        known.own,
        known.outlived,
    )


class Condition(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A fact, and the values of it that speak for or against a cause."""

    fact: str
    values: tuple[str, ...]
    without: str = ""
    """A fact that must not be known; empty: any may be."""

    def holds(self, facts: Facts) -> bool:
        """Return whether the fact is known to have one of the values."""
        if facts.get(self.without):
            return False
        return fact_text(facts, self.fact) in self.values


class Guidance(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What to do about a cause on one network."""

    advice: str = ""
    decide: str = ""


_REASON_ONLY = "reason-only"
"""The mark of what is looked for in the reason of a failure, not in every line."""


class KnownError(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One cause: a record of causes.toml."""

    code: str
    marks: frozenset[str] = frozenset()
    texts: tuple[str, ...] = ()
    """A line that contains one of these shows it."""
    patterns: tuple[str, ...] = ()
    """So does a line in which one of these is found."""
    meaning: str = ""
    advice: str = ""
    against: tuple[Condition, ...] = ()
    """What contradicts it."""
    only: tuple[Condition, ...] = ()
    """Where it may be the cause at all: all of these hold."""
    never: tuple[Condition, ...] = ()
    """Where it is not: one of these holds."""
    decide: str = ""
    on: Mapping[str, Guidance] = {}
    """Network → what to do there."""
    source: str = ""
    examples: tuple[str, ...] = ()
    counterexamples: tuple[str, ...] = ()

    @property
    def expressions(self) -> list[str]:
        """The texts and the patterns, all as patterns."""
        return [*map(re.escape, self.texts), *self.patterns]

    @property
    def is_of_reasons(self) -> bool:
        """Whether it is looked for in the reasons of failures alone, and not in every line."""
        return _REASON_ONLY in self.marks

    def applies(self, facts: Facts) -> bool:
        """Return whether the facts allow it as a cause."""
        if any(each.holds(facts) for each in self.never):
            return False
        return all(each.holds(facts) for each in self.only)

    @property
    def severity(self) -> Severity:
        """The one among its marks, else a warning; what only reasons show is an error."""
        if self.is_of_reasons:
            return Severity.ERROR
        return next((each for each in Severity if each.value in self.marks), Severity.WARNING)

    @property
    def fault(self) -> Fault | None:
        """What has to be mended.

        None: it follows from another cause, explains nothing, or is given where no cause is known.
        """
        if self.marks & {"effect", "remark", "last"}:
            return None
        for each in Fault:
            if each.value in self.marks:
                return each
        return Fault.SOFTWARE if self.severity is Severity.ERROR else None

    def finding(self, line: str, **words: object) -> Finding:
        """Return the finding for a line; `words` fill in the texts."""
        meaning, advice = (
            text.format(**words) if words else text for text in (self.meaning, self.advice)
        )
        return Finding(
            code=self.code,
            severity=self.severity,
            meaning=meaning,
            line=quoted(line),
            advice=advice,
        )


_compiled = cache(lazy)


@cache
def by_code() -> dict[str, KnownError]:
    """Return every cause by its code, in the order of the file."""
    causes = records.load("fabbench.evidence", "causes.toml", KnownError)
    return {error.code: error for error in causes}


@cache
def _patterns_of_causes(*, of_reasons: bool) -> Index[str]:
    """Return what is looked for in every line, or in reasons alone, with the codes of causes."""
    known = (error for error in by_code().values() if error.is_of_reasons == of_reasons)
    return Index((each, error.code) for error in known for each in error.expressions)


def _shown_by(text: str, *, of_reasons: bool = False) -> Sequence[KnownError]:
    """Return the causes that a text shows, in the order of the file."""
    found = _found(_patterns_of_causes(of_reasons=of_reasons), text)
    codes = dict.fromkeys(code for _, code in found)
    return [by_code()[code] for code in codes]


def finding(code: str, line: str = "", **words: object) -> Finding:
    """Return a finding of the table; `words` fill in its texts."""
    return by_code()[code].finding(line, **words)


def findings_of(reasons: Iterable[str], facts: Facts = MappingProxyType({})) -> Iterator[Finding]:
    """Yield findings on the reasons of a failure, as programs state them, if the facts allow them.

    Besides what any line may show, what is looked for only in reasons.
    """
    for text in reasons:
        shown = (*matching_errors(text), *_shown_by(text, of_reasons=True))
        yield from (error.finding(text) for error in shown if error.applies(facts))


class NcclMessage(records.PatternRecord, frozen=True):
    """A message of NCCL or of its network plugins: a record of nccl_messages.toml."""

    says: Literal["gave up", "of GIN", "harmless"]


@cache
def nccl_messages() -> tuple[NcclMessage, ...]:
    """Return the records of nccl_messages.toml."""
    return records.load("fabbench.evidence", "nccl_messages.toml", NcclMessage)


@cache
def _patterns_of_nccl() -> Index[str]:
    """Return the patterns of the messages, each with what it says."""
    return Index((each.pattern, each.says) for each in nccl_messages())


def nccl_says(what: str, message: str) -> bool:
    """Return whether a message says that: `gave up` of a network plugin, `of GIN` or `harmless`.

    In healthy runs, too, plugins give up on some protocols; what is of GIN is not of the network;
    what is harmless stands behind its file and line.
    """
    found = _found(_patterns_of_nccl(), message)
    return any(said == what for _, said in found)


@lru_cache(maxsize=256)  # ranks, and logs of one machine, print the same
def matching_errors(text: str) -> Sequence[KnownError]:
    """Return the known errors that a line shows; usually none."""
    return _shown_by(text)


_STATUS = lazy(r"(?:\[|# )exit status: (\d{1,9})\]?")
_FLUX_STATUS = lazy(r'"name":"complete","context":\{"status":(\d{1,9})\}')
"""The exit record of Flux's event log: a status as wait(2) returns it."""


def exit_status(text: str) -> int | None:
    """Parse a line with the exit status of the output recorded above it.

    Of fabbench's own recordings, and of Flux's event log. None for any other line.
    """
    if '"name":"complete"' in text:
        ended = _FLUX_STATUS.search(text)
        return _exit_code(int(ended[1])) if ended else None
    match = _STATUS.fullmatch(text.strip()) if "exit status: " in text else None
    return int(match[1]) if match else None


def _exit_code(status: int) -> int:
    """Return the exit status that a shell makes of a status of wait(2)."""
    code, signal = divmod(status, 256)  # the high byte, and the signal that ended it, or 0
    return 128 + signal if signal else code


DEAD = frozenset({Outcome.FAILED, Outcome.TIMEOUT})
"""Outcomes of a run that died."""
_GRAVEST_FIRST = (Severity.ERROR, Severity.WARNING, Severity.NOTE)


def fault_of(log: Log) -> Fault | None:
    """Return what has to be mended where a log is not ok; None: nothing says it."""
    if log.lost:
        return Fault.INFRASTRUCTURE
    known = (by_code().get(each.code) for each in log.findings)
    return gravest(error.fault for error in known if error)


def is_effect(found: Finding) -> bool:
    """Return whether a finding follows from another cause."""
    return _lateness(found) > 1


def _lateness(found: Finding) -> int:
    """Return 0 for what starts a failure, 1 for how a process ended, 2 for what follows."""
    error = by_code().get(found.code)
    if error is None:
        return 0
    return 2 if "effect" in error.marks else int("ended" in error.marks)


class Cause(NamedTuple):
    """A finding that explains, with what speaks against it."""

    finding: Finding
    against: str
    """The fact that contradicts it, with its line if there is one; empty: nothing does."""
    decide: str
    """A command that would decide; empty: none is known."""

    @property
    def is_root(self) -> bool:
        """Whether nothing is known from which it follows, and nothing contradicts it."""
        return not self.against and not _lateness(self.finding)

    @property
    def is_error(self) -> bool:
        """Whether it is an error, and no warning."""
        return self.finding.severity is Severity.ERROR

    @property
    def may_end_a_run(self) -> bool:
        """Whether it is an error, or follows from one: a warning alone is about speed."""
        return self.is_error or is_effect(self.finding)

    @property
    def is_report(self) -> bool:
        """Whether it only says that a process ended."""
        return "report" in by_code()[self.finding.code].marks


def causes(log: Log) -> tuple[list[Cause], list[Finding]]:
    """Return the causes that a log shows, the most likely first, and its other findings.

    Errors come before warnings, what starts a failure before what follows from one, what nothing
    contradicts before what something does, what broke before what programs make of it, and of the
    others the one that was printed first. What only makes a run slow comes last in one that died.
    """
    explaining = [each for each in log.findings if _explains(each)]
    others = [each for each in log.findings if not _explains(each)]
    ranked = [_cause(each, log) for each in explaining]
    ranked.sort(key=_rank)
    if log.outcome in DEAD:
        ranked.sort(key=lambda cause: not cause.may_end_a_run)
    return ranked, sorted(others, key=lambda each: _GRAVEST_FIRST.index(each.severity))


def _explains(found: Finding) -> bool:
    # A finding of the table of causes, unless it is a remark, which explains nothing.
    error = by_code().get(found.code)
    return error is not None and "remark" not in error.marks


def _cause(found: Finding, log: Log) -> Cause:
    # With what contradicts it in this log; advice for its network replaces that for any.
    error = by_code()[found.code]
    against = _contradiction(log, error)
    guidance = error.on.get(_network(log.facts), _ANYWHERE)
    advised = replace(found, advice=guidance.advice or found.advice)
    return Cause(advised, against, guidance.decide or error.decide)


_ANYWHERE = Guidance()


def _network(facts: Facts) -> str:
    """Return the network that advice is for, `efa`, `ib` or `cxi`; empty: it is not known."""
    named = str(facts.get("network") or facts.get("transport", ""))
    return named.removeprefix("libfabric-")


def _rank(cause: Cause) -> tuple[int, int, bool, bool]:
    # What sorts first is the most likely; the sort keeps the order in which causes were printed.
    severity = _GRAVEST_FIRST.index(cause.finding.severity)
    is_broken = "hardware" in by_code()[cause.finding.code].marks
    return severity, _lateness(cause.finding), bool(cause.against), not is_broken


def _contradiction(log: Log, error: KnownError) -> str:
    """Return the fact that contradicts a cause, and the line that proves it; empty: none does."""
    for each in error.against:
        if each.holds(log.facts):
            value = log.facts[each.fact]
            line = log.evidence.get(each.fact, "").strip()[:120]  # its beginning will do
            return f"{each.fact} {value} {line}".rstrip()
    return ""
