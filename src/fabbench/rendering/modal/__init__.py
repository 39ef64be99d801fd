"""The format ``modal``: an app of Modal whose clustered function runs the script of all arms.

A container for each host; rank 0 reaches the others by ssh, at the private addresses that Modal gives. What
is the same in every app is body.txt. Sources: https://modal.com/docs/guide/multi-node-clusters, and for the
environment of containers _cluster.py of the package modal.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from importlib.resources import files

from fabbench.environments import UNKNOWN_INTERFACE
from fabbench.errors import RequestError
from fabbench.fabrics import RDMA
from fabbench.instances import Instance
from fabbench.model import Plan, Step
from fabbench.pods.images import DEFAULT, image_of, require_benchmark
from fabbench.rendering import Job, Rendering
from fabbench.script import headline, script
from fabbench.script.limits import longest_s
from fabbench.script.quoting import variable
from fabbench.script.way import NAMED_HOSTS

_GPUS = {"H100": "H100!", "H200": "H200", "B200": "B200", "B300": "B300"}
"""What Modal has clusters with RDMA of, as it writes them. An H100 without ``!`` may be given as an H200."""
_GPUS_OF_A_HOST = 8
_TORCH = "torch==2.9.1"
_PACKAGES = ("libhwloc15", "libnl-route-3-200", "openssh-server")
"""The first two are for EFA, which Modal mounts at /opt/amazon/efa; see its multinode-training-guide."""
_LONGEST_S = 24 * 3600
"""The longest that a function of Modal's may run."""
_WAIT_S = 900
_INTERFACE = variable("FABBENCH_INTERFACE")
_MODULES = ("contextlib", "fcntl", "os", "socket", "struct", "subprocess", "sys", "tempfile", "time")
_FOR_NCCL = ("NCCL_HOSTID", "NCCL_SOCKET_NTHREADS", "NCCL_NSOCKS_PERTHREAD")
_SIOCGIFADDR = 0x8915
"""From linux/sockios.h: asks for an interface's address."""


class Modal:
    """The format ``modal``."""

    name = "modal"

    def render(self, job: Job) -> str:
        """Write the app. Raises RequestError for hosts that Modal does not have."""
        found = _instance(job)
        image = image_of(job.settings)
        own_torch = job.plan.benchmark == "torch" and image == DEFAULT
        if not own_torch:
            require_benchmark(job.plan.benchmark, image)
        interface = job.inventory.hosts[0].interface
        text = script(_bound(job.plan), job.way(NAMED_HOSTS, interface=interface or _across(job.plan)))
        parts = (
            _about(job.plan),
            *(f"import {name}\n" for name in _MODULES),
            "from pathlib import Path\n\nimport modal\n\n",
            *(f"{name} = {value}\n" for name, value in _settings(job.plan, found, image, interface)),
            _image(torch=own_torch, python=job.plan.benchmark != "torch" or own_torch),
            f"app = modal.App({_text(f'fabbench-{job.plan.benchmark}')}, image=image)\n\n\n",
            (files(__name__) / "body.txt").read_text("utf-8"),
            f"SCRIPT = {written(text)}\n",
        )
        return "".join(parts)


def _instance(job: Job) -> Instance:
    """Give the type of the hosts, if Modal has such."""
    found = job.instance
    if found is None:
        raise RequestError(
            "Nothing says what GPUs the containers have.",
            hint="Name the type of their hosts, such as --instance-type p5.48xlarge.",
        )
    if found.gpu_model not in _GPUS or found.gpus != _GPUS_OF_A_HOST:
        gpus = f"{found.gpus} {found.gpu_model}" if found.gpus else "no GPU"
        raise RequestError(
            f"Modal's clusters are of whole hosts with {_GPUS_OF_A_HOST} GPUs of {', '.join(_GPUS)}, and "
            f"{found.instance_type} has {gpus}.",
            hint="--instance-type p5.48xlarge is one of those.",
        )
    return found


def _across(plan: Plan) -> str:
    """Give what stands for the interface between the containers, which the app finds out."""
    return _INTERFACE if plan.hosts > 1 else ""


def _bound(plan: Plan) -> Plan:
    """Let NCCL's sockets use the interface that the app finds, where the plan leaves it open."""
    trials = (replace(trial, steps=tuple(map(_bound_step, trial.steps))) for trial in plan.trials)
    return replace(plan, trials=tuple(trials))


def _bound_step(step: Step) -> Step:
    commands = (
        replace(command, env={**command.env, "NCCL_SOCKET_IFNAME": f"={_INTERFACE}"})
        if command.env.get("NCCL_SOCKET_IFNAME") == UNKNOWN_INTERFACE
        else command
        for command in step.commands
    )
    return replace(step, commands=tuple(commands))


def _about(plan: Plan) -> str:
    """Write the docstring."""
    return (
        f'"""{headline(plan)} Needs modal 1.6.0 or later.\n\n'
        "    modal run --quiet FILE >LOG\n\n"
        f"runs every arm; --fabric {plan.arms[0].label} runs that one alone. fabbench parse and fabbench "
        'compare read the log.\n"""\n\n'
    )


def _settings(plan: Plan, found: Instance, image: str, interface: str) -> Iterator[tuple[str, str]]:
    """Give the names and values that differ from app to app."""
    fabrics = {arm.fabric for arm in plan.arms}
    yield "IMAGE", _text(image)
    yield "NODES", str(plan.hosts)
    yield "GPU", _text(f"{_GPUS[found.gpu_model]}:{found.gpus}")
    yield "CLOUD", '"aws"'
    yield "OPTIONS", '{"efa_enabled": True}'
    yield "RDMA", str(bool(fabrics & {*RDMA}))
    yield "TIMEOUT_S", str(min(longest_s(plan), _LONGEST_S))
    yield "WAIT_S", str(_WAIT_S)
    yield "PORT", "2222  # of sshd"
    yield "INTERFACE", f"{_text(interface)}  # between the containers; empty: the one with their addresses"
    yield "FOR_NCCL", f"({_words(_FOR_NCCL)})"
    yield "SIOCGIFADDR", f"{_SIOCGIFADDR:#x}"


def _image(*, torch: bool, python: bool) -> str:
    """Write the image: one of a registry, with what Modal and ssh need."""
    more = ', add_python="3.12"' if python else ""
    pip = f"    .uv_pip_install({_text(_TORCH)})\n" if torch else ""
    return (
        "\nimage = (\n"
        f"    modal.Image.from_registry(IMAGE{more})\n"
        "    .entrypoint([])\n"
        f"    .apt_install({_words(_PACKAGES)})\n"
        f"{pip})\n"
    )


def _words(texts: Iterable[str]) -> str:
    return ", ".join(map(_text, texts))


def _text(text: str) -> str:
    """Write a short text in Python."""
    return json.dumps(text, ensure_ascii=False)


def written(text: str) -> str:
    """Write a text of many lines as Python has it: as it is, if that can be."""
    plain = text.replace("\n", "").replace("\t", "").isprintable()
    for quotes in ('"""', "'''"):
        if plain and quotes not in text and not text.endswith(("\\", quotes[0])):
            return f"r{quotes}{text}{quotes}"
    lines = (f"    {_text(line)}\n" for line in text.splitlines(keepends=True))
    return f"(\n{''.join(lines)})"


RENDERING: Rendering = Modal()
