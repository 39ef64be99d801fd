"""One model of a hang: what each rank of each process group started, ended, and waits for. Pure.

Its sources: tracebacks of gloo's ranks, PyTorch's watchdog, its heartbeat monitor and desync report
(ProcessGroupNCCL.cpp, 1.12 to 2.11), its flight recorder, torchfrtrace, XLA's rendezvous
(rendezvous.cc), and NCCL's RAS (2.24 to 2.30).
"""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeAlias

from fabbench.evidence.first_error import printed_before
from fabbench.evidence.known_errors import finding
from fabbench.model.literals import Index
from fabbench.model.log import Finding, Severity
from fabbench.model.mappings import map_values
from fabbench.model.messages import counted, listed
from fabbench.model.patterns import Match, lazy

# -- what the sources print

_WATCHDOG = lazy(r"Watchdog caught collective operation timeout: W")
_WAIT = lazy(
    r"WorkNCCL\((?:SeqNum=(?P<number>\d+), )?OpType=(?P<call>\w+)(?:, NumelIn=(?P<elements>\d+))?"
    r"(?:[^()]{0,200}Timeout\(ms\)=(?P<limit>\d{1,12})\))?(?: ran for (?P<waited>\d{1,12}) milli)?"
)
_REST = lazy(r"^\s*NCCL\((?:SeqNum|OpType)=")
"""What follows where a page wraps a line of the watchdog at its first capital."""
_AT_WORK = lazy(r"Timeout at NCCL work: (?P<number>\d+), last enqueued")
_STATUS = lazy(
    r"\[PG (?P<group>[^]]*?) ?Rank (?P<rank>\d+)\].{0,300}[Ll]ast enqueued (?:NCCL )?work: "
    r"(?P<started>-?\d+), last completed (?:NCCL )?work: (?P<ended>-?\d+)"
)
_GAVE_UP_IN = lazy(r"at work(?: sequence id)?: (\d+)")
"""The number of the collective in which the rank of a status gave up."""
_HEARTBEAT = lazy(
    r"(?:\[PG (?P<group>[^]]*?) ?Rank (?P<rank>\d+)\].{0,200})?"
    r"(?:Heartbeat monitor timed out!|watchdog got stuck for (?P<stuck>\d+) seconds)"
    r"(?:.{0,600}workMetaList_\.size\(\) ?= ?(?P<queued>\d+))?"
)
"""A terminal may have cut the line, so that it does not say whose watchdog."""
_LAGGARD = lazy(
    r"(?:\[|Ranks? )(\d+(?:, *\d+)*)(?:\] finished collective #\d+, but didn't join collective #\d+"
    r"| failed to pass monitoredBarrier)"
)
_GLOO = lazy(r"gloo/[^\s\]]{1,99}\] Timed out waiting (?P<limit>\d{1,12})ms for ")
_FRAME = lazy(r"distributed_c10d\.py\", line \d+, in (?P<call>[a-z]\w*)")
"""A frame of Python's traceback of a rank that gave up, which names the collective."""
_RANK = lazy(r"\[(?:rank|Rank |PG [^]]*Rank )(\d+)\]")
_GROUP = lazy(r"(?<!\w)(\w*) ?\(([^()]+)\)$")
_PEERS = frozenset({"SEND", "RECV", "COALESCED"})
"""What two ranks of a group do, in a sequence of its own."""
_RENDEZVOUS = lazy(
    r"(?:been waiting|Termination timeout) for `(?P<call>[a-z-]{1,40}) ?(?:RendezvousKey|\{)"
    r".{0,200}Expected (?P<expected>\d+) threads to join the rendezvous, "
    r"but (?:only )?(?P<arrived>\d+)"
)
_NOT_JOINING = lazy(
    r"Not all ranks joining|Collective sequence number: \d+ has errors|best knowledge, .*lagging"
)
_RAS_HEAD = lazy(
    r"^\s*(?:#\d+-\d+ \([\da-f]+\) |(?!ERROR))(INCOMPLETE|DEAD|ERROR|TIMEOUT|MISMATCH)\s*$"
)
_DETAIL = lazy(
    r"^\s+(?:Communicator ranks have|Missing communicator|The missing rank|Process \d+ on "
    r"node|Encountered \d+ comm"
    r"|\d+ (?:ranks? (?:ha\w+ (?:not )?(?:launched|status)|reported)|job "
    r"process)|(?:Initializat|Asynchr)\w+ error"
    r"|Rank \d+ (?:--|has (?:not )?(?:launched|status)|reported )|(?:- )?\[[\d, ]+\] "
    r"(?:joined|finished) .*ctive #)"
    r"|(?:^|[\s:])(?:collective: \S+|[Mm]issing ranks(?::| are) \{[\d, ]*\}|error msg: Culprit "
    r"rank.*)$"
)
_RAS_ROW = lazy(
    r"^\s+\d+\s+\d+(?:\s+\d+(?:-\d+)?){4}\s+(?:NOCOMM|INIT|RUNNING|FINALIZE|ABORT|MISMATCH)\b"
)
_RAS_CODES = {
    "INCOMPLETE": "ras-incomplete",
    "DEAD": "ras-incomplete",
    "ERROR": "ras-error",
    "TIMEOUT": "ras-timeout",
    "MISMATCH": "ras-mismatch",
}
"""What NCCL's RAS prints → the finding."""

