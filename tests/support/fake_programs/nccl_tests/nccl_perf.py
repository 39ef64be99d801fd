#!/usr/bin/env python3
"""A stand-in for NVIDIA's nccl-tests, for machines without GPUs.

`all_reduce_perf` and its siblings.

It runs under a real mpirun, one process a rank, takes the options of nccl-tests and prints what
they print, at the speed of recorded runs. Which network it "uses", and says it uses, follows from
the NCCL_ and FI_ variables that each rank really has. Like a C program it writes in blocks where
its output is no terminal.

It "loads" the libnccl.so.2 that the linker would find by LD_LIBRARY_PATH, and has the version that
the name of the file says. As with NCCL itself, ranks of several versions do not start.

Faults and variations, by the environment or on one host by files (see standin_ranks.SETTINGS):
STANDIN_HANG_AT=SIZE       print nothing more from this size on, and do not end
STANDIN_WAIT_AT=SIZE       as a file: print nothing more from this size on while the file is there
STANDIN_EXIT_AT=SIZE:RANK:CODE  that rank ends at this size; a negative code is a signal. As a file:
                           * is every rank of this host
STANDIN_FLOOD=RATE         print lines without end instead of rows, so many MB/s
STANDIN_WRONG=SIZE         wrong values in this row
STANDIN_NO_MPI=1           every rank believes to be alone, as in a build without MPI
STANDIN_IGNORE_TERM=1      do not end by SIGTERM and SIGINT
STANDIN_NO_EFA, _NO_IB=1   there is no such device here
STANDIN_RACK=1             NVLink connects the hosts
STANDIN_NICS=4             NICs of each rank, of which NCCL_IB_HCA and FI_EFA_IFACE choose
STANDIN_BAD_NIC=NAME      as a file: this NIC of this host has half of its speed
STANDIN_ROW_S=0            seconds for each row
STANDIN_DEAF=1             use the same algorithm whatever NCCL_ALGO and NCCL_PROTO say
STANDIN_SPEED=1, _JITTER=0, _SEED=process id   scale the figures, and let them vary
STANDIN_SPEED_TREE=1       the same where NCCL_ALGO is TREE
"""

import os
import signal
import sys
import time
from pathlib import Path
from typing import NoReturn

from standin_call import INSTALLED, Call
from standin_network import Choice, Debug, Writer, choose, interfaces, nics
from standin_ranks import Meeting, Place, setting
from standin_table import Arguments, Speed, Table, arguments, size

GPU = "NVIDIA H200"
VERSION = "2.28.9"
"""Where no library says another."""


def main() -> int:
    """Run; gives the exit status."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    if setting("IGNORE_TERM"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    out = Writer(1)
    try:
        return run(Path(sys.argv[0]).name, arguments(sys.argv[1:]), out)
    finally:
        out.flush()


def run(program: str, options: Arguments, out: Writer) -> int:
    """Do what one rank does."""
    if options.wrong:
        os.write(
            2,
            f"{sys.argv[0]}: unrecognized option '{options.wrong}'\ninvalid option '?'\n".encode(),
        )
        out.write(f"USAGE: {program} \n\t[-t,--nthreads <num threads>] \n")
        return 0
    place = Place()
    host = os.environ.get("NCCL_HOSTID") or place.host
    meet = Call if Path(__file__).parent == INSTALLED else Meeting
    own = f"{place.host} {place.pid} {place.local} {host} {version()} {setting('BAD_NIC', '-')}"
    meeting = meet(place, own) if place.size > 1 else None
    details = [line.split() for line in meeting.details] if meeting else [own.split()]
    if meeting and not setting("IGNORE_TERM"):
        meeting.leave_on(signal.SIGTERM)
        meeting.leave_on(signal.SIGINT)
    gpus = int(options["g"]) * int(options["t"])
    if place.rank == 0:
        out.write(banner(program, options, details, gpus))
    where, handle = nodes(details)
    choice = choose(links := interfaces())
    debug = Debug(
        place,
        out,
        {
            **facts(place, where, links, choice),
            "version": version(),
            "mnnvl": int(handle == "MNNVL"),
        },
    )
    debug.page("start")
    for page in choice.pages:
        debug.page(page)
    if not choice.network or mismatched(debug, details[0][4], place):
        # Rank 0 has seen all the others read what they need; they do not know of each other.
        if meeting and place.rank == 0:
            meeting.leave()
        return fail(place, out)
    debug.page("ready")
    connect(debug, place, where, choice, handle)
    network = choice.network if len(set(where)) > 1 else "nvlink"
    slow = any(rank[5] in nics() for rank in details)
    table = Table(
        program, options, len(details) * gpus, Speed(network, len(nics()), 0.5 if slow else 1.0)
    )
    if place.rank:
        assert meeting
        follow(place, meeting)
    else:
        lead(table, out, meeting, debug)
    debug.line(
        "comm 0x55df4a2eb2c{rank} rank {rank} nranks {ranks} cudaDev {local} - Destroy COMPLETE"
    )
    if place.rank == 0:
        out.write(table.footer())
        out.flush()
        if meeting:
            meeting.leave()
    return 1 if table.wrong else 0


def nodes(details: list[list[str]]) -> tuple[list[str], str]:
    """Return each rank's node as NCCL counts them, a rack being one, and how its GPUs connect."""
    rack = setting("RACK") and os.environ.get("NCCL_MNNVL_ENABLE") != "0"
    return [(details[0] if rack else rank)[3] for rank in details], "MNNVL" if rack else "CUMEM"


