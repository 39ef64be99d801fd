"""What a fabbench.yaml that is not the user's own has run on this machine, by files that it names."""

import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from fabbench.config import user_file
from fabbench.config.sections import Config
from fabbench.model.hosts import Target

_SSH = re.compile(r"proxycommand|knownhostscommand|localcommand|\bexec\b|\binclude\b", re.IGNORECASE)
_LONGEST_QUOTE = 80
_MOST_LINES = 3


def foreign_commands(
    config: Config, target: Target, given: Collection[str], environment: Mapping[str, str]
) -> Iterator[str]:
    """Yield a sentence for each file with such commands that a target names, and nothing `given` replaces.

    Of the user's own fabbench.yaml there is nothing to say. A file that cannot be read is not this function's
    matter.
    """
    if config.path == user_file(environment):
        return
    for name, commands, option in (
        ("ssh_config", _of_ssh, "--ssh-config"),
        ("kubeconfig", _of_kubernetes, "--kubeconfig"),
    ):
        path = None if name in given else getattr(target.options, name, None)
        found = list(commands(path)) if isinstance(path, Path) else []
        if found:
            more = f" and {len(found) - _MOST_LINES} more" if len(found) > _MOST_LINES else ""
            yield (
                f"Warning: {config.path} names {path}, which can run commands on this machine: "
                f"{'; '.join(found[:_MOST_LINES])}{more}. {option} names another file."
            )


def _of_ssh(path: Path) -> Iterator[str]:
    """Yield the lines of an ssh configuration that run something, or include a file that may."""
    for line in _text(path).splitlines():
        if not line.lstrip().startswith("#") and _SSH.search(line):
            yield _quoted(line)


def _of_kubernetes(path: Path) -> Iterator[str]:
    """Yield the programs of a kubeconfig that give credentials."""
    import yaml

    try:
        document = yaml.safe_load(_text(path))
    except yaml.YAMLError:
        return
    users = document.get("users") if isinstance(document, dict) else None
    for user in users if isinstance(users, list) else ():
        own = user.get("user") if isinstance(user, dict) else None
        for name in ("exec", "auth-provider"):
            if isinstance(own, dict) and own.get(name):
                yield _quoted(f"{name} {own[name]}")


def _text(path: Path) -> str:
    try:
        return path.expanduser().read_text("utf-8", "replace")
    except OSError:
        return ""


def _quoted(text: str) -> str:
    return " ".join(text.split())[:_LONGEST_QUOTE]
