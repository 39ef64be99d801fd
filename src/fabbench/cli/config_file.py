"""`fabbench.yaml`, which has defaults for options of runs; ``fabbench config``, ``completion``."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fabbench.cli import terminal
from fabbench.cli.options import results
from fabbench.launchers import options_of_launchers
from fabbench.model.mappings import Variables, map_values, without_empty
from fabbench.model.messages import RARE
from fabbench.model.options import Options

if TYPE_CHECKING:
    from fabbench.config.sections import Config


def command_options(name: str) -> Options:
    """Return the options of a benchmark's command by their long names. Raise RequestError."""
    from fabbench.config.requests import options_of_command

    return options_of_command(options_of_launchers(), name)


def configuration(file: Path | None, environment: Variables) -> "Config | None":
    """Read the given file, else the one that is found; None if there is none."""
    from fabbench.config import find_config, load

    path = file or find_config(Path.cwd(), environment)
    if path is None:
        return None
    return load(path, launchers=options_of_launchers(), benchmarks=command_options)


def default_map(config: "Config", benchmark: str, command: click.Command) -> dict[str, Any]:
    """Return the file's defaults of a benchmark's command, as click's `default_map`."""
    from fabbench.config.requests import defaults_of_file

    values = dict(defaults_of_file(benchmark, config))
    if config.store:
        values.setdefault("store", config.store)
    defaults: dict[str, Any] = {}  # click's name of an option → its default
    for option in command.params:
        if isinstance(option, click.Option) and option.expose_value:  # Not switches as --quiet
            flag = max(option.opts, key=len)  # The long one of several
            word = flag.removeprefix(RARE).removeprefix("--")
            if word in values:
                defaults[option.name or ""] = values[word]
    return defaults


def _read_config(
    ctx: click.Context, parameter: click.Parameter, file: Path | None
) -> "Config | None":
    """Read fabbench.yaml before the other options: it sets their defaults."""
    del parameter
    config = configuration(file, os.environ)
    if config is not None:
        # A benchmark's command has the name of the benchmark
        ctx.default_map = default_map(config, ctx.info_name or "", ctx.command)
    return config


CONFIG: Mapping[str, Any] = {
    "type": click.Path(path_type=Path),
    "metavar": "FILE",
    "envvar": "FABBENCH_CONFIG",
    "show_envvar": True,
    "help": "Read this file instead of the fabbench.yaml that is found.",
}


def config_option() -> click.Option:
    """Return the option for another fabbench.yaml: it sets the defaults of the options after it."""
    return click.Option(["--config"], is_eager=True, callback=_read_config, **CONFIG)


@click.command("config")
@click.option("--config", "file", **CONFIG)
@results("configuration", "How to write the configuration.")
@click.option("--schema", is_flag=True, help="Print the JSON schema of fabbench.yaml, for editors.")
def config_(file: Path | None, form: str, *, schema: bool) -> None:
    """Show which fabbench.yaml is read, its targets and its defaults. A mistake in it is an error.

    It is searched for in this directory and those above it, up to the first that has a .git, then
    in ~/.config/fabbench (XDG_CONFIG_HOME).
    """
    if schema:
        from fabbench.benchmarks import runnable_names
        from fabbench.config.schema import schema as generated

        benchmarks = {name: command_options(name) for name in runnable_names()}
        click.echo(json.dumps(generated(options_of_launchers(), benchmarks), indent=2))
        return
    config = configuration(file, os.environ)
    document = _config_document(config) if config else {}
    if form == "json":
        terminal.write_json({"format": 1, "file": None, **document})
    elif not document:
        terminal.say(
            "No fabbench.yaml found in this directory, above it, or in ~/.config/fabbench."
        )
    else:
        import yaml

        targets = map_values(without_empty, document["targets"])
        shown = without_empty({**document, "targets": targets})
        text = yaml.safe_dump(shown, sort_keys=False, default_flow_style=None)
        click.echo(text, nl=False)


def _config_document(config: "Config") -> dict[str, Any]:
    # What `config` shows of the file: as JSON all of it, as text what is not empty.
    targets = {
        name: {"launcher": each.launcher, "hosts": list(each.hosts)}
        for name, each in config.targets.items()
    }
    return {
        "file": str(config.path),
        "default": config.default,
        "store": str(config.store) if config.store else None,
        "repeat": config.defaults.repeat,
        "fabrics": list(config.defaults.fabrics),
        "run": {name: dict(values) for name, values in config.defaults.run.items()},
        "variants": map_values(str, config.variants),
        "targets": targets,
    }


_COMPLETION_HELP = """\
Print the completion script of a shell.

It completes commands, options, and values that are one of a few words.

\b
eval "$(fabbench completion bash)"     # in ~/.bashrc
eval "$(fabbench completion zsh)"      # in ~/.zshrc
fabbench completion fish | source      # in ~/.config/fish/config.fish
"""


@click.command("completion", help=_COMPLETION_HELP)
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")))
def completion(shell: str) -> None:
    """Print what click completes with."""
    from click.shell_completion import shell_complete

    from fabbench.cli import cli

    shell_complete(cli, {}, "fabbench", "_FABBENCH_COMPLETE", f"{shell}_source")
