"""What ``fi_info`` prints."""

import re
from collections.abc import Iterable, Iterator

from fabbench.hosts.found import Domain

_LINE = re.compile(r"(provider|\s+(?:fabric|domain|version|type|protocol)): *(.*)")
_NAMES = {"domain": "name", "type": "endpoint"}


def read_fi_info(lines: Iterable[str]) -> Iterator[Domain]:
    """Read the blocks of ``fi_info``, each of which begins with ``provider: NAME``; skip other lines."""
    block: dict[str, str] = {}
    for line in lines:
        match = _LINE.fullmatch(line.rstrip())
        if match is None:
            continue
        key, value = match[1].strip(), match[2].strip()
        if key == "provider":
            if block:
                yield Domain(**block)
            block = {"provider": value} if value else {}
        elif block:
            block[_NAMES.get(key, key)] = value.removeprefix("FI_EP_").lower() if key == "type" else value
    if block:
        yield Domain(**block)
