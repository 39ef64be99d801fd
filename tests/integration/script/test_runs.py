"""Scripts that run on the hosts of a lab, and what their output is read as."""

import json
import sys
from pathlib import Path

import pytest

from fabbench.execution.script.target import ScriptTarget
from fabbench.model.log import Outcome
from fabbench.model.plan import Command, Step
from tests.support import ep_program
from tests.support.host_fixtures import Labs, standin
from tests.support.hosts import HOME, Lab, processes
from tests.support.script_plans import (
    WAY,
    ep,
    judged,
    nccl,
    nixl,
    of_steps,
    pair,
    pingpong,
    put,
    run,
)

pytestmark = pytest.mark.lab
WORDS = ("a b", "it's", '"$HOME"', "`id`", "x\ny", "", "\\", "\u00fc", "*", "-u")


def left(site: Lab, before: list[str]) -> list[str]:
    return site.left_since(before, 60)


def test_both_configurations_of_pingpong_are_read_back(lab: Labs) -> None:
    site, of = lab(2, trust=True), pingpong("tcp", "tcp")
    before = site.traces()
    done = run(site, of)
    assert (done.returncode, done.stderr) == (0, "")
    found = judged(done, of)
    assert [log.outcome for log in found.values()] == [Outcome.OK] * 4
    assert {point.labels["side"] for log in found.values() for point in log.points} == {
        "server",
        "client",
    }
    assert left(site, before) == []


def test_a_client_that_knows_no_names_gets_an_address(lab: Labs) -> None:
    site, of = lab(2, trust=True), nixl("tcp")
    done = run(site, of)
    assert (done.returncode, done.stderr) == (0, "")
    (log,) = judged(done, of).values()
    assert (log.outcome, log.facts["transport"]) == (Outcome.OK, "socket")


@pytest.mark.slow
def test_one_configuration_alone(lab: Labs) -> None:
    site, of = lab(2, trust=True), pingpong("ofi-tcp", "tcp")
    done = run(site, of, FABRIC="tcp")
    assert [*judged(done, of)] == ["001-tcp-r1", "002-tcp-r2"]
    refused = run(site, of, FABRIC="efa")
    assert (refused.returncode, refused.stdout) == (
        2,
        "FABRIC is efa, but this has ofi-tcp, tcp.\n",
    )


@pytest.mark.parametrize("kind", ["pair", "ranks"])
def test_words_and_environment_arrive_whole(lab: Labs, kind: str) -> None:
    """On this host and on the other one, as ranks and as sides of a pair."""
    site = lab(2, trust=True)
    show = (
        "import json, os, sys; e = os.environ; print('GOT', json.dumps([sys.argv[1:], e['X'], "
        "e.get('HOME')]))"
    )
    listen = "import socket; s=socket.create_server(('', int(sys.argv[-1]))); s.accept()"
    knock = "import socket; socket.create_connection((sys.argv[-1], int(sys.argv[-2])))"
    env = {"X": "".join(WORDS)}
    if kind == "ranks":
        start = (sys.executable, "-c", show, *WORDS)
        commands: tuple[Command, ...] = (Command(argv=start, env=env, unset=("HOME",), ranks=2),)
    else:
        one = (sys.executable, "-c", f"{show}; {listen}", *WORDS, "{port}")
        two = (sys.executable, "-c", f"{show}; {knock}", *WORDS, "{port}", "{server}")
        commands = (
            Command(argv=one, role="server", env=env, unset=("HOME",)),
            Command(argv=two, role="client", host=1, env=env, unset=("HOME",)),
        )
    done = run(site, of_steps(Step(id="000-tcp-r1/a", label="a", timeout_s=20, commands=commands)))
    assert done.returncode == 0, done.stdout + done.stderr
    got = [
        json.loads(row.partition("GOT ")[2]) for row in done.stdout.splitlines() if "GOT " in row
    ]
    assert [(tuple(arrived[: len(WORDS)]), *rest) for arrived, *rest in got] == [
        (WORDS, env["X"], None)
    ] * 2


@pytest.mark.parametrize("kind", ["pair", "ranks"])
def test_a_step_that_takes_too_long_is_a_timeout(lab: Labs, kind: str) -> None:
    site = lab(2, trust=True)
    before = site.traces()
    step = pair(("sleep", "98"), ("sleep", "97"), timeout_s=2)
    if kind == "ranks":
        command = Command(argv=("sleep", "98"), ranks=2)
        step = Step(id="000-tcp-r1/a", label="a", timeout_s=2, commands=(command,))
    done = run(site, of_steps(step))
    assert (done.returncode, done.stdout.splitlines()[-1]) == (4, "#@fabbench end 000-tcp-r1/a 124")
    (log,) = judged(done, of_steps(step)).values()
    assert log.outcome is Outcome.TIMEOUT
    assert left(site, before) == []