def facts(
    place: Place, where: list[str], links: list[tuple[str, str]], choice: Choice
) -> dict[str, object]:
    """Return what the recordings' braces stand for."""
    mine = where[place.rank] if place.size > 1 else where[0]
    return {
        "rank": place.rank,
        "ranks": len(where),
        "nodes": len(set(where)),
        "local": place.local,
        "here": where.count(mine),
        "bus": f"{0x53 + place.local * 0x11:x}0",
        "interface": links[0][0] if links else "",
        "address": links[0][1] if links else "",
        "sockets": "".join(f"[{number}]{name}:{at}<0>" for number, (name, at) in enumerate(links)),
        "devices": " ".join(f"[{number}]{name}:1/IB" for number, name in enumerate(nics())),
        "nics": len(nics()),
        "network": choice.name,
    }


def mismatched(debug: Debug, first: str, place: Place) -> bool:
    """Whether this rank has another version than rank 0; it says so."""
    if first == (own := version()):
        return False
    debug.line(
        f"WARN init.cc:1|Mismatched NCCL version detected : rank 0 {first} rank {place.rank} {own}"
    )
    return True


def version() -> str:
    """Return the version of the library that the linker would find."""
    folders = (
        Path(folder) for folder in os.environ.get("LD_LIBRARY_PATH", "").split(":") if folder
    )
    found = next((path for folder in folders if (path := folder / "libnccl.so.2").exists()), None)
    return found.resolve().name.removeprefix("libnccl.so.") if found else VERSION


def code(text: str) -> str:
    """Write a version as nccl-tests do."""
    major, minor, patch = map(int, text.split("."))
    return str(major * 10000 + minor * 100 + patch)


def banner(program: str, options: Arguments, details: list[list[str]], gpus: int) -> str:
    """Return the lines before NCCL starts."""
    step = f"{options['f']}(factor)" if int(options["f"]) > 1 else f"{size(options['i'])}(bytes)"
    lines = [
        (
            f"# nccl-tests version 2.19.6 nccl-headers={code(VERSION)} "
            f"nccl-library={code(details[0][4])}"
        ),
        f"# Collective test starting: {program}",
        (
            f"# nThread {options['t']} nGpus {options['g']} minBytes {size(options['b'])}"
            f" maxBytes {size(options['e'])} step: {step} warmup iters: {options['w']} iters: "
            f"{options['n']}"
            f" agg iters: {options['m']} validation: {options['c']} graph: {options['G']} "
            "unalign: 0"
        ),
        "#",
        "# Using devices",
    ]
    for rank, (host, pid, local, *_) in enumerate(details):
        for gpu in range(gpus):
            device = int(local) * gpus + gpu
            lines.append(
                f"#  Rank {rank * gpus + gpu:2d} Group  0 Pid {pid:>6} on {host:>10} device "
                f"{device:2d}"
                f" [0000:{0x53 + device * 0x11:02x}:00] {GPU}"
            )
    return "\n".join(lines) + "\n"


