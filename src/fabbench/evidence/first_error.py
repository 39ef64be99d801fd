"""The first error of what died first: the cause of last resort. Pure.

What ranks above what, of the lines that a program, its libraries and its launcher print:

1. Its form says why something gave up: an exception's last line, the level of a logger, a warning
   of NCCL, a frame of an error stack. If words of an error stand with it, the first of them counts.
2. It has the words of an error.
3. It states an error of any kind, or opens what says it.
4. It reports a signal or a status: that of another process, mostly.
5. It follows from the end of another process. Words of an error count more only above it.
6. The program goes on, as the line says itself.

Of one rank, the first line counts. What is printed once a process goes on, or many lines without
an error, take back what stands above. `error_forms.csv` has the forms, each with an example.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cache
from typing import NamedTuple

from fabbench.catalog.systems import rows_of
from fabbench.model.patterns import lazy

_BEFORE = (
    r"^(?:\[[^\]]{1,80}\](?:<\w+>)?:? ?|\([^)]{1,60}\) ?|<[^>]{1,40}>:? ?|\d[\d:.,/TZ+-]*:? |\d+: ?"
    r"|(?=[A-Za-z_.-]{0,60}\d)[\w.-]{2,120}+: |(?:ERROR|CRITICAL|FATAL)(?:: | )){0,6}?"
)
"""What launchers and loggers print before a line: tags in brackets, times, nodes and levels."""
FORMS = rows_of("error_forms.csv", "fabbench.evidence")
_NEEDED = {text for row in FORMS for text in row["needs"].split("|") if text}
"""One of these is in every line about an error or a death: in small letters, behind a `^`."""


@cache
def pattern_of(form: str) -> re.Pattern[str]:
    """Return a pattern that finds a form of the table; raise KeyError if there is no such form."""
    rows = [row for row in FORMS if row["form"] == form]
    if not rows:
        raise KeyError(form)
    return pattern_of_rows(rows)


def pattern_of_rows(rows: Iterable[Mapping[str, str]]) -> re.Pattern[str]:
    """Return a pattern that finds what any of the rows has; it is compiled when it is used."""
    patterns = [row["within"].format_map(row) for row in rows]
    return lazy("|".join(patterns).replace("<BEFORE>", _BEFORE))


def _has(form: str, text: str) -> bool:
    """Return whether a line has a form of the table."""
    return pattern_of(form).search(text) is not None


_USUAL_END = pattern_of("usual end")
_OF_STACK = pattern_of("of a stack")
_CODE = lazy(r' {4}(?! *")')
"""Indentation of a line of code in a traceback, or of JSON's braces: not what was announced."""
# Lines without an error after which an earlier one is taken to be overcome
_OVERCOME_AFTER = 200
# Lines without an error that may stand between errors of one incident
_NEAR = 2
# Lines without an error that may follow the last words of what died
_LAST = 5
_PARAGRAPH = lazy(r"  \S")
"""A line that prose sets off from the rest, if the one above is empty."""
_FRAME = lazy(r"(?:\S+ )?\w+\(\d+\)\.*:(?!.*, error stack:)(?P<says> *+(?!.*\bfailed\s*$)\S)?")
"""A frame of MPICH's error stack; it may say more than that a call failed."""
_TIME = lazy(r"[\d/.-]{3,10}[T ]\d\d:\d\d:\d\d[.,]\d+")
"""A date, and a time with parts of seconds: ranks print into one log, and may be late."""
# A rule, or a row of a table, which may quote errors
_RULE = lazy(r"\s*[-=*+~]{10,}\s*|\|.*")
_MOST_KEPT = 200
_PROGRAM = "program"
_STACK = "stack"


class ErrorKind(IntEnum):
    """What a line says of a death: the ranks 1 to 6 above. Of several, the first says most."""

    ORIGIN = 0
    WORDS = 1
    VAGUE = 2
    ENDED = 3
    FOLLOWS = 4
    GOES_ON = 5


class ErrorLine(NamedTuple):
    """A line about an error."""

    number: int
    text: str


