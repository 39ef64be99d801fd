"""``fabbench render``: the commands of ``fabbench run``, stopped before anything is contacted."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from fabbench.cli.click_options import Launchers, click_options, given_options, launcher_options, with_launcher_options
from fabbench.cli.config_file import RunOptions, config_option, split_environment
from fabbench.cli.host_options import command_line
from fabbench.cli.output import output_option
from fabbench.cli.run_command import RunCommand, RunGroup, variants_of
from fabbench.cli.suggestions import NamedChoice
from fabbench.launchers import options_of_formats
from fabbench.model.compat import override
from fabbench.model.errors import RequestError
from fabbench.model.hosts import Target
from fabbench.model.messages import printable
from fabbench.model.option_types import AUTO
from fabbench.model.options import read_options

if TYPE_CHECKING:
    from fabbench.benchmarks import Benchmark
    from fabbench.plan.request import RunRequest

_SHARED = ("fabrics", "variants", "repeats", "env")  # Options of runs that documents have, too


class _RenderCommand(RunCommand):
    """A command of ``fabbench run`` with the options of formats; those of runs alone are hidden."""

    @override
    def shared_launchers(self) -> Launchers:
        return options_of_formats()

    @override
    def shared_parameters(self) -> list[click.Parameter]:
        formats = options_of_formats()
        form = click.Option(
            ["--as", "as_form"], required=True, type=NamedChoice(sorted(formats)), help="What to print."
        )
        described = launcher_options(formats, lambda each: each.only != "run")
        shared = click_options(each for name, each in self.run_options().items() if name in _SHARED)
        shown = [config_option(), form, *described, *shared, output_option()]
        names = {"json", "raw_csv", *(each.name for each in shown)}
        others = [each for each in super().shared_parameters() if each.name not in names]
        return [*shown, *map(_hidden, others)]

    @override
    def work_parameters(self) -> list[click.Parameter]:
        runs = {name for name, each in self.work_options.items() if each.only == "run"}
        return [_hidden(each) if each.name in runs else each for each in super().work_parameters()]

    @override
    def invoke(self, ctx: click.Context) -> None:
        _refuse_options_of_runs(ctx)
        _print(self.request(ctx), ctx.params["as_form"])

    @override
    def request(self, ctx: click.Context) -> "RunRequest":
        from fabbench.launchers.pod_options import with_image
        from fabbench.plan.request import RunRequest

        texts = {name: ctx.params[name] for name in _SHARED if ctx.params[name] is not None}
        given, work = read_options(RunOptions, texts), self.work(ctx)
        if given.repeats == AUTO:
            raise RequestError("--repeat auto has no effect in a script.", hint="Give a number of repeats.")
        for sentence in self.benchmark.advice(work, given.fabrics):
            click.echo(sentence, err=True)
        env, inherited = split_environment(given.env, None)
        return RunRequest(
            benchmark=self.name or "",
            work=work,
            target=with_image(replace(_target(ctx), inherited=inherited), self.name, given.fabrics),
            fabrics=given.fabrics,
            repeats=given.repeats,
            env=env,
            command=command_line(ctx),
        )


class RenderGroup(RunGroup):
    """Makes the command of a benchmark from that of ``fabbench run``."""

    @override
    def command_of(self, benchmark: "Benchmark", work: type[Any]) -> click.Command:
        command = _RenderCommand(benchmark, work)
        # Examples are those of runs.
        text = (command.help or "").partition("Example:")[0].rstrip()
        command.help = f"Render a job that does what `fabbench run {benchmark.name}` does.\n\n{text}"
        return command


@click.group(cls=RenderGroup, short_help="Print a script or manifests that run the benchmark elsewhere.")
def command() -> None:
    """Print what would run elsewhere, without contacting anything.

    The document runs every configuration, interleaved and repeated as fabbench run does it. `fabbench parse`
    and `fabbench compare` read what it prints.

    Example: fabbench render nccl --ab --as script --instance-type p5.48xlarge >nccl.sh
    """


def _print(request: "RunRequest", form: str) -> None:
    from fabbench.catalog.offline_inventory import require_names
    from fabbench.launchers import RenderInput, rendering_named, require_support
    from fabbench.plan.build import plan

    rendering = rendering_named(form)
    require_support(rendering, request.target)
    inventory = rendering.inventory(request.target, replace(request.work.needs, fabrics=request.fabrics))
    planned = plan(request, inventory)
    require_names(planned)
    text = rendering.render(RenderInput(plan=planned, request=request, inventory=inventory))
    if printable(text) != text:
        raise RequestError(
            "The document would have text that must not be printed: control characters, or ##[…], "
            "which CI systems obey.",
            hint="Remove it from the options, or from the targets in fabbench.yaml.",
        )
    click.echo(text, nl=False)


def _hidden(parameter: click.Parameter) -> click.Parameter:
    if isinstance(parameter, click.Option) and parameter.expose_value:
        parameter.hidden = True
    return parameter


_HINTS = dict.fromkeys(("gates", "strict"), "Pipe the document's output into fabbench compare - --gate ….")
_HINTS["silence_s"] = "A script limits the time of each step: --timeout."


def _refuse_options_of_runs(ctx: click.Context) -> None:
    for each in ctx.command.params:
        given = ctx.get_parameter_source(each.name or "") is ParameterSource.COMMANDLINE
        if isinstance(each, click.Option) and each.hidden and given:
            long = next(flag for flag in each.opts if flag.startswith("--"))
            hint = _HINTS.get(each.name or "", "Describe the machines with --instance-type and --nodes.")
            raise RequestError(f"{long} works with fabbench run only: render contacts no machine.", hint=hint)


def _target(ctx: click.Context) -> Target:
    """Return the target that the options describe; nothing is discovered."""
    form, formats = ctx.params["as_form"], options_of_formats()
    target = Target(name=form, launcher=form, options=formats[form](), variants=variants_of(ctx))
    return with_launcher_options(target, given_options(ctx, formats), formats, "--as")