_SIGNS = (
    _WATCHDOG,
    _REST,
    _AT_WORK,
    _STATUS,
    _HEARTBEAT,
    _LAGGARD,
    _GLOO,
    _FRAME,
    _RENDEZVOUS,
    _NOT_JOINING,
    _RAS_HEAD,
    _DETAIL,
    _RAS_ROW,
)
_INDEX = Index((sign.pattern, sign) for sign in _SIGNS)
_MOST_DETAILS = 6
"""Lines of a report that a finding quotes."""
_MOST_WAITS = 3
"""Sentences about ranks that wait, which a finding has: a job has many groups that wait alike."""
_MOST_RANKS = 100_000
"""Ranks of a group that are kept: a log may be of any length."""
_WRAPPED_AT = ("W", "Work")
"""Where a page wraps a line of the watchdog: at the next capital."""


def is_sign(text: str) -> bool:
    """Return whether a line says something of ranks that wait, or of a report on them."""
    possible = _INDEX.possible(text)
    return any(sign.search(text) for _, sign in possible)


# -- what is known


class Group(NamedTuple):
    """A process group; several have one name, as those of tensor parallelism."""

    name: str = ""
    number: str = ""
    is_peers: bool = False
    """Whether it stands for the sends and receives of the group, which have their own numbers."""


class Call(NamedTuple):
    """A collective that a rank called; what is not printed is empty."""

    name: str = ""
    elements: str = ""

    @property
    def phrase(self) -> str:
        """The collective with its size, for a sentence."""
        name = self.name or "a collective"
        if not self.elements:
            return name
        size = counted(int(self.elements), "element")
        return f"{name} of {size}"


@dataclass(slots=True)
class RankState:
    """What one rank of a process group did last; None: not printed."""

    started: int | None = None
    """Number of the last collective that it started, in the sequence of its group."""
    waits_for: int | None = None
    """Number of the collective in which it waits, or gave up."""
    waited_s: float | None = None
    calls: dict[int, Call] = field(default_factory=dict)
    """Number → what the rank called."""
    member: int | None = None
    """Its rank within the group."""
    queued: int | None = None
    """Collectives that its watchdog has not seen end."""

    @property
    def is_peers(self) -> bool:
        """Whether it waits for one rank, not for a group."""
        return any(call.name in _PEERS for call in self.calls.values())  # a wait has only one call

    def has_started(self, number: int) -> bool:
        """Return whether the rank is known to have started a collective."""
        known = (self.waits_for, self.started)
        return any(each is not None and each >= number for each in known)

    def copy(self) -> "RankState":
        """Return a state that may be changed without changing this one."""
        return replace(self, calls=dict(self.calls))


