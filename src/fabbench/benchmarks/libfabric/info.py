"""The facts in what ``fi_pingpong -v`` prints of the endpoint that it really used (its ``fi_info`` block)."""

import re

_LINE = re.compile(r"\s+(\w+):\s*(.*)")
_SECTION = re.compile(r"\s*(fi_\w+_attr|nic):.*")
_FACTS = {
    ("", "src_addr"): "source_address",
    ("", "dest_addr"): "dest_address",
    ("fi_ep_attr", "type"): "endpoint",
    ("fi_domain_attr", "name"): "domain",
    ("fi_fabric_attr", "name"): "fabric",
    ("fi_fabric_attr", "prov_name"): "provider",
    ("fi_fabric_attr", "prov_version"): "libfabric",
}
_ADDRESS = re.compile(r"fi_sockaddr_in6?://\[?([^\]]+?)\]?(?::\d+)?")
_VERSION = re.compile(r"(\d+)(\d\d)\.\d+")


class InfoBlock:
    """Reads the block line by line. A fact counts once the next line shows that its own was whole."""

    def __init__(self) -> None:
        self._section = ""
        self._held: tuple[str, str] | None = None

    def feed(self, text: str) -> tuple[tuple[str, str] | None, bool]:
        """Read one line. Gives the fact that is certain now, and whether the line was one of the block's."""
        certain, self._held = self._held, None
        section = _SECTION.fullmatch(text)
        if section is not None:
            self._section = section[1]
            return certain, True
        match = _LINE.fullmatch(text)
        if match is None:
            return certain, False
        name = _FACTS.get((self._section, match[1]))
        value = _value(name, match[2].strip()) if name else ""
        if name and value:
            self._held = name, value
        return certain, True


def _value(name: str, text: str) -> str:
    """Write a fact's value as a log's facts have it; empty: it says nothing."""
    if name == "endpoint":
        return text.removeprefix("FI_EP_").lower()
    if name in {"source_address", "dest_address"}:
        match = _ADDRESS.fullmatch(text)
        return match[1] if match else ""
    if name == "libfabric":
        match = _VERSION.fullmatch(text)
        return f"{int(match[1])}.{int(match[2])}" if match else ""
    return text
