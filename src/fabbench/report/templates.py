"""Pages, pictures and other documents from templates.

Text in markup is escaped, whatever its origin.
"""

from functools import cache
from typing import TYPE_CHECKING

from fabbench.model.messages import printable, unbroken
from fabbench.report.table import tone_of

if TYPE_CHECKING:
    from jinja2 import Template
    from markupsafe import Markup


# XML excludes these, and `printable` does not escape them
_NO_XML = dict.fromkeys((0xFFFE, 0xFFFF), "\ufffd")


@cache
def template(name: str) -> "Template":
    """Return a template; a value that is not there is an error."""
    from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

    from fabbench import __version__

    made = Environment(
        autoescape=select_autoescape(disabled_extensions=("txt",), default=True),
        finalize=_shown,
        keep_trailing_newline=True,
        loader=PackageLoader("fabbench.report"),
        lstrip_blocks=True,
        trim_blocks=True,
        undefined=StrictUndefined,
    )
    made.filters.update(tone=tone_of, unbroken=unbroken)
    made.globals["version"] = __version__
    return made.get_template(name)


def _shown(value: object) -> object:
    """Make text printable, also for XML, and round coordinates.

    What a template has written stays.
    """
    if type(value) is float:
        return format(round(value, 1), "g")
    return printable(value).translate(_NO_XML) if type(value) is str else value


def rendered(name: str, /, **values: object) -> "Markup":
    """Return what a template makes of values."""
    from markupsafe import Markup

    return Markup(template(name).render(**values))  # noqa: S704 - escaped by the template
