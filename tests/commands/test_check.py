"""``fabbench check``, on this machine and on hosts."""

import contextlib
import json
import os
import pty
import re
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from fabbench.cli import cli
from tests.support.command_line import runner
from tests.support.host_fixtures import STANDIN, Labs
from tests.support.hosts import HOME, Host, Lab, processes

FABBENCH = (sys.executable, "-m", "fabbench")
Found = Mapping[str, Mapping[str, Mapping[str, str]]]

pytestmark = pytest.mark.slow


def argv(lab: Lab, *more: str, names: Sequence[str] = ()) -> list[str]:
    hosts = [
        word for name in names or [host.name for host in lab.hosts] for word in ("--host", name)
    ]
    return [*FABBENCH, "check", "--on", "ssh", *hosts, "--bin-dir", str(STANDIN), *more]


def check(lab: Lab, *more: str, status: int) -> Found:
    """Check all hosts of a lab: check → host → what was found. Nothing is left anywhere."""
    before = lab.traces()
    done = lab.run(argv(lab, "--format", "json", *more))
    assert done.returncode == status, (done.stdout, done.stderr)
    assert lab.left_since(before) == []
    found: dict[str, dict[str, dict[str, str]]] = defaultdict(dict)
    for record in json.loads(done.stdout):
        found[record["check"]][record["host"]] = record
    return found


def statuses(found: Found, name: str) -> list[str]:
    return [record["status"] for record in found[name].values()]


def hide(host: Host, program: str) -> None:
    """Let a host have no such program."""
    host.lab.touched = True
    host.sh(["mount", "--bind", "/dev/null", os.path.realpath(program)])


# ---------------------------------------------------------------- hosts


@pytest.mark.lab
def test_hosts_that_are_well(lab: Labs) -> None:
    found = check(lab(4), status=0)
    for name in (
        "reachable",
        "answer",
        "libfabric",
        "programs",
        "mpirun",
        "tools",
        "interface",
        "kernel",
    ):
        assert statuses(found, name) == ["pass"] * 4, name
    assert statuses(found, "efa") == ["skip"] * 4
    seen = [record["seen"] for record in found["connections"].values()]
    assert seen == [
        "Reached node1, node2, node3.",
        "Reached node0, node2.",
        "Reached node0, node3.",
        "Reached node0.",
    ]
    assert [record["seen"] for record in found["interface"].values()][1] == "fab0 (198.18.1.11)."


@pytest.mark.lab
def test_what_is_wanted_and_is_not_there(lab: Labs) -> None:
    found = check(lab(2), "--efa", "--benchmark", "nccl", status=3)
    assert statuses(found, "efa") == statuses(found, "gpus") == ["fail"] * 2
    assert "all_reduce_perf" in found["programs"]["node0"]["seen"]
    assert statuses(found, "programs") == ["pass"] * 2


@pytest.mark.lab
def test_a_host_that_is_down_leaves_the_others_to_be_checked(lab: Labs) -> None:
    hosts = lab(3, fresh=True)
    hosts[1].kill()
    found = check(hosts, status=3)
    assert list(found["reachable"]) == ["node0", "node1", "node2"]
    assert statuses(found, "reachable") == ["pass", "fail", "pass"]
    assert [record["host"] for record in found["kernel"].values()] == ["node0", "node2"]
    assert statuses(found, "connections") == ["pass"] * 2


@pytest.mark.lab
def test_no_host_at_all(lab: Labs) -> None:
    hosts = lab(2, fresh=True)
    for host in hosts.hosts:
        host.kill_sshd()
    found = check(hosts, status=3)
    assert set(found) == {"reachable"}
    assert statuses(found, "reachable") == ["fail"] * 2


@pytest.mark.lab
def test_a_host_key_that_is_not_known(lab: Labs) -> None:
    hosts = lab(2, fresh=True)
    known = hosts.home / ".ssh/known_hosts"
    known.write_text("".join(known.read_text().splitlines(keepends=True)[:1]))
    found = check(hosts, status=3)
    assert list(found["reachable"]) == ["node0", "node1"]
    assert "--accept-new-host-keys" in found["reachable"]["node1"]["seen"]
    assert found["connections"]["node0"]["status"] == "skip"
    done = hosts.run(argv(hosts, "--accept-new-host-keys"))
    assert done.returncode == 0, done.stdout


@pytest.mark.lab
def test_a_firewall_between_two_hosts_is_named(lab: Labs) -> None:
    hosts = lab(4, fresh=True)
    hosts[1].wall(hosts[2])
    found = check(hosts, status=3)
    assert statuses(found, "connections") == ["pass", "fail", "pass", "pass"]
    why = "Not reached: node2 (no answer in 3 s); reached: 1."
    assert found["connections"]["node1"]["seen"] == why