Ranks = dict[int, RankState]
"""Rank (of the job, where it is printed; else of the group) → its state."""
Groups: TypeAlias = Mapping[Group, Ranks]


@dataclass(slots=True)
class Hangs:
    """What one execution's lines say of ranks that wait."""

    has_ras_table: bool = False
    """Whether there is a table of NCCL's RAS."""
    may_go_on: bool = False
    """Whether ranks that wait may be no error: nothing says that they gave up."""
    groups: dict[Group, Ranks] = field(default_factory=dict)
    """Process group → what is known of its ranks."""
    job: Groups = field(default_factory=dict)
    """The same of all processes of a job, where other outputs have some of them."""
    reports: dict[str, dict[str, None]] = field(default_factory=dict)
    """First line of what a report says → the lines below it."""
    stuck_s: int = 0
    """How long PyTorch's watchdog made no progress."""
    laggards: dict[int, None] = field(default_factory=dict)
    """Ranks that PyTorch's desync report names."""
    rendezvous: str = ""
    """What XLA's threads wait for, as a sentence."""
    line: str = ""
    """The first line that shows a rank that waits."""
    _stuck_watchdogs: dict[int, None] = field(default_factory=dict)
    """Ranks whose heartbeat monitor gave up, in order of appearance."""
    _pending: dict[int, list[RankState]] = field(default_factory=dict)
    """What ranks wait for in groups that are not known yet."""
    _called: dict[int, str] = field(default_factory=dict)
    """Rank → the collective in which its traceback ends."""
    _wrapped: str = ""
    """A line of the watchdog that goes on in the next one."""

    def feed(self, text: str) -> None:
        """Read one line: of a watchdog, a heartbeat monitor, a status, XLA, or of a report."""
        if self._wrapped and _REST.search(text):  # the rest of a watchdog's line
            text = self._wrapped + text.strip()
        self._wrapped = ""
        if not _INDEX.possible(text):
            return
        for sign, read in _READERS:
            match = sign.search(text)
            if match is not None:
                read(self, text, match)
                break
        else:
            self._read_report(text)
        if not self.has_ras_table:
            self.has_ras_table = _RAS_ROW.search(text) is not None

    def _keep_line(self, text: str) -> None:
        """Keep the first line that shows a rank that waits: ranks may print theirs late."""
        if not self.line or printed_before(text, self.line):
            self.line = text.strip()

    def _read_watchdog(self, text: str, _match: Match) -> None:
        """Keep what a rank waits for: of which group it is, only a later status says."""
        match = _WAIT.search(text)
        if match is None:  # a page may have wrapped the line
            begun = text.rstrip()
            self._wrapped = begun if begun.endswith(_WRAPPED_AT) else ""
            return
        self._keep_line(text)
        number = int(match["number"] or 0)  # 0: not printed
        waited = match["waited"] or match["limit"]  # in milliseconds; else the limit
        state = RankState(waits_for=number)
        elements = match["elements"] or ""
        state.calls[number] = Call(match["call"], elements)
        if waited:
            state.waited_s = int(waited) / 1000
        self._keep_pending(_rank_that_printed(text), state)

    def _read_frame(self, text: str, match: Match) -> None:
        """Keep the last frame of a rank's traceback inside PyTorch: the innermost comes last."""
        if len(self._called) < _MOST_RANKS:
            self._called[_rank_that_printed(text)] = match["call"]

    def _read_gloo(self, text: str, match: Match) -> None:
        """Keep what a rank waits for over gloo, which numbers no collectives: 0."""
        self._keep_line(text)
        rank = _rank_that_printed(text)
        called = self._called.get(rank, "")
        waited_s = int(match["limit"]) / 1000
        state = RankState(waits_for=0, waited_s=waited_s)
        state.calls[0] = Call(called)
        self._keep_pending(rank, state)

    def _keep_pending(self, rank: int, state: RankState) -> None:
        """Keep what a rank waits for until its group is known."""
        if len(self._pending) < _MOST_RANKS:
            self._pending.setdefault(rank, []).append(state)

    def _read_status(self, text: str, match: Match) -> None:
        """Keep how far a rank of a group came, and the pending wait that belongs to this group."""
        rank = _rank_that_printed(text)
        gave_up_in = _GAVE_UP_IN.search(text)
        wait = self._take_pending_wait(rank, int(gave_up_in[1])) if gave_up_in else None
        is_peers = wait is not None and wait.is_peers  # these are numbered apart, as another group
        group = _group_named(match["group"])._replace(is_peers=is_peers)
        state = self._state_of(group, rank)
        if state is None:
            return
        state.member = int(match["rank"])
        state.started = int(match["started"])
        timed_out_at = _AT_WORK.search(text)  # says itself what the rank waits for
        if timed_out_at is not None:
            self._keep_line(text)
            state.waits_for = int(timed_out_at["number"])
        if wait is not None:
            _add_wait(state, wait)

    def _take_pending_wait(self, rank: int, number: int) -> RankState | None:
        """Take out what a rank waits for at a number of a sequence; None: no watchdog said so."""
        pending = self._pending.get(rank, [])
        for wait in pending:
            if wait.waits_for in {number, 0}:  # 0: its number was not printed
                pending.remove(wait)
                return wait
        return None

    def _read_heartbeat(self, text: str, match: Match) -> None:
        # The watchdog of a rank made no progress; `queued`: the collectives that it still watches;
        # `stuck`: for how many seconds.
        self._keep_line(text)
        stuck_s = int(match["stuck"] or 0)
        self.stuck_s = max(self.stuck_s, stuck_s)
        rank = _rank_that_printed(text)
        state = self._state_of(_group_named(match["group"] or ""), rank)
        if state is None:
            return
        self._stuck_watchdogs[rank] = None
        if match["queued"]:
            state.queued = int(match["queued"])

    def _read_rendezvous(self, text: str, match: Match) -> None:
        self._keep_line(text)
        call = match["call"].strip() or "a rendezvous"
        self.rendezvous = (
            f"XLA: {match['arrived']} of {match['expected']} threads arrived at {call}"
        )

    def _read_report(self, text: str) -> None:
        """Read a line of a report: ranks that lag, the first line of a part, or what is below."""
        laggard = _LAGGARD.search(text)
        if laggard is not None:
            for rank in laggard[1].split(","):
                self.laggards[int(rank)] = None
        # A part of a report has no end of its own: details below belong to the last head.
        if _RAS_HEAD.search(text) or _NOT_JOINING.search(text):
            self.reports.setdefault(text.strip(" \t-:"), {})  # without the rules around a head
        elif self.reports and _DETAIL.search(text):
            last = next(reversed(self.reports))
            self.reports[last][text.strip()] = None  # several ranks may report the same

    def _state_of(self, group: Group, rank: int) -> RankState | None:
        """Return what is known of a rank of a group; None for one more than are kept."""
        ranks = self.groups.setdefault(group, {})
        if rank not in ranks and len(ranks) >= _MOST_RANKS:
            return None
        return ranks.setdefault(rank, RankState())

    # -- what follows from it

    def is_shown(self) -> bool:
        """Return whether any rank or report says that ranks wait."""
        return bool(self.line or self.reports)

    def findings(self) -> Iterator[Finding]:
        """Yield who waits for whom, then reports; these first if they name who lags."""
        if not self.is_shown():
            return
        groups = self._with_pending_waits()
        reports = list(self._reports())
        if self.laggards:
            yield from reports
        waiting = [name for name, ranks in groups.items() if _numbers_waited_for(ranks)]
        if waiting:
            yield self._timeout_finding(groups, waiting)
        elif self._stuck_watchdogs:
            yield self._watchdog_finding(groups)
        if self.rendezvous:
            yield finding("ranks-missing", self.line, report=self.rendezvous)
        if not self.laggards:
            yield from reports

    def _with_pending_waits(self) -> Groups:
        """Return the groups, with the waits of which no line names the group added.

        They belong to the only group that there is; of several, to one without a name. What
        PyTorch says a second time when it ends a process is known already, and left out.
        """
        known = self.job or self.groups  # of all outputs of a job, where there are several
        groups = map_values(_copied, known)
        assumed = Group()  # without a name
        if len(groups) == 1:
            (assumed,) = groups
        for rank, waits in self._pending.items():
            for wait in waits:
                if not _is_known(groups, rank, wait):
                    ranks = groups.setdefault(assumed, {})
                    _add_wait(ranks.setdefault(rank, RankState()), wait)
        return groups

    def _timeout_finding(self, groups: Groups, waiting: Sequence[Group]) -> Finding:
        """Return which ranks wait in what, and who is behind; `waiting`: groups with such ranks."""
        # Groups of one name, such as those of tensor parallelism, are one in the sentences.
        by_name: dict[Group, Ranks] = {}
        for group in waiting:
            of_name = by_name.setdefault(group._replace(number=""), {})
            of_name.update(groups[group])
        sentences: list[str] = []
        for group, ranks in by_name.items():
            sentences += _waits_in_words(group, ranks)
        behind = self._who_is_behind(groups, waiting)
        timeout = finding(
            "collective-timeout",
            self.line,
            waits="; ".join(sentences[:_MOST_WAITS]),
            late=behind.sentence or _if_all_wait(groups, waiting),
            whom=behind.whom,
        )
        if self.may_go_on and not behind.sentence:  # a dump of a job that may be healthy
            return replace(timeout, severity=Severity.WARNING)
        return timeout

    def _who_is_behind(self, groups: Groups, waiting: Sequence[Group]) -> "Behind":
        """Return who is behind: first where ranks called different collectives, else who is late.

        Different collectives are an error of the program, and may be why ranks are late.
        A rank that waits itself, in whatever group, is not late. Sends and receives are left out:
        they concern only two ranks of a group.
        """
        busy: dict[int, Group] = {}  # rank → the group that it waits in
        for group in reversed(waiting):  # the first group of a rank counts
            busy |= dict.fromkeys(_ranks_that_wait(groups[group]), group)
        collective = [group for group in waiting if not group.is_peers]
        late = [_behind_in_group(groups[group], self.laggards, busy) for group in collective]
        possible = [*late, *_different_names(groups), _crossed_waits(groups, collective, busy)]
        program_errors = [behind for behind in possible if behind.is_program]
        explained = [behind for behind in possible if behind.sentence]
        return (program_errors or explained or possible)[0]

    def _watchdog_finding(self, groups: Groups) -> Finding:
        """Return whose watchdog is stuck, and who had queued the fewest collectives, if known."""
        queues = _queue_lengths(groups)
        behind = ""
        to_look_at: Iterable[int] = self._stuck_watchdogs
        if len(set(queues.values())) > 1:
            fewest = min(queues.values())  # who queued less may be whom the others wait for
            to_look_at = [rank for rank, count in queues.items() if count == fewest]
            most = max(queues.values())
            behind = f" {rank_numbers(to_look_at)} had queued {fewest} collectives, others {most}."
        whom = rank_numbers(to_look_at).lower()
        time = f" for {self.stuck_s} s" if self.stuck_s else ""
        return finding("watchdog-stuck", self.line, time=time, behind=behind, whom=whom)

    def _reports(self) -> Iterator[Finding]:
        for head, details in self.reports.items():
            report = _report_in_words(head, details)
            ras = _RAS_HEAD.search(head)
            if ras is None:
                yield finding("ranks-missing", head, report=report)
            elif details:  # the word alone may be another program's
                yield finding(_RAS_CODES[ras[1]], head, report=report)


