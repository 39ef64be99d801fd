"""What PyTorch's watchdog, its flight recorder and NCCL's RAS say of ranks that wait for each other. Pure.

PyTorch: ProcessGroupNCCL.cpp (1.12 to 2.11) and torchfrtrace. NCCL: src/ras/client_support.cc (2.24 to 2.30).
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from fabbench.evidence.known_errors import finding
from fabbench.model.log import Finding
from fabbench.model.messages import listed
from fabbench.model.patterns import lazy

_WAITS = lazy(
    r"Watchdog caught collective operation timeout: WorkNCCL\((?:SeqNum=(?P<number>\d+), )?OpType=(?P<call>\w+)"
    r"(?:, NumelIn=(?P<elements>\d+))?.*?Timeout\(ms\)=(?P<limit>\d+)"
)
_RANK = lazy(r"\[(?:rank|Rank |PG [^]]*Rank )(\d+)\]")
_WORK = lazy(
    r"\[PG ([^]]*?) ?Rank \d+\].*[Ll]ast enqueued (?:NCCL )?work: (-?\d+), last completed (?:NCCL )?work: -?\d+"
)
_MISSING = lazy(r"Not all ranks joining collective")
_RAS_HEAD = lazy(r"^\s*(?:#\d+-\d+ \([\da-f]+\) )?(INCOMPLETE|DEAD|TIMEOUT|MISMATCH)\s*$")
_DETAIL = lazy(
    r"^\s+(?:Communicator ranks have|Missing communicator|The missing rank|Process \d+ on node|Encountered \d+ comm"
    r"|\d+ (?:ranks? ha\w+ (?:launched|status)|job process)|Rank \d+ (?:--|has launched))"
    r"|(?:^|[\s:])(?:collective: \S+|[Mm]issing ranks(?::| are) \{[\d, ]*\})$"
)
_RAS_ROW = lazy(r"^\s+\d+\s+\d+(?:\s+\d+(?:-\d+)?){4}\s+(?:INIT|RUNNING|FINALIZE|ABORT|MISMATCH)\b")
_PATTERNS = (_WAITS, _WORK, _MISSING, _RAS_HEAD, _DETAIL, _RAS_ROW)
_WORDS = (  # noqa: SIM905 - a list would take one line per word
    "Watchdog caught|ast enqueued|ranks joining|issing ranks|collective: |ommunicator|missing rank|INCOMPLETE| on node"
    "|launched|job process|RUNNING|INIT|FINALIZE|ABORT|DEAD|TIMEOUT|MISMATCH"
).split("|")


def is_sign(text: str) -> bool:
    """Return whether a line is one of those that are collected."""
    return any(map(text.__contains__, _WORDS)) and any(pattern.search(text) for pattern in _PATTERNS)


@dataclass(slots=True)
class Hangs:
    """What one execution's lines say of ranks that wait."""

    report: bool = False
    waits: dict[tuple[str, ...], dict[int, None]] = field(default_factory=dict)
    """Collective, sequence number, elements, limit in ms → ranks whose watchdog gave up."""
    works: dict[str, dict[int, int]] = field(default_factory=dict)
    """Process group → rank → number of the last collective that it started."""
    told: dict[str, list[str]] = field(default_factory=dict)
    """First line of what a report says → the lines below it."""
    line: str = ""

    def feed(self, text: str) -> None:
        """Read one line."""
        rank = int(found[1]) if (found := _RANK.search(text)) is not None else -1
        if (match := _WAITS.search(text)) is not None:
            self.line = self.line or text.strip()
            self.waits.setdefault(match.groups(""), {})[rank] = None
        elif (match := _WORK.search(text)) is not None:
            self.works.setdefault(match[1], {})[rank] = int(match[2])
        elif _RAS_HEAD.search(text) or _MISSING.search(text):
            self.told.setdefault(text.strip(), [])
        elif self.told and _DETAIL.search(text):
            self.told[next(reversed(self.told))].append(text.strip())
        self.report = self.report or _RAS_ROW.search(text) is not None

    def findings(self) -> Iterator[Finding]:
        """Yield which collective did not end and which ranks had not started it, and what reports say."""
        if self.waits:
            yield self._timeout()
        for head, details in self.told.items():
            more = [f"{len(details) - 6} more"] if len(details) > 6 else []
            said = f"{head}: {'; '.join((*details[:6], *more))}"
            if (ras := _RAS_HEAD.search(head)) is None:
                yield finding("ranks-missing", head, said=said)
            elif details:  # the word alone may be another program's
                yield finding(f"ras-{ras[1].lower()}".replace("dead", "incomplete"), head, said=said)

    def _timeout(self) -> Finding:
        each = [
            f"{_ranks(ranks)} waited {int(limit) / 1000:g} s in {call}, sequence number {number or '?'}, of "
            f"{elements or '?'} elements"
            for (number, call, elements, limit), ranks in self.waits.items()
        ]
        number = next(iter(self.waits))[0]
        # Numbers of different process groups are not comparable.
        works = next(iter(self.works.values())) if len(self.works) == 1 and len(self.waits) == 1 and number else {}
        late = {rank: None for rank, last in works.items() if last < int(number)}
        lasts = listed(sorted({str(works[rank]) for rank in late}))
        behind = f" {_ranks(late)} had not started it (the last: {lasts})." if late else ""
        whom = _ranks(late).lower() if late else "the ranks that are not named"
        return finding("collective-timeout", self.line, waits="; ".join(each[:3]), late=behind, whom=whom)


def _ranks(ranks: dict[int, None]) -> str:
    names = [str(rank) if rank >= 0 else "?" for rank in sorted(ranks)]
    return f"Rank{'' if len(names) == 1 else 's'} {listed(names, 8)}"
