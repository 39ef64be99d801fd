"""Completion of the values of options and arguments: targets, fabrics, instance types, runs."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


def items(names: Iterable[str], incomplete: str) -> "list[CompletionItem]":
    """Return those names that begin with a word, each once."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(name) for name in dict.fromkeys(names) if name.startswith(incomplete)]


def _targets() -> Iterator[str]:
    from fabbench.config import find_config, load
    from fabbench.launchers import options_of_launchers
    from fabbench.model.plugins import ALIASES

    launchers = options_of_launchers()
    if path := find_config(Path.cwd(), os.environ):
        yield from load(path, launchers=launchers).targets
    yield from launchers
    yield from ALIASES


def _fabrics() -> Iterator[str]:
    from fabbench.model.fabrics import FABRICS

    yield from FABRICS


def _instance_types() -> Iterator[str]:
    from fabbench.catalog.instances import instance_catalog

    yield from instance_catalog()


def _benchmarks() -> Iterator[str]:
    from fabbench.benchmarks import runnable_names

    yield from runnable_names()


_VALUES: Mapping[str, Callable[[], Iterator[str]]] = {
    "on": _targets,
    "fabrics": _fabrics,
    "fabric": _fabrics,
    "instance_type": _instance_types,
    "type_": _instance_types,
    "benchmark": _benchmarks,
    "benchmarks": _benchmarks,
}
"""Name of an option or argument → what its value may be."""


def complete_value(name: str, incomplete: str) -> "list[CompletionItem]":
    """Complete the value of an option or argument by its name. On any error, nothing is completed."""
    try:
        return items(_VALUES[name](), incomplete) if name in _VALUES else []
    except Exception:  # noqa: BLE001 - a shell cannot show errors while it completes
        return []


def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> "list[CompletionItem]":
    """Complete the value of an option or argument, for click."""
    del ctx
    return complete_value(param.name or "", incomplete)


def complete_run(ctx: click.Context, param: click.Parameter, incomplete: str) -> "list[CompletionItem]":
    """Complete the id of a run, and `last`, for click; and files, where nothing else fits."""
    del param
    from click.shell_completion import CompletionItem

    from fabbench.plan import STORE
    from fabbench.runs.folders import run_folders

    store = ctx.params.get("store") or Path(os.environ.get("FABBENCH_STORE") or STORE)
    found = items(("last", *(path.rpartition("-")[2] for path in run_folders(store))), incomplete)
    return found or [CompletionItem(incomplete, type="file")]
