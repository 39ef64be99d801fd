"""Suggestions for misspelled commands and values."""

from collections.abc import Callable, Iterable
from typing import Any

import click

from fabbench.model.compat import override
from fabbench.model.hosts import ALIASES


def did_you_mean(text: str, known: Iterable[str]) -> str:
    """Return `` Did you mean NAME?`` with the name closest to a text; empty: none is close."""
    import difflib  # not needed for correct names

    near = difflib.get_close_matches(text.lower(), list(known), n=1, cutoff=0.5)
    return f" Did you mean {near[0]}?" if near else ""


class NamedChoice(click.Choice):  # type: ignore[type-arg] # a generic since click 8.2
    """A choice that takes aliases (k8s), and suggests the closest of its names for a wrong one."""

    @override
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        value, names = ALIASES.get(value, value), [str(each) for each in self.choices]
        if isinstance(value, str) and value not in names:
            self.fail(f"{value!r} is not one of {', '.join(names)}.{did_you_mean(value, names)}", param, ctx)
        return super().convert(value, param, ctx)


class LazyChoice(NamedChoice):
    """A choice whose names are looked up when it is used: that imports what they name."""

    def __init__(self, names: Callable[[], Iterable[str]]) -> None:
        self.case_sensitive = True
        self._names = names

    @property
    @override
    def choices(self) -> tuple[str, ...]:  # type: ignore[override]
        return tuple(self._names())


class SuggestingGroup(click.Group):
    """A group that suggests the closest of its commands for a wrong one."""

    @override
    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError:
            name = args[0]
            ctx.fail(f"No such command {name!r}.{did_you_mean(name, self.list_commands(ctx))}")
