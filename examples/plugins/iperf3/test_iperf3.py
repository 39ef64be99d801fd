from pathlib import Path

from fabbench.benchmarks.iperf3 import Iperf3Work
from fabbench.model.hosts import Target
from fabbench.plan.request import RunRequest
from fabbench.testing import Replay, read, sample_run

LOG = """\
Connecting to host 10.0.0.1, port 5201
Starting Test: protocol: TCP, 1 streams, 131072 byte blocks, omitting 0 seconds, 10 second test, tos 0
[ ID] Interval           Transfer     Bitrate         Retr
[  5]   0.00-10.00  sec  56.4 GBytes  48.4 Gbits/sec    0             sender
[  5]   0.00-10.00  sec  56.4 GBytes  48.0 Gbits/sec                  receiver

iperf Done.
"""


def test_a_log_is_read() -> None:
    (log,) = read(LOG)
    assert (log.benchmark, log.outcome, log.facts["transport"]) == ("iperf3", "ok", "socket")
    assert [(point.size, point.values) for point in log.points] == [(131072, (6e9,))]


def test_a_cut_log_is_truncated() -> None:
    assert [log.outcome for log in read(LOG.removesuffix("iperf Done.\n"))] == ["truncated"]


def test_a_run_is_kept_and_judged(tmp_path: Path) -> None:
    request = RunRequest(
        benchmark="iperf3",
        work=Iperf3Work(sizes=(131072,)),
        target=Target(name="replay", launcher="replay"),
        fabrics=("tcp",),
        repeats=2,
        store=tmp_path,
    )
    run, result = sample_run(request, Replay(log=lambda execution: LOG.splitlines()))
    assert [log.outcome for log in run.logs("tcp")] == ["ok", "ok"]
    assert run.logs("tcp") == result.logs["tcp"]
