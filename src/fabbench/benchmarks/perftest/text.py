"""The text around perftest's tables: title, set-up, addresses, errors, and command lines. Pure.

The wording is from the source (perftest_parameters.c, `ctx_print_test_info`; perftest_resources.h).
"""

import re
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from fabbench.benchmarks.command_line import read_words
from fabbench.model.patterns import lazy


class Stage(IntEnum):
    """The order in which one process prints: a line of an earlier stage begins another run."""

    START = 0  # before the title
    TITLE = 1
    SETUP = 2
    TABLE = 3  # the header and everything after it
    ANY = 4


class PerftestStatement(NamedTuple):
    """One parsed line."""

    context: str
    stage: Stage
    words: tuple[str, ...] = ()
    facts: Mapping[str, str] = {}

    @property
    def begins_setup(self) -> bool:
        """Return whether it is in the upper half of the set-up, which contains no rule, or above it."""
        upper_half = ("Dual-port", "Device", "Number of qps", "Transport type", "Connection type")
        return self.context != "setup" or not self.facts.keys().isdisjoint(upper_half)


_TITLE = lazy(
    r"\s*(Send|RDMA_Write|RDMA_Read|Atomic)(?:_imm)?[ _]+(?:(?:FETCH_AND_ADD|CMP_AND_SWAP)[ _]+)?"
    r"(Bidirectional[ _]+)?(?:Post[ _]List[ _]+)?(BW|Latency)[ _]+(?:forwarding[ _]+)?"
    r"(?:Multicast[ _]+)?Test\s*"
)
_VERBS = {"Send": "send", "RDMA_Write": "write", "RDMA_Read": "read", "Atomic": "atomic"}

_SETUP = lazy(
    r"(Device|Number of qps|Transport type|Connection type|Mtu|Link type|GID index|TX depth|RX depth"
    r"|Using SRQ|Dual-port|PCIe relax order|ibv_wr\* API|CQ Moderation|rdma_cm QPs|Data ex\. method"
    r"|Max inline data|Outstand reads|Post List)\s*: ?(\S+)"
)
# Nothing else prints these in this form.
_DISTINCT_SETUP = lazy(
    r"(?:Device {9}|Number of qps {3}|Transport type |Connection type |Link type {7}|Mtu {13}"
    r"|CQ Moderation {3}|rdma_cm QPs\s+|Data ex\. method |ibv_wr\* API {5}): "
)
FACTS: Mapping[str, str] = {
    "Device": "device",
    "Connection type": "transport",
    "Link type": "link",
    "Number of qps": "qps",
    "Mtu": "mtu",
    "GID index": "gid_index",
}
"""Name in the set-up text → fact."""

_ADDRESS = lazy(r"\s*(local|remote) address: .*?(QPN 0x[0-9a-f]+ PSN 0x[0-9a-f]+).*")
_BANNER = lazy(r"\s*\* Waiting for client to connect\.\.\. \*\s*")
_WAITING = lazy(r"\s*Waiting for client rdma_cm QP to connect\s*")
_RESULTS = lazy(r"\s*(Local|Remote) results: *")
_RULE = lazy(r"\s*-{20,}\s*")
_VERSION = lazy(r"\s*Version: (\d+\.\d\S*)\s*")
_WARNING = lazy(r"\s*(?:WARNING|Warning): (.*\S)\s*")
_CPU = lazy(r"\s*Conflicting CPU frequency values detected: .*")
_VALIDATION = lazy(r".*VALIDATION: FAILED.*? - (\d+) error\(s\).*")
_SIDE = lazy(r"\W*(server|client)(?: side| log| output)?\W*", re.IGNORECASE)

_STATUS = lazy(r"\s*Failed status[- ](?:(.*) \()?(\d+)\)?: wr_id (-?\d+) syndrom (0x[0-9a-f]+)\s*")
_AT = lazy(r"\s*Completion with (?:error|wc_flags mismatch) at (client|server)\s*")
_DISTINCT_FAILURE = lazy(
    r"\s*(?:Failed to complete run_iter_\w+ function successfully|Did not detect devices"
    r"|Unable to find the Infiniband/RoCE device|IB device \S+ not found|No IB devices found"
    r"|Unable to init the socket connection|ethernet_read_keys: Couldn't read remote address"
    r"|Unexpected CM event bl blka -?\d+|(?:SRD|XRC) not detected in libibverbs"
    r"|DC not supported, mlx5dv\.h is needed|Parser function exited with Error"
    r"|Couldn't get context for the device|Unable to create RDMA_CM resources"
    r"|Error: BW result is below bw limit|Error: Msg rate +is below msg_rate limit"
    r"|(?:UC|UD|SRD) connection (?:not|only) possible in .* verbs?"
    r"|Unable to Connect the HCA's through the link|Failed to exchange data between server and clients"
    r"|Unable to perform rdma_(?:client|server) function|Invalid Connection type\. Please choose from .*"
    r"|(?:\S+: )*(?:line \d+: )?(?:\S*/)?ib_(?:write|read|send|atomic)_(?:bw|lat): (?:error while loading"
    r"|(?:command )?not found|invalid option|option requires|unrecognized option|No such file).*)\s*"
)
# Too common to begin an execution. A failure to release resources is not a failed measurement.
_INSIDE = lazy(
    r"\s*(?:Couldn't (?!destroy|close|Unregister)|Unable to (?!destroy)|Failed to (?:modify|create|exchange"
    r"|negotiate|query|init|sync|post|notify|get c|add DV|set |allocate|complete)|Failed: |accept\(\) failed"
    r"|Can't produce a report|Problem in resolving basic address and port|poll CQ failed|Bad wc status"
    r"|Error (?:occurred|opening)|unexpected CM event|rdma_\w+ failed|Function (?:ibv|rdma)_\w+ failed"
    r"|Unsupported |Invalid |Did not get Message for \d+ Seconds|Poll (?:send|Receive) CQ |ODP is not "
    r"|The device does not support|Received \d+ times ADDR_ERROR|Link layer on port|bad event waiting"
    r"|Data validation: cannot|Found Incompatibility issue).*"
)
_NOISE = lazy(
    r"\s*(?:If device exists, check if driver is up|(?:scnt=\d+, ccnt=|rcnt=)\d+"
    r"|Please run the same command with the IB.*)\s*"
)

