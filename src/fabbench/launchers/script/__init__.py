"""The format ``script``: a bash script for the first host, told its hosts when it runs. Its options."""

from dataclasses import dataclass

from fabbench.launchers.shared_options import InstanceOptions


@dataclass(frozen=True, kw_only=True)
class ScriptOptions(InstanceOptions):
    """Options of the format ``script``: it is told its hosts when it runs."""

    without = ("hosts",)


OPTIONS = ScriptOptions
