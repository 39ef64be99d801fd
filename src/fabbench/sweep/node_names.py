"""Nodes in names of files (``nccl_node-01_node-02.log``), and the groups that a file puts them in.

Pure.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import PurePath
from typing import TypeAlias

from fabbench.model.fabrics import natural_order
from fabbench.model.hostlist import expand_hostlist
from fabbench.model.messages import listed
from fabbench.model.patterns import lazy

_BETWEEN = lazy(r"[-_.,+=@ ]+(?:(?:to|vs|and)[-_.,+=@ ]+)?|/")
_DIGITS = lazy(r"[0-9]+")
_OCTET = "(?:25[0-5]|2[0-4][0-9]|1?[0-9]?[0-9])"
_ADDRESS = lazy(rf"{_OCTET}(?:\.{_OCTET}){{3}}")
_ENDING = lazy(r"(?:\.(?:txt|log|out|err|json|gz|bz2|xz|zst))+$")


class NodeNames:
    """Tells the nodes of logs.

    By what they say, else by what others say, else by the names of their files.
    """

    def __init__(self, logs: Iterable[tuple[str, Collection[str]]]) -> None:
        """Learn from the path of each log, and the nodes that it says."""
        logs = list(logs)
        self._known = {host for _, hosts in logs for host in hosts}
        self._templates = list[Template]()
        self._known |= {name for path, hosts in logs for name in self.of(path, hosts)}
        named = (template_of(path, self.of(path, hosts)) for path, hosts in logs)
        self._templates += dict.fromkeys(filter(None, named))

    def of(self, path: str, hosts: Collection[str]) -> tuple[str, ...]:
        """Return the nodes of a log."""
        if len(hosts) > 1:
            return tuple(sorted(hosts, key=natural_order))
        names = known_in(path, self._known)
        if len(names) > 1:
            return names
        return pair_in(path) or other_in(path, self._known, self._templates) or tuple(hosts)

    def without_log(self, path: str) -> tuple[str, ...]:
        """Return the nodes of a file that says nothing.

        As both of a pair have one form, both are if one is known.
        """
        nodes = self.of(path, ())
        return () if len(nodes) < 2 or self._known.isdisjoint(nodes) else nodes


def known_in(path: str, known: Collection[str]) -> tuple[str, ...]:
    """Return the names in `known` that are whole words in the last two parts of a path.

    Long names win.
    """
    text, found = _stem(path), []
    for name in sorted(known, key=len, reverse=True):
        match = re.search(rf"(?<![A-Za-z0-9]){re.escape(name)}(?![A-Za-z0-9])", text)
        if match:
            found.append(name)
            text = f"{text[: match.start()]}/{text[match.end() :]}"
    return tuple(sorted(found, key=natural_order))


def pair_in(path: str) -> tuple[str, str] | None:
    """Return the longest two adjacent names that differ only in numbers; None if there are none.

    Names have a letter and a number (``gpu-a-01-gpu-a-02`` is gpu-a-01 and gpu-a-02), or are IPv4
    addresses.
    """
    text = _stem(path)
    return max(_candidates(text), key=lambda pair: len(pair[0]), default=None)


Template: TypeAlias = tuple[str, str, str]
"""What stands before, between and after the two nodes of a pair in the name of a file."""


def template_of(path: str, nodes: Collection[str]) -> Template | None:
    """Return how a file is named after the two nodes of its log; None if it is not."""
    text = _stem(path)
    found = sorted((text.find(node), node) for node in nodes if node in text)
    if len(found) != 2 or found[0][0] + len(found[0][1]) > found[1][0]:
        return None
    (start, first), (middle, second) = found
    return text[:start], text[start + len(first) : middle], text[middle + len(second) :]


def other_in(
    path: str, known: Collection[str], templates: Iterable[Template]
) -> tuple[str, str] | None:
    """Return the nodes of a file that is named like others, of which one is in `known`.

    The longest of these.
    """
    text = _stem(path)
    for before, between, after in templates:
        if text.startswith(before) and text.endswith(after):
            inner = text[len(before) : len(text) - len(after)]
            for node in sorted(known, key=len, reverse=True):
                other = inner.removeprefix(node + between)
                other = inner.removesuffix(between + node) if other == inner else other
                if other not in {inner, node, ""}:
                    return node, other
    return None


def _candidates(text: str) -> Iterator[tuple[str, str]]:
    between = [match.span() for match in _BETWEEN.finditer(text)]
    starts, ends = [0, *(end for _, end in between)], [*(start for start, _ in between), len(text)]
    for left, right in between:
        for start in starts:
            first = text[start:left]
            if start >= left or not _is_name(first):
                continue
            for end in ends:
                second = text[right:end]
                alike = first != second and "0" in _shape(first) == _shape(second)
                if end > right and alike and _is_name(second):
                    yield first, second


def _is_name(text: str) -> bool:
    return any(map(str.isalpha, text)) or _ADDRESS.fullmatch(text) is not None


def _shape(name: str) -> str:
    return _DIGITS.sub("0", name) if _DIGITS.search(name) else ""


def _stem(path: str) -> str:
    parts = PurePath(path.replace("!", "/")).parts[-2:]
    return _ENDING.sub("", "/".join(parts))


def read_groups(text: str, tested: Iterable[str] = ()) -> Mapping[str, str]:
    """Parse node → group from lines such as ``node[01-08] rack-1`` or ``node01,rack-1``.

    Blank lines, and text after ``#``, are ignored. Raise ValueError that names the invalid line, or
    those that were `tested` and have no group.
    """
    group_of: dict[str, str] = {}
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
            if group_of.setdefault(name, group) != group:
                raise ValueError(f"line {number}: {name} is in {group_of[name]} and in {group}")
    if not group_of:
        raise ValueError("it names no node")
    if missing := [node for node in tested if node not in group_of]:
        raise ValueError(f"it has no group for {listed(missing)}")
    return group_of
