"""The result in one line."""

import pytest

from fabbench.analysis.aggregate import Column
from fabbench.analysis.compare import compare
from fabbench.analysis.headline import headline
from fabbench.model.log import Outcome
from tests.support.logs_by_hand import GB, KB, MB, column, latencies, log, rates
from tests.support.nccl_text import EFA, NON_EFA, SIZES

PUBLISHED = [
    rates(name, zip(SIZES, values, strict=True)) for name, values in (("EFA", EFA), ("TCP", NON_EFA))
]
OFF = column("efa", log([(GB, 12.5e9)], outcome=Outcome.OFF_FABRIC, reason="It was not efa."))


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        (
            PUBLISHED,
            "all_reduce, 2 × 8 GPUs: EFA 77.35 GB/s vs TCP 4.13 GB/s at 2 GB (18.7x); faster from 8 KB up",
        ),
        (
            PUBLISHED[::-1],
            "all_reduce, 2 × 8 GPUs: TCP 4.13 GB/s vs EFA 77.35 GB/s at 2 GB (0.1x); slower from 8 KB up",
        ),
        (PUBLISHED[:1], "all_reduce, 2 × 8 GPUs: EFA 77.35 GB/s at 2 GB"),
        (
            [rates("a", [(KB, 4), (MB, 1)], hosts=1), rates("b", [(KB, 2), (MB, 2)], hosts=1)],
            "all_reduce, 8 GPUs: a 1 GB/s vs b 2 GB/s at 1 MB (0.5x); faster up to 1 KB, slower from 1 MB up",
        ),
        (
            [rates("a", [(MB, 2), (GB, 9)]), rates("b", [(MB, 2)])],
            "all_reduce, 2 × 8 GPUs: a 2 GB/s vs b 2 GB/s at 1 MB (1x); no clear difference",
        ),
        (
            [latencies("shm", [(64, 1), (KB, 2)]), latencies("tcp", [(64, 10), (KB, 20)])],
            "pingpong: shm 1 us vs tcp 10 us at 64 B (10x); faster at every size",
        ),
        (
            [
                rates(name, [(8, rate)], gpus_per_host="")
                for name, rate in zip("abcde", (8, 6, 4, 2, 1), strict=True)
            ],
            "all_reduce, 16 ranks: a 8 GB/s (8x), b 6 GB/s (6x), c 4 GB/s (4x) and 1 more vs e 1 GB/s at 8 B",
        ),
        ([OFF, PUBLISHED[1]], "all_reduce, 2 × 8 GPUs: efa off-fabric vs TCP 4.13 GB/s at 2 GB"),
        ([OFF], ""),
    ],
)
def test_the_headline(columns: list[Column], expected: str) -> None:
    assert headline(compare(columns), 0) == expected
