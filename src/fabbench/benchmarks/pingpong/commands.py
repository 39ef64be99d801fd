"""A ``fi_pingpong …`` command line in a log."""

from fabbench.benchmarks.libfabric.commands import Asked, Syntax

__all__ = ["Asked", "read_command"]

_SYNTAX = Syntax(names="fi_pingpong", short="B:P:d:p:f:e:s:I:S:m:chv6")


def read_command(text: str) -> Asked | None:
    """Read a command line that starts fi_pingpong; None for a line that merely names it."""
    return _SYNTAX.command(text)
