"""Evidence → what carried the data, and findings about it. Pure.

In order of weight: `via NET/…` on a channel, `Using network …`, `Selected provider is …`,
`NET/IB|NET/Socket : Using …`. That the plugin wrote a line proves nothing: it does so before it
fails.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from fabbench.catalog.paths import PathFact, carrier, path_values
from fabbench.counters.pasted import PastedCounters
from fabbench.evidence.first_error import follows
from fabbench.evidence.known_errors import by_code, finding, matching_errors, nccl_says
from fabbench.evidence.nccl import Evidence
from fabbench.model.fabrics import INTRA_HOST, natural_order
from fabbench.model.log import Facts, Finding, MutableFacts, Record, Severity, fact_text
from fabbench.model.mappings import distinct, first_of, only, without, without_empty
from fabbench.model.messages import counted as counted_noun
from fabbench.model.messages import listed, merged, quoted
from fabbench.model.patterns import lazy

if TYPE_CHECKING:
    from fabbench.counters.congestion import Strain

VERBS = ("ib", "gib")
"""Networks that are InfiniBand or RoCE: NCCL's own, and Google's plugin."""
_VIRTUAL = lazy(r"docker|veth|virbr|br-|cni|flannel|cali|tun|lo$")


def joined_ranks(evidence: Evidence, record: Record) -> int | None:
    """Return how many ranks that the benchmark lists say which network they use.

    None: debug lines or ranks have no pid, by which they are joined.
    """
    # Without blanks, as `record.processes` has them.
    printed = {process.replace(" ", "") for process in _processes(evidence)}
    has_pids = any(process[-1:].isdecimal() for process in printed)
    if not has_pids or not record.processes:
        return None
    joined = 0
    for process in record.processes:
        without_host = process[process.rfind(":") :]  # `:pid`, as lines without a host have it
        joined += process in printed or without_host in printed
    return joined


def is_of_others(evidence: Evidence, record: Record) -> bool:
    """Return whether the lines prove nothing of a record.

    They are of none of the processes that it lists, or of another number of ranks.
    """
    if joined_ranks(evidence, record) == 0:
        return True
    # Where the benchmark splits its ranks, communicators are smaller.
    is_one_group = bool(record.processes) and "groups" not in record.facts
    return is_one_group and evidence.ranks not in {0, record.facts["ranks"]}  # 0: not printed


def transport_facts(evidence: Evidence, hosts: int = 0, program: str = "") -> Facts:
    """Return what the lines show, as facts.

    `hosts` is how many the benchmark's own output lists. What NCCL says counts more: two names may
    be one machine. `program` is the benchmark and its case. Channels prove nothing of one whose
    data go another way: they are those of its set-up.
    """
    facts = _collective_facts(evidence, hosts)
    path = carrier(program)
    if path is not None and evidence.debugging:
        facts = without(facts, _OF_CHANNELS)
        facts |= {path.fact: "none", "transport": _carried_that_way(evidence, path)}
    return facts | path_values(evidence.ways, program)  # ways that lines show replace `none`


_OF_CHANNELS = (
    "gdr",
    "algorithms",
    "channels",
    "channels_used",
    "channel_nics",
    "nvls",
    "pxn",
    "sharp",
)
"""Facts of NCCL's own collectives."""


def _carried_that_way(evidence: Evidence, path: PathFact) -> str:
    """Return the networks that carried what goes one way, such as NCCL's GIN; or `unknown`.

    A way is "none" where a line says that it could not be set up. GPUs of one node then reach each
    other's memory, or the program fails.
    """
    ways = [way for way in evidence.ways if way.fact == path.fact]
    if evidence.nodes == 1 and {way.value for way in ways} == {"none"}:
        return "p2p"
    if not all(way.network for way in ways):  # a line that does not say what carried it
        return "unknown"
    networks = {_classify(evidence, way.network) for way in ways}
    return "+".join(sorted(networks)) or "unknown"


