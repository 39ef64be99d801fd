"""Evidence → what carried the data, and findings about it. Pure.

In order of weight: `via NET/…` on a channel, `Using network …`, `Selected provider is …`,
`NET/IB|NET/Socket : Using …`. That the plugin wrote a line proves nothing: it does so before it
fails.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from fabbench.evidence.known_errors import PLUGIN_FAILED, finding, matching_errors
from fabbench.evidence.nccl import Evidence
from fabbench.model.fabrics import INTRA_HOST, natural_order
from fabbench.model.log import Finding, Severity
from fabbench.model.messages import listed, merged, quoted
from fabbench.model.patterns import lazy

VERBS = ("ib", "gib")
"""Networks that are InfiniBand or RoCE: NCCL's own, and Google's plugin."""
_VIRTUAL = lazy(r"docker|veth|virbr|br-|cni|flannel|cali|tun|lo$")


def transport_facts(evidence: Evidence, hosts: int = 0) -> dict[str, str | int]:
    """Return what the lines show, as facts. `hosts`.

    The number that the benchmark's own output lists.

    What NCCL says counts more: two names may be one machine.
    """
    facts = dict(evidence.facts)
    network, nodes = _network(evidence), _nodes(evidence, hosts)
    if network:
        facts["network"] = network
    if evidence.debugging:
        # NCCL before 2.10 does not print the number of nodes.
        unstated = _names(evidence) if _is_whole(evidence) else 0
        facts["transport"] = _transport(evidence, network, nodes or hosts or unstated)
    if evidence.providers:
        facts["provider"] = "+".join(sorted(evidence.providers))
    facts |= dict(_devices(evidence, network))
    nets = [direct for name, direct in evidence.transports.items() if name.startswith("net:")]
    if nets:
        directs = set().union(*nets)
        facts["gdr"] = "partly" if len(directs) > 1 else "yes" if directs == {True} else "no"
    facts |= _explaining(evidence, network)
    return facts | {
        name: count for name, count in (("ranks", evidence.ranks), ("nodes", nodes)) if count
    }


def _explaining(evidence: Evidence, network: str) -> dict[str, str | int]:
    """Return facts that explain figures.

    Algorithms, channels, NICs of the channels, reduction in switches.
    """
    used = {
        dev
        for name, devices in evidence.used.items()
        if _classify(evidence, name) == network
        for dev in devices
    }
    facts: dict[str, str | int] = {
        "report": "NCCL RAS" if evidence.hangs.report else "",
        "algorithms": "+".join(sorted(evidence.algorithms)),
        "channels": evidence.channel_count,
        "channel_nics": "+".join(sorted(used, key=natural_order)),
    }
    if evidence.nvls:
        facts["nvls"] = (
            "yes"
            if "NVLS" in str(facts["algorithms"])
            else "available"
            if True in evidence.nvls
            else "no"
        )
    if "COLLNET" in str(facts["algorithms"]):
        facts["sharp"] = "yes"
    elif "sharp-unavailable" in evidence.known_errors:
        facts["sharp"] = "no"
    return {name: value for name, value in facts.items() if value}


def _nodes(evidence: Evidence, hosts: int) -> int:
    """Return the number of nodes. NCCL counts all hosts of one NVLink domain as one."""
    return (
        max(evidence.nodes, hosts, _names(evidence))
        if "mnnvl" in evidence.channels
        else evidence.nodes
    )


def _names(evidence: Evidence) -> int:
    """Return the number of host names.

    To NCCL, ranks with different ones are not on one machine.
    """
    return len(
        {name.partition(":")[0] for processes in evidence.networks.values() for name in processes}
    )


def _devices(evidence: Evidence, network: str) -> Iterator[tuple[str, str | int]]:
    """Yield facts about the NICs or interfaces of a network.

    Those used, where that shows, else those found.
    """
    if found := _found(evidence, network):
        yield "nics", _used(evidence, network) or min(found.values())
    if network in VERBS and evidence.hcas:
        yield "devices", "+".join(sorted(evidence.ib_names, key=natural_order))
    if network in VERBS and (link := _link(evidence)):
        yield "link", link
    if network == "socket" and evidence.interfaces:
        yield "interface", "+".join(evidence.interfaces)


def _found(evidence: Evidence, network: str) -> dict[str, int]:
    """Return how many NICs of a network each process found."""
    if network.startswith(("efa", "libfabric")):
        return evidence.nics
    return evidence.hcas if network in VERBS else {}


def _used(evidence: Evidence, network: str) -> int:
    """Return how many NICs the channels use, if all ranks state theirs and it is fewer than it should be; else 0.

    Each rank uses the NICs nearest to its GPU, and each channel one: fewer than the smallest of these numbers on
    a host means that NICs were found and not used.
    """
    found = _found(evidence, network)
    devices = {
        index
        for name, used in evidence.used.items()
        if _classify(evidence, name) == network
        for index in used
    }
    if not (found and devices and evidence.nodes > 1 and _is_whole(evidence)):
        return 0
    expected = min(
        *found.values(), evidence.ranks // evidence.nodes, evidence.channel_count or evidence.ranks
    )
    return len(devices) if len(devices) < expected else 0


def _is_whole(evidence: Evidence) -> bool:
    """Return whether the lines of all ranks are there."""
    return 0 < evidence.ranks <= len(set().union(*evidence.networks.values()))


def quoted_lines(evidence: Evidence, facts: Mapping[str, str | int]) -> dict[str, str]:
    """Return the line that proves each of the `transport_facts`, if a single line does."""
    channels, lines = evidence.channels, evidence.lines
    over = {
        _classify(evidence, key.removeprefix("net:")): line
        for key, line in channels.items()
        if key.startswith("net:")
    }
    network = str(facts.get("network", ""))
    # Use of the plugin does not show its provider.
    last = "ib" if network in VERBS else "interface" if network == "socket" else "provider"
    first = "provider" if network.startswith(("efa", "libfabric-")) else "network"
    chosen = lines.get(first) or lines.get("network") or over.get(network) or lines.get(last, "")
    transport = str(facts.get("transport", ""))
    used = channels.get(transport) or next(iter(over.values()), "") or chosen
    gdr = {"yes": "gdr", "no": "no-gdr", "partly": "no-gdr"}.get(str(facts.get("gdr", "")), "")
    proven = {
        **lines,
        "network": chosen,
        "transport": "" if transport == "unknown" else used,
        "gdr": channels.get(gdr, ""),
        "link": lines.get("ib", ""),
        **(dict.fromkeys(("nics", "devices"), lines.get("ib", "")) if network in VERBS else {}),
        **({"nics": used} if _used(evidence, network) else {}),
    }
    return {name: line for name, line in proven.items() if line}


def _link(evidence: Evidence) -> str:
    """Return the link of the NICs that channels use, or else of all NICs: `IB`, `RoCE`, or both."""
    links = evidence.ib_links
    verbs = (used for name, used in evidence.used.items() if _classify(evidence, name) in VERBS)
    used = {links[index] for index in set().union(*verbs) if index in links} or set(links.values())
    return "+".join(sorted(used - {""}))


def _channel_networks(evidence: Evidence) -> set[str]:
    names = (name for name in evidence.transports if name.startswith("net:"))
    return {_classify(evidence, name.removeprefix("net:")) for name in names}


def _assigned(evidence: Evidence) -> set[str]:
    return {_classify(evidence, name) for name in evidence.networks}


def _network(evidence: Evidence) -> str:
    """Return the network that the library assigned.

    Empty if the log does not show it, or there was none.
    """
    if "network-not-found" in evidence.known_errors:
        return ""
    names = _assigned(evidence) or _channel_networks(evidence)
    if names:
        return "+".join(sorted(names))
    if evidence.providers and not evidence.trouble:
        return _classify(evidence, "Libfabric")
    if evidence.hcas:
        return "ib"
    return "socket" if evidence.interfaces else ""


def _classify(evidence: Evidence, name: str) -> str:
    """Convert a printed network name to one of ours.

    The plugin's name does not show its provider.
    """
    lower = name.lower()
    if lower in {"aws libfabric", "libfabric", "ofi"}:
        providers = {
            provider.partition(";")[0].removesuffix("-direct") for provider in evidence.providers
        }
        if not providers:
            return "libfabric"
        return "efa" if providers == {"efa"} else f"libfabric-{'+'.join(sorted(providers))}"
    return "ib" if lower.startswith(("ibext", "nccl rdma plugin", "sharp")) else lower


def _transport(evidence: Evidence, network: str, hosts: int) -> str:
    nets, intra_host = _channel_networks(evidence), set(evidence.transports)
    if "mnnvl" in evidence.channels and hosts > max(evidence.nodes, 1):
        # No channel is printed for NVLS, which reduces in the switches. Between domains it takes a
        # network.
        nets |= {"mnnvl", *([network] if evidence.nodes > 1 and network and not nets else ())}
    if nets:
        return "+".join(sorted(nets))
    if hosts > 1 and network and not (intra_host and _is_whole(evidence)):
        return network
    return intra_host.pop() if len(intra_host) == 1 else "unknown"


def transport_findings(evidence: Evidence, hosts: int = 0) -> Iterator[Finding]:
    """Yield findings: failed plugins, fallbacks, ranks that disagree, known errors."""
    networks = _assigned(evidence)
    yield from _disagreement(evidence, networks)
    if hosts > 1 and _nodes(evidence, hosts) == 1 and _is_whole(evidence):
        yield finding("one-machine", hosts=hosts)
    # NCCL before 2.6 does not print "Using network".
    yield from _plugin(evidence, networks or {_network(evidence)} - {""})
    yield from _interface(evidence, networks, hosts or evidence.nodes)
    intra_host = bool(evidence.transports) or evidence.nodes == 1
    carriers = _channel_networks(evidence) or (
        set() if intra_host else set(_network(evidence).split("+"))
    )
    yield from evidence.hangs.findings()
    for code, error in evidence.known_errors.items():
        # Sockets never have GPUDirect RDMA: the line is about a network that was not used.
        if code != "gdr-disabled" or not carriers.isdisjoint({"efa", *VERBS}):
            yield error
    others = (
        (text, times)
        for text, times in evidence.warnings.items()
        if not PLUGIN_FAILED.search(text) and not any(matching_errors(text))
    )
    for text, times in merged(others)[:5]:
        yield finding("nccl-warning", text, times=times)


def lost_fabric(evidence: Evidence, facts: Mapping[str, str | int]) -> str:
    """Return a sentence if EFA was requested and lost; empty otherwise."""
    transport = str(facts.get("transport", "unknown"))
    lost = evidence.trouble or evidence.missing
    if not evidence.requested or not lost or transport in {"unknown", "efa", "mnnvl", *INTRA_HOST}:
        return ""
    return (
        f"The log asks for EFA (FI_PROVIDER=efa), but {transport} carried the data: the "
        "plugin failed or is missing."
    )


def errors(evidence: Evidence) -> list[str]:
    """Return what ended NCCL, as sentences: known errors, else the first call that failed."""
    known = [
        f"{error.meaning.removesuffix('.')}: {quoted(error.line)}"
        for error in evidence.known_errors.values()
        if error.severity is Severity.ERROR
    ]
    return known or ([f"NCCL failed: {quoted(evidence.failed)}"] if evidence.failed else [])


def _disagreement(evidence: Evidence, networks: set[str]) -> Iterator[Finding]:
    if len(networks) > 1:
        groups = sorted(evidence.networks.items(), key=lambda group: len(group[1]))
        users = "; ".join(f"{name}: {_describe(processes)}" for name, processes in groups)
        yield finding("networks-disagree", f"Using network {groups[0][0]}", users=users)
    network = _network(evidence)
    found = _found(evidence, network)
    if len(counts := set(found.values())) > 1:
        fewest = min(counts)
        fewer = {process: None for process, count in found.items() if count == fewest}
        line, command = ("ib", "ibv_devices") if network in VERBS else ("nics", "fi_info -p efa")
        words = {
            "fewest": fewest,
            "most": max(counts),
            "where": _describe(fewer),
            "command": command,
        }
        yield finding("nics-disagree", evidence.lines.get(line, ""), **words)
    if used := _used(evidence, network):
        line = next(line for key, line in evidence.channels.items() if key.startswith("net:"))
        yield finding("nics-unused", line, found=min(counts), used=used)


def _describe(processes: dict[str, None]) -> str:
    """Return the number of processes, and their hosts.

    The first few and how many others there are.
    """
    hosts = list(dict.fromkeys(process.partition(":")[0] for process in processes if process))
    where = f" on {listed(hosts, 3)}" if hosts else ""
    return f"{len(processes)} process{'' if len(processes) == 1 else 'es'}{where}"


def _plugin(evidence: Evidence, networks: set[str]) -> Iterator[Finding]:
    works = any(name.startswith(("efa", "libfabric")) for name in networks)
    efa = bool(
        evidence.requested
        or "instance_type" in evidence.facts
        or evidence.asked.endswith("Libfabric")
        or any("OFI" in line or "ibfabric" in line for line in evidence.trouble)
    )
    sockets = networks == {"socket"} or not (efa or networks)
    failed = bool(evidence.trouble)
    if works or not (failed or (evidence.missing and sockets)):
        return
    fallback = f", and NCCL used {'+'.join(sorted(networks))} instead" if networks else ""
    check = (
        "Check `fi_info -p efa` on the node, and LD_LIBRARY_PATH of every rank for the "
        "aws-ofi-nccl library. "
    )
    code, line = (
        ("plugin-failed", evidence.trouble[0]) if failed else ("plugin-missing", evidence.missing)
    )
    found = finding(code, line, fallback=fallback, check=check if efa else "")
    quiet = not failed or not (efa or not sockets)
    yield replace(found, severity=Severity.NOTE) if quiet else found


def _interface(evidence: Evidence, networks: set[str], hosts: int) -> Iterator[Finding]:
    """Yield a finding if sockets use an interface that cannot lead to other nodes."""
    wrong = [name for name in evidence.interfaces if _VIRTUAL.match(name)]
    processes = set().union(*evidence.networks.values())
    # Where NCCL_HOSTID names parts of a machine, the lines of one process do not show where the
    # others are.
    unknown = bool(evidence.named_hosts) and len(processes) < hosts
    machines = {process.partition(":")[0] for process in evidence.named_hosts}
    one = len(machines) == 1 and len(evidence.named_hosts) >= max(evidence.nodes, 2)
    several = hosts > 1 and not unknown and not one
    if networks == {"socket"} and wrong and len(wrong) == len(evidence.interfaces) and several:
        yield finding(
            "wrong-interface", evidence.lines.get("interface", ""), names=", ".join(wrong)
        )
