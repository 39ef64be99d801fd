"""Scripts that run on the hosts of a lab, and what their output is read as."""

import json
import sys

import pytest

from fabbench.execution.script.target import ScriptTarget
from fabbench.model.log import Outcome
from fabbench.model.plan import Command, Shape, Step
from tests.support.host_fixtures import Labs, standin
from tests.support.hosts import HOME, Lab, processes
from tests.support.script_plans import WAY, judged, nccl, of_steps, pair, pingpong, put, run

pytestmark = pytest.mark.lab
WORDS = ("a b", "it's", '"$HOME"', "`id`", "x\ny", "", "\\", "\u00fc", "{port}x", "*", "-u")


def left(site: Lab, before: list[str]) -> list[str]:
    return site.left_since(before, 60)


def test_both_configurations_of_pingpong_are_read_back(lab: Labs) -> None:
    site, of = lab(2, trust=True), pingpong("tcp", "tcp")
    before = site.traces()
    done = run(site, of)
    assert (done.returncode, done.stderr) == (0, "")
    found = judged(done, of)
    assert [log.outcome for log in found.values()] == [Outcome.OK] * 4
    assert {point.labels["side"] for log in found.values() for point in log.points} == {"server", "client"}
    assert left(site, before) == []


@pytest.mark.slow
def test_one_configuration_alone(lab: Labs) -> None:
    site, of = lab(2, trust=True), pingpong("ofi-tcp", "tcp")
    done = run(site, of, FABRIC="tcp")
    assert [*judged(done, of)] == ["001-tcp-r1", "002-tcp-r2"]
    refused = run(site, of, FABRIC="efa")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "FABRIC is efa" in refused.stderr


@pytest.mark.slow
def test_too_few_hosts(lab: Labs) -> None:
    site = lab(2, trust=True)
    words = put(site, pingpong("tcp"))
    done = site[0].sh(words[:-1], check=False)
    assert done.returncode == 3
    assert "needs 2 hosts, but there are 1: node0" in done.stderr


@pytest.mark.slow
def test_a_host_that_lacks_a_program_stops_it_before_anything_starts(lab: Labs) -> None:
    site = lab(2, trust=True, fresh=True)
    program = "/tmp/ours"
    site[0].sh(["cp", "/usr/bin/fi_pingpong", program])
    done = run(site, pingpong("tcp"), ScriptTarget(hosts=WAY.hosts, programs={"fi_pingpong": program}))
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == (
        f"fabbench: Not found: {program} on node1. Pass its directory with --bin-dir. Nothing was started.\n"
    )


def test_words_and_environment_arrive_whole(lab: Labs) -> None:
    """On this host and on the other one, as ranks and as sides of a pair."""
    site = lab(2, trust=True)
    show = "import json, os, sys; e = os.environ; print('GOT', json.dumps([sys.argv[1:], e['X'], e.get('HOME')]))"
    words = (sys.executable, "-c", show, *WORDS)
    env = {"X": "".join(WORDS)}
    one = Command(argv=words, role="server", env=env, unset=("HOME",))
    listen = "import socket,sys; s=socket.create_server(('', int(sys.argv.pop()))); s.accept()"
    one = Command(argv=(sys.executable, "-c", f"{show}; {listen}", *WORDS, "{port}"), role="server", env=env)
    knock = "import socket,sys; socket.create_connection((sys.argv[-1], int(sys.argv[-2])))"
    two = (sys.executable, "-c", f"{show}; {knock}", *WORDS, "{port}", "{server}")
    steps = (
        Step(
            id="000-tcp-r1/pair",
            label="pair",
            shape=Shape.PAIR,
            timeout_s=20,
            commands=(one, Command(argv=two, role="client", host=1, env=env)),
        ),
        Step(
            id="000-tcp-r1/ranks",
            label="ranks",
            shape=Shape.MPI,
            timeout_s=20,
            commands=(Command(argv=words, env=env, unset=("HOME",), ranks=2),),
            files={"note": WORDS[0]},
        ),
    )
    done = run(site, of_steps(*steps), WAY)
    assert done.returncode == 0, done.stdout + done.stderr
    got = [json.loads(row.partition("GOT ")[2]) for row in done.stdout.splitlines() if "GOT " in row]
    assert len(got) == 4
    for arrived, setting, home in got[2:]:
        assert (tuple(arrived), setting, home) == (WORDS, env["X"], None)
    for arrived, setting, _ in got[:2]:
        assert tuple(arrived[: len(WORDS) - 3]) == WORDS[:-3]
        assert setting == env["X"]


def test_a_step_that_fails_ends_its_execution_and_not_the_next(lab: Labs) -> None:
    site, of = lab(2, trust=True), nccl("ofi-tcp", "tcp", repeats=1)
    with standin(*site.hosts, EXIT_AT="64:1:7"):
        done = run(site, of)
    assert done.returncode == 4
    found = judged(done, of)
    assert [log.outcome for log in found.values()] == [Outcome.FAILED] * 2
    assert "#@fabbench end 000-ofi-tcp-r1/all_reduce 7" in done.stdout


