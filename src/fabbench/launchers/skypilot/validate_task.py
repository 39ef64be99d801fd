"""What SkyPilot silently accepts in a task, and then drops or handles differently than intended.

SkyPilot itself rejects unknown fields of a task and of `resources`. Under `config` it accepts everything, and
uses what it knows: sky/skylet/constants.py, OVERRIDEABLE_CONFIG_KEYS_IN_TASK. Seen with SkyPilot 0.14.1.
"""

import difflib
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from fabbench.catalog.cluster_profiles import EFA
from fabbench.catalog.instances import instance_catalog
from fabbench.catalog.kubernetes_resources import parse_quantity, whole_number
from fabbench.hosts.check import Check, Status
from fabbench.launchers.skypilot.render import accelerator
from fabbench.model.errors import MachineError

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
"""Section of `config` → its keys that have an effect in a task."""
_WITHOUT_KEYS = frozenset({"active_workspace", "hooks"})
"""Sections without known keys."""
_PODS = ("kubernetes", "ssh")
_FEW = 3
"""How many instance types a line names."""
_EMPTY = re.compile(r"FI_PROVIDER=(?:\"\"|''|)[ \t;]*$", re.MULTILINE)
_BROKEN = re.compile(r"\\\n[ \t]*#[^\n]*")
_ACCELERATOR = re.compile(r"([^:]+):(\d+)")

_Problems = Iterator[tuple[Status, str, str]]
"""What is wrong: severity, what was seen, and what to do."""


def read_tasks(path: Path) -> list[Any]:
    """Read the documents of a YAML file. Raise MachineError if it cannot be read or is not YAML."""
    import yaml

    try:
        return list(yaml.safe_load_all(path.read_text("utf-8"))) or [None]
    except OSError as error:
        raise MachineError(f"{path} cannot be read: {error.strerror or error}.") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        text = " ".join(str(error).split())
        raise MachineError(f"{path} is not valid YAML: {text}.") from error


def check_task(name: str, value: Any) -> tuple[Check, ...]:
    """Check a task as loaded from YAML. `name` is its display name."""
    if not isinstance(value, dict):
        seen = f"It must be a mapping, but is {'empty' if value is None else type(value).__name__}."
        advice = "A task has fields such as resources, num_nodes and run."
        return (Check(host=name, name="task", status=Status.FAIL, seen=seen, advice=advice),)
    return tuple(check for title, look in _CHECKS.items() for check in _checked(name, title, look(value)))


def _checked(name: str, title: str, problems: _Problems) -> Iterator[Check]:
    fine = True
    for status, seen, advice in problems:
        fine = False
        yield Check(host=name, name=title, status=status, seen=seen, advice=advice)
    if fine:
        yield Check(host=name, name=title, status=Status.PASS, seen="No problems found.")


def _mapping(value: Any, *path: str) -> Mapping[str, Any]:
    """Return the mapping at a path of keys; empty if there is none."""
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


# ---------------------------------------------------------------- fields


def _fields(task: Mapping[str, Any]) -> _Problems:
    yield from _unknown(task, _TASK, "", "SkyPilot rejects it.")
    yield from _unknown(_mapping(task, "resources"), _RESOURCES, "resources.", "SkyPilot rejects it.")


def _config(task: Mapping[str, Any]) -> _Problems:
    dropped = "SkyPilot silently ignores it."
    config = _mapping(task, "config")
    yield from _unknown(config, CONFIG.keys() | _WITHOUT_KEYS, "config.", dropped)
    for section, keys in CONFIG.items():
        where = "of the configuration in ~/.sky/config.yaml, perhaps"
        yield from _unknown(_mapping(config, section), keys, f"config.{section}.", dropped, where)


def _unknown(
    fields: Mapping[str, Any], known: Collection[str], prefix: str, effect: str, instead: str = ""
) -> _Problems:
    for key in fields:
        if key in known:
            continue
        near = difflib.get_close_matches(str(key), sorted(known), n=1)
        advice = f"Did you mean {near[0]}?" if near else f"Known: {', '.join(sorted(known))}."
        if instead and not near:
            advice += f" It is {instead}."
        yield Status.FAIL, f"{prefix}{key} is not a valid task field. {effect}", advice


def _pod(task: Mapping[str, Any]) -> _Problems:
    for section in _PODS:
        pod = _mapping(task, "config", section, "pod_config")
        for problem in schema_problems(dict(pod), "V1Pod", f"config.{section}.pod_config"):
            advice = "SkyPilot passes it to the cluster, which drops unknown fields or rejects the pod."
            yield Status.FAIL, f"{problem}.", advice


# ---------------------------------------------------------------- devices


def _devices(task: Mapping[str, Any]) -> _Problems:
    pod = _mapping(task, "config", "kubernetes", "pod_config", "spec")
    containers = pod.get("containers")
    for container in containers if isinstance(containers, list) else ():
        resources = _mapping(container, "resources")
        limits, requests = _mapping(resources, "limits"), _mapping(resources, "requests")
        for name in sorted(map(str, {*limits, *requests})):
            if "/" not in name and not name.startswith("hugepages-"):
                continue
            if not _same(limits.get(name), requests.get(name, limits.get(name))):
                amounts = f"requests {requests.get(name, 'none')}, limits {limits.get(name, 'none')}"
                yield (
                    Status.FAIL,
                    f"{name}: {amounts}.",
                    "Set both to the same number, as the cluster requires.",
                )
        yield from _efa(task, limits.get(EFA))


