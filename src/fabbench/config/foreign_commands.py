"""Files that a fabbench.yaml names, and that can run commands or use files on this machine.

What ssh and kubectl may be told to do grows with each release, so no content counts as harmless.
"""

from collections.abc import Collection, Iterator

from fabbench.config import user_file
from fabbench.config.sections import Config
from fabbench.model.hosts import Target
from fabbench.model.mappings import Variables


def foreign_commands(
    config: Config, target: Target, given: Collection[str], environment: Variables
) -> Iterator[str]:
    """Yield a warning for each file of a target that can run commands, unless `given` replaces it.

    The user's own fabbench.yaml is trusted.
    """
    if config.path == user_file(environment):
        return
    for name in ("ssh_config", "kubeconfig"):
        path = getattr(target.options, name, None)
        if path and name not in given:
            option = name.replace("_", "-")
            yield (
                f"Warning: {config.path} names {path}, which can run commands and use files on "
                f"this machine. Read it first; --{option} names another file."
            )
