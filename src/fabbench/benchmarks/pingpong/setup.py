"""What a ping-pong figure holds besides ping-pong: the connection's set-up, where it is inside the timing."""

USUAL_S = 0.035
"""Set-up of a reliable datagram endpoint over a network, as measured with libfabric 1.17 and 2.4."""
SHARED_MEMORY_S = 0.0002
SHARE = 0.01
"""A figure of which set-up is more than this is marked."""


def setup_s(endpoint: str, provider: str) -> float:
    """Give the seconds of set-up that the first row of a process holds.

    Connected (``msg``) endpoints connect before the clock starts, datagrams do not connect at all.
    """
    if endpoint != "rdm":
        return 0.0
    return SHARED_MEMORY_S if provider == "shm" else USUAL_S
