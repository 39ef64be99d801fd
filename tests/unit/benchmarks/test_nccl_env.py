"""What each fabric sets and unsets for programs on NCCL, besides what plans show."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabbench.benchmarks.nccl_env import gpus_per_host, rank_commands
from fabbench.catalog.nccl_environment import environment
from fabbench.model.errors import MachineError
from fabbench.model.hosts import Host

FABRICS = ("efa", "tcp", "ofi-tcp", "ib", "roce", "shm", "p2p", "nvlink", "cxi")


HOSTS = st.lists(
    st.builds(
        Host,
        name=st.sampled_from(["a", "b"]),
        interface=st.sampled_from(["", "eth0", "ens5"]),
        devices=st.dictionaries(
            st.sampled_from(["x", "y"]), st.sampled_from(["efa", "ib", "roce", "unknown"])
        ),
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


def test_one_gpu_has_nothing_to_exchange_data_with() -> None:
    with pytest.raises(MachineError, match="one GPU"):
        gpus_per_host((Host(name="e", gpus=1),))
