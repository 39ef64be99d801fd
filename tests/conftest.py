"""What all tests share."""

import gc
import os
import re
import signal
import sys
from collections import Counter
from collections.abc import Generator
from operator import attrgetter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.support.cluster_fixtures import cluster, jobsets, kwok, mpijobs, namespace, trainjobs
from tests.support.host_fixtures import lab, labs, mpi
from tests.support.log_fixtures import logged
from tests.support.skypilot_fixtures import skypilot
from tests.support.store_fixtures import store, stored
from tests.support.vms import rdma

__all__ = [
    "cluster",
    "jobsets",
    "kwok",
    "lab",
    "labs",
    "logged",
    "mpi",
    "mpijobs",
    "namespace",
    "rdma",
    "skypilot",
    "store",
    "stored",
    "trainjobs",
]

# Collection only makes what stays.
gc.disable()

# Started in the background of a script, or by nohup, what tests start would ignore Ctrl-C or
# SIGHUP.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

# Programs write into pipes as those of users do: through a buffer.
os.environ.pop("PYTHONUNBUFFERED", None)

# Programs of `#!/usr/bin/env python3` start this Python: the shim of a version manager takes longer
# than they do.
os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"

# A build on GitHub shows its own summary, not that of what tests run.
os.environ.pop("GITHUB_STEP_SUMMARY", None)

# Tests run beside each other on one machine: fabbench would say so in each.
os.environ["FABBENCH_NEIGHBORS"] = "ignore"

# No test may fail because the machine is busy. `make nightly` takes the profile `nightly`.
for profile, examples in (("ci", 10), ("nightly", 100)):
    settings.register_profile(
        profile, max_examples=examples, deadline=None, suppress_health_check=[HealthCheck.too_slow]
    )
settings.load_profile("ci")


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Return how many tests run concurrently: one more where tests wait for programs."""
    waiting = "not local" not in config.getoption("markexpr")
    return min((os.cpu_count() or 1) + waiting, 16)


_OWN_MARKS = re.compile(r"^pytestmark = (.*)$", re.MULTILINE)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not load modules whose own marks are left out: those of other tiers are a quarter."""
    chosen = config.getoption("markexpr")
    if collection_path.suffix != ".py" or " or " in chosen:
        return None
    own = _OWN_MARKS.search(collection_path.read_text("utf-8"))
    left_out = re.findall(r"\bnot (\w+)", chosen)
    return True if own and any(f"mark.{name}" in own[1] for name in left_out) else None


_WORKER = os.environ.get("PYTEST_XDIST_WORKER", "")


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Let every second worker begin with the last folder and its last module.

    In a new clone each would otherwise compile all modules, at the same time as the others.
    """
    report = yield
    if isinstance(collector, pytest.Dir) and _WORKER[-1:] in {*"13579"}:
        report.result.reverse()
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Bring the tests into one order again, which workers have to share."""
    if _WORKER:
        items.sort(key=attrgetter("path"))


def pytest_collection_finish() -> None:
    """Let the garbage collector leave alone what collection made: it stays to the end."""
    gc.enable()
    gc.set_threshold(100_000, 20, 20)  # as the command line does
    gc.freeze()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what tests counted: a row per benchmark."""
    totals: dict[str, Counter[str]] = {}
    for report in terminalreporter.getreports("passed") + terminalreporter.getreports("failed"):
        for name, value in report.user_properties if report.when == "call" else ():
            if name == "count":
                benchmark, counts = value
                totals.setdefault(benchmark, Counter()).update(counts)
    if totals:
        terminalreporter.section("damaged logs")
    for benchmark, counts in sorted(totals.items()):
        row = ", ".join(f"{what} {count}" for what, count in counts.items())
        terminalreporter.write_line(f"{benchmark}: {row}")
