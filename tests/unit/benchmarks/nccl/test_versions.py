"""Which versions a log of nccl-tests states."""

import pytest

from fabbench.model.log import Outcome
from tests.support.nccl_text import nccl_text
from tests.support.read_logs import read_one

ROWS = nccl_text([(1 << 20, 10.0)], ranks=2, hosts=1)


@pytest.mark.parametrize(
    ("line", "facts"),
    [
        (
            "# nccl-tests version 2.20.0 (b4d5bee) nccl-headers=23102 nccl-library=23102",
            {"nccl_tests": "2.20.0", "nccl": "2.31.2"},
        ),
        (
            "# nccl-tests version 2.18.0 nccl-headers=22907 nccl-library=22907",
            {"nccl_tests": "2.18.0", "nccl": "2.29.7"},
        ),
        ("rccl-tests: Version develop:448c4c7", {"rccl_tests": "develop:448c4c7"}),
        ("rccl-tests: Version :+", {}),
        ("RCCL version : 2.27.7-HEAD:0d2c4fd", {"rccl": "2.27.7-HEAD:0d2c4fd"}),
        ("ROCm version : 7.2.0.0-43-fc0010cf6a", {"rocm": "7.2.0.0-43-fc0010cf6a"}),
        ("node0:101:201 [0] NCCL INFO RCCL version : 2.22.3-HEAD:7d8d67c", {"rccl": "2.22.3-HEAD:7d8d67c"}),
        ("node0:101:201 [0] NCCL INFO NCCL version 2.28.9+cuda13.0", {"nccl": "2.28.9", "cuda": "13.0"}),
    ],
)
def test_versions(line: str, facts: dict[str, str]) -> None:
    log = read_one([line, *ROWS.splitlines()])
    versions = ("nccl_tests", "nccl", "cuda", "rccl_tests", "rccl", "rocm")

    assert log.outcome is Outcome.OK
    assert {name: log.facts[name] for name in versions if name in log.facts} == facts


ONE_SIDE = """\
# nThread 1 nGpus 1 minBytes 1048576 maxBytes 1048576 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1 \
validation: 1 graph: 0
{above}
#       size         count      type   redop    root     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)
     1048576        262144     float     sum      -1    120.0    8.74    8.74      0
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 8.74
"""


@pytest.mark.parametrize(("above", "placement"), [("#      in-place          ", "in-place"), ("#", None)])
def test_the_only_side_of_rccl_tests_has_its_name(above: str, placement: str | None) -> None:
    log = read_one(ONE_SIDE.format(above=above).splitlines())
    assert (log.outcome, [point.labels.get("placement") for point in log.points]) == (Outcome.OK, [placement])
