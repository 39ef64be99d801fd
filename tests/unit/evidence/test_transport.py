"""What carried the data: proven by lines, and by nothing else."""

import pytest

from fabbench.evidence.known_errors import KNOWN_ERRORS
from fabbench.model.log import Ending, Log, Outcome
from fabbench.model.plan import Proof
from tests.support.nccl_text import nccl_text
from tests.support.read_logs import read, read_lines

ROWS = [(1 << 20, 10.0), (1 << 21, 11.0)]

OFI = "NET/OFI Selected provider is efa, fabric is efa-direct (found 4 nics)"
NETWORK = "Using network Libfabric"
CHANNEL = "Channel 00/0 : 0[0] -> 1[0] [send] via NET/Libfabric/0/GDRDMA"


def log_with(messages: list[str], *, hosts: int = 1, fabric: str | None = None, nics: int | None = None) -> Log:
    lines = [f"node0:101:{tid} [0] NCCL INFO {message}" for tid, message in enumerate(messages, start=201)]
    proof = Proof(fabric=fabric, nics=nics) if fabric else None
    (log,) = read("\n".join([*lines, nccl_text(ROWS, ranks=2, hosts=hosts)]), proof)
    return log


# The fewest lines that prove each verdict: (fabric asked for, hosts, outcome, lines).
MINIMAL = [
    ("efa", 1, Outcome.OK, [OFI, CHANNEL]),
    ("efa", 2, Outcome.OK, [OFI]),
    ("efa", 2, Outcome.OFF_FABRIC, ["Using network Socket"]),
    ("efa", 2, Outcome.OFF_FABRIC, ["NET/OFI Selected provider is tcp, fabric is lo (found 1 nics)"]),
    ("efa", 1, Outcome.OFF_FABRIC, ["Channel 00 : 0[0] -> 1[1] via P2P/CUMEM"]),
    ("tcp", 1, Outcome.OK, ["Channel 00 : 0[0] -> 1[0] [send] via NET/Socket/0"]),
    ("tcp", 2, Outcome.OK, ["Using network Socket"]),
    ("tcp", 2, Outcome.OFF_FABRIC, [NETWORK]),
    ("ofi-tcp", 2, Outcome.OK, ["NET/OFI Selected Provider is tcp;ofi_rxm (found 1 nics)"]),
    ("ib", 2, Outcome.OK, ["Using network IBext_v8"]),
    ("ib", 2, Outcome.OK, ["NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB eth0:10.0.0.1<0>"]),
    ("ib", 2, Outcome.OFF_FABRIC, ["NET/IB : Using [0]mlx5_0:1/RoCE [RO]; OOB eth0:10.0.0.1<0>"]),
    ("roce", 2, Outcome.OK, ["NET/IB : Using [0]mlx5_0:1/RoCE [RO]; OOB eth0:10.0.0.1<0>"]),
    ("roce", 2, Outcome.OFF_FABRIC, ["NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB eth0:10.0.0.1<0>"]),
    ("roce", 2, Outcome.OK, ["Using network gIB"]),
    ("ib", 2, Outcome.OFF_FABRIC, ["Using network gIB"]),
    ("gib", 2, Outcome.OK, ["Using network gIB"]),
    ("gib", 2, Outcome.OFF_FABRIC, ["Using network IB"]),
    ("tcpxo", 2, Outcome.OK, ["Using network FasTrak"]),
    ("tcpxo", 2, Outcome.OFF_FABRIC, ["Using network Socket"]),
    ("tcpxo", 2, Outcome.UNPROVEN, []),
    ("p2p", 1, Outcome.OK, ["Channel 00 : 0[0] -> 1[1] via P2P/CUMEM"]),
    ("shm", 1, Outcome.OK, ["Channel 00 : 0[0] -> 1[1] via SHM/direct/direct"]),
]


USING = "NET/IB : Using {}; OOB eth0:10.0.0.1<0>"
ONE = USING.format("[0]mlx5_3:1/IB [RO]")


