"""NCCL's debug text: what it comes to, in the wordings of old and new versions."""

from tests.support.nccl_text import nccl_text
from tests.support.read_logs import read

ROWS = [(1 << 20, 10.0), (1 << 21, 11.0)]


def with_debug(*messages: str) -> str:
    lines = [f"node0:101:{tid} [0] NCCL INFO {message}" for tid, message in enumerate(messages, start=201)]
    return "\n".join([*lines, nccl_text(ROWS, ranks=2, hosts=2)])


def test_before_nccl_2_6_the_interface_line_alone_says_that_sockets_are_used() -> None:
    (log,) = read(
        with_debug(
            "NET/Plugin : No plugin found (libnccl-net.so).",
            "NET/IB : No device found.",
            "NET/Socket : Using [0]eth0:10.0.0.1<0>",
        )
    )
    assert log.facts["network"] == "socket"
    assert log.facts["transport"] == "socket"
    assert [finding.code for finding in log.findings] == ["plugin-missing"]


def test_a_plugin_that_is_missing_is_no_finding_where_infiniband_is_used() -> None:
    (log,) = read(
        with_debug(
            "NET/Plugin: No plugin found (libnccl-net.so)",
            "NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB eth0:10.0.0.1<0>",
        )
    )
    assert log.facts["network"] == "ib"
    assert log.facts["nics"] == 2
    assert log.findings == ()


def test_an_infiniband_line_without_devices_is_no_infiniband() -> None:
    (log,) = read(
        with_debug(
            "NET/IB : No device found.",
            "NET/IB : Using [RO]; OOB ibp24s0:10.0.0.1<0>",
            "NET/Socket : Using [0]ibp24s0:10.0.0.1<0>",
            "Using network Socket",
        )
    )
    assert log.facts["network"] == "socket"
    assert "nics" not in log.facts


def test_channels_weigh_more_than_the_network_that_was_assigned() -> None:
    (log,) = read(
        with_debug(
            "NET/OFI Selected Provider is efa (found 4 nics)",
            "Using network AWS Libfabric",
            "Channel 00/0 : 0[0] -> 1[0] [send] via NET/AWS Libfabric/3(1)/GDRDMA/Shared",
            "Channel 01/0 : 0[0] -> 1[0] [send] via NET/AWS Libfabric/2(1)",
        )
    )
    assert log.facts["transport"] == "efa"
    assert log.facts["gdr"] == "partly"
    assert log.facts["nics"] == 4


def test_what_the_plugin_says_before_it_fails_proves_nothing() -> None:
    (log,) = read(with_debug("NET/OFI Initializing aws-ofi-nccl 1.14.0", "NET/OFI Using Libfabric version 1.22"))
    assert "network" not in log.facts
    assert log.facts["transport"] == "unknown"
    assert log.facts["plugin"] == "aws-ofi-nccl 1.14.0"


def test_debug_text_is_found_behind_and_inside_very_long_lines() -> None:
    layout_text = nccl_text(ROWS, ranks=2, hosts=2)
    long = "x" * 60_000
    lines = [f"{long} node0:1:1 [0] NCCL INFO Using network Socket", f"{long} NCCL INFO {long}"]
    (log,) = read("\n".join([*lines * 20, layout_text]))
    assert log.facts["network"] == "socket"
    assert log.outcome == "ok"
