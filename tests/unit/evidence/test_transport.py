"""What carried the data: proven by lines, and by nothing else."""

import json
import re
from collections.abc import Iterable
from typing import Any

import pytest

from fabbench.evidence.known_errors import by_code
from fabbench.model.log import Ending, Log, Outcome
from fabbench.model.plan import Proof
from tests.support.nccl_text import nccl_text
from tests.support.paths import DATA
from tests.support.read_logs import read, read_one

SAID = json.loads((DATA / "transport.json").read_text("utf-8"))
"""What NCCL says, and what it proves.

A verdict (`proofs`: no line can be left out), facts, findings.
"""

ROWS = [(1 << 20, 10.0), (1 << 21, 11.0)]

OFI = "NET/OFI Selected provider is efa, fabric is efa-direct (found 4 nics)"
NETWORK = "Using network Libfabric"
PID = r" Pid +\d+"
CHANNEL = "Channel 00/0 : 0[0] -> 1[0] [send] via NET/Libfabric/0/GDRDMA"


def log_with(
    messages: Iterable[str],
    proof: Proof | None = None,
    *,
    hosts: int = 2,
    level: str = "INFO",
    footer: bool = True,
) -> Log:
    """Read a table of two ranks behind NCCL's messages, each from another thread.

    The list of ranks has no pids (lines of one process are enough), and GPUs of any type.
    """
    lines = [
        f"node0:100:{tid} [0] NCCL {level} {message}"
        for tid, message in enumerate(messages, start=201)
    ]
    table = nccl_text(ROWS, ranks=2, hosts=hosts, footer=footer)
    plain = re.sub(rf"{PID}|(?<=\]) NVIDIA.*", "", table)
    (log,) = read("\n".join([*lines, plain]), proof)
    return log


def codes(log: Log) -> list[str]:
    return [finding.code for finding in log.findings]


@pytest.mark.parametrize(("fabric", "lines", "outcome", "used"), SAID["chosen"])
def test_only_the_nics_that_were_chosen(
    fabric: str, lines: list[str], outcome: str, used: str
) -> None:
    log = log_with(lines, Proof(fabric=fabric, nics=1, devices=("mlx5_3",)))
    assert (log.outcome, log.reason is None) == (outcome, not used)
    assert used in (log.reason or "")


RACK = "comm 0x9a39870 rank {} nRanks 8 nNodes {} localRanks 8 localRank {} MNNVL {}"


@pytest.mark.parametrize(
    ("domains", "mnnvl", "channels", "transport", "nodes"),
    [
        (1, 1, ["P2P/MNNVL"], "mnnvl", 2),
        (1, 1, [], "mnnvl", 2),  # NVLS alone: NCCL connects no ring before it needs one
        (1, 1, ["P2P/MNNVL", "SHM/direct/direct"], "mnnvl", 2),
        (1, 1, ["P2P/MNNVL", "NET/Socket/0"], "mnnvl+socket", 2),
        (2, 1, ["P2P/MNNVL", "NET/Socket/0"], "socket", 2),  # each tray is a domain of its own
        (2, 0, ["P2P/CUMEM", "NET/Socket/0"], "socket", 2),
    ],
)
def test_nvlink_between_hosts(
    domains: int, mnnvl: int, channels: list[str], transport: str, nodes: int
) -> None:
    """NCCL counts NVLink domains: the hosts of one are one node to it."""
    said = [f"Channel 00/0 : 3[3] -> 4[0] via {channel}" for channel in channels]
    lines = []
    for rank in range(8):
        own = ["Using network Socket", RACK.format(rank, domains, rank, mnnvl), *said]
        lines += [
            f"node{rank // 4}:{100 + rank}:200 [{rank % 4}] NCCL INFO {message}" for message in own
        ]
    (log,) = read("\n".join([*lines, nccl_text(ROWS, ranks=8, hosts=2)]), Proof(fabric="nvlink"))
    outcome = Outcome.OK if transport == "mnnvl" else Outcome.OFF_FABRIC
    assert (log.outcome, log.facts["transport"], log.facts["nodes"]) == (outcome, transport, nodes)
    assert "one-machine" not in codes(log)


