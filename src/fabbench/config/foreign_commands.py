"""Commands that a fabbench.yaml other than the user's own runs on this machine, by files that it names."""

import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from fabbench.config import user_file
from fabbench.config.sections import Config
from fabbench.model.hosts import Target

_SSH = re.compile(r"proxycommand|knownhostscommand|localcommand|\bexec\b|\binclude\b", re.IGNORECASE)
_LONGEST_QUOTE = 80
_MAX_LINES = 3


def foreign_commands(
    config: Config, target: Target, given: Collection[str], environment: Mapping[str, str]
) -> Iterator[str]:
    """Yield a warning for each file with such commands that a target names, unless `given` replaces it.

    The user's own fabbench.yaml is trusted. A file that cannot be read is reported elsewhere.
    """
    if config.path == user_file(environment):
        return
    for name, commands, option in (
        ("ssh_config", _ssh_commands, "--ssh-config"),
        ("kubeconfig", _kubeconfig_commands, "--kubeconfig"),
    ):
        path = None if name in given else getattr(target.options, name, None)
        lines = list(commands(path)) if isinstance(path, Path) else []
        if lines:
            more = f" and {len(lines) - _MAX_LINES} more" if len(lines) > _MAX_LINES else ""
            yield (
                f"Warning: {config.path} names {path}, which can run commands on this machine: "
                f"{'; '.join(lines[:_MAX_LINES])}{more}. {option} names another file."
            )


def _ssh_commands(path: Path) -> Iterator[str]:
    """Yield the lines of an ssh configuration that run something, or include a file that may."""
    for line in _text(path).splitlines():
        if not line.lstrip().startswith("#") and _SSH.search(line):
            yield _quoted(line)


def _kubeconfig_commands(path: Path) -> Iterator[str]:
    """Yield the programs of a kubeconfig that provide credentials."""
    import yaml

    try:
        document = yaml.safe_load(_text(path))
    except yaml.YAMLError:
        return
    users = document.get("users") if isinstance(document, dict) else None
    for user in users if isinstance(users, list) else ():
        credentials = user.get("user") if isinstance(user, dict) else None
        for name in ("exec", "auth-provider"):
            if isinstance(credentials, dict) and credentials.get(name):
                yield _quoted(f"{name} {credentials[name]}")


def _text(path: Path) -> str:
    try:
        return path.expanduser().read_text("utf-8", "replace")
    except OSError:
        return ""


def _quoted(text: str) -> str:
    return " ".join(text.split())[:_LONGEST_QUOTE]
