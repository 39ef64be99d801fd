"""``fabbench watch`` on this machine: a real shell and real traffic over the loopback."""

import contextlib
import ctypes
import itertools
import json
import os
import pty
import re
import signal
import socket
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Iterator
from fcntl import ioctl
from pathlib import Path

import pytest

from fabbench.counters.watch import HostSamples, judged
from fabbench.model.errors import Exit, MachineError
from fabbench.remote.counter_shell import rounds
from fabbench.remote.transport import Here, Transport
from tests.support.hosts import processes
from tests.support.paths import DATA
from tests.support.ras_server import ras

pytestmark = pytest.mark.local
COMMAND = (sys.executable, "-m", "fabbench", "watch", "--on", "local", "--store")
CHUNK = bytes(1 << 20)
PACE = 100e6
"""Bytes per second."""
NEW_NETWORK = 0x40000000
"""CLONE_NEWNET of <sched.h>; Python has it since 3.12."""


@pytest.fixture(scope="module", autouse=True)
def _own_network() -> Iterator[None]:
    """With root, these tests have a loopback of their own: others use the machine's NICs."""
    kernel = ctypes.CDLL(None)
    with Path("/proc/thread-self/ns/net").open() as of_machine:
        is_own = kernel.unshare(NEW_NETWORK) == 0
        if is_own:
            subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        yield
        if is_own:
            assert kernel.setns(of_machine.fileno(), NEW_NETWORK) == 0


