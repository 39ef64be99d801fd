"""The executor over sessions, on this machine: order, words, limits, and that nothing is left."""

import json
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from fabbench.execution import session
from fabbench.execution.nic_sampler import NicSampler
from fabbench.execution.session import TOO_MUCH
from fabbench.launchers.local.launcher import allocation_here
from fabbench.logs.parser import LogParser, logs
from fabbench.model.errors import RequestError
from fabbench.model.log import MARKER_SIGN, Ending, Log, read_marker
from fabbench.model.plan import Command, Configuration, Plan, Step
from tests.support.executors import INVENTORY, Executed, Sessions
from tests.support.local_runs import alive, eventually
from tests.support.paths import ROOT
from tests.support.requests import execution_by_hand

pytestmark = pytest.mark.local

LISTEN = (
    "import socket, sys; s = socket.create_server(('', int(sys.argv[1]))); "
    "print(s.accept()[0].recv(9).decode())"
)
KNOCK = (
    "import socket, sys; s = socket.create_connection((sys.argv[2], int(sys.argv[1]))); "
    "s.send(b'heard'); print('spoke')"
)
SERVER = (sys.executable, "-c", LISTEN, "{port}")
CLIENT = (sys.executable, "-c", KNOCK, "{port}", "{server}")
LONG_S = 90.0
WORDS = ("a b", "it's", '"$HOME"', "`id`", "x\ny", "", "\\", "\u00fc", "*", "-u", "a=b")