def test_racks_that_a_network_connects() -> None:
    rack = RACK.replace("nRanks 8", "nRanks 4")
    lines = [
        f"node{rank}:{100 + rank}:200 [0] NCCL INFO {rack.format(rank, 2, rank, 1)}"
        for rank in range(4)
    ]
    lines += [f"node{rank}:{100 + rank}:200 [0] NCCL INFO Using network IB" for rank in range(4)]
    (log,) = read("\n".join([*lines, nccl_text(ROWS, ranks=4, hosts=4)]), Proof(fabric="ib"))
    assert (log.outcome, log.facts["transport"]) == (Outcome.OFF_FABRIC, "ib+mnnvl")


@pytest.mark.parametrize(("fabric", "hosts", "outcome", "lines"), SAID["proofs"])
def test_every_line_of_a_proof_is_needed(
    fabric: str, hosts: int, outcome: str, lines: list[str]
) -> None:
    """Without any one of them the log proves nothing, or the opposite."""
    proof = Proof(fabric=fabric)
    assert log_with(lines, proof, hosts=hosts).outcome == outcome
    for line in lines:
        rest = [other for other in lines if other != line]
        assert log_with(rest, proof, hosts=hosts).outcome != outcome, line


@pytest.mark.parametrize(
    ("hosts", "lines", "outcome", "facts"), SAID["facts"].values(), ids=SAID["facts"]
)
def test_lines_are_facts_and_not_always_proof(
    hosts: int, lines: list[str], outcome: str, facts: dict[str, object]
) -> None:
    log = log_with(lines, Proof(fabric="efa"), hosts=hosts)
    assert (log.outcome, {name: log.facts.get(name) for name in facts}) == (outcome, facts)


def test_libfabric_without_a_provider_is_neither_efa_nor_something_else() -> None:
    log = log_with([NETWORK], Proof(fabric="efa"))
    assert log.outcome is Outcome.UNPROVEN
    assert "libfabric provider" in (log.reason or "")


def test_what_was_cut_may_be_off_its_fabric_besides() -> None:
    logs = [log_with([OFI], Proof(fabric=fabric), footer=False) for fabric in ("efa", "tcp")]
    assert [log.outcome for log in logs] == [Outcome.TRUNCATED] * 2
    assert [log.also for log in logs] == [set(), {Outcome.OFF_FABRIC}]


@pytest.mark.parametrize(
    ("flags", "gdr"),
    [(["/GDRDMA"], "yes"), ([""], "no"), (["/GDRDMA", ""], "partly"), (["/GDRDMA(PCI)"], "yes")],
)
def test_gpudirect_is_read_from_the_channels(flags: list[str], gdr: str) -> None:
    channels = [
        f"Channel 0{number}/0 : 0[0] -> 1[0] [send] via NET/Libfabric/{number}{flag}"
        for number, flag in enumerate(flags)
    ]
    assert log_with([OFI, *channels], hosts=1).facts["gdr"] == gdr


def several_processes(messages: list[str]) -> Log:
    lines = [
        f"node{rank}:{100 + rank}:20{rank} [0] NCCL INFO {message}"
        for rank, message in enumerate(messages)
    ]
    table = nccl_text(ROWS, ranks=len(lines), hosts=len(lines))
    (log,) = read("\n".join([*lines, table]), Proof(fabric="efa"))
    return log


COMMUNICATOR = "comm 0x9a39870 rank 0 nRanks {} nNodes 2 localRanks 1 localRank 0 MNNVL 0"


@pytest.mark.parametrize(
    ("processes", "ranks", "joined"),
    [
        (["node0:100", "node1:101"], 2, 2),
        ([":100", ":101"], 2, 2),  # what collected the lines lost the names of the hosts
        (["node0 :100", "node1:101"], 2, 2),
        (["node0:100"], 2, 1),
        (["node1:101", "node1:100"], 2, 1),  # the second process is of another host
        (["node0:7101"], 2, 0),  # an older run on the same hosts
        (["ip-10-0-0-1:100"], 2, 0),
        (["node0:101"], 2, 0),
        (["node0:100", "node1:101"], 4, 0),
    ],
)
def test_debug_lines_prove_nothing_of_ranks_that_did_not_print_them(
    processes: list[str], ranks: int, joined: int
) -> None:
    messages = [OFI, NETWORK, COMMUNICATOR.format(ranks), CHANNEL]
    lines = [
        f"{process}:201 [0] NCCL INFO {message}" for process in processes for message in messages
    ]
    text = "\n".join([*lines, nccl_text(ROWS, ranks=2, hosts=2)])
    proof = Proof(fabric="efa", nics=4)
    (log,) = read(text, proof)
    assert (log.outcome is Outcome.OK) == (joined == 2)
    assert log.outcome in {Outcome.OK, Outcome.UNPROVEN}
    found = {0: ["evidence-of-others"], 1: ["evidence-of-some"], 2: []}
    assert codes(log) == found[joined]
    shown = f"{joined} of 2 ranks" if joined else None
    assert (log.facts.get("evidence_of"), "transport" in log.facts) == (shown, joined > 0)
    (log,) = read(text)
    assert log.outcome is Outcome.OK


