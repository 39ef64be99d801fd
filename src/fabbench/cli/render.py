"""``fabbench render``: the commands of ``fabbench run``, stopped before anything is contacted."""

from dataclasses import replace
from typing import TYPE_CHECKING

import click

from fabbench.cli.click_options import CommandLine, OptionType
from fabbench.cli.commands import CONFIGURATION_FLAGS
from fabbench.cli.options import output_option
from fabbench.cli.run_command import RunCommand, RunGroup
from fabbench.launchers import options_of_formats
from fabbench.model.compat import override
from fabbench.model.errors import Exit, RequestError
from fabbench.model.messages import printable, redacted
from fabbench.model.options import AUTO, Choice

if TYPE_CHECKING:
    from fabbench.plan.request import RunRequest


class _RenderCommand(RunCommand):
    """A command of ``fabbench run`` with the options of formats."""

    shared = ("fabrics", "variants", "repeats", "env")
    wanted = ("", "render")
    choices = staticmethod(options_of_formats)
    places = staticmethod(options_of_formats)

    @override
    def about(self) -> str:
        text = super().about().partition("Example:")[0].rstrip()  # Examples are those of runs.
        return f"Render a job that does what `fabbench run {self.benchmark.name}` does.\n\n{text}"

    @override
    def all_but_work_parameters(self) -> list[click.Parameter]:
        kind = Choice(sorted(options_of_formats()))
        form = click.Option(
            ["--as", "as_form"],
            required=True,
            type=OptionType(kind),
            metavar=kind.metavar,
            help="What to print. A script takes its hosts as arguments, when it runs.",
        )
        return [form, *CONFIGURATION_FLAGS, *self.run_and_launcher_parameters(), output_option()]

    @override
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            flag = error.option_name
            of_run = RunCommand(self.benchmark).params
            if not any(flag in each.opts for each in of_run):
                raise
            text = f"{flag} works with fabbench run only: render contacts no machine."
            hint = (
                "Describe the machines with --instance-type and --nodes; gate it: fabbench "
                "compare - --gate …."
            )
            raise RequestError(text, hint=hint) from None

    @override
    def start(self, line: CommandLine) -> Exit:
        from fabbench.config.given import value_of

        if value_of(line.given, "repeats") == AUTO:
            raise RequestError(
                "--repeat auto has no effect in a script.", hint="Give a number of repeats."
            )
        document = _rendered_document(self.request(line), value_of(line.given, "as_form"))
        click.echo(document, nl=False)
        return Exit.FINE


@click.group("render", cls=RunGroup, makes=_RenderCommand)
def render() -> None:
    """Print what would run elsewhere, without contacting anything.

    The document runs every configuration, interleaved and repeated as fabbench run does it.
    `fabbench parse` and `fabbench compare` read what it prints.

    Example: fabbench render nccl --ab --as script --instance-type p5.48xlarge >nccl.sh
    """


def _rendered_document(request: "RunRequest", form: str) -> str:
    from fabbench.catalog.offline_inventory import require_names
    from fabbench.launchers import RenderInput, rendering_named, require_support
    from fabbench.plan.build import plan

    rendering = rendering_named(form)
    require_support(rendering, request.target)
    inventory = rendering.inventory(
        request.target, replace(request.work.needs, fabrics=request.fabrics)
    )
    planned = plan(request, inventory)
    require_names(planned)
    source = RenderInput(plan=planned, request=request, inventory=inventory)
    text = rendering.render(source)
    if rendering.render(redacted(source)) != text:
        raise RequestError(
            "The document would show a secret: a variable or an option whose name or value tells "
            "of one.",
            hint="Pass a variable as --env NAME, without the value: where the document is used, it "
            "is taken from the environment, or in pods from a Secret. Remove others.",
        )
    if printable(text) != text:
        raise RequestError(
            "The document would have text that must not be printed: control characters, or ##[…], "
            "which CI systems obey.",
            hint="Remove it from the options, or from the targets in fabbench.yaml.",
        )
    return text