@dataclass(slots=True)
class FirstErrors:
    """The first errors that an execution printed since it last went on."""

    number: int = 0
    """That of the line that is being read."""
    kept: dict[tuple[ErrorKind, str], ErrorLine] = field(default_factory=dict)
    """What it says, and of whom → the first line that by its form ends a program.

    Of a process of NCCL: its first warning since its last progress.
    """
    _last_frame: int = 0
    """Number of the last frame of the first error stack."""
    _above: str = ""
    """The line above."""
    _hints: dict[ErrorKind, ErrorLine] = field(default_factory=dict)
    """The first lines that only have words of an error, by what they say."""
    _is_announced: bool = False
    """Whether the last line said that the next one is the error."""
    _is_report: bool = False
    """Whether lines belong to a report of another program's end."""
    _start_of_incident: ErrorLine | None = None
    """The first words of an error among the lines that stand together."""
    _last_of_incident: int = 0
    """Number of the last line of these, or of the stack below it."""
    _has_given_up: bool = False
    """Whether a line said why a program or library gave up."""
    _error_lines: int = 0
    """How many lines only have words of an error."""
    _quiet_lines: int = 0
    """Lines without an error since the last one with one."""
    death: ErrorLine | None = None
    """The first line of the shape of a death since the last one that a benchmark read."""
    followed: str = ""
    """The first line since then that is not usual below a table."""
    _ignored: int = 0
    """How many more lines of the shape of a death Python ignores."""

    def keep_warning(self, process: str, message: str) -> None:
        """Keep a warning of a process of NCCL, if it is the first since its last progress."""
        kind = ErrorKind.FOLLOWS if follows(message) else ErrorKind.ORIGIN
        if len(self.kept) < _MOST_KEPT:
            self.kept.setdefault((kind, process), ErrorLine(self.number, message))

    def forget_warnings(self, process: str) -> None:
        """Forget what a process warned of: it goes on, and the program has not said its last."""
        for kind in ErrorKind:
            self.kept.pop((kind, process), None)
        self._quiet_lines = max(self._quiet_lines, _LAST + 1)  # so that `is_last` does not hold

    def gave_up(self, text: str, *, is_announced: bool = False) -> None:
        """Take a line that says why a program or library gave up.

        `is_announced`: the line above said so, whatever its own words are. The first words of an
        error that stand with it say more than it does.
        """
        self._join_incident()
        kind = ErrorKind.ORIGIN if is_announced else kind_of_error(text)
        error = ErrorLine(self.number, text)
        if _has("report", text):
            self._hints.setdefault(ErrorKind.ENDED, error)
            self._has_given_up = True
            if _has("ended", text):
                self._keep(ErrorKind.FOLLOWS, error)
        elif kind is ErrorKind.GOES_ON:  # whatever its form, it did not end the program
            self._hints.setdefault(kind, error)
        else:
            self._keep(kind, error)

    def _keep(self, kind: ErrorKind, error: ErrorLine) -> None:
        """Keep what ends the program, if it is the first."""
        if kind is ErrorKind.ORIGIN:  # words that stand with it say more
            error = self._start_of_incident or error
        self.kept.setdefault((kind, _PROGRAM), error)
        self._has_given_up = True

    def _read_frame(self, text: str, *, says: str | None) -> None:
        """Read a frame of an error stack: of those that say a reason, the innermost comes last."""
        goes_on_below = self.number == self._last_frame + 1
        of_stack = ErrorKind.ORIGIN, _STACK
        if says and (goes_on_below or of_stack not in self.kept):
            self._join_incident()
            self.kept[of_stack] = self._start_of_incident or ErrorLine(self.number, text)
            self._last_frame = self.number
        self._last_of_incident = self.number

    def report(self, text: str) -> None:
        """Read a report of another program's end; up to a rule, what follows only explains it.

        Below the head of a stack frames explain it, and they are known by their form.
        """
        self._is_report = not _has("specific", text)
        self.read(text)
        self._is_report = not text.endswith("error stack:")

    def read(self, text: str) -> None:
        """Read a line that no benchmark knows: about an error, of a stack, or neither."""
        small = "^" + text.lower()
        may_be_error = any(map(small.__contains__, _NEEDED))
        if not (self.followed or _USUAL_END.fullmatch(text)):
            self.followed = text
        frame = _FRAME.match(text)
        if _RULE.fullmatch(text):  # a report of another program ends there
            self._is_report = False
        elif frame is not None:
            self._read_frame(text, says=frame["says"])
        elif self._is_announced or may_be_error:
            self._read_error(text)
        elif _OF_STACK.match(text):  # it belongs to the error above
            self._last_of_incident = self.number
        else:
            self._count_quiet_line(text)
        self._above = text

    def _read_death(self, text: str) -> None:
        """Keep a line if it has the shape of a death, which ends a run if no row follows."""
        if "Exception ignored" in text:  # by Python, which goes on
            self._ignored = 2  # the first and the last line of the traceback
        elif not self.death and _has("death", text) and not goes_on(text):
            if self._ignored:
                self._ignored -= 1
            else:
                self.death = ErrorLine(self.number, text)

    def went_on(self) -> None:
        """Note that a benchmark read a line: what stands above it ended nothing."""
        self.death = None
        self.followed = ""

    def _read_error(self, text: str) -> None:
        self._read_death(text)
        # By its form an origin; else part of a stack; else, outside of reports, only words.
        # What is indented as code is a traceback's, and not the error that was announced.
        announces = _has("announces", text)
        is_announced = self._is_announced and not _CODE.match(text)
        self._is_announced = announces
        if not announces and (is_announced or self._says_why(text)):
            self.gave_up(text, is_announced=is_announced)
        elif _OF_STACK.match(text) and (self._above or not _PARAGRAPH.match(text)):
            self._last_of_incident = self.number
        elif not self._is_report:
            self._read_words(text)

    def _forget_notice(self) -> None:
        """Forget the words of a notice: those that stand with it, and below it up to a rule."""
        self._is_report = True
        if self._hints.get(ErrorKind.WORDS) is self._start_of_incident:
            self._hints.pop(ErrorKind.WORDS, None)
        self._start_of_incident = None

    def _says_why(self, text: str) -> bool:
        # In a report of another program's end every line may have the level of an error.
        is_logged = not self._is_report and _has("level", text)
        return bool(is_logged or _has("ended", text) or _has("exception", text))

    def _read_words(self, text: str) -> None:
        """Read a line that is neither an error by its form nor part of one."""
        is_error = _has("words", text) or _has("ended", text)
        if _has("notice", text):
            self._forget_notice()
        elif is_error and not _has("advice", text):
            self._join_incident()
            self._keep_words(text)
        else:
            self._count_quiet_line(text)

    def _keep_words(self, text: str) -> None:
        """Keep a line that has words of an error, as what it says least."""
        # No origin: that takes the form of an error.
        kind = max(kind_of_error(text), ErrorKind.WORDS)
        is_report = _has("report", text)
        if is_report and not _has("specific", text):
            kind = max(kind, ErrorKind.VAGUE)
        error = ErrorLine(self.number, text)
        self._hints.setdefault(kind, error)
        self._error_lines += kind <= ErrorKind.VAGUE and not text.startswith("{")  # no record
        # A report says less than the origin below it.
        if kind is ErrorKind.WORDS and not is_report:
            self._start_of_incident = self._start_of_incident or error

    def _join_incident(self) -> None:
        """Count a line about an error to its incident: far below the last one a new one begins."""
        self._quiet_lines = 0
        if self.number > self._last_of_incident + _NEAR + 1:
            self._start_of_incident = None
        self._last_of_incident = self.number

    def _count_quiet_line(self, text: str) -> None:
        """Count a line without an error; after many, the program went on."""
        self._quiet_lines += 1
        if _has("left out", text):
            self._quiet_lines += _LAST
        if self._quiet_lines > _OVERCOME_AFTER:
            self.forget_warnings(_PROGRAM)  # also of a program that said why it gave up
            self.forget_warnings(_STACK)
            self._hints.clear()
            self._has_given_up = False

    @property
    def hint(self) -> str:
        """The first line that only has words of an error; empty: there is none."""
        hints = self._hints  # by kind: the lowest says most
        return hints[min(hints)].text.strip() if hints else ""

    def first(self) -> str:
        """Return the first line that says why; empty: there is none.

        What follows from another process's end does not, unless nothing stands before it.
        """
        if not self.kept:
            return ""
        kinds = [kind for kind, _ in self.kept]
        by_kind = zip(kinds, self.kept.values(), strict=True)
        least, error = min(by_kind)
        if least is ErrorKind.ORIGIN:
            return error.text.strip()
        words = self._hints.get(ErrorKind.WORDS, error)
        # What follows is first where it is; anything else says less than words of an error.
        first = min(words, error) if least is ErrorKind.FOLLOWS else words
        return first.text.strip()

    @property
    def is_outlived(self) -> bool:
        """Whether more lines without an error follow than may follow a program's last words."""
        return self._quiet_lines > _LAST

    def is_last(self) -> bool:
        """Return whether the text ends with what a program said of its end, or only quotes that."""
        return (self._has_given_up and not self.is_outlived) or self._is_excerpt()

    def _is_excerpt(self) -> bool:
        """Return whether most lines, the last among them, have words of an error: an excerpt.

        One line alone may be anything.
        """
        return not self._quiet_lines and 1 < self._last_of_incident <= 2 * self._error_lines


