"""The current context of the kubeconfig, without the Kubernetes library, which is slow to import. Pure."""

import os
from collections.abc import Mapping
from pathlib import Path

from fabbench.model.errors import MachineError


def current_context(environment: Mapping[str, str], *, file: Path | None = None, context: str = "") -> str | None:
    """Return the name of the context that commands use; None if there is none.

    `file` overrides KUBECONFIG and ~/.kube/config, `context` the current context. Raise MachineError for a
    file that cannot be read.
    """
    if context:
        return context
    names = (_read(path) for path in _files(environment, file))
    return next((name for name in names if name), None)


def _files(environment: Mapping[str, str], file: Path | None) -> list[Path]:
    if file:
        return [file]
    if named := environment.get("KUBECONFIG"):
        return [Path(name) for name in named.split(os.pathsep) if name]
    home = environment.get("HOME")
    return [Path(home, ".kube", "config")] if home else []


def _read(path: Path) -> str:
    import yaml

    try:
        config = yaml.safe_load(path.read_text("utf-8"))
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise MachineError(
            f"The kubeconfig {path} cannot be read: {' '.join(str(error).split())}.",
            hint="It was read because no target is set: specify one with --on.",
        ) from error
    name = config.get("current-context") if isinstance(config, dict) else None
    return name if isinstance(name, str) else ""
