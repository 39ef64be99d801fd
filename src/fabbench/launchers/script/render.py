"""The format ``script``: one bash script for the first host; its arguments name all hosts."""

from typing import Final

from fabbench.execution.script import script
from fabbench.execution.script.readable import READ_NAMED, readable_script
from fabbench.execution.script.target import BATCH, NAMED_HOSTS
from fabbench.launchers import Rendering, RenderInput
from fabbench.launchers.script import ScriptOptions
from fabbench.model.compat import override


class ScriptRendering(Rendering):
    """A bash script: ``bash SCRIPT HOST…`` on the first of the hosts, which reaches the others by ssh."""

    name: Final = "script"
    options = ScriptOptions
    inherits = True

    def render(self, source: RenderInput) -> str:
        """Write the script."""
        return script(source.plan, source.script_target(NAMED_HOSTS, command=source.command))

    @override
    def readable(self, source: RenderInput) -> str:
        target = source.script_target(NAMED_HOSTS, command=source.command, ssh=BATCH)
        return readable_script(source.plan, target, hosts=READ_NAMED)


RENDERING: Rendering = ScriptRendering()