def _collective_facts(evidence: Evidence, hosts: int) -> MutableFacts:
    """Return what the lines show of NCCL's own collectives."""
    # What they do not show has no key. `hosts`: those that the benchmark's own output lists.
    facts = dict(evidence.facts)
    network = _network_of_library(evidence)
    nodes = _nodes(evidence, hosts)
    if network:
        facts["network"] = network
    if evidence.debugging:
        # NCCL before 2.10 does not print the number of nodes.
        by_names = _count_of_host_names(evidence) if _is_whole(evidence) else 0
        facts["transport"] = _carrier_of_collectives(evidence, network, nodes or hosts or by_names)
    if evidence.providers:
        facts["provider"] = "+".join(sorted(evidence.providers))
    facts |= _facts_on_nics(evidence, network)
    if gdr := _gdr(evidence):
        facts["gdr"] = gdr
    facts |= _facts_that_explain(evidence, network)
    if evidence.ranks:
        facts["ranks"] = evidence.ranks
    if nodes:
        facts["nodes"] = nodes
    return facts


def _gdr(evidence: Evidence) -> str:
    """Return whether channels over a network had GPUDirect RDMA; empty if there are none."""
    had_it = "gdr" in evidence.channels
    had_none = "no-gdr" in evidence.channels
    if had_it:
        return "partly" if had_none else "yes"
    return "no" if had_none else ""


def _facts_that_explain(evidence: Evidence, network: str) -> MutableFacts:
    """Return facts that explain figures: algorithms, channels and their NICs, SHARP, NVLS."""
    used = _channel_devices(evidence, {network})
    algorithms = "+".join(sorted(evidence.algorithms))
    facts: MutableFacts = {
        "report": "NCCL RAS" if evidence.hangs.has_ras_table else "",
        "algorithms": algorithms,
        "channels": evidence.channel_count,
        # Of the collective with the fewest: too few channels slow it.
        "channels_used": min(map(_span, evidence.spread.values()), default=0),
        "channel_nics": "+".join(sorted(used, key=natural_order)),
    }
    if evidence.nvls:
        facts["nvls"] = _nvls(evidence, algorithms)
    if "COLLNET" in algorithms:
        facts["sharp"] = "yes"
    elif "sharp-unavailable" in evidence.known_errors:
        facts["sharp"] = "no"
    return without_empty(facts)  # of what the log shows


def _span(channels: Collection[int]) -> int:
    # How many channels there are from the first to the last.
    return max(channels) - min(channels) + 1


def _nvls(evidence: Evidence, algorithms: str) -> str:
    # Whether collectives used NVLS; `available`: ranks had channels for it, no line shows its use.
    if "NVLS" in algorithms:
        return "yes"
    return "available" if True in evidence.nvls else "no"


def _channel_devices(evidence: Evidence, networks: Collection[str]) -> set[str]:
    """Return the indices of the NICs of these networks that channels use."""
    used: set[str] = set()
    for name, devices in evidence.used.items():
        if _classify(evidence, name) in networks:
            used |= devices
    return used


def _nodes(evidence: Evidence, hosts: int) -> int:
    """Return the number of nodes. NCCL counts all hosts of one NVLink domain as one."""
    if "mnnvl" not in evidence.channels:
        return evidence.nodes
    # Then NCCL's number is of NVLink domains: the most that anything shows.
    return max(evidence.nodes, hosts, _count_of_host_names(evidence))


def _count_of_host_names(evidence: Evidence) -> int:
    """Return the number of host names.

    To NCCL, ranks with different ones are not on one machine.
    """
    return len({_host(process) for process in _processes(evidence)})


def _host(process: str) -> str:
    """Return the host of a process (`host:pid`)."""
    return process.partition(":")[0]


def _facts_on_nics(evidence: Evidence, network: str) -> Iterator[tuple[str, str | int]]:
    """Yield facts about the NICs or interfaces of a network: those used if known, else found."""
    if nics := _nics_found(evidence, network):  # of each process; the fewest count
        yield "nics", _fewer_nics_used(evidence, network) or min(nics.values())
    if network in VERBS and evidence.hcas:
        yield "devices", "+".join(sorted(evidence.ib_names, key=natural_order))
    if network in VERBS and (link := _links_in_use(evidence)):
        yield "link", link
    if network == "socket" and evidence.interfaces:
        yield "interface", "+".join(evidence.interfaces)


def _nics_found(evidence: Evidence, network: str) -> dict[str, int]:
    """Return how many NICs of a network each process found."""
    if network.startswith(("efa", "libfabric")):
        return evidence.nics
    return evidence.hcas if network in VERBS else {}


