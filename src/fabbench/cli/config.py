"""``fabbench config``."""

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from fabbench.config import Config

_SHOWN_HOSTS = 4

config_file = click.option(
    "--config",
    "file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    envvar="FABBENCH_CONFIG",
    show_envvar=True,
    help="Read this file instead of the fabbench.yaml that is found.",
)


@click.command(short_help="Show the targets and defaults of fabbench.yaml, and check it.")
@config_file
@click.option("--schema", is_flag=True, help="Print the JSON schema of fabbench.yaml, for editors.")
def command(file: Path | None, *, schema: bool) -> None:
    """Show which fabbench.yaml is read, its targets and its defaults. A mistake in it is an error.

    It is looked for in this folder and those above it, up to the first that has a .git, then in
    ~/.config/fabbench (XDG_CONFIG_HOME).
    """
    if schema:
        from fabbench.config.schema import schema as generated

        click.echo(json.dumps(generated(), indent=2))
        return
    config = configuration(file, os.environ)
    if config is None:
        click.echo("There is no fabbench.yaml, neither here or above nor in ~/.config/fabbench.", err=True)
        return
    for line in _lines(config):
        click.echo(line)


def configuration(file: Path | None, environment: Mapping[str, str]) -> "Config | None":
    """Read the file that is named, else the one that is found; None if there is none."""
    from fabbench.config import find_config, load
    from fabbench.launchers import launchers

    path = file or find_config(Path.cwd(), environment)
    return load(path, launchers=launchers(), benchmarks=_benchmarks()) if path else None


def default_map(config: "Config", benchmark: str, command: click.Command) -> dict[str, Any]:
    """Give the file's defaults of a benchmark's command by parameter, as click's `default_map` wants them."""
    defaults = config.defaults
    given: dict[str, Any] = {"repeat": defaults.repeat, "fabric": defaults.fabrics}
    given = {name: value for name, value in given.items() if value} | dict(defaults.run.get(benchmark, {}))
    parameters = {_long_name(option): option.name for option in _options(command)}
    return {parameters[name]: value for name, value in given.items() if name in parameters}


def _benchmarks() -> Mapping[str, tuple[str, ...]]:
    """Name the benchmarks that can be run, each with its options."""
    from fabbench.cli.run import command as group

    context = click.Context(group)
    commands = {name: group.get_command(context, name) for name in group.list_commands(context)}
    return {name: tuple(map(_long_name, _options(command))) for name, command in commands.items() if command}


def _options(command: click.Command) -> Iterator[click.Option]:
    """Give the options that have a value of their own; short forms of others have none."""
    yield from (each for each in command.params if isinstance(each, click.Option) and each.expose_value)


def _long_name(option: click.Option) -> str:
    return max(option.opts, key=len).removeprefix("--")


def _lines(config: "Config") -> Iterator[str]:
    yield f"file: {config.path}"
    defaults = config.defaults
    settings: dict[str, Any] = {
        "default": config.default,
        "store": config.store,
        "repeat": defaults.repeat,
        "fabrics": ", ".join(defaults.fabrics),
    }
    for benchmark, options in defaults.run.items():
        settings[f"run {benchmark}"] = ", ".join(f"{name} {_text(value)}" for name, value in options.items())
    yield from (f"{name}: {value}" for name, value in settings.items() if value)
    yield from (f"variant {name}: {variant}" for name, variant in config.variants.items())
    width = max(map(len, config.targets), default=0)
    for name, target in config.targets.items():
        hosts = target.settings.get("hosts", ())
        shown = ", ".join(hosts[:_SHOWN_HOSTS]) + (", …" if len(hosts) > _SHOWN_HOSTS else "")
        place = f"{len(hosts)} host{'s' if len(hosts) > 1 else ''}: {shown}" if hosts else ""
        yield f"target {name:{width}}  {target.launcher}  {place}".rstrip()


def _text(value: str | bool | tuple[str | bool, ...]) -> str:  # noqa: FBT001 - a value, no switch
    values = value if isinstance(value, tuple) else (value,)
    return " ".join(str(each).lower() if isinstance(each, bool) else each for each in values)
