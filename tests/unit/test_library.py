"""`import fabbench`: what it offers, and what a run gives back."""

import contextlib
import fcntl
import os
import subprocess
import sys
from collections.abc import Generator, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import fabbench
from fabbench.benchmarks.nvshmem.plan import NvshmemWork
from fabbench.benchmarks.pingpong.plan import PingpongWork
from fabbench.launchers import Allocation
from fabbench.model.errors import Exit, MachineError, RequestError
from fabbench.model.hosts import Needs, Target
from fabbench.model.log import Ending
from fabbench.model.plan import Execution
from fabbench.plan.request import RunRequest
from fabbench.runs.store import StoredRun
from fabbench.runs.summary import summaries
from fabbench.testing import Replay, ReplayLauncher
from tests.support.paths import LOGS
from tests.support.replay import NVSHMEM
from tests.support.requests import request

NCCL = LOGS / "nccl"


def run_request(store: Path, **more: object) -> RunRequest:
    work = NvshmemWork(min_bytes=64, max_bytes=64, factor=2)
    made = request("nvshmem", work, "efa", target="replay", store=store)
    return replace(made, **more)  # type: ignore[arg-type]


@pytest.fixture
def hosts(monkeypatch: pytest.MonkeyPatch) -> Replay:
    replay = Replay(log=lambda execution: NVSHMEM)
    monkeypatch.setattr("fabbench.launchers.launchers", lambda: {"replay": ReplayLauncher(replay)})
    return replay


def test_functions_are_listed_and_loaded_when_used() -> None:
    assert set(fabbench.__all__) <= set(dir(fabbench))
    assert all(
        callable(getattr(fabbench, name)) for name in set(fabbench.__all__) - {"__version__"}
    )
    with pytest.raises(AttributeError, match="no attribute 'nonesuch'"):
        fabbench.nonesuch  # noqa: B018 - the attribute is what is tested
    program = "import sys, fabbench; print(sorted({'click', 'pandas', 'yaml'} & {*sys.modules}))"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


def test_logs_are_parsed_and_compared() -> None:
    files = (NCCL / "x-ofi-tcp.txt", NCCL / "x-net-socket.txt")
    assert [log.outcome for log in fabbench.parse(*files)] == ["ok", "ok"]
    comparison = fabbench.compare(*files, labels=("ofi", "socket"), metric="busbw")
    assert [column.label for column in comparison.columns] == ["ofi", "socket"]
    assert comparison.status is Exit.FINE
    assert (
        fabbench.compare(fabbench.load(*files, labels=("ofi", "socket")), metric="busbw")
        == comparison
    )
    frame = comparison.to_frame()
    assert list(frame[(frame["size"] == 1 << 26)]["value"]) == [4.36e9, 4.75e9]
    page = comparison._repr_html_()
    assert ">busbw ofi (GB/s)</th>" in page
    assert "<script" not in fabbench.compare(files[0], labels=("<script>",))._repr_html_()
    with pytest.raises(RequestError, match="mixed"):
        fabbench.compare(files[0], fabbench.load(files[1]))
    with pytest.raises(RequestError, match="3 --fabric for 2 inputs"):
        fabbench.load(*files, fabrics=("tcp", "efa", "ib"))
    judged = fabbench.load(*files, fabrics=("efa",))
    assert [log.outcome for each in judged for log in each.logs] == ["off-fabric", "off-fabric"]


def test_a_request_is_made_of_plain_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fabbench.yaml").write_text(
        "targets: {prod: {launcher: ssh, hosts: [a, b], gpus: 4}}\n"
    )
    made = fabbench.request(
        "pingpong", on="prod", sizes=(64, "4K"), gpus=2, fabrics=("tcp",), env={"A": "1"}, repeats=2
    )
    assert made.work == PingpongWork(sizes=(64, 4096))
    assert (made.target.launcher, made.target.hosts, made.target.gpus) == ("ssh", ("a", "b"), 2)
    assert (made.fabrics, made.env, made.repeats, made.store.name) == (
        ("tcp",),
        {"A": "1"},
        2,
        "fabbench-runs",
    )
    for options, said in {
        ("iterations", "x"): "'x' is not a whole number",
        ("iteration", 1): "no option iteration",
        ("fabrics", "tcp"): "fabrics: Expected `array`, got `str`",
        ("on", "nowhere"): "Unknown target nowhere",
    }.items():
        with pytest.raises(RequestError, match=said) as refused:
            fabbench.request("pingpong", **dict([options]))  # type: ignore[arg-type]
        assert refused.value.hint


@pytest.mark.usefixtures("hosts")
def test_a_run_tells_what_happens_and_gives_what_came_of_it(tmp_path: Path) -> None:
    notices: list[str] = []
    result = fabbench.run(run_request(tmp_path, gates=("latency@64<=1ns",)), notify=notices.append)
    assert notices == ["Target replay (a, b).", "nvshmem on efa: 1 execution."]
    assert (result.failure, result.release_failure, result.interrupted) == (None, None, False)
    assert [column.label for column in result.columns] == ["efa"]
    assert result.verdict is not None
    assert len(result.verdict.breaches) == 1
    assert result.status is Exit.BAD_ANSWER
    assert [column.logs for column in fabbench.load(result.path)] == [result.columns[0].logs]