@pytest.fixture
def executor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sessions]:
    """An executor of which nothing may be left, neither a program nor a file."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setenv("CONFORMANCE", str(tmp_path))
    made = Sessions(tmp_path)
    yield made
    assert eventually(lambda: not running(tmp_path)), running(tmp_path)
    assert eventually(lambda: not list(folder.iterdir())), list(folder.iterdir())


def running(folder: Path) -> list[str]:
    """The programs that a test started, and that still run."""
    mark = f"CONFORMANCE={folder}".encode()
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (path / "environ").read_bytes().split(b"\0") and alive(int(path.name)):
                found.append((path / "cmdline").read_text().replace("\0", " "))
        except OSError:
            continue
    return found


def pair(
    server: Sequence[str] = SERVER,
    client: Sequence[str] = CLIENT,
    name: str = "pair",
    *,
    timeout_s: float = LONG_S,
) -> Step:
    commands = (
        Command(argv=tuple(server), role="server"),
        Command(argv=tuple(client), role="client"),
    )
    return Step(
        id=name,
        label=name,
        commands=commands,
        timeout_s=timeout_s,
        facts={"benchmark": "none", "note": "a b"},
    )


def ranks(
    *argv: str,
    number: int = 1,
    timeout_s: float = LONG_S,
    silence_s: float | None = None,
    name: str = "ranks",
) -> Step:
    return Step(
        id=name,
        label=name,
        commands=(Command(argv=argv, ranks=number),),
        timeout_s=timeout_s,
        silence_s=silence_s,
        facts={"benchmark": "none"},
    )


def shell(text: str) -> tuple[str, ...]:
    return ("bash", "-c", text)


def words(argv: Sequence[str]) -> str:
    """The words of a command in a shell; placeholders in them are filled in."""
    return " ".join("'" + word.replace("'", "'\\''") + "'" for word in argv)


def plan_of(*steps: Step, configurations: Sequence[str] = ("a",), together: bool = False) -> Plan:
    """A plan whose executions all have these steps."""
    executions = []
    for number, label in enumerate(configurations):
        name = f"{number:03}-{label}-r1"
        own = tuple(replace(step, id=f"{name}/{step.id}") for step in steps)
        configuration = Configuration(label=label, fabric="tcp")
        executions.append(execution_by_hand(configuration, number, steps=own, together=together))
    distinct = dict.fromkeys(execution.configuration for execution in executions)
    return Plan(
        benchmark="none",
        target="local",
        configurations=tuple(distinct),
        executions=tuple(executions),
    )


def markers(done: Executed) -> list[str]:
    return [line for line in done.lines if line.startswith(MARKER_SIGN)]


def ends(done: Executed) -> list[int | None]:
    found = [marker for line in done.lines if (marker := read_marker(line)) is not None]
    return [marker.status for marker in found if marker.kind == "end"]


def printed(done: Executed) -> list[str]:
    """What programs printed.

    Without markers, and without the words of a script or of mpirun itself.
    """
    return [
        line for line in done.lines if not line.startswith((MARKER_SIGN, "fabbench: ", "mpirun: "))
    ]


def only(done: Sequence[Executed]) -> Executed:
    (one,) = done
    return one


def ended(done: Executed) -> Ending:
    assert done.ending is not None
    return done.ending


# ---------------------------------------------------------------- order, lines, words


def test_executions_and_steps_run_in_order(executor: Sessions) -> None:
    plan = plan_of(pair(name="one"), ranks("echo", "rank", name="two"), configurations="abba")
    done = executor.execute(plan)
    assert [each.execution for each in done] == ["000-a-r1", "001-b-r1", "002-b-r1", "003-a-r1"]
    for each in done:
        assert each.ending == Ending(status=0), each.lines
        assert markers(each) == [
            f"{MARKER_SIGN}begin {each.execution}/one benchmark=none 'note=a b'",
            f"{MARKER_SIGN}end {each.execution}/one 0",
            f"{MARKER_SIGN}begin {each.execution}/two benchmark=none",
            f"{MARKER_SIGN}end {each.execution}/two 0",
        ]
        assert sorted(printed(each)[:2]) == ["[fabbench:client] spoke", "[fabbench:server] heard"]
        assert printed(each)[2:] == ["[1,0]<stdout>:rank"]


def test_pairs_at_the_same_time_are_printed_one_after_another(
    executor: Sessions, tmp_path: Path
) -> None:
    """Each waits for the other: one after the other they would wait for ever."""
    folder = tmp_path / "meet"
    folder.mkdir()

    def meeting(own: str, other: str) -> tuple[str, ...]:
        wait = f"touch {folder}/{own}; until [ -e {folder}/{other} ]; do sleep 0.05; done"
        return shell(f"{wait}; exec {words(CLIENT)}")

    one, two = (
        pair(client=meeting("a", "b"), name="one"),
        pair(client=meeting("b", "a"), name="two"),
    )
    done = only(executor.execute(plan_of(one, two, together=True)))
    assert ended(done).status == 0
    assert [line.split()[1:3] for line in markers(done)] == [
        ["begin", "000-a-r1/one"],
        ["end", "000-a-r1/one"],
        ["begin", "000-a-r1/two"],
        ["end", "000-a-r1/two"],
    ]
    assert (
        sorted(printed(done)) == ["[fabbench:client] spoke"] * 2 + ["[fabbench:server] heard"] * 2
    )


SHOW = (
    "import json, os, sys; names = ('ADDED', 'EXPORTED', 'REPLACED', 'TAKEN'); "
    "os.write(1, f'GOT {json.dumps([sys.argv[1:], *map(os.environ.get, names)])}\\n'.encode())"
)


def test_words_and_environment_arrive_whole(
    executor: Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The environment of this machine, with what the plan adds, replaces and takes away."""
    for name in ("EXPORTED", "REPLACED", "TAKEN"):
        monkeypatch.setenv(name, "of the host")
    env = {"ADDED": "".join(WORDS), "REPLACED": "of the plan"}

    def command(*argv: str, role: str = "") -> Command:
        return Command(argv=argv, role=role, env=env, unset=("TAKEN",))

    server = f"{SHOW}; sys.argv[1:] = sys.argv[-1:]; {LISTEN}"
    sides = (
        command(sys.executable, "-c", server, *WORDS, "{port}", role="server"),
        command(*CLIENT, role="client"),
    )
    rank = command(sys.executable, "-c", SHOW, *WORDS)
    steps = (replace(pair(), commands=sides), replace(ranks(), commands=(rank,)))
    done = only(executor.execute(plan_of(*steps)))
    assert ended(done).status == 0, done.lines
    got = [json.loads(line.partition("GOT ")[2]) for line in done.lines if "GOT " in line]
    expected = [env["ADDED"], "of the host", "of the plan", None]
    assert [row[1:] for row in got] == [expected] * 2
    assert [row[0][: len(WORDS)] for row in got] == [list(WORDS)] * 2


