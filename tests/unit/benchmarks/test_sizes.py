"""The last size of a range is measured, or the range is refused."""

from collections.abc import Callable
from typing import Any

import pytest

from fabbench.benchmarks.nccl.plan import NcclWork
from fabbench.benchmarks.nvshmem.plan import NvshmemWork
from fabbench.benchmarks.osu.plan import OsuWork
from fabbench.benchmarks.pingpong.plan import PingpongWork
from fabbench.model.errors import RequestError

MB = 1 << 20


@pytest.mark.parametrize(
    ("given", "sizes"),
    [
        ({"min_bytes": MB, "max_bytes": 4 * MB}, (MB, 4 * MB)),
        ({"min_bytes": 64, "max_bytes": 3000, "factor": 8}, (64, 512, 3000)),
        ({"min_bytes": 64, "max_bytes": 4096, "factor": 8}, (64, 512, 4096)),
        ({"min_bytes": 64, "max_bytes": 64}, (64,)),
    ],
)
def test_a_size_per_program_always_includes_the_last(given: dict[str, Any], sizes: tuple[int, ...]) -> None:
    assert PingpongWork(**given).step_sizes == sizes


@pytest.mark.parametrize(
    ("work", "given", "stops_at"),
    [
        (NcclWork, {"min_bytes": MB, "max_bytes": 4 * MB, "factor": 16}, "1 MB"),
        (NcclWork, {"min_bytes": 8, "max_bytes": 1 << 30, "factor": 4}, "512 MB"),
        (NcclWork, {"min_bytes": 8, "max_bytes": 1024, "step_bytes": 512}, "520 B"),
        (NvshmemWork, {"min_bytes": 8, "max_bytes": 100}, "64 B"),
        (OsuWork, {"min_bytes": 0, "max_bytes": 3000}, "2 KB"),
    ],
)
def test_a_program_that_skips_the_last_size_is_refused(
    work: Callable[..., Any], given: dict[str, int], stops_at: str
) -> None:
    with pytest.raises(RequestError, match=f"would not be measured: .* stops at {stops_at}"):
        work(**given)


@pytest.mark.parametrize(
    ("work", "given"),
    [
        (NcclWork, {"min_bytes": 8, "max_bytes": 1032, "step_bytes": 512}),
        (NcclWork, {"min_bytes": 0, "max_bytes": 4 * MB, "step_bytes": MB}),
        (NvshmemWork, {"min_bytes": 8, "max_bytes": 512, "factor": 8}),
        (OsuWork, {"min_bytes": 3, "max_bytes": 12}),
        (OsuWork, {"min_bytes": 0, "max_bytes": 0}),
    ],
)
def test_a_program_that_reaches_the_last_size_is_not(work: Callable[..., Any], given: dict[str, int]) -> None:
    assert work(**given).max_bytes == given["max_bytes"]
