"""The format ``script``: one bash script for the first host, which is told its hosts when it runs."""

from typing import Final

from fabbench.rendering import Job, Rendering
from fabbench.script import script
from fabbench.script.way import NAMED_HOSTS


class Bash:
    """A bash script: ``bash SCRIPT HOST…`` on the first of the hosts, which reaches the others by ssh."""

    name: Final = "script"

    def render(self, job: Job) -> str:
        """Write the script."""
        return script(job.plan, job.way(NAMED_HOSTS))


RENDERING: Rendering = Bash()
