"""perftest and the fabtests over rails, from request to judged log, with stand-ins."""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from fabbench.analysis.aggregate import Column
from fabbench.analysis.compare import compare
from fabbench.analysis.highlights import rails_of
from fabbench.benchmarks.fabtests.plan import PROGRAMS, FabtestsWork
from fabbench.benchmarks.perftest.plan import TESTS, PerftestWork
from fabbench.benchmarks.standard import Work
from fabbench.model.hosts import Host
from fabbench.model.log import Outcome
from fabbench.model.plan import Execution, Step
from tests.support import rail_programs
from tests.support.local_runs import fabbench, nothing_left
from tests.support.rail_plans import first_execution, measured

NUMBERS = range(5)
FIGURES = [10000, 10001, 10002, 5000, 10004]


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """One benchmark over the rails of one host."""

    name: str
    work: Callable[[bool], Work]
    """Whether the rails run together → the work."""
    fabric: str
    host: Host
    programs: tuple[str, ...]
    device: str
    """Its number is to be filled in."""
    unit: int
    """Bytes per second in one of the printed figures."""
    facts: dict[str, str]
    other: str
    """The domain or device that a program uses which uses another than it was asked for."""
    off_fabric: str
    """The reason then, as a pattern."""

    def execution(self, folder: Path, *, at_once: bool) -> tuple[Execution, Host]:
        host = replace(self.host, programs=rail_programs.made(folder, *self.programs))
        return first_execution(self.name, self.work(at_once), self.fabric, (host,)), host


PERFTEST = Benchmark(
    name="perftest",
    work=lambda at_once: PerftestWork(together=at_once),
    fabric="ib",
    host=Host(name="here", devices={f"mlx5_{number}": "ib" for number in NUMBERS}),
    programs=TESTS,
    device="mlx5_{}",
    unit=1 << 20,
    facts={"transport": "RC"},
    other="mlx5_4",
    off_fabric=r"Step mlx5_0-65536 requested device mlx5_0, but the \w+ used mlx5_4\.",
)
FABTESTS = Benchmark(
    name="fabtests",
    work=lambda at_once: FabtestsWork(one_by_one=not at_once),
    fabric="efa",
    host=Host(
        name="here",
        providers={"efa": frozenset({"rdm"})},
        domains={"efa": tuple(f"rdmap{number}-rdm" for number in NUMBERS)},
        gpus=2,
    ),
    programs=tuple(PROGRAMS),
    device="rdmap{}",
    unit=1_000_000,
    facts={"transport": "efa", "fabric": "efa", "endpoint": "rdm"},
    other="rdmap4-rdm",
    off_fabric=r"Step \S+ requested domain rdmap0-rdm, but the \w+ used rdmap4-rdm\.",
)


def with_env(step: Step, **env: str) -> Step:
    return replace(
        step, commands=tuple(replace(each, env={**each.env, **env}) for each in step.commands)
    )


of_both = pytest.mark.parametrize("benchmark_", [PERFTEST, FABTESTS], ids=lambda each: each.name)


@of_both
@pytest.mark.slow
@pytest.mark.parametrize("at_once", [True, False])
def test_rails_are_told_apart_proven_and_summed(
    tmp_path: Path, benchmark_: Benchmark, at_once: bool
) -> None:
    execution, host = benchmark_.execution(tmp_path, at_once=at_once)
    log = measured(execution, host)
    assert (log.outcome, log.reason, log.case) == (Outcome.OK, None, benchmark_.programs[0])
    assert benchmark_.facts.items() <= log.facts.items()
    assert not log.findings
    names = [benchmark_.device.format(number) for number in NUMBERS]
    assert sorted(point.labels["device"] for point in log.points) == sorted(names * 2)
    (spread,) = rails_of(compare([Column(label="ib", logs=(log,), source="x")], metric="bandwidth"))
    assert list(spread.figures.values()) == [figure * benchmark_.unit for figure in FIGURES]
    assert spread.total == sum(FIGURES) * benchmark_.unit
    assert spread.slowest == names[rail_programs.SLOW]
    assert list(spread.lagging()) == [spread.slowest]
    assert spread.together is at_once


@of_both
@pytest.mark.slow
def test_another_device_than_asked_for_is_off_fabric(tmp_path: Path, benchmark_: Benchmark) -> None:
    execution, host = benchmark_.execution(tmp_path, at_once=False)
    first, *rest = execution.steps
    log = measured(
        replace(execution, steps=(with_env(first, STANDIN_DEVICE=benchmark_.other), *rest)), host
    )
    assert log.outcome is Outcome.OFF_FABRIC
    assert re.fullmatch(benchmark_.off_fabric, str(log.reason))


def test_without_a_word_of_libfabric_nothing_is_proven(tmp_path: Path) -> None:
    execution, host = FABTESTS.execution(tmp_path, at_once=True)
    steps = tuple(with_env(step, FI_LOG_LEVEL="warn") for step in execution.steps)
    assert measured(replace(execution, steps=steps), host).outcome is Outcome.UNPROVEN


@pytest.mark.local
def test_a_machine_without_devices_says_so(tmp_path: Path) -> None:
    done = fabbench(
        tmp_path,
        "run",
        "perftest",
        "--on",
        "local",
        "--fabric",
        "ib",
        "--device",
        "mlx5_0",
        "--",
        "--odp",
    )
    assert done.returncode == 4, done.stderr
    assert "Did not detect devices" in done.stdout
    assert "failed" in done.stdout
    assert "--odp" in next(tmp_path.glob("*/exec/*/plan.json")).read_text()
    assert nothing_left(tmp_path)