def test_files_of_a_step_and_debug_files(executor: Sessions) -> None:
    """Files lie in the step's directory; what ranks write into files named debug.… is printed."""
    step = ranks(*shell('cat "$0"; echo from a file >"${0%/*}/debug.x"'), "{folder}/note")
    step = replace(step, files={"note": "it's\nhere\n"})
    done = only(executor.execute(plan_of(step)))
    assert ended(done).status == 0
    assert sorted(printed(done)) == ["[1,0]<stdout>:here", "[1,0]<stdout>:it's", "from a file"]


@pytest.mark.slow
def test_a_last_line_without_an_end_is_a_line(executor: Sessions) -> None:
    done = only(executor.execute(plan_of(pair(server=shell("printf torn; exit 3")))))
    assert printed(done) == ["[fabbench:server] torn"]
    assert ends(done) == [3]


# ---------------------------------------------------------------- pairs


@pytest.mark.slow
def test_a_client_starts_when_its_server_listens(executor: Sessions) -> None:
    late = f"import time; time.sleep(1); {LISTEN}"
    done = only(executor.execute(plan_of(pair(server=(sys.executable, "-c", late, "{port}")))))
    assert ended(done).status == 0, done.lines


def test_a_port_that_is_taken_is_replaced(executor: Sessions, tmp_path: Path) -> None:
    """The lines of the attempts before are not printed."""
    taken = "echo bind: Address already in use; exit 1"
    server = shell(
        f'echo "$1" >>"$0"; [ "$(wc -l <"$0")" -gt 1 ] || {{ {taken}; }}; exec {words(SERVER)}'
    )
    done = only(
        executor.execute(plan_of(pair(server=(*server, str(tmp_path / "ports"), "{port}"))))
    )
    assert ended(done) == Ending(status=0)
    assert sorted(printed(done)) == ["[fabbench:client] spoke", "[fabbench:server] heard"]
    tried = (tmp_path / "ports").read_text().split()
    # Another program may have taken the second one, too.
    assert len(tried) > 1
    assert tried[0] != tried[-1]


@pytest.mark.slow
def test_a_port_where_another_program_listens_is_replaced(
    executor: Sessions, tmp_path: Path
) -> None:
    ready = tmp_path / "ready"
    listen, _, then = LISTEN.partition("print(")
    other = (
        sys.executable,
        "-c",
        f"{listen}open({str(ready)!r}, 'w'); print({then}; import time; time.sleep(30)",
    )
    wait = f"until [ -e {ready} ]; do sleep 0.05; done"
    taken = f'setsid -f {words(other)} "$1"; {wait}; echo bind: Address already in use; exit 1'
    server = shell(
        f'echo "$1" >>"$0"; [ "$(wc -l <"$0")" -gt 1 ] || {{ {taken}; }}; exec {words(SERVER)}'
    )
    done = only(
        executor.execute(plan_of(pair(server=(*server, str(tmp_path / "ports"), "{port}"))))
    )
    assert ended(done) == Ending(status=0)
    assert sorted(printed(done)) == ["[fabbench:client] spoke", "[fabbench:server] heard"]


def test_a_server_that_ends_before_its_client_ends_the_execution(executor: Sessions) -> None:
    failing = pair(server=shell("echo broken; exit 3"))
    done = only(executor.execute(plan_of(failing, pair(name="two"))))
    assert ended(done) == Ending(status=3)
    assert printed(done) == ["[fabbench:server] broken"]
    assert (ends(done), len(markers(done))) == ([3], 2)


