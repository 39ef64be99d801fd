"""Whole programs that stand in for perftest and the fabtests where there is no RDMA device.

They take the options of the true ones, meet over TCP, and print as those do (perftest_parameters.c,
fabtests/common/shared.c, libfabric's src/fabric.c and prov/efa/src/efa_base_ep.c). A device's
number gives its speed. Started as ``rail_programs.py PROGRAM OPTIONS``.
"""

import getopt
import os
import re
import socket
import sys
import time
from pathlib import Path

from tests.support.libfabric_text import Measured, fabtests_table
from tests.support.paths import ROOT
from tests.support.perftest_text import Setup, bandwidth_row, rate_of, run, waiting

SLOW = 3
"""The number of the device that has half the speed."""


def made(folder: Path, *names: str) -> dict[str, str]:
    """Make executables of these names; gives their paths."""
    for name in names:
        path = folder / name
        module = "-m tests.support.rail_programs"
        path.write_text(
            f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" {module} {name} "$@"\n'
        )
        path.chmod(0o755)
    return {name: str(folder / name) for name in names}


def meet(port: int, server: str | None, own: float = 0.0) -> float:
    """Wait for the other side; return the smaller one of both numbers."""
    if server is None:
        with socket.create_server(("", port)) as listening:
            other = listening.accept()[0]
    else:
        other = socket.create_connection((server, port))
    with other, other.makefile("rw") as line:
        line.write(f"{own}\n")
        line.flush()
        return min(own, float(line.readline()))


def megabytes(device: str) -> float:
    number = int(re.findall(r"\d+", device)[-1])
    return 5000.0 if number == SLOW or device in _bad() else 10000.0 + number


def _bad() -> list[str]:
    """Devices of this host that are to have half the speed."""
    file = Path("/run/standin/BAD_NIC")
    return file.read_text().split() if file.exists() else []


def say(*lines: str) -> None:
    for line in lines:
        print(line, flush=True)


def perftest(words: list[str]) -> int:
    options, operands = getopt.gnu_getopt(
        words, "c:d:i:x:Fp:q:as:n:D:b", ["use_cuda=", "use_cuda_dmabuf", "report_gbits"]
    )
    given = dict(options)
    side = "client" if operands else "server"
    if side == "server":
        say(*waiting())
    device = os.environ.get("STANDIN_DEVICE", given["-d"])
    speed = meet(int(given["-p"]), next(iter(operands), None), megabytes(device))
    size, average = int(given["-s"]), f"{speed:.2f}"
    row = bandwidth_row(size, 5000, "0.00", average, rate_of(average, size, "MiB/sec"))
    say(*run(Setup(device=device, connection=given["-c"], side=side), row))
    return 0


def fabtest(program: str, words: list[str]) -> int:
    port = next(word[3:] for word in words if word.startswith("-E="))
    rest = [word for word in words if not word.startswith("-E=")]
    options, operands = getopt.gnu_getopt(rest, "p:f:d:e:o:S:I:W:D:i:")
    given = dict(options)
    device = os.environ.get("STANDIN_DEVICE", given["-d"])
    log = f"libfabric:{os.getpid()}:{int(time.time())}:"
    if os.environ.get("FI_LOG_LEVEL") == "info" and "core" in os.environ.get("FI_LOG_PROV", "core"):
        say(f"{log}:core:core:fi_fabric_():1659<info> Opened fabric: efa")
        qp = f"QP enabled! qp_n: 3 qkey: 71, domain_name: {device}, efa_domain: 0x55d0c0ffee"
        say(f"{log}:efa:ep_ctrl:efa_qp_create():605<info> {qp}")
    meet(int(port), next(iter(operands), None))
    size, count = int(given["-S"]), int(given["-I"])
    us = count * size / megabytes(device.removesuffix("-rdm"))
    say(*fabtests_table([Measured(size, count, us)]))
    return 0 if program else 1


if __name__ == "__main__":
    name, *arguments = sys.argv[1:]
    sys.exit(perftest(arguments) if name.startswith("ib_") else fabtest(name, arguments))