def _fewer_nics_used(evidence: Evidence, network: str) -> int:
    """Return how many NICs the channels use, if it is fewer than it should be; else 0.

    And 0 unless all ranks of several nodes state theirs. Each rank uses the NICs nearest to its
    GPU, and each channel one. So a host must use as many as it has NICs, ranks or channels,
    whichever are fewest: with less, NICs were found and not used.
    """
    nics_found = _nics_found(evidence, network)
    used = len(_channel_devices(evidence, {network}))
    if not (nics_found and used and evidence.nodes > 1 and _is_whole(evidence)):
        return 0
    ranks = evidence.ranks // evidence.nodes
    channels = evidence.channel_count or evidence.ranks  # not printed: ranks alone are the bound
    return used if used < min(*nics_found.values(), ranks, channels) else 0


def _is_whole(evidence: Evidence) -> bool:
    """Return whether the lines of all ranks are there."""
    return 0 < evidence.ranks <= len(_processes(evidence))


def _processes(evidence: Evidence) -> set[str]:
    """Return the processes that say which network they use."""
    return set().union(*evidence.networks.values())


def quoted_lines(evidence: Evidence, facts: Facts, program: str = "") -> dict[str, str]:
    """Return fact → the line that proves it, of the `transport_facts` that one line proves.

    The transport: a channel's line, else that of the network that was chosen; of a program whose
    data go one way inside the fabric, the line that shows this way.
    """
    network = fact_text(facts, "network")
    transport = fact_text(facts, "transport")
    gdr = fact_text(facts, "gdr")
    channels = evidence.channels
    network_channels = _channel_lines(evidence)
    chosen = _network_line(evidence, network, network_channels)
    first = first_of(network_channels.values(), chosen)
    carried = channels.get(transport) or first
    by_way = _lines_of_ways(evidence, facts)
    path = carrier(program)
    if path is not None:
        carried = by_way.get(path.fact, "")
    # "NET/IB : Using …" shows the NICs, their names and their link.
    verbs = evidence.lines.get("ib", "")
    quotes = {
        **evidence.lines,
        **by_way,
        "network": chosen,
        "transport": "" if transport == "unknown" else carried,
        "gdr": channels.get(_GDR_CHANNELS.get(gdr, ""), ""),
        "link": verbs,
    }
    if network in VERBS:
        quotes |= {"nics": verbs, "devices": verbs}
    if _fewer_nics_used(evidence, network):  # the number is that of channels
        quotes["nics"] = carried
    return without_empty(quotes)


def _lines_of_ways(evidence: Evidence, facts: Facts) -> dict[str, str]:
    """Return the line that shows each path fact that is stated."""
    ways = evidence.ways.items()
    return {way.fact: line for way, line in ways if way.fact in facts}


_GDR_CHANNELS = {"yes": "gdr", "no": "no-gdr", "partly": "no-gdr"}
"""Whether GPUDirect RDMA was used → the channel that shows it."""


def _channel_lines(evidence: Evidence) -> dict[str, str]:
    """Return network → the first line of a channel that uses it."""
    return {
        _classify(evidence, key.removeprefix("net:")): line
        for key, line in evidence.channels.items()
        if key.startswith("net:")
    }


def _network_line(evidence: Evidence, network: str, channels: Mapping[str, str]) -> str:
    """Return the line that proves which network was chosen.

    `channels`: network → the first line of a channel over it.
    """
    lines = evidence.lines
    if network.startswith(("efa", "libfabric-")) and "provider" in lines:
        return lines["provider"]  # use of the plugin does not show its provider
    chosen = lines.get("network") or channels.get(network)
    return chosen or lines.get(_FOUND_BY.get(network, "provider"), "")


_FOUND_BY = {"socket": "interface", "ib": "ib", "gib": "ib"}
"""Network → the line that shows that it was found."""


def _links_in_use(evidence: Evidence) -> str:
    """Return the link of the NICs that channels use, or else of all: `IB`, `RoCE`, or both."""
    links = evidence.ib_links
    used = {links[index] for index in _channel_devices(evidence, VERBS) if index in links}
    shown = used or set(links.values())
    return "+".join(sorted(shown - {""}))  # empty: a NIC whose link is not printed


def _assigned_networks(evidence: Evidence) -> set[str]:
    return {_classify(evidence, name) for name in evidence.networks}


