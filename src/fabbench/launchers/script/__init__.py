"""The format ``script``: a bash script for the first host; arguments name all hosts.

Its options.
"""

from dataclasses import dataclass

from fabbench.launchers.shared_options import InstanceOptions


@dataclass(frozen=True, kw_only=True)
class ScriptOptions(InstanceOptions):
    """Options of the format ``script``, whose hosts are given when it runs."""

    without = ("hosts",)


OPTIONS = ScriptOptions
