"""The format ``bsub``: a job for ``bsub <FILE``."""

from fabbench.execution.script import script
from fabbench.launchers import Rendering, RenderInput
from fabbench.launchers.bsub import BsubOptions


class BsubScript(Rendering):
    """The script of all configurations, with the options of bsub in its head."""

    name = "bsub"
    options = BsubOptions

    def render(self, source: RenderInput) -> str:
        """Write it. Raises RequestError for what it cannot express."""
        # LSF runs it on the first host of that file, which lists each host once per slot.
        text = script(
            source.plan, source.script_target('mapfile -t hosts < <(uniq "$LSB_DJOB_HOSTFILE")\n')
        )
        first, _, rest = text.partition("\n")
        application = source.options_as(BsubOptions).application
        lines = [
            f"-n {source.plan.hosts}",
            '-R "span[ptile=1]"',
            "-x",
            *([f"-app {application}"] if application else []),
        ]
        return "\n".join((first, *(f"#BSUB {line}" for line in lines), rest))


RENDERING: Rendering = BsubScript()
