"""What programs print when a run dies: one table (fatal.txt) for all benchmarks and launchers. Pure.

It stands before every benchmark: a line that it knows is no row, and a run with one is never ok, wherever
the line stands.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cache, lru_cache
from importlib.resources import files
from typing import NamedTuple

from fabbench.model.patterns import lazy


class Kind(IntEnum):
    """What a text says about a run. Of several, the first in this order is the reason."""

    TIMEOUT = 0
    """A time limit ended it."""
    KILLED = 1
    """A signal, the kernel or the batch system ended it: a benchmark's own errors follow from that."""
    DIED = 2
    """A library or a launcher ended it: a benchmark's own error says more."""
    NOT_STARTED = 3
    """Nothing was started: tables that follow are of other runs."""
    SHELL = 4
    """A shell did not find a program, which need not be the benchmark: it counts if nothing was measured."""
    STATUS = 5
    """It ended with an error; why is not said."""


NO_PROGRAM = "The shell reported:"  # how the sentences of `Kind.SHELL` begin
_NAME = re.compile("<([A-Z]+)>")
_NAMES = {
    "MPIRUN": "(?:mpirun|prterun|orterun|mpiexec)",
    "DEATH": "(?:Terminated|Segmentation fault|Bus error|Aborted|Illegal instruction|Floating point exc\\w+)",
    "ERROR": r"(?:\w+\.)*[A-Z]\w*(?:Error|Exception|Interrupt)\b",
}


class _Entry(NamedTuple):
    source: str
    kind: Kind
    lost: bool
    lines: int


@cache
def _table() -> tuple[tuple[_Entry, ...], re.Pattern[str]]:
    """Return the entries, and a pattern whose named groups are their numbers."""
    entries: list[_Entry] = []
    texts: list[list[str]] = []
    text = (files("fabbench.evidence") / "fatal.txt").read_text("utf-8")
    for line in re.sub(r"^#.*\n", "", text, flags=re.MULTILINE).splitlines():
        if line[0] != " ":
            head, *more = line.removesuffix(" lines").split(", ")
            source, kind = head.split(": ")
            lines = int(more[-1]) if more and more[-1].isdecimal() else 1
            entries.append(_Entry(source, Kind[kind.upper().replace(" ", "_")], "lost" in more, lines))
            texts.append([])
        else:
            texts[-1].append(_NAME.sub(lambda name: _NAMES[name[1]], line.strip()))
    each = (f"(?P<t{at}>{'|'.join(group)})" for at, group in enumerate(texts))
    return tuple(entries), re.compile("|".join(each))


# Every line of the table contains one of these; most lines of a log contain none, and take no longer.
_SIGN = lazy(
    "rror|ERROR|FATAL|Fatal|fail|xit|EXIT|ill|KILL|erminat|TERM|bort|ABORT|ended|stopped|noticed|ignal|unable|MPI_"
    "|looks like|components|cannot|lost|slots|attempt|ssert|xception|Interrupt|task\\(s\\)|JSM|LIMIT|limit"
    "|oom|OOM|revoked|unrecognized|resource|Evicted|Deadline|disconnect|responding|closed|ssh|denied|verification"
    "|fault|smashing|\\(\\): |corrupt|found|No such|No module|ncclInvalid"
    "|exactly|operation|NCCL: |Timeout|timeout|result:|killing|Xid|reaped|stuck|watchdog|setting up"
)
# What may stand before a text: nothing, or what ends in a sign, a number, a time or a level. Sentences that
# quote a text have a word or a quotation mark there, and tables have tabs.
_PREFIX = lazy(r"(?:.*(?:[]>:)|*#%=}-]|\dZ?|\b[A-Z]+|\bstd(?:err|out)))?\s*", re.DOTALL)
_CELLS = lazy(r" *\|.*\| *")
_TAG = lazy(r"^\s*(?:\[[^\]]*\]:? ?)?(?:\*{3} *|=   ?)?")
_RULE = lazy(r"[-=*+~]{10,}")
_searched = lru_cache(maxsize=1024)(lambda text: _SIGN.search(text))  # noqa: PLW0108 - not compiled at import; banners recur
_ABOVE = lazy(r"Parser function exited with Error")
_FOLLOWS = lazy(
    rf"({_ABOVE.pattern}|Connection re(?:set by peer|fused)|Broken pipe|remote connection closed|failed to connect"
    r"|nvshmem initialization failed|Failed to (?:exchange|complete run_iter)|Couldn't read remote address"
    r"|Unable to read to socket|status[- ](?:\D* \()?5\b)|(Completion with )"
)
"""What follows from another error of the program, or of the other side. The last group says least."""
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

    def takes(self, line: str) -> bool:
        """Add a line that no benchmark knows, if the message goes on; return whether it did."""
        body = _TAG.sub("", line, 1).strip()
        if not self.left or _RULE.fullmatch(body):
            self.left = 0
        elif body:
            self.text, self.left = f"{self.text} {' '.join(body.split())}", self.left - 1
            return True
        elif not self.text.endswith((":", ",")):
            self.left = 0
        return False

    @property
    def sentence(self) -> str:
        """The message, and who printed it."""
        text = self.text if len(self.text) <= _LONGEST else f"{self.text[:_LONGEST]}…"
        return f"{self.source} reported: {text}" if self.source else text


def with_cause(text: str, above: str) -> str:
    """Return a line with the one above it, if it only says that the program gave up, and nothing says why."""
    return f"{text.rstrip()}: {above}" if _ABOVE.search(text) else text


def by_cause(failures: Sequence[str]) -> list[str]:
    """Return what a program said when it failed: what only follows, from it or from the other side, comes last."""
    told = [re.sub(f"{_ABOVE.pattern}: ", "", each) for each in failures]
    return sorted(told, key=lambda each: ((match := _FOLLOWS.search(each)) and match.lastindex) or 0)


def fatal_message(text: str) -> Message | None:
    """Return the message that begins with a line; None if the line shows no end of a run."""
    if not (_searched if len(text) < 400 else _SIGN.search)(text) or "\t" in text or _CELLS.fullmatch(text):
        return None
    entries, texts = _table()
    match = texts.search(text)
    if match is None or not _PREFIX.fullmatch(text, 0, match.start()):
        return None
    source, kind, lost, lines = entries[int(str(match.lastgroup)[1:])]
    return Message(source, kind, " ".join(text.split()).removeprefix(f"{source}: "), lines - 1, lost)
