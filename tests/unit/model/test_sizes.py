"""One syntax of sizes, for filters, gates and what a benchmark measures."""

import pytest

from fabbench.benchmarks.pingpong.plan import PingpongWork
from fabbench.benchmarks.torch.plan import TorchWork
from fabbench.model.options import declared, read_option
from fabbench.model.units import RATE_UNITS, parse_quantity, parse_sizes, parse_whole
from fabbench.plan.gates import parse_gate

K = 1 << 10
M = 1 << 20


@pytest.mark.parametrize(
    ("text", "within", "without"),
    [
        ("1M", [M], [M - 1, M + 1]),
        ("64K,4M", [64 * K, 4 * M], [128 * K]),
        ("1M..1G", [M, M + 1, 1 << 30], [M - 1, (1 << 30) + 1]),
        ("1M..", [M, 8 << 30], [M - 1]),
        ("..64K", [0, 64 * K], [64 * K + 1]),
        ("8,1M.., 64..1K", [8, 64, K, 2 * M], [16, 2 * K]),
    ],
)
def test_sizes_and_ranges(text: str, within: list[int], without: list[int]) -> None:
    sizes = parse_sizes(text)
    assert all(size in sizes for size in within)
    assert not any(size in sizes for size in without)
    assert parse_gate(f"busbw@{text}>=1GB/s").sizes == sizes


@pytest.mark.parametrize("text", ["", "1M,", "2M..1M", "1M-2M", "64K;4M", "1M..2M..4M"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"not a valid size|ends before"):
        parse_sizes(text)


@pytest.mark.parametrize(
    "number", ["9" * 5000, "1e300", "1e999", "\u0661", "\u00b2", "1_0", "inf", "-1", ""]
)
def test_numbers_that_nobody_means_are_refused(number: str) -> None:
    with pytest.raises(ValueError, match=r"not a valid size|not a whole number"):
        parse_sizes(number)
    with pytest.raises(ValueError, match="not a number with a unit"):
        parse_quantity(f"{number}TB/s", RATE_UNITS)


def test_a_whole_number_has_the_digits_that_64_bits_hold() -> None:
    assert [parse_whole(text) for text in ("0", "007", "9" * 19)] == [0, 7, 10**19 - 1]
    assert {
        parse_whole(text) for text in ("9" * 20, "\u0661", "\u00b2", "1_0", "-1", " 1", "")
    } == {None}


def test_a_benchmark_that_takes_a_list_doubles_a_range() -> None:
    option = declared(PingpongWork)["sizes"]
    assert read_option(option, ["64K,1M..4M", "64K", "3"]) == (64 * K, M, 2 * M, 4 * M, 3)
    assert read_option(option, ["1M.."]) == (M, 2 * M, 4 * M)  # To its own largest size


def test_a_range_without_an_end_is_refused_where_none_is_known() -> None:
    with pytest.raises(Exception, match="--size") as refused:
        read_option(declared(TorchWork)["sizes"], ["1M.."])
    assert getattr(refused.value, "exit", None) == 2
