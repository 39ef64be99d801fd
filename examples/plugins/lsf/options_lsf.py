"""The launcher and format ``lsf``: runs handed over to IBM's LSF. Its options."""

from dataclasses import dataclass

from fabbench.launchers.shared_options import InstanceOptions
from fabbench.model.options import Text, option


@dataclass(frozen=True, kw_only=True)
class LsfOptions(InstanceOptions):
    """Options of the launcher and format ``lsf``: LSF chooses the hosts."""

    without = ("hosts",)

    queue: str | None = option(
        Text("a queue", "NAME", r"^[A-Za-z0-9_]+$"), "LSF queue. Default: LSF's own."
    )


OPTIONS = LsfOptions
