"""Texts from Jinja's templates: what documents, scripts and pages have in common. Pure."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jinja2 import Environment


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