def _network_of_library(evidence: Evidence) -> str:
    """Return the network that the library assigned, or several joined by `+`.

    Empty if the log does not show it, or there was none.
    """
    if "network-not-found" in evidence.known_errors:
        return ""
    # What was assigned; else what channels use; else what was found: NCCL tries it in this order.
    names = _assigned_networks(evidence) or _channel_lines(evidence)
    if names:
        return "+".join(sorted(names))
    # A plugin may name its provider, and then fail.
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
        return _libfabric(evidence)
    # Names of NVIDIA's plugin for InfiniBand and RoCE, nccl-rdma-sharp-plugins.
    return "ib" if lower.startswith(("ibext", "nccl rdma plugin", "sharp")) else lower


def _libfabric(evidence: Evidence) -> str:
    """Return the network of the plugin by its providers: `efa`, `libfabric-tcp` and so on.

    `libfabric` if no line names a provider.
    """
    cores = (provider.partition(";")[0] for provider in evidence.providers)  # tcp of `tcp;ofi_rxm`
    names = {core.removesuffix("-direct") for core in cores}  # `efa-direct` is efa, too
    if not names:
        return "libfabric"
    providers = "+".join(sorted(names))
    return "efa" if providers == "efa" else f"libfabric-{providers}"


def _carrier_of_collectives(evidence: Evidence, network: str, hosts: int) -> str:
    """Return what carried the data of collectives: networks, NVLink, or what is inside one host.

    Channels over a network count most. Without any, the network that was chosen counts between
    hosts, unless all ranks show other channels. Else `p2p` or `shm`, or `unknown` of both or none.
    """
    nets = {*_channel_lines(evidence)}
    intra_host = evidence.channels.keys() & {*INTRA_HOST}
    nvlink_domains = max(evidence.nodes, 1)
    if "mnnvl" in evidence.channels and hosts > nvlink_domains:
        # No channel is printed for NVLS, which reduces in the switches. Between domains it takes a
        # network.
        if nvlink_domains > 1 and network and not nets:
            nets.add(network)
        nets.add("mnnvl")
    if nets:
        return "+".join(sorted(nets))
    if hosts > 1 and network and not (intra_host and _is_whole(evidence)):
        return network
    return only(intra_host, "unknown")


def transport_findings(evidence: Evidence, hosts: int = 0) -> Iterator[Finding]:
    """Yield findings: failed plugins, fallbacks, ranks that disagree, hangs, known errors.

    `hosts`: how many the benchmark's own output lists; 0: none.
    """
    networks = _assigned_networks(evidence)
    yield from _disagreement(evidence, networks)
    if hosts > 1 and _nodes(evidence, hosts) == 1 and _is_whole(evidence):  # it has several names
        yield finding("one-machine", hosts=hosts)
    nodes = max(hosts, evidence.nodes)
    # NCCL before 2.6 does not print "Using network".
    used = networks or {_network_of_library(evidence)} - {""}
    yield from _failed_or_missing_plugin(evidence, used, nodes)
    yield from _wrong_interface(evidence, networks, hosts or evidence.nodes)
    carriers = _carriers(evidence)
    yield from evidence.hangs.findings()
    for code, error in _possible_errors(evidence).items():
        # Sockets never have GPUDirect RDMA: the line is about a network that was not used.
        if code != "gdr-disabled" or not carriers.isdisjoint({"efa", *VERBS}):
            yield error
    yield from _of_pasted_counters(evidence.counted)
    # Texts that differ only in numbers are one.
    for text, times in merged(_unknown_warnings(evidence))[:_MOST_UNKNOWN]:
        yield finding("nccl-warning", text, times=times)


_MOST_UNKNOWN = 5
"""Warnings that no known error explains, of which a log has findings."""


def _of_pasted_counters(counted: PastedCounters) -> Iterator[Finding]:
    """Yield what pasted counters of NICs show, and the names of those that nothing is known of."""
    if counted.error:
        yield finding("counted-errors", counted.error)
    yield from map(_congestion, counted.strains())
    if counted.unjudged:
        count = counted_noun(len(counted.unjudged), "counter")
        names = listed([*counted.unjudged], _SHOWN_NAMES)
        yield finding("counters-unjudged", count=count, names=names)


_SHOWN_NAMES = 8


