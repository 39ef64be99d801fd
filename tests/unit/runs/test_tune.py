"""Whether an arm ran what it claims."""

import pytest

from fabbench.model.log import Facts
from fabbench.runs.tune import why_void

RING = {"algorithms": "RING/LL+RING/LL128", "channels_used": 16}


@pytest.mark.parametrize(
    ("env", "facts", "void"),
    [
        ({"NCCL_ALGO": "Ring"}, RING, False),
        ({"NCCL_ALGO": "RING,TREE", "NCCL_PROTO": "LL,LL128"}, RING, False),
        ({"NCCL_ALGO": "TREE"}, RING, True),
        ({"NCCL_PROTO": "LL"}, RING, True),
        ({"NCCL_PROTO": "LL"}, {}, True),
        ({"NCCL_MIN_NCHANNELS": "8", "NCCL_MAX_NCHANNELS": "8"}, RING, True),
        ({"NCCL_MIN_NCHANNELS": "16", "NCCL_MAX_NCHANNELS": "32"}, RING, False),
        ({"NCCL_MIN_NCHANNELS": "32"}, RING, True),
        # Small messages use few channels: nothing shows how many there are.
        ({"NCCL_MIN_NCHANNELS": "32"}, {"algorithms": "RING/LL"}, False),
        ({"OFI_NCCL_PROTOCOL": "RDMA"}, {}, False),
    ],
)
def test_a_log_shows_what_ran(env: dict[str, str], facts: Facts, *, void: bool) -> None:
    assert why_void(env, facts).startswith("void") == void