_Read: TypeAlias = Callable[[Hangs, str, Match], None]
_READERS: Sequence[tuple[re.Pattern[str], _Read]] = (
    (_WATCHDOG, Hangs._read_watchdog),  # noqa: SLF001 - its own table
    (_HEARTBEAT, Hangs._read_heartbeat),  # noqa: SLF001
    (_STATUS, Hangs._read_status),  # noqa: SLF001
    (_RENDEZVOUS, Hangs._read_rendezvous),  # noqa: SLF001
    (_FRAME, Hangs._read_frame),  # noqa: SLF001
    (_GLOO, Hangs._read_gloo),  # noqa: SLF001
)
"""What reads a line: by the first sign in it."""


def join(hangs: Sequence[Hangs]) -> None:
    """Let hangs of one job know what all its processes said: each pod's output has some of them."""
    job: dict[Group, Ranks] = {}
    for of_output in hangs:
        for group, ranks in of_output.groups.items():
            job.setdefault(group, {}).update(_copied(ranks))
    for of_output in hangs:
        of_output.job = job


def _group_named(text: str) -> Group:
    """Return the group that PyTorch calls `ID 1 PG GUID 2(tensor_parallel)`, or by a number."""
    match = _GROUP.search(text)
    return Group(match[2], match[1]) if match else Group(text)


