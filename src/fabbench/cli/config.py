"""``fabbench config``."""

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fabbench.cli import terminal
from fabbench.cli.config_file import CONFIG, CommandOptions, configuration
from fabbench.cli.output import results
from fabbench.model.messages import counted, listed
from fabbench.report.json_contract import to_json

if TYPE_CHECKING:
    from fabbench.config.sections import Config


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
    for line in _lines(_document(config)):
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


def _lines(document: Mapping[str, Any]) -> Iterator[str]:
    for name, value in document.items():
        if value and name not in {"format", "run", "variants", "targets"}:
            yield f"{name}: {', '.join(value) if isinstance(value, list) else value}"
    for name, values in document["run"].items():
        yield f"run {name}: {', '.join(f'{option} {_text(value)}' for option, value in values.items())}"
    yield from (f"variant {name}: {variant}" for name, variant in document["variants"].items())
    width = max(map(len, document["targets"]), default=0)
    for name, target in document["targets"].items():
        hosts = target["hosts"]
        where = f"{counted(len(hosts), 'host')}: {listed(hosts)}" if hosts else ""
        yield f"target {name:{width}}  {target['launcher']}  {where}".rstrip()


def _text(value: str | bool | tuple[str, ...]) -> str:  # noqa: FBT001 - a value, no switch
    values: tuple[str | bool, ...] = value if isinstance(value, tuple) else (value,)
    return " ".join(str(each).lower() if isinstance(each, bool) else each for each in values)
