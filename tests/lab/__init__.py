"""Hosts for tests, without machines.

laboratory.py and host.py say what can be done with them, layout.py what can be asked for.
"""

from lab.host import Host
from lab.laboratory import Lab, missing
from lab.layout import HOME, Options, address

__all__ = ["HOME", "Host", "Lab", "Options", "address", "missing"]
