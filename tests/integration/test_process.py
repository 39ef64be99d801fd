"""Programs that behave badly: whatever they do, nothing of them is left."""

import signal
import subprocess
import sys
import time
from collections import deque
from pathlib import Path

import pytest

from fabbench.execution.process import LONGEST_LINE, Processes
from fabbench.execution.session import TimedOutError
from fabbench.model.errors import MachineError
from tests.support.local_runs import alive, eventually

pytestmark = pytest.mark.local

SLEEP = "import time; time.sleep(600)"
STUBBORN = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('on', flush=True); {SLEEP}"


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def said(code: str) -> tuple[list[str], int | None]:
    """What a Python program prints, and its exit status."""
    with Processes() as processes:
        process = processes.start(python(code))
        return [output.text for output in processes.lines() if output.text is not None], process.status


def test_both_outputs_and_the_status() -> None:
    lines, status = said("import sys; print('out'); print('err', file=sys.stderr); sys.exit(7)")
    assert sorted(lines) == ["err", "out"]
    assert status == 7


def test_a_signal_is_a_status_as_in_a_shell() -> None:
    assert said("import os; os.kill(os.getpid(), 9)") == ([], 137)


@pytest.mark.slow
def test_full_pipes_do_not_block() -> None:
    lines, status = said("import sys; sys.stderr.write('e\\n' * 500_000); sys.stdout.write('o\\n' * 500_000)")
    assert status == 0
    assert (lines.count("e"), lines.count("o")) == (500_000, 500_000)


def test_what_is_no_text_is_replaced() -> None:
    code = r"import os; os.write(1, b'a\xff\xe2\x82'); os.write(1, b'\xac\r\nlast\0 line')"
    assert said(code)[0] == ["a\N{REPLACEMENT CHARACTER}\N{EURO SIGN}", "last\0 line"]


def test_a_line_without_end_comes_in_pieces() -> None:
    lines, _ = said(f"import sys; sys.stdout.write('x' * {2 * LONGEST_LINE + 5})")
    assert "".join(lines) == "x" * (2 * LONGEST_LINE + 5)
    assert max(map(len, lines)) <= LONGEST_LINE


def test_environment_added_and_taken_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAKEN_AWAY", "yes")
    code = "import os; print(os.environ.get('TAKEN_AWAY'), os.environ.get('ADDED'))"
    with Processes() as processes:
        processes.start(python(code), env={"ADDED": "1"}, unset=("TAKEN_AWAY",))
        assert next(iter(processes.lines())).text == "None 1"


def test_no_such_program() -> None:
    with Processes() as processes, pytest.raises(MachineError, match="fabbench-nonesuch not found"):
        processes.start(["fabbench-nonesuch"])


def test_a_program_that_cannot_be_run(tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.write_text("#!/no/such/interpreter\n")
    broken.chmod(0o755)
    with Processes() as processes, pytest.raises(MachineError, match="could not be started"):
        processes.start([str(broken)])


def test_silence() -> None:
    with Processes() as processes:
        process = processes.start(["sh", "-c", "echo once; exec sleep 600"])
        assert next(iter(processes.lines())).text == "once"
        with pytest.raises(TimedOutError, match="no output"):
            next(iter(processes.lines(silence_s=0.5)))
    assert not alive(process.pid)
    assert process.status == 128 + signal.SIGTERM


def test_a_flood_meets_the_deadline() -> None:
    with Processes() as processes:
        process = processes.start(["yes"])
        lines = processes.lines(silence_s=60, deadline=time.monotonic() + 0.3)
        with pytest.raises(TimedOutError, match="it timed out"):
            deque(lines, maxlen=1)
    assert not alive(process.pid)


def test_sigterm_is_ignored() -> None:
    with Processes() as processes:
        process = processes.start(python(STUBBORN))
        assert next(iter(processes.lines())).text == "on"
        processes.stop([process], grace_s=0.2)
    assert process.status == 128 + signal.SIGKILL


def test_a_stopped_program_ends_too() -> None:
    with Processes() as processes:
        process = processes.start(python(f"print('on', flush=True); {SLEEP}"))
        assert next(iter(processes.lines())).text == "on"
        process.signal(signal.SIGSTOP)
    assert not alive(process.pid)


def test_last_words_after_sigterm() -> None:
    code = (
        "import signal, sys, time\n"
        "def end(*_): print('last words'); sys.exit(3)\n"
        "signal.signal(signal.SIGTERM, end); print('on', flush=True); time.sleep(600)"
    )
    with Processes() as processes:
        process = processes.start(python(code))
        assert next(iter(processes.lines())).text == "on"
        assert [output.text for output in processes.stop([process])] == ["last words", None]
    assert process.status == 3


@pytest.mark.parametrize("session", [False, True], ids=["in its group", "in a session of its own"])
def test_descendants_end_with_the_program(session: bool) -> None:
    # The grandchild holds the pipes open, and would keep a reader waiting for ten minutes.
    code = (
        "import subprocess, sys\n"
        f"child = subprocess.Popen([sys.executable, '-c', {SLEEP!r}], start_new_session={session})\n"
        "print(child.pid, flush=True)"
    )
    lines, status = said(code)
    assert status == 0
    assert not alive(int(lines[0]))


def test_an_exception_leaves_nothing() -> None:
    pids: list[int] = []

    def fail() -> None:
        with Processes() as processes:
            pids.extend(processes.start(python(SLEEP)).pid for _ in range(3))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert len(pids) == 3
    assert not any(alive(pid) for pid in pids)


PARENT = f"""
import sys
from fabbench.execution.process import Processes
with Processes() as processes:
    print(processes.start([sys.executable, "-c", {SLEEP!r}]).pid, flush=True)
    for _ in processes.lines():
        pass
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_the_programs_die_with_fabbench(number: int) -> None:
    with subprocess.Popen(python(PARENT), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert alive(child)
        parent.send_signal(number)
        assert parent.wait(60) != 0
    assert eventually(lambda: not alive(child))
