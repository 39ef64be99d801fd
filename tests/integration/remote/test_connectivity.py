"""Connections between hosts: who tries whom, and the programs that do it."""

import ast
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.resources import files

import pytest

from fabbench.remote.check_hosts import pairs

PYTHON = (files("fabbench.remote") / "connect_probe.py").read_text("utf-8")
HERE = "127.0.0.1"


@contextmanager
def contact(
    word: str, address: str = HERE, *, lives_s: int = 120, waits_s: int = 60
) -> Iterator[subprocess.Popen[str]]:
    """The program with other times."""
    python = PYTHON.replace("_LIFETIME_S = 30.0", f"_LIFETIME_S = {lives_s}.0")
    python = python.replace("_TIMEOUT_S = 3.0", f"_TIMEOUT_S = {waits_s}.0")
    assert f"_LIFETIME_S = {lives_s}.0\n_TIMEOUT_S = {waits_s}.0\n" in python
    argv = [sys.executable, "-I", "-S", "-c", python, address, word]
    with subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield process
        if process.stdin and not process.stdin.closed:
            process.stdin.close()
        assert process.wait(60) == 0


def port_of(process: subprocess.Popen[str]) -> int:
    assert process.stdout
    word, number = process.stdout.readline().split()
    assert word == "port"
    return int(number)


def tried(process: subprocess.Popen[str], *calls: str) -> dict[str, str]:
    assert process.stdin
    assert process.stdout
    process.stdin.write("".join(f"{number} {call}\n" for number, call in enumerate(calls)))
    process.stdin.flush()
    found = {}
    for _ in calls:
        word, number, *why = process.stdout.readline().rstrip("\n").split(" ", 2)
        assert word == "tried"
        found[number] = "".join(why)
    return found


# ---------------------------------------------------------------- who tries whom


def test_the_first_and_each_both_ways_and_a_ring() -> None:
    chosen = pairs("abcd")
    star = {pair for other in "bcd" for pair in (("a", other), (other, "a"))}
    assert set(chosen) == star | {("a", "b"), ("b", "c"), ("c", "d"), ("d", "a")}
    assert len(chosen) == len(set(chosen))


def test_many_hosts_try_few_connections_and_each_is_tried() -> None:
    assert len(pairs([str(number) for number in range(64)])) == 2 * 63 + 62
    for count in range(2, 9):
        names = "abcdefgh"[:count]
        assert {to for _, to in pairs(names)} == set(names)
    assert pairs("a") == ()


# ---------------------------------------------------------------- the programs


@pytest.mark.local
def test_they_reach_each_other() -> None:
    with contact("w1") as first, contact("w2") as second:
        ports = port_of(first), port_of(second)
        assert tried(first, f"{HERE} {ports[1]} w2", f"{HERE} {ports[0]} w1") == {"0": "", "1": ""}
        assert tried(second, f"{HERE} {ports[0]} w1") == {"0": ""}


@pytest.mark.local
@pytest.mark.slow
def test_what_is_not_reached_is_reported_why() -> None:
    with ExitStack() as stack:
        mute, free = (stack.enter_context(socket.socket()) for _ in range(2))
        for one in (mute, free):
            one.bind((HERE, 0))
        mute.listen(1)
        program = stack.enter_context(contact("w", waits_s=5))
        port = port_of(program)
        calls = [f"{HERE} {at} w" for at in (free.getsockname()[1], mute.getsockname()[1])]
        found = tried(program, *calls, f"{HERE} {port} other-word")
        assert found == {
            "0": "Connection refused",
            "1": "connected, but nothing came back in 5 s",
            "2": "another program answered",
        }


@pytest.mark.local
def test_many_connections_at_once() -> None:
    with contact("w") as one:
        port = port_of(one)
        assert set(tried(one, *[f"{HERE} {port} w"] * 200).values()) == {""}


@pytest.mark.local
def test_an_address_of_nobody_is_reported() -> None:
    with contact("w", "192.0.2.77") as one:
        assert one.stdout
        assert one.stdout.read() == "error Cannot assign requested address\n"


@pytest.mark.local
@pytest.mark.slow
def test_they_end_by_themselves() -> None:
    with contact("w", lives_s=2) as one:
        port_of(one)
        assert one.wait(60) == 0


def test_old_pythons_can_read_it() -> None:
    ast.parse(PYTHON, feature_version=(3, 6))
    assert not [node for node in ast.walk(ast.parse(PYTHON)) if isinstance(node, ast.ImportFrom)]