def _is_known(groups: Groups, rank: int, wait: RankState) -> bool:
    """Return whether one of the groups has the call in which a rank waits, already."""
    states = [ranks.get(rank, RankState()) for ranks in groups.values()]
    calls = wait.calls.items()  # the number and the call in which it waits
    return any(calls <= state.calls.items() for state in states)


# -- one process group


class Behind(NamedTuple):
    """Who keeps the others waiting, as far as it is known."""

    sentence: str
    """With a blank before it; empty: it is not known."""
    whom: str
    """Whom to look at."""
    is_program: bool = False
    """Whether ranks called different collectives."""


_NOBODY = Behind(sentence="", whom="the ranks that are not named")
_PROGRAM = "the program differs between ranks, it is not the network"
_STANDS_STILL = "what carries their data stands still, network or GPU"


def _behind_in_group(ranks: Ranks, laggards: Collection[int], busy: Collection[int]) -> Behind:
    """Return who is behind in a group: as PyTorch says, by what ranks called, or how far they came.

    `laggards`: ranks that PyTorch names; `busy`: those that wait themselves, in whatever group.
    """
    number = min(_numbers_waited_for(ranks))  # of the first collective that does not end
    if laggards:
        who = rank_numbers(laggards)
        return Behind(f" {who} did not join it, as PyTorch says.", who.lower())
    calls = _calls_at(ranks, number)
    if len(set(calls.values())) > 1:
        return _different_calls(calls)
    late = _not_started(ranks, number)
    for rank in busy:  # it waits for others itself
        late.pop(rank, None)
    if late:
        who = rank_numbers(late)
        numbers = {str(started) for started in late.values()}
        lasts = listed(sorted(numbers))
        return Behind(f" {who} had not started it (the last: {lasts}).", who.lower())
    return _NOBODY


