"""Programs on this machine, started as on any other.

From any thread, and ended with their stream.
"""

import sys
import threading

import pytest

from fabbench.execution.process import LONGEST_LINE
from fabbench.model.errors import MachineError
from fabbench.remote.transport import Here
from tests.support.hosts import processes


def test_a_program_has_an_input_and_two_outputs() -> None:
    found = []

    def run() -> None:
        found.append(
            Here("this machine").run(
                ("sh", "-c", "cat; echo two >&2; printf three; exit 3"), stdin=b"one\n"
            )
        )

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(60)
    (done,) = found
    assert (done.status, done.out, done.err) == (3, ["one", "three"], ["two"])


def test_closing_ends_what_was_started() -> None:
    stream = Here("this machine").open(("sh", "-c", "echo $$; sleep 1000 & echo $!; wait"))
    lines = stream.lines()
    pids = [int(next(lines)), int(next(lines))]
    stream.close()
    assert processes.eventually(lambda: not any(map(processes.alive, pids)), 30)


def test_a_program_that_takes_too_long_is_ended() -> None:
    with pytest.raises(MachineError, match="timed out"):
        Here("this machine").run(("sleep", "1000"), timeout_s=0.5)


def out_of(code: str) -> list[str]:
    return Here("this machine").run((sys.executable, "-c", code)).out


def test_what_is_no_text_is_replaced() -> None:
    code = r"import os; os.write(1, b'a\xff\xe2\x82'); os.write(1, b'\xac\r\nlast\0 line')"
    assert out_of(code) == ["a\N{REPLACEMENT CHARACTER}\N{EURO SIGN}", "last\0 line"]


def test_a_line_without_end_comes_in_pieces() -> None:
    lines = out_of(f"import sys; sys.stdout.write('x' * {2 * LONGEST_LINE + 5})")
    assert "".join(lines) == "x" * (2 * LONGEST_LINE + 5)
    assert max(map(len, lines)) <= LONGEST_LINE


def test_full_pipes_do_not_block() -> None:
    code = "import sys; sys.stderr.write('e\\n' * 200_000); sys.stdout.write('o\\n' * 200_000)"
    assert out_of(code) == ["o"] * 200_000