@pytest.mark.parametrize(
    ("fabric", "lines", "outcome", "reason"),
    [
        ("ib", [ONE, ONE], Outcome.OK, None),
        (
            "ib",
            [ONE, USING.format("[0]mlx5_2:1/IB [RO]")],
            Outcome.OFF_FABRIC,
            "Ranks were to use only mlx5_3, but used mlx5_2.",
        ),
        (
            "ib",
            [USING.format("[0]mlx5_3:1/IB [1]mlx5_10:1/IB [2]mlx5_4:1/IB [RO]")],
            Outcome.OFF_FABRIC,
            "Ranks were to use only mlx5_3, but used mlx5_4, mlx5_10.",
        ),
        (
            "ib",
            ["Using network IB"],
            Outcome.UNPROVEN,
            "Ranks were to use only mlx5_3, and the log does not show which NICs were used.",
        ),
        ("efa", [OFI.replace("4 nics", "1 nics")], Outcome.OK, None),
        ("efa", [OFI], Outcome.OFF_FABRIC, "Ranks were to use only mlx5_3, but used 4 NICs."),
    ],
)
def test_only_the_nics_that_were_chosen(fabric: str, lines: list[str], outcome: Outcome, reason: str | None) -> None:
    text = "\n".join(f"node0:101:{tid} [0] NCCL INFO {line}" for tid, line in enumerate(lines, start=201))
    proof = Proof(fabric=fabric, nics=1, devices=("mlx5_3",))
    (log,) = read(f"{text}\n{nccl_text(ROWS, ranks=2, hosts=2)}", proof)
    assert (log.outcome, log.reason) == (outcome, reason)


@pytest.mark.parametrize(("fabric", "hosts", "outcome", "lines"), MINIMAL)
def test_every_line_of_a_proof_is_needed(fabric: str, hosts: int, outcome: Outcome, lines: list[str]) -> None:
    """Without any one of them the log proves nothing, or the opposite."""
    assert log_with(lines, hosts=hosts, fabric=fabric).outcome is outcome
    for line in lines:
        rest = [other for other in lines if other != line]
        assert log_with(rest, hosts=hosts, fabric=fabric).outcome is not outcome, line


def test_a_network_line_proves_nothing_about_two_ranks_in_one_box() -> None:
    log = log_with([OFI, NETWORK], hosts=1, fabric="efa")

    assert log.outcome is Outcome.UNPROVEN
    assert log.facts["transport"] == "unknown"
    assert log.facts["network"] == "efa"


def test_libfabric_without_a_provider_is_neither_efa_nor_something_else() -> None:
    log = log_with([NETWORK], hosts=2, fabric="efa")

    assert log.outcome is Outcome.UNPROVEN
    assert log.reason == "efa was requested, and the log does not show which libfabric provider carried the data."


def test_what_was_cut_may_be_off_its_fabric_besides() -> None:
    message = f"node0:101:201 [0] NCCL INFO {OFI}"
    text = "\n".join([message, nccl_text(ROWS, ranks=2, hosts=2, footer=False)])
    logs = [log for fabric in ("efa", "tcp") for log in read(text, Proof(fabric=fabric))]
    assert [log.outcome for log in logs] == [Outcome.TRUNCATED] * 2
    assert [log.also for log in logs] == [set(), {Outcome.OFF_FABRIC, Outcome.UNPROVEN}]


def test_nvlink_between_nodes_is_no_network() -> None:
    """GB200 trays reach each other without a NIC."""
    channel = "Channel 00/0 : 0[0] -> 1[0] via P2P/MNNVL"
    log = log_with([OFI, NETWORK, channel], hosts=2, fabric="efa")

    assert log.outcome is Outcome.OFF_FABRIC
    assert log.facts["transport"] == "p2p"