def connect(debug: Debug, place: Place, where: list[str], choice: Choice, handle: str) -> None:
    """Say what carries the data to the neighbours in the ring."""
    direct = "/GDRDMA" if choice.network in {"efa", "ib"} else ""
    ranks = len(where)
    if ranks > 1:
        for one, two, way in (
            ((place.rank - 1) % ranks, place.rank, "receive"),
            (place.rank, (place.rank + 1) % ranks, "send"),
        ):
            ring = f"{one}[{one}] -> {two}[{two}]"
            for channel in range(2):
                if where[one] == where[two]:
                    line = f"Channel {channel:02d}/0 : {ring} via P2P/{handle}"
                else:
                    line = (
                        f"Channel {channel:02d}/0 : {ring} [{way}] via "
                        f"NET/{choice.name}/{channel}{direct}"
                    )
                debug.line(line)
    debug.line(
        "Connected all rings, use ring PXN 0 GDR 1"
        if direct
        else "Connected all rings, use ring PXN 0 GDR 0"
    )


def fail(place: Place, out: Writer) -> int:
    """End as nccl-tests does when NCCL cannot start."""
    out.write(
        f"{place.host}: Test NCCL failure common.cu:1204 "
        "'invalid usage (run with NCCL_DEBUG=WARN for details) / '\n"
        f" .. {place.host} pid {place.pid}: Test failure common.cu:915\n"
    )
    return 3


def lead(table: Table, out: Writer, meeting: Meeting | Call | None, debug: Debug) -> None:
    """Print the rows, as rank 0."""
    out.write(table.header())
    if rate := setting("FLOOD"):
        flood(out, float(rate) * 1e6)
    pause, hang = float(setting("ROW_S", "0")), setting("HANG_AT")
    for requested in table.options.sizes():
        if meeting:
            meeting.say("progress", str(requested))
        if leaves(0, requested):
            out.flush()
            if meeting:
                meeting.leave()
            end()
        if (hang and requested >= size(hang)) or others_leave(requested):
            while True:
                time.sleep(3600)
        while waits(requested):
            time.sleep(0.05)
        time.sleep(pause)
        tell_choice(debug, table.collective, requested)
        out.write(table.row(requested))


def tell_choice(debug: Debug, collective: str, requested: int) -> None:
    """Say which algorithm it "uses", as NCCL's subsystem TUNING does."""
    if "TUNING" not in os.environ.get("NCCL_DEBUG_SUBSYS", ""):
        return
    asked = {} if setting("DEAF") else os.environ
    name = collective.title().replace("_", "")
    channels = int(asked.get("NCCL_MAX_NCHANNELS", "16"))
    debug.line(
        f"{name}: {requested} Bytes -> Algo {asked.get('NCCL_ALGO', 'RING')} "
        f"proto {asked.get('NCCL_PROTO', 'SIMPLE')} "
        f"channel{{{{Lo..Hi}}}}={{{{0..{channels - 1}}}}}"
    )


def flood(out: Writer, rate: float) -> NoReturn:
    """Print lines without end."""
    out.flush()
    begun, sent, lines = time.monotonic(), 0, (b"x" * 99 + b"\n") * 500
    while True:
        sent += os.write(1, lines)
        time.sleep(max(0.0, sent / rate - (time.monotonic() - begun)))


def waits(requested: int) -> bool:
    """Whether this row is to be held back for now."""
    limit = setting("WAIT_AT")
    return bool(limit) and requested >= size(limit)


def follow(place: Place, meeting: Meeting | Call) -> None:
    """Wait until rank 0 ends; or leave before, where that is asked for."""
    if fault(place.rank):
        while not meeting.over():
            if leaves(place.rank, int(meeting.read("progress") or 0)):
                meeting.leave()
                end()
            time.sleep(0.02)
    meeting.wait()


def fault(rank: int) -> list[str]:
    """Return size and code of this rank's own EXIT_AT."""
    words = setting("EXIT_AT").split(":")
    return [words[0], words[2]] if len(words) == 3 and words[1] in {"*", str(rank)} else []


def leaves(rank: int, requested: int) -> bool:
    """Whether this rank is to end at this size."""
    return bool(found := fault(rank)) and 0 < size(found[0]) <= requested


def others_leave(requested: int) -> bool:
    """Whether another rank ends at this size.

    This one then waits for it for ever, as real ones do.
    """
    words = setting("EXIT_AT").split(":")
    return len(words) == 3 and words[1] not in {"0", "*"} and 0 < size(words[0]) <= requested


def end() -> NoReturn:
    """End as EXIT_AT says."""
    code = int(setting("EXIT_AT").split(":")[2])
    if code < 0:
        os.kill(os.getpid(), -code)
    os._exit(code)


if __name__ == "__main__":
    sys.exit(main())
