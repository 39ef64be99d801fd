"""Hosts for tests, without machines.

laboratory.py and host.py say what can be done with them, layout.py what can be asked for.
"""

from tests.support.hosts.host import Host
from tests.support.hosts.laboratory import TOOLS, Lab, missing
from tests.support.hosts.layout import HOME, Options, address

__all__ = ["HOME", "TOOLS", "Host", "Lab", "Options", "address", "missing"]