def _if_all_wait(groups: Groups, waiting: Sequence[Group]) -> str:
    """Return what it means that nobody is behind, if all ranks that are known may be all there are.

    They are, as far as a log shows it, if several wait in one group, from rank 0 on without a gap.
    """
    (group, *others) = waiting
    ranks = _ranks_that_wait(groups[group])
    has_gap = ranks != set(range(len(ranks)))
    if others or has_gap or len(ranks) == 1:
        return ""
    return f" If these are all ranks, none is behind: {_STANDS_STILL}."


def _not_started(ranks: Ranks, number: int) -> dict[int, int]:
    """Return the ranks that had not started a collective → the last one that they started."""
    if not number:  # 0: not printed
        return {}
    return {
        rank: state.started
        for rank, state in ranks.items()
        if state.started is not None and not state.has_started(number)
    }


def _different_calls(calls: Mapping[int, Call], where: str = "that number") -> Behind:
    """Return which ranks did not call what most called at one number of the sequence.

    `calls`: rank → its call, at least two different ones. If no call is the most frequent, all
    ranks are named.
    """
    two = Counter(calls.values()).most_common(2)
    (usual, most), (_, second) = two  # each with how many ranks called it
    odd: dict[Call, list[int]] = {}  # call → the ranks that called it
    for rank, call in calls.items():
        if call != usual or most == second:
            odd.setdefault(call, []).append(rank)
    phrases: list[str] = []
    for call, who in odd.items():
        phrases.append(f"{rank_numbers(who)} called {call.phrase}")
    others = f", the others {usual.phrase}" if most > second else ""
    sentence = f" {listed(phrases, limit=3)} at {where}{others}"
    whom = [rank for who in odd.values() for rank in who]
    return Behind(f"{sentence}: {_PROGRAM}.", rank_numbers(whom).lower(), is_program=True)


