"""What libfabric's tools report about themselves: ``fi_info`` blocks, and libfabric's own log."""

import re
from collections.abc import Iterator, Mapping

from fabbench.model.patterns import lazy

INFO_LINE = lazy(r"\s+(\w+):\s*(.*?)\s*")
SECTION = lazy(r"\s*(fi_\w+_attr|nic|fi_info):.*")
_ADDRESS, _ANY = r"fi_sockaddr_in6?://\[?([^\]]+?)\]?(?::\d+)?", r"(.+)"
_INFO_FACTS = {
    ("fi_info", "src_addr"): ("source_address", _ADDRESS),
    ("fi_info", "dest_addr"): ("dest_address", _ADDRESS),
    ("fi_ep_attr", "type"): ("endpoint", r"(?:FI_EP_)?(.+)"),
    ("fi_domain_attr", "name"): ("domain", _ANY),
    ("fi_fabric_attr", "name"): ("fabric", _ANY),
    ("fi_fabric_attr", "prov_name"): ("provider", _ANY),
    ("fi_fabric_attr", "prov_version"): ("libfabric", r"(\d{3,})\.\d+"),
}
"""(section, name) → fact, and the pattern of its value."""


def info_fact(section: str, name: str, text: str) -> tuple[str, str]:
    """Return (fact, value) for a line of an ``fi_info`` block, the endpoint actually used; empty if it is not read."""
    fact, pattern = _INFO_FACTS.get((section, name), ("", ""))
    value = match[1] if (match := re.fullmatch(pattern, text)) and fact else ""
    if fact == "libfabric" and value:
        return fact, f"{value[:-2]}.{int(value[-2:])}"
    return fact, value.lower() if fact == "endpoint" else value


LOG_SETTINGS: Mapping[str, str] = {"FI_LOG_LEVEL": "info", "FI_LOG_PROV": "core,efa", "FI_LOG_SUBSYS": "core,ep_ctrl"}
"""Environment that makes libfabric write these lines and few others, at set-up, which is not timed."""

_LOG_LINE = lazy(r"libfabric:\d+:(?:\d+:)?(?:[^:]*:)?(?P<provider>\w+):(?P<part>\w+):\S*<info> (?P<message>.*)")
_OPENED = lazy(r"Opened fabric: (\S+)")
_QUEUE_PAIR = lazy(r"QP enabled! .*domain_name: ([^,\s]+).*")


def logged_facts(text: str, requested: str) -> Iterator[tuple[str, str]]:
    """Yield (name, value) for the facts in a line of libfabric's own log (FI_LOG_LEVEL=info).

    `requested` is the provider of the command line (``-p``): libfabric can use no other, and it counts once a
    fabric is opened that is not named after another. EFA must name itself; it also opens `shm`. ``Opened
    fabric`` is from `fi_fabric` of src/fabric.c, ``QP enabled!`` from the provider efa (efa_base_ep.c).
    """
    line = _LOG_LINE.fullmatch(text)
    if line is None:
        return
    opened = _OPENED.fullmatch(line["message"])
    if opened is not None and line["provider"] == "core":
        name = opened[1]
        if (name, requested) == ("shm", "efa"):
            return
        yield "fabric", name
        provider = "efa" if name.lower().partition("-")[0] == "efa" else "shm" if name == "shm" else ""
        if provider or (requested and requested != "efa"):
            yield "provider", provider or requested
    elif line["provider"] == "efa" and (enabled := _QUEUE_PAIR.fullmatch(line["message"])):
        yield "provider", "efa"
        yield "domain", enabled[1]
