"""Record + what was asked for → outcome. Pure, and the only place that decides.

The order of the checks is the order of `Outcome`: the first that applies is the outcome.
"""

from collections.abc import Iterator

from fabbench.fabrics import INTRA_HOST, carriers, contradicts
from fabbench.model import Ending, Facts, Log, Outcome, Proof, Record
from fabbench.units import format_size


def judge(record: Record, *, source: str, proof: Proof | None = None, ending: Ending | None = None) -> Log:
    """Decide the outcome of one execution and say why in a sentence (None for ok)."""
    outcome, reason = next(_verdicts(record, proof, ending), (Outcome.OK, None))
    facts = {**record.facts, "complete": _complete(record, ending)}
    return Log(
        source=source,
        benchmark=record.benchmark,
        case=record.case,
        outcome=outcome,
        reason=reason,
        facts=facts,
        findings=tuple(record.findings),
        damaged=tuple(record.damaged),
        points=record.points,
        evidence=record.evidence,
    )


def _verdicts(record: Record, proof: Proof | None, ending: Ending | None) -> Iterator[tuple[Outcome, str]]:
    if record.wrong:
        yield Outcome.CORRUPT, f"The benchmark found wrong data: {_count(record.wrong, 'failed check')}."
    if ending and ending.refused:
        yield Outcome.OFF_FABRIC, ending.refused
    if timed_out := _timeout(record, ending):
        yield Outcome.TIMEOUT, timed_out
    if record.failures:
        yield Outcome.FAILED, record.failures[0]
    if ending and ending.status:
        yield Outcome.FAILED, f"The benchmark ended with exit status {ending.status}."
    if truncated := _truncation(record, ending):
        yield Outcome.TRUNCATED, truncated
    if record.off_fabric:
        yield Outcome.OFF_FABRIC, record.off_fabric
    if proof:
        yield from _fabric_verdicts(record, proof)


def _timeout(record: Record, ending: Ending | None) -> str:
    return (ending.timed_out if ending else "") or record.timed_out


def _truncation(record: Record, ending: Ending | None) -> str:
    """Say why the table is not whole, or nothing if it is."""
    if ending and ending.stopped:
        return ending.stopped
    if record.damaged:
        lines = ", ".join(str(row.line) for row in record.damaged[:5])
        more = " …" if len(record.damaged) > 5 else ""
        return f"{_count(len(record.damaged), 'row')} could not be read (line {lines}{more})."
    if not record.points:
        where = (
            "the output ends before the first result" if record.benchmark else "no benchmark's output is here"
        )
        return f"No row was read: {where}."
    if record.finished is False:
        return "The output ends before the benchmark's own closing lines."
    missing = set(ending.planned_sizes) - {point.size for point in record.points} if ending else set()
    return f"Planned and not measured: {', '.join(map(format_size, sorted(missing)))}." if missing else ""


def _fabric_verdicts(record: Record, proof: Proof) -> Iterator[tuple[Outcome, str]]:
    facts, accepted = record.facts, carriers(proof.fabric, record.benchmark)
    transport = str(facts.get("transport", "unknown"))
    network = str(facts.get("network", "unknown"))
    wanted = f"{proof.fabric} was asked for"
    if contradicts(transport, accepted):
        yield Outcome.OFF_FABRIC, f"{wanted}, but {transport} carried the data."
    elif transport not in accepted and proof.fabric not in INTRA_HOST and contradicts(network, accepted):
        yield Outcome.OFF_FABRIC, f"{wanted}, but the library chose {network} as its network."
    domain = facts.get("domain")
    if proof.domain and domain and domain != proof.domain:
        yield Outcome.OFF_FABRIC, f"Domain {proof.domain} was asked for, but {domain} was used."
    nics = facts.get("nics")
    if proof.nics and isinstance(nics, int) and nics < proof.nics:
        yield Outcome.OFF_FABRIC, f"{wanted} with {proof.nics} NICs for each rank, but {nics} were used."
    if transport == "libfabric":
        yield (
            Outcome.UNPROVEN,
            f"{wanted}, and the log does not show which libfabric provider carried the data.",
        )
    elif transport not in accepted:
        yield Outcome.UNPROVEN, f"{wanted}, and the log does not show what carried the data."
    if proof.domain and not domain:
        yield (
            Outcome.UNPROVEN,
            f"Domain {proof.domain} was asked for, and the log does not show which was used.",
        )


def refusal(facts: Facts, proof: Proof, benchmark: str | None) -> str:
    """Say in a sentence why an execution that still goes on cannot be on its fabric; empty if it can.

    Only what will not change any more counts: the network that the library chose, and its NICs.
    """
    settled = {name: facts[name] for name in ("network", "nics") if name in facts}
    if "network" not in settled:
        return ""
    verdicts = _fabric_verdicts(Record(benchmark=benchmark, facts=settled), proof)
    return next((sentence for outcome, sentence in verdicts if outcome is Outcome.OFF_FABRIC), "")


def _complete(record: Record, ending: Ending | None) -> str:
    """Whether everything that was to be measured was: the fact `complete`."""
    if record.finished is None and ending is None and record.points and not record.damaged:
        return "unknown"
    return "no" if _truncation(record, ending) or _timeout(record, ending) else "yes"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