@pytest.mark.slow
def test_a_silent_program_is_ended(lab: Labs) -> None:
    site, of = lab(2, trust=True), nccl("tcp", repeats=1, silence_s=10)
    before = site.traces()
    with standin(*site.hosts, HANG_AT="64", IGNORE_TERM=1):
        done = run(site, of)
        assert left(site, before) == []
    (log,) = judged(done, of).values()
    assert (log.outcome, log.reason) == (Outcome.TIMEOUT, "all_reduce was aborted: no output for 10 s.")
    assert log.points
    assert done.stdout.endswith("#@fabbench end 000-tcp-r1/all_reduce ?\n")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "number"), [("nccl", "TERM"), ("pingpong", "TERM"), ("nccl", "KILL"), ("pingpong", "KILL")]
)
def test_a_signal_in_the_middle_leaves_nothing(lab: Labs, kind: str, number: str) -> None:
    """What scancel and a preemption send first; and SIGKILL, after which no trap runs."""
    site = lab(2, trust=True)
    of = nccl("tcp") if kind == "nccl" else of_steps(pair(("sleep", "98"), ("true",)))
    name = of.executions[0].steps[0].id
    words = put(site, of)
    before = site.traces()
    with standin(*site.hosts, HANG_AT="256"):
        output = site[0].path(HOME / "script.out")
        site[0].sh(["bash", "-c", f'"$@" >{HOME}/script.out 2>&1 & echo $! >{HOME}/script.pid', "bash", *words])
        waiting = (lambda: "   128 " in output.read_text()) if kind == "nccl" else (lambda: _sleeps(site))
        assert processes.eventually(waiting), output.read_text()
        site[0].sh(["kill", f"-{number}", site[0].path(HOME / "script.pid").read_text().strip()])
        assert left(site, before) == []
    assert number == "KILL" or output.read_text().endswith(
        f"fabbench: The script was stopped by SIGTERM in step {name.partition('/')[2]}.\n#@fabbench end {name} ?\n"
    )


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["nccl", "pingpong"])
def test_an_execution_that_nobody_needs_any_more_is_ended(lab: Labs, kind: str) -> None:
    """DONE_FILE names it while it goes on; so a job that is started again does not begin it anew either."""
    site = lab(2, trust=True)
    listen = "import socket, time; s = socket.create_server(('', {port})); time.sleep(600)"
    endless = pair((sys.executable, "-c", listen), ("sleep", "98"), timeout_s=90)
    of = nccl("tcp", repeats=1) if kind == "nccl" else of_steps(endless)
    words, name = put(site, of), of.executions[0].steps[0].id
    before = site.traces()
    with standin(*site.hosts, HANG_AT="256"):
        output = site[0].path(HOME / "script.out")
        begin = f'DONE_FILE={HOME}/done "$@" >{HOME}/script.out 2>&1 &'
        site[0].sh(["bash", "-c", begin, "bash", *words])
        waiting = (lambda: "   128 " in output.read_text()) if kind == "nccl" else (lambda: _sleeps(site))
        assert processes.eventually(waiting), output.read_text()
        # Long before the ranks end.
        assert kind != "nccl" or processes.eventually(lambda: "Using network" in output.read_text())
        site[0].path(HOME / "done").write_text(f"{of.executions[0].id}\n")
        expected = f": fabbench needs no more of it.\n#@fabbench end {name} ?\n"
        assert processes.eventually(lambda: output.read_text().endswith(expected), 60), output.read_text()
        assert left(site, before) == []
    debug = [line for line in output.read_text().splitlines() if " NCCL INFO " in line]
    assert (bool(debug), len(debug)) == (kind == "nccl", len(set(debug)))
    assert run(site, of, DONE_FILE=f"{HOME}/done").stdout == ""
    site[0].path(HOME / "done").unlink()


def _sleeps(site: Lab) -> bool:
    return any(["sleep", "98"] in host.processes().values() for host in site.hosts)


@pytest.mark.slow
def test_a_requeued_script_does_not_repeat_what_is_done(lab: Labs) -> None:
    site, of = lab(2, trust=True), pingpong("tcp", "tcp", repeats=1)
    first = run(site, of, FABRIC="tcp", DONE_FILE=str(HOME / "script.done"))
    second = run(site, of, DONE_FILE=str(HOME / "script.done"))
    assert "begin 000-tcp-r1" in first.stdout
    assert "begin 000-tcp-r1" not in second.stdout
    site[0].path(HOME / "script.done").unlink()
    first.stdout += second.stdout
    assert [log.outcome for log in judged(first, of).values()] == [Outcome.OK, Outcome.OK]


@pytest.mark.slow
def test_pairs_at_the_same_time_are_printed_one_after_another(lab: Labs) -> None:
    """Where the script runs on none of the hosts, as in the launcher of an MPIJob."""
    site = lab(2, trust=True)
    before = site.traces()
    listen = "import socket,sys; s=socket.create_server(('', int(sys.argv[1]))); s.accept(); print('heard')"
    # The first ones wait for the last: one after another they would wait for ever.
    knock = (
        "import os,socket,sys,time\n"
        "open(f'/tmp/{sys.argv[3]}', 'w').close()\n"
        "while not os.path.exists('/tmp/c'): time.sleep(0.05)\n"
        "socket.create_connection((sys.argv[2], int(sys.argv[1])))"
    )
    server = (sys.executable, "-c", listen, "{port}")
    pairs = (pair(server, (sys.executable, "-c", knock, "{port}", "{server}", name), name) for name in "abc")
    of = of_steps(*pairs, together=True)
    done = run(site, of, ScriptTarget(hosts=WAY.hosts, here=False))
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == "".join(
        f"#@fabbench begin 000-tcp-r1/{name}\n[fabbench:server] heard\n#@fabbench end 000-tcp-r1/{name} 0\n"
        for name in "abc"
    )
    for name in "abc":
        site[1].path(f"/tmp/{name}").unlink()
    assert left(site, before) == []
