"""The result in one line."""

import pytest

from fabbench.analysis.aggregate import Column
from fabbench.analysis.compare import compare
from fabbench.analysis.headline import headline
from fabbench.model.log import Outcome
from tests.support.logs_by_hand import GB, KB, MB, column, latencies, log, rates
from tests.support.nccl_text import EFA, NON_EFA, SIZES

PUBLISHED = [rates(name, zip(SIZES, values, strict=True)) for name, values in (("EFA", EFA), ("TCP", NON_EFA))]
OFF = column("efa", log([(GB, 12.5e9)], outcome=Outcome.OFF_FABRIC, reason="It was not efa."))


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        (
            PUBLISHED,
            (
                "all_reduce, 2 × 8 GPUs: EFA 77.35 GB/s vs TCP 4.13 GB/s at 2 GB (18.7x); "
                "faster from 1 MB up (measured once)"
            ),
        ),
        (
            PUBLISHED[::-1],
            (
                "all_reduce, 2 × 8 GPUs: TCP 4.13 GB/s vs EFA 77.35 GB/s at 2 GB (0.1x); "
                "slower from 1 MB up (measured once)"
            ),
        ),
        (PUBLISHED[:1], "all_reduce, 2 × 8 GPUs: EFA 77.35 GB/s at 2 GB"),
        (
            [rates("a", [(MB, 4), (GB, 1)], hosts=1), rates("b", [(MB, 2), (GB, 2)], hosts=1)],
            (
                "all_reduce, 8 GPUs: a 1 GB/s vs b 2 GB/s at 1 GB (0.5x); "
                "faster up to 1 MB, slower from 1 GB up (measured once)"
            ),
        ),
        (
            [rates("a", [(MB, 8), (GB, 2.1)], hosts=1), rates("b", [(MB, 2), (GB, 2)], hosts=1)],
            ("all_reduce, 8 GPUs: a 2.1 GB/s vs b 2 GB/s at 1 GB (1.1x, undecided); faster up to 1 MB (measured once)"),
        ),
        (
            [rates("a", [(MB, 2), (GB, 9)]), rates("b", [(MB, 2)])],
            "all_reduce, 2 × 8 GPUs: a 2 GB/s vs b 2 GB/s at 1 MB (1x); undecided (measured once)",
        ),
        (
            [latencies("shm", [(64, 1), (KB, 2)]), latencies("tcp", [(64, 10), (KB, 20)])],
            "pingpong: shm 1 us vs tcp 10 us at 64 B (10x); faster at every size (measured once)",
        ),
        (
            [rates(name, [(8, rate)], gpus_per_host="") for name, rate in zip("abcde", (80, 6, 4, 2, 1), strict=True)],
            (
                "all_reduce, 16 ranks: a 80 GB/s (80x), b 6 GB/s (6x, undecided), c 4 GB/s (4x, undecided) "
                "and 1 more vs e 1 GB/s at 8 B (measured once)"
            ),
        ),
        (
            [
                column(name, *(log([(MB, rate), *([(GB, rate)] if number == 0 else [])]) for number, rate in each))
                for name, each in (("a", enumerate((9e9, 9.1e9))), ("b", enumerate((1e9, 1.1e9))))
            ],
            ("all_reduce, 2 × 8 GPUs: a 9 GB/s vs b 1 GB/s at 1 GB (9x); faster at every size (in part measured once)"),
        ),
        ([OFF, PUBLISHED[1]], "all_reduce, 2 × 8 GPUs: efa off-fabric vs TCP 4.13 GB/s at 2 GB"),
        ([OFF], ""),
    ],
)
def test_the_headline(columns: list[Column], expected: str) -> None:
    assert headline(compare(columns), 0) == expected
