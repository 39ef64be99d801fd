"""Pages, pictures and other documents from templates.

Text in markup is escaped, whatever its origin.
"""

import time
from functools import cache
from typing import TYPE_CHECKING

from fabbench.model.messages import listed, printable, unbroken
from fabbench.model.templates import environment
from fabbench.model.units import format_change, format_sizes
from fabbench.report.table import cut, tone_of

if TYPE_CHECKING:
    from jinja2 import Template
    from markupsafe import Markup


# XML excludes these, and `printable` does not escape them
_NO_XML = dict.fromkeys((0xFFFE, 0xFFFF), "\ufffd")


@cache
def template(name: str) -> "Template":
    """Return a template; a value that is not there is an error."""
    from jinja2 import select_autoescape

    from fabbench import __version__

    made = environment(
        "fabbench.report",
        folder="templates",
        autoescape=select_autoescape(disabled_extensions=("txt",), default=True),
        finalize=_as_text,
    )
    made.filters.update(tone=tone_of, unbroken=unbroken, listed=listed)
    made.filters.update(cut=cut, sha256=_sha256, sizes=format_sizes, change=format_change)
    made.globals.update(version=__version__, project_url=project_url, now=_minute_now)
    return made.get_template(name)


def _sha256(script: str) -> str:
    """Return what a content security policy calls the one script that may run."""
    from base64 import b64encode
    from hashlib import sha256

    return b64encode(sha256(script.encode()).digest()).decode()


def _minute_now() -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.gmtime())


def project_url() -> str:
    """Return the address of the project; empty: this installation does not know it."""
    from importlib.metadata import PackageNotFoundError, metadata  # loads slowly

    try:
        named = metadata("fabbench")["Project-URL"] or ""
    except PackageNotFoundError:
        return ""
    address = named.rpartition(" ")[2]  # Of `LABEL, ADDRESS`
    return "" if "/OWNER/" in address else address  # Nobody has said yet where the project is


def _as_text(value: object) -> object:
    """Make text printable, also for XML, and round coordinates.

    What a template has written stays: it is `Markup`, a subclass of str, and so its type differs.
    """
    if type(value) is float:
        return format(round(value, 1), "g")
    return printable(value).translate(_NO_XML) if type(value) is str else value


def rendered(name: str, /, **values: object) -> "Markup":
    """Return what a template makes of values."""
    from markupsafe import Markup

    return Markup(template(name).render(**values))  # noqa: S704 - escaped by the template
