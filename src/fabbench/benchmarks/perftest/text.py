"""The text around perftest's tables: title, set-up, addresses, errors, and command lines. Pure.

The wording is from the source (perftest_parameters.c, `ctx_print_test_info`; perftest_resources.h).
"""

from collections.abc import Mapping

from fabbench.benchmarks.command_line import read_words
from fabbench.model.patterns import lazy

STAGES = {
    "command": 0,
    "banner": 0,
    "json": 0,
    "title": 1,
    "setup": 2,
    "address": 2,
    "waiting": 2,
    "header": 3,
    "sum": 3,
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
    r"|(?P<sum>Mean BW peak: [0-9.]+ Gb/s, Mean BW avg: [0-9.]+ Gb/s|Total BW: [0-9.]+ *GB/s)"
    r"|(?P<failure>Failed status[- ](?:(?:.*) \()?(?P<status>\d{1,9})\)?: wr_id -?\d+ syndrom (?P<syndrome>0x[0-9a-f]+)"
    r"|Completion with (?:error|wc_flags mismatch) at (?:client|server)"
    r"|Did not detect devices|IB device \S+ not found|No IB devices found|(?:SRD|XRC) not detected in libibverbs"
    r"|Unable to (?:find the Infiniband/RoCE device|init the socket connection|create RDMA_CM resources"
    r"|Connect the HCA's through the link|perform rdma_(?:client|server) function)|Couldn't get context for the device"
    r"|Failed to (?:complete run_iter_\w+ function successfully|exchange data between server and clients)"
    r"|ethernet_read_keys: Couldn't read remote address|Unexpected CM event bl blka -?\d+"
    r"|DC not supported, mlx5dv\.h is needed|Parser function exited with Error|Invalid Connection type\. Please .*"
    r"|Error: (?:BW result|Msg rate) +is below \w+ limit|(?:UC|UD|SRD) connection (?:not|only) possible in .* verbs?"
    rf"|(?:\S+: )*(?:line \d+: )?(?:\S*/)?{_PROGRAMS}: (?:error while loading"
    r"|(?:command )?not found|invalid option|option requires|unrecognized option|No such file).*)"
)
"""Lines that nothing else prints."""
# Too common to begin an execution. A failure to release resources is not a failed measurement.
_INSIDE = (
    r"|(?P<rule>-{20,})|(?P<results>(?P<of>Local|Remote) results:)"
    r"|(?P<cpu>Conflicting CPU frequency values detected: .*)"
    r"|(?:WARNING|Warning): (?P<warning>.*\S)"
    r"|(?P<wrong>.*VALIDATION: FAILED.*? - (?P<errors>\d+) error\(s\).*)"
    r"|(?P<error>(?:Couldn't (?!destroy|close|Unregister)|Unable to (?!destroy)|Failed to (?:modify|create|exchange"
    r"|negotiate|query|init|sync|post|notify|get c|add DV|set |allocate|complete)|Failed: "
    r"|Error (?:occurred|opening)|Poll (?:send|Receive) CQ |poll CQ |accept\(\) failed|Can't produce a report"
    r"|Bad wc status|unexpected CM event|Problem in resolving basic address and port"
    r"|rdma_\w+ failed|Function (?:ibv|rdma)_\w+ failed|Unsupported |Invalid "
    r"|Did not get Message for \d+ Seconds|ODP is not |The device does not support|Received \d+ times ADDR_ERROR"
    r"|Link layer on port|bad event waiting|Data validation: cannot|Found Incompatibility issue).*)"
)
ANYWHERE, INSIDE = lazy(rf"\s*(?:{_ANYWHERE})\s*"), lazy(rf"\s*(?:{_ANYWHERE}{_INSIDE})\s*")
"""A line other than a row, outside and inside of an execution: its kind is the name of the last group."""

# Nothing else prints these in this form.
DISTINCT_SETUP = lazy(
    r"(?:Device {9}|Number of qps {3}|Transport type |Connection type |Link type {7}|Mtu {13}"
    r"|CQ Moderation {3}|rdma_cm QPs\s+|Data ex\. method |ibv_wr\* API {5}): "
)
SETUP = lazy(
    r"(Device|Number of qps|(?:Transport|Connection|Link) type|Mtu|GID index|[TR]X depth|JSON \w+|Using SRQ|Dual-port"
    r"|PCIe relax order|ibv_wr\* API|CQ Moderation|rdma_cm QPs|Data ex\. method|Max inline data)\s*: ?(\S+)"
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


VERSION = lazy(r"\s*Version: (\d+\.\d\S*)\s*")
MEANINGS: Mapping[str, str] = {
    "4": "local protection error: the memory registration does not cover the buffer",
    "5": "flushed: the queue pair was already in error, or the other side has exited",
    "9": "remote invalid request: the other side refuses the operation or its size",
    "10": "remote access error: the other side's memory or key does not allow it",
    "12": "transport retry counter exceeded: the other side does not answer (wrong GID, peer down, loss)",
    "13": "receiver-not-ready retry counter exceeded: the other side posted no receive",
}
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


def read_command(text: str) -> tuple[str, str, set[str]] | None:
    """Return the program that a line starts, its side and its flags; None for a line that only names it."""
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
    return (command.program, "client" if operands else "server", flags) if operands < 2 else None
