"""What libfabric's own log (FI_LOG_LEVEL=info) says of the fabric that a program really opened. Pure.

The fabtests themselves do not print it. ``Opened fabric: NAME`` is `fi_fabric` of src/fabric.c, called with
the one fi_info that the program chose; `efa`, `efa-direct` and `shm` are names of their providers' fabrics.
``QP enabled! … domain_name: NAME`` is the provider efa (efa_base_ep.c): a queue pair on that device.
"""

import re
from collections.abc import Iterator, Mapping

SETTINGS: Mapping[str, str] = {
    "FI_LOG_LEVEL": "info",
    "FI_LOG_PROV": "core,efa",
    "FI_LOG_SUBSYS": "core,ep_ctrl",
}
"""Environment that makes libfabric write these lines, and few others: at set-up, which is not timed."""

_LINE = re.compile(
    r"libfabric:\d+:(?:\d+:)?(?:[^:]*:)?(?P<provider>\w+):(?P<part>\w+):\S*<info> (?P<said>.*)"
)
_OPENED = re.compile(r"Opened fabric: (\S+)")
_QUEUE_PAIR = re.compile(r"QP enabled! .*domain_name: ([^,\s]+).*")
_NAMED = {"efa": "efa", "efa-direct": "efa", "shm": "shm"}


def used(text: str, wanted: str) -> Iterator[tuple[str, str]]:
    """Read a line of the log: facts and their values.

    `wanted` is the provider that the program was started with (``-p``): it leaves libfabric no other, and
    counts once a fabric was opened that is not named after another. EFA must name itself; it opens `shm` too.
    """
    line = _LINE.fullmatch(text)
    if line is None:
        return
    opened = _OPENED.fullmatch(line["said"])
    if opened is not None and line["provider"] == "core":
        name = opened[1]
        if (name, wanted) == ("shm", "efa"):
            return
        yield "fabric", name
        provider = _NAMED.get(name) or ("efa" if name.startswith("EFA-") else "")
        if provider or (wanted and wanted != "efa"):
            yield "provider", provider or wanted
    elif line["provider"] == "efa" and (enabled := _QUEUE_PAIR.fullmatch(line["said"])):
        yield "provider", "efa"
        yield "domain", enabled[1]
