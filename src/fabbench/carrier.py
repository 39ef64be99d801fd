"""Evidence → what carried the data, and what should be known about it. Pure.

In order of weight: `via NET/…` on a channel, `Using network …`, `Selected provider is …`,
`NET/IB|NET/Socket : Using …`. That the plugin wrote a line proves nothing: it does so before it fails.
"""

import re
from collections.abc import Iterator

from fabbench.evidence import Evidence
from fabbench.model import Finding, Severity
from fabbench.symptoms import LONGEST_QUOTE, PLUGIN_FAILED, alike, often, symptoms

_VIRTUAL = re.compile(r"docker|veth|virbr|br-|cni|flannel|cali|tun|lo$")
_NAMED_PROCESSES = 3
_MOST_WARNINGS = 5


def stated(evidence: Evidence, hosts: int = 0) -> dict[str, str | int]:
    """Say what the lines come to, as facts. `hosts`: as many does the benchmark's own text list."""
    facts = dict(evidence.facts)
    network = _network(evidence)
    if network:
        facts["network"] = network
    if evidence.debugging:
        facts["transport"] = _transport(evidence, network, max(hosts, evidence.nodes))
    if evidence.providers:
        facts["provider"] = "+".join(sorted(evidence.providers))
    if evidence.nics and network.startswith(("efa", "libfabric")):
        facts["nics"] = min(evidence.nics.values())
    elif network == "ib" and evidence.ib_devices:
        facts["nics"] = evidence.ib_devices
    if network == "socket" and evidence.interfaces:
        facts["interface"] = "+".join(evidence.interfaces)
    nets = [direct for name, direct in evidence.carriers.items() if name.startswith("net:")]
    if nets:
        directs = set().union(*nets)
        facts["gdr"] = "partly" if len(directs) > 1 else "yes" if directs == {True} else "no"
    if evidence.ranks:
        facts["ranks"] = evidence.ranks
    if evidence.nodes:
        facts["nodes"] = evidence.nodes
    return facts


def _channel_networks(evidence: Evidence) -> set[str]:
    names = (name for name in evidence.carriers if name.startswith("net:"))
    return {_classify(evidence, name.removeprefix("net:")) for name in names}


def _assigned(evidence: Evidence) -> set[str]:
    return {_classify(evidence, name) for name in evidence.networks}


def _network(evidence: Evidence) -> str:
    """Name the network that the library assigned; empty: the log does not say."""
    names = _assigned(evidence) or _channel_networks(evidence)
    if names:
        return "+".join(sorted(names))
    if evidence.providers and not evidence.trouble:
        return _classify(evidence, "Libfabric")
    if evidence.ib_devices:
        return "ib"
    return "socket" if evidence.interfaces else ""


def _classify(evidence: Evidence, name: str) -> str:
    """Turn a printed network name into one of ours; the plugin's name says nothing of its provider."""
    lower = name.lower()
    if lower in {"aws libfabric", "libfabric", "ofi"}:
        provider = "+".join(sorted({provider.partition(";")[0] for provider in evidence.providers}))
        if not provider:
            return "libfabric"
        return "efa" if provider in {"efa", "efa-direct"} else f"libfabric-{provider}"
    return "ib" if lower.startswith("ibext") else lower


def _transport(evidence: Evidence, network: str, hosts: int) -> str:
    nets = _channel_networks(evidence)
    if nets:
        return "+".join(sorted(nets))
    if hosts > 1 and network and not evidence.mnnvl:
        return network
    inside = set(evidence.carriers)
    return inside.pop() if len(inside) == 1 else "unknown"


def findings(evidence: Evidence, hosts: int = 0) -> Iterator[Finding]:
    """Say what should be known: failed plugins, fall-backs, ranks that disagree, known symptoms."""
    networks = _assigned(evidence)
    yield from _disagreement(evidence, networks)
    # NCCL before 2.6 does not say "Using network".
    yield from _plugin(evidence, networks or {_network(evidence)} - {""})
    yield from _interface(evidence, networks, hosts or evidence.nodes)
    for code, found in evidence.symptoms.items():
        # Sockets never have GPUDirect: the line is about a network that was not used.
        if code != "gdr-disabled" or not {"efa", "ib"}.isdisjoint(_network(evidence).split("+")):
            yield found
    others = (
        (text, times)
        for text, times in evidence.warnings.items()
        if not PLUGIN_FAILED.search(text) and not any(symptoms(text))
    )
    for text, times in alike(others)[:_MOST_WARNINGS]:
        yield Finding(
            code="nccl-warning",
            severity=Severity.WARNING,
            meaning=f"NCCL warned{often(times)}.",
            line=text[:LONGEST_QUOTE],
            advice="Search NCCL's issues for this text.",
        )


