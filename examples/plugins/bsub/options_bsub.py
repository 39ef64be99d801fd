"""The launcher and format ``bsub``: runs in the foreground of LSF. Its options."""

from dataclasses import dataclass

from fabbench.launchers.shared_options import InstanceOptions
from fabbench.model.options import Text, option


@dataclass(frozen=True, kw_only=True)
class BsubOptions(InstanceOptions):
    """Options of the launcher and format ``bsub``: LSF chooses the hosts."""

    without = ("hosts",)

    application: str | None = option(
        Text("a profile", "NAME", r"^[A-Za-z0-9_]+$"), "LSF application profile. Default: none."
    )


OPTIONS = BsubOptions
