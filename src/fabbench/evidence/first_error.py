"""The first error of what died first: the cause of last resort. Pure.

What a program says itself counts more than a line that only has the words of an error, and what
others report of its end counts for nothing here.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from fabbench.model.patterns import lazy

_EXCEPTION = lazy(
    r"^(?:\[\w++(?: \d++)?\]:? *|(?:ERROR|CRITICAL) [^\]]{0,80}\] )?"
    r"[\w.]++(?:(?<=Error)|(?<=Exception)|(?<=Interrupt)|(?<=Failure))(?:: |$)|^\s*what\(\): "
)
"""The last line of an exception of Python or C++."""
_LEVEL = lazy(
    r"(?:^|[\s\[(])(?:ERROR|FATAL|CRITICAL)(?:[]:)|]| -)|(?:^|: |^\[)[EF] [\w./-]+:\d"
    r"|^\[?[EF]\d{4} |: error: |\bPMI[Xx] ERROR: |^\s*Warning\s+(?:Failed|UnexpectedAdmissionError)"
    r"|\.(?:cpp|cu|h):(?:\w+:\d+: (?!.*ignoring)|\d+: (?:non-zero status|NULL value) )"
    r"|(?<!cuInit: )\bCUDA_ERROR_[A-Z_]{1,40}: "
    r"|^WARN: .{0,200}\bSkipping\b|^\(raylet\) (?:A worker died|The node .{0,200} marked dead)"
)
"""A line that its logger marks as an error; events of Kubernetes and Ray, errors of NVSHMEM."""
_REPORTS = lazy(
    r"\b(?:ChildFailedError|CalledProcessError|DistBackendError|nccl[A-Z]\w*Error|RayTaskError"
    r"|ActorDiedError|KeyboardInterrupt|exitcode)\b"
    r"|\b(?:exit(?:ed|s|ing)?|return(?:ed)?)\b.{0,20}\b(?:code|status)\b(?!.*\bstderr: .*error)"
    r"|\berror code: -?\d+$|couldn't start container|failed to import docker image|\bspank\b"
    r"|\bpyxis: {2,}(?! |\[ERROR\]|.{0,200}(?:error|[Ff]ail|denied|not found))"
    r"|printing (?:\w+|contents of) log|\bJob finished\b|\bbe(?:en)? aborted\b"
    r"|\bfailed to start\.|\bhit an exception\b|\bSee (?:root cause|stack trace)\b"
)
"""What reports the error of another process or library.

Of a log that pyxis quotes, every line has the level of an error, and few are one.
"""
_ANNOUNCES = lazy(r"(?:Last error|what\(\)|Caused by|\b[Ee]rror\(s\) in [\w-]{1,60}):\s*$")
"""Ends of lines below which an error stands."""
_WORDS = lazy(
    r"(?i:\b(?:error|fail(?:ed|ure|s)?|fatal|cannot|can't|could not|couldn't|unable|not found"
    r"|no such|unknown|unrecognized|invalid|denied|refused|unreachable|illegal|abort(?:ed)?"
    r"|exception|exceeded|mismatch|not enabled|not supported"
    r"|not permitted|timed out|died|no [\w ]{1,40}found)\b)"
)
_QUIET = 200
"""Lines without an error after which an earlier one is taken to be overcome."""
_STACK = ("  ", "\t", "frame #", "Traceback", "#")
_RULE = lazy(r"\s*[-=*+~]{10,}\s*")
_MOST_PROCESSES = 100
_PROGRAM = "program"


_STEM = lazy(
    "error|fail|fatal|can|couldn|could not|unable|not found|no such|unknown|unrecognized|invalid"
    "|denied|refused|unreachable|illegal|abort|exce|mismatch|not enabled|not supported"
    r"|not permitted|timed out|interrupt|critical|what\(\)|caused by|non-zero status|null value"
    r"|no [\w ]{1,40}found|died|dead|(?:^|: )[ef] |^\[?[ef]\d{4} "
)
"""What every line about an error has, in small letters."""


class Said(NamedTuple):
    """A line about an error."""

    number: int
    text: str


@dataclass(slots=True)
class FirstErrors:
    """The first errors that an execution printed since it last went on."""

    number: int = 0
    """That of the line that is being read."""
    reasons: dict[str, Said] = field(default_factory=dict)
    """Process of NCCL → its first warning since its last progress.

    Also of the program: the first line that says why it, or a library, gave up.
    """
    hint: str = ""
    """The first line that only has words of an error; empty: there is none."""
    _is_announced: bool = False
    """Whether the last line said that the next one is the error."""
    _is_report: bool = False
    """Whether lines belong to a report of another program's end."""
    _quiet: int = 0
    """Lines without an error since the last one with one."""

    def warn(self, process: str, message: str) -> None:
        """Take a warning of NCCL."""
        if len(self.reasons) < _MOST_PROCESSES:
            self.reasons.setdefault(process, Said(self.number, message))

    def went_on(self, process: str) -> None:
        """Forget what a process warned of: it goes on."""
        self.reasons.pop(process, None)

    def own(self, text: str) -> None:
        """Take a line that says why a program or library gave up."""
        self._quiet = 0
        if not _REPORTS.search(text):
            self.reasons.setdefault(_PROGRAM, Said(self.number, text))

    def report(self, text: str) -> None:
        """Read a report of another program's end; up to a rule, what follows only explains it."""
        self._is_report = True
        self.read(text)

    def read(self, text: str) -> None:
        """Read a line that no benchmark knows."""
        if _RULE.fullmatch(text):
            self._is_report = False
        elif self._is_announced or _STEM.search(text.lower()):
            self._error(text)
        elif not text.startswith(_STACK):
            self._pass()

    def _error(self, text: str) -> None:
        if self._says_why(text):
            self.own(text)
        elif not self._is_report and not text.startswith(_STACK):
            self._sentence(text)

    def _says_why(self, text: str) -> bool:
        is_announced = self._is_announced
        self._is_announced = _ANNOUNCES.search(text) is not None
        if is_announced or _EXCEPTION.search(text):
            return True
        return not self._is_report and _LEVEL.search(text) is not None

    def _sentence(self, text: str) -> None:
        """Read a line that is neither an error by its form nor part of one."""
        if _WORDS.search(text):
            self._quiet = 0
            self.hint = self.hint or text.strip()
        else:
            self._pass()

    def _pass(self) -> None:
        """Count a line without an error."""
        self._quiet += 1
        if self._quiet > _QUIET:
            self.went_on(_PROGRAM)
            self.hint = ""

    def first(self) -> str:
        """Return the first line that says why; empty: there is none."""
        told = self.reasons.values()
        return min(told).text.strip() if told else ""
