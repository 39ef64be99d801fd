"""Faults of software, hosts and network, each injected several times, are judged right.

What is only installed wrongly, crashes or hangs rejects nobody; what is broken is named. All ten
times: `FABBENCH_FAULT_TIMES=10`. Those of the network, with `-k 'lossy or port or hole or cut'`,
are to take some 40 minutes of a quiet machine.
"""

import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from tests.support.host_fixtures import OSU, Labs
from tests.support.hosts import Host, Lab
from tests.support.ssh_faults import running
from tests.support.ssh_runs import STORE, argv, hosts

pytestmark = [pytest.mark.lab, pytest.mark.slow]

TIMES = int(os.environ.get("FABBENCH_FAULT_TIMES", "1"))
"""How often each fault is injected: once, or more to measure how often a verdict is right."""
RATE = "400mbit"
"""Of the hosts' second network: so little that the load of this machine matters little."""
SLOW = "200mbit"
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
    network: bool = False
    """Whether the tests have a network of their own, whose rates are set: fabbench keeps another.

    The fault comes in the middle of the tests of pairs then.
    """
    mend: Callable[[Lab], object] | None = None
    """Undoes it, so that the next time finds the same hosts as they were. None: it gets its own."""
    rate: str = RATE
    limit_s: int = 12
    """Of a test of a pair; healthy ones take 2 to 4 s."""
    options: tuple[str, ...] = ()


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


def blackhole(lab: Lab) -> None:
    """Take the port of the last host out of the switch, which no link shows."""
    lab.touched = True
    lab.run(["ip", "link", "set", "sw3.1", "nomaster"], check=True)


def mend_blackhole(lab: Lab) -> None:
    lab.run(["ip", "link", "set", "sw3.1", "master", "br1"], check=True)


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
    "lossy": Fault(
        lambda lab: lab[3].lose(10, rate=SLOW),
        *("rejected", "hardware"),
        NODE,
        network=True,
        mend=lambda lab: lab[3].keep(),
        rate=SLOW,  # Each packet is sent alone then: few of them leave time for what else runs
        limit_s=60,  # its tests end in half of that: their figures tell
        options=("--iterations", "20"),
    ),
    "port-down": Fault(
        lambda lab: lab[3].cut("fab1"),
        *("rejected", "hardware"),
        NODE,
        network=True,
        mend=lambda lab: lab[3].heal("fab1"),
    ),
    "blackhole": Fault(
        blackhole, "rejected", "infrastructure", NODE, network=True, mend=mend_blackhole
    ),
    "cut-off": Fault(
        lambda lab: lab[3].cut(),
        *("rejected", "infrastructure"),
        NODE,
        network=True,
        options=("--set", "lost-after=15"),
    ),
    "no-sshd": Fault(lambda lab: lab[3].kill_sshd(), "rejected", "infrastructure", NODE),
}


LIMITED = ("--interface", "fab1", "--tolerance", "30%", "--iterations", "30")
"""Options of tests that have a network of their own: a pair sends 80 MB there and back."""


@pytest.mark.parametrize("time", range(TIMES))
@pytest.mark.parametrize("name", FAULTS)
def test_every_verdict_is_right(lab: Labs, name: str, time: int) -> None:
    del time
    fault = FAULTS[name]
    with hosts_for(fault, lab) as site:
        out, err = accepted(site, fault)
    assert out, err
    found = json.loads(out)
    assert (found["verdict"], found["fault_class"]) == (fault.answer, fault.fault_class), found
    assert frozenset(found["bad"]) == fault.bad, found["bad"]
    assert fault.said in json.dumps(found["untested"]), found["untested"]


@contextmanager
def hosts_for(fault: Fault, lab: Labs) -> Iterator[Lab]:
    """Yield four hosts: those of the time before, where a fault can be undone."""
    if fault.mend is None:
        with lab(4, fresh=True, tmp="64m", slow=fault.rate) as site:
            yield site
        return
    site = lab(4, slow=fault.rate)
    yield site
    fault.mend(site)
    site.touched = False


def accepted(site: Lab, fault: Fault) -> tuple[str, str]:
    """Return what a ladder prints, before or in the middle of which a fault comes."""
    words = argv("accept", "--on", "ssh", *hosts(site), "--fabric", "tcp", "--json")
    if not fault.network:
        for host in site.hosts:
            shutil.copytree(OSU, host.path(PROGRAMS), symlinks=True)
        fault.inject(site)
        done = site.run([*words, "--bin-dir", PROGRAMS, "--tolerance", "80%"], timeout=600)
        return done.stdout, done.stderr
    words += ["--bin-dir", str(OSU), *LIMITED, *fault.options, "--timeout", str(fault.limit_s)]
    with running(site, words) as program:
        program.until(lambda: list(site.path(STORE).glob("*/exec/*/output.log")), 600)
        fault.inject(site)
        program.ends(1200)
    return program.out, program.err