def test_the_plugin_prints_before_it_fails() -> None:
    lines = ["NET/OFI Initializing aws-ofi-nccl 1.16.2", "NET/OFI Using transport protocol RDMA"]
    log = log_with(lines, hosts=2, fabric="efa")

    assert log.outcome is Outcome.UNPROVEN
    assert log.facts["plugin"] == "aws-ofi-nccl 1.16.2"


def test_fewer_nics_than_asked_for_are_off_the_fabric() -> None:
    log = log_with([OFI, CHANNEL], fabric="efa", nics=32)

    assert log.outcome is Outcome.OFF_FABRIC
    assert log.reason == "efa was requested with 32 NICs per rank, but 4 were used."
    assert log_with([OFI, CHANNEL], fabric="efa", nics=4).outcome is Outcome.OK


@pytest.mark.parametrize(
    ("flags", "gdr"), [(["/GDRDMA"], "yes"), ([""], "no"), (["/GDRDMA", ""], "partly"), (["/GDRDMA(PCI)"], "yes")]
)
def test_gpudirect_is_told_by_the_channels(flags: list[str], gdr: str) -> None:
    channels = [
        f"Channel 0{number}/0 : 0[0] -> 1[0] [send] via NET/Libfabric/{number}{flag}"
        for number, flag in enumerate(flags)
    ]
    assert log_with([OFI, *channels]).facts["gdr"] == gdr


@pytest.mark.parametrize(
    ("line", "provider", "nics"),
    [
        ("NET/OFI Selected Provider is efa", "efa", None),
        ("NET/OFI Selected Provider is efa (found 4 nics)", "efa", 4),
        ("NET/OFI Selected provider is efa, fabric is efa-direct (found 32 nics)", "efa", 32),
        ("NET/OFI Selected provider is tcp;ofi_rxm, fabric is TCP-IP (found 1 nics)", "tcp;ofi_rxm", 1),
    ],
)
def test_the_provider_line_of_every_plugin(line: str, provider: str, nics: int | None) -> None:
    facts = log_with([line, NETWORK]).facts

    assert facts["provider"] == provider
    assert facts.get("nics") == nics


def several_processes(messages: list[str]) -> Log:
    lines = [f"node{rank}:10{rank}:20{rank} [0] NCCL INFO {message}" for rank, message in enumerate(messages)]
    (log,) = read("\n".join([*lines, nccl_text(ROWS, ranks=4, hosts=4)]), Proof(fabric="efa"))
    return log


def test_ranks_that_disagree_about_the_network_are_named() -> None:
    log = several_processes([OFI, *["Using network Libfabric"] * 3, "Using network Socket"])

    assert log.outcome is Outcome.OFF_FABRIC
    (finding,) = (found for found in log.findings if found.code == "networks-disagree")
    assert "Socket: 1 process on node4" in finding.meaning
    assert finding.advice


def test_ranks_that_found_fewer_nics_are_named() -> None:
    some, fewer = OFI, OFI.replace("found 4", "found 1")
    log = several_processes([some, some, some, fewer, NETWORK])

    assert log.facts["nics"] == 1
    (finding,) = (found for found in log.findings if found.code == "nics-disagree")
    assert "1 on 1 process on node3" in finding.meaning


def test_sockets_over_a_virtual_interface_are_a_finding() -> None:
    lines = ["NET/Socket : Using [0]docker0:172.17.0.1<0>", "Using network Socket"]

    assert [found.code for found in log_with(lines, hosts=2).findings] == ["wrong-interface"]
    assert not log_with(lines, hosts=1).findings
    assert not log_with([lines[0].replace("docker0", "ens5"), lines[1]], hosts=2).findings


def test_equal_warnings_are_one_finding_that_says_how_often() -> None:
    said = [*(f"Call to 0x{number:x} took {number} us" for number in (10, 11, 11)), "Something else"]
    lines = [f"node0:101:{tid} [0] NCCL WARN {text}" for tid, text in enumerate(said, start=201)]
    (log,) = read("\n".join([*lines, nccl_text(ROWS, ranks=2, hosts=1)]))
    assert [(found.code, found.meaning, found.line) for found in log.findings] == [
        ("nccl-warning", "NCCL warned 3 times.", "Call to 0xa took 10 us"),
        ("nccl-warning", "NCCL warned.", "Something else"),
    ]


