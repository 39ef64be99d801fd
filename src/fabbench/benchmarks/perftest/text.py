"""The text around perftest's tables: title, set-up, addresses, errors, and command lines. Pure.

The wording is from the source (perftest_parameters.c, `ctx_print_test_info`; perftest_resources.h).
"""

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
    r"|(?P<sum>Mean BW peak: [0-9.]+ Gb/s, Mean BW avg: [0-9.]+ Gb/s|Total BW: [0-9.]+ +GB/s)"
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

_SETUP = lazy(
    r"(Device|Number of qps|(?:Transport|Connection|Link) type|Mtu|GID index|[TR]X depth|JSON \w+|Using SRQ|Dual-port"
    r"|PCIe relax order|ibv_wr\* API|CQ Moderation|rdma_cm QPs|Data ex\. method|Max inline data)\s*: ?(\S+)"
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
    "JSON unit": "unit",
    "JSON size": "size",
}
"""Name in the set-up text → fact."""


def read_setup(text: str, *, inside: bool) -> Mapping[str, str]:
    """Return what a line of the set-up states; empty for any other line. `inside`: below others of perftest."""
    if ": " not in text or not (inside or _DISTINCT_SETUP.search(text)):
        return {}
    return dict(_SETUP.findall(text))


RULE, VERSION = lazy(r"\s*-{20,}\s*"), lazy(r"\s*Version: (\d+\.\d\S*)\s*")

_STATUSES = (
    "|local length error: a message is longer than the receive buffer|local queue pair operation error|"
    "|local protection error: the memory registration does not cover the buffer"
    "|work request flushed: the queue pair was already in error, or the other side has exited"
    "|memory window bind error|bad response|local access error"
    "|remote invalid request: the other side refuses the operation or its size"
    "|remote access error: the other side's memory or key does not allow it|remote operation error"
    "|transport retry counter exceeded: the other side does not answer (wrong GID, peer down, loss)"
    "|receiver-not-ready retry counter exceeded: the other side posted no receive|"
    "|remote invalid read request|remote aborted|||fatal error|response timeout|general error"
)
MEANINGS: Mapping[int, str] = {number: text for number, text in enumerate(_STATUSES.split("|")) if text}
"""ibv_wc_status → meaning."""

_PROGRAM = lazy(rf"(?:^|(?<=[\s/'\"]))({_PROGRAMS}|raw_ethernet_(?:bw|lat))(?=[\s'\"]|$)")
_STOP = lazy(r"(?:^|\s)(?:#|//|&|\||;|\d?>|<(?=\s))|['\"]")
# Short options without a value, the first that takes one, and its value (getopt's string in perftest_parameters.c).
_SHORT = lazy(r"-([^wypdimsntuSxcqIoMrQAlDfBTLEJjKkXW]*)(.?)(.*)")
_FLAGS = lazy(
    r"all|bidirectional|(?:comm_)?rdma_cm|CPU-freq|cpu_util|data_validation|dont_xchg_versions|dualport|events|ipv6|no_lock"
    r"|no_peak|odp|out_json|perform_warm_up|report(?:-both|-cycles|-histogram|-unsorted|_gbits|_per_port)"
    r"|run_infinitely|srq|use_(?:cuda|rocm)_dmabuf|use_old_post_send|use-srq"
)
"""Long options without a value."""


class PerftestCommand(NamedTuple):
    """The program that a command line in a log starts."""

    program: str
    side: str  # `client` with a server's address, else `server`
    flags: frozenset[str]


def read_command(text: str) -> PerftestCommand | None:
    """Read a line that starts a program; None for a line that only names it."""
    command = read_words(text, _PROGRAM, _STOP)
    if command is None:
        return None
    operands, flags, rest = 0, set[str](), iter(command.words)
    for word in rest:
        if word.startswith("--"):
            flags.add(word[2:])
            if "=" not in word and not _FLAGS.fullmatch(word[2:]):
                next(rest, None)
        elif len(word) > 1 and (match := _SHORT.fullmatch(word)) is not None:
            flags.update(match[1])
            if match[2] and not match[3]:
                next(rest, None)
        else:
            operands += 1
    side = "client" if operands else "server"
    return PerftestCommand(command.program, side, frozenset(flags)) if operands < 2 else None