@pytest.mark.parametrize("lost", [PID, "node0:100:201 "])
def test_what_has_no_pids_proves_without_them(lost: str) -> None:
    lines = [f"node0:100:201 [0] NCCL INFO {message}" for message in (OFI, NETWORK, CHANNEL)]
    text = "\n".join([*lines, nccl_text(ROWS, ranks=2, hosts=2)])
    (log,) = read(re.sub(lost, "", text), Proof(fabric="efa"))
    assert (log.outcome, log.facts["evidence_of"]) == (Outcome.OK, "unlisted processes")


@pytest.mark.parametrize(("nodes", "outcome"), [(2, Outcome.OK), (4, Outcome.OFF_FABRIC)])
def test_the_stated_number_of_nodes_is_that_of_the_log(nodes: int, outcome: Outcome) -> None:
    (log,) = read(nccl_text(ROWS, ranks=4, hosts=2), Proof(nodes=nodes))
    assert log.outcome is outcome


def test_several_hosts_of_one_node_are_its_number_of_nodes_too() -> None:
    said = [NETWORK, COMMUNICATOR.format(2).replace("nNodes 2", "nNodes 1")]
    logs = [log_with(said, Proof(nodes=nodes)) for nodes in (1, 2)]
    assert [log.outcome for log in logs] == [Outcome.OK] * 2
    assert (logs[0].facts["hosts"], logs[0].facts["nodes"]) == (2, 1)


def test_ranks_that_disagree_are_named() -> None:
    log = several_processes([OFI, *["Using network Libfabric"] * 3, "Using network Socket"])
    (finding,) = (found for found in log.findings if found.code == "networks-disagree")
    assert (log.outcome, bool(finding.advice)) == (Outcome.OFF_FABRIC, True)
    assert "Socket: 1 process on node4" in finding.meaning
    log = several_processes([OFI, OFI.replace("found 4", "found 1"), OFI, OFI, NETWORK])
    (finding,) = (found for found in log.findings if found.code == "nics-disagree")
    assert "1 on 1 process on node1" in finding.meaning
    assert (log.facts["nics"], log.evidence["nics"][-14:]) == (1, "(found 1 nics)")


def test_sockets_over_a_virtual_interface_are_a_finding() -> None:
    lines = ["NET/Socket : Using [0]docker0:172.17.0.1<0>", "Using network Socket"]
    assert codes(log_with(lines)) == ["wrong-interface"]
    assert not log_with(lines, hosts=1).findings
    assert not log_with([lines[0].replace("docker0", "ens5"), lines[1]]).findings


def test_equal_warnings_are_one_finding_that_says_how_often() -> None:
    said = [
        *(f"Call to 0x{number:x} took {number} us" for number in (10, 11, 11)),
        "Something else",
    ]
    assert [
        (found.code, found.meaning, found.line)
        for found in log_with(said, hosts=1, level="WARN").findings
    ] == [
        ("nccl-warning", "NCCL warned 3 times.", "Call to 0xa took 10 us"),
        ("nccl-warning", "NCCL warned.", "Something else"),
    ]


HOST_ID = "NCCL_HOSTID set by environment to part"


@pytest.mark.parametrize(
    ("origins", "found"),
    [
        (["vm:1:1", "vm:2:2"], []),
        (["vm:1:1", "other:2:2"], ["wrong-interface"]),
        # One process does not know where the others are.
        (["vm:1:1", "vm:1:1"], []),
    ],
)
def test_hosts_that_are_parts_of_one_machine_may_use_its_loopback(
    origins: list[str], found: list[str]
) -> None:
    said = ["NET/Socket : Using [0]lo:127.0.0.1<0>", "Using network Socket", HOST_ID]
    said.append("comm 0x5610a7c00030 rank 0 nRanks 2 nNodes 2 localRanks 1 localRank 0 MNNVL 0")
    lines = [f"{origin} [0] NCCL INFO {message}" for origin in origins for message in said]
    end = ["The average bandwidth of all_reduce with a 4.0GB payload (50 executions, 2 ranks):"]
    (log,) = read(
        "\n".join(
            [*lines, *end, " algbw: 3.469 GBps (27.7 Gbps)", " busbw: 3.469 GBps (27.7 Gbps)"]
        )
    )
    assert (log.benchmark, log.facts["nodes"], codes(log)) == ("torch", 2, found)


