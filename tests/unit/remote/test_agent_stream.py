"""A mode of the agent that keeps running."""

from typing import cast

from fabbench.remote.host import RemoteHost
from fabbench.remote.session import AgentStream


def test_one_that_was_never_opened_can_be_closed() -> None:
    AgentStream(cast(RemoteHost, None), "relay").close()
