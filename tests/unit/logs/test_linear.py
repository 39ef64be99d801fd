"""Eight times as much of anything in a log takes about eight times the work, not 64 times."""

import io
from base64 import b64encode
from collections.abc import Callable
from functools import partial
from gzip import compress

import pytest

from fabbench.report.log_report import log_tables
from fabbench.runs.parse_file import parse_stream
from tests.support.growth import calls
from tests.support.nccl_text import nccl_text

WHOLE = nccl_text([(1 << power, 10.0) for power in range(20, 24)])
HEAD, _, FOOT = WHOLE.partition("     1048576")
ROW = "     1048576" + FOOT.partition("\n")[0] + "\n"
BANNER = ("# nccl-tests version 2.19.6", "# Collective test starting: all_reduce_perf")
MARKER = "#@fabbench nics 000-tcp-r1 when=before number={0} host=h{0} fabric=tcp packed={1}\n"
PACKED = b64encode(compress(b"sys/class/net/eth0/speed:1\n" * 40)).decode()


def repeated(line: str) -> Callable[[int], str]:
    return lambda count: HEAD + "".join(line.format(number) for number in range(count))


CRAFTED: dict[str, Callable[[int], str]] = {
    "rows": lambda count: HEAD + ROW * count,
    "rows that contradict themselves": lambda count: HEAD + ROW.replace("10.00", "91.00") * count,
    "rows that cannot be read": lambda count: HEAD + ROW.replace("10.00", "1x.00") * count,
    "torn rows": lambda count: HEAD + (ROW[:60] + "\n" + ROW[60:]) * count,
    "hosts": repeated(
        "host{0}:{0}:{0} [0] NCCL INFO Channel 00/0 : 0[1] -> 1[0] [receive] via NET/Socket/0\n"
    ),
    "devices": repeated(
        "#  Rank {0} Group  0 Pid {0} on host{0} device  0 [0000:00:06] NVIDIA H200\n"
    ),
    "failures": repeated("host{0}: Test NCCL failure common.cu:{0} 'unhandled {0}'\n"),
    "steps": repeated(
        "#@fabbench begin 000-tcp-r1/{0} benchmark=pingpong size=64\n#@fabbench end "
        "000-tcp-r1/{0} 3\n"
    ),
    "counters": lambda count: "".join(MARKER.format(number, PACKED) for number in range(count)),
    "prefixes of one line": lambda count: HEAD + "> " * count + ROW,
    "tags of one line": lambda count: HEAD + "[1,0]<stdout>: " * count + ROW,
    "pods": lambda count: "".join(
        f"[pod/p{number}/c] {line}\n" for number in range(2 * count) for line in BANNER
    ),
    "executions": lambda count: WHOLE * (count // 20),
}


def read(text: str) -> None:
    """Read a text, and make its tables."""
    for _, log in parse_stream(io.BytesIO(text.encode()), "x"):
        for table in log_tables(log):
            sum(1 for _ in table.rows)


@pytest.mark.parametrize("name", CRAFTED)
def test_work_grows_with_the_log_and_no_faster(name: str) -> None:
    text = CRAFTED[name]
    read(text(40))  # what is loaded and compiled once
    few, many = (calls(partial(read, text(count))) for count in (40, 320))
    assert many < 11 * few


def test_a_snapshot_that_expands_a_thousandfold_is_not_unpacked() -> None:
    bomb = b64encode(compress(b"\n" * (1 << 24))).decode()
    marker = MARKER.format(0, bomb).replace("when=before", "when=after")
    before = MARKER.format(0, PACKED)
    step = f"#@fabbench begin 000-tcp-r1/x benchmark=nccl\n{WHOLE}#@fabbench end 000-tcp-r1/x 0\n"
    text = f"{before}{step}{marker}"
    ((_, log),) = parse_stream(io.BytesIO(text.encode()), "x")
    assert any("are incomplete" in finding.meaning for finding in log.findings)
