"""What perftest says around its tables: title, set-up, addresses, errors. Pure.

The wordings are those of the source (perftest_parameters.c, `ctx_print_test_info`; perftest_resources.h).
"""

import re
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple


class Stage(IntEnum):
    """The order in which one process prints: a line of an earlier stage begins another run."""

    START = 0
    """What comes before the title."""
    TITLE = 1
    SETUP = 2
    TABLE = 3
    """The header and everything behind it."""
    ANY = 4


class Statement(NamedTuple):
    """One line understood."""

    kind: str
    stage: Stage
    words: tuple[str, ...] = ()
    facts: Mapping[str, str] = {}


class Title(NamedTuple):
    """What the title says of the test."""

    case: str
    both_directions: bool


# ---------------------------------------------------------------- titles and set-up

_TITLE = re.compile(
    r"\s*(Send|RDMA_Write|RDMA_Read|Atomic)(?:_imm)?[ _]+(?:(?:FETCH_AND_ADD|CMP_AND_SWAP)[ _]+)?"
    r"(Bidirectional[ _]+)?(?:Post[ _]List[ _]+)?(BW|Latency)[ _]+(?:forwarding[ _]+)?"
    r"(?:Multicast[ _]+)?Test\s*"
)
_VERBS = {"Send": "send", "RDMA_Write": "write", "RDMA_Read": "read", "Atomic": "atomic"}