def _congestion(strain: "Strain") -> Finding:
    # A finding with the strain's own sentence; a note, unless it is heavy.
    from fabbench.counters.findings import advice

    code = strain.sign.code
    sentence = re.sub("^the ", "The ", strain.sentence)
    return replace(
        finding(code),
        severity=Severity.WARNING if strain.is_heavy else Severity.NOTE,
        meaning=f"{sentence}.",
        advice=advice(code),
    )


def _carriers(evidence: Evidence) -> set[str]:
    """Return the networks that carried data, or must have, as no channel shows anything else."""
    nets = {*_channel_lines(evidence)}
    if nets:
        return nets
    # All inside one host.
    if evidence.nodes == 1 or not evidence.channels.keys().isdisjoint(INTRA_HOST):
        return set()
    return set(_network_of_library(evidence).split("+"))


def _unknown_warnings(evidence: Evidence) -> Iterator[tuple[str, int]]:
    """Yield warnings that no known error explains, with how often each was printed.

    That a plugin gave up is a finding of its own.
    """
    facts = _facts_of_causes(evidence)
    for text, times in evidence.warnings.items():
        known = any(each.applies(facts) for each in matching_errors(text))
        if not known and not nccl_says("gave up", text):
            yield text, times


def _possible_errors(evidence: Evidence) -> dict[str, Finding]:
    """Return code → finding, of the known errors that the facts allow as a cause."""
    facts = _facts_of_causes(evidence)
    possible = dict(evidence.known_errors)
    for code in evidence.known_errors:
        if not by_code()[code].applies(facts):
            del possible[code]
    return possible


def rejected_codes(evidence: Evidence) -> frozenset[str]:
    """Return the codes of the known errors that the facts contradict as a cause."""
    return frozenset(evidence.known_errors) - _possible_errors(evidence).keys()


def _facts_of_causes(evidence: Evidence) -> Facts:
    """Return the facts on which causes depend."""
    links = {*evidence.ib_links.values()} - {""}
    return {
        **evidence.facts,
        "nodes": evidence.nodes,
        "mnnvl": evidence.mnnvl,
        "links": "+".join(sorted(links)),
    }


_NOT_INSTEAD_OF_EFA = frozenset({"unknown", "efa", "mnnvl", *INTRA_HOST})
"""Transports that do not carry data instead of EFA."""


def lost_fabric(evidence: Evidence, facts: Facts) -> str:
    """Return a sentence if EFA was requested and lost; empty otherwise."""
    transport = fact_text(facts, "transport", "unknown")
    lost = evidence.trouble or evidence.missing
    if not evidence.requested or not lost or transport in _NOT_INSTEAD_OF_EFA:
        return ""
    return (
        f"The log asks for EFA (FI_PROVIDER=efa), but {transport} carried the data: the "
        "plugin failed or is missing."
    )


def errors(evidence: Evidence, *, measured: bool) -> list[str]:
    """Return what ended NCCL, as sentences: known errors, else the first call that failed.

    Where nothing was `measured`, a warning is enough, if NCCL returns an error below it.
    """
    known: list[str] = []
    for error in _possible_errors(evidence).values():
        if error.severity is Severity.ERROR:
            meaning = error.meaning.removesuffix(".")
            known.append(f"{meaning}: {quoted(error.line)}")
    failed = evidence.failed
    if not measured:
        failed = failed or first_of(evidence.error_follows_below.values(), "")
    if failed and not known:
        known.append(_what_failed(evidence, failed))
    return known


def _what_failed(evidence: Evidence, failed: str) -> str:
    """Return what ended NCCL; a call that fails as another process ended is not what did it."""
    first = evidence.errors.first()
    if follows(failed) and first and not follows(first):
        who = "NCCL failed" if first in evidence.warnings else "The program reported"
        return f"{who}: {quoted(first)}"
    return f"NCCL failed: {quoted(failed)}"


def _disagreement(evidence: Evidence, networks: set[str]) -> Iterator[Finding]:
    # Processes that use several networks, found other numbers of NICs, or use fewer than found.
    if len(networks) > 1:  # as named by us; below as printed
        # First what the fewest processes use.
        names = sorted(evidence.networks, key=lambda name: len(evidence.networks[name]))
        users = [f"{name}: {_processes_in_words(evidence.networks[name])}" for name in names]
        line = f"Using network {names[0]}"
        yield finding("networks-disagree", line, users="; ".join(users))
    network = _network_of_library(evidence)
    yield from _different_nics(evidence, network)
    if used := _fewer_nics_used(evidence, network):
        available = min(_nics_found(evidence, network).values())
        line = next(line for key, line in evidence.channels.items() if key.startswith("net:"))
        yield finding("nics-unused", line, found=available, used=used)


