"""docs/architecture.md against the code: its layers, its names, and the walk through one run."""

import re
import sys
import tomllib
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from pkgutil import resolve_name
from types import FrameType, TracebackType
from typing import Any, Self

import pytest

from fabbench.execution.mpirun import MpiHosts
from fabbench.execution.runner import run_steps
from fabbench.execution.session import Output
from fabbench.launchers import launchers
from fabbench.model.compat import override
from fabbench.model.hosts import Host
from fabbench.model.log import Ending
from fabbench.model.plan import Command, Execution, Step
from fabbench.testing import Replay, ReplayLauncher
from tests.support.nccl_text import nccl_text
from tests.support.paths import ROOT

TEXT = (ROOT / "docs" / "architecture.md").read_text("utf-8")
WALK = re.findall(r"^\| \d+ \| `(fabbench\.[\w.]+)` \|", TEXT, re.MULTILINE)
EFA = "NET/OFI Selected provider is efa, fabric is efa (found 4 nics)\na:1:1 [0] NCCL INFO Using network AWS Libfabric"


def test_the_layers_are_those_of_the_contract() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]
    (layers,) = (contract["layers"] for contract in contracts if contract["type"] == "layers")
    shown = TEXT.partition("## Layers")[2].partition("```text\n")[2].partition("```")[0]
    assert shown.split("\n")[:-1] == layers


def test_what_is_named_exists() -> None:
    assert len(WALK) > 20
    for name in re.findall(r"`(fabbench\.[\w.]+)`", TEXT):
        if name != "fabbench.yaml":
            resolve_name(name)
    for path in re.findall(r"`((?:tests|docs|src)/[\w/.]+)`", TEXT):
        assert (ROOT / path).exists(), path


def test_a_run_calls_what_the_walk_names_in_its_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = {**launchers(), "replay": ReplayLauncher(_Played(log=lambda execution: ()))}
    monkeypatch.setattr("fabbench.launchers.launchers", lambda: known)
    called = _called(["run", "nccl", "--ab", "--on", "replay", "--store", str(tmp_path)])
    rest = iter(called)
    assert [name for name in WALK if name not in rest] == [], called[:200]


def _called(arguments: Sequence[str]) -> list[str]:
    """Run a command; gives the calls of what the walk names, in order."""
    from fabbench.cli import cli
    from tests.support.command_line import runner

    called: list[str] = []
    wanted = set(WALK)

    def note(frame: FrameType, event: str, argument: Any) -> None:
        del argument
        name = f"{frame.f_globals.get('__name__')}.{frame.f_code.co_qualname}"
        if event == "call" and name in wanted:
            called.append(name)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        done = runner().invoke(cli, arguments)
    finally:
        sys.setprofile(before)
    assert "| Message Size |" in done.stdout, done.output
    return called


# ---------------------------------------------------------------- a session whose ranks print a log


class _Played(Replay):
    """Hosts on which steps run over sessions."""

    @override
    def execute(self, execution: Execution) -> Generator[str, None, Ending]:
        return run_steps(lambda step: _Session(step, self.inventory.hosts), execution)


@dataclass
class _Mpirun:
    name: str = "mpirun"
    status: int | None = None


class _Session:
    """See `fabbench.execution.session.Session`."""

    folder = "/nowhere"

    def __init__(self, step: Step, hosts: Sequence[Host]) -> None:
        self._step, self._hosts = step, hosts
        self._mpirun = _Mpirun()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def mpi_hosts(self) -> MpiHosts:
        assert self._hosts[0].mpi
        return MpiHosts(mpi=self._hosts[0].mpi, addresses=tuple(host.name for host in self._hosts))

    def exec(self, command: Command) -> _Mpirun:
        del command
        return self._mpirun

    def lines(self, **limits: Any) -> Iterator[Output]:
        del limits
        efa = any("Libfabric" in command.env.get("NCCL_NET", "") for command in self._step.commands)
        text = f"a:1:1 [0] NCCL INFO {EFA if efa else 'Using network Socket'}\n"
        text += nccl_text([(1 << power, 1.0) for power in range(3, 32)], ranks=8)
        yield from (Output(self._mpirun, line) for line in text.splitlines())
        self._mpirun.status = 0
        yield Output(self._mpirun, None)

    def address(self, host: int) -> str:
        return self._hosts[host].name

    def listens(self, program: object, port: int) -> bool:
        del program, port
        return False

    def stop(self, programs: object) -> list[Output]:
        del programs
        return []
