"""What carried the data: proven by lines, and by nothing else."""

import pytest

from fabbench.model import Log, Outcome, Proof
from fabbench.symptoms import SYMPTOMS
from nccl_text import nccl_text
from reading import LOGS, read

ROWS = [(1 << 20, 10.0), (1 << 21, 11.0)]

OFI = "NET/OFI Selected provider is efa, fabric is efa-direct (found 4 nics)"
NETWORK = "Using network Libfabric"
CHANNEL = "Channel 00/0 : 0[0] -> 1[0] [send] via NET/Libfabric/0/GDRDMA"


def log_with(
    messages: list[str], *, hosts: int = 1, fabric: str | None = None, nics: int | None = None
) -> Log:
    lines = [f"node0:101:{tid} [0] NCCL INFO {message}" for tid, message in enumerate(messages, start=201)]
    proof = Proof(fabric=fabric, nics=nics) if fabric else None
    (log,) = read("\n".join([*lines, nccl_text(ROWS, ranks=2, hosts=hosts)]), proof)
    return log


# The fewest lines that prove each verdict: (fabric asked for, hosts, outcome, lines).
MINIMAL = [
    ("efa", 1, Outcome.OK, [OFI, CHANNEL]),
    ("efa", 2, Outcome.OK, [OFI]),
    ("efa", 2, Outcome.OFF_FABRIC, ["Using network Socket"]),
    (
        "efa",
        2,
        Outcome.OFF_FABRIC,
        ["NET/OFI Selected provider is tcp, fabric is lo (found 1 nics)"],
    ),
    ("efa", 1, Outcome.OFF_FABRIC, ["Channel 00 : 0[0] -> 1[1] via P2P/CUMEM"]),
    ("tcp", 1, Outcome.OK, ["Channel 00 : 0[0] -> 1[0] [send] via NET/Socket/0"]),
    ("tcp", 2, Outcome.OK, ["Using network Socket"]),
    ("tcp", 2, Outcome.OFF_FABRIC, [NETWORK]),
    ("ofi-tcp", 2, Outcome.OK, ["NET/OFI Selected Provider is tcp;ofi_rxm (found 1 nics)"]),
    ("ib", 2, Outcome.OK, ["Using network IBext_v8"]),
    ("ib", 2, Outcome.OK, ["NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB eth0:10.0.0.1<0>"]),
    ("p2p", 1, Outcome.OK, ["Channel 00 : 0[0] -> 1[1] via P2P/CUMEM"]),
    ("shm", 1, Outcome.OK, ["Channel 00 : 0[0] -> 1[1] via SHM/direct/direct"]),
]


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
    assert (
        log.reason
        == "efa was asked for, and the log does not show which libfabric provider carried the data."
    )


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
    assert log.reason == "efa was asked for with 32 NICs for each rank, but 4 were used."
    assert log_with([OFI, CHANNEL], fabric="efa", nics=4).outcome is Outcome.OK


@pytest.mark.parametrize(
    ("flags", "gdr"),
    [(["/GDRDMA"], "yes"), ([""], "no"), (["/GDRDMA", ""], "partly"), (["/GDRDMA(PCI)"], "yes")],
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
        (["vm:1:1", "vm:1:1"], ["wrong-interface"]),
    ],
)
def test_hosts_that_are_parts_of_one_machine_may_use_its_loopback(
    origins: list[str], codes: list[str]
) -> None:
    said = ["NET/Socket : Using [0]lo:127.0.0.1<0>", "Using network Socket", HOST_ID]
    said.append("comm 0x5610a7c00030 rank 0 nRanks 2 nNodes 2 localRanks 1 localRank 0 MNNVL 0")
    lines = [f"{origin} [0] NCCL INFO {message}" for origin in origins for message in said]
    end = ["The average bandwidth of all_reduce with a 4.0GB payload (50 trials, 2 ranks):"]
    (log,) = read(
        "\n".join([*lines, *end, " algbw: 3.469 GBps (27.7 Gbps)", " busbw: 3.469 GBps (27.7 Gbps)"])
    )
    assert (log.benchmark, log.facts["nodes"]) == ("torch", 2)
    assert [found.code for found in log.findings] == codes


@pytest.mark.parametrize("name", ["torch-tcp", "nccl-tcp"])
def test_a_real_run_over_the_loopback_of_one_machine_has_no_finding(name: str) -> None:
    (log,) = read((LOGS / f"runs/{name}.txt").read_text())
    assert log.facts["interface"] == "lo"
    assert log.findings == ()


SEEN = {
    "peer-unreachable": "NET/OFI completion error: Unreachable remote - never received a response",
    "libfabric-too-old": "NET/OFI EFA provider requires at least libfabric version 1.22.0.",
    "network-not-found": "Error: network AWS Libfabric not found.",
    "plugin-unsupported": "NET/Plugin: External network plugin libnccl-net.so is unsupported",
    "provider-not-supported": "NET/OFI Only EFA provider is supported",
    "gdr-disabled": "NET/OFI Need to force simple protocol: GDR not supported",
    "gpu-memory-not-registered": "NET/OFI Unable to register memory (type = 2) RC: -22",
    "write-emulated": "NET/OFI FI_OPT_EFA_EMULATED_WRITE is true when the protocol is RDMA write.",
    "memlock": "NET/OFI fi_mr_reg failed: Cannot allocate memory (-12)",
    "shm-too-small": "Error while creating shared memory segment /dev/shm/nccl-x (size 9637888)",
    "fork-unsafe": "A process has executed an operation involving a call",
    "interface-not-found": "Bootstrap : no socket interface found",
    "peer-closed": "socketProgress: Connection closed by remote peer node1<43210>",
    "fabric-manager": "Cuda failure 'system not yet initialized'",
    "slingshot-timeouts": "MPICH Slingshot Network Summary: 3 network timeouts",
}


def test_every_symptom_has_a_line_here() -> None:
    assert sorted(SEEN) == sorted(symptom.code for symptom in SYMPTOMS)


@pytest.mark.parametrize("code", SEEN)
def test_a_symptom_is_a_finding_with_its_line_and_advice(code: str) -> None:
    """As NCCL's warning, and as a plain line of another library."""
    warning = f"node0:101:101 [0] net.cc:52 NCCL WARN {SEEN[code]}"
    for text in (warning, SEEN[code]):
        (log,) = read(f"node0:101:201 [0] NCCL INFO {OFI}\n{text}\n{nccl_text(ROWS, ranks=2, hosts=2)}")
        (finding,) = (found for found in log.findings if found.code == code)
        assert finding.line == SEEN[code]
        assert finding.advice
        assert finding.meaning.endswith(".")
    (healthy,) = read(f"node0:101:201 [0] NCCL INFO {OFI}\n{nccl_text(ROWS, ranks=2, hosts=2)}")
    assert not healthy.findings


def test_the_lines_that_state_the_facts_are_kept() -> None:
    (log,) = read((LOGS / "nccl/x-ofi-efa-missing.txt").read_text(), Proof(fabric="efa"))

    assert log.outcome is Outcome.OFF_FABRIC
    assert log.evidence["transport"].endswith("via NET/Socket/0")
    assert log.evidence["plugin"] == "NET/OFI Initializing aws-ofi-nccl 1.20.0-dev"
