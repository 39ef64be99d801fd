"""Which rack, spine or other group each node is in: a text of nodes and groups. Pure."""

from collections.abc import Mapping

from fabbench.model.hostlist import expand_hostlist


def read_groups(text: str) -> Mapping[str, str]:
    """Return node → group from lines such as ``node[01-08] rack-1`` or ``node01,rack-1``.

    Blank lines, and what follows ``#``, are left out. Raise ValueError that names the line that is wrong.
    """
    found: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = " ".join(line.partition("#")[0].split())
        if not words:
            continue
        nodes, separator, group = words.rpartition(" " if " " in words else ",")
        if not separator or not nodes.strip(" ,\t") or not group.strip():
            raise ValueError(
                f"line {number}: {words!r} is not nodes and their group, such as node[01-08] rack-1"
            )
        try:
            names = expand_hostlist(nodes.strip(" ,\t"))
        except ValueError as error:
            raise ValueError(f"line {number}: {error}") from None
        for name in names:
            if found.setdefault(name, group) != group:
                raise ValueError(f"line {number}: {name} is in {found[name]} and in {group}")
    if not found:
        raise ValueError("it names no node")
    return found
