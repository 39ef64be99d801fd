"""Record + what was requested → outcome. Pure, and the only place that decides.

The order of the checks is the order of `Outcome`: the first one that applies is the outcome.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from fabbench.benchmarks import benchmark_named
from fabbench.evidence.known_errors import finding, told
from fabbench.model.fabrics import NO_NETWORK, contradicts
from fabbench.model.log import (
    MPI_DEBUG,
    NCCL_DEBUG,
    Ending,
    Facts,
    Finding,
    Log,
    Outcome,
    Proof,
    Record,
    Severity,
)
from fabbench.model.messages import counted, listed
from fabbench.model.units import format_size, scale

if TYPE_CHECKING:
    from fabbench.catalog.expectations import System
    from fabbench.counters.execution_counters import ExecutionCounters

_LINKS = {"IB": "ib", "InfiniBand": "ib", "RoCE": "roce", "Ethernet": "roce"}
"""How NCCL and perftest print the link of a NIC → the fabric."""

_FAR = 3.0  # two logs of one test, each measured once, differ by noise, but not by this factor
_CARRIERS = frozenset({"networks-disagree", "nics-disagree", "nics-unused", "mixed-provider"})
"""Findings that say what carried the data, and contradict a fabric.

Any other error ended the run.
"""


def judge(
    record: Record, *, source: str, proof: Proof | None = None, ending: Ending | None = None
) -> Log:
    """Decide the outcome of one execution, with the reason as a sentence (None for ok)."""
    verdicts = tuple(_verdicts(record, proof, ending))
    outcome, reason = verdicts[0] if verdicts else (Outcome.OK, None)
    report = {"report": "NIC counters"} if _counters(record) else {}
    facts = {**record.facts, **report, "complete": _complete(record, ending)}
    lost = ending is not None and (ending.lost or record.lost)
    return Log(
        source=source,
        benchmark=record.benchmark,
        case=record.case,
        outcome=outcome,
        reason=reason,
        facts=facts,
        findings=(
            *(each for each in record.findings if each.code != "counters"),
            *_remarks(record, proof),
        ),
        damaged=tuple(record.damaged),
        points=record.points,
        evidence=record.evidence,
        also=frozenset(each for each, _ in verdicts) - {outcome},
        hosts=record.hosts,
        execution=record.execution,
        proof=proof,
        # A loss explains a failure and missing rows, but neither wrong data nor another network.
        lost=lost and outcome in {Outcome.FAILED, Outcome.TRUNCATED},
    )


def _verdicts(
    record: Record, proof: Proof | None, ending: Ending | None
) -> Iterator[tuple[Outcome, str]]:
    if record.wrong:
        yield (
            Outcome.CORRUPT,
            f"The benchmark found wrong data: {counted(record.wrong, 'failed check')}.",
        )
    if ending and ending.refused:
        yield Outcome.OFF_FABRIC, ending.refused
    if timed_out := _timeout(record, ending):
        yield Outcome.TIMEOUT, timed_out
    errors = [each for each in record.findings if each.severity is Severity.ERROR]
    for reason in (
        *record.failures,
        *(error.meaning for error in errors if error.code not in _CARRIERS),
    ):
        yield Outcome.FAILED, reason
    if ending and ending.status:
        yield Outcome.FAILED, f"The benchmark exited with status {ending.status}."
    observed = _is_observed(record, ending)
    if not observed and (truncated := next(_gaps(record, ending), "")):
        yield Outcome.TRUNCATED, truncated
    if record.off_fabric:
        yield Outcome.OFF_FABRIC, record.off_fabric
    nics = record.facts.get("nics")
    enough = (
        proof is not None
        and proof.nics is not None
        and isinstance(nics, int)
        and nics >= proof.nics
    )
    doubtful = record.findings if proof and proof.fabric and not enough else errors
    contradictions = [each.meaning for each in doubtful if each.code in _CARRIERS]
    yield from _network_verdicts(record, proof, contradictions)
    if observed:
        known = {record.facts.get(name, "unknown") for name in ("network", "transport")} != {
            "unknown"
        }
        what = "show the network" if known else "do not show the network"
        whose, result = (
            ("MPI's, UCX's or libfabric's", " result of a")
            if record.case == MPI_DEBUG
            else ("NCCL's", "")
        )
        debug = f"{whose} debug lines {what}; no{result} benchmark is in the log."
        report = _counters(record) or record.facts.get("report")
        yield Outcome.OBSERVED, f"This is a report of {report}." if report else debug


def _is_observed(record: Record, ending: Ending | None) -> bool:
    """Return whether the log is of a program that is not a benchmark, so nothing is missing from it."""
    others = (
        record.case in {NCCL_DEBUG, MPI_DEBUG}
        or "tests_failed" in record.facts
        or bool(_counters(record))
    )
    return ending is None and others


def _counters(record: Record) -> str:
    """Return what a log is that is nothing but counters of NICs that were pasted.

    Empty for any other.
    """
    codes = {each.code for each in record.findings} if record.benchmark is None else set()
    said = (
        "NIC counters"
        if "counted-errors" in codes
        else "NIC counters, and none known to count errors is above 0"
    )
    return "" if not codes or codes - {"counters", "counted-errors"} else said


def _timeout(record: Record, ending: Ending | None) -> str:
    why = (ending.timed_out if ending else "") or record.timed_out
    if not why or not record.points:
        return why
    return f"{why.rstrip('.')}. The last row is of {format_size(record.points[-1].size)}."


def _gaps(record: Record, ending: Ending | None) -> Iterator[str]:
    if ending and ending.stopped:
        yield ending.stopped
    if record.damaged:
        lines = ", ".join(str(row.line) for row in record.damaged[:5])
        more = " …" if len(record.damaged) > 5 else ""
        rows = counted(len(record.damaged), "row")
        yield f"{rows} could not be read or trusted (line {lines}{more})."
    if not record.points:
        where = (
            "the output ends before the first result"
            if record.benchmark
            else "no benchmark output was found"
        )
        yield f"No row was read: {where}."
    elif not any(point.metrics for point in record.points):
        yield "No row has a usable value."
    if record.finished is False:
        yield "The output ends before the benchmark's own closing lines."
    if record.incomplete:
        yield record.incomplete
    missing = (
        set(ending.planned_sizes) - {point.size for point in record.points} if ending else set()
    )
    if missing:
        yield f"Planned but not measured: {', '.join(map(format_size, sorted(missing)))}."


def _network_verdicts(
    record: Record, proof: Proof | None, contradictions: Sequence[str] = ()
) -> Iterator[tuple[Outcome, str]]:
    """Judge what carried the data: first what is wrong, then what is unknown."""
    verdicts = [*_nic_verdicts(record, proof), *_device_verdicts(record, proof)]
    if proof and proof.fabric:
        verdicts = [*_fabric_verdicts(record, proof), *verdicts]
    elif record.lost_fabric:
        verdicts.append((Outcome.OFF_FABRIC, record.lost_fabric))
    verdicts += [(Outcome.OFF_FABRIC, sentence) for sentence in contradictions]
    yield from sorted(verdicts, key=lambda verdict: verdict[0] is not Outcome.OFF_FABRIC)


def _fabric_verdicts(record: Record, proof: Proof) -> Iterator[tuple[Outcome, str]]:
    facts, accepted = record.facts, benchmark_named(record.benchmark).transports(proof.fabric)
    transport = str(facts.get("transport", "unknown"))
    network = str(facts.get("network", "unknown"))
    requirement = f"{proof.fabric} was requested"
    if contradicts(transport, accepted):
        yield Outcome.OFF_FABRIC, f"{requirement}, but {transport} carried the data."
    elif (
        transport not in accepted
        and proof.fabric not in NO_NETWORK
        and contradicts(network, accepted)
    ):
        yield Outcome.OFF_FABRIC, f"{requirement}, but the library chose {network} as its network."
    elif link := _other_link(record, proof.fabric):
        yield Outcome.OFF_FABRIC, f"{requirement}, but the link of the NICs was {link}."
    domain = facts.get("domain")
    if proof.domain and domain and domain != proof.domain:
        yield Outcome.OFF_FABRIC, f"Domain {proof.domain} was requested, but {domain} was used."
    if transport == "libfabric":
        yield (
            Outcome.UNPROVEN,
            f"{requirement}, and the log does not show which libfabric provider carried the data.",
        )
    elif transport not in accepted:
        yield Outcome.UNPROVEN, f"{requirement}, and the log does not show what carried the data."
    if proof.domain and not domain:
        yield (
            Outcome.UNPROVEN,
            f"Domain {proof.domain} was requested, and the log does not show which was used.",
        )


def _nic_verdicts(record: Record, proof: Proof | None) -> Iterator[tuple[Outcome, str]]:
    """Judge the number of NICs. Without a requested fabric it matters only where EFA is used."""
    nics, fabric = record.facts.get("nics"), proof.fabric if proof else ""
    if not isinstance(nics, int):
        return
    used = f"but {nics} {'was' if nics == 1 else 'were'} used."
    if proof and proof.nics is not None:
        if nics < proof.nics and (fabric or _uses_efa(record)):
            required = f"{fabric} was requested with" if fabric else "The log must show"
            yield Outcome.OFF_FABRIC, f"{required} {proof.nics} NICs per rank, {used}"
    elif _uses_efa(record) and (kind := _system(record, proof)) and nics < min(kind.nics):
        yield Outcome.OFF_FABRIC, f"{kind.name} has {min(kind.nics)} EFA interfaces, {used}"


def _device_verdicts(record: Record, proof: Proof | None) -> Iterator[tuple[Outcome, str]]:
    """Judge which NICs were used, if specific ones were requested. EFA logs show only how many."""
    if proof is None or not proof.devices:
        return
    nics, names = record.facts.get("nics"), str(record.facts.get("devices", ""))
    requirement = f"Ranks were to use only {listed(proof.devices)}"
    others = [name for name in names.split("+") if name and name not in proof.devices]
    if others:
        yield Outcome.OFF_FABRIC, f"{requirement}, but used {listed(others)}."
    elif isinstance(nics, int) and nics > len(proof.devices):
        yield Outcome.OFF_FABRIC, f"{requirement}, but used {nics} NICs."
    elif not isinstance(nics, int):
        yield Outcome.UNPROVEN, f"{requirement}, and the log does not show which NICs were used."


def _uses_efa(record: Record) -> bool:
    return str(record.facts.get("network", "")) == "efa"


def _system(record: Record, proof: Proof | None) -> "System | None":
    """Return the instance type that the log or the user names, if its EFA interfaces are known."""
    name = str(record.facts.get("instance_type", "")) or (proof.instance_type if proof else "")
    if not name:
        return None
    from fabbench.catalog.expectations import system  # imported here: other logs do not need it

    found = system(name)
    return found if found is not None and found.is_ec2 else None


def _remarks(record: Record, proof: Proof | None) -> Iterator[Finding]:
    """Yield what the facts of any benchmark show, and what was requested says of them."""
    facts = record.facts
    transport, fabric = str(facts.get("transport", "")), proof.fabric if proof else ""
    nics = facts.get("nics")
    known = (proof is not None and proof.nics is not None) or _system(record, proof) is not None
    if isinstance(nics, int) and _uses_efa(record) and not known:
        yield finding(
            "nics-unchecked", record.evidence.get("nics", ""), nics=counted(nics, "EFA NIC")
        )
    if transport == "libfabric-tcp" and fabric != "ofi-tcp":
        yield finding("provider-not-efa", record.evidence.get("provider", ""))
    codes = {each.code for each in record.findings}
    for each in told(record.failures):
        if each.code not in codes:
            codes.add(each.code)
            yield each
    if (
        facts.get("gdr") in {"no", "partly"}
        and "gdr-disabled" not in codes
        and transport in {"efa", "ib", "gib"}
    ):
        where = "no channel" if facts["gdr"] == "no" else "some channels only"
        yield finding("gdr-off", record.evidence.get("gdr", ""), where=where)
    if facts.get("iterations") == 1 and facts.get("warmup") == 0:
        yield finding("one-iteration")
    stated, said = facts.get("instance_type"), proof.instance_type if proof else ""
    if stated and said and stated != said:
        line = record.evidence.get("instance_type", "")
        yield finding("instance-type-differs", line, stated=stated, said=said)


def _other_link(record: Record, fabric: str) -> str:
    """Return the link of the NICs as printed, if it is not that of the requested fabric."""
    link = str(record.facts.get("link", ""))
    fabrics = {_LINKS.get(name, "") for name in link.split("+")}
    return "" if "" in fabrics or fabric in fabrics or fabric not in _LINKS.values() else link


def refusal(facts: Facts, proof: Proof, benchmark: str | None) -> str:
    """Return why a running execution cannot be on its fabric, as a sentence; empty if it can.

    Only what no longer changes counts: the network that the library chose, and its NICs.
    """
    settled = {name: facts[name] for name in ("network", "nics", "devices") if name in facts}
    if "network" not in settled:
        return ""
    record = Record(benchmark=benchmark, facts=settled)
    verdicts = _network_verdicts(record, proof)
    return next((sentence for outcome, sentence in verdicts if outcome is Outcome.OFF_FABRIC), "")


def _complete(record: Record, ending: Ending | None) -> str:
    if _is_observed(record, ending):
        return "unknown"
    intact = record.points and not record.damaged and not record.incomplete
    if record.finished is None and ending is None and intact:
        return "unknown"
    return "no" if any(_gaps(record, ending)) or _timeout(record, ending) else "yes"


def with_counters(logs: Sequence[Log], counters: "ExecutionCounters | None") -> tuple[Log, ...]:
    """Add to the logs of one execution what its NICs show.

    And their link, where the type of node is not known.
    """
    if counters is None:
        return tuple(logs)
    from fabbench.counters.execution_counters import with_counter_findings

    link = _link(counters)
    linked = [_linked(log, link) if link and not log.instance_type else log for log in logs]
    return with_counter_findings(linked, counters)


def _linked(log: Log, link: str) -> Log:
    """Return a log with its link as the type of node.

    Of one NIC's bandwidth alone, as it bounds nothing else.
    """
    if log.benchmark not in {"perftest", "fabtests"} or "_bw" not in (log.case or ""):
        return log
    return replace(log, proof=replace(log.proof or Proof(), instance_type=link))


def _link(counters: "ExecutionCounters") -> str:
    """Return what the catalog calls the link of an execution's NICs (``roce-100``); empty.

    Unknown, or they differ.
    """
    from fabbench.catalog.expectations import systems

    of_hosts = counters.of_fabric(counters.traffic()).values()
    rates = {nic.link_rate for traffic in of_hosts for nic in traffic.nics}
    links = (
        each
        for each in systems().values()
        if not each.gpus and each.name.startswith(f"{counters.asked.fabric}-")
    )
    return next((each.name for each in links if {each.rate} == rates), "")


def slower_paths(logs: Sequence[Log]) -> list[Log]:
    """Return logs.

    In what one is far slower than the last of the same test on the same nodes is a finding.
    """
    tests = [
        (log.hosts, log.benchmark, log.case, *map(log.facts.get, ("transport", "ranks", "qps")))
        for log in logs
    ]
    last = {test: _times(log) for test, log in zip(tests, logs, strict=True)}
    judged = zip(logs, tests, strict=True)
    return [
        replace(log, findings=(*log.findings, *_slower(log, last[test]))) for log, test in judged
    ]


def _slower(log: Log, others: Mapping[int, float]) -> Iterator[Finding]:
    times = _times(log)
    if (both := sorted(times.keys() & others.keys())) and log.hosts:
        small, large = (times[size] / others[size] for size in (both[0], both[-1]))
        code, size = ("path-delay", both[0]) if small > large else ("path-rate", both[-1])
        if max(small, large) >= _FAR and max(small, large) >= 2 * min(small, large):
            time, other = (scale("s", 0).quantity(each[size]) for each in (times, others))
            yield finding(code, size=format_size(size), time=time, other=other)


def _times(log: Log) -> dict[int, float]:
    """Return how long a message of each size takes; without those that are not known.

    The slowest of many is noise.
    """
    points = (point for point in log.points if "stat" not in point.labels)
    rows = ((point.size, dict(zip(point.metrics, point.values, strict=True))) for point in points)
    rates = ((size, row, row.get("bandwidth") or math.inf) for size, row in rows)
    times = {
        size: row.get("time") or row.get("latency") or size / rate for size, row, rate in rates
    }
    return {size: time for size, time in times.items() if size and time}
