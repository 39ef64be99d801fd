"""The text around perftest's tables: title, set-up, addresses, errors, and command lines. Pure.

The wording is from the source (perftest_parameters.c, `ctx_print_test_info`; perftest_resources.h).
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

from fabbench.benchmarks.command_line import read_words
from fabbench.model.patterns import lazy

TABLE = 3
STAGES: Mapping[str, int] = {
    **dict.fromkeys(("command", "banner", "json"), 0),
    "title": 1,
    **dict.fromkeys(("setup", "address", "waiting"), 2),
    **dict.fromkeys(("header", "sum"), TABLE),
}
"""Kind of line → when one process prints it: a line of an earlier stage begins another run. Others: at any time."""

_PROGRAMS = r"ib_(?:write|read|send|atomic)_(?:bw|lat)"
_ANYWHERE = (
    r"(?P<title>(?P<verb>Send|RDMA_Write|RDMA_Read|Atomic)(?:_imm)?[ _]+(?:(?:FETCH_AND_ADD|CMP_AND_SWAP)[ _]+)?"
    r"(?P<both>Bidirectional[ _]+)?(?:Post[ _]List[ _]+)?(?P<figure>BW|Latency)[ _]+(?:forwarding[ _]+)?"
    r"(?:Multicast[ _]+)?Test)"
    r"|(?P<address>(?P<end>local|remote) address: .*?(?P<pair>QPN 0x[0-9a-f]+ PSN 0x[0-9a-f]+).*)"
    r"|(?P<banner>\* Waiting for client to connect\.\.\. \*)|(?P<waiting>Waiting for client rdma_cm QP to connect)"
    r"|(?P<json>.*\btest_info\"?\s*:.*)"
    r"|(?P<sum>Mean BW peak: [0-9.]+ Gb/s, Mean BW avg: [0-9.]+ Gb/s|Total BW: [0-9.]+ GB/s)"
    r"|(?P<status>Failed status[- ](?:(?:.*) \()?(?P<number>\d{1,9})\)?: wr_id -?\d+ syndrom (?P<syndrome>0x[0-9a-f]+))"
    r"|(?P<at>Completion with (?:error|wc_flags mismatch) at (?P<failed>client|server))"
    r"|(?P<failure>Failed to complete run_iter_\w+ function successfully|Did not detect devices"
    r"|Unable to find the Infiniband/RoCE device|IB device \S+ not found|No IB devices found"
    r"|Unable to init the socket connection|ethernet_read_keys: Couldn't read remote address"
    r"|Unexpected CM event bl blka -?\d+|(?:SRD|XRC) not detected in libibverbs"
    r"|DC not supported, mlx5dv\.h is needed|Parser function exited with Error"
    r"|Couldn't get context for the device|Unable to create RDMA_CM resources"
    r"|Error: BW result is below bw limit|Error: Msg rate +is below msg_rate limit"
    r"|(?:UC|UD|SRD) connection (?:not|only) possible in .* verbs?"
    r"|Unable to Connect the HCA's through the link|Failed to exchange data between server and clients"
    r"|Unable to perform rdma_(?:client|server) function|Invalid Connection type\. Please choose from .*"
    rf"|(?:\S+: )*(?:line \d+: )?(?:\S*/)?{_PROGRAMS}: (?:error while loading"
    r"|(?:command )?not found|invalid option|option requires|unrecognized option|No such file).*)"
)
"""Lines that nothing else prints."""
# Too common to begin an execution. A failure to release resources is not a failed measurement.
_INSIDE = (
    r"|(?P<rule>-{20,})|(?P<results>(?P<of>Local|Remote) results:)"
    r"|(?P<cpu>Conflicting CPU frequency values detected: .*)"
    r"|(?P<warning>(?:WARNING|Warning): (?P<message>.*\S))"
    r"|(?P<wrong>.*VALIDATION: FAILED.*? - (?P<errors>\d+) error\(s\).*)"
    r"|(?P<error>(?:Couldn't (?!destroy|close|Unregister)|Unable to (?!destroy)|Failed to (?:modify|create|exchange"
    r"|negotiate|query|init|sync|post|notify|get c|add DV|set |allocate|complete)|Failed: |accept\(\) failed"
    r"|Can't produce a report|Problem in resolving basic address and port|poll CQ failed|Bad wc status"
    r"|Error (?:occurred|opening)|unexpected CM event|rdma_\w+ failed|Function (?:ibv|rdma)_\w+ failed"
    r"|Unsupported |Invalid |Did not get Message for \d+ Seconds|Poll (?:send|Receive) CQ |ODP is not "
    r"|The device does not support|Received \d+ times ADDR_ERROR|Link layer on port|bad event waiting"
    r"|Data validation: cannot|Found Incompatibility issue).*)"
)
ANYWHERE, INSIDE = lazy(rf"\s*(?:{_ANYWHERE})\s*"), lazy(rf"\s*(?:{_ANYWHERE}{_INSIDE})\s*")
"""A line other than a row, outside and inside of an execution: its kind is the name of the last group."""

SETUP = lazy(
    r"(Device|Number of qps|Transport type|Connection type|Mtu|Link type|GID index|TX depth|RX depth"
    r"|Using SRQ|Dual-port|PCIe relax order|ibv_wr\* API|CQ Moderation|rdma_cm QPs|Data ex\. method"
    r"|Max inline data|Outstand reads|Post List|JSON unit)\s*: ?(\S+)"
)
# Nothing else prints these in this form.
DISTINCT_SETUP = lazy(
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
    "JSON unit": "unit",
}
"""Name in the set-up text → fact."""
RULE, VERSION = lazy(r"\s*-{20,}\s*"), lazy(r"\s*Version: (\d+\.\d\S*)\s*")
SIDE = lazy(r"\W*(server|client)(?: side| log| output)?\W*", re.IGNORECASE)
"""A heading that names the side whose output follows."""

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
