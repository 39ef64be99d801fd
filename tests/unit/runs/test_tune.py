"""Whether an arm ran what it claims."""

import pytest

from fabbench.model.log import Facts, Outcome
from fabbench.model.plan import Variant
from fabbench.runs.tune import why_void
from tests.support.logs_by_hand import log

RING = {"algorithms": "RING/LL+RING/LL128", "channels": 16}


@pytest.mark.parametrize(
    ("env", "facts", "void"),
    [
        ({"NCCL_ALGO": "Ring"}, RING, False),
        ({"NCCL_ALGO": "RING,TREE", "NCCL_PROTO": "LL,LL128"}, RING, False),
        ({"NCCL_ALGO": "NVLSTree"}, {"algorithms": "NVLS_TREE/SIMPLE"}, False),
        ({"NCCL_ALGO": "TREE"}, RING, True),
        ({"NCCL_ALGO": "^TREE"}, RING, True),
        ({"NCCL_PROTO": "LL"}, RING, True),
        ({"NCCL_PROTO": "LL"}, {}, True),
        ({"NCCL_MIN_NCHANNELS": "8", "NCCL_MAX_NCHANNELS": "8"}, RING, True),
        ({"NCCL_MIN_NCHANNELS": "16", "NCCL_MAX_NCHANNELS": "16"}, RING, False),
        ({"NCCL_MIN_NCHANNELS": "many"}, RING, True),
        ({"NCCL_MIN_NCHANNELS": "32"}, {"algorithms": "RING/LL"}, True),
        ({"OFI_NCCL_PROTOCOL": "RDMA"}, {}, False),
    ],
)
def test_a_log_shows_what_ran(env: dict[str, str], facts: Facts, *, void: bool) -> None:
    assert why_void(Variant(name="arm", env=env), log([], facts=facts)).startswith("void") == void


def test_a_log_that_is_not_ok_does_not_count() -> None:
    assert why_void(None, log([], outcome=Outcome.CORRUPT, reason="2 wrong")) == "corrupt: 2 wrong"
    assert not why_void(None, log([]))