HOST_ID = "NCCL_HOSTID set by environment to part"


@pytest.mark.parametrize(
    ("origins", "codes"),
    [
        (["vm:1:1", "vm:2:2"], []),
        (["vm:1:1", "other:2:2"], ["wrong-interface"]),
        # One process does not know where the others are.
        (["vm:1:1", "vm:1:1"], []),
    ],
)
def test_hosts_that_are_parts_of_one_machine_may_use_its_loopback(origins: list[str], codes: list[str]) -> None:
    said = ["NET/Socket : Using [0]lo:127.0.0.1<0>", "Using network Socket", HOST_ID]
    said.append("comm 0x5610a7c00030 rank 0 nRanks 2 nNodes 2 localRanks 1 localRank 0 MNNVL 0")
    lines = [f"{origin} [0] NCCL INFO {message}" for origin in origins for message in said]
    end = ["The average bandwidth of all_reduce with a 4.0GB payload (50 executions, 2 ranks):"]
    (log,) = read("\n".join([*lines, *end, " algbw: 3.469 GBps (27.7 Gbps)", " busbw: 3.469 GBps (27.7 Gbps)"]))
    assert (log.benchmark, log.facts["nodes"]) == ("torch", 2)
    assert [found.code for found in log.findings] == codes


SEEN = {
    "peer-unreachable": "NET/OFI completion error: Unreachable remote - never received a response",
    "libfabric-too-old": "NET/OFI EFA provider requires at least libfabric version 1.22.0.",
    "network-not-found": "Error: network AWS Libfabric not found.",
    "plugin-unsupported": "NET/Plugin: External network plugin libnccl-net.so is unsupported",
    "provider-not-supported": "NET/OFI Only EFA provider is supported",
    "gdr-disabled": "NET/OFI Need to force simple protocol: GDR not supported",
    "gpu-memory-not-registered": "NET/OFI Unable to register memory (type = 2) RC: -22",
    "debug-output-lost": "fabbench: The debug output of ranks on node1 is lost: ssh: Could not resolve",
    "too-much-output": "fabbench: ranks was aborted: it printed more than 256 MiB or 1,000,000 lines.",
    "write-emulated": "NET/OFI FI_OPT_EFA_EMULATED_WRITE is true when the protocol is RDMA write.",
    "nic-unreachable": "Call to ibv_modify_qp failed with error Network is unreachable",
    "nic-retries-exceeded": "NET/IB : Got completion from peer 10.0.0.1<33092> with error 12, opcode 0, "
    "len 0, vendor err 129 (Recv)",
    "memory-access-refused": "NET/IB: Got completion from peer 10.0.0.1<51161> with status=4 opcode=0 "
    "len=0 vendor err 81 (Send)",
    "endpoint-refused": "NET/OFI Couldn't open AV. RC: -22, ERROR: Invalid argument",
    "memlock": "NET/OFI fi_mr_reg failed: Cannot allocate memory (-12)",
    "shm-too-small": "Error while creating shared memory segment /dev/shm/nccl-x (size 9637888)",
    "fork-unsafe": "A process has executed an operation involving a call",
    "interface-not-found": "Bootstrap : no socket interface found",
    "peer-closed": "socketProgress: Connection closed by remote peer node1<43210>",
    "peer-lost": "NET/Socket : Call to recv from 10.0.0.1<41234> failed : Connection reset by peer",
    "nic-call-failed": "NET/OFI Request 0x7f completed with error. RC: 103. Error: 5 (Input/output error)",
    "ranks-differ": "Message truncated : received 1024 bytes instead of 512",
    "cuda-failure": "Cuda failure 2 'out of memory'",
    "duplicate-gpu": "Duplicate GPU detected : rank 0 and rank 1 both on CUDA device 60",
    "port-down": "NET/IB : mlx5_0:1 Got async event : port error",
    "fabric-manager": "Cuda failure 'system not yet initialized'",
    "slingshot-timeouts": "MPICH Slingshot Network Summary: 3 network timeouts",
}