def _same(limit: Any, request: Any) -> bool:
    """Return whether two amounts are equal. Invalid amounts count as equal: another check reports them."""
    try:
        return limit is not None and parse_quantity(limit) == parse_quantity(request)
    except ValueError:
        return True


def _efa(task: Mapping[str, Any], requested: Any) -> _Problems:
    """Compare a number of EFA devices with that of the instance types with such GPUs."""
    name, gpus = _accelerator(_mapping(task, "resources").get("accelerators"))
    try:
        count = whole_number(requested)
    except ValueError:
        return
    types = [
        entry
        for entry in instance_catalog().values()
        if (accelerator(entry).upper(), entry.gpus) == (name, gpus)
    ]
    if types and all(count not in entry.efa_counts for entry in types):
        available = ", ".join(f"{entry.instance_type} has {entry.efa_counts[-1]}" for entry in types[:_FEW])
        advice = "Request all interfaces of a node; otherwise you measure fewer."
        yield Status.WARN, f"{count} {EFA} with {name}:{gpus}, and {available}.", advice


def _accelerator(value: Any) -> tuple[str, int]:
    """Parse ``H100:8``, or the mapping of it: the name in capitals, and the number."""
    if isinstance(value, dict) and len(value) == 1:
        ((name, count),) = value.items()
        value = f"{name}:{count}"
    match = _ACCELERATOR.fullmatch(value) if isinstance(value, str) else None
    return (match[1].upper(), int(match[2])) if match else ("", 0)


# ---------------------------------------------------------------- what runs


def _variables(task: Mapping[str, Any]) -> _Problems:
    for name, value in _mapping(task, "envs").items():
        if value is None or value == "":
            advice = (
                "Depending on its version, SkyPilot then requires --env, or passes an empty value. "
                "Remove it, or set a value."
            )
            yield Status.FAIL if value is None else Status.WARN, f"envs.{name} has no value.", advice


def _run(task: Mapping[str, Any]) -> _Problems:
    text = task.get("run")
    if not isinstance(text, str):
        return
    if match := _EMPTY.search(text):
        advice = (
            "An empty FI_PROVIDER does not select a baseline: libfabric may choose any provider, "
            "including EFA. Unset it, and set the network: NCCL_NET=Socket."
        )
        yield Status.WARN, f"run sets an empty variable: {match[0].strip()}", advice
    if match := _BROKEN.search(text):
        comment = match[0].strip().splitlines()[-1].strip()
        advice = "The lines after it become a separate command: move the comment."
        yield Status.FAIL, f"A comment cuts off a line-continued command: {comment}", advice


_CHECKS: Mapping[str, Callable[[Mapping[str, Any]], _Problems]] = {
    "fields": _fields,
    "config": _config,
    "pod_config": _pod,
    "devices": _devices,
    "variables": _variables,
    "run": _run,
}


# ---------------------------------------------------------------- pods against the client library

# In the notations of older and newer versions of the library.
_LIST, _DICT = re.compile(r"[lL]ist\[(.*)\]"), re.compile(r"[dD]ict[(\[](\w+), (.*)[)\]]")
_PLAIN: Mapping[str, type | tuple[type, ...]] = {
    "str": str, "int": int, "bool": bool, "float": (int, float), "object": object, "datetime": str,
}  # fmt: skip
_QUANTITIES = "V1ResourceRequirements"


def schema_problems(value: Any, model: str, path: str = "") -> Iterator[str]:
    """Yield everything in a JSON value that a model, such as ``V1PodSpec``, does not allow.

    Null counts as absent.
    """
    path = path or model
    if value is None:
        return
    if inner := _LIST.fullmatch(model):
        if not isinstance(value, list):
            yield f"{path}: {value!r} is not a list"
            return
        for index, each in enumerate(value):
            yield from schema_problems(each, inner[1], f"{path}[{index}]")
    elif model in _PLAIN:
        expected = _PLAIN[model]
        if not isinstance(value, expected) or (model == "int" and isinstance(value, bool)):
            yield f"{path}: {value!r} is not a valid {model}"
    elif not isinstance(value, dict):
        yield f"{path}: {value!r} is not a mapping"
    elif inner := _DICT.fullmatch(model):
        for key, each in value.items():
            yield from schema_problems(each, inner[2], f"{path}.{key}")
    else:
        yield from _model_problems(value, model, path)


def _model_problems(value: Mapping[str, Any], model: str, path: str) -> Iterator[str]:
    """Yield the problems of an object's fields."""
    from kubernetes import client

    class_ = getattr(client, model)
    fields = {name: class_.openapi_types[attribute] for attribute, name in class_.attribute_map.items()}
    for key, each in value.items():
        if key not in fields:
            near = difflib.get_close_matches(str(key), fields, n=1)
            meant = f" (did you mean {near[0]}?)" if near else ""
            yield f"{path}: no field {key}{meant}"
        elif model == _QUANTITIES and _DICT.fullmatch(fields[key]) and isinstance(each, dict):
            yield from _quantities(each, f"{path}.{key}")
        else:
            yield from schema_problems(each, fields[key], f"{path}.{key}")


def _quantities(amounts: Mapping[str, Any], path: str) -> Iterator[str]:
    """Yield the problems of amounts of resources, which may also be numbers."""
    for name, amount in amounts.items():
        try:
            parse_quantity(amount)
        except ValueError as error:
            yield f"{path}.{name}: {error}"