_SETUP = re.compile(
    r"(Device|Number of qps|Transport type|Connection type|Mtu|Link type|GID index|TX depth|RX depth"
    r"|Using SRQ|Dual-port|PCIe relax order|ibv_wr\* API|CQ Moderation|rdma_cm QPs|Data ex\. method"
    r"|Max inline data|Outstand reads|Post List)\s*: ?(\S+)"
)
# These are printed so by nothing else.
_OUR_SETUP = re.compile(
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
"""Names in the set-up text → facts."""

_ADDRESS = re.compile(r"\s*(local|remote) address: .*?(QPN 0x[0-9a-f]+ PSN 0x[0-9a-f]+).*")
_BANNER = re.compile(r"\s*\* Waiting for client to connect\.\.\. \*\s*")
_WAITING = re.compile(r"\s*Waiting for client rdma_cm QP to connect\s*")
_RESULTS = re.compile(r"\s*(Local|Remote) results: *")
_RULE = re.compile(r"\s*-{20,}\s*")
_VERSION = re.compile(r"\s*Version: (\d+\.\d\S*)\s*")
_WARNING = re.compile(r"\s*(?:WARNING|Warning): (.*\S)\s*")
_CPU = re.compile(r"\s*Conflicting CPU frequency values detected: .*")
_VALIDATION = re.compile(r".*VALIDATION: FAILED.*? - (\d+) error\(s\).*")
_SIDE = re.compile(r"\W*(server|client)(?: side| log| output)?\W*", re.IGNORECASE)

# ---------------------------------------------------------------- errors

_STATUS = re.compile(r"\s*Failed status[- ](?:(.*) \()?(\d+)\)?: wr_id (-?\d+) syndrom (0x[0-9a-f]+)\s*")
_AT = re.compile(r"\s*Completion with (?:error|wc_flags mismatch) at (client|server)\s*")
_OURS = re.compile(
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
# Too common to begin an execution. What fails while resources are given back is no failed measurement.
_INSIDE = re.compile(
    r"\s*(?:Couldn't (?!destroy|close|Unregister)|Unable to (?!destroy)|Failed to (?:modify|create|exchange"
    r"|negotiate|query|init|sync|post|notify|get c|add DV|set |allocate|complete)|Failed: |accept\(\) failed"
    r"|Can't produce a report|Problem in resolving basic address and port|poll CQ failed|Bad wc status"
    r"|Error (?:occurred|opening)|unexpected CM event|rdma_\w+ failed|Function (?:ibv|rdma)_\w+ failed"
    r"|Unsupported |Invalid |Did not get Message for \d+ Seconds|Poll (?:send|Receive) CQ |ODP is not "
    r"|The device does not support|Received \d+ times ADDR_ERROR|Link layer on port|bad event waiting"
    r"|Data validation: cannot|Found Incompatibility issue).*"
)
_OUR_NOISE = re.compile(
    r"\s*(?:If device exists, check if driver is up|(?:scnt=\d+, ccnt=|rcnt=)\d+"
    r"|Please run the same command with the IB.*)\s*"
)

MEANINGS: Mapping[int, str] = {
    1: "local length error: a message is longer than the receive buffer",
    2: "local queue pair operation error",
    4: "local protection error: the memory registration does not cover the buffer",
    5: "work request flushed: the queue pair was already in error, or the other side is gone",
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
"""ibv_wc_status → what it means."""

_MAY_BEGIN = re.compile(
    r"#bytes|(?:BW|Latency)[ _](?:\w+[ _])?Test|ib_(?:write|read|send|atomic)_|raw_ethernet_|address: LID"
    r"| : |type : |QPs|Data ex|Waiting for client|Completion with|Failed|detect|nable to|IB device"
    r"|ethernet_read_keys|bl blka|not supported|Parser function|Couldn't|Error: |[Cc]onnection |test_info|BW"
)
_MAY_MATTER = re.compile(
    r"^[\s#>*`]*[\d.]|---|results|depth|: |SRQ|API|[Ww]arning|WARNING|VALIDATION|failed|Unsupported|Invalid"
    r"|Can't|Did not|[Ss]erver|[Cc]lient|scnt|rcnt|Please run|Poll|ODP|device|Link layer|bad event"
    rf"|[}}\"]|^\s*-|{_MAY_BEGIN.pattern}"
)


def may_begin(text: str) -> bool:
    """Whether a line has a sign of perftest at all: a quick look before a long one."""
    return _MAY_BEGIN.search(text) is not None


def may_matter(text: str) -> bool:
    """Whether a line can mean something while an execution is open."""
    return _MAY_MATTER.search(text) is not None


def read_title(text: str) -> Title | None:
    """Read the title line (or the JSON's `test`); None for any other text."""
    match = _TITLE.fullmatch(text)
    if match is None:
        return None
    verb, both, kind = match.groups()
    return Title(f"ib_{_VERBS[verb]}_{'bw' if kind == 'BW' else 'lat'}", both_directions=both is not None)


def read(text: str) -> Statement | None:
    """Understand a line that may stand anywhere; None if it is nothing that only perftest says."""
    if _OUR_SETUP.search(text):
        return Statement("setup", Stage.SETUP, facts=dict(_SETUP.findall(text)))
    return next((make(match) for pattern, make in _ANYWHERE if (match := pattern.fullmatch(text))), None)


_ANYWHERE: Sequence[tuple[re.Pattern[str], Callable[[re.Match[str]], Statement]]] = (
    (_TITLE, lambda match: Statement("title", Stage.TITLE, (match[0],))),
    (_BANNER, lambda _: Statement("waiting", Stage.START)),
    (_WAITING, lambda _: Statement("waiting", Stage.SETUP)),
    (_ADDRESS, lambda match: Statement("address", Stage.SETUP, (match[1], match[2]))),
    (_STATUS, lambda match: Statement("status", Stage.ANY, (match[2], match[4]))),
    (_AT, lambda match: Statement("at", Stage.ANY, (match[1], match[0].strip()))),
    (_OURS, lambda match: Statement("failure", Stage.ANY, (match[0].strip(),))),
)


def read_inside(text: str) -> Statement | None:
    """Understand a line that counts only while an execution is open."""
    for pattern, make in _ONLY_INSIDE:
        match = pattern.fullmatch(text)
        if match is not None:
            return make(match)
    facts = dict(_SETUP.findall(text))
    return Statement("setup", Stage.SETUP, facts=facts) if facts else None


_ONLY_INSIDE: Sequence[tuple[re.Pattern[str], Callable[[re.Match[str]], Statement]]] = (
    (_RULE, lambda _: Statement("rule", Stage.ANY)),
    (_RESULTS, lambda match: Statement("results", Stage.ANY, (match[1].lower(),))),
    (_CPU, lambda match: Statement("cpu", Stage.ANY, (match[0].strip(),))),
    (_WARNING, lambda match: Statement("warning", Stage.ANY, (match[1],))),
    (_VALIDATION, lambda match: Statement("wrong", Stage.ANY, (match[1],))),
    (_OUR_NOISE, lambda _: Statement("noise", Stage.ANY)),
    (_INSIDE, lambda match: Statement("failure", Stage.ANY, (match[0].strip(),))),
)


def is_rule(text: str) -> bool:
    """Whether this is the line that perftest draws above and below its tables."""
    return _RULE.fullmatch(text) is not None


def read_version(text: str) -> str:
    """Read what `-V` prints; empty for any other line."""
    match = _VERSION.fullmatch(text)
    return match[1] if match else ""


def side_title(text: str) -> str:
    """Read a heading that says whose output follows; empty for any other line."""
    match = _SIDE.fullmatch(text)
    return match[1].lower() if match else ""


def status_sentence(number: int, syndrome: str) -> str:
    """Say what a completion status means."""
    meaning = MEANINGS.get(number)
    return f"completion with status {number} ({meaning or 'see ibv_wc_status'}), syndrome {syndrome}"
