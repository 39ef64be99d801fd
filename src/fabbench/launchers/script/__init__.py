"""The format ``script``: a bash script for the first host; arguments name all hosts.

Its options.
"""

from fabbench.launchers.shared_options import InstanceOptions
from fabbench.model.values import frozen


@frozen
class ScriptOptions(InstanceOptions):
    """Options of the format ``script``, whose hosts are given when it runs."""

    without = ("hosts",)


OPTIONS = ScriptOptions
