"""Texts of the files of a package: as they are, as tables, or as templates of Jinja. Pure."""

import csv
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jinja2 import Environment


def text_of(package: str, name: str) -> str:
    """Return the text of a package's file."""
    return (files(package) / name).read_text("utf-8")


@cache
def rows_of(name: str, package: str = "fabbench.catalog") -> Sequence[Mapping[str, str]]:
    """Return the rows of a table of the catalog, or of another package, without its comments."""
    lines = text_of(package, name).splitlines()
    rows = (line for line in lines if not line.startswith("#"))
    return list(csv.DictReader(rows))


def pairs_of(name: str, package: str = "fabbench.catalog") -> Mapping[str, str]:
    """Return what stands in the first column of such a table → in the second."""
    rows = (row.values() for row in rows_of(name, package))
    return {first: second for first, second, *_ in rows}


def environment(package: str, folder: str = "", **more: Any) -> "Environment":
    """Return what loads the templates in a folder of a package; `more` is of Jinja's Environment.

    A line with a statement alone is no line of the text. A value that is not there is an error.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined

    return Environment(  # noqa: S701 - `more` says what is escaped: a script is no markup
        keep_trailing_newline=True,
        loader=PackageLoader(package, folder),
        lstrip_blocks=True,
        trim_blocks=True,
        undefined=StrictUndefined,
        **more,
    )