def test_a_client_that_fails_ends_its_server_and_the_next_step_runs(lab: Labs) -> None:
    site = lab(2, trust=True)
    before = site.traces()
    listen = (
        "import socket, sys, time; s = socket.create_server(('', int(sys.argv[1]))); time.sleep(98)"
    )
    steps = (
        pair((sys.executable, "-c", listen, "{port}"), ("false",), name, timeout_s=60)
        for name in "ab"
    )
    done = run(site, of_steps(*steps))
    assert [line.split()[-1] for line in done.stdout.splitlines() if "#@fabbench end" in line] == [
        "1",
        "1",
    ]
    assert left(site, before) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "number"),
    [
        *(("nccl", number) for number in ("TERM", "INT", "KILL")),
        *(("pingpong", number) for number in ("TERM", "HUP", "KILL")),
    ],
)
def test_a_signal_in_the_middle_leaves_nothing(lab: Labs, kind: str, number: str) -> None:
    """What scancel and a preemption send first, Ctrl-C, a terminal that is closed, and kill -9."""
    site = lab(2, trust=True)
    of = nccl("tcp") if kind == "nccl" else of_steps(pair(("sleep", "98"), ("true",)))
    words = put(site, of)
    before = site.traces()
    with standin(*site.hosts, HANG_AT="256"):
        output = site[0].path(HOME / "script.out")
        # A shell with job control does not have its background jobs ignore SIGINT.
        begin = f'set -m; "$@" >{HOME}/script.out 2>&1 & echo $! >{HOME}/script.pid'
        site[0].sh(["bash", "-c", begin, "bash", *words])
        waiting = (
            (lambda: "   128 " in output.read_text()) if kind == "nccl" else (lambda: _sleeps(site))
        )
        assert processes.eventually(waiting), output.read_text()
        site[0].sh(["kill", f"-{number}", site[0].path(HOME / "script.pid").read_text().strip()])
        assert left(site, before) == []
    told = "fabbench: The script was stopped by a signal.\n" in output.read_text()
    assert told == (number != "KILL")


def _sleeps(site: Lab) -> bool:
    return any(["sleep", "98"] in host.processes().values() for host in site.hosts)


@pytest.mark.slow
def test_pairs_at_the_same_time_are_printed_one_after_another(lab: Labs) -> None:
    """Where the script runs on none of the hosts, as in the launcher of an MPIJob."""
    site = lab(2, trust=True)
    before = site.traces()
    listen = (
        "import socket,sys; s=socket.create_server(('', int(sys.argv[1]))); s.accept(); "
        "print('heard')"
    )
    # The first ones wait for the last: one after another they would wait for ever.
    knock = (
        "import os,socket,sys,time\n"
        "open(f'/tmp/{sys.argv[3]}', 'w').close()\n"
        "while not os.path.exists('/tmp/c'): time.sleep(0.05)\n"
        "socket.create_connection((sys.argv[2], int(sys.argv[1])))"
    )
    server = (sys.executable, "-c", listen, "{port}")
    pairs = (
        pair(server, (sys.executable, "-c", knock, "{port}", "{server}", name), name)
        for name in "abc"
    )
    of = of_steps(*pairs, together=True)
    done = run(site, of, ScriptTarget(hosts=WAY.hosts, here=False))
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == "".join(
        (
            f"#@fabbench begin 000-tcp-r1/{name} \n[fabbench:server] heard\n#@fabbench end "
            f"000-tcp-r1/{name} 0\n"
        )
        for name in "abc"
    )
    for name in "abc":
        site[1].path(f"/tmp/{name}").unlink()
    assert left(site, before) == []


@pytest.mark.parametrize(
    ("program", "case"),
    [("deepep-v2", "test_ep"), pytest.param("uccl-ep", "test_low_latency", marks=pytest.mark.slow)],
)
def test_ranks_of_torch_meet_at_the_first_host(
    lab: Labs, tmp_path: Path, program: str, case: str
) -> None:
    """One process per node that starts its own ranks, or one per GPU, as torchrun's are."""
    site = lab(2, trust=True, share=(tmp_path,))
    of = ep("ib", program, ep_program.made(tmp_path))
    done = run(site, of)
    assert (done.returncode, done.stderr) == (0, "")
    (log,) = judged(done, of).values()
    assert (log.case, log.facts["ranks"]) == (case, 4)
    assert {point.labels["rank"] for point in log.points} == {"0", "1", "2", "3"}
    proven = Outcome.OK if program == "deepep-v2" else Outcome.UNPROVEN
    assert log.outcome is proven, log.reason
