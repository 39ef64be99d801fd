"""Files of tasks."""

from pathlib import Path
from typing import Any

from fabbench.errors import MachineError


def read_tasks(path: Path) -> list[Any]:
    """Read the documents of a YAML file. Raises MachineError where it cannot be read, or is no YAML."""
    import yaml

    try:
        return list(yaml.safe_load_all(path.read_text("utf-8"))) or [None]
    except OSError as error:
        raise MachineError(f"{path} cannot be read: {error.strerror or error}.") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        told = " ".join(str(error).split())
        raise MachineError(f"{path} is no YAML: {told}.") from error
