"""What `import fabbench` offers besides the use cases.

A request from plain values, and a comparison for notebooks.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

import msgspec

from fabbench.analysis import compare as comparing
from fabbench.analysis.aggregate import Column
from fabbench.config.given import Given, Origin
from fabbench.model.errors import RequestError
from fabbench.model.hosts import Target
from fabbench.model.mappings import without
from fabbench.model.messages import did_you_mean, nearest
from fabbench.model.options import Option, declared, read_option
from fabbench.model.run_options import RunOptions
from fabbench.plan.request import RunRequest
from fabbench.runs.directories import store_here
from fabbench.runs.load_columns import load

if TYPE_CHECKING:
    import pandas as pd


class ShownComparison(comparing.Comparison):
    """Columns side by side, as a notebook shows them."""

    __slots__ = ()

    def to_frame(self) -> "pd.DataFrame":
        """Return a tidy pandas data frame, in base units.

        The columns of ``fabbench compare --format csv``.
        """
        import pandas as pd

        from fabbench.report.comparison_tables import HEADER, comparison_rows

        return pd.DataFrame(comparison_rows(self), columns=list(HEADER))

    def _repr_html_(self) -> str:
        from fabbench.report.comparison_tables import tables_of_comparison
        from fabbench.report.templates import rendered

        return rendered("tables.html", tables=tables_of_comparison(self))


def compare(
    *inputs: str | Path | Column | Sequence[Column],
    labels: Sequence[str] = (),
    fabrics: Sequence[str] = (),
    store: Path | None = None,
    **how: Any,
) -> ShownComparison:
    """Compare logs, runs or columns of `load` side by side; the last one is the baseline.

    `labels`, `fabrics` and `store` are those of `load`; `metric`, `placement` and `allow` choose
    what is compared. Raise FabbenchError.
    """
    names: list[str | Path] = []
    columns: list[Column] = []
    for each in inputs:
        if isinstance(each, str | Path):
            names.append(each)
        elif isinstance(each, Column):
            columns.append(each)
        else:
            columns += each
    if names and len(names) < len(inputs):
        raise RequestError(
            "Columns and names are mixed.",
            hint="Expected names of logs and runs, or columns of load.",
        )
    if names:
        columns = load(*names, labels=labels, fabrics=fabrics, store=store_here(store))
    made = comparing.compare(columns, **how)
    # The same, which a notebook shows as a table
    return ShownComparison(**{each.name: getattr(made, each.name) for each in fields(made)})


# ---------------------------------------------------------------- a request


_MADE_OF_OPTIONS = frozenset(
    {"benchmark", "work", "target", "target_reason", "adaptive", "store", "command"}
)
"""Fields of a request that are made of options; the others are given as values."""


def request(
    benchmark: str, *, on: str = "local", store: Path | None = None, **options: Any
) -> RunRequest:
    """Return what to run: a benchmark, on a target of ``fabbench.yaml`` or a launcher.

    `options` are those of ``fabbench run BENCHMARK``, with ``_`` for ``-``: texts, numbers, or
    lists of them, such as ``sizes=(64, "4K")``. Others have the defaults of the file. Raise
    RequestError, with what is expected, for one that is unknown or invalid.
    """
    from fabbench.benchmarks import runnable
    from fabbench.config import find_config, resolve
    from fabbench.config import load as load_config
    from fabbench.config.requests import given_of_file, options_of_command, request_of
    from fabbench.launchers import options_of_launchers

    launchers = options_of_launchers()
    file = find_config(Path.cwd(), os.environ)
    options_of = partial(options_of_command, launchers)
    config = load_config(file, launchers=launchers, benchmarks=options_of) if file else None
    kept = store_here(store, of_file=config.store if config else None)
    where = {"on": Given(on), "store": Given(kept, Origin.DEFAULT)}
    # Those of the launcher that `on` stands for
    options_there = type(resolve(where, config, launchers, os.environ).target.options)
    work = runnable(benchmark).work_type()
    assert work is not None  # noqa: S101 - it is runnable
    # Options that are given as values, such as fabrics; `known` are written as on the CLI
    plain = without(get_type_hints(RunRequest), _MADE_OF_OPTIONS)
    known = {**declared(Target), **declared(options_there), **declared(work)}
    of_every_run = declared(RunOptions)
    names = plain.keys() & of_every_run.keys()
    shared = {name: of_every_run[name] for name in names}
    given = given_of_file(benchmark, config, {**shared, **known})
    given |= where
    for name, value in options.items():
        if name in plain:
            field = _value_of_field(name, value, plain[name])
            given[name] = Given(field)
        elif name in known:
            option = known[name]
            texts = _texts(value, option)
            given[name] = Given(read_option(option, texts))
        else:
            raise _unknown_option(f"{benchmark} on {on}", name, sorted({*plain, *known}))
    return request_of(benchmark, given, config, launchers, os.environ)


def _value_of_field(name: str, value: Any, kind: Any) -> Any:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        hint = "Several fabrics or gates are a tuple, and env is a mapping."
        raise RequestError(f"{name}: {error}.", hint=hint) from error


def _unknown_option(of: str, name: str, known: Sequence[str]) -> RequestError:
    near = did_you_mean(nearest(name, known))
    names = ", ".join(known)
    return RequestError(f"{of} has no option {name}.{near}", hint=f"Expected one of {names}.")


def _texts(value: Any, option: Option) -> Any:
    """Return a value as it would be given on a command line: text, texts of many, or a flag."""
    if isinstance(value, Mapping):
        return [f"{name}={text}" for name, text in value.items()]
    if option.many:
        alone = isinstance(value, str) or not isinstance(value, Iterable)
        values = [value] if alone else value
        return [str(each) for each in values]
    return value if isinstance(value, bool) else str(value)