@pytest.mark.usefixtures("hosts")
def test_what_cannot_begin_is_raised(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="--metric nonesuch"):
        fabbench.run(run_request(tmp_path, metric="nonesuch"))
    with pytest.raises(RequestError, match="nothing to compare with"):
        fabbench.run(run_request(tmp_path, gates=("latency:5%",)))
    assert not list(tmp_path.iterdir())


class Failing(Replay):
    """Hosts that are lost in the middle of an execution."""

    def execute(self, execution: Execution) -> Generator[str, None, Ending]:
        yield from ()
        raise MachineError(f"a was lost in {execution.id}.")


class FailingLauncher(ReplayLauncher):
    """Hosts that cannot be let go."""

    @contextlib.contextmanager
    def open(self, target: Target, needs: Needs) -> Iterator[Allocation]:
        with super().open(target, needs) as allocation:
            yield allocation
        raise MachineError("Something is left on a.")


def test_failures_are_values(
    tmp_path: Path, hosts: Replay, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing = FailingLauncher(Failing(log=hosts.log))
    monkeypatch.setattr("fabbench.launchers.launchers", lambda: {"replay": failing})
    result = fabbench.run(run_request(tmp_path))
    assert (str(result.failure), str(result.release_failure)) == (
        "a was lost in 000-efa-r1.",
        "Something is left on a.",
    )
    assert [log.outcome for log in result.columns[0].logs] == ["truncated"]
    assert result.status is Exit.REFUSED
    (stored,) = fabbench.load(result.path)
    assert [log.status for log in stored.logs] == [Exit.REFUSED]
    gated = fabbench.run(run_request(tmp_path, gates=("bandwidth>=1B/s",)))
    assert gated.verdict is not None
    assert (gated.verdict.passed, gated.verdict.status, gated.status) == (
        (),
        Exit.REFUSED,
        Exit.REFUSED,
    )


def test_a_run_goes_on_where_it_was_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured: list[str] = []

    def log(execution: Execution) -> list[str]:
        measured.append(execution.id)
        if len(measured) == 2:
            raise KeyboardInterrupt
        return NVSHMEM

    replay = ReplayLauncher(Replay(log=log))
    monkeypatch.setattr("fabbench.launchers.launchers", lambda: {"replay": replay})
    begun = fabbench.run(run_request(tmp_path, repeats=3))
    assert (begun.interrupted, begun.missing, measured) == (True, 2, ["000-efa-r1", "001-efa-r2"])
    stopped = StoredRun(begun.path)
    with pytest.raises(RequestError, match="has other executions"):
        fabbench.run(run_request(tmp_path, repeats=4), resume=stopped)
    other = os.open(begun.path, os.O_RDONLY)
    fcntl.flock(other, fcntl.LOCK_EX)
    with pytest.raises(RequestError, match="is in progress"):
        fabbench.run(run_request(tmp_path, repeats=3), resume=stopped)
    os.close(other)
    notices: list[str] = []
    done = fabbench.run(run_request(tmp_path, repeats=3), resume=stopped, notify=notices.append)
    assert notices[-1] == "nvshmem on efa: 3 executions, 1 of them kept."
    assert measured[2:] == ["001-efa-r2", "002-efa-r3"]
    assert (done.id, done.path, done.missing, done.status) == (begun.id, begun.path, 0, Exit.FINE)
    assert [log.outcome for log in done.columns[0].logs] == ["ok"] * 3
    (summary,) = summaries(tmp_path)
    assert (summary.outcomes, summary.is_ok) == ({"ok": 3}, True)
    with pytest.raises(RequestError, match=f"All executions of run {begun.id} are ok"):
        fabbench.run(run_request(tmp_path, repeats=3), resume=StoredRun(begun.path))


class OffFabric(Failing):
    """Hosts that use another network, and are lost afterwards."""

    def execute(self, execution: Execution) -> Generator[str, None, Ending]:
        if execution.repeat > 1:
            return (yield from super().execute(execution))
        yield from Replay.execute(self, execution)
        return Ending(refused="tcp carried the data.")


def test_a_result_that_cannot_be_trusted_outweighs_a_lost_host(
    tmp_path: Path, hosts: Replay, monkeypatch: pytest.MonkeyPatch
) -> None:
    replay = ReplayLauncher(OffFabric(log=hosts.log))
    monkeypatch.setattr("fabbench.launchers.launchers", lambda: {"replay": replay})
    result = fabbench.run(run_request(tmp_path, repeats=2))
    assert [log.status for log in result.columns[0].logs] == [Exit.UNTRUSTED, Exit.REFUSED]
    assert result.status is Exit.UNTRUSTED
