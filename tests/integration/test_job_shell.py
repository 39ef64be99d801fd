"""What `fabbench watch` asks hosts of a job besides counters, by a real shell.

NCCL's RAS is a program that plays recordings of it; stand-ins print in the form of `rdma`
and `nvidia-smi`.
"""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from fabbench.counters.watch import HostSamples, JobView
from fabbench.model.errors import MachineError
from fabbench.model.log import Finding
from fabbench.remote import counter_shell, ras_shell
from fabbench.remote.counter_shell import rounds
from fabbench.remote.inspector_shell import InspectorShells
from fabbench.remote.ras_shell import RasThread
from fabbench.remote.recorder_shell import copy_dumps
from fabbench.remote.transport import Here, Transport
from fabbench.runs.parse_file import parse_together
from tests.support.hosts import processes
from tests.support.paths import DATA
from tests.support.ras_server import ras
from tests.support.recorder_program import ranks_that_dump

pytestmark = pytest.mark.local
H200 = DATA / "h200"
OLD = DATA / "corpus/nccl/a-ras-report-of-ranks-that-differ.txt"


QUEUE_PAIRS = """\
link mlx5_0/1 lqpn 1 type GSI state RTS sq-psn 0 comm [ib_core]
link mlx5_0/1 lqpn 41 rqpn 40 type RC state RTS rq-psn 1 sq-psn 0 pdn 9 pid 1523 comm ib_send_bw
link mlx5_0/1 lqpn 42 rqpn 41 type RC state RTS rq-psn 1 sq-psn 0 pdn 9 pid 1523 comm ib_send_bw
link mlx5_1/1 lqpn 7 type UD state RTS sq-psn 0 pdn 3 pid 12 comm python3
"""
TOPOLOGY = """\
\t\x1b[4mGPU0\tGPU1\tNIC0\tNIC1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m
GPU0\t X \tNV18\tPIX\tNODE\t0-47\t0\t\tN/A
GPU1\tNV18\t X \tSYS\tSYS\t48-95\t1\t\tN/A
NIC0\tPIX\tSYS\t X \tNODE\t\t\t\t
NIC1\tNODE\tSYS\tNODE\t X \t\t\t\t

Legend:

  X    = Self
  PIX  = Connection traversing at most a single PCIe bridge

NIC Legend:

  NIC0: mlx5_0
  NIC1: mlx5_1
"""
DEVICES = [
    "mlx5_0: queue pairs of ib_send_bw (process 1523): 2.",
    "mlx5_1: queue pairs of python3 (process 12): 1.",
    "nearest to GPU0 (PIX): mlx5_0.",
    "nearest to GPU1 (SYS): mlx5_0 mlx5_1.",
]