def test_every_known_error_has_a_line_here() -> None:
    assert sorted(SEEN) == sorted(error.code for error in KNOWN_ERRORS)


@pytest.mark.parametrize("code", SEEN)
def test_a_known_error_is_a_finding_with_its_line_and_advice(code: str) -> None:
    """As NCCL's warning, and as a plain line of another library."""
    warning = f"node0:101:101 [0] net.cc:52 NCCL WARN {SEEN[code]}"
    for text in (warning, SEEN[code]):
        (log,) = read(f"node0:101:201 [0] NCCL INFO {OFI}\n{text}\n{nccl_text(ROWS, ranks=2, hosts=2)}")
        (finding,) = (found for found in log.findings if found.code == code)
        assert finding.line == SEEN[code]
        assert finding.advice
        assert finding.meaning.endswith(".")
    text = f"node0:101:201 [0] NCCL INFO {OFI}\n{nccl_text(ROWS, ranks=2, hosts=2)}"
    (healthy,) = read(text, Proof(nics=4))
    assert not healthy.findings


@pytest.mark.parametrize(
    ("channel", "link"), [("", "IB+RoCE"), ("NET/IB/0", "IB"), ("NET/IB/8/GDRDMA", "RoCE"), ("P2P/IPC", "IB+RoCE")]
)
def test_the_link_is_that_of_the_nics_that_channels_go_over(channel: str, link: str) -> None:
    """A node may have InfiniBand for data, and an Ethernet NIC for storage."""
    lines = ["NET/IB : Using [0]mlx5_0:1/IB [8]mlx5_8:1/RoCE [RO]; OOB eth0:10.0.0.1<0>", "Using network IB"]
    log = log_with([*lines, *([f"Channel 00/0 : 0[0] -> 1[0] [send] via {channel}"] if channel else [])], hosts=2)

    assert log.facts["link"] == link


def test_the_line_quoted_for_a_transport_is_of_that_transport() -> None:
    """Which channel comes first is chance."""
    channels = ["Channel 01/0 : 0[0] -> 1[1] via P2P/CUMEM/read", "Channel 00/0 : 3[3] -> 7[3] via NET/Socket/1"]
    log = log_with(["Using network Socket", *channels], hosts=2)

    assert log.evidence["transport"] == log.evidence["gdr"] == channels[1]
    assert log.evidence["network"] == "Using network Socket"


def test_what_is_quoted_for_efa_names_the_provider() -> None:
    log = log_with([NETWORK, OFI, "Channel 01/0 : 0[0] -> 1[1] via P2P/CUMEM/read"], hosts=2)

    assert (log.facts["transport"], log.evidence["transport"], log.evidence["network"]) == ("efa", OFI, OFI)


def test_the_line_quoted_for_nics_is_of_the_process_that_found_the_fewest() -> None:
    log = several_processes([OFI, OFI.replace("found 4", "found 1"), OFI, NETWORK])

    assert log.evidence["nics"].endswith("(found 1 nics)")


GIN = "Failed to initialize any GIN plugin"


@pytest.mark.parametrize("text", [GIN, f"GIN/Plugin: {GIN}", "NET/OFI gin: initialization failed"])
@pytest.mark.parametrize("level", ["INFO", "WARN"])
def test_gpu_initiated_networking_says_nothing_of_the_network(text: str, level: str) -> None:
    """NCCL 2.29 and later print it wherever there is none."""
    lines = ["NCCL INFO Assigned NET plugin IB to comm", f"NCCL {level} {text}"]
    log = read("\n".join([*(f"node0:101:201 [0] {line}" for line in lines), nccl_text(ROWS, ranks=2, hosts=2)]))[0]

    assert [found.code for found in log.findings if found.code != "nccl-warning" or text == GIN] == []