def _different_nics(evidence: Evidence, network: str) -> Iterator[Finding]:
    """Yield a finding if processes did not find the same number of NICs."""
    nics_found = _nics_found(evidence, network)
    fewest = min(nics_found.values(), default=0)
    most = max(nics_found.values(), default=0)
    if fewest == most:
        return
    fewer = [process for process, count in nics_found.items() if count == fewest]
    line = evidence.lines.get("ib" if network in VERBS else "nics", "")
    command = "ibv_devices" if network in VERBS else "fi_info -p efa"
    yield finding(
        "nics-disagree",
        line,
        fewest=fewest,
        most=most,
        where=_processes_in_words(fewer),
        command=command,
    )


def _processes_in_words(processes: Collection[str]) -> str:
    """Return the number of processes, their first hosts, and how many other hosts there are."""
    noun = "process" if len(processes) == 1 else "processes"
    hosts = distinct(_host(process) for process in processes if process)
    where = f" on {listed(hosts, limit=3)}" if hosts else ""
    return f"{len(processes)} {noun}{where}"


def _failed_or_missing_plugin(
    evidence: Evidence, networks: set[str], nodes: int
) -> Iterator[Finding]:
    """Yield a finding if the plugin failed, or is missing where it was wanted.

    `networks`: those in use, of which sockets need no plugin unless EFA was wanted.
    """
    if any(name.startswith(("efa", "libfabric")) for name in networks):  # it works
        return
    wants_efa = _wants_efa(evidence)
    is_wanted = wants_efa or bool(networks - {"socket"})
    used = "+".join(sorted(networks))
    words = {
        "fallback": f", and NCCL used {used} instead" if used else "",
        "check": _CHECK_PLUGIN if wants_efa else "",
    }
    if evidence.trouble:
        failed = finding("plugin-failed", evidence.trouble[0], **words)
        yield replace(failed, severity=_gravity(evidence, is_wanted=is_wanted))
    elif evidence.missing and networks == {"socket"} and nodes != 1:  # one node needs none
        yield finding("plugin-missing", evidence.missing, **words)


def _gravity(evidence: Evidence, *, is_wanted: bool) -> Severity:
    """Return how grave it is that the plugin failed."""
    if not is_wanted:
        return Severity.NOTE
    if "network-not-found" in evidence.known_errors:  # no other network may be used
        return Severity.ERROR
    return Severity.WARNING


_CHECK_PLUGIN = (
    "Check `fi_info -p efa` on the node, and LD_LIBRARY_PATH of every rank for the "
    "aws-ofi-nccl library. "
)


def _wants_efa(evidence: Evidence) -> bool:
    """Return whether EFA was asked for, or its plugin tried."""
    if evidence.requested or "instance_type" in evidence.facts:  # the plugin alone prints the type
        return True
    if evidence.asked.endswith("Libfabric"):
        return True
    return any("OFI" in line or "ibfabric" in line for line in evidence.trouble)


def _wrong_interface(evidence: Evidence, networks: set[str], hosts: int) -> Iterator[Finding]:
    """Yield a finding if sockets use an interface that cannot lead to other nodes."""
    virtual = [name for name in evidence.interfaces if _VIRTUAL.match(name)]
    processes = _processes(evidence)
    # Where NCCL_HOSTID names parts of a machine, the lines of one process do not show where the
    # others are.
    others_unknown = bool(evidence.named_hosts) and len(processes) < hosts
    machines = {_host(process) for process in evidence.named_hosts}
    parts = len(evidence.named_hosts)
    # All nodes are parts of one machine, where any interface leads to the others.
    one_machine = len(machines) == 1 and parts >= max(evidence.nodes, 2)
    if networks != {"socket"} or hosts < 2 or others_unknown or one_machine:
        return
    if virtual and len(virtual) == len(evidence.interfaces):
        line = evidence.lines.get("interface", "")
        yield finding("wrong-interface", line, names=", ".join(virtual))
