"""What each fabric sets and unsets for programs on NCCL."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabbench.benchmarks.nccl_env import (
    UNKNOWN_INTERFACE,
    NcclEnvironment,
    environment,
    gpus_per_host,
    network_proof,
    rank_commands,
    why_unsupported,
)
from fabbench.model.errors import MachineError, RequestError
from fabbench.model.hosts import Host

A = Host(name="a", interface="eth0", gpus=8)
B = Host(name="b", interface="eth0", gpus=8)
TWO = (A, B)
H100 = Host(name="h", gpu_model="H100")
DEBUG = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET,ENV", "NCCL_DEBUG_FILE": "{folder}/debug.%h.%p"}
SOCKETS = {"NCCL_NET": "Socket", "NCCL_NET_PLUGIN": "none", "NCCL_TUNER_PLUGIN": "none"}
ALONE = {"NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1", "NCCL_NVLS_ENABLE": "0"}
FABRICS = ("efa", "tcp", "ofi-tcp", "ib", "roce", "shm", "p2p", "nvlink", "cxi")


def own(found: NcclEnvironment) -> dict[str, str]:
    """What is set besides debugging, which is the same for all."""
    assert DEBUG.items() <= found.env.items()
    return {name: value for name, value in found.env.items() if name not in DEBUG}


@pytest.mark.parametrize(
    ("fabric", "network"),
    [
        ("efa", {"NCCL_NET": "AWS Libfabric", "FI_PROVIDER": "efa"}),
        ("tcp", SOCKETS),
        ("ofi-tcp", {"NCCL_NET": "AWS Libfabric", "FI_PROVIDER": "tcp"}),
        ("cxi", {"NCCL_NET": "AWS Libfabric", "FI_PROVIDER": "cxi"}),
        ("ib", {**SOCKETS, "NCCL_NET": "IB"}),
        ("roce", {**SOCKETS, "NCCL_NET": "IB"}),
    ],
)
def test_a_network_between_hosts_is_named_and_nothing_else_is_tuned(fabric: str, network: dict[str, str]) -> None:
    between = {**network, "NCCL_MNNVL_ENABLE": "0", "NCCL_SOCKET_IFNAME": "=eth0"}
    assert own(environment(fabric, TWO)) == between


def test_nvlink_between_hosts_is_asked_for_and_nothing_else_may_be_fast() -> None:
    found = environment("nvlink", TWO)
    assert own(found) == {**SOCKETS, "NCCL_MNNVL_ENABLE": "1", "NCCL_SOCKET_IFNAME": "=eth0"}
    assert {"NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL", "NCCL_CUMEM_ENABLE"} <= set(found.unset)


@pytest.mark.parametrize("fabric", ["efa", "tcp", "ib"])
def test_a_network_of_one_host_is_used_because_there_is_no_other_way(fabric: str) -> None:
    assert ALONE.items() <= environment(fabric, (A,)).env.items()
    assert "NCCL_MNNVL_ENABLE" in environment(fabric, (A,)).unset


def test_inside_one_host_shared_memory_and_nvlink_exclude_each_other() -> None:
    interface = {"NCCL_SOCKET_IFNAME": "=eth0"}
    assert own(environment("p2p", (A,))) == {**SOCKETS, **interface}
    shm = {**SOCKETS, **interface, "NCCL_P2P_DISABLE": "1", "NCCL_NVLS_ENABLE": "0"}
    assert own(environment("shm", (A,))) == shm
    assert {"NCCL_SHM_DISABLE", "NCCL_P2P_DISABLE"} <= set(environment("p2p", (A,)).unset)


def test_the_baseline_is_rid_of_what_was_tuned_for_efa() -> None:
    tuned = {"FI_PROVIDER", "NCCL_BUFFSIZE", "NCCL_P2P_NET_CHUNKSIZE", "NCCL_TOPO_FILE"}
    assert tuned | {"NCCL_PROTO", "NCCL_ALGO"} <= set(environment("tcp", TWO).unset)


def test_efa_keeps_its_tuning_but_not_what_would_falsify_it() -> None:
    gone = set(environment("efa", TWO).unset)
    assert {"FI_EFA_USE_DEVICE_RDMA", "FI_EFA_IFACE", "NCCL_PROTO", "NCCL_P2P_DISABLE"} <= gone
    assert gone.isdisjoint({"FI_EFA_FORK_SAFE", "NCCL_BUFFSIZE", "NCCL_TOPO_FILE", "FI_PROVIDER"})


@pytest.mark.parametrize(
    ("interfaces", "expected"),
    [
        (("eth0", "eth0"), "=eth0"),
        (("eth0", "ens5"), "=eth0,ens5"),
        (("eth0", ""), UNKNOWN_INTERFACE),
        (("", ""), UNKNOWN_INTERFACE),
        (("eth0",), "=eth0"),
        (("",), None),
    ],
)
def test_sockets_use_the_interface_that_leads_to_the_others(interfaces: Sequence[str], expected: str | None) -> None:
    hosts = [Host(name=str(number), interface=name) for number, name in enumerate(interfaces)]
    assert environment("tcp", hosts).env.get("NCCL_SOCKET_IFNAME") == expected


def test_parts_of_one_machine_meet_on_its_loopback_interface() -> None:
    parts = [Host(name=f"node-{n}", interface="eth0", gpus=2, virtual=True) for n in range(2)]
    assert environment("tcp", parts).env["NCCL_SOCKET_IFNAME"] == "=lo"


def test_sockets_stay_off_rdma_nics_where_there_are_any() -> None:
    with_nic = Host(name="c", interface="eth0", devices={"mlx5_0": "roce"})
    assert environment("tcp", (A, with_nic)).env["NCCL_IB_DISABLE"] == "1"
    with_efa = Host(name="d", interface="eth0", devices={"rdmap0s31": "efa"})
    assert "NCCL_IB_DISABLE" in environment("tcp", (A, with_efa)).unset


@pytest.mark.parametrize(("second", "expected"), [(3, "3"), (5, None), (None, None)])
def test_roce_names_the_gid_that_all_devices_have(second: int | None, expected: str | None) -> None:
    gids = {"mlx5_0": 3} | ({} if second is None else {"mlx5_1": second})
    host = Host(name="a", devices={"mlx5_0": "roce", "mlx5_1": "roce", "mlx5_2": "ib"}, gids=gids)
    assert environment("roce", (host, host)).env.get("NCCL_IB_GID_INDEX") == expected


HOSTS = st.lists(
    st.builds(
        Host,
        name=st.sampled_from(["a", "b"]),
        interface=st.sampled_from(["", "eth0", "ens5"]),
        devices=st.dictionaries(st.sampled_from(["x", "y"]), st.sampled_from(["efa", "ib", "roce", "unknown"])),
        virtual=st.booleans(),
        gpus=st.just(2),
    ),
    min_size=1,
    max_size=4,
)


@given(fabric=st.sampled_from(FABRICS), hosts=HOSTS)
def test_every_configuration_names_its_network_and_no_name_is_both_set_and_unset(
    fabric: str, hosts: list[Host]
) -> None:
    given = environment(fabric, hosts)
    for command in rank_commands(("p",), fabric, hosts, given, 2):
        assert command.env["NCCL_NET"] in {"AWS Libfabric", "Socket", "IB"}
        assert ("FI_PROVIDER" in command.env) == (command.env["NCCL_NET"] == "AWS Libfabric")
        assert command.env.keys().isdisjoint(command.unset)
        assert len(set(command.unset)) == len(command.unset)


def test_hosts_that_start_the_same_share_a_command() -> None:
    given = environment("tcp", TWO)
    (one,) = rank_commands(("p",), "tcp", TWO, given, 8)
    assert (one.argv, one.ranks, one.env, one.unset) == (("p",), 16, given.env, given.unset)
    apart = (replace(A, programs={"p": "/x/p"}), replace(B, programs={"p": "/y/p"}))
    first, second = rank_commands(("p",), "tcp", apart, given, 8)
    assert [(first.argv, first.ranks), (second.argv, second.ranks)] == [(("/x/p",), 8), (("/y/p",), 8)]


def test_parts_of_one_machine_are_hosts_of_their_own_for_networks_alone() -> None:
    parts = [Host(name=f"node-{n}", gpus=2, virtual=True) for n in range(2)]
    apart = rank_commands(("p",), "tcp", parts, environment("tcp", parts), 2)
    assert [command.env["NCCL_HOSTID"] for command in apart] == ["node-0", "node-1"]
    (together,) = rank_commands(("p",), "p2p", parts, environment("p2p", parts), 2)
    assert together.ranks == 4
    assert "NCCL_HOSTID" in together.unset


@pytest.mark.parametrize(
    ("fabric", "host", "expected"),
    [
        ("tcp", Host(name="a"), ""),
        ("efa", Host(name="a"), "there is no EFA device."),
        ("efa", Host(name="a", devices={"rdmap0s31": "efa"}), ""),
        ("efa", Host(name="a", providers={"efa": frozenset({"rdm"})}), ""),
        ("ib", Host(name="a", devices={"mlx5_0": "roce"}), "there is no InfiniBand device."),
        ("roce", Host(name="a", devices={"mlx5_0": "roce"}), ""),
        ("p2p", Host(name="a", gpus=1), "it takes two GPUs of one host, and 1 was found."),
        ("shm", Host(name="a", gpus=1, virtual=True), ""),
        ("ofi-tcp", Host(name="a", providers={"tcp;ofi_rxm": frozenset({"rdm"})}), ""),
        ("nvlink", Host(name="a", gpu_model="NVIDIA GB200"), ""),
        ("nvlink", Host(name="a"), ""),
        ("nvlink", Host(name="a", virtual=True), "it is a part of one machine, whose NVLink is p2p."),
        ("nvlink", H100, "its GPUs are H100, and NVLink connects hosts only in racks of GB200 and GB300."),
        ("cxi", Host(name="a"), "libfabric has no provider cxi there."),
    ],
)
def test_what_a_host_lacks_is_reported_in_a_sentence(fabric: str, host: Host, expected: str) -> None:
    assert why_unsupported(fabric, host) == expected


def test_the_nics_that_every_rank_lists_are_those_of_the_poorest_host() -> None:
    rich = Host(name="a", devices={"e0": "efa", "e1": "efa", "m0": "ib"})
    poor = Host(name="b", devices={"e0": "efa", "m0": "ib", "m1": "ib"})
    fabrics = ("efa", "ib", "roce", "tcp")
    assert [network_proof(fabric, (rich, poor), None).nics for fabric in fabrics] == [1, 1, None, None]
    assert network_proof("efa", (rich, A), None).nics is None


def test_hosts_with_unlike_or_no_gpus_are_refused_with_the_way_out() -> None:
    assert gpus_per_host(TWO) == 8
    with pytest.raises(MachineError, match=r"GPU.* c") as none:
        gpus_per_host((A, Host(name="c")))
    assert "--gpus N" in (none.value.hint or "")
    with pytest.raises(RequestError, match="a has 8, d has 4") as unlike:
        gpus_per_host((A, Host(name="d", gpus=4)))
    assert "--gpus 4" in (unlike.value.hint or "")
    with pytest.raises(MachineError, match="one GPU"):
        gpus_per_host((Host(name="e", gpus=1),))
