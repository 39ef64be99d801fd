"""Streams, files, limits and parents as they may be: a message and a status, never a traceback."""

import os
import shlex
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from fabbench.model.errors import Exit
from tests.support.hosts.processes import children
from tests.support.local_runs import alive, argv, environment, eventually
from tests.support.paths import LOGS
from tests.support.tiers import sampled

LOG = LOGS / "nccl/x-net-socket.txt"
COMMANDS = sampled([["parse", "--format", "json"], ["parse"], ["compare"], ["explain"]], every=4)

pytestmark = pytest.mark.local


@pytest.mark.parametrize("command", COMMANDS)
def test_a_full_disk_is_reported(command: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "fabbench", *command, str(LOG)],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == Exit.REFUSED
    assert done.stderr.startswith("Error: ")
    assert "No space left" in done.stderr


@pytest.mark.parametrize("command", COMMANDS)
def test_a_reader_that_goes_away_is_no_breached_gate(command: list[str]) -> None:
    """`fabbench … | head -1`: status 1 would say that a gate was breached."""
    with subprocess.Popen(
        [sys.executable, "-m", "fabbench", *command, *[str(LOG)] * 40],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout
        assert process.stderr
        process.stdout.close()
        said = process.stderr.read().splitlines()
        assert [line for line in said if " is named 40 times" not in line] == []
        assert process.wait() == Exit.REFUSED


# ---------------------------------------------------------------- streams and limits

FABBENCH = shlex.join(argv())
PARSE = f"{FABBENCH} parse {LOG}"
RUN = f"{FABBENCH} run pingpong --on local --fabric tcp --size 64 --repeat 1"


def shell(store: Path, text: str) -> "subprocess.CompletedProcess[str]":
    """Run a line of bash; nothing in it may end with a traceback."""
    done = subprocess.run(
        ["bash", "-c", text],
        cwd=store,
        capture_output=True,
        text=True,
        env=environment(store),
        check=False,
    )
    assert "Traceback" not in done.stderr
    return done


@pytest.mark.parametrize(
    ("text", "status", "said"),
    [
        (f"{PARSE} >&-", Exit.REFUSED, "Error: A standard stream is closed."),
        (f"{PARSE} 2>&-", Exit.REFUSED, ""),
        pytest.param(f"{RUN} 2>/dev/full", Exit.FINE, "", marks=pytest.mark.slow),
        (
            (
                f'printf \'{{"format":1,"logs":[%0100000000d]}}\' 1 >large; ulimit -v 80000; '
                f"{FABBENCH} parse large"
            ),
            Exit.REFUSED,
            "Error: Not enough memory",
        ),
        pytest.param(
            f"ulimit -f 1; {RUN}", Exit.REFUSED, "File size limit exceeded", marks=pytest.mark.slow
        ),
        pytest.param(
            f"PYTHONIOENCODING=ascii {FABBENCH} compare {LOG} {LOG}",
            Exit.FINE,
            "",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            f"LC_ALL=C PYTHONUTF8=0 PYTHONCOERCECLOCALE=0 {PARSE}",
            Exit.FINE,
            "",
            marks=pytest.mark.slow,
        ),
        (f"{FABBENCH} compare <(cat {LOG}) {LOG}", Exit.FINE, ""),
        (f"{FABBENCH} compare /dev/null {LOG}", Exit.REFUSED, "Nothing in /dev/null is recognized"),
        (f"{FABBENCH} parse /dev/zero", Exit.REFUSED, "/dev/zero: is a device, not a log."),
    ],
)
def test_a_sentence_and_the_right_status(
    tmp_path: Path, text: str, status: Exit, said: str
) -> None:
    done = shell(tmp_path, text)
    assert done.returncode == status, done.stderr
    assert said in done.stderr


def test_a_name_that_is_no_text(tmp_path: Path) -> None:
    name = os.fsencode(tmp_path) + b"/caf\xe9.log"
    Path(os.fsdecode(name)).write_bytes(LOG.read_bytes())
    for form in ("text", "json"):
        assert (
            shell(tmp_path, f"{FABBENCH} parse --format {form} {tmp_path}/*.log").returncode
            == Exit.FINE
        )
    assert shell(tmp_path, f"{FABBENCH} compare {tmp_path}/*.log {LOG}").returncode == Exit.FINE


@pytest.mark.lab
@pytest.mark.slow
def test_a_full_disk_for_temporary_files(tmp_path: Path) -> None:
    """A run says so and ends; nothing is left on the disk."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = (
        f"mount -t tmpfs -o size=64k none {disk} && dd if=/dev/zero of={disk}/rest bs=1k "
        "2>/dev/null;"
    )
    done = shell(
        tmp_path, f"unshare --mount bash -c '{mount} TMPDIR={disk} {RUN}; echo $?; ls {disk}'"
    )
    *_, status, left = done.stdout.split()
    assert status in {"0", "3"}
    assert left == "rest"


# ---------------------------------------------------------------- files that are none


def test_special_files_are_skipped_with_a_word(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_bytes(LOG.read_bytes())
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "zero").symlink_to("/dev/zero")
    (tmp_path / "again").symlink_to(tmp_path)
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(tmp_path / "socket"))
        done = shell(tmp_path, f"{FABBENCH} parse {tmp_path} --format csv")
    assert done.returncode == Exit.FINE, done.stderr
    skipped = ("pipe", "socket", "zero")
    said = done.stderr.splitlines()
    assert len(said) == len(skipped)
    assert all(
        f"{tmp_path}/{name} is not a regular file" in line
        for line, name in zip(said, skipped, strict=True)
    )


# ---------------------------------------------------------------- ends


@pytest.mark.slow
def test_workers_end_without_a_word(tmp_path: Path) -> None:
    """Again and again.

    What the interpreter does at its end raced with what was left of the workers.
    """
    for number in range(20):
        (tmp_path / f"{number}.log").write_bytes(LOG.read_bytes())
    for _ in range(15):
        done = shell(tmp_path, f"{FABBENCH} parse {tmp_path} --format csv")
        assert (done.returncode, done.stderr) == (Exit.FINE, "")


@pytest.mark.parametrize(
    "number", sampled([signal.SIGKILL, signal.SIGTERM, signal.SIGHUP], every=3)
)
def test_no_worker_outlives_the_command(tmp_path: Path, number: signal.Signals) -> None:
    text = LOG.read_bytes()
    for index in range(24):
        (tmp_path / f"{index}.log").write_bytes(text * (3_000_000 // len(text)))
    with subprocess.Popen(argv("parse", str(tmp_path)), stdout=subprocess.DEVNULL) as process:
        assert eventually(lambda: children(process.pid) or process.poll() is not None)
        workers = children(process.pid)
        assert workers
        process.send_signal(number)
        process.wait()
        assert eventually(lambda: not any(map(alive, workers)))
