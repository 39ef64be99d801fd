"""Twelve faults of software, hosts and network, each injected several times, are judged right.

What is only installed wrongly, crashes or hangs rejects nobody; what is broken is named.
"""

import json
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.support.host_fixtures import OSU, Labs
from tests.support.hosts import Host, Lab
from tests.support.ssh_runs import argv, hosts

pytestmark = [pytest.mark.lab, pytest.mark.slow]

TIMES = int(os.environ.get("FABBENCH_FAULT_TIMES", "1"))
"""How often each fault is injected: once, or more to measure how often a verdict is right."""
PROGRAMS = "/run/osu"
"""Where the hosts of these tests have the OSU micro-benchmarks: each its own."""


@dataclass(frozen=True)
class Fault:
    """A fault of the last of four hosts, or of all of them, and the right answer."""

    inject: Callable[[Lab], object]
    answer: str
    fault_class: str
    bad: frozenset[str] = frozenset()
    said: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)


def program(host: Host, name: str, text: str) -> None:
    path = host.path(PROGRAMS) / name
    path.unlink()
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def everywhere(text: str) -> Callable[[Lab], None]:
    """Replace osu_allreduce on all hosts."""

    def inject(lab: Lab) -> None:
        for host in lab.hosts:
            program(host, "osu_allreduce", text)

    return inject


def on_last(*words: str) -> Callable[[Lab], object]:
    """Run a command on the last host."""
    return lambda lab: lab[3].sh(list(words))


def shadowed(name: str, text: str) -> Callable[[Lab], object]:
    """Replace a program of the system on the last host."""
    script = (
        f"printf '#!/bin/sh\\n{text}\\n' >/run/instead; chmod 755 /run/instead; "
        f"mount --bind /run/instead /usr/bin/{name}"
    )
    return on_last("bash", "-c", script)


def no_program(lab: Lab) -> None:
    for host in lab.hosts:
        (host.path(PROGRAMS) / "osu_allreduce").unlink()


def inodes(lab: Lab) -> None:
    lab[3].sh(["mount", "-o", "remount,nr_inodes=3", "/tmp"])
    lab[3].sh(["bash", "-c", "touch /tmp/a /tmp/b /tmp/c; true"])


NODE = frozenset({"node3"})
FAULTS: Mapping[str, Fault] = {
    "library": Fault(
        everywhere("echo 'osu: error while loading shared libraries: libmpi.so.40' >&2; exit 127"),
        *("incomplete", "software"),
        said="error while loading shared libraries",
    ),
    "crash": Fault(everywhere("kill -SEGV $$"), "incomplete", "software"),
    "usage": Fault(
        everywhere("echo 'Usage: this OSU has other options' >&2; exit 1"),
        *("incomplete", "software"),
        said="Usage: this OSU has other options",
    ),
    "absent": Fault(no_program, "incomplete", "software", said="osu_allreduce not found"),
    "no-pingpong": Fault(
        shadowed("fi_pingpong", "exit 127"), "incomplete", "software", said="node3"
    ),
    "read-only": Fault(
        on_last("mount", "-o", "remount,ro", "/tmp"), "rejected", "infrastructure", NODE
    ),
    "full": Fault(lambda lab: lab[3].fill_disk("/tmp"), "rejected", "infrastructure", NODE),
    "inodes": Fault(inodes, "rejected", "infrastructure", NODE),
    "noexec": Fault(
        on_last("mount", "-o", "remount,noexec", "/tmp"), "incomplete", "software", said="noexec"
    ),
    "no-agent": Fault(shadowed("setsid", "exit 126"), "incomplete", "software", said="node3"),
    "down": Fault(lambda lab: lab[3].kill(), "rejected", "infrastructure", NODE),
    "no-sshd": Fault(lambda lab: lab[3].kill_sshd(), "rejected", "infrastructure", NODE),
}


@pytest.mark.parametrize("time", range(TIMES))
@pytest.mark.parametrize("name", FAULTS)
def test_every_verdict_is_right(lab: Labs, name: str, time: int) -> None:
    del time
    fault = FAULTS[name]
    with lab(4, fresh=True, tmp="64m") as site:
        for host in site.hosts:
            shutil.copytree(OSU, host.path(PROGRAMS), symlinks=True)
        fault.inject(site)
        own = ("--bin-dir", PROGRAMS, "--fabric", "tcp", "--tolerance", "80%", "--json")
        done = site.run(argv("accept", "--on", "ssh", *hosts(site), *own), timeout=600)
    assert done.stdout, done.stderr
    found = json.loads(done.stdout)
    assert (found["verdict"], found["fault_class"]) == (fault.answer, fault.fault_class), found
    assert frozenset(found["bad"]) == fault.bad, found["bad"]
    assert fault.said in json.dumps(found["untested"]), found["untested"]