@pytest.mark.lab
def test_connections_of_a_host_without_python_are_skipped(lab: Labs) -> None:
    hosts = lab(3, fresh=True)
    hide(hosts[1], "/usr/bin/python3")
    found = check(hosts, status=0)
    assert statuses(found, "connections") == ["pass", "skip", "pass"]
    assert "python3 was not found on node1" in found["connections"]["node1"]["seen"]
    assert found["connections"]["node2"]["seen"] == "Reached node0."


@pytest.mark.lab
def test_the_interface_that_was_asked_for(lab: Labs) -> None:
    hosts = lab(3, fresh=True)
    found = check(hosts, "--interface", "fab1", status=0)
    assert found["interface"]["node2"]["seen"] == "fab1 (198.18.2.12)."
    hosts[1].sh(["ip", "addr", "flush", "dev", "fab1"])
    found = check(hosts, "--interface", "fab1", status=3)
    assert statuses(found, "connections") == ["fail"] * 3
    assert "no interface fab1" in found["connections"]["node0"]["seen"]
    nowhere = hosts.run(argv(hosts, "--interface", "fab7"))
    assert nowhere.returncode == 3
    assert "no interface fab7 with an IPv4 address, but" in nowhere.stderr


@pytest.mark.lab
def test_what_a_login_prints_is_reported(lab: Labs) -> None:
    hosts = lab(2, fresh=True, homes="own")
    hosts[1].path(HOME / ".bashrc").write_text("echo Welcome\n")
    found = check(hosts, status=0)
    assert statuses(found, "answer") == ["pass", "warn"]
    assert "Welcome" in found["answer"]["node1"]["seen"]
    assert statuses(found, "connections") == ["pass"] * 2


@pytest.mark.lab
@pytest.mark.parametrize(
    ("stage", "number", "status"),
    [
        ("connecting", signal.SIGINT, 130),
        ("trying connections", signal.SIGINT, 130),
        ("trying connections", signal.SIGKILL, -signal.SIGKILL),
    ],
)
def test_interrupted_it_leaves_nothing(
    lab: Labs, stage: str, number: signal.Signals, status: int
) -> None:
    hosts = lab(3, fresh=True)
    before = hosts.traces()
    if stage == "connecting":
        hosts[2].freeze()
    else:
        hosts[1].wall(hosts[2])
    # Words in the command line of what runs on a host once that stage is reached. Trying takes
    # three seconds.
    reached = "sshd: root" if stage == "connecting" else "_LIFETIME_S"
    with hosts.popen(argv(hosts)) as run:
        assert processes.eventually(lambda: reached in str(hosts[1].processes()))
        run.send_signal(number)
        assert run.wait(60) == status
    hosts[2].thaw()
    assert hosts.left_since(before) == []


@pytest.mark.lab
@pytest.mark.parametrize(("width", "hosts"), [(80, 4), (200, 4), (80, 10)])
def test_the_table_fits_the_terminal(lab: Labs, width: int, hosts: int) -> None:
    up = lab(hosts)
    shown = on_terminal(up.argv(argv(up)), up.environment({"COLUMNS": str(width)}), status=0)
    assert max(map(len, plain(shown).splitlines())) <= width
    assert "connections" in shown
    assert "\x1b[" in shown


# ---------------------------------------------------------------- this machine


def on_terminal(argv: list[str], env: Mapping[str, str], status: int | None = None) -> str:
    """Run a command with a terminal for its output, and give what it writes there."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(argv, stdout=theirs, stderr=subprocess.PIPE, env=env) as run:
        os.close(theirs)
        text = b""
        with contextlib.suppress(OSError):
            while data := os.read(ours, 1 << 16):
                text += data
    os.close(ours)
    assert status is None or run.returncode == status
    return text.decode().replace("\r\n", "\n")


def plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def run(*arguments: str, **env: str) -> Result:
    kept: dict[str, Any] = {"FABBENCH_TARGET": None, "FABBENCH_CONFIG": None, **env}
    return runner().invoke(cli, ["check", *arguments], env=kept)


@pytest.mark.local
def test_this_machine() -> None:
    done = run("--on", "local", "--bin-dir", str(STANDIN), "--format", "json")
    found = {record["check"]: record["status"] for record in json.loads(done.stdout)}
    assert found["reachable"] == found["programs"] == "pass"
    assert "connections" not in found
    assert done.exit_code == (3 if "fail" in found.values() else 0)
    assert done.stderr == "Target local: set with --on.\n"


@pytest.mark.local
def test_the_file_says_what_is_wanted(tmp_path: Path) -> None:
    file = tmp_path / "fabbench.yaml"
    file.write_text(
        "default: here\ndefaults: {fabrics: [efa, tcp]}\ntargets: {here: {launcher: local}}\n"
    )
    done = run("--config", str(file), "--format", "csv")
    assert done.exit_code == 3
    assert re.search(r"^[^,]*,efa,fail,", done.stdout, re.MULTILINE)
    assert done.stderr.startswith("Target here: default of")
