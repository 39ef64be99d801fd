"""nccl_messages.toml: what a message says, and others beside it."""

import pytest

from fabbench.evidence.known_errors import (
    NcclMessage,
    is_harmless,
    is_of_gin,
    nccl_messages,
    plugin_gave_up,
)

SHOWS = {"gave up": plugin_gave_up, "of GIN": is_of_gin, "harmless": is_harmless}


@pytest.mark.parametrize("message", nccl_messages(), ids=lambda each: each.pattern)
def test_a_message_is_known_and_the_one_beside_it_is_none(message: NcclMessage) -> None:
    shows = SHOWS[message.says]
    assert shows(message.example)
    assert not shows(message.counterexample)