KILL = 'echo on; [ "$OMPI_COMM_WORLD_RANK" = 0 ] || kill -KILL $$; sleep 99'


@pytest.mark.parametrize(
    ("steps", "status"),
    [
        pytest.param([pair(server=("true",))], 1, id="a server ends well, without its client"),
        pytest.param(
            [pair(client=shell(f"{words(CLIENT)}; kill -KILL $$"))], 137, id="a side is killed"
        ),
        pytest.param([ranks(*shell("exit 5")), pair()], 5, id="ranks fail"),
        pytest.param(
            [ranks(*shell(KILL), number=2)], 137, id="one rank is killed", marks=pytest.mark.slow
        ),
    ],
)
def test_what_ends_badly_ends_the_execution(
    executor: Sessions, steps: list[Step], status: int
) -> None:
    """The status of what was killed is that of a shell, 128 and the signal, wherever it ran."""
    done = only(executor.execute(plan_of(*steps)))
    assert (ended(done), ends(done)) == (Ending(status=status), [status])


@pytest.mark.slow
def test_a_side_that_fails_takes_the_other_with_it(executor: Sessions) -> None:
    """And the next execution is begun all the same."""
    server = f"{LISTEN}; import time; time.sleep(99)"
    failing = pair(
        server=(sys.executable, "-c", server, "{port}"), client=shell(f"{words(CLIENT)}; exit 7")
    )
    done = executor.execute(plan_of(failing, pair(name="two"), configurations="ab"))
    assert [each.ending for each in done] == [Ending(status=7)] * 2
    assert [ends(each) for each in done] == [[7], [7]]


def test_one_of_several_pairs_that_fails_ends_them_all(executor: Sessions) -> None:
    stuck = pair(client=shell(f"{words(CLIENT)}; sleep 99"), name="stuck")
    done = only(
        executor.execute(
            plan_of(
                stuck, pair(client=shell(f"{words(CLIENT)}; exit 7"), name="failing"), together=True
            )
        )
    )
    assert ended(done).status == 7
    assert ends(done) == [None, 7]


# ---------------------------------------------------------------- ranks


def test_ranks_do_not_run_at_the_same_time(executor: Sessions) -> None:
    with pytest.raises(RequestError, match="concurrently"):
        executor.execute(plan_of(ranks("true", name="a"), ranks("true", name="b"), together=True))


# ---------------------------------------------------------------- limits


@pytest.mark.slow
@pytest.mark.parametrize("shape", ["pair", "ranks"])
def test_a_step_that_takes_too_long_is_ended(executor: Sessions, shape: str) -> None:
    """What ignores SIGTERM is killed; the lines until then are kept."""
    stubborn = (
        "import os, signal, time; signal.signal(15, 1); os.write(1, b'on\\n'); time.sleep(99)"
    )
    server = (sys.executable, "-c", f"{LISTEN}; {stubborn}", "{port}")
    client = shell(f"{words(CLIENT)}; exec sleep 99")
    step = pair(server, client, timeout_s=15)
    if shape == "ranks":
        step = ranks(sys.executable, "-c", stubborn, timeout_s=15)
    done = only(executor.execute(plan_of(step, pair(name="next"))))
    who = (
        "Step pair was aborted after 15 s: server and client"
        if shape == "pair"
        else "ranks was aborted"
    )
    assert ended(done) == Ending(timed_out=f"{who}: it timed out.")
    assert any(line.endswith("on") for line in printed(done))
    assert ends(done) == [None]


@pytest.mark.slow
def test_a_side_that_runs_on_is_ended(executor: Sessions, monkeypatch: pytest.MonkeyPatch) -> None:
    """Long before its time is up, and not blamed on that."""
    monkeypatch.setattr(session, "CLOSING_S", 3)
    step = pair(client=shell(f"{words(CLIENT)}; exec sleep 99"), timeout_s=90)
    done = only(executor.execute(plan_of(step)))
    assert ended(done) == Ending(timed_out=f"Step pair was aborted: client: {session.RAN_ON}.")
    assert ends(done) == [None]


