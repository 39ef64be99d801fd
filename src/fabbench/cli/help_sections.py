"""Help of commands with many options, in sections: ``-h`` has the common ones, ``--help`` all."""

from collections.abc import Mapping, Sequence
from typing import Any

import click

from fabbench.model.compat import override
from fabbench.model.hosts import Target
from fabbench.model.options import declared

BENCHMARK, WHERE, MEASURED, RESULTS, OUTPUT = "Benchmark", "Where", "What to compare", "Results", "Output"
_ORDER = (BENCHMARK, MEASURED, WHERE)  # Sections that come first; those of launchers follow, then the last ones
_LAST = (RESULTS, OUTPUT)
_OF_LAUNCHERS: Mapping[frozenset[str], str] = {
    frozenset({"kubernetes"}): "Kubernetes",
    frozenset({"mpijob"}): "Kubernetes",
    frozenset({"kubernetes", "mpijob"}): "Kubernetes",
    frozenset({"kubernetes", "mpijob", "skypilot"}): "Pods (Kubernetes, SkyPilot)",
    frozenset({"slurm"}): "Slurm",
    frozenset({"skypilot"}): "SkyPilot",
    frozenset({"modal"}): "Modal",
    frozenset({"ssh"}): "ssh",
    frozenset({"ssh", "slurm"}): "ssh",
    frozenset({"local"}): "Local",
}
"""The launchers that share an option → its section."""
_RUN: Mapping[str, str] = {
    **dict.fromkeys(("fabrics", "variants", "repeats", "env", "keep_going", "dry_run", "name"), MEASURED),
    **dict.fromkeys(("efa", "no_efa", "ab"), MEASURED),
    **dict.fromkeys(("gates", "baseline", "metric"), RESULTS),
}
_RARE = frozenset({
    *("variants", "keep_going", "metric", "store", "name", "config", "interface", "bin_dirs", "mpirun"),
    *("raw_csv", "junit", "quiet", "verbose", "debug", "start_timeout", "lost_after"),
})  # fmt: skip
"""Options that -h leaves out."""


def sections_of_launchers(launchers: Mapping[str, frozenset[str]]) -> dict[str, str]:
    """Return the section of each option that chooses machines; `launchers`: those that have it, if not all do."""
    shared = (*declared(Target), "on", "as_form", "hostfile", "config")
    return {name: _OF_LAUNCHERS.get(of, WHERE) for name, of in launchers.items()} | dict.fromkeys(shared, WHERE)


class SectionedCommand(click.Command):
    """A command whose help has sections, and whose ``-h`` shows the common options."""

    sections: Mapping[str, str] = {}  # Name of an option → its section
    launchers: Mapping[str, frozenset[str]] = {}  # Name of an option → the launchers or formats that have it

    def __init__(self, name: str | None, *, params: Sequence[click.Parameter], **more: Any) -> None:
        short = click.Option(["-h"], is_flag=True, is_eager=True, expose_value=False, callback=_short_help, hidden=True)
        super().__init__(name, params=[*params, short], **more)
        self.context_settings = {**self.context_settings, "help_option_names": ["--help"]}

    def chosen_launcher(self, ctx: click.Context) -> str:
        """Return the launcher or format that the command line names; empty: none."""
        del ctx
        return ""

    @override
    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        short = bool(ctx.meta.get(_SHORT))
        launcher = self.chosen_launcher(ctx) if short else ""
        records: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx) if isinstance(param, click.Option) else None
            if record is not None and param.name == "help":
                record = ("-h, --help", _HELP)
            if record is not None and (not short or self._is_common(param.name or "", launcher)):
                records.setdefault(self._section(param.name or ""), []).append(record)
        for section in sorted(records, key=_rank):
            with formatter.section(section):
                formatter.write_dl(records[section])
        if short:
            with formatter.section("More"):
                formatter.write_text(f"{ctx.command_path} --help shows all options.")

    def _section(self, name: str) -> str:
        return _RUN.get(name) or self.sections.get(name) or OUTPUT

    def _is_common(self, name: str, launcher: str) -> bool:
        if name in _RARE:
            return False
        launchers = self.launchers.get(name)
        return launchers is None or self._section(name) == WHERE or launcher in launchers


_SHORT = "fabbench.short_help"
_HELP = "-h: show the common options, and those of the chosen launcher or format; --help: show all."


def _rank(section: str) -> tuple[int, str]:
    if section in _ORDER:
        return _ORDER.index(section), ""
    return (50 + _LAST.index(section), "") if section in _LAST else (10, section)


def _short_help(ctx: click.Context, parameter: click.Parameter, given: bool) -> None:  # noqa: FBT001 - click calls it
    del parameter
    if given and not ctx.resilient_parsing:
        ctx.meta[_SHORT] = True
        click.echo(ctx.get_help())
        ctx.exit()