SEEN = {
    each.code: each.examples[0]
    for each in by_code().values()
    if each.examples and each.advice and "reason-only" not in each.marks and not each.only
}


@pytest.mark.parametrize("code", SEEN)
def test_a_known_error_is_a_finding_with_its_line_and_advice(code: str) -> None:
    """As NCCL's warning, and as a plain line of another library."""
    ofi, table = f"node0:100:201 [0] NCCL INFO {OFI}\n", nccl_text(ROWS, ranks=2, hosts=2)
    for text in (f"node0:100:101 [0] NCCL WARN {SEEN[code]}", SEEN[code]):
        logs = read(f"{ofi}{text}\n{table}")
        (finding,) = (found for log in logs for found in log.findings if found.code == code)
        assert finding.line == SEEN[code]
        assert finding.advice
        assert finding.meaning.endswith(".")


@pytest.mark.parametrize(
    ("channel", "link"),
    [("", "IB+RoCE"), ("NET/IB/0", "IB"), ("NET/IB/8/GDRDMA", "RoCE"), ("P2P/IPC", "IB+RoCE")],
)
def test_the_link_is_that_of_the_nics_that_channels_go_over(channel: str, link: str) -> None:
    """A node may have InfiniBand for data, and an Ethernet NIC for storage."""
    lines = [
        "NET/IB : Using [0]mlx5_0:1/IB [8]mlx5_8:1/RoCE [RO]; OOB eth0:10.0.0.1<0>",
        "Using network IB",
    ]
    lines += [f"Channel 00/0 : 0[0] -> 1[0] [send] via {channel}"] if channel else []
    assert log_with(lines).facts["link"] == link


@pytest.mark.parametrize(("lines", "quoted"), SAID["quoted"].values(), ids=SAID["quoted"])
def test_the_line_quoted_for_a_transport_is_of_that_transport(
    lines: list[str], quoted: dict[str, str]
) -> None:
    evidence = log_with(lines).evidence
    assert {name: evidence[name] for name in quoted} == quoted


GIN = "Failed to initialize any GIN plugin"


@pytest.mark.parametrize("text", [GIN, f"GIN/Plugin: {GIN}", "NET/OFI gin: initialization failed"])
@pytest.mark.parametrize("level", ["INFO", "WARN"])
def test_gpu_initiated_networking_says_nothing_of_the_network(text: str, level: str) -> None:
    """NCCL 2.29 and later print it wherever there is none."""
    lines = ["NCCL INFO Assigned NET plugin IB to comm", f"NCCL {level} {text}"]
    table = re.sub(PID, "", nccl_text(ROWS, ranks=2, hosts=2))
    (log,) = read("\n".join([*(f"node0:100:201 [0] {line}" for line in lines), table]))
    assert [code for code in codes(log) if code != "nccl-warning" or text == GIN] == []


@pytest.mark.parametrize(
    ("hosts", "lines", "found"), SAID["findings"].values(), ids=SAID["findings"]
)
def test_lines_that_are_findings(hosts: int, lines: list[str], found: list[str]) -> None:
    assert codes(log_with(lines, hosts=hosts)) == found


def test_a_trace_line_is_no_warning() -> None:
    trace = "nccl_net_ofi_init:1396 NCCL TRACE NET/OFI Provider cxi does not require registration"
    text = f"node0:100:201 [0] NCCL INFO {OFI}\nnode0:100:201 [1] 98.86 {trace}\n"
    assert codes(read(text + nccl_text(ROWS, ranks=2, hosts=2), Proof(nics=4))[0]) == []


@pytest.mark.parametrize(
    "code", ["network-not-found", "nic-unreachable", "nic-retries-exceeded", "endpoint-refused"]
)
def test_what_ends_nccl_is_a_failure_whatever_was_measured(code: str) -> None:
    warning = f"node0:100:101 [0] NCCL WARN {SEEN[code]}\n"
    for text in (warning, warning + nccl_text(ROWS, ranks=2, hosts=2)):
        (log,) = read(text)
        assert (log.outcome, log.reason) == (
            Outcome.FAILED,
            f"{log.findings[0].meaning[:-1]}: {SEEN[code]}",
        )


