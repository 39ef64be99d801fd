"""The format ``script``: one bash script for the first host; its arguments name all hosts."""

from typing import Final

from fabbench.execution.script import script
from fabbench.execution.script.target import READ_NAMED
from fabbench.launchers import Rendering, RenderInput
from fabbench.launchers.script import ScriptOptions


class ScriptRendering(Rendering):
    """A bash script.

    ``bash SCRIPT HOST…`` on the first of the hosts, which reaches the others by ssh.
    """

    name: Final = "script"
    options = ScriptOptions
    inherits = True

    def render(self, source: RenderInput) -> str:
        """Write the script."""
        return script(source.plan, source.script_target(READ_NAMED, head=source.command))


RENDERING: Rendering = ScriptRendering()