def _different_names(groups: Groups) -> Iterator[Behind]:
    """Yield each number at which ranks of a group called collectives of different names.

    Also of groups in which none waits now. Sizes may differ between ranks.
    """
    for group, ranks in groups.items():
        if group.is_peers:
            continue
        calls_of_ranks = [state.calls for state in ranks.values()]
        name = group.name or "the group"
        for number in sorted(set().union(*calls_of_ranks)):
            calls = _calls_at(ranks, number)
            if len({call.name for call in calls.values()}) > 1:
                yield _different_calls(calls, f"number {number} of {name}")


Busy: TypeAlias = Mapping[int, Group]
"""Rank → the group that it waits in."""


def _crossed_waits(groups: Groups, waiting: Sequence[Group], busy: Busy) -> Behind:
    """Return that ranks for which one group waits wait themselves in another group, if they do.

    Where two groups wait so for each other, ranks called them in another order: a deadlock of the
    program. `waiting`: the groups in which ranks wait.
    """
    # (the group that waits, the group in which its absent ranks wait) → these ranks
    absent: dict[tuple[Group, Group], list[int]] = {}
    for group in waiting:
        ranks = groups[group]
        absentees = ranks.keys() & busy.keys() - _ranks_that_wait(ranks)
        for rank in sorted(absentees):
            absent.setdefault((group, busy[rank]), []).append(rank)
    sentences: dict[tuple[Group, Group], str] = {}
    for (group, other), who in absent.items():
        verb = "waits" if len(who) == 1 else "wait"
        ranks_named = rank_numbers(who)
        elsewhere = f"{verb} in {other.name}"
        sentences[group, other] = f" {ranks_named}, for which {group.name} waits, {elsewhere}"
    for pair, sentence in sentences.items():
        back = sentences.get(pair[::-1])
        if back:
            return Behind(f"{sentence}.{back}: {_PROGRAM}.", "the order of both", is_program=True)
    for (_, other), sentence in sentences.items():  # no deadlock: the first says where to look
        return Behind(f"{sentence}.", f"what {other.name} waits for")
    return _NOBODY


def _ranks_that_wait(ranks: Ranks) -> set[int]:
    """Return the ranks that wait."""
    return {rank for rank, state in ranks.items() if state.waits_for is not None}


def _copied(ranks: Ranks) -> Ranks:
    return {rank: state.copy() for rank, state in ranks.items()}