MEANINGS: Mapping[int, str] = {
    1: "local length error: a message is longer than the receive buffer",
    2: "local queue pair operation error",
    4: "local protection error: the memory registration does not cover the buffer",
    5: "work request flushed: the queue pair was already in error, or the other side has exited",
    6: "memory window bind error",
    7: "bad response",
    8: "local access error",
    9: "remote invalid request: the other side refuses the operation or its size",
    10: "remote access error: the other side's memory or key does not allow it",
    11: "remote operation error",
    12: "transport retry counter exceeded: the other side does not answer (wrong GID, peer down, loss)",
    13: "receiver-not-ready retry counter exceeded: the other side posted no receive",
    15: "remote invalid read request",
    16: "remote aborted",
    19: "fatal error",
    20: "response timeout",
    21: "general error",
}
"""ibv_wc_status → meaning."""

_MAY_BEGIN = lazy(
    r"#bytes|(?:BW|Latency)[ _](?:\w+[ _])?Test|ib_(?:write|read|send|atomic)_|raw_ethernet_|address: LID"
    r"| : |type : |QPs|Data ex|Waiting for client|Completion with|Failed|detect|nable to|IB device"
    r"|ethernet_read_keys|bl blka|not supported|Parser function|Couldn't|Error: |[Cc]onnection |test_info|BW"
)
_MAY_MATTER = lazy(
    r"^[\s#>*`]*[\d.]|---|results|depth|: |SRQ|API|[Ww]arning|WARNING|VALIDATION|failed|Unsupported|Invalid"
    r"|Can't|Did not|[Ss]erver|[Cc]lient|scnt|rcnt|Please run|Poll|ODP|device|Link layer|bad event"
    rf"|[}}\"]|^\s*-|{_MAY_BEGIN.pattern}"
)


def may_begin(text: str) -> bool:
    """Return whether a line has any sign of perftest: a fast check before the slow one."""
    return _MAY_BEGIN.search(text) is not None


def may_matter(text: str) -> bool:
    """Return whether a line can be relevant while an execution is open."""
    return _MAY_MATTER.search(text) is not None


def read_title(text: str) -> tuple[str, bool] | None:
    """Return the program that a title line (or the JSON's `test`) names, and whether it tests both directions."""
    match = _TITLE.fullmatch(text)
    if match is None:
        return None
    verb, both, context = match.groups()
    return f"ib_{_VERBS[verb]}_{'bw' if context == 'BW' else 'lat'}", both is not None


def read(text: str) -> PerftestStatement | None:
    """Parse a line that counts anywhere; None if other programs print such a line too."""
    if _DISTINCT_SETUP.search(text):
        return PerftestStatement("setup", Stage.SETUP, facts=dict(_SETUP.findall(text)))
    return next((make(match) for pattern, make in _ANYWHERE if (match := pattern.fullmatch(text))), None)


_ANYWHERE: Sequence[tuple[re.Pattern[str], Callable[[re.Match[str]], PerftestStatement]]] = (
    (_TITLE, lambda match: PerftestStatement("title", Stage.TITLE, (match[0],))),
    (_BANNER, lambda _: PerftestStatement("waiting", Stage.START)),
    (_WAITING, lambda _: PerftestStatement("waiting", Stage.SETUP)),
    (_ADDRESS, lambda match: PerftestStatement("address", Stage.SETUP, (match[1], match[2]))),
    (_STATUS, lambda match: PerftestStatement("status", Stage.ANY, (match[2], match[4]))),
    (_AT, lambda match: PerftestStatement("at", Stage.ANY, (match[1], match[0].strip()))),
    (_DISTINCT_FAILURE, lambda match: PerftestStatement("failure", Stage.ANY, (match[0].strip(),))),
)