@pytest.mark.slow
def test_a_server_that_never_listens(executor: Sessions) -> None:
    done = only(executor.execute(plan_of(pair(server=("sleep", "99"), timeout_s=2))))
    assert ended(done) == Ending(
        timed_out="Step pair was aborted after 2 s: the server was not ready."
    )
    assert ends(done) == [None]


@pytest.mark.slow
def test_ranks_that_fall_silent_are_ended(executor: Sessions) -> None:
    done = only(executor.execute(plan_of(ranks(*shell("echo on; sleep 99"), silence_s=15))))
    assert ended(done) == Ending(timed_out="ranks was aborted: no output for 15 s.")
    assert (printed(done), ends(done)) == (["[1,0]<stdout>:on"], [None])


# ---------------------------------------------------------------- floods


@pytest.mark.slow
@pytest.mark.parametrize("where", ["server", "ranks", "debug file"])
def test_what_prints_without_end_is_ended(
    executor: Sessions, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its log says so, and what is kept is bounded."""
    most = 300_000
    monkeypatch.setattr(session, "LONGEST_OUTPUT", most)
    if where == "server":
        step = pair(server=("yes",))
        who = "Step pair was aborted: server"
    else:
        command = ("yes",) if where == "ranks" else shell('yes >"${0%/*}/debug.x"')
        step = ranks(*command, "{folder}/note" if where != "ranks" else "y")
        step, who = replace(step, files={"note": ""}), "ranks was aborted"
    done = only(executor.execute(plan_of(step, pair(name="next"))))
    assert ended(done) == Ending(timed_out=f"{who}: {TOO_MUCH}.")
    assert ends(done) == [None]
    assert f"fabbench: {who}: {TOO_MUCH}." in done.lines
    assert sum(len(line) + 1 for line in done.lines) < 20 * most
    (log,) = read(done)
    assert [finding.code for finding in log.findings] == ["too-much-output"]


def read(done: Executed) -> list[Log]:
    parser = LogParser("x", live=False)
    return [*logs(parser.feed_lines(done.lines)), *logs(parser.close(done.ending))]


# ---------------------------------------------------------------- ended from outside


@pytest.mark.slow
def test_an_execution_of_which_no_more_is_needed_is_ended(executor: Sessions) -> None:
    """As when it is seen to be off its fabric. The next one is begun."""
    step = ranks(*shell("echo Using network Socket; sleep 99"))
    done = executor.execute(
        plan_of(step, configurations="ab"), lambda line: "Using network" in line
    )
    assert [each.execution for each in done] == ["000-a-r1", "001-b-r1"]
    assert [each.ending for each in done] == [None, None]
    assert all("Using network Socket" in each.lines[-1] for each in done), done


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("shape", ["pair", "ranks"])
def test_a_signal_ends_everything(executor: Sessions, shape: str, number: signal.Signals) -> None:
    on = executor.folder / "on"
    waiting = shell(f"touch {on}; exec sleep 99")
    step = pair(server=waiting) if shape == "pair" else ranks(*waiting)
    with subprocess.Popen(
        executor.argv(plan_of(step, configurations="ab")),
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    ) as process:
        assert eventually(on.exists)
        process.send_signal(number)
        text, _ = process.communicate()
    assert "001-b-r1" not in text
    assert process.returncode == 130


# ---------------------------------------------------------------- counters


def test_counters_are_read_before_and_after(executor: Sessions) -> None:
    plan = plan_of(pair())
    (execution,) = plan.executions
    with allocation_here(INVENTORY) as allocation:
        watch = NicSampler(execution, INVENTORY.hosts, allocation.counters)
        watch.begin()
        executor.execute(plan)
        around = watch.end()
    assert around.failures == ()
    assert around.asked.fabric == "tcp"
    ((host, taken),) = around.hosts.items()
    assert host == "localhost"
    assert taken.before
    assert taken.after
    assert {nic.name for nic in taken.before.nics} == {nic.name for nic in taken.after.nics}