@pytest.mark.parametrize("code", [1, 2, 3, 4, 5, 6, 7])
def test_a_call_that_returned_an_error_is_a_failure_with_the_warning_above_it(code: int) -> None:
    said = ("net.cc:52 NCCL WARN The warning above", f"NCCL INFO transport/net.cc:753 -> {code}")
    text = "".join(
        f"node0:100:201 [0] {each}\n"
        for each in (*said, f"NCCL INFO group.cc:76 -> {code} [Async thread]")
    )
    for table in ("", nccl_text(ROWS, ranks=2, hosts=2)):
        (log,) = read(text + table)
        assert (log.outcome, log.reason) == (Outcome.FAILED, "NCCL failed: The warning above")


def test_gpu_initiated_networking_that_is_not_there_is_no_failure() -> None:
    assert log_with(["gin/gin_host.cc:53 -> 3"]).outcome is Outcome.OK


TRAINING = [
    (
        "ncclCommInitRank comm 0x55 rank 0 nranks 16 cudaDev 0 nvmlDev 0 busId 1000 commId 0xabc - "
        "Init START"
    ),
    OFI,
    NETWORK,
    CHANNEL,
]


@pytest.mark.parametrize(
    ("fabric", "outcome"),
    [(None, Outcome.OBSERVED), ("efa", Outcome.OBSERVED), ("tcp", Outcome.OFF_FABRIC)],
)
def test_a_training_log_shows_its_network(fabric: str | None, outcome: Outcome) -> None:
    lines = [
        "Epoch 1",
        *(f"node0:100:201 [0] NCCL INFO {message}" for message in TRAINING),
        "Epoch 2",
    ]
    log = read_one(lines, Proof(fabric=fabric) if fabric else None)
    assert (log.benchmark, log.case, log.outcome) == (None, "nccl-debug", outcome)
    facts = [log.facts[name] for name in ("transport", "nics", "complete", "communicator")]
    assert facts == ["efa", 4, "unknown", "abc"]


def test_a_run_of_fabbench_that_printed_debug_lines_alone_is_cut() -> None:
    log = read_one([f"node0:100:201 [0] NCCL INFO {OFI}"], ending=Ending(status=0))
    assert log.outcome is Outcome.TRUNCATED


ONE_NIC = [OFI.replace("found 4", "found 1")]


@pytest.mark.parametrize(("lines", "proof", "reason"), SAID["too few NICs"])
def test_fewer_nics_than_the_type_has_are_off_fabric(
    lines: list[str], proof: dict[str, Any], reason: str | None
) -> None:
    log = log_with(lines, Proof(**proof))
    assert (log.reason, log.outcome) == (reason, Outcome.OFF_FABRIC if reason else Outcome.OK)
    assert log.findings == ()


def test_where_nobody_knows_the_nics_a_warning_says_what_to_pass() -> None:
    (finding,) = log_with(ONE_NIC).findings
    assert (finding.code, finding.severity) == ("nics-unchecked", "warning")
    assert ("--instance-type" in finding.advice, "--nics" in finding.advice) == (True, True)


@pytest.mark.parametrize(
    ("words", "plugin", "outcome"),
    [
        ("-x FI_PROVIDER=efa", "NET/OFI Initializing plugin failed", Outcome.OFF_FABRIC),
        ("-x FI_PROVIDER=efa", "NET/Plugin: Could not find: libnccl-net.so", Outcome.OFF_FABRIC),
        ("-x FI_PROVIDER=tcp", "NET/OFI Initializing plugin failed", Outcome.OK),
        ("-x FI_PROVIDER=efa", "NET/Socket : Using [0]eth0:10.0.0.1<0>", Outcome.OK),
    ],
)
def test_efa_that_a_log_asks_for_and_loses_is_off_fabric(
    words: str, plugin: str, outcome: Outcome
) -> None:
    lines = [plugin, "Using network Socket"]
    debug = "\n".join(
        f"node0:100:{tid} [0] NCCL WARN {line}" for tid, line in enumerate(lines, start=201)
    )
    table = re.sub(PID, "", nccl_text(ROWS, ranks=2, hosts=2))
    text = f"$ mpirun -np 2 {words} all_reduce_perf -b 8\n{debug}\n{table}"
    assert read(text)[0].outcome is outcome
    assert read(text, Proof(fabric="tcp"))[0].outcome is Outcome.OK
