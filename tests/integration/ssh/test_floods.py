"""Programs that print without end on other hosts.

Limits hold, and neither memory nor disks fill up.
"""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fabbench.execution.session import TIME_UP, TOO_MUCH
from fabbench.model.log import Outcome
from fabbench.remote.session import KEPT_KIB
from tests.support.host_fixtures import BOTH_SSH_CLIENTS, Labs
from tests.support.hosts import HOME, Lab, processes
from tests.support.peak_memory import PROGRAM, peak_mib
from tests.support.ssh_faults import SLOW, running, tcp
from tests.support.ssh_runs import STORE, hosts, nothing_left

pytestmark = [pytest.mark.lab, pytest.mark.slow, BOTH_SSH_CLIENTS]

FLOOD = f"""#!{sys.executable}
import os, sys, time
begun, sent, rate, fd = time.monotonic(), 0, RATE * 1e6, 1
if IN_FILE:
    fd = os.open(os.environ["NCCL_DEBUG_FILE"].replace("%", ""), os.O_CREAT | os.O_WRONLY)
while True:
    sent += os.write(fd, (b"x" * WIDTH + b"\\n") * max(1, 50_000 // WIDTH))
    time.sleep(max(0, sent / rate - (time.monotonic() - begun)))
"""
MAX_MIB = 250


def argv(site: Lab, rate: float, width: int, *more: str, debug: bool = False) -> list[str]:
    """Put the program on the hosts; the command line that runs it."""
    program = site[0].home / "flood/all_reduce_perf"
    program.parent.mkdir(exist_ok=True)
    text = (
        FLOOD.replace("RATE", str(rate)).replace("WIDTH", str(width)).replace("IN_FILE", str(debug))
    )
    program.write_text(text)
    program.chmod(0o755)
    place = ("--on", "ssh", *hosts(site), "--bin-dir", str(HOME / "flood"), "--gpus", "1")
    return [
        sys.executable,
        "-c",
        PROGRAM,
        "run",
        "nccl",
        *place,
        *SLOW,
        *more,
        "--store",
        str(STORE),
    ]


def largest(site: Lab) -> int:
    """The size of the largest file of a run on any host, in MiB."""
    return (
        max((_size(path) for host in site.hosts for path in _files(host.path("/tmp"))), default=0)
        >> 20
    )


def _files(tmp: Path) -> Iterator[Path]:
    # Not Path.glob, which fails where a directory goes away meanwhile.
    for run in tmp.glob("fabbench-*"):
        for folder, _, names in os.walk(run):
            yield from (Path(folder, name) for name in names)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


@pytest.mark.parametrize(("number", "rate", "width"), [(0, 0.7, 5), (1, 7, 100), (2, 200, 200)])
def test_a_program_that_prints_fast(lab: Labs, number: int, rate: float, width: int) -> None:
    """It ends in its time, at any rate.

    While it prints it is not silent: one client has either limit.
    """
    site, seen = lab(2), 0
    limit = ("--timeout", "--silence")[(number + (site.ssh_client == "openssh")) % 2]
    with (
        nothing_left(site),
        running(site, argv(site, rate, width, limit, "4", "--timeout", "6")) as run,
    ):
        while not processes.eventually(lambda: run.process.poll() is not None, 0.2):
            seen = max(seen, largest(site))
        assert run.ends() == 4
    log = tcp(site)
    assert log.outcome is Outcome.TIMEOUT
    assert any(why in str(log.reason) for why in (TIME_UP, TOO_MUCH)), log.reason
    assert seen <= KEPT_KIB >> 10
    assert peak_mib(run.err) < MAX_MIB


def test_a_debug_file_that_grows_without_end(lab: Labs) -> None:
    """Nothing holds back a rank that writes into a file: it is ended."""
    site = lab(2, tmp="900m")
    with (
        nothing_left(site),
        running(site, argv(site, 60, 200, "--timeout", "60", debug=True)) as run,
    ):
        assert run.ends() == 4
    assert TOO_MUCH in str(tcp(site).reason)
    assert peak_mib(run.err) < MAX_MIB
