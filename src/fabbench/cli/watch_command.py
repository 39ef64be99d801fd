"""``watch``: the NICs of hosts on which a job runs."""

import math
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fabbench.cli import terminal
from fabbench.cli.click_options import (
    CommandLine,
    click_options,
    pass_command_line,
    with_parameters,
)
from fabbench.cli.options import known_proof, results, takes
from fabbench.cli.run_command import TargetCommand, chosen_target, interruptible
from fabbench.model.errors import Exit, RequestError
from fabbench.model.ids import dated_id
from fabbench.model.options import File, Seconds, Text, declared, option

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fabbench.counters.watch import WatchResult
    from fabbench.execution.worker_pool import Results
    from fabbench.model.hosts import Target
    from fabbench.model.mappings import Reasons
    from fabbench.remote.transport import Transport


@dataclass
class WatchOptions:
    """The options of the command."""

    seconds: float | None = option(Seconds(1), "How long to watch. Default: until Ctrl-C.", "--for")
    every: float = option(Seconds(1), "Interval of the samples.", default="1")
    wait: float | None = option(
        Seconds(1),
        "Wait at most so long for the job to start, and then for data to move, from when --for "
        "counts. Default: neither is waited for.",
    )
    dumps: Path | None = option(
        File("a directory", "DIRECTORY", directory=True),
        "At the end, have PyTorch's ranks dump what they wait for, and copy that to DIRECTORY, for "
        "fabbench explain. Writes to the job's pipes; each rank writes a file there.",
    )
    ras: str = option(
        Text("an address, such as localhost:28028", "HOST:PORT", r"^\S+:[0-9]{1,5}$"),
        "Where NCCL's RAS listens on each host (NCCL_RAS_ADDR).",
        default="localhost:28028",
    )
    inspector: str = option(
        Text("a directory", "DIR"),
        "Where NCCL's inspector writes on each host (NCCL_INSPECTOR_DUMP_DIR). Default: not read.",
        unset="",
    )
    # Not named as that of launchers, which choose nodes by theirs
    type_of_nodes: str | None = option(
        Text("an instance type", "TYPE"),
        "Type of the nodes, such as p5.48xlarge: tells how fast calls are there (--inspector).",
        "--instance-type",
    )


@click.command(
    "watch",
    cls=TargetCommand,
    selects=lambda each: each.reaches or each.only == "watch" or "--host" in each.flags,
)
@with_parameters(click_options(declared(WatchOptions).values()))
@takes("store")
@results("watch")
@pass_command_line
def watch(
    line: CommandLine, /, form: str, seconds: float | None, every: float, **given: Any
) -> Exit:
    """Watch the NICs that carry a running job, and judge what they show.

    The job may be anybody's that you reach: hosts over ssh, this machine, a Slurm job (--job), pods
    (--pod). The counters of all NICs of all hosts are read at once, as any user may: nothing is
    installed or written there (but by --dumps), and no program started but a shell. The NICs that
    move the most are taken for those of the job. NCCL's RAS, where it listens, says which ranks
    wait, and its inspector (--inspector) how fast calls are, and which rank the others wait for.

    Bad (status 1) are NICs that were paused or slowed down by congestion, lost many packets, or
    disappeared; NICs of a host, or hosts, that do not share the load; a job over TCP beside idle
    RDMA NICs; ranks that others wait for while nothing moves. Status 3: a host did not answer.
    Status 4: nothing moved, and nothing says why. Everything is stored: `fabbench show ID`.

    Example: fabbench watch --host node-1 --host node-2 --for 60s

    Example: fabbench watch --job 4711 --wait 10m --for 60s
    """
    from fabbench.report.watch_report import render_watch
    from fabbench.runs.document import write

    if given["type_of_nodes"] and not given["inspector"]:
        raise RequestError("--instance-type has no effect without --inspector.")
    target, reason = chosen_target(line)
    started = time.time()
    terminal.notify(f"Target {target.name}: {reason}.")
    watched = _watched(target, seconds, every, given)
    result = replace(watched, id=dated_id(), target=target.name, started=started)
    terminal.show(render_watch, result, form)
    if form != "text":
        terminal.notify(result.first)
    path = given["store"] / "watches" / f"{result.id}.json"
    write(path, result)
    terminal.notify(f"Watch: {result.id}.")
    return result.status


def _watched(
    target: "Target", seconds: float | None, every: float, given: "Mapping[str, Any]"
) -> "WatchResult":
    """Return what all hosts show for some seconds, or until Ctrl-C, with a screen meanwhile."""
    from fabbench.counters.watch import HostSamples, judged
    from fabbench.launchers import launcher_named
    from fabbench.remote.counter_shell import rounds
    from fabbench.remote.inspector_shell import InspectorShells
    from fabbench.remote.ras_shell import RasThread
    from fabbench.report import nics_table
    from fabbench.report.job_calls import with_calls

    if given["dumps"]:  # A path that cannot be written to is refused before the watch
        given["dumps"].mkdir(parents=True, exist_ok=True)
    failed: Reasons = {}
    proof = known_proof({"instance_type": given["type_of_nodes"]})
    wait_s = given["wait"] or 0.0
    longest_s = seconds and seconds + wait_s
    launcher = launcher_named(target.launcher)
    with interruptible(), launcher.connections(target, wait_s) as connections:
        hosts = {name: HostSamples() for name in connections}
        ras = RasThread(connections, given["ras"])
        ras.start()
        folder = given["inspector"]
        inspector = InspectorShells(connections, folder)
        # Returns what RAS shows together with the calls so far
        job = partial(with_calls, lines=inspector.lines, folder=folder, proof=proof)
        # Each round adds samples to `hosts`, and tells which have failed so far
        sampling = rounds(connections, hosts, every, seconds or math.inf, wait_s)
        with terminal.changing() as show, suppress(KeyboardInterrupt):
            for number, failed in enumerate(sampling):
                inspector.read()
                now = judged(hosts, failed, job(ras.view), newest=True)
                lines = [now.first, *nics_table.live(now.carriers), now.last]
                # The bar: seconds so far, of those that it takes at most
                show("Ctrl-C ends it", number * every, longest_s, lines)
        ras.over.set()
        if given["dumps"]:
            _copy_dumps(connections, given["dumps"])
    return judged(hosts, failed, job(ras.view))


def _copy_dumps(connections: "Results[Transport]", directory: Path) -> None:
    from fabbench.remote.recorder_shell import copy_dumps

    try:
        count = copy_dumps(connections, directory)
    except KeyboardInterrupt:
        return
    except OSError as error:  # What was watched is still shown
        terminal.notify(f"Could not write dumps to {directory}: {error.strerror}. Ask again.")
        return
    terminal.notify(f"Dumps of PyTorch's flight recorder in {directory}: {count}.")
