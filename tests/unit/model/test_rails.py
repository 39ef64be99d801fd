"""Rails: which devices are paired."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabbench.model.errors import RequestError
from fabbench.model.fabrics import Rail, natural_order, paired_devices


def test_names_with_numbers_are_in_their_order() -> None:
    names = ["mlx5_10", "mlx5_9", "rdmap101s0", "rdmap79s0", "mlx5_bond_0"]
    assert sorted(names, key=natural_order) == [
        "mlx5_9",
        "mlx5_10",
        "mlx5_bond_0",
        "rdmap79s0",
        "rdmap101s0",
    ]


@given(st.lists(st.text(alphabet="ab09_²", max_size=30)))
def test_any_names_can_be_sorted(names: list[str]) -> None:
    assert sorted(sorted(names, key=natural_order)) == sorted(names)


def test_hosts_with_the_same_names_pair_them_whatever_the_order() -> None:
    assert paired_devices(("b", "a"), ("a", "b"), ("x", "y")) == (
        Rail("a", "a", 0, 2),
        Rail("b", "b", 1, 2),
    )


def test_other_names_pair_in_order_and_other_numbers_do_not() -> None:
    assert paired_devices(("m_2", "m_10"), ("n_0", "n_1"), ("x", "y")) == (
        Rail("m_2", "n_0", 0, 2),
        Rail("m_10", "n_1", 1, 2),
    )
    with pytest.raises(RequestError, match=r"x has 2 and y has 1\. Only one of them has b"):
        paired_devices(("a", "b"), ("a",), ("x", "y"))


@given(st.integers(1, 64), st.integers(1, 16))
def test_every_gpu_gets_as_many_rails_as_the_others(number: int, gpus: int) -> None:
    used = [Rail("a", "a", index, number).nearest_gpu(gpus) for index in range(number)]
    counts = [used.count(gpu) for gpu in range(gpus)]
    assert sum(counts) == number
    assert max(counts) - min(counts) <= 1