def test_a_missing_plugin_is_found_behind_gin() -> None:
    missing = "NET/Plugin: Could not find: ofi libnccl-net-ofi.so. Using internal network plugin."
    log = log_with([missing, "Using network Socket", GIN], hosts=2)

    assert [found.code for found in log.findings] == ["plugin-missing"]


def test_a_trace_line_is_no_warning() -> None:
    trace = "nccl_net_ofi_init:1396 NCCL TRACE NET/OFI Provider cxi does not require registration"
    text = f"node0:101:201 [0] NCCL INFO {OFI}\nnode0:101:201 [1] 98.86 {trace}\n"
    (log,) = read(text + nccl_text(ROWS, ranks=2, hosts=2), Proof(nics=4))

    assert log.findings == ()


def test_gpudirect_is_missed_only_where_data_goes_over_a_nic() -> None:
    nic = "NET/IB : GPU Direct RDMA Disabled for HCA 0 'mlx5_0'"
    inside = "Channel 00/0 : 1[1] -> 0[0] via P2P/direct pointer/read"
    comm = "comm 0x5610a7c00030 rank 0 nRanks 2 nNodes 1 localRanks 2 localRank 0 MNNVL 0"

    assert not log_with([nic, "Using network IB", comm, inside]).findings
    assert [found.code for found in log_with([nic, "Using network IB"], hosts=2).findings] == ["gdr-disabled"]


@pytest.mark.parametrize("code", ["network-not-found", "nic-unreachable", "nic-retries-exceeded", "endpoint-refused"])
def test_what_ends_nccl_is_a_failure_whatever_was_measured(code: str) -> None:
    warning = f"node0:101:101 [0] net.cc:52 NCCL WARN {SEEN[code]}\n"
    (alone,) = read(warning)
    (measured,) = read(warning + nccl_text(ROWS, ranks=2, hosts=2))

    assert alone.outcome is Outcome.FAILED
    assert alone.reason == f"{alone.findings[0].meaning[:-1]}: {SEEN[code]}"
    assert (measured.outcome, measured.reason) == (Outcome.FAILED, alone.reason)


@pytest.mark.parametrize("code", [1, 2, 3, 4, 5, 6, 7])
def test_a_call_that_returned_an_error_is_a_failure_with_the_warning_above_it(code: int) -> None:
    rank = "node0:101:201 [0]"
    calls = (f"transport/net.cc:753 -> {code}", f"group.cc:76 -> {code} [Async thread]")
    chain = "".join(f"{rank} NCCL INFO {call}\n" for call in calls)
    warning = f"{rank} net.cc:52 NCCL WARN The warning above\n"
    for text in (warning + chain, warning + chain + nccl_text(ROWS, ranks=2, hosts=2)):
        (log,) = read(text)
        assert (log.outcome, log.reason) == (Outcome.FAILED, "NCCL failed: The warning above")


def test_gpu_initiated_networking_that_is_not_there_is_no_failure() -> None:
    text = "node0:101:201 [0] NCCL INFO gin/gin_host.cc:53 -> 3\n" + nccl_text(ROWS, ranks=2, hosts=2)
    assert [log.outcome for log in read(text)] == [Outcome.OK]


TRAINING = [
    "ncclCommInitRank comm 0x55 rank 0 nranks 16 cudaDev 0 nvmlDev 0 busId 1000 commId 0xabc - Init START",
    OFI,
    NETWORK,
    CHANNEL,
]


