"""A mode of the agent that keeps running."""

from typing import Any

from fabbench.remote.session import AgentStream


def test_one_that_was_never_opened_can_be_closed() -> None:
    no_host: Any = None
    AgentStream(no_host, "relay").close()