def _disagreement(evidence: Evidence, networks: set[str]) -> Iterator[Finding]:
    if len(networks) > 1:
        groups = sorted(evidence.networks.items(), key=lambda group: len(group[1]))
        told = "; ".join(f"{name}: {_named(processes)}" for name, processes in groups)
        yield Finding(
            code="networks-disagree",
            severity=Severity.ERROR,
            meaning=f"The ranks do not use the same network ({told}).",
            line=f"Using network {groups[0][0]}",
            advice="Install the same plugin and library path on every node: ranks that disagree hang.",
        )
    counts = set(evidence.nics.values())
    if len(counts) > 1 and networks != {"socket"}:
        fewest = min(counts)
        fewer = {process: None for process, count in evidence.nics.items() if count == fewest}
        yield Finding(
            code="nics-disagree",
            severity=Severity.WARNING,
            meaning=f"The ranks did not find the same number of NICs: {fewest} to {max(counts)} "
            f"({fewest} on {_named(fewer)}).",
            line=evidence.lines.get("nics", "")[:LONGEST_QUOTE],
            advice="Compare `fi_info -p efa` on these nodes with the instance type's count.",
        )


def _named(processes: dict[str, None]) -> str:
    """Name the hosts of a few processes, count the others."""
    hosts = list(dict.fromkeys(process.partition(":")[0] for process in processes if process))
    more = f" and {len(hosts) - _NAMED_PROCESSES} more" if len(hosts) > _NAMED_PROCESSES else ""
    where = f" on {', '.join(hosts[:_NAMED_PROCESSES])}{more}" if hosts else ""
    return f"{len(processes)} process{'' if len(processes) == 1 else 'es'}{where}"


def _plugin(evidence: Evidence, networks: set[str]) -> Iterator[Finding]:
    works = any(name.startswith(("efa", "libfabric")) for name in networks)
    if evidence.trouble and not works:
        fallback = f", and NCCL used {'+'.join(sorted(networks))} instead" if networks else ""
        yield Finding(
            code="plugin-failed",
            severity=Severity.WARNING,
            meaning=f"The network plugin failed{fallback}.",
            line=evidence.trouble[0][:LONGEST_QUOTE],
            advice="Check `fi_info -p efa` on the node, and name the network "
            '(NCCL_NET="AWS Libfabric") so that the run fails instead of falling back.',
        )
    elif evidence.missing and networks == {"socket"}:
        yield Finding(
            code="plugin-missing",
            severity=Severity.NOTE,
            meaning="No network plugin was found, and NCCL used its own sockets.",
            line=evidence.missing[:LONGEST_QUOTE],
            advice="For EFA, put the aws-ofi-nccl library on LD_LIBRARY_PATH of every rank.",
        )


def _interface(evidence: Evidence, networks: set[str], hosts: int) -> Iterator[Finding]:
    """Sockets over an interface that no other node can be behind."""
    wrong = [name for name in evidence.interfaces if _VIRTUAL.match(name)]
    several = hosts > 1 and not _one_machine(evidence)
    if networks == {"socket"} and wrong and len(wrong) == len(evidence.interfaces) and several:
        yield Finding(
            code="wrong-interface",
            severity=Severity.WARNING,
            meaning=f"NCCL's sockets use {', '.join(wrong)}, which does not lead to other nodes.",
            line=evidence.lines.get("interface", "")[:LONGEST_QUOTE],
            advice="Set NCCL_SOCKET_IFNAME to the nodes' own interface, or to ^docker,lo,veth.",
        )


def _one_machine(evidence: Evidence) -> bool:
    """Whether all NCCL hosts are parts of one machine: its processes were given hosts by NCCL_HOSTID."""
    machines = {process.partition(":")[0] for process in evidence.named_hosts}
    return len(machines) == 1 and len(evidence.named_hosts) >= max(evidence.nodes, 2)
