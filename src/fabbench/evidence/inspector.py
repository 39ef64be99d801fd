"""What NCCL's inspector (2.28 and newer) tells of a job: a line of JSON per call and rank. Pure.

It is no benchmark: nobody set the sizes, and it records a sample of the calls. The time of a rank
is that of its kernel, which waits for the other ranks: a call is as fast as the rank that comes
last to it, whose time is the shortest. plugins/profiler/inspector/inspector_json.cc writes it.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from operator import itemgetter
from statistics import median
from typing import Any, TypeAlias

from fabbench.benchmarks.consistency import ALL_REDUCE, GATHERING, SAME, Formula, printed, ratios
from fabbench.evidence.known_errors import finding
from fabbench.model.log import INSPECTOR, Damaged, Finding, Labels, Point, Record
from fabbench.model.mappings import gathered
from fabbench.model.messages import LONGEST_QUOTE
from fabbench.model.patterns import lazy
from fabbench.model.units import whole_or_text

LATE = "rank-waited-for"
RANKS = "inspector-ranks"
SIGN = b'"inspector_output_format_version"'
_MOST = 200_000  # lines are kept, the newest ones
# What follows the rates of a verbose one is not read
_LINE = lazy(
    r'\{"header": ?\{"id": ?"(?P<id>\w+)", ?(?:"comm_name": ?"(?:[^"\\]|\\.)*", ?)?'
    r'"rank": ?(?P<rank>\d{1,9}), ?"n_ranks": ?(?P<ranks>[1-9]\d{0,8}), ?'
    r'"nnodes": ?(?P<hosts>\d{1,9})\}, ?"metadata": ?\{[^{}]{0,400}?"hostname": ?'
    r'"(?P<host>[^"]+)", ?"pid": ?(?P<pid>\d{1,9})\}, ?"(?:coll|p2p)_perf": ?\{'
    r'"(?:coll|p2p)": ?"(?P<name>\w+)", ?"\w+_sn": ?(?P<number>\d{1,18}), ?'
    r'(?:"p2p_peer": ?-?\d+, ?)?"\w+_bytes": ?(?P<bytes>\d{1,15}), ?'
    r'"\w+_us": ?(?P<time>\d{1,15}), ?(?:"\w+_source": ?"(?P<timing>\w+)", ?)?'
    r'"\w+_algobw_gbs": ?(?P<algbw>\d{1,9}\.\d+), ?"\w+_busbw_gbs": ?(?P<busbw>\d{1,9}\.\d+)[,}]'
)
_NEXT_WORD = lazy(r"(?<=[a-z])(?=[A-Z])")
# Collectives that no rank leaves before all have come
_OF_ALL = ("AllReduce", "AllGather", "ReduceScatter")
_MEDIAN: Labels = {}
_SLOWEST: Labels = {"stat": "slowest"}
_METRICS = ("time", "calls", "algbw", "busbw")
_SHAPES = (ALL_REDUCE, GATHERING, SAME)
_FEWEST = 20  # Of fewer calls a rank has to be last to as many
_NEARLY_ALL = 0.9  # of its calls: to so many a rank comes last that holds the others up
_WAIT_US = 100  # Others wait at least so long for it, and as long as the call itself takes


# What a rank recorded of a call: time in us, rates in GB/s as text
_Line: TypeAlias = Mapping[str, Any]
# What ranks recorded of one: first the rank that came last, whose time is the shortest
_Call: TypeAlias = Sequence[_Line]
_TABLE = itemgetter("name", "ranks", "hosts", "timing")
_CALL = itemgetter("id", "number")
_TIME = itemgetter("time")
_SIZE = itemgetter("bytes")
_RATES = itemgetter("algbw", "busbw")
_RANK_NUMBER = itemgetter("rank")
_RANK = "{rank} ({host}, process {pid})".format_map


def records(texts: Iterable[str]) -> Iterator[Record]:
    """Yield a record per kind of call from lines of a job. What is damaged may be of any."""
    damaged: list[Damaged] = []
    newest = deque(_lines(texts, damaged), maxlen=_MOST)
    # All below stays in this order: of a call, and of calls, the shortest time comes first.
    lines = sorted(newest, key=_TIME)
    tables = gathered((_TABLE(line), line) for line in lines)
    for (name, ranks, hosts, timing), known in tables.items():
        # Of other collectives, and of sends, a line is a call of its own.
        joins = name in _OF_ALL
        keys = map(_CALL, known) if joins else map(id, known)
        calls = gathered(zip(keys, known, strict=True)).values()
        case = _NEXT_WORD.sub("_", name).lower()
        recorded = len(set(map(_RANK_NUMBER, known)))
        if joins and recorded < ranks:
            cannot_tell = [finding(RANKS, case=case, recorded=recorded, ranks=ranks)]
        else:
            cannot_tell = []
        yield Record(
            benchmark=INSPECTOR,
            case=case,
            points=[*_points(calls)],
            facts={"ranks": ranks, "hosts": hosts, "timing": timing},
            findings=[finding("inspector-calls"), *cannot_tell, *_waited_for(case, calls)],
            damaged=damaged,
            finished=None,
        )


def _lines(texts: Iterable[str], damaged: list[Damaged]) -> Iterator[_Line]:
    """Yield lines; others are added to the damaged ones."""
    for number, text in enumerate(texts, 1):
        match = _LINE.match(text)
        fields = match.groupdict("unknown") if match else {}
        line = {name: _number(word) for name, word in fields.items()}
        if line and _is_one_measurement(line):
            yield line
        elif text:
            damaged.append(Damaged(number, text[:LONGEST_QUOTE]))


def _is_one_measurement(line: _Line) -> bool:
    """Return whether rates are those of the bytes and the time of a call; some calls have none.

    The bytes are those of a rank or of all ranks, and the factor of busbw one of three, by the kind
    of call.
    """
    algbw, busbw = (printed(word, 9) for word in _RATES(line))
    time = printed(str(_TIME(line)), -6)
    row = ratios(_SIZE(line), time, algbw, busbw)
    ranks = line["ranks"]
    factors = [shape.of(ranks).bus for shape in _SHAPES]
    formulas = (Formula(share, factor) for share in (1, ranks) for factor in factors)
    return not algbw.value or any(formula.fits(row) for formula in formulas)


def _number(word: str) -> Any:
    return whole_or_text(word)


def _points(calls: Iterable[_Call]) -> Iterator[Point]:
    """Yield the median call of each size, and the slowest, by the rank that came last to each."""
    last = [call[0] for call in calls]
    sizes = gathered((_SIZE(line), line) for line in last)
    for size in sorted(sizes):
        lines = sizes[size]
        middle = lines[len(lines) // 2]
        for labels, line in ((_MEDIAN, middle), (_SLOWEST, lines[-1])):
            # Of some calls, and of one rank alone, there is no rate.
            rates = [1e9 * rate for rate in map(float, _RATES(line)) if rate]
            values = (_TIME(line) / 1e6, len(lines), *rates)
            yield Point(size, labels, _METRICS[: len(values)], values)


def _waited_for(case: str, calls: Iterable[_Call]) -> Iterator[Finding]:
    """Find ranks that come last to nearly all of their calls while others wait."""
    waits = gathered(chain.from_iterable(map(_waits, calls)))
    for rank, each in waits.items():
        waited = [wait for wait in each if wait]
        total = len(each)
        if len(waited) >= _NEARLY_ALL * max(total, _FEWEST):
            wait = round(median(waited))
            times = f"{len(waited)} of {total}"
            yield finding(LATE, case=case, rank=rank, times=times, wait=wait)


def _waits(call: _Call) -> Iterator[tuple[str, int]]:
    """Yield each rank of a call, with how long others wait for it."""
    last, *others = call
    yield _RANK(last), _wait(call)
    for line in others:
        yield _RANK(line), 0


def _wait(call: _Call) -> int:
    """Return how long others wait for the rank that comes last, in us; 0: hardly."""
    own = _TIME(call[0])
    wait: int = _TIME(call[len(call) // 2]) - own  # of the one in the middle
    return wait if wait >= max(own, _WAIT_US) else 0
