"""Unexpected errors: a report on standard error and the exit status 70, wherever they happen."""

import contextlib
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from fabbench import __version__
from fabbench.model.errors import Exit, lacks_memory


@contextmanager
def internal_errors() -> Iterator[None]:
    """Report exceptions that are not `FabbenchError`s, and end the program with `Exit.INTERNAL`.

    Also those of threads, and those that Python cannot raise (in finalizers): the program continues then, and
    ends with that status unless it was interrupted.
    """
    reported: list[BaseException] = []

    def record(failure: Any) -> None:
        error = failure.exc_value
        # If memory runs out, the command itself reports it; a report here would need more of it.
        if error is not None and not isinstance(error, SystemExit) and not lacks_memory(error):
            reported.append(error)
            _report(error)

    before = threading.excepthook, sys.unraisablehook
    threading.excepthook = sys.unraisablehook = record
    try:
        yield
    except SystemExit as end:
        if reported and end.code != Exit.INTERRUPTED:
            raise SystemExit(Exit.INTERNAL) from None
        raise
    except OSError as error:  # from output outside of commands, such as --help
        with contextlib.suppress(OSError, ValueError):
            click.echo(f"Error: {error.filename or 'the output'} cannot be written: {error.strerror}.", err=True)
        raise SystemExit(Exit.REFUSED) from None
    except Exception as error:
        if lacks_memory(error):
            raise
        _report(error)
        raise SystemExit(Exit.INTERNAL) from None
    finally:
        threading.excepthook, sys.unraisablehook = before
    if reported:
        raise SystemExit(Exit.INTERNAL)


def _report(error: BaseException) -> None:
    import platform
    import traceback

    from fabbench.model.messages import unbroken, without_secrets

    text = "".join(traceback.format_exception(error))
    message = unbroken(without_secrets(f"{type(error).__name__}: {error}".removesuffix(": ")))
    system = f"Python {platform.python_version()}, {platform.platform(terse=True)}"
    lines = (
        f"Internal error: {message}",
        f"This is a bug in fabbench {__version__} ({system}) or a plug-in. Do not rely on what was printed.",
        "Hint: Report it: the command line, and everything from here on.",
        without_secrets(text).rstrip(),
    )
    with contextlib.suppress(OSError, ValueError):  # standard error is closed, or full
        click.echo("\n".join(lines), err=True)
