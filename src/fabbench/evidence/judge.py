"""Record + what was requested → outcome. Pure, and the only place that decides.

The order of the checks is the order of `Outcome`: the first one that applies is the outcome.
"""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

from fabbench.benchmarks import benchmark_named
from fabbench.catalog.paths import path_facts
from fabbench.evidence.first_error import follows, goes_on, says_little
from fabbench.evidence.hangs import is_sign
from fabbench.evidence.known_errors import (
    DEAD,
    Cause,
    causes,
    finding,
    findings_of,
    is_effect,
)
from fabbench.model import records
from fabbench.model.fabrics import NO_NETWORK, contradicts
from fabbench.model.log import (
    MPI_DEBUG,
    NCCL_DEBUG,
    Ending,
    Facts,
    Finding,
    Log,
    Outcome,
    Point,
    Proof,
    Record,
    Severity,
    fact_text,
)
from fabbench.model.mappings import first_of
from fabbench.model.messages import counted, listed, quoted
from fabbench.model.units import format_size, scale

if TYPE_CHECKING:
    from fabbench.catalog.systems import System
    from fabbench.counters.execution_counters import ExecutionCounters

Verdict = tuple[Outcome, str]
"""An outcome that applies, and why, as a sentence."""

_FABRIC_OF_LINK = {"IB": "ib", "InfiniBand": "ib", "RoCE": "roce", "Ethernet": "roce"}
"""How NCCL and perftest print the link of a NIC → the fabric."""

_SETTLED = frozenset({"network", "nics", "devices"})
"""Facts that no longer change once a library has printed them."""

_QUOTES_ALIKE = 150
"""Characters in which two quotes of one line are alike, wherever each was cut."""

_UNREAD_LAYOUT = ("-unread", "-not-read")
"""Ends of the codes of findings on layouts that are not read."""

# Two logs of one test, each measured once, differ by noise, but not by this factor
_FAR_SLOWER = 3.0
_ON_THE_NETWORK = frozenset({"networks-disagree", "nics-disagree", "nics-unused", "mixed-provider"})
"""Findings that say what carried the data, and contradict a fabric.

Any other error ended the run.
"""


