"""Suggestions for misspelled commands, options and values."""

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import click

from fabbench.model.compat import override
from fabbench.model.messages import RARE, did_you_mean, nearest, unbroken
from fabbench.model.plugins import ALIASES

_WORDS = """
    ls=runs list=runs rm=runs/rm export=runs/export plot=compare diff=compare resume=run/--resume bench=run
    init=config doctor=check alltoall=nccl/--collective/alltoall all_reduce=nccl/--collective/all_reduce
    srun=slurm bash=script prometheus=openmetrics github=comment md=markdown
    domain=device gpu-memory=memory raw-csv=format label=pod-label min=min-bytes max=max-bytes min-size=size
"""
_MEANT = ALIASES | dict(pair.split("=") for pair in _WORDS.split())
"""Words of other tools, and of older releases, and what they mean here: commands and values are taken for it."""
SYNONYMS = {"nccl-tests": "bin-dir", "hostname": "host", "target": "on", "sizes": "size"}
"""Names of options in other tools that mean just what ours mean: they are taken, too."""


def meant(text: str, known: Iterable[str]) -> str:
    """Return the name that a text means here, or is closest to; empty: there is none."""
    names, dashes = list(known), text[: 2 * text.startswith("--")]
    word = dashes + _MEANT.get(text[len(dashes) :].lower(), "")
    return word if word in names else nearest(text, names)


def merged_settings(words: Sequence[str]) -> list[str]:
    """Return a command line with each ``--set KEY=VALUE`` as one word, the flag of its option."""
    end = words.index("--") if "--" in words else len(words)
    merged: list[str] = []
    for word in words[:end]:
        if merged[-1:] == ["--set"]:
            merged[-1] += f" {word}"
        else:
            merged.append(RARE + word.removeprefix("--set=") if word.startswith("--set=") else word)
    return [*merged, *words[end:]]


@contextlib.contextmanager
def suggesting() -> Iterator[None]:
    """Name the option that is closest to an unknown one."""
    try:
        yield
    except click.NoSuchOption as error:
        name, params = error.option_name, error.ctx.command.params if error.ctx else ()
        flags = [flag for each in params for flag in (*each.opts, *each.secondary_opts) if flag.startswith("--")]
        keys = {key.removesuffix("s"): key for key in flags if key.startswith(RARE)}
        near = keys.get(f"{RARE}{name.removeprefix('--').removesuffix('s')}") or meant(name, [*flags, "--help"])
        shown = did_you_mean(f"{near}=VALUE" if near.startswith(RARE) else near)
        raise click.UsageError(f"No such option {unbroken(name)}.{shown}", error.ctx) from None


class NamedChoice(click.Choice):  # type: ignore[type-arg] # a generic since click 8.2
    """A choice that takes words of other tools (k8s), and suggests the closest of its names for a wrong one."""

    @override
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        names = [str(each) for each in self.choices]
        value = value if value in names or _MEANT.get(value) not in names else _MEANT[value]
        if isinstance(value, str) and value not in names:
            self.fail(f"{value!r} is not one of {', '.join(names)}.{did_you_mean(meant(value, names))}", param, ctx)
        return super().convert(value, param, ctx)


class SuggestingGroup(click.Group):
    """A group that suggests the closest of its commands for a wrong one."""

    @override
    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        (name, *rest), known = args, self.list_commands(ctx)
        words = [*rest, "--help"] if name == "help" else [*_MEANT.get(name, name).split("/"), *rest]
        if {name, words[0]}.isdisjoint(known) and not name.startswith("-") and not ctx.resilient_parsing:
            flags = [flag for each in self.params for flag in each.opts if flag.startswith("--")]
            ctx.fail(f"No such command {name!r}.{did_you_mean(meant(name, [*known, *flags, '--help']))}")
        return super().resolve_command(ctx, args if name in known else words)
