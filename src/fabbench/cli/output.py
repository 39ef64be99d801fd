"""What commands write, and where: ``--format``, ``--json`` and ``-o FILE``; nothing else decides."""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, redirect_stdout
from functools import partial
from pathlib import Path
from typing import IO, cast

import click
from click.core import ParameterSource

from fabbench.cli.click_options import CommandT, with_parameters
from fabbench.cli.suggestions import NamedChoice
from fabbench.cli.terminal import OUTPUT_FILE, SafeStream
from fabbench.model.errors import MachineError, RequestError

COMPARED = ("markdown", "comment", "csv", "raw-csv", "json", "svg", "html", "openmetrics", "junit", "terminal")
"""Formats of comparisons: `fabbench.report.FORMATS`, which --help need not import."""
LISTED = ("table", "json", "csv", "raw-csv", "markdown")
"""Formats of lists: `fabbench.report.log_report.FORMATS`."""

SUFFIXES: Mapping[str, tuple[str, ...]] = {
    ".html": ("html",),
    ".svg": ("svg",),
    ".csv": ("csv",),
    ".json": ("json",),
    ".jsonl": ("jsonl",),
    ".parquet": ("parquet",),
    ".md": ("markdown",),
    ".prom": ("openmetrics",),
    ".xml": ("junit",),
    ".txt": ("terminal", "table", "text"),
}
"""How the name of a file ends → the formats that it stands for: the first that a command has."""
_JSON = "fabbench.json"
_RAW = " csv: a string that a spreadsheet would run as a formula (= + - @) gets an apostrophe; not in raw-csv."


class _OutputFile:
    """A text stream to a file that is not opened before something is written."""

    encoding = "utf-8"

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: IO[str] | None = None

    def write(self, text: str) -> int:
        if text and self._file is None:
            self._file = self._path.open("w", encoding=self.encoding, errors="backslashreplace")
        return self._file.write(text) if self._file is not None else 0

    def flush(self) -> None:
        if self._file is not None:
            self._file.flush()

    def isatty(self) -> bool:
        return False

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def require_writable(path: Path, option: str) -> None:
    """Raise MachineError if the file of an option cannot be written."""
    folder = path.absolute().parent
    problem = ""
    if path.is_dir():
        problem = "it is a directory"
    elif not folder.is_dir():
        problem = f"the directory {folder} does not exist"
    elif not os.access(path if path.exists() else folder, os.W_OK):
        problem = "permission denied"
    if problem:
        raise MachineError(f"{path} cannot be written: {problem}.", hint=f"Choose another file for {option}.")


def _redirect(ctx: click.Context, parameter: click.Parameter, path: Path | None) -> None:
    del parameter
    ctx.meta[OUTPUT_FILE] = path = None if str(path) == "-" else path
    if path is None or ctx.resilient_parsing:
        return
    require_writable(path, "--output")
    ctx.with_resource(redirect_stdout(SafeStream(cast("IO[str]", ctx.with_resource(closing(_OutputFile(path)))))))


def _remember(ctx: click.Context, parameter: click.Parameter, given: object) -> None:
    del parameter
    ctx.meta[_JSON] = given


def output_file(ctx: click.Context) -> Path | None:
    """Return the file of ``--output``; None: standard output."""
    return cast("Path | None", ctx.meta.get(OUTPUT_FILE))


_eager = partial(click.Option, is_eager=True, expose_value=False)
_JSON_FLAG = _eager(["--json"], is_flag=True, callback=_remember, help="Short for --format json.")


def output_option(help_: str = "Write the result to FILE instead of standard output.") -> click.Option:
    """Return the ``--output`` option alone, for a command whose format another option chooses."""
    return _eager(["-o", "--output"], type=click.Path(path_type=Path), metavar="FILE", callback=_redirect, help=help_)


def result_options(formats: Sequence[str], help_: str) -> list[click.Parameter]:
    """Return the options for the format and the file of a result; the first of the formats is the default.

    On a terminal the default is `terminal`, where that is one of them. Their value is `form`.
    """
    depends, known = "terminal" in formats, _suffixes(formats)
    return [
        click.Option(
            ["--format", "form"],
            type=NamedChoice(formats),
            default=(lambda: "terminal" if sys.stdout.isatty() else "markdown") if depends else formats[0],
            show_default="terminal on a terminal, else markdown" if depends else True,
            help=f"{help_}{_RAW if 'raw-csv' in formats else ''}",
            callback=_decide,
        ),
        *([_JSON_FLAG] if "json" in formats else []),
        output_option(f"Write the result to FILE, in the format that its suffix stands for: {' '.join(known)}."),
    ]


def results(formats: Sequence[str], help_: str = "Output format.") -> Callable[[CommandT], CommandT]:
    """Add the options of `result_options` to a command."""
    return with_parameters(result_options(formats, help_))


def _suffixes(formats: Sequence[str]) -> list[str]:
    return [suffix for suffix, names in SUFFIXES.items() if not set(names).isdisjoint(formats)]


def _decide(ctx: click.Context, parameter: click.Parameter, value: str) -> str:
    """Return the format: that of --format or --json, else of the file's suffix, else the default."""
    formats: Sequence[str] = cast("NamedChoice", parameter.type).choices
    typed = ctx.get_parameter_source(parameter.name or "") is ParameterSource.COMMANDLINE
    path = output_file(ctx)
    if ctx.meta.get(_JSON):
        if typed and value != "json":
            raise RequestError(f"--json is short for --format json, not {value}.", hint="Leave one of them out.")
        value = "json"
    elif not typed and path is not None and path.suffix:
        value = next((each for each in SUFFIXES.get(path.suffix.lower(), ()) if each in formats), "")
        if not value:
            known, name = ", ".join(_suffixes(formats)), ctx.command_path
            raise RequestError(
                f"{path}: {name} writes no {path.suffix} file.", hint=f"It writes {known}; with --format, to any name."
            )
    if (value == "parquet" and path is None) or (value == "html" and sys.stdout.isatty()):
        raise RequestError(f"{value} is not for a terminal.", hint=f"Add -o FILE.{value}.")
    return value