def judge(
    record: Record, *, source: str, proof: Proof | None = None, ending: Ending | None = None
) -> Log:
    """Decide the outcome of one execution, with the reason as a sentence (None for ok)."""
    asked = proof or Proof()  # where nothing is asked for, any network is right
    record = _by_exit_record(record, ending)
    record = _with_assumed_type(record, asked)
    verdicts = tuple(_verdicts(record, asked, ending))
    outcome, reason = first_of(verdicts, (Outcome.OK, None))
    report = {"report": "NIC counters"} if _words_for_counters(record) else {}
    facts = {**record.facts, **report, "complete": _completeness(record, ending)}
    # Only of what fabbench itself ran: the exit status of `run` depends on it.
    lost = ending is not None and (ending.lost or record.lost)
    log = Log(
        source=source,
        benchmark=record.benchmark,
        case=record.case,
        outcome=outcome,
        reason=reason,
        facts=facts,
        findings=(
            # `counters` only says that NIC counters were pasted: the fact `report` says it.
            *(each for each in record.findings if each.code != "counters"),
            *_remarks(record, asked, ending),
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
        said=quoted(record.first_error or record.hint),
    )
    return _with_first_error(log, record) if outcome in DEAD else log


def _by_exit_record(record: Record, ending: Ending | None) -> Record:
    """Return a record in which an exit status of 0 turns the words of a failure into findings.

    These words are its `alarms`; what an exit record says stays a failure. Only with a whole table:
    without one, the words explain what is missing. Some stand above a table that ends as it should.
    """
    status = record.status if ending is None else ending.status
    is_whole = record.finished is not False and not any(_gaps(record, ending))
    alarms = record.alarms
    if status != 0:
        alarms = record.outlived if _completeness(record, ending) == "yes" else []
    if not alarms or not is_whole or status:
        return record
    failures = [each for each in record.failures if not _quotes(each, alarms)]
    findings = [
        each
        for each in record.findings
        if each.severity is not Severity.ERROR or not _quotes(quoted(each.line), alarms)
    ]
    went_on = [finding("went-on", line) for line in alarms]
    return replace(record, failures=failures, findings=[*findings, *went_on])


def _quotes(text: str, lines: Sequence[str]) -> bool:
    return any(line in text for line in lines)


def _with_first_error(log: Log, record: Record) -> Log:
    """Return the log of a run that died, with what explains its first error before other causes.

    Findings that quote this error go first, unless they only follow from another cause. If no
    known error explains the run, the line itself becomes a finding, in place of the warning of
    NCCL that quotes it; where there is none, the first line that only has words of an error.
    """
    line = quoted(record.first_error)
    if follows(line) and not follows(log.reason or line):  # another line is the reason
        line = ""
    beginning = line[:_QUOTES_ALIKE]
    findings = log.findings if line else ()
    quoting = [each for each in findings if beginning in quoted(each.line)]
    roots = [each for each in quoting if not is_effect(each)]
    others = _without(log.findings, roots)
    log = replace(log, findings=(*roots, *others))
    known, _ = causes(log)
    errors = [each for each in known if each.is_error]
    unexplained = [each for each in quoting if each.code == "nccl-warning"]  # no known error
    is_hang = errors and is_sign(record.first_error)
    starts_a_failure = any(each.is_root for each in errors)
    # It is explained: by ranks that wait, by what starts a failure, or by what quotes the line.
    if is_hang or starts_a_failure or _without(quoting, unexplained):
        return log
    are_reports = all(each.is_report for each in errors)
    # That a process ended does not say why: any words of an error say more.
    if not line and are_reports:
        line = _hint(record, log, errors)
    # A line that only follows, or says no more than that it failed, says less than a known error.
    says_less = follows if are_reports else says_little
    may_end_a_run = any(each.may_end_a_run for each in known)
    if (errors and not line) or (may_end_a_run and line and says_less(line)):
        return log
    known_ones = _without(log.findings, unexplained)
    first = _first_error(log, line)
    if any(each.code == first.code for each in known_ones):  # another line says the same
        return log
    return replace(log, findings=(*known_ones, first))


def _hint(record: Record, log: Log, errors: Sequence[Cause]) -> str:
    """Return the line that only has words of an error; empty: the reason says more.

    It does if the line goes on, or says little and a time limit or known `errors` ended the run.
    """
    hint = quoted(record.hint)
    is_known = errors or log.outcome is Outcome.TIMEOUT
    says_less = says_little(hint) if is_known else goes_on(hint)
    return "" if says_less and hint not in (log.reason or "") else hint


def _without(findings: Sequence[Finding], others: Sequence[Finding]) -> list[Finding]:
    return [each for each in findings if each not in others]


def _first_error(log: Log, line: str) -> Finding:
    """Return the first error as a finding: what is known of it, or the line itself."""
    if not line:
        return finding("cause-not-shown", log.reason or "")
    for each in findings_of([line], log.facts):
        if each.severity is Severity.ERROR:
            return each
    return finding("first-error", line)


def _verdicts(record: Record, proof: Proof, ending: Ending | None) -> Iterator[Verdict]:
    # The first is the outcome, the others are said beside it.
    if record.wrong:
        checks = counted(record.wrong, "failed check")
        yield _verdict("wrong-data", checks=checks)
    if ending and ending.refused:  # fabbench ended it for that: what follows is only an effect
        yield Outcome.OFF_FABRIC, ending.refused
    if timed_out := _timeout(record, ending):
        yield Outcome.TIMEOUT, timed_out
    yield from _failures(record, ending)
    observed = _is_observed(record, ending)  # without a benchmark, no result is missing
    if not observed and (truncated := next(_gaps(record, ending), "")):
        yield Outcome.TRUNCATED, truncated
    if record.off_fabric:
        yield Outcome.OFF_FABRIC, record.off_fabric
    yield from _network_verdicts(record, proof, _contradictions(record, proof))
    if observed:
        yield Outcome.OBSERVED, _observation(record)


class VerdictText(records.Sentence, frozen=True):
    """What is said of an outcome: a record of verdicts.toml."""

    outcome: Outcome


@cache
def _verdict_texts() -> Mapping[str, VerdictText]:
    known = records.load("fabbench.evidence", "verdicts.toml", VerdictText)
    return {each.code: each for each in known}


def _verdict(code: str, **values: object) -> Verdict:
    """Return a verdict of verdicts.toml, with the values that are in its sentence."""
    known = _verdict_texts()[code]
    return known.outcome, known.text.format(**values)


def _failures(record: Record, ending: Ending | None) -> Iterator[Verdict]:
    """Yield what ended the run: what was reported, errors in the log, and the exit status."""
    for reason in record.failures:
        yield Outcome.FAILED, reason
    for error in _errors(record):
        if error.code not in _ON_THE_NETWORK:  # these are verdicts on the network
            yield Outcome.FAILED, error.meaning
    if ending and ending.status:
        yield Outcome.FAILED, _by_status(ending)


def _by_status(ending: Ending) -> str:
    return f"The benchmark exited with status {ending.status}."


def _errors(record: Record) -> list[Finding]:
    return [each for each in record.findings if each.severity is Severity.ERROR]


def _contradictions(record: Record, proof: Proof) -> list[str]:
    """Return what findings on the network say against a fabric, as sentences.

    Warnings count, too, if a fabric was requested, unless as many NICs as were required were used:
    these show that it carried the data.
    """
    doubtful: Sequence[Finding] = record.findings
    if not proof.fabric or _has_enough_nics(record, proof):
        doubtful = _errors(record)
    return [each.meaning for each in doubtful if each.code in _ON_THE_NETWORK]


def _has_enough_nics(record: Record, proof: Proof) -> bool:
    nics = record.facts.get("nics")
    return proof.nics is not None and isinstance(nics, int) and nics >= proof.nics


def _observation(record: Record) -> str:
    """Return what a log is in which no benchmark's result is missing."""
    report = _words_for_counters(record) or record.facts.get("report")
    if report:
        return f"This is a report of {report}."
    networks = {record.facts.get(name, "unknown") for name in ("network", "transport")}
    shown = "do not show the network" if networks == {"unknown"} else "show the network"
    if record.case == MPI_DEBUG:
        whose = "MPI's, UCX's or libfabric's debug lines"
        return f"{whose} {shown}; no result of a benchmark is in the log."
    return f"NCCL's debug lines {shown}; no benchmark is in the log."


def _is_observed(record: Record, ending: Ending | None) -> bool:
    """Return whether the log is of a program that is no benchmark, so that nothing is missing."""
    if ending is not None:  # fabbench started a benchmark
        return False
    return bool(_words_for_counters(record)) or record.case in {NCCL_DEBUG, MPI_DEBUG}


def _words_for_counters(record: Record) -> str:
    """Return what a log is that is nothing but counters of NICs that were pasted.

    Empty for any other.
    """
    if record.benchmark is not None:
        return ""
    codes = {each.code for each in record.findings}
    if not codes or codes - _OF_COUNTERS:
        return ""
    if codes - {"counters", "counters-unjudged"}:  # one of them says more than that they are there
        return "NIC counters"
    return "NIC counters, and none known to count errors or congestion is above 0"


_OF_COUNTERS = frozenset({
    "counters", "counted-errors", "counters-unjudged",
    "nic-paused", "nic-unmarked", "nic-pausing", "nic-marked", "nic-slowed", "nic-waited",
})  # fmt: skip
"""What pasted counters show."""


def _timeout(record: Record, ending: Ending | None) -> str:
    """Return why it timed out, with its last size; empty: it did not."""
    why = record.timed_out
    if ending and ending.timed_out:
        why = ending.timed_out
    if not why or not record.points:
        return why
    stopped = why.rstrip(".")
    last = format_size(record.points[-1].size)
    return f"{stopped}. The last row is of {last}."


def _gaps(record: Record, ending: Ending | None) -> Iterator[str]:
    """Yield why the output is not whole, as sentences; the first is the reason.

    The gravest come first: what stopped it, what could not be read, and only then what is missing.
    """
    if ending and ending.stopped:
        yield ending.stopped
    if refused := _refused_layout(record):
        yield refused
    if record.damaged:
        yield _damage(record)
    if not record.points:
        where = (
            "the output ends before the first result"
            if record.benchmark
            else "no benchmark output was found"
        )
        yield f"No row was read: {where}."
    elif not any(point.metrics for point in _headline_points(record.points)):
        yield f"No row has a usable value{_why_unmeasured(record)}."
    if record.finished is False:
        yield "The output ends before the benchmark's own closing lines."
    if record.incomplete:
        yield record.incomplete
    if missing := _unmeasured(record, ending):
        sizes = ", ".join(map(format_size, missing))
        yield f"Planned but not measured: {sizes}."


def _refused_layout(record: Record) -> str:
    """Return why no row of a layout is read, as its finding says it; empty if it is read."""
    if record.points:
        return ""
    refused = (each.meaning for each in record.findings if each.code.endswith(_UNREAD_LAYOUT))
    return next(refused, "")


def _headline_points(points: Sequence[Point]) -> list[Point]:
    """Return the points of which a headline is made: only the client's, if a pair printed both."""
    of_client = [point for point in points if point.labels.get("side") == "client"]
    return of_client or [*points]


def _why_unmeasured(record: Record) -> str:
    """Return why no value is usable, in the program's own words, as the end of a sentence."""
    lines = [each.line for each in record.findings if each.code == "clock-unmeasured"]
    return f": {lines[0]}" if lines else ""


def _damage(record: Record) -> str:
    # How many rows are damaged, and where the first five are: numbers of lines in the log.
    numbers = [str(row.line) for row in record.damaged]
    rows = counted(len(numbers), "row")
    lines = ", ".join(numbers[:5])
    more = " …" if len(numbers) > 5 else ""
    return f"{rows} could not be read or trusted (line {lines}{more})."


def _unmeasured(record: Record, ending: Ending | None) -> list[int]:
    """Return the planned sizes that have no row, in bytes."""
    if ending is None:  # fabbench did not plan it
        return []
    measured = {point.size for point in record.points}
    return sorted(set(ending.planned_sizes) - measured)


def _network_verdicts(
    record: Record, proof: Proof, contradictions: Sequence[str] = ()
) -> Iterator[Verdict]:
    """Judge what carried the data: first what is wrong (off-fabric), then what is unknown."""
    verdicts: list[Verdict] = []
    if proof.fabric:
        verdicts += _fabric_verdicts(record, proof)
        verdicts += _domain_verdicts(record, proof)
    verdicts += _nic_verdicts(record, proof)
    verdicts += _device_verdicts(record, proof)
    verdicts += _node_verdicts(record, proof)
    # What the log itself asks for counts only where the user asked for no fabric.
    if record.lost_fabric and not proof.fabric:
        verdicts.append((Outcome.OFF_FABRIC, record.lost_fabric))
    verdicts.extend((Outcome.OFF_FABRIC, sentence) for sentence in contradictions)
    yield from sorted(verdicts, key=_is_doubt)


def _is_doubt(verdict: Verdict) -> bool:
    outcome, _ = verdict
    return outcome is not Outcome.OFF_FABRIC


def _fabric_verdicts(record: Record, proof: Proof) -> Iterator[Verdict]:
    """Judge what carried the data by the requested fabric; no verdict: it is the requested one."""
    facts = record.facts
    accepted = benchmark_named(record.benchmark).transports(proof.fabric)
    transport = fact_text(facts, "transport", "unknown")
    network = fact_text(facts, "network", "unknown")
    if contradicts(transport, accepted):
        yield _verdict("other-transport", proof=proof, transport=transport)
        return  # what carried the data is known
    if (  # no line shows what carried the data: the network that was chosen for it counts
        transport not in accepted
        and proof.fabric not in NO_NETWORK
        and contradicts(network, accepted)
    ):
        yield _verdict("other-network", proof=proof, network=network)
    elif link := _other_link(record, proof.fabric):
        yield _verdict("other-link", proof=proof, link=link)
    # Besides what is wrong, what is unknown: its sentence is shown only if nothing is wrong.
    if transport == "libfabric":
        yield _verdict("provider-not-shown", proof=proof)
    elif transport not in accepted:
        yield _verdict("transport-not-shown", proof=proof)
    elif record.unshown_ranks:
        yield _verdict("some-ranks-not-shown", proof=proof, ranks=facts["evidence_of"])


def _domain_verdicts(record: Record, proof: Proof) -> Iterator[Verdict]:
    # Of libfabric: an interface of a provider. Nothing: any would do, or it is the requested one.
    domain = record.facts.get("domain")
    if not proof.domain or domain == proof.domain:
        return
    code = "other-domain" if domain else "domain-not-shown"
    yield _verdict(code, proof=proof, domain=domain)


def _nic_verdicts(record: Record, proof: Proof) -> Iterator[Verdict]:
    # Whether ranks used as many NICs as they must; no verdict, where one of the two is not known.
    nics = record.facts.get("nics")
    if not isinstance(nics, int):
        return
    required = _wanted_nics(record, proof)
    if required is None:
        return
    wanted, requirement = required  # how many, and who says so
    if nics < wanted:  # more do not contradict it
        code = "one-nic" if nics == 1 else "fewer-nics"
        yield _verdict(code, requirement=requirement, nics=nics)


def _wanted_nics(record: Record, proof: Proof) -> tuple[int, str] | None:
    """Return how many NICs each rank must use, and who says so; None: nothing does.

    Without a requested fabric the number matters only where EFA is used, whose number follows from
    the instance type.
    """
    uses_efa = _uses_efa(record)
    if not uses_efa and not proof.fabric:
        return None
    if proof.nics is not None:
        required = f"{proof.fabric} was requested with" if proof.fabric else "The log must show"
        return proof.nics, f"{required} {proof.nics} NICs per rank"
    kind = _system(record, proof) if uses_efa else None
    if kind is None or not kind.is_ec2:
        return None
    fewest = min(kind.nics)  # a type may have one of several numbers: less than each is too few
    return fewest, f"{kind.name} has {fewest} EFA interfaces"


def _device_verdicts(record: Record, proof: Proof) -> Iterator[Verdict]:
    """Judge which NICs were used, if specific ones were requested. EFA logs show only how many.

    No verdict: nothing specific was requested, or nothing contradicts it.
    """
    if not proof.devices:
        return
    devices = listed(proof.devices)
    nics = record.facts.get("nics")
    names = fact_text(record.facts, "devices").split("+")  # of `mlx5_0+mlx5_1`
    others = [name for name in names if name and name not in proof.devices]
    if others:
        yield _verdict("other-devices", devices=devices, others=listed(others))
    elif not isinstance(nics, int):
        yield _verdict("devices-not-shown", devices=devices)
    elif nics > len(proof.devices):
        yield _verdict("more-devices", devices=devices, nics=nics)


def _node_verdicts(record: Record, proof: Proof) -> Iterator[Verdict]:
    """Judge the number of nodes: either the hosts or the nodes that the log states may fit.

    Two names of hosts may be one node, and NCCL counts all hosts of one NVLink rack as one.
    """
    if proof.nodes is None:
        return
    hosts = record.facts.get("hosts")
    nodes = record.facts.get("nodes", hosts)
    if nodes and proof.nodes not in {hosts, nodes}:
        yield _verdict("other-nodes", proof=proof, nodes=nodes)


def _uses_efa(record: Record) -> bool:
    return record.facts.get("network") == "efa"


def _system(record: Record, proof: Proof) -> "System | None":
    """Return the system that the log or the user names, if the catalog has it."""
    # What the log states counts most
    name = (
        record.facts.get("instance_type") or proof.instance_type or record.facts.get("assumed_type")
    )
    if not name:
        return None
    from fabbench.catalog.systems import system  # imported here: other logs do not need it

    return system(str(name))


def _with_assumed_type(record: Record, proof: Proof) -> Record:
    """Return a record with the only system that fits, if nothing states another.

    By GPUs and NICs it is a type of EC2: only where EFA is used. By GPUs alone, one that nothing
    else has.
    """
    is_stated = bool(proof.instance_type) or "instance_type" in record.facts
    if is_stated or not record.gpus:
        return record
    from fabbench.catalog import systems  # imported here: other logs do not need it

    per_host = record.facts.get("gpus_per_host")
    fitting = systems.systems_with(record.gpus)
    if _uses_efa(record):
        fitting = systems.types_with(record.gpus, per_host, record.facts.get("nics"))
    if len(fitting) != 1:
        return record
    return replace(record, facts={**record.facts, "assumed_type": fitting[0]})


def _remarks(record: Record, proof: Proof, ending: Ending | None) -> Iterator[Finding]:
    """Yield findings on facts that any benchmark may have, and on how they fit the request.

    `ending`: how an execution that fabbench itself started ended; None: of any other log.
    """
    facts = record.facts
    transport = facts.get("transport")
    if _uses_efa(record) and _wanted_nics(record, proof) is None:
        yield from _unchecked_nics(record)
    # Whoever did not ask for libfabric's TCP may have meant EFA.
    if transport == "libfabric-tcp" and proof.fabric != "ofi-tcp":
        yield finding("provider-not-efa", record.evidence.get("provider", ""))
    explained = _explanations(record, ending)
    yield from explained.values()
    codes = explained.keys() | {each.code for each in record.findings}
    yield from _other_paths(record, codes)
    if ending and ending.neighbors:  # another run of fabbench was on the same nodes
        yield finding("neighbor", where=listed(ending.neighbors))
    if record.followed and _completeness(record, ending) == "unknown":
        yield finding("followed", record.followed)
    if record.points and facts.get("iterations") == 0:
        yield finding("no-iterations")
    if facts.get("iterations") == 1 and facts.get("warmup") == 0:
        yield finding("one-iteration")
    stated = facts.get("instance_type")
    given = proof.instance_type
    if stated and given and stated != given:
        line = record.evidence.get("instance_type", "")
        yield finding("instance-type-differs", line, stated=stated, given=given)
    yield from _other_hardware(record, proof)


def _other_hardware(record: Record, proof: Proof) -> Iterator[Finding]:
    """Yield a finding if the GPUs or EFA NICs of a log are not those of its instance type."""
    known = _system(record, proof)
    if known is None or not (known.gpus or known.is_ec2):  # or a NIC, which any node may have
        return
    gpus = sorted(filter(None, record.gpus))  # models, as the log names them
    others = [each for each in gpus if not known.has_gpu(each)]
    nics = record.facts.get("nics") if _uses_efa(record) else None
    if isinstance(nics, int) and nics > max(known.nics, default=nics):
        others.append(counted(nics, "EFA NIC"))
    if others:
        yield finding("other-hardware", seen=listed(others), type=known.name)


def _unchecked_nics(record: Record) -> Iterator[Finding]:
    # Nothing says how many there should be: the reader may know.
    nics = record.facts.get("nics")
    if isinstance(nics, int):
        line = record.evidence.get("nics", "")
        yield finding("nics-unchecked", line, nics=counted(nics, "EFA NIC"))


def _explanations(record: Record, ending: Ending | None) -> dict[str, Finding]:
    """Return code → what the reasons of a failure show, but for codes that its lines settled."""
    known = {each.code for each in record.findings} | record.rejected  # or contradicted by facts
    shown: dict[str, Finding] = {}
    by_status = [_by_status(ending)] if ending and ending.status else []
    for each in findings_of([*record.failures, *by_status], record.facts):
        if each.code not in known:
            shown.setdefault(each.code, each)
    return shown


def _other_paths(record: Record, codes: Collection[str]) -> Iterator[Finding]:
    """Yield a finding for each way inside the fabric that is not the asked one.

    `codes`: of the other findings, one of which may say the same already.
    """
    facts = record.facts
    program = f"{record.benchmark} {record.case}"
    transport = fact_text(facts, "transport")
    for path in path_facts():
        code = path.finding(facts, program)
        without = path.gpus_without.get(transport, ())
        has_way = record.gpus.isdisjoint(without)
        if code and has_way and path.unless not in codes:
            line = record.evidence.get(path.fact, "")
            yield finding(code, line, value=path.shown(facts))


def _other_link(record: Record, fabric: str) -> str:
    """Return the link of the NICs as printed, if it is not that of the requested fabric."""
    link = fact_text(record.facts, "link")  # `RoCE`, or `IB+RoCE`
    fabrics = {_FABRIC_OF_LINK.get(name, "") for name in link.split("+")}
    # A name that is not known, or a fabric without links of its own, contradicts nothing.
    if "" in fabrics or fabric not in _FABRIC_OF_LINK.values():
        return ""
    return "" if fabric in fabrics else link  # of mixed links, the right one may have been used


def refusal(facts: Facts, proof: Proof, benchmark: str | None) -> str:
    """Return why a running execution cannot be on its fabric, as a sentence; empty if it can.

    Only what no longer changes counts: the network that the library chose, and its NICs.
    """
    settled = {name: fact for name, fact in facts.items() if name in _SETTLED}
    if "network" not in settled:
        return ""
    record = Record(benchmark=benchmark, facts=settled)
    for outcome, sentence in _network_verdicts(record, proof):
        if outcome is Outcome.OFF_FABRIC:
            return sentence
    return ""


def _completeness(record: Record, ending: Ending | None) -> str:
    """Return whether the output is whole: `yes`, `no`, or `unknown` where no end is shown."""
    if _is_observed(record, ending):
        return "unknown"
    if any(_gaps(record, ending)) or _timeout(record, ending):
        return "no"
    is_end_shown = record.finished or record.is_at_end or record.status is not None
    # What fabbench ran has ended before its eyes.
    return "yes" if ending or is_end_shown else "unknown"


def with_counters(logs: Sequence[Log], counters: "ExecutionCounters | None") -> tuple[Log, ...]:
    """Add what its NICs show to the logs of one execution, and their link where it is needed."""
    if counters is None:
        return tuple(logs)
    from fabbench.counters.execution_counters import with_counter_findings

    link = _type_of_link(counters)
    return with_counter_findings([_with_link(log, link) for log in logs], counters)


def _with_link(log: Log, link: str) -> Log:
    """Return a log with its link, such as `roce-100`, as the type of its nodes, if none is known.

    What is expected then follows from the link. Only a log of one NIC's bandwidth: a link bounds
    nothing else.
    """
    if not link or log.instance_type:
        return log
    if log.benchmark not in {"perftest", "fabtests"} or "_bw" not in (log.case or ""):
        return log
    return replace(log, proof=replace(log.proof or Proof(), instance_type=link))


def _type_of_link(counters: "ExecutionCounters") -> str:
    """Return what the catalog calls the link of an execution's NICs, such as ``roce-100``.

    Empty if it is not known, or NICs differ.
    """
    from fabbench.catalog.systems import systems

    of_hosts = counters.of_fabric(counters.traffic()).values()
    rates = {nic.link_rate for traffic in of_hosts for nic in traffic.nics}
    fabric = counters.asked.fabric
    for each in systems().values():  # a link is one without GPUs
        is_link = not each.gpus and each.name.startswith(f"{fabric}-")
        if is_link and rates == {each.rate}:
            return each.name
    return ""


def with_slower_paths(logs: Sequence[Log]) -> list[Log]:
    """Return all logs; each far slower than the last of the same test and nodes has a finding."""
    # A later log replaces an earlier one, so that the last remains.
    last = {_test_and_nodes(log): _times(log) for log in logs}
    return [_with_slower_path(log, last[_test_and_nodes(log)]) for log in logs]


def _test_and_nodes(log: Log) -> tuple[object, ...]:
    """Return what two logs of one test on the same nodes share."""
    facts = map(log.facts.get, ("transport", "ranks", "qps"))
    return (log.hosts, log.benchmark, log.case, *facts)


def _with_slower_path(log: Log, last: Mapping[int, float]) -> Log:
    """Return a log with what `_slower` finds; `last`: size → seconds in the last log."""
    findings = _slower(log, last)
    return replace(log, findings=(*log.findings, *findings))


def _slower(log: Log, last: Mapping[int, float]) -> Iterator[Finding]:
    """Yield a finding if small messages, or bytes in large ones, take far longer than last.

    `last`: size → seconds in the last log of the same test. The smallest and the largest size of
    both count.
    """
    times = _times(log)
    both = sorted(times.keys() & last.keys())
    if not both or not log.hosts:  # without names, the last log may be of other nodes
        return
    small = both[0]
    large = both[-1]
    # How many times as long as in the last log: a small message shows the delay, a large the rate.
    small_factor = times[small] / last[small]
    large_factor = times[large] / last[large]
    less, more = sorted((small_factor, large_factor))
    # If both are slower alike (by factors less than 2 apart), neither delay nor rate tells why.
    if more < _FAR_SLOWER or more < 2 * less:
        return
    is_delay = small_factor > large_factor
    code = "path-delay" if is_delay else "path-rate"
    size = small if is_delay else large
    microseconds = scale("s", largest=0)  # of times, whatever is the largest
    time = microseconds.quantity(times[size])
    other = microseconds.quantity(last[size])
    yield finding(code, size=format_size(size), time=time, other=other)


def _times(log: Log) -> dict[int, float]:
    """Return size → how long a message takes, in seconds, where that is known.

    Points with a `stat`, such as the slowest of many, are left out: these are noise.
    """
    points = [point for point in log.points if "stat" not in point.labels]
    times = {point.size: _time(point) for point in points}
    return {size: time for size, time in times.items() if size and time}


def _time(point: Point) -> float:
    """Return how long a message takes, in seconds; 0 if nothing shows it."""
    figures = dict(zip(point.metrics, point.values, strict=True))
    bandwidth = figures.get("bandwidth") or math.inf
    return figures.get("time") or figures.get("latency") or point.size / bandwidth
