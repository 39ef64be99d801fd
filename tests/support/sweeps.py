"""Sweeps in a lab of hosts, for tests."""

import json
from pathlib import Path
from typing import Any

from tests.support.hosts import Lab
from tests.support.ssh_runs import STORE, argv, hosts


def sweep(lab: Lab, benchmark: str, *more: str, fabric: str = "tcp") -> list[str]:
    """The command line of a sweep of all hosts."""
    return argv("sweep", benchmark, "--on", "ssh", *hosts(lab), "--fabric", fabric, *more)


def stored(folder: Path) -> list[dict[str, Any]]:
    """What the sweeps below a folder keep of their tests, read without fabbench."""
    return [json.loads(path.read_text()) for path in sorted(folder.glob("*/tests/*.json"))]


def kept_tests(lab: Lab) -> list[dict[str, Any]]:
    """What the lab's sweeps keep of their tests."""
    return stored(lab.path(STORE))


def going_on(lab: Lab) -> int:
    """How many tests go on, as the store has it."""
    return len(list(lab.path(STORE).glob("*/exec/*/output.log")))