def _numbers_waited_for(ranks: Ranks) -> list[int]:
    """Return the numbers of the collectives in which ranks wait."""
    numbers = [state.waits_for for state in ranks.values()]
    return [number for number in numbers if number is not None]


def _calls_at(ranks: Ranks, number: int) -> dict[int, Call]:
    """Return rank → what it called at a number of the sequence, where it is known."""
    calls: dict[int, Call] = {}
    for rank, state in ranks.items():
        if number and number in state.calls:  # 0: not printed, and may be of different calls
            calls[rank] = state.calls[number]
    return calls


def _waits_in_words(group: Group, ranks: Ranks) -> Iterator[str]:
    """Yield which ranks waited, how long, and in what, as sentences without a full stop."""
    waiters: dict[tuple[int, Call], list[int]] = {}  # (number, call) → the ranks that wait in it
    for rank, state in ranks.items():
        if state.waits_for is not None:
            call = state.calls.get(state.waits_for, Call())
            waiters.setdefault((state.waits_for, call), []).append(rank)
    name = group.name
    # A number instead of a name tells the reader nothing.
    where = f" of process group {name}" if name and not name.isdecimal() else ""
    for (number, call), who in waiters.items():
        which = f", sequence number {number}" if number else ""  # 0: not printed
        members = _members(ranks, who)
        time = _time_waited(ranks[rank] for rank in who)
        queue = _queued_behind(ranks[who[0]])
        yield f"{members} waited{time} in {call.phrase}{which}{where}{queue}"


def _time_waited(states: Iterable[RankState]) -> str:
    """Return how long the rank that waited longest did, ` 600 s`; empty: not printed."""
    times = [state.waited_s for state in states if state.waited_s is not None]
    if not times:
        return ""
    longest = format(max(times), ".4g")
    return f" {longest} s"


def _members(ranks: Ranks, who: Sequence[int]) -> str:
    """Return the names of ranks, with the rank in the group where it is another one."""
    (first, *others) = who
    member = ranks[first].member
    if others or member is None or member == first:
        return rank_numbers(who)
    return f"{rank_numbers(who)} (rank {member} of the group)"


def _queued_behind(state: RankState) -> str:
    """Return, as the end of a sentence, how many collectives are behind the one it waits in."""
    if state.started is None or not state.waits_for:
        return ""
    behind = state.started - state.waits_for
    return f", {behind} more are queued behind it" if behind > 0 else ""


def _queue_lengths(groups: Groups) -> dict[int, int]:
    """Return rank → how many collectives are in the queue of its watchdog, where it is known."""
    return {
        rank: state.queued
        for ranks in groups.values()
        for rank, state in ranks.items()
        if state.queued is not None
    }


def _add_wait(state: RankState, wait: RankState) -> None:
    """Add to what is known of a rank in which collective it waits."""
    state.waits_for = wait.waits_for
    state.waited_s = wait.waited_s
    state.calls |= wait.calls


def _rank_that_printed(text: str) -> int:
    """Return the rank that printed a line; -1 if it does not say."""
    match = _RANK.search(text)
    return int(match[1]) if match else -1


def rank_numbers(ranks: Iterable[int]) -> str:
    """Return `Rank 3` or `Ranks 0, 1, 2`."""
    known = sorted({*ranks})
    names = [str(rank) for rank in known if rank >= 0]
    if -1 in known:  # its line does not say which
        names.insert(0, "?")
    noun = "Rank" if len(names) == 1 else "Ranks"
    return f"{noun} {listed(names, limit=8)}"


def _report_in_words(head: str, details: dict[str, None]) -> str:
    # The first line of what a report says, and the first lines below it.
    shown = list(details)[:_MOST_DETAILS]
    if len(details) > _MOST_DETAILS:
        more = len(details) - _MOST_DETAILS
        shown.append(f"{more} more")
    text = "; ".join(shown)
    return f"{head}: {text}"
