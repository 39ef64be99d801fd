"""Ping-pong on nodes against in pods, as an EKS project with m7g.16xlarge published it."""

from pathlib import Path

from fabbench.cli import cli
from fabbench.model.units import format_change, format_size
from tests.support.command_line import runner
from tests.support.libfabric_text import pingpong_table

SENT = 1_000_000
PUBLISHED = (
    (4, "10.26", "10.43"),
    (16, "10.3", "10.4"),
    (64, "10.62", "10.68"),
    (256, "10.65", "10.75"),
    (1024, "10.74", "10.9"),
    (10240, "12.84", "13.06"),
    (51200, "17.24", "17.66"),
    (102400, "44.9", "45.27"),
)
"""Size in bytes, us on the nodes, us in pods."""

TABLE = """\
pingpong: nodes 10.26 us vs pods 10.43 us at 4 B; plateau +1.1 % (-61.9 to +168.4); \
undecided (measured once)

| Message Size | latency nodes (us) | latency pods (us) | Speed-up |
|--------------|-------------------:|------------------:|---------:|
"""
ROW = "| {:<12} | {:>18.2f} | {:>17.2f} | {:>8} |\n"


def logs(folder: Path) -> list[str]:
    """Write the two logs that the published table was made of."""
    for name, column in (("nodes", 1), ("pods", 2)):
        rows = [(row[0], str(row[column])) for row in PUBLISHED]
        (folder / f"{name}.log").write_text(pingpong_table(rows, SENT))
    return [str(folder / "nodes.log"), str(folder / "pods.log")]


def test_the_published_table_comes_out(tmp_path: Path) -> None:
    result = runner().invoke(cli, ["compare", *logs(tmp_path), "--format", "markdown"])
    assert result.exit_code == 0
    rows = (
        ROW.format(
            format_size(size),
            float(nodes),
            float(pods),
            format_change(float(pods) / float(nodes)),
        )
        for size, nodes, pods in PUBLISHED
    )
    assert result.stdout.startswith(TABLE + "".join(rows))
