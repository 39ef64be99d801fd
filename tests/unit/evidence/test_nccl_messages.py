"""nccl_messages.toml: what a message says, and others beside it."""

import pytest

from fabbench.evidence.known_errors import NcclMessage, nccl_messages, nccl_says


@pytest.mark.parametrize("message", nccl_messages(), ids=lambda each: each.pattern)
def test_a_message_is_known_and_the_one_beside_it_is_none(message: NcclMessage) -> None:
    assert nccl_says(message.says, message.example)
    assert not nccl_says(message.says, message.counterexample)
