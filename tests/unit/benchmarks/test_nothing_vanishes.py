"""One character of a row becomes `x`: the row is damaged, and its log no longer `ok`. In every reader."""

import re
from collections.abc import Iterator, Mapping

import pytest

from fabbench.model.log import Log, Outcome
from tests.support.libfabric_text import Measured, fabtests_table
from tests.support.paths import LOGS
from tests.support.read_logs import read, read_lines

RULE = "-" * 87
TABLES: Mapping[str, str] = {
    "pingpong": (LOGS / "fi_pingpong/shm-rdm.client.txt").read_text(),
    "fabtests": "\n".join(
        ["$ fi_rdm_bw -S all 10.0.0.1", *fabtests_table([Measured(64, 20000, 29947), Measured(4096, 500, 2947)])]
    ),
    "nccl": (LOGS / "nccl/allreduce-mpi-nvlink.txt").read_text(),
    "nvshmem": (LOGS / "nvshmem/reduction_latency.txt").read_text(),
    "nvshmem, point to point": (LOGS / "nvshmem/shmem_put_bw.txt").read_text(),
    "perftest": f"""\
{RULE}
                    RDMA_Write BW Test
{RULE}
 #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]
 65536      5000             11063.00            11061.00             0.176976
 131072     5000             11093.00            11091.00             0.088728
{RULE}
""",
    "nccom": (LOGS / "nccom/allr.txt").read_text(),
    "osu": """\
# OSU MPI Multiple Bandwidth / Message Rate Test v5.6.3
# [ pairs: 2 ] [ window size: 64 ]
# Size                  MB/s        Messages/s
1                       4.24        4235302.84
512                  1529.29        2986894.53
""",
    "torch": """\
The average bandwidth of all_reduce over 2 ranks (at least 5 warmups / 20 trials):

| payload |    busbw   |    algbw   |
| ------: | ---------: | ---------: |
|    1GiB |  10.00GBps |  10.00GBps |
|    2GiB |  12.50GBps |  12.50GBps |
""",
}
"""A good log of each table. Every digit of its rows is broken in turn."""


def parsed(text: str) -> list[Log]:
    return list(read(text))


TAG = re.compile(r"^\[1,\d+\]<stdout>: ")
FIGURE = re.compile(r"(?<![\w.=])[\d.]+[kmg]?(?:GBps|s)?(?![\w.])")


def broken(text: str) -> Iterator[tuple[int, str]]:
    """Yield the text with one digit of a row made an `x`, and the line's number."""
    lines = text.split("\n")
    for number, line in enumerate(lines, 1):
        begin = len(line) - len(TAG.sub("", line))
        figures = [match for match in FIGURE.finditer(line, begin) if len(match[0]) > 1]
        if len(figures) < 2 or not re.match(r"[\s|]*\d", line[begin:]) or "payload" in line:
            continue
        for at in (spot for figure in figures for spot in range(*figure.span()) if line[spot].isdigit()):
            changed = [*lines]
            changed[number - 1] = f"{line[:at]}x{line[at + 1 :]}"
            yield number, "\n".join(changed)


@pytest.mark.parametrize("name", TABLES)
def test_a_row_that_cannot_be_read_is_damaged(name: str) -> None:
    text = TABLES[name]
    (whole,) = parsed(text)
    assert whole.outcome is Outcome.OK, whole.reason
    cases = list(broken(text))
    assert len(cases) > 5
    for number, changed in cases[:: max(len(cases) // 40, 1)]:
        (log,) = parsed(changed)
        rows = [row.line for row in log.damaged]
        assert (log.outcome, rows) == (Outcome.TRUNCATED, [number]), changed.split("\n")[number - 1]


ROWS = {
    "64k     10      =10      1.2m        0.00s        inf       0.00        inf": (),
    "64k     10      =10      1.2m        0.00s   13107.20       5.00       0.20": (
        "latency",
        "bandwidth",
        "message_rate",
    ),
}
HEADER = "bytes   #sent   #ack     total       time     MB/sec    usec/xfer   Mxfers/sec"


def test_a_row_without_a_usable_figure_is_no_row_of_nothing() -> None:
    none, some = ROWS
    (log,) = read_lines([HEADER, none, none])
    assert (log.outcome, list(log.samples())) == (Outcome.TRUNCATED, [])
    (log,) = read_lines([HEADER, none, some])
    assert (log.outcome, [sample.metric for sample in log.samples()]) == (Outcome.OK, [*ROWS[some]])
    assert [finding.code for finding in log.findings if finding.code == "not-a-number"] == ["not-a-number"]
