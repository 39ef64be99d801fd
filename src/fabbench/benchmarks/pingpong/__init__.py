"""fi_pingpong: libfabric's own ping-pong between two processes. One way latency, and bandwidth.

It has no closing line, prints sizes cut down, and runs over whatever network libfabric lists first, so
fabbench starts it with ``-v``, one size at a time, and reads what was really used.
"""

from fabbench.benchmarks.pingpong.reader import PingpongReader


class Pingpong:
    """The benchmark ``pingpong``."""

    name = "pingpong"
    joins_groups = True

    def reader(self) -> PingpongReader:
        """Give a fresh reader."""
        return PingpongReader()


BENCHMARK = Pingpong()
