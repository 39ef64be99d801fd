"""What SkyPilot accepts in a task without a word, and then drops or does otherwise than meant. Pure.

SkyPilot itself refuses unknown fields of a task and of `resources`. Under `config` it takes everything, and
uses what it knows: sky/skylet/constants.py, OVERRIDEABLE_CONFIG_KEYS_IN_TASK. Seen with SkyPilot 0.14.1.
"""

import difflib
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from fabbench.check import Check, Status
from fabbench.instances import catalogue
from fabbench.pods.profiles import EFA
from fabbench.pods.quantity import quantity, whole
from fabbench.pods.schema import problems
from fabbench.skypilot.infra import accelerator

_TASK = frozenset({
    *("name", "workdir", "setup", "run", "envs", "secrets", "managed_secrets", "file_mounts", "num_nodes"),
    *("resources", "service", "pool", "config", "inputs", "outputs", "event_callback", "volumes"),
    *("volume_mounts", "file_mounts_mapping", "api_server_access"),
})  # fmt: skip
_RESOURCES = frozenset({
    *("accelerators", "accelerator_args", "any_of", "autostop", "cloud", "cpus", "disk_size", "disk_tier"),
    *("ephemeral_storage", "image_id", "infra", "instance_type", "job_recovery", "labels", "local_disk"),
    *("max_hourly_cost", "memory", "network_tier", "ordered", "ports", "priority", "priority_class"),
    *("region", "use_spot", "volumes", "zone"),
})  # fmt: skip
CONFIG: Mapping[str, frozenset[str]] = {
    "docker": frozenset({"run_options"}),
    "nvidia_gpus": frozenset({"disable_ecc"}),
    "ssh": frozenset({"custom_metadata", "pod_config", "provision_timeout"}),
    "kubernetes": frozenset({
        *("custom_metadata", "pod_config", "provision_timeout", "dws", "kueue", "quota"),
        *("remote_identity", "enable_docker", "set_pod_resource_limits"),
    }),
    "azure": frozenset({"remote_identity", "vpc_name"}),
    "gcp": frozenset({
        *("vpc_name", "subnet_names", "managed_instance_group", "enable_gvnic", "enable_gpu_direct"),
        "placement_policy",
    }),
    "vast": frozenset({"datacenter_only", "create_instance_kwargs"}),
    "slurm": frozenset({"sbatch_options", "quota", "cpu_partition"}),
}  # fmt: skip
"""Section of `config` → the keys of it that count in a task."""
_WHOLE = frozenset({"active_workspace", "hooks"})
"""Sections without keys of their own."""
_PODS = ("kubernetes", "ssh")
_FEW = 3
"""Instance types named in a line."""
_EMPTY = re.compile(r"FI_PROVIDER=(?:\"\"|''|)[ \t;]*$", re.MULTILINE)
_BROKEN = re.compile(r"\\\n[ \t]*#[^\n]*")
_ACCELERATOR = re.compile(r"([^:]+):(\d+)")

_Found = Iterator[tuple[Status, str, str]]
"""What is wrong: how much, what was seen, and what to do."""


def check_task(name: str, value: Any) -> tuple[Check, ...]:
    """Check a task, as YAML gives it. `name` is what to call it."""
    if not isinstance(value, dict):
        seen = f"It is no mapping, but {'empty' if value is None else type(value).__name__}."
        advice = "A task has fields such as resources, num_nodes and run."
        return (Check(host=name, name="task", status=Status.FAIL, seen=seen, advice=advice),)
    return tuple(check for title, look in _CHECKS.items() for check in _checked(name, title, look(value)))


def _checked(name: str, title: str, found: _Found) -> Iterator[Check]:
    fine = True
    for status, seen, advice in found:
        fine = False
        yield Check(host=name, name=title, status=status, seen=seen, advice=advice)
    if fine:
        yield Check(host=name, name=title, status=Status.PASS, seen="Nothing is wrong.")


def _mapping(value: Any, *path: str) -> Mapping[str, Any]:
    """Go down into mappings; empty where there is none."""
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


# ---------------------------------------------------------------- fields


def _fields(task: Mapping[str, Any]) -> _Found:
    yield from _unknown(task, _TASK, "", "SkyPilot refuses it.")
    yield from _unknown(_mapping(task, "resources"), _RESOURCES, "resources.", "SkyPilot refuses it.")


def _config(task: Mapping[str, Any]) -> _Found:
    dropped = "SkyPilot takes it without a word, and drops it."
    config = _mapping(task, "config")
    yield from _unknown(config, CONFIG.keys() | _WHOLE, "config.", dropped)
    for section, keys in CONFIG.items():
        where = "of the configuration in ~/.sky/config.yaml, perhaps"
        yield from _unknown(_mapping(config, section), keys, f"config.{section}.", dropped, where)


