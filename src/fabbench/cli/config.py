"""``fabbench config``."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fabbench.cli import terminal
from fabbench.cli.config_file import CONFIG, CommandOptions, configuration
from fabbench.cli.output import results
from fabbench.report.json_contract import to_json

if TYPE_CHECKING:
    from fabbench.config.sections import Config

_MAX_HOSTS = 4


@click.command()
@click.option("--config", "file", **CONFIG)
@results(("text", "json"), "How to write the configuration.")
@click.option("--schema", is_flag=True, help="Print the JSON schema of fabbench.yaml, for editors.")
def command(file: Path | None, form: str, *, schema: bool) -> None:
    """Show which fabbench.yaml is read, its targets and its defaults. A mistake in it is an error.

    It is searched for in this directory and those above it, up to the first that has a .git, then in
    ~/.config/fabbench (XDG_CONFIG_HOME).
    """
    if schema:
        from fabbench.config.schema import schema as generated
        from fabbench.launchers import options_of_launchers

        click.echo(json.dumps(generated(options_of_launchers(), CommandOptions()), indent=2))
        return
    config = configuration(file, os.environ)
    if form == "json":
        click.echo(to_json(_document(config)), nl=False)
        return
    if config is None:
        terminal.say("No fabbench.yaml found in this directory, above it, or in ~/.config/fabbench.")
        return
    for line in _lines(config):
        terminal.write_line(line)


def _document(config: "Config | None") -> dict[str, Any]:
    if config is None:
        return {"format": 1, "file": None}
    defaults = config.defaults
    return {
        "format": 1,
        "file": str(config.path),
        "default": config.default,
        "store": str(config.store) if config.store else None,
        "repeat": defaults.repeat,
        "fabrics": list(defaults.fabrics),
        "run": {name: dict(values) for name, values in defaults.run.items()},
        "variants": {name: str(variant) for name, variant in config.variants.items()},
        "targets": {
            name: {"launcher": target.launcher, "hosts": list(target.hosts)} for name, target in config.targets.items()
        },
    }


def _lines(config: "Config") -> Iterator[str]:
    yield f"file: {config.path}"
    defaults = config.defaults
    settings: dict[str, Any] = {
        "default": config.default,
        "store": config.store,
        "repeat": defaults.repeat,
        "fabrics": ", ".join(defaults.fabrics),
    }
    for benchmark, values in defaults.run.items():
        settings[f"run {benchmark}"] = ", ".join(f"{name} {_text(value)}" for name, value in values.items())
    yield from (f"{name}: {value}" for name, value in settings.items() if value)
    yield from (f"variant {name}: {variant}" for name, variant in config.variants.items())
    width = max(map(len, config.targets), default=0)
    for name, target in config.targets.items():
        hosts = target.hosts
        shown = ", ".join(hosts[:_MAX_HOSTS]) + (", …" if len(hosts) > _MAX_HOSTS else "")
        where = f"{len(hosts)} host{'s' if len(hosts) > 1 else ''}: {shown}" if hosts else ""
        yield f"target {name:{width}}  {target.launcher}  {where}".rstrip()


def _text(value: str | bool | tuple[str, ...]) -> str:  # noqa: FBT001 - a value, no switch
    values: tuple[str | bool, ...] = value if isinstance(value, tuple) else (value,)
    return " ".join(str(each).lower() if isinstance(each, bool) else each for each in values)