@pytest.mark.parametrize(
    ("fabric", "outcome"), [(None, Outcome.OBSERVED), ("efa", Outcome.OBSERVED), ("tcp", Outcome.OFF_FABRIC)]
)
def test_a_training_log_shows_its_network(fabric: str | None, outcome: Outcome) -> None:
    lines = ["Epoch 1", *(f"node0:101:201 [0] NCCL INFO {message}" for message in TRAINING), "Epoch 2"]
    (log,) = read("\n".join(lines), Proof(fabric=fabric) if fabric else None)

    assert (log.benchmark, log.case, log.outcome) == (None, "nccl-debug", outcome)
    assert (log.facts["transport"], log.facts["nics"], log.facts["complete"]) == ("efa", 4, "unknown")
    assert log.facts["communicator"] == "abc"


def test_a_run_of_fabbench_that_printed_debug_lines_alone_is_cut() -> None:
    (log,) = read_lines([f"node0:101:201 [0] NCCL INFO {OFI}"], ending=Ending(status=0))

    assert log.outcome is Outcome.TRUNCATED


ONE_NIC = ["NET/OFI Selected provider is efa, fabric is efa (found 1 nics)"]
ON_P4D = "NET/OFI Running on p4d.24xlarge platform, topology file p4d-24xl-topo.xml"


@pytest.mark.parametrize(
    ("lines", "proof", "reason"),
    [
        ([*ONE_NIC, ON_P4D], None, "p4d.24xlarge has 4 EFA interfaces, but 1 was used."),
        (ONE_NIC, Proof(instance_type="p4d.24xlarge"), "p4d.24xlarge has 4 EFA interfaces, but 1 was used."),
        (ONE_NIC, Proof(nics=4), "The log must show 4 NICs per rank, but 1 was used."),
        (
            ONE_NIC,
            Proof(fabric="efa", instance_type="p5.48xlarge"),
            "p5.48xlarge has 32 EFA interfaces, but 1 was used.",
        ),
        (ONE_NIC, Proof(fabric="efa", instance_type="p4d.24xlarge", nics=0), None),
        (ONE_NIC, Proof(instance_type="g5.8xlarge"), None),
    ],
)
def test_fewer_nics_than_the_type_has_are_off_fabric(lines: list[str], proof: Proof | None, reason: str | None) -> None:
    text = "\n".join(f"node0:101:{tid} [0] NCCL INFO {line}" for tid, line in enumerate(lines, start=201))
    (log,) = read(f"{text}\n{nccl_text(ROWS, ranks=2, hosts=2)}", proof)

    assert log.reason == reason
    assert log.outcome is (Outcome.OFF_FABRIC if reason else Outcome.OK)
    assert log.findings == ()


def test_where_nobody_knows_the_nics_a_warning_says_what_to_pass() -> None:
    (finding,) = log_with(ONE_NIC, hosts=2).findings

    assert (finding.code, finding.severity) == ("nics-unchecked", "warning")
    assert "--instance-type" in finding.advice
    assert "--nics" in finding.advice


@pytest.mark.parametrize(
    ("words", "plugin", "outcome"),
    [
        ("-x FI_PROVIDER=efa", "NET/OFI Initializing plugin failed", Outcome.OFF_FABRIC),
        ("-x FI_PROVIDER=efa", "NET/Plugin: Could not find: libnccl-net.so", Outcome.OFF_FABRIC),
        ("-x FI_PROVIDER=tcp", "NET/OFI Initializing plugin failed", Outcome.OK),
        ("-x FI_PROVIDER=efa", "NET/Socket : Using [0]eth0:10.0.0.1<0>", Outcome.OK),
    ],
)
def test_efa_that_a_log_asks_for_and_loses_is_off_fabric(words: str, plugin: str, outcome: Outcome) -> None:
    lines = [plugin, "Using network Socket"]
    debug = "\n".join(f"node0:101:{tid} [0] NCCL WARN {line}" for tid, line in enumerate(lines, start=201))
    text = f"$ mpirun -np 2 {words} all_reduce_perf -b 8\n{debug}\n{nccl_text(ROWS, ranks=2, hosts=2)}"
    assert read(text)[0].outcome is outcome
    assert read(text, Proof(fabric="tcp"))[0].outcome is Outcome.OK
