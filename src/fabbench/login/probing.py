"""Asking the nodes of a Slurm what hosts over ssh are asked: a short job of whole nodes, by srun."""

import re
import secrets
from collections import defaultdict
from collections.abc import Mapping, Sequence

from fabbench.check import Around
from fabbench.hosts.found import Probe
from fabbench.hosts.probe import probe_arguments, read_probe, script
from fabbench.inventory import folders, programs
from fabbench.login.way import Login
from fabbench.machines import Needs, Where
from fabbench.pods.explanation import brief
from fabbench.slurm.directives import AS_GIVEN
from fabbench.slurm.nodes import SlurmNode

_WAIT_S = 30
_ALL_S = 180.0
_LABEL = re.compile(r" *(\d+): ?(.*)")
_NODE = "fabbench node "


def ask_nodes(
    there: Login, asked: Sequence[SlurmNode], where: Where, needs: Needs
) -> tuple[Mapping[str, Probe], Around]:
    """Give what each node told. Those of a job that did not start are unreachable, with Slurm's words."""
    name = f"fabbench-check-{secrets.token_hex(3)}"
    text = f'echo "{_NODE}$SLURMD_NODENAME"\n{script()}'.encode()
    arguments = probe_arguments(programs(needs), folders(where))
    try:
        done = there.run((*_srun(name, asked, where), *arguments), stdin=text, timeout_s=_ALL_S)
    except BaseException:
        there.sure(("scancel", f"--name={name}"))
        raise
    probes = _probes(done.out)
    said = brief(" ".join(done.err)) or "it said nothing"
    silent = {node.name: said for node in asked if node.name not in probes}
    return probes, Around(unreachable=silent)


def _srun(name: str, asked: Sequence[SlurmNode], where: Where) -> tuple[str, ...]:
    settings, count = where.settings, len(asked)
    gpus = min(node.gpus for node in asked)
    given = (f"--{option}={settings[option]}" for option in AS_GIVEN if settings.get(option))
    return (
        *("srun", f"--job-name={name}", f"--immediate={_WAIT_S}", "--time=5", "--exclusive", "--mem=0"),
        *(f"--nodes={count}", f"--ntasks={count}", "--ntasks-per-node=1", "--cpu-bind=none"),
        f"--nodelist={','.join(node.name for node in asked)}",
        *((f"--gpus-per-node={gpus}",) if gpus and not settings.get("no_gres") else ()),
        *given,
        *("--quiet", "--label", "sh", "-s", "--"),
    )


def _probes(lines: Sequence[str]) -> dict[str, Probe]:
    """Read what came, by the names of the nodes: srun writes the number of the task before each line."""
    told: dict[str, list[str]] = defaultdict(list)
    for line in lines:
        if match := _LABEL.fullmatch(line):
            told[match[1]].append(match[2])
    return {
        own[0].removeprefix(_NODE): read_probe(own[1:]) for own in told.values() if own[0].startswith(_NODE)
    }