def printed_before(text: str, other: str) -> bool:
    """Return whether a line was printed before another one, by the times in both, alike."""
    time = _time_in(text)
    of_other = _time_in(other)
    are_alike = len(time) == len(of_other)
    return are_alike and time < of_other


def _time_in(text: str) -> str:
    """Return the time that a line has; empty: it has none."""
    match = _TIME.search(text)
    return match[0] if match else ""


def follows(text: str) -> bool:
    """Return whether a line about an error only follows from the end of another process."""
    return _has("follows", text)


def says_little(text: str) -> bool:
    """Return whether a line about an error does not say why: others say more, if they are known."""
    return kind_of_error(text) > ErrorKind.WORDS


def goes_on(text: str) -> bool:
    """Return whether a line says itself that the program goes on."""
    return _has("goes on", text)


def kind_of_error(text: str) -> ErrorKind:
    """Return what a line about an error says of a death, as if it had the form of an error."""
    if follows(text):
        return ErrorKind.FOLLOWS
    if goes_on(text):
        return ErrorKind.GOES_ON
    if _has("ended", text) and not _has("exception", text):
        return ErrorKind.ENDED
    is_vague = _has("vague", text) or _has("advice", text)
    return ErrorKind.VAGUE if is_vague else ErrorKind.ORIGIN
