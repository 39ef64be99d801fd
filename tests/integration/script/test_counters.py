"""NIC counters of rendered scripts that run on real hosts, and of real jobs."""

import json
import re
import sys
from dataclasses import replace
from typing import Any

import pytest

from fabbench.counters.execution_counters import ExecutionCounters
from fabbench.model.log import Log, Outcome
from tests.support.host_fixtures import Labs
from tests.support.hosts import HOME, Lab
from tests.support.script_plans import WAY, inventory, judged, pingpong, printed, run
from tests.support.slurm_runs import nothing_left
from tests.support.slurm_runs import pingpong as pingpong_by_slurm
from tests.support.slurm_runs import run as run_by_slurm
from tests.support.ssh_runs import the_run

pytestmark = [pytest.mark.lab, pytest.mark.slow]
COUNTING = replace(WAY, inventory=inventory())
BIG = ("--fabric", "tcp", "--size", "1M", "--iterations", "40", "--repeat", "1")
"""40 MiB there and back."""
MOVED = range(40 << 20, 3 * 40 << 20)
ELSEWHERE = r"tcp was requested and fab1 moved [\d.]+ MB, fab0 [\d.]+ [kK]?B"


def codes(log: Log) -> list[str]:
    return [finding.code for finding in log.findings if finding.code.startswith("nic-")]


def own(counters: ExecutionCounters) -> dict[str, list[str]]:
    """Host → the fabric's NICs that moved as much as the benchmark did."""
    moved = counters.of_fabric(counters.traffic())
    return {
        host: [nic.name for nic in traffic.nics if nic.total in MOVED]
        for host, traffic in moved.items()
    }


def by_hand(site: Lab, *words: str) -> str:
    """Render a script on the client, and run it on the first host; gives what it printed."""
    rendered = site.run(
        [sys.executable, "-m", "fabbench", "render", *words, "--as", "script"], check=True
    )
    site[0].path(HOME / "script").write_text(rendered.stdout)
    done = site[0].sh(["bash", HOME / "script"], HOSTS="node0 node1", timeout=120)
    assert done.stderr == ""
    return str(done.stdout)


def parsed(site: Lab, text: str) -> list[dict[str, Any]]:
    done = site.run(
        [sys.executable, "-m", "fabbench", "parse", "--format", "json", "-"], given=text
    )
    logs: list[dict[str, Any]] = json.loads(done.stdout)["logs"]
    return logs


def elsewhere(site: Lab) -> str:
    """Bring a program that uses fab1 whatever it is told; gives its directory."""
    for host in site.hosts:
        program = host.path("/tmp/elsewhere/fi_pingpong")
        program.parent.mkdir(exist_ok=True)
        program.write_text('#!/bin/sh\nexec env FI_TCP_IFACE=fab1 /usr/bin/fi_pingpong "$@"\n')
        program.chmod(0o755)
    return "/tmp/elsewhere"


# ---------------------------------------------------------------- scripts that are run by hand


def test_the_interface_that_carried_the_bytes_is_in_the_log(lab: Labs) -> None:
    site = lab(2, trust=True)
    text = by_hand(site, "pingpong", *BIG, "--bin-dir", "/usr/bin")
    assert own(printed(text)) == {"node0": ["fab1"], "node1": ["fab1"]}
    (log,) = parsed(site, text)
    assert log["outcome"] == "ok"
    assert [
        finding["code"] for finding in log["findings"] if finding["code"].startswith("nic-")
    ] == []


def test_bytes_that_went_over_another_interface_are_found_in_the_log(lab: Labs) -> None:
    site = lab(2, trust=True)
    words = ("--interface", "fab0", "--bin-dir", elsewhere(site))
    (log,) = parsed(site, by_hand(site, "pingpong", *BIG, *words))
    (found,) = (finding for finding in log["findings"] if finding["code"].startswith("nic-"))
    assert (found["code"], found["severity"]) == ("nic-wrong-network", "warning")
    assert re.match(f"node0: {ELSEWHERE}; the same on node1.", found["meaning"]), found["meaning"]


def test_a_host_whose_driver_hangs_delays_a_run_and_does_not_fail_it(lab: Labs) -> None:
    site = lab(2, trust=True, fresh=True)
    site[1].sh(["sh", "-c", HANGS])
    of = pingpong("tcp", repeats=1)
    done = run(site, of, COUNTING)
    assert done.returncode == 0, done.stdout + done.stderr
    (log,) = judged(done, of).values()
    assert log.outcome is Outcome.OK
    found = [finding.meaning for finding in log.findings if finding.code == "nic-counters"]
    missing = "No NIC counters of node1 from {} this execution."
    assert found == [missing.format(when) for when in ("before", "after")]


HANGS = """
set -e
mkdir -p /run/class/infiniband/hangs/ports/1 && cp -a /sys/class/net /run/class/
mkfifo /run/class/infiniband/hangs/ports/1/rate
mount --bind /run/class /sys/class
"""


# ---------------------------------------------------------------- jobs


def test_a_job_of_slurms_has_the_counters_of_its_nodes(lab: Labs) -> None:
    hosts = lab(2, slurm=True)
    with nothing_left(hosts):
        done = run_by_slurm(hosts, pingpong_by_slurm(*BIG, "--repeat", "2"))
    assert done.returncode == 0, done.stderr
    stored = the_run(hosts)
    assert len(stored.executions) == 2
    for execution in stored.executions:
        counted = stored.counters(execution.id)
        assert counted is not None
        assert own(counted) == {"node0": ["fab1"], "node1": ["fab1"]}
        assert [codes(log) for log in execution.logs] == [[]]
        assert "#@fabbench nics" not in (execution.path / "output.log").read_text()
    shown = hosts.run([sys.executable, "-m", "fabbench", "show", stored.path], check=True).stdout
    assert re.search(r"\| node1 +\| fab1 +\| +[\d.]+ MB", shown), shown


def test_a_job_that_went_over_another_interface_is_found_out(lab: Labs) -> None:
    hosts = lab(2, slurm=True)
    folder = elsewhere(hosts)
    words = [folder if word == "/usr/bin" else word for word in pingpong_by_slurm(*BIG)]
    done = run_by_slurm(hosts, [*words, "--interface", "fab0"])
    assert "off-fabric: Domain fab0 was requested, but fab1 was used" in done.stderr
    (log,) = the_run(hosts).logs("tcp")
    assert codes(log) == ["nic-wrong-network"]
    meaning = next(
        finding.meaning for finding in log.findings if finding.code == "nic-wrong-network"
    )
    assert re.match(f"node0: {ELSEWHERE}; the same on node1.", meaning), meaning
