"""What a log says of NVSHMEM's settings: which network was chosen for PEs of other nodes. Pure.

The variables, and the defaults `ibrc` and `cxi`, are those of NVSHMEM's source (3.4.5) and documentation.
Tables say nothing of the network. A setting names one and proves nothing; what NVSHMEM_DEBUG=INFO prints of
the transport and the provider says what is used.
"""

from collections.abc import Iterator, Mapping

from fabbench.benchmarks.nvshmem.text import Preface
from fabbench.model import Finding, Severity

TRANSPORT, PROVIDER = "NVSHMEM_REMOTE_TRANSPORT", "NVSHMEM_LIBFABRIC_PROVIDER"
_VERBS = frozenset({"ibrc", "ibdevx", "ibgda"})


def stated(said: Preface, hosts: int = 0) -> dict[str, str | int]:
    """Say what debug text and settings come to, as facts. Debug text counts more: a setting is only a wish.

    With PEs on two or more hosts, the transport that NVSHMEM says it initialised is what carried the data;
    on one host, with none at all, PEs reach each other's memory themselves.
    """
    told = _told(said)
    facts: dict[str, str | int] = {}
    transport, provider = told.get("transport", ("", ""))[0], told.get("provider", ("", ""))[0]
    if transport == "libfabric":
        if provider:
            facts["provider"] = provider
        facts["network"] = _libfabric(provider)
    elif transport == "none":
        return {"transport": "p2p"} if "transport" in said.shown and hosts == 1 else {}
    elif transport:
        facts["network"] = "ib" if transport in _VERBS else transport
    if "fabric" in said.shown and transport == "libfabric":
        facts["fabric"] = said.shown["fabric"][0]
    if "transport" in said.shown and hosts > 1:
        facts["transport"] = facts["network"]
    return facts


def _told(said: Preface) -> dict[str, tuple[str, str]]:
    """Give transport and provider, each with the line that states it."""
    told = {"transport": said.settings.get(TRANSPORT), "provider": said.settings.get(PROVIDER), **said.shown}
    return {name: value for name, value in told.items() if value is not None}


def proven_by(said: Preface, facts: Mapping[str, str | int]) -> dict[str, str]:
    """Give the line behind each fact."""
    told = _told(said)
    source = {"network": "transport", "transport": "transport", "provider": "provider", "fabric": "fabric"}
    return {fact: told[name][1] for fact, name in source.items() if fact in facts and name in told}


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
