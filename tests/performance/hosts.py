"""``fabbench check`` of many hosts, against the same probe over as many plain ssh concurrently."""

import os
import shlex
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from fabbench.hosts.probe import probe_arguments, script
from tests.support.hosts import Lab, Options, missing

# What `fabbench check` looks for where nothing else is said.
PROGRAMS = ("all_reduce_perf", "mpirun")
EVERY_HOST = 'for host; do ssh "$host" "$COMMAND" <"$SCRIPT" >"$FOLDER/$host" & done; wait'


def seconds(lab: Lab, argv: list[str], statuses: tuple[int, ...], **env: str) -> float:
    begin = time.perf_counter()
    done = lab.run(argv, env=env, timeout=600)
    took = time.perf_counter() - begin
    if done.returncode not in statuses:
        raise SystemExit(f"{argv[:6]} ended with {done.returncode}: {done.stderr}")
    return took


def check(count: int, times: int) -> None:
    """Measure in turns, so that a busy moment meets both."""
    if why := missing():
        print(f"check of {count} hosts: not measured: {why}")
        return
    with tempfile.TemporaryDirectory(prefix="fabbench-bench-") as name:
        probe = Path(name, "probe.sh")
        probe.write_text(script())
        with Lab(Path(name, "lab"), Options(hosts=count)) as lab:
            names = [host.name for host in lab.hosts]
            command = shlex.join(["sh", "-s", "--", *probe_arguments(PROGRAMS)])
            plain = ["sh", "-c", EVERY_HOST, "sh", *names]
            env = {"COMMAND": command, "SCRIPT": str(probe), "FOLDER": name}
            hosts = [word for host in names for word in ("--host", host)]
            fabbench = [sys.executable, "-m", "fabbench", "check", "--on", "ssh", *hosts, "--format", "json"]
            took: dict[str, list[float]] = {"ssh": [], "check": []}
            load = os.getloadavg()[0]
            for _ in range(times):
                took["ssh"].append(seconds(lab, plain, (0,), **env))
                whole = sum("end\tok" in Path(name, host).read_text() for host in names)
                if whole != count:
                    raise SystemExit(f"only {whole} of {count} hosts answered over plain ssh")
                # Status 3: nccl-tests are not installed there.
                took["check"].append(seconds(lab, fabbench, (0, 3)))
    print(f"check of {count} hosts, {times} runs each (load {load:.1f}): least, median, against ssh")
    base = min(took["ssh"])
    for what, runs in took.items():
        title = "probe over plain ssh" if what == "ssh" else f"fabbench {what}"
        print(f"  {title:<22} {min(runs):6.2f} s {median(runs):6.2f} s  {min(runs) / base:5.2f} x")


if __name__ == "__main__":
    check(int(sys.argv[1]), int(sys.argv[2]))
