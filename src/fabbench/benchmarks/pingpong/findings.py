"""What a ping-pong's rows show that a reader of its numbers should know, in sentences."""

from collections.abc import Iterator, Sequence

from fabbench.benchmarks.pingpong.rows import Row
from fabbench.model import Finding, Severity
from fabbench.units import format_size


def setup(sizes: Sequence[int]) -> Iterator[Finding]:
    """Mark the sizes whose figure holds too much of the connection's set-up."""
    if sizes:
        yield Finding(
            code="setup-time",
            severity=Severity.WARNING,
            meaning="Connection set-up may be more than 1 % of the figure at "
            f"{', '.join(map(format_size, sizes))}.",
            advice="Use more iterations, or -e msg where the provider has it.",
        )


def unacknowledged(row: Row, size: int) -> str:
    """Say how many messages were lost or came twice."""
    if row.sign == "+":
        return f"{row.ack} of {row.sent} messages of {format_size(size)} were not acknowledged."
    return f"{row.ack} more messages of {format_size(size)} were acknowledged than the {row.sent} sent."
