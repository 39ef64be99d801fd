"""What the logs of NVSHMEM's perftests have to show."""

from collections.abc import Sequence

from fabbench.logs.parser import LogParser, logs
from fabbench.model.log import Ending, Log, Outcome, begin_marker, end_marker
from fabbench.model.plan import Proof

TABLE = [
    "#shmem_put_bw_uni",
    "size(B)     scope     BW (GB/sec)     ",
    "8           None      0.005724        ",
]
SELECTED = (
    "[1,0]<stderr>:/src/modules/transport/libfabric/libfabric.cpp 1524 Selected provider efa, "
    "fabric efa-direct, nic rdmap0s31-rdm, hmem yes"
)


def read(lines: Sequence[str], proof: Proof, *, hosts: int) -> Log:
    """Judge a log as a run has it: debug files' lines come between the ranks' own."""
    pes = [
        f"[1,{pe}]<stdout>:mype: {pe} mype_node: {pe // hosts} device name: H200 bus id: 0 "
        for pe in (0, 1)
    ]
    begin = begin_marker("000-x-r1/shmem_put_bw", {"benchmark": "nvshmem"})
    text = [begin, pes[0], *lines, pes[1], *(f"[1,0]<stdout>:{line}" for line in TABLE)]
    session = LogParser("x", proof=proof)
    found = session.feed_lines([*text, end_marker("000-x-r1/shmem_put_bw", 0)])
    (log,) = logs([*found, *session.close(Ending(status=0, planned_sizes=(8,)))])
    return log


INFO = "node0:11:12 [0] NVSHMEM INFO "


def test_debug_lines_of_the_transport_prove_efa_between_hosts() -> None:
    used = f"{INFO}Successfully initialized the transport: libfabric"
    log = read([used, SELECTED], Proof(fabric="efa"), hosts=2)
    assert (log.outcome, log.facts["transport"], log.facts["fabric"]) == (
        Outcome.OK,
        "efa",
        "efa-direct",
    )
    assert log.facts["complete"] == "yes"
    assert read([used], Proof(fabric="efa"), hosts=2).outcome is Outcome.UNPROVEN


def test_no_transport_to_other_hosts_proves_that_gpus_reach_each_other() -> None:
    without = f"{INFO}IBRC transport skipped in favor of: none"
    log = read([without], Proof(fabric="p2p"), hosts=1)
    assert (log.outcome, log.facts["transport"]) == (Outcome.OK, "p2p")
    assert read([without], Proof(fabric="efa"), hosts=1).outcome is Outcome.OFF_FABRIC
    assert read([], Proof(fabric="p2p"), hosts=1).outcome is Outcome.UNPROVEN
