"""The JSON of NCCL's RAS (`ncclras -f json`, 2.28 or newer), which is no benchmark."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from fabbench.evidence.known_errors import finding
from fabbench.model.log import NCCL_DEBUG, Finding, MutableFacts, Record
from fabbench.model.messages import listed
from fabbench.model.patterns import lazy

SIGN = b'"communicators_count"'
"""What is in every such report."""
_NO_COMMA = lazy(r'(?<=[\d"])(\s*\n\s*)(?="status")')
"""NCCL 2.28 leaves out the comma there for ranks that do not answer."""
_NO_ERROR = frozenset({0, 7})
"""States of a communicator, and results of its calls: ncclSuccess and ncclInProgress."""


def read_ras(text: str) -> Record | None:
    """Read a report; None if it is damaged. What the client says above it is left out."""
    begin = text.find("{")
    end = text.rfind("}") + 1
    whole = _NO_COMMA.sub(r",\1", text[begin:end])  # NCCL 2.28 leaves one out
    try:
        report = json.loads(whole)
        findings = list(_findings(report))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    version = str(report.get("nccl_version", "unknown"))
    facts: MutableFacts = {"report": "NCCL RAS", "nccl": version}
    return Record(benchmark=None, case=NCCL_DEBUG, facts=facts, findings=findings)


def _findings(report: Mapping[str, Any]) -> Iterator[Finding]:
    for communicator in report["communicators"]:
        name = f"Communicator {communicator['hash']}"
        yield from _without_answer(name, communicator["missing_ranks"])
        yield from _with_error(name, communicator["ranks"])
        yield from _launched_differently(name, communicator["ranks"])
    late = report["ras"]["timeouts_count"]
    if late:
        yield finding("ras-timeout", report=f"answers that did not come in time: {late}")


def _without_answer(name: str, ranks: list[Mapping[str, Any]]) -> Iterator[Finding]:
    """Yield a finding if ranks do not answer."""
    silent = [_rank_and_process(rank) for rank in ranks]
    if silent:
        yield finding("ras-incomplete", report=f"{name}: no answer from rank {listed(silent)}")


def _with_error(name: str, ranks: list[Mapping[str, Any]]) -> Iterator[Finding]:
    """Yield a finding if ranks report an error."""
    failed: list[str] = []
    for rank in ranks:
        status = rank["status"]
        states = {status["init_state"], status["async_error"]}
        if not states <= _NO_ERROR:
            failed.append(str(rank["rank"]))
    if failed:
        yield finding("ras-error", report=f"{name}: rank {listed(failed)} reports an error")


def _launched_differently(name: str, ranks: list[Mapping[str, Any]]) -> Iterator[Finding]:
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


def _rank_and_process(rank: Mapping[str, Any]) -> str:
    """Return a rank of a communicator with its process, which has others in other ones."""
    return "{rank} ({host}, process {pid})".format_map(rank)
