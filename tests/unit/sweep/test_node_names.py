"""Names of nodes in names of files."""

import pytest

from fabbench.sweep.node_names import known_in, pair_in


@pytest.mark.parametrize(
    ("path", "pair"),
    [
        ("nccl_N2_G1_cnode2-001_cnode2-002.log", ("cnode2-001", "cnode2-002")),
        ("logs/node1-node2.txt", ("node1", "node2")),
        ("gpu-a-01-gpu-a-12.out.gz", ("gpu-a-01", "gpu-a-12")),
        ("n1_vs_n22", ("n1", "n22")),
        ("run/ip-10-0-1-17_ip-10-0-22-5.log", ("ip-10-0-1-17", "ip-10-0-22-5")),
        ("pairs/node-3/node-4.log", ("node-3", "node-4")),
        ("pairs.tar.gz!all/node-3_node-4_run2.log", ("node-3", "node-4")),
        ("node1.cluster.local-node2.cluster.local.log", ("node1.cluster.local", "node2.cluster.local")),
        ("pair_10.0.0.1_10.0.0.12.log", ("10.0.0.1", "10.0.0.12")),
        ("10.0.0.1-10.0.0.300.log", None),
        ("2.29.1-2.29.2.log", None),
        ("node1_node1.log", None),
        ("all_reduce.log", None),
        ("run_2025-01-02.log", None),
        ("results.json", None),
    ],
)
def test_two_names_that_differ_in_numbers_alone(path: str, pair: tuple[str, str] | None) -> None:
    assert pair_in(path) == pair


def test_names_that_are_known_are_whole_words() -> None:
    known = {"gpu1", "gpu10", "login", "alpha"}
    assert known_in("x/gpu1_gpu10.log", known) == ("gpu1", "gpu10")
    assert known_in("gpu10-alpha.log", known) == ("alpha", "gpu10")
    assert known_in("gpu100.log", known) == ()
