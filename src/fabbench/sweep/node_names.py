"""Nodes in names of files (``nccl_node-01_node-02.log``), and the groups of a file of groups."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import PurePath
from typing import TypeAlias

from fabbench.model.fabrics import natural_order
from fabbench.model.hostlist import expand_hostlist
from fabbench.model.mappings import Names
from fabbench.model.messages import listed, single_spaced
from fabbench.model.patterns import lazy

_BETWEEN = lazy(r"[-_.,+=@ ]+(?:(?:to|vs|and)[-_.,+=@ ]+)?|/")
_DIGITS = lazy(r"[0-9]+")
_OCTET = "(?:25[0-5]|2[0-4][0-9]|1?[0-9]?[0-9])"
_ADDRESS = lazy(rf"{_OCTET}(?:\.{_OCTET}){{3}}")
_ENDING = lazy(r"(?:\.(?:txt|log|out|err|json|gz|bz2|xz|zst)){1,9}$")


class NodeNames:
    """Tells the nodes of logs: by what they say, what others say, or the names of their files."""

    def __init__(self, logs: Iterable[tuple[str, Collection[str]]]) -> None:
        """Learn from the path of each log, and the nodes that it says."""
        logs = list(logs)
        self._known = {host for _, hosts in logs for host in hosts}
        self._templates: tuple[Template, ...] = ()
        # `of` finds more with each that is learned: names that logs say; then those in names of
        # files; at last, how files are named.
        nodes_of_logs = [self.of(path, hosts) for path, hosts in logs]
        self._known.update(*nodes_of_logs)
        nodes_of = {path: self.of(path, hosts) for path, hosts in logs}
        templates = [template_of(path, nodes) for path, nodes in nodes_of.items()]
        self._templates = tuple(filter(None, dict.fromkeys(templates)))

    def of(self, path: str, hosts: Collection[str]) -> Names:
        """Return the nodes of a log.

        Those that it names, if several; else those in its path; else the one that it names.
        """
        if len(hosts) > 1:
            return tuple(sorted(hosts, key=natural_order))
        names = known_in(path, self._known)
        if len(names) > 1:
            return names
        pair = pair_in(path) or pair_by_template(path, self._known, self._templates)
        return pair or tuple(hosts)

    def without_log(self, path: str) -> Names:
        """Return the nodes of a file that says nothing.

        Both names of a pair have one form: both are nodes if one is known.
        """
        nodes = self.of(path, hosts=())
        if len(nodes) < 2 or self._known.isdisjoint(nodes):
            return ()
        return nodes


def known_in(path: str, known: Collection[str]) -> Names:
    """Return the names in `known` that are words in the last two parts of a path; long ones win."""
    text = _stem(path)
    names: list[str] = []
    for name in sorted(known, key=len, reverse=True):
        match = re.search(rf"(?<![A-Za-z0-9]){re.escape(name)}(?![A-Za-z0-9])", text)
        if match:
            names.append(name)
            start, end = match.span()
            before = text[:start]
            text = f"{before}/{text[end:]}"  # shorter names are not found within it
    return tuple(sorted(names, key=natural_order))


def pair_in(path: str) -> tuple[str, str] | None:
    """Return the longest two adjacent names that differ only in numbers; None if there are none.

    Names have a letter and a number (``gpu-a-01-gpu-a-02`` is gpu-a-01 and gpu-a-02), or are IPv4
    addresses.
    """
    candidates = _candidates(_stem(path))
    return max(candidates, key=lambda pair: len(pair[0]), default=None)


Template: TypeAlias = tuple[str, ...]
"""What stands before, between and after the two nodes of a pair in the name of a file."""


def template_of(path: str, nodes: Collection[str]) -> Template | None:
    """Return how a file is named after the two nodes of its log; None if it is not."""
    around = tuple(re.split(_any_of(nodes), _stem(path)))
    return around if len(nodes) == 2 and len(around) == 3 else None


def pair_by_template(path: str, known: Collection[str], templates: Iterable[Template]) -> Names:
    """Return a known node, and its partner, by the name of a file that is named like others.

    Of several known ones the longest; empty: no template fits.
    """
    node = _any_of(known)
    for before, between, after in (map(re.escape, template) for template in templates):
        known_first = f"({node}){between}(.+)"
        known_last = f"(.+){between}({node})"
        either = f"{before}(?:{known_first}|{known_last}){after}"
        if match := re.fullmatch(either, _stem(path)):
            return tuple(filter(None, match.groups()))  # the other alternative has none
    return ()


def _any_of(names: Collection[str]) -> str:
    """Return a pattern of names, of which the longest that fits counts."""
    longest_first = sorted(names, key=len, reverse=True)
    return "|".join(map(re.escape, longest_first))


def _candidates(text: str) -> Iterator[tuple[str, str]]:
    """Yield the names on both sides of each separator that are alike."""
    separators = [match.span() for match in _BETWEEN.finditer(text)]
    starts = [0, *(end for _, end in separators)]
    ends = [*(start for start, _ in separators), len(text)]
    for left, right in separators:
        before = [text[start:left] for start in starts if start < left]
        after = [text[right:end] for end in ends if end > right]
        for first in filter(_is_name, before):
            yield from ((first, second) for second in after if _alike(first, second))


def _alike(first: str, second: str) -> bool:
    """Return whether two names differ only in numbers."""
    if first == second or not _is_name(second):
        return False
    # Both have a number, in the same place of the same words.
    shape = _shape(first)
    return bool(shape) and shape == _shape(second)


def _is_name(text: str) -> bool:
    # A number alone, such as a date, is no name.
    if any(map(str.isalpha, text)):
        return True
    return _ADDRESS.fullmatch(text) is not None


def _shape(name: str) -> str:
    # `gpu-0` of `gpu-07`; empty: it has no number.
    return _DIGITS.sub("0", name) if _DIGITS.search(name) else ""


def _stem(path: str) -> str:
    # The last folder and the name of the file, without `.log.gz` and the like.
    parts = PurePath(path.replace("!", "/")).parts[-2:]
    return _ENDING.sub("", "/".join(parts))


def read_groups(text: str, tested: Iterable[str] = ()) -> Mapping[str, str]:
    """Parse node → group from lines such as ``node[01-08] rack-1`` or ``node01,rack-1``.

    Blank lines, and text after ``#``, are ignored. Raise ValueError that names the invalid line, or
    those that were `tested` and have no group.
    """
    group_of: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        before_comment, _, _ = line.partition("#")
        words = single_spaced(before_comment)
        if words:
            try:
                _place(group_of, words)
            except ValueError as error:
                raise ValueError(f"line {number}: {error}") from None
    if not group_of:
        raise ValueError("it names no node")
    if missing := [node for node in tested if node not in group_of]:
        raise ValueError(f"it has no group for {listed(missing)}")
    return group_of


def _place(group_of: dict[str, str], words: str) -> None:
    """Place the nodes of a line of a file of groups."""
    separator = " " if " " in words else ","
    nodes, separated, group = words.rpartition(separator)
    nodes = nodes.strip(" ,\t")
    if not (separated and nodes and group.strip()):
        raise ValueError(f"{words!r} is not nodes and their group, such as node[01-08] rack-1")
    for name in expand_hostlist(nodes):
        before = group_of.setdefault(name, group)
        if before != group:
            raise ValueError(f"{name} is in {before} and in {group}")
