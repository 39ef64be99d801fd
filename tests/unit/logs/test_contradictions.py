"""One altered figure of a row that is else as its program prints it: what contradicts it is found.

The rows are those of the corpus and of sources; some programs print one figure in a row alone,
which nothing contradicts.
"""

import io

import pytest

from fabbench.model.log import Log, Outcome
from fabbench.runs.parse_file import parse_stream

NVSHMEM = """\
#alltoall_device
size(B)     count     type      scope     latency(us)       algbw(GB/s)   busbw(GB/s)
131072      32768     32-bit    block     11.791040         11.116        8.337
524288      131072    32-bit    block     30.410399         17.240        12.930
2097152     524288    32-bit    block     104.779196        20.015        15.011
"""
UNTITLED = "\n".join(NVSHMEM.split("\n")[1:3])
JAVA = """\
# OSU Open MPI Bi-Bandwidth Test
# Size [B]\t\tBandwidth [MB/s]\tBandwidth [Gb/s]
1024\t\t\t1500.25\t\t\t12.00
2048\t\t\t2800.50\t\t\t22.40
"""


def read(text: str) -> list[Log]:
    return [log for _, log in parse_stream(io.BytesIO(f"{text}\n".encode()), "x")]


@pytest.mark.parametrize(
    ("text", "printed", "altered"),
    [
        (NVSHMEM, "32768 ", "32568 "),
        (NVSHMEM, "524288      1", "528288      1"),
        (UNTITLED, "11.791040", "18.791040"),
        (UNTITLED, "32768 ", "32764 "),
        (JAVA, "1500.25", "1590.25"),
        (JAVA, "22.40", "28.40"),
    ],
)
def test_a_figure_that_others_of_its_row_contradict(text: str, printed: str, altered: str) -> None:
    (whole,) = read(text)
    assert (whole.outcome, len(whole.damaged)) == (Outcome.OK, 0)
    assert printed in text
    logs = read(text.replace(printed, altered, 1))
    assert [len(log.damaged) for log in logs] == [1]
    assert all(log.outcome is not Outcome.OK for log in logs)


ROWS = """\
size(B)     scope     latency (us)
1024        Thread    0.750000
1048576     Thread    20.125000
"""


@pytest.mark.parametrize(
    ("program", "is_ok"), [("shmem_put_ping_pong_latency", True), ("alltoall_latency", False)]
)
def test_rows_of_a_title_are_of_the_program_that_was_started(program: str, *, is_ok: bool) -> None:
    (log,) = read(f"$ mpirun -n 2 ./{program}\n#shmem_put_ping_pong_latency\n{ROWS}")
    assert (log.outcome is Outcome.OK) == is_ok
    assert bool(log.damaged) != is_ok