def _unknown(
    found: Mapping[str, Any], known: Collection[str], place: str, then: str, instead: str = ""
) -> _Found:
    for key in found:
        if key in known:
            continue
        near = difflib.get_close_matches(str(key), sorted(known), n=1)
        advice = f"Did you mean {near[0]}?" if near else f"Known: {', '.join(sorted(known))}."
        if instead and not near:
            advice += f" It is {instead}."
        yield Status.FAIL, f"{place}{key} is no field of a task. {then}", advice


def _pod(task: Mapping[str, Any]) -> _Found:
    for section in _PODS:
        pod = _mapping(task, "config", section, "pod_config")
        for problem in problems(dict(pod), "V1Pod", f"config.{section}.pod_config"):
            advice = "SkyPilot hands it to the cluster, which drops unknown fields, or refuses the pod."
            yield Status.FAIL, f"{problem}.", advice


# ---------------------------------------------------------------- devices


def _devices(task: Mapping[str, Any]) -> _Found:
    pod = _mapping(task, "config", "kubernetes", "pod_config", "spec")
    containers = pod.get("containers")
    for container in containers if isinstance(containers, list) else ():
        resources = _mapping(container, "resources")
        limits, requests = _mapping(resources, "limits"), _mapping(resources, "requests")
        for name in sorted(map(str, {*limits, *requests})):
            if "/" not in name and not name.startswith("hugepages-"):
                continue
            if not _same(limits.get(name), requests.get(name, limits.get(name))):
                told = f"requests {requests.get(name, 'none')}, limits {limits.get(name, 'none')}"
                yield Status.FAIL, f"{name}: {told}.", "Give both the same number: the cluster insists."
        yield from _efa(task, limits.get(EFA))


def _same(limit: Any, request: Any) -> bool:
    """Whether two amounts are equal. What is none at all is said elsewhere."""
    try:
        return limit is not None and quantity(limit) == quantity(request)
    except ValueError:
        return True


def _efa(task: Mapping[str, Any], asked: Any) -> _Found:
    """Compare a number of EFA devices with what the types have that have such GPUs."""
    name, gpus = _accelerator(_mapping(task, "resources").get("accelerators"))
    try:
        count = whole(asked)
    except ValueError:
        return
    types = [
        entry for entry in catalogue().values() if (accelerator(entry).upper(), entry.gpus) == (name, gpus)
    ]
    if types and all(count not in entry.efa_counts for entry in types):
        told = ", ".join(f"{entry.instance_type} has {entry.efa_counts[-1]}" for entry in types[:_FEW])
        advice = "Ask for all interfaces of a node, or the numbers are those of fewer."
        yield Status.WARN, f"{count} {EFA} with {name}:{gpus}, and {told}.", advice


def _accelerator(value: Any) -> tuple[str, int]:
    """Read ``H100:8``, or a mapping with that in it: the name in capitals, and how many."""
    if isinstance(value, dict) and len(value) == 1:
        ((name, count),) = value.items()
        value = f"{name}:{count}"
    match = _ACCELERATOR.fullmatch(value) if isinstance(value, str) else None
    return (match[1].upper(), int(match[2])) if match else ("", 0)


# ---------------------------------------------------------------- what runs


def _variables(task: Mapping[str, Any]) -> _Found:
    for name, value in _mapping(task, "envs").items():
        if value is None or value == "":
            advice = (
                "SkyPilot then wants it with --env, or hands over an empty one, as the version may be. "
                "Leave it out, or give it a value."
            )
            yield Status.FAIL if value is None else Status.WARN, f"envs.{name} has no value.", advice


def _run(task: Mapping[str, Any]) -> _Found:
    text = task.get("run")
    if not isinstance(text, str):
        return
    if match := _EMPTY.search(text):
        advice = (
            "An empty FI_PROVIDER chooses no baseline: libfabric then takes what it likes, EFA among it. "
            "Unset it, and name the network: NCCL_NET=Socket."
        )
        yield Status.WARN, f"run sets an empty variable: {match[0].strip()}", advice
    if match := _BROKEN.search(text):
        comment = match[0].strip().splitlines()[-1].strip()
        advice = "The lines behind it are a command of their own: move the comment away."
        yield Status.FAIL, f"A comment ends a command that was to go on: {comment}", advice


_CHECKS: Mapping[str, Callable[[Mapping[str, Any]], _Found]] = {
    "fields": _fields,
    "config": _config,
    "pod_config": _pod,
    "devices": _devices,
    "variables": _variables,
    "run": _run,
}
