"""What libfabric's tools report about themselves: ``fi_info`` blocks, and libfabric's own log."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from fabbench.model.log import Finding, Severity
from fabbench.model.patterns import lazy


@dataclass(slots=True)
class ReportedFacts:
    """Collects facts, which both sides report in every step."""

    _values: dict[str, dict[str, str]] = field(default_factory=dict)  # fact → value → the side that first reported it

    def add(self, fact: str, value: str, side: str) -> None:
        """Add a fact."""
        self._values.setdefault(fact, {}).setdefault(value, side)

    def first(self, fact: str) -> str:
        """Return the first value of a fact; empty: not reported."""
        return next(iter(self._values.get(fact, {})), "")

    def facts(self) -> Iterator[tuple[str, str]]:
        """Yield (name, value) for each fact: addresses as the client sees them, the provider as transport."""
        for name, values in self._values.items():
            if name in {"source_address", "dest_address"}:
                yield (name, next((value for value, side in values.items() if side == "client"), self.first(name)))
            else:
                yield name, ", ".join(values)
        providers = self._values.get("provider", {})
        if providers:
            yield "transport", "mixed" if len(providers) > 1 else self.first("provider")

    def findings(self, facts: Iterable[str]) -> Iterator[Finding]:
        """Yield a finding for each fact in which the processes differ: more than one fabric was measured."""
        for fact in facts:
            values = self._values.get(fact, {})
            if len(values) > 1:
                used = ", ".join(f"{value} ({side})" if side else value for value, side in values.items())
                yield Finding(
                    code=f"mixed-{fact}",
                    severity=Severity.ERROR if fact == "provider" else Severity.WARNING,
                    meaning=f"The processes did not use one {fact}: {used}.",
                    advice="Measure again with one provider and one domain on both sides.",
                )


_INFO_LINE = lazy(r"\s+(\w+):\s*(.*?)\s*")
_SECTION = lazy(r"\s*(fi_\w+_attr|nic|fi_info):.*")
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


@dataclass(slots=True)
class InfoBlock:
    """Reads an ``fi_info`` block, the endpoint actually used (``fi_pingpong -v``), line by line."""

    section: str = "fi_info"
    held: tuple[str, str] | None = None
    """A fact that counts once the next line shows that its own line was complete."""

    def feed(self, text: str) -> bool:
        """Read one line; return whether it was part of the block."""
        self.held = None
        if (match := _SECTION.fullmatch(text)) is not None:
            self.section = match[1]
        elif (match := _INFO_LINE.fullmatch(text)) is None:
            return False
        elif (known := _INFO_FACTS.get((self.section, match[1]))) and (value := re.fullmatch(known[1], match[2])):
            fact, found = known[0], value[1].lower() if known[0] == "endpoint" else value[1]
            self.held = fact, f"{found[:-2]}.{int(found[-2:])}" if fact == "libfabric" else found
        return True


LOG_SETTINGS: Mapping[str, str] = {"FI_LOG_LEVEL": "info", "FI_LOG_PROV": "core,efa", "FI_LOG_SUBSYS": "core,ep_ctrl"}
"""Environment that makes libfabric write these lines and few others, at set-up, which is not timed."""

_LOG_LINE = lazy(r"libfabric:\d+:(?:\d+:)?(?:[^:]*:)?(?P<provider>\w+):(?P<part>\w+):\S*<info> (?P<message>.*)")
_OPENED = lazy(r"Opened fabric: (\S+)")
_QUEUE_PAIR = lazy(r"QP enabled! .*domain_name: ([^,\s]+).*")
_FABRIC_PROVIDERS = {"efa": "efa", "efa-direct": "efa", "shm": "shm"}


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
        provider = _FABRIC_PROVIDERS.get(name) or ("efa" if name.startswith("EFA-") else "")
        if provider or (requested and requested != "efa"):
            yield "provider", provider or requested
    elif line["provider"] == "efa" and (enabled := _QUEUE_PAIR.fullmatch(line["message"])):
        yield "provider", "efa"
        yield "domain", enabled[1]