class Sender:
    """Sends over the loopback at a pace, and knows how much."""

    def __init__(self) -> None:
        self.over = threading.Event()
        self.flows = threading.Event()
        self.sent = 0
        self.seconds = 0.0
        self.counted = 0

    def send(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            one = socket.create_connection(server.getsockname())
            other, _ = server.accept()
        reader = threading.Thread(target=lambda: all(iter(lambda: other.recv(1 << 20), b"")))
        reader.start()
        before = loopback()
        begun = time.monotonic()
        while not self.over.is_set():
            one.sendall(CHUNK)
            self.sent += len(CHUNK)
            self.flows.set()
            self.over.wait(max(0.0, begun + self.sent / PACE - time.monotonic()))
        self.seconds = time.monotonic() - begun
        one.close()
        reader.join()
        other.close()
        self.counted = loopback() - before


def loopback() -> int:
    """Bytes that the loopback has sent, whoever sent them."""
    match = re.search(r"^\s*lo:((?:\s+\d+){16})", Path("/proc/net/dev").read_text(), re.MULTILINE)
    assert match
    return int(match[1].split()[8])


@contextlib.contextmanager
def traffic() -> Iterator[Sender]:
    sender = Sender()
    thread = threading.Thread(target=sender.send)
    thread.start()
    try:
        assert sender.flows.wait(30)
        yield sender
    finally:
        sender.over.set()
        thread.join()


def test_the_rate_is_that_of_what_was_sent(tmp_path: Path) -> None:
    words = [*COMMAND, str(tmp_path), "--for", "3", "--json"]
    with traffic() as sender:
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    # The loopback is no NIC, but others may carry something.
    assert done.returncode in {0, 4}, done.stderr
    (host,) = json.loads(done.stdout)["carriers"].values()
    (found,) = (each["counters"] for each in host["nics"] if each["name"] == "lo")
    assert 2.5 < host["seconds"] < 6
    rate = found["tx_bytes"] / host["seconds"]
    own = sender.sent / sender.seconds
    assert sender.counted >= sender.sent
    # What other programs of this machine send at the same time is counted, too.
    others = (sender.counted - sender.sent) / sender.seconds
    assert 0.95 * own <= rate <= 1.05 * own + 1.5 * others


def test_a_host_that_dies_is_named_and_the_others_go_on() -> None:
    """Here it is its shell that ends; one that could not be opened is named, too."""
    here = {name: Here(name) for name in ("a", "b")}
    hosts = {name: HostSamples() for name in ("a", "b", "c")}
    connections: dict[str, Transport | MachineError] = {
        **here,
        "c": MachineError("No route to host."),
    }
    for number, failed in enumerate(rounds(connections, hosts, 0.2, 1.0)):
        if number == 0:
            assert failed == {"c": "No route to host."}
            here["b"].close()
    assert number == 5
    assert failed.keys() == {"b", "c"}
    assert hosts["a"].total.seconds == pytest.approx(1, abs=0.5)
    assert hosts["b"].total.seconds is None
    result = judged(hosts, failed)
    assert result.status is Exit.REFUSED
    assert result.last == "incomplete: c could not be watched: No route to host."
    assert [note for note in result.notes if "could not be watched" in note] == [
        f"b could not be watched: {failed['b']}"
    ]
    here["a"].close()


def children(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_ctrl_c_ends_with_the_summary_and_leaves_nothing(tmp_path: Path) -> None:
    words = [*COMMAND, str(tmp_path), "-v"]
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as watch:
        assert watch.stderr
        for line in watch.stderr:  # until the shell is started, which -v tells
            if "sh -s" in line:
                break
        assert processes.eventually(lambda: children(watch.pid), 30)
        started = children(watch.pid)
        watch.send_signal(signal.SIGINT)
        out, err = watch.communicate(timeout=60)
    assert watch.returncode == 4, err
    assert out.startswith("undecided: ")
    assert "Interrupted" not in err
    assert processes.eventually(lambda: not any(Path(f"/proc/{each}").exists() for each in started))


def test_a_small_terminal_shows_what_moves(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    env = {**os.environ, "TERM": "xterm", "COLUMNS": "80", "LINES": "24"}
    words = [*COMMAND, str(tmp_path), "--for", "2"]
    with (
        traffic(),
        subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=theirs, env=env) as watch,
    ):
        os.close(theirs)
        drawn = b""
        with contextlib.suppress(OSError):  # EIO: nobody writes there any more
            while part := os.read(ours, 1 << 16):
                drawn += part
        assert watch.wait(60) == 4
    os.close(ours)
    text = re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", drawn.decode())
    assert "Ctrl-C ends it" in text
    assert re.search(r" lo +[\d.]+ MB/s", text), text
    assert max(map(len, text.replace("\r", "\n").splitlines())) <= 80


@pytest.mark.slow
def test_ranks_that_wait_are_a_bad_answer(tmp_path: Path) -> None:
    """The recording is of four real ranks."""
    with ras(DATA / "h200/ras-4-sleep.json") as address:
        words = [*COMMAND, str(tmp_path), "--for", "12", "--ras", address, "--json"]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout
    document = json.loads(done.stdout)
    assert document["last"].startswith("bad: ")  # who waits, unless other tests move data
    meanings = [each["meaning"] for each in document["findings"]]
    assert meanings[0].startswith("NCCL's RAS: Communicator 0x64bf2e6c2b2392cf: AllReduce")
    assert {each["code"] for each in document["findings"]} == {"ras-mismatch"}
    assert any("RAS answers" in note for note in document["notes"])


def test_the_rank_that_others_wait_for_is_a_bad_answer(tmp_path: Path) -> None:
    """The lines are of two real ranks; a thread writes them again, with new numbers of calls."""
    folder = tmp_path / "job"
    folder.mkdir()
    ranks = sorted((DATA / "inspector/skewed").iterdir())
    over = threading.Event()

    def write() -> None:
        for turn in itertools.count(1):
            for lines in zip(*(path.read_text().splitlines() for path in ranks), strict=True):
                for path, line in zip(ranks, lines, strict=True):
                    new = line.replace('"coll_sn":', f'"coll_sn":{turn}0')
                    with (folder / path.name).open("a") as file:
                        file.write(f"{new}\n")
                if over.wait(0.02):
                    return

    writer = threading.Thread(target=write)
    writer.start()
    words = [*COMMAND, str(tmp_path / "store"), "--for", "4", "--inspector", str(folder), "--json"]
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    finally:
        over.set()
        writer.join()
    assert done.returncode == 1, done.stderr
    document = json.loads(done.stdout)
    found = {each["code"]: each["meaning"] for each in document["findings"]}
    assert "all_reduce: rank 1 (node-a, process 1674) comes last to" in found["rank-waited-for"]
    speeds = [each["meaning"] for each in document["findings"] if "-speed" in each["code"]]
    assert any("all_reduce at 64 MB: busbw 27" in speed for speed in speeds), speeds
    assert not [note for note in document["notes"] if "nothing new" in note]
