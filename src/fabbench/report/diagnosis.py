"""The diagnosis of a log alone: what carried the data, what shows it, what is wrong, and what to do. Pure."""

from collections.abc import Iterator

from fabbench.model import Log, Outcome, Severity

_FACTS = (
    "transport", "network", "provider", "fabric", "domain", "nics", "gdr", "protocol", "pxn", "interface",
    "plugin", "libfabric", "nccl", "nvshmem",
)  # fmt: skip
"""Facts that belong to a diagnosis, the most telling first."""

_RANK = {Severity.ERROR: 0, Severity.WARNING: 1, Severity.NOTE: 2}
_UNKNOWN = (
    "The log does not show what carried the data. NCCL says it with NCCL_DEBUG=INFO and "
    "NCCL_DEBUG_SUBSYS=INIT,NET,ENV; libfabric's own tools with -v."
)


def diagnosis(log: Log) -> Iterator[str]:
    """Give the lines of a diagnosis."""
    yield f"{log.source}: {log.case or log.benchmark or 'no benchmark'}: {log.outcome.value}"
    if log.outcome is not Outcome.OK and log.reason:
        yield f"  {log.reason}"
    if str(log.facts.get("transport", "unknown")) == "unknown":
        yield f"  {_UNKNOWN}"
    known = [name for name in _FACTS if name in log.facts and log.facts[name] != "unknown"]
    for name in known:
        shown = log.evidence.get(name, "")
        yield f"  {name:<10} {log.facts[name]!s:<16} {shown.strip()[:160]}".rstrip()
    for found in sorted(log.findings, key=lambda finding: _RANK[finding.severity]):
        yield f"  {found.severity.value} ({found.code}): {found.meaning}"
        if found.line:
            yield f"    seen: {found.line.strip()[:200]}"
        if found.advice:
            yield f"    do:   {found.advice}"
    if not log.findings:
        yield "  Nothing else was found."
