"""``fabbench run --dry-run``: the plan, and nothing started."""

import shlex
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, replace
from itertools import islice
from typing import TYPE_CHECKING

import click

from fabbench.cli import terminal
from fabbench.model.errors import RequestError
from fabbench.model.messages import counted, redacted
from fabbench.model.units import format_duration

if TYPE_CHECKING:
    from fabbench.model.hosts import Host, Inventory
    from fabbench.model.plan import Execution, Step
    from fabbench.plan.request import RunRequest

_HOST = ("name", "address", "instance_type", "gpus", "devices")
_MAX_UNSET = 4  # More variables are only counted; --format json has all


def show_plan(request: "RunRequest", form: str | None) -> None:
    """Print what `fabbench run` would do. Raise FabbenchError for what it would refuse."""
    from fabbench.launchers.batch_job import longest_s
    from fabbench.runs.run import preview

    if form not in {None, "markdown", "terminal", "json"}:
        raise RequestError(f"--format {form} has no effect with --dry-run.", hint="--format json works there.")
    inventory, planned = preview(request)
    planned = redacted(planned)
    longest = longest_s(planned)
    if form == "json":
        hosts = [{name: getattr(host, name) for name in _HOST} for host in inventory.hosts]
        document = {
            "format": 1,
            "target": planned.target,
            "hosts": hosts,
            "plan": asdict(planned),
            "longest_s": longest,
        }
        terminal.write_json(redacted(document))
        return
    target, ids = request.target, ", ".join(execution.id for execution in planned.executions)
    reason = f": {request.target_reason}" * bool(request.target_reason)
    for name, text in (
        ("Target:", f"{target.name} ({target.launcher}){reason}"),
        *(("" if number else "Nodes:", _host(host)) for number, host in enumerate(inventory.hosts)),
        *([("Image:", inventory.image)] if inventory.image else []),
        ("Configurations:", ", ".join(map(str, planned.configurations))),
        ("Executions:", f"{len(planned.executions)}: {ids}"),
        ("Time:", f"{format_duration(longest)} at most (all timeouts together)"),
    ):
        terminal.write_line(f"{name:16}{text}")
    first = {execution.configuration.label: execution for execution in reversed(planned.executions)}
    for configuration in planned.configurations:
        click.echo()
        terminal.write_line(str(configuration))
        for line in _lines(first[configuration.label], inventory, request):
            terminal.write_line(f"  {line}")
    click.echo("\nDry run: nothing was started.", err=True)


def _host(host: "Host") -> str:
    links = Counter(host.devices.values())
    kind = f"{host.instance_type}, " if host.instance_type and host.instance_type not in host.name else ""
    nics = "".join(f", {counted(number, f'{link} device')}" for link, number in links.items())
    return f"{host.name}: {kind}{counted(host.gpus, 'GPU')}{nics}"


def _lines(execution: "Execution", inventory: "Inventory", request: "RunRequest") -> Iterator[str]:
    """Yield the environment and commands of the first step of an execution, and how many steps follow."""
    from fabbench.launchers import launcher_named

    hosts = inventory.hosts_for_variant(execution.configuration.variant)
    step, *others = execution.steps
    yield f"Environment: {_environment(step) or 'unchanged'}"
    if not step.pair:
        shown = replace(step, commands=tuple(replace(each, unset=()) for each in step.commands))
        launcher = launcher_named(request.target.launcher)
        yield f"Command:     {shlex.join(launcher.command_line(shown, hosts, request.target))}"
    else:
        for command in step.commands:
            where = f"{command.role} on {hosts[command.host].name}" if command.role else "every host"
            yield f"Command:     {shlex.join(command.argv)}   ({where})"
    if others:
        labels = [step.label for step in (*others[:1], *others[1:][-1:])]
        yield f"             and {counted(len(others), 'more step')}: {' … '.join(labels)}"


def _environment(step: "Step") -> str:
    words = {name: f"{name}={shlex.quote(value)}" for each in step.commands for name, value in each.env.items()}
    unset = dict.fromkeys(name for command in step.commands for name in command.unset)
    more = [f"and {len(unset) - _MAX_UNSET} more"] if len(unset) > _MAX_UNSET else []
    names = [*islice(unset, _MAX_UNSET), *more]
    return "; ".join(filter(None, (" ".join(words.values()), f"unset {' '.join(names)}" if names else "")))
