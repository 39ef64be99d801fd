"""The JSON of NCCL's RAS (`ncclras -f json`, 2.28 or newer): ranks that do not answer, or lag. No benchmark."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from fabbench.model.log import NCCL_DEBUG, Finding, Record, Severity
from fabbench.model.messages import listed

_LOOK = "Look at that process, and at its node (`dmesg`, `nvidia-smi`)."


def read_report(text: str) -> Record | None:
    """Read a report; None if it is none, or damaged."""
    import json

    try:
        report = json.loads(text)
        found = [each for communicator in report["communicators"] for each in _findings(communicator)]
        if late := report["ras"]["timeouts_count"]:
            found.append(_finding("ras-timeout", f"answers that did not come in time: {late}.", "Query again."))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    version = str(report.get("nccl_version", "unknown"))
    return Record(benchmark=None, case=NCCL_DEBUG, facts={"report": "NCCL RAS", "nccl": version}, findings=found)


def _findings(communicator: Mapping[str, Any]) -> Iterator[Finding]:
    name = f"Communicator {communicator['hash']}"
    if missing := [f"{each['rank']} ({each['host']}, process {each['pid']})" for each in communicator["missing_ranks"]]:
        yield _finding("ras-incomplete", f"{name}: no answer from rank {listed(missing)}.", _LOOK, Severity.ERROR)
    if failed := [str(each["rank"]) for each in communicator["ranks"] if each["status"]["async_error"]]:
        yield _finding("ras-error", f"{name}: rank {listed(failed)} reports an error.", _LOOK, Severity.ERROR)
    for call in communicator["ranks"][0]["collective_counts"] if communicator["ranks"] else ():
        counts = {each["rank"]: each["collective_counts"][call] for each in communicator["ranks"]}
        ((usual, _),) = Counter(counts.values()).most_common(1)
        if other := [f"{rank} {count}" for rank, count in counts.items() if count != usual]:
            said = f"{name}: {call} was launched {usual} times, but by rank {listed(other)}."
            yield _finding("ras-mismatch", said, "Query again: counts that stay apart are a hang.")


def _finding(code: str, said: str, advice: str, severity: Severity = Severity.WARNING) -> Finding:
    return Finding(code=code, severity=severity, meaning=f"NCCL's RAS: {said}", advice=advice)
