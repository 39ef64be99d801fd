"""What a log says of NVSHMEM's settings: which network was chosen for PEs of other nodes. Pure.

The variables, and the defaults `ibrc` and `cxi`, are those of NVSHMEM's source (3.4.5) and documentation.
Tables say nothing of the network, so a setting is all that a log shows: it names a network, and does not
prove what carried the data.
"""

from collections.abc import Iterator

from fabbench.benchmarks.nvshmem.text import Preface
from fabbench.model import Finding, Severity

TRANSPORT, PROVIDER = "NVSHMEM_REMOTE_TRANSPORT", "NVSHMEM_LIBFABRIC_PROVIDER"
_VERBS = frozenset({"ibrc", "ibdevx", "ibgda"})


def stated(said: Preface) -> dict[str, str | int]:
    """Say what the settings come to, as facts."""
    settings = said.environment()
    transport, provider = settings.get(TRANSPORT, ""), settings.get(PROVIDER, "")
    facts: dict[str, str | int] = {}
    if transport == "libfabric":
        if provider:
            facts["provider"] = provider
        facts["network"] = _libfabric(provider)
    elif transport:
        facts["network"] = "ib" if transport in _VERBS else transport
    return facts


def proven_by(said: Preface) -> dict[str, str]:
    """Give the line behind each fact."""
    lines = {"network": TRANSPORT, "provider": PROVIDER}
    return {fact: said.settings[lines[fact]][1] for fact in stated(said)}


def _libfabric(provider: str) -> str:
    if not provider:
        return "libfabric"
    return "efa" if provider in {"efa", "efa-direct"} else f"libfabric-{provider}"


def findings(said: Preface) -> Iterator[Finding]:
    """Say where settings do not fit each other."""
    settings = said.environment()
    transport, provider = settings.get(TRANSPORT, ""), settings.get(PROVIDER, "")
    if provider and transport != "libfabric":
        told = (
            f"{TRANSPORT} is {transport}"
            if transport
            else f"the log does not show {TRANSPORT} (default: ibrc)"
        )
        yield Finding(
            code="provider-unused",
            severity=Severity.WARNING,
            meaning=f"{PROVIDER}={provider} counts for libfabric only, and {told}.",
            line=said.settings[PROVIDER][1],
            advice=f"Set {TRANSPORT}=libfabric too, for every PE.",
        )
    if transport == "libfabric" and not provider:
        yield Finding(
            code="provider-unset",
            severity=Severity.WARNING,
            meaning=f"{TRANSPORT} is libfabric, and the log does not show {PROVIDER} (default: cxi).",
            line=said.settings[TRANSPORT][1],
            advice=f"Set {PROVIDER} too: efa for EFA.",
        )