def test_devices_are_told_once_where_tools_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in (("rdma", QUEUE_PAIRS), ("nvidia-smi", TOPOLOGY)):
        (tmp_path / f"{name}.txt").write_text(text)
        (tmp_path / name).write_text(f"#!/bin/sh\ncat {tmp_path}/{name}.txt\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    with closing(Here("a")) as here:
        hosts = {"a": HostSamples()}
        assert [*rounds({"a": here}, hosts, 0.1, 0.2)] == [{}] * 3
        assert [*rounds({"a": here}, hosts, 1000, 0.1)] == [{}] * 2
    notes = [*hosts["a"].notes]
    assert [note for note in notes if note in DEVICES] == DEVICES


def test_devices_are_told_again_when_the_job_that_was_waited_for_moves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each time that `rdma` is asked, a process of another number has the queue pairs."""
    said = 'echo "link a/1 lqpn 41 type RC pid $(wc -l <asked) comm job"'
    (tmp_path / "rdma").write_text(f"#!/bin/sh\ncd {tmp_path}\necho >>asked\n{said}\n")
    (tmp_path / "rdma").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    moves = iter([False, False, True])
    monkeypatch.setattr(counter_shell, "carries", lambda _: next(moves))
    hosts = {"a": HostSamples()}
    with closing(Here("a")) as here:
        sampling = rounds({"a": here}, hosts, 0.2, 1, wait_s=60)
        took = [hosts["a"].newest.seconds or 0 for failed in sampling if not failed]
    assert len(took) == 8  # Three until it moves, and five in a second
    assert hosts["a"].total.seconds == pytest.approx(sum(took[2:]))
    notes = [note for note in hosts["a"].notes if "queue pairs" in note]
    assert notes == [f"a: queue pairs of job (process {number}): 1." for number in (1, 2)]


def test_data_that_do_not_come_are_not_waited_for_any_longer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(counter_shell, "carries", lambda _: False)
    hosts = {"a": HostSamples()}
    with closing(Here("a")) as here:
        assert [*rounds({"a": here}, hosts, 0.1, 1000, wait_s=0.3)] == [{}] * 4


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ras_shell, "STILL_S", 0.1)


@contextmanager
def asking(address: str) -> Iterator[RasThread]:
    with closing(Here("b")) as here:
        hosts: dict[str, Transport | MachineError] = {"a": MachineError("No route."), "b": here}
        thread = RasThread(hosts, address)
        thread.start()
        yield thread
        thread.over.set()
        thread.join(30)
        assert not thread.is_alive()


def view(*recordings: str | Path) -> JobView:
    """Return what is shown once a recording has lasted."""
    with ras(*recordings) as address, asking(address) as thread:
        assert processes.eventually(lambda: bool(thread.view.findings), 30), thread.view
        return thread.view


def test_ranks_that_wait_are_named_by_the_largest_communicator() -> None:
    shown = view(H200 / "ras-4-sleep.json")
    assert shown.waits == "ranks 1, 2 wait for rank 3 (192.0.2.2, process 12625)"
    assert {each.code for each in shown.findings} == {"ras-mismatch"}
    assert shown.note == "NCCL's RAS answers on b."


def test_a_rank_that_does_not_answer() -> None:
    shown = view(H200 / "ras-stopped.json")
    assert shown.waits == "rank 0 waits for rank 1 (127.0.0.1, process 15267)"
    assert {each.code for each in shown.findings} == {"ras-incomplete"}


@pytest.mark.parametrize("recording", [H200 / "ras-4-sleep.txt", OLD])
def test_text_of_an_old_version(recording: Path) -> None:
    shown = view(recording)
    assert {each.code for each in shown.findings} == {"ras-mismatch"}
    assert not shown.waits


def test_a_process_that_is_stopped_listens_too_and_another_one_answers() -> None:
    assert view("--silent", "1", H200 / "ras-stopped.json").findings


def test_counts_that_differ_at_one_moment_are_usual(tmp_path: Path) -> None:
    moving = []
    text = (H200 / "ras-4-sleep.json").read_text()
    for number in range(3):
        path = tmp_path / f"{number}.json"
        path.write_text(text.replace('"AllReduce": 4', f'"AllReduce": {10 + number}'))
        moving.append(path)
    seen: list[JobView] = []
    with ras(*moving, H200 / "ras-stopped.json") as address, asking(address) as thread:

        def has_lasted() -> bool:
            seen.append(thread.view)
            return bool(thread.view.findings)

        assert processes.eventually(has_lasted, 30)
    codes = {each.code for shown in seen for each in shown.findings}
    assert codes == {"ras-incomplete"}


def test_nobody_listens_or_what_listens_is_no_ras(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("220 smtp.example ESMTP\n")
    for address in ("127.0.0.1:9", "[::1]:9"):
        with asking(address) as thread:
            assert processes.eventually(lambda: "does not answer" in thread.view.note, 30)
    with ras(other) as address, asking(address) as thread:
        assert processes.eventually(lambda: "does not answer" in thread.view.note, 30)


class Written:
    """A folder into which a fake inspector writes, and what of it a host shell has read."""

    def __init__(self, folder: Path, here: Transport) -> None:
        folder.mkdir()
        self.folder = folder
        lost = MachineError("No route to host.")
        self._shells = InspectorShells({"a": here, "b": lost}, str(folder))

    def add(self, pid: str, text: str) -> None:
        with (self.folder / f"node-a-pid{pid}.log").open("a") as file:
            file.write(text)

    def read(self) -> list[str]:
        self._shells.lines.clear()
        self._shells.read()
        return [*self._shells.lines]


@pytest.fixture
def written(tmp_path: Path) -> Iterator[Written]:
    with closing(Here("a")) as here:
        yield Written(tmp_path / "the job's folder", here)


def calls_of(*numbers: int) -> str:
    return "".join(f'{{"header":{{"id":"0x1","rank":{number}}}}}\n' for number in numbers)


def test_what_the_inspector_adds_is_read_once_and_nothing_that_is_older(written: Written) -> None:
    written.add("1", calls_of(1))
    assert written.read() == []
    assert written.read() == []
    written.add("1", calls_of(2, 3) + '{"header":{"i')
    written.add("2", calls_of(4))
    written.add("; touch x", calls_of(9))
    assert written.read() == [*calls_of(2, 3).splitlines(), '{"header":{"i', *calls_of(4).split()]
    written.add("1", 'd":"0x1","rank":5}}\n' + calls_of(6))
    assert written.read() == calls_of(6).splitlines()
    assert {each.name for each in written.folder.iterdir()} == {
        "node-a-pid1.log",
        "node-a-pid2.log",
        "node-a-pid; touch x.log",
    }


def test_of_much_only_the_newest_is_read_and_a_new_file_of_the_same_name(written: Written) -> None:
    written.add("1", calls_of(1))
    assert written.read() == []
    written.add("1", calls_of(*range(10_000, 20_000)))
    read = written.read()
    assert read[-1] == calls_of(19_999).strip()
    assert 1000 < len(read) < 3000
    (written.folder / "node-a-pid1.log").write_text(calls_of(7))
    assert written.read() == calls_of(7).splitlines()


def test_dumps_of_ranks_are_copied_for_explain(tmp_path: Path) -> None:
    """Of a host that does not answer there are none."""
    recordings = [H200 / f"fr-sleep-{rank}" for rank in range(2)]
    with ranks_that_dump(tmp_path, *recordings), closing(Here("a")) as here:
        hosts: dict[str, Transport | MachineError] = {"a": here, "b": MachineError("No route.")}
        assert copy_dumps(hosts, tmp_path) == 2
    copied = [tmp_path / f"rank_{rank}" for rank in range(2)]
    assert [each.read_bytes() for each in copied] == [each.read_bytes() for each in recordings]
    shown, known = ([*map(str, paths)] for paths in (copied, recordings))
    assert findings(shown) == findings(known) != []


def findings(names: list[str]) -> list[Finding]:
    (log,) = parse_together(names)
    return [*log.findings]


@pytest.mark.slow
def test_a_rank_that_is_stopped_does_not_dump_and_others_do_again(tmp_path: Path) -> None:
    recordings = [H200 / f"fr-4-mismatch-{rank}" for rank in range(3)]
    with ranks_that_dump(tmp_path, "-", *recordings), closing(Here("a")) as here:
        for _ in range(2):
            assert copy_dumps({"a": here}, tmp_path) == 3
    assert not (tmp_path / "rank_0").exists()


def test_without_pipes_there_are_no_dumps(tmp_path: Path) -> None:
    with closing(Here("a")) as here:
        assert copy_dumps({"a": here}, tmp_path) == 0
