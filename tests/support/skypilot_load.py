"""Reads tasks as SkyPilot does: run by the Python that has it.

Prints what it understood, as JSON.
"""

import json
import sys
from importlib import import_module
from typing import Any

# By name: what is to be checked here is a stand-in that has not all of it.
sky: Any = import_module("sky")
constants: Any = import_module("sky.skylet.constants")


def understood(path: str) -> dict[str, Any]:
    try:
        task = sky.Task.from_yaml(path)
    except Exception as error:  # noqa: BLE001 - whatever it refuses with
        return {"error": f"{type(error).__name__}: {error}"}
    (resources,) = task.resources
    # Of machines it would fetch a instance_catalog from the network.
    own = {} if resources.instance_type else resources.to_yaml_config()
    tier = resources.network_tier
    return {
        "nodes": task.num_nodes,
        "envs": task.envs,
        "run": task.run,
        "infra": resources.infra.to_str(),
        "instance_type": resources.instance_type,
        "network_tier": tier.value if tier else None,
        **{key: own.get(key) for key in ("accelerators", "image_id")},
        "config": dict(resources.cluster_config_overrides),
    }


keys = [list(path) for path in constants.OVERRIDEABLE_CONFIG_KEYS_IN_TASK]
print(json.dumps({"keys": keys, "tasks": {path: understood(path) for path in sys.argv[1:]}}))
