"""What NCCL's RAS says of a job: in JSON (`ncclras -f json`, 2.28 or newer), else as text.

It is no benchmark.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from operator import itemgetter
from typing import Any, NamedTuple, TypeAlias

from fabbench.evidence.hangs import Hangs, rank_numbers
from fabbench.evidence.known_errors import finding
from fabbench.model.log import NCCL_DEBUG, Finding, MutableFacts, Record
from fabbench.model.messages import listed
from fabbench.model.patterns import bounded, lazy

Fields: TypeAlias = Mapping[str, Any]
SIGN = b'"communicators_count"'
"""What is in every such report in JSON."""
_NO_COMMA = lazy(r'(?<=[\d"])(\s*\n\s*)(?="status")')
"""NCCL 2.28 leaves out the comma there for ranks that do not answer."""
_STATES = itemgetter("init_state", "async_error")
_NO_ERROR = frozenset({0, 7})
"""States of a communicator, and results of its calls: ncclSuccess and ncclInProgress."""


class RasReport(NamedTuple):
    """What RAS says of a job at one moment."""

    findings: list[Finding]
    # Which ranks wait for which, without a period; empty: none, or it is a text
    waits: str = ""
    nccl: str = ""


def ras_report(text: str) -> RasReport | None:
    """Read an answer in JSON or as text; None if it is neither, or damaged."""
    if SIGN.decode() in text:
        return _read_json(text)
    hangs = Hangs()
    for line in text.splitlines():
        hangs.feed(bounded(line))
    return RasReport([*hangs.findings()]) if hangs.has_ras_table else None


def read_ras(text: str) -> Record | None:
    """Read a report in JSON; None if it is damaged."""
    report = _read_json(text)
    if report is None:
        return None
    facts: MutableFacts = {"report": "NCCL RAS", "nccl": report.nccl}
    return Record(benchmark=None, case=NCCL_DEBUG, facts=facts, findings=report.findings)


def _read_json(text: str) -> RasReport | None:
    # What the client says above it is left out.
    begin = text.find("{")
    end = text.rfind("}") + 1
    whole = _NO_COMMA.sub(r",\1", text[begin:end])  # NCCL 2.28 leaves one out
    try:
        report = json.loads(whole)
        version = str(report.get("nccl_version", "unknown"))
        return RasReport([*_findings(report)], _waits(report["communicators"]), version)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError, ArithmeticError):
        return None


_PROCESS = itemgetter("host", "pid", "cuda_dev")  # What a rank is in all communicators


def _waits(communicators: Iterable[Fields]) -> str:
    """Return which ranks of the largest communicator wait for which; empty: none does.

    Who does not answer, or launched less, lets others wait, unless it waits in another one itself.
    """
    ranks = dict[Any, Fields]()  # process → it as a rank of the largest
    waiting = set[Any]()
    late = set[Any]()
    for communicator in sorted(communicators, key=itemgetter("size")):
        launched = Counter[Any]()
        for rank in (*communicator["ranks"], *communicator["missing_ranks"]):
            process = _PROCESS(rank)
            ranks[process] = rank
            launched[process] = sum(rank.get("collective_counts", {}).values())
        most = max(launched.values(), default=0)
        behind = {who for who, count in launched.items() if count < most}
        if behind:
            late |= behind
            waiting |= launched.keys() - behind
    if not late:
        return ""
    who = rank_numbers(ranks[each]["rank"] for each in waiting)
    to_blame = sorted(late - waiting or late)
    whom = listed([_rank_and_process(ranks[each]) for each in to_blame])
    verb = "waits" if len(waiting) == 1 else "wait"
    return f"{who.lower()} {verb} for rank {whom}"


def _findings(report: Fields) -> Iterator[Finding]:
    for communicator in report["communicators"]:
        name = f"Communicator {communicator['hash']}"
        silent = [_rank_and_process(rank) for rank in communicator["missing_ranks"]]
        if silent:
            yield finding("ras-incomplete", report=f"{name}: no answer from rank {listed(silent)}")
        yield from _with_error(name, communicator["ranks"])
        yield from _launched_differently(name, communicator["ranks"])
    late = report["ras"]["timeouts_count"]
    if late:
        yield finding("ras-timeout", report=f"answers that did not come in time: {late}")


def _with_error(name: str, ranks: list[Fields]) -> Iterator[Finding]:
    """Yield a finding if ranks report an error."""
    failed = [str(rank["rank"]) for rank in ranks if _has_failed(rank)]
    if failed:
        yield finding("ras-error", report=f"{name}: rank {listed(failed)} reports an error")


def _has_failed(rank: Fields) -> bool:
    states = _STATES(rank["status"])
    return not _NO_ERROR.issuperset(states)


def _launched_differently(name: str, ranks: list[Fields]) -> Iterator[Finding]:
    """Yield a finding for each collective that ranks did not launch equally often."""
    launched: dict[str, dict[str, int]] = {}  # collective → rank → how often
    for rank in ranks:
        for call, times in rank["collective_counts"].items():
            launched.setdefault(call, {})[_rank_and_process(rank)] = times
    for call, by_rank in launched.items():
        usual = _count_of_most(by_rank.values())
        others = {who: times for who, times in by_rank.items() if times != usual}
        if others:
            counts = [f"{who} {times}" for who, times in others.items()]
            report = f"{name}: {call} was launched {usual} times, but by rank {listed(counts)}"
            yield finding("ras-mismatch", report=report)


def _count_of_most(counts: Iterable[int]) -> int:
    """Return the count of most ranks; of two that are as frequent, the one that is further."""
    frequent = Counter(counts)
    return max(frequent, key=lambda count: (frequent[count], count))


def _rank_and_process(rank: Fields) -> str:
    """Return a rank of a communicator with its process, which has others in other ones."""
    return "{rank} ({host}, process {pid})".format_map(rank)