def read_in_execution(text: str) -> PerftestStatement | None:
    """Parse a line that counts only while an execution is open."""
    for pattern, make in _ONLY_INSIDE:
        if (match := pattern.fullmatch(text)) is not None:
            return make(match)
    facts = dict(_SETUP.findall(text))
    return PerftestStatement("setup", Stage.SETUP, facts=facts) if facts else None


_ONLY_INSIDE: Sequence[tuple[re.Pattern[str], Callable[[re.Match[str]], PerftestStatement]]] = (
    (_RULE, lambda _: PerftestStatement("rule", Stage.ANY)),
    (_RESULTS, lambda match: PerftestStatement("results", Stage.ANY, (match[1].lower(),))),
    (_CPU, lambda match: PerftestStatement("cpu", Stage.ANY, (match[0].strip(),))),
    (_WARNING, lambda match: PerftestStatement("warning", Stage.ANY, (match[1],))),
    (_VALIDATION, lambda match: PerftestStatement("wrong", Stage.ANY, (match[1],))),
    (_NOISE, lambda _: PerftestStatement("noise", Stage.ANY)),
    (_INSIDE, lambda match: PerftestStatement("failure", Stage.ANY, (match[0].strip(),))),
)


def is_rule(text: str) -> bool:
    """Return whether this is the rule that perftest prints above and below its tables."""
    return _RULE.fullmatch(text) is not None


def read_version(text: str) -> str:
    """Read the version that `-V` prints; empty for any other line."""
    match = _VERSION.fullmatch(text)
    return match[1] if match else ""


def side_title(text: str) -> str:
    """Read a heading that names the side whose output follows; empty for any other line."""
    match = _SIDE.fullmatch(text)
    return match[1].lower() if match else ""


def status_sentence(number: int, syndrome: str) -> str:
    """Describe a completion status in words."""
    return f"completion with status {number} ({MEANINGS.get(number, 'see ibv_wc_status')}), syndrome {syndrome}"


_PROGRAM = lazy(r"(?:^|(?<=[\s/'\"]))(ib_(?:write|read|send|atomic)_(?:bw|lat)|raw_ethernet_(?:bw|lat))(?=[\s'\"]|$)")
_STOP = lazy(r"(?:^|\s)(?:#|//|&|\||;|\d?>|<(?=\s))|['\"]")

# Options that take a value: getopt's string, and long_options[] (perftest_parameters.c).
_SHORT = frozenset("wypdimsntuSxcqIoMrQAlDfBTLEJjKkXW")
_LONG = tuple(
    """
    MGID atomic_type bind_source_ip burst_size congest_type connection cpu_id cq-mod cqe_poll
    cuda_mem_type dest_ip dest_mac dest_port dlid duration ethertype flow_label flows flows_burst force-
    link gid-index gpu_touch hop_limit ib-dev ib-port inline_size iters latency_gap limit_bw
    limit_msgrate local_ip local_mac local_port log_active_dci_streams log_dci_streams margin mmap mmap-
    offset mtu numa_node opencl_platform_id out_json_file output outs payload_file_path ph pin_cores
    pkey_index port post_list qp qp-timeout rate_limit rate_limit_type rate_units recv_post_list
    remote_ip remote_mac remote_port reply_every report-counters retry_count rx-depth size sl source_ip
    source_mac source_port tclass tos tph_mem tx-depth typical_pkt_size use_cuda use_cuda_bus_id use_hl
    use_ib_dm_dmabuf use_mlu use_musa use_musa_bus_id use_neuron use_opencl use_rocm vector vlan_pcp
    wait_destroy
    """.split()  # noqa: SIM905 - eighty quoted words would add nothing
)


class PerftestCommand(NamedTuple):
    """The program that a command line in a log starts."""

    program: str
    side: str  # `client` with a server's address, else `server`
    both_directions: bool = False
    cycles: bool = False  # whether times are printed in CPU cycles (`-C`), under a header that states usec


def read_command(text: str) -> PerftestCommand | None:
    """Read a line that starts a program; None for a line that only names it."""
    command = read_words(text, _PROGRAM, _STOP)
    if command is None:
        return None
    operands, flags = _arguments(command.words)
    if len(operands) > 1:
        return None
    return PerftestCommand(
        program=command.program,
        side="client" if operands else "server",
        both_directions=bool({"b", "bidirectional"} & flags),
        cycles=bool({"C", "report-cycles"} & flags),
    )


def _arguments(words: list[str]) -> tuple[list[str], set[str]]:
    """Return the operands, and the names of the options without a value."""
    operands: list[str] = []
    flags: set[str] = set()
    rest = iter(words)
    for word in rest:
        if word.startswith("--"):
            name = word[2:]
            if name != "out_json" and name and any(known.startswith(name) for known in _LONG):
                next(rest, None)
            else:
                flags.add(name.partition("=")[0])
        elif word.startswith("-") and len(word) > 1:
            for at, letter in enumerate(word[1:], start=1):
                if letter in _SHORT:
                    if at == len(word) - 1:
                        next(rest, None)
                    break
                flags.add(letter)
        else:
            operands.append(word)
    return operands, flags
