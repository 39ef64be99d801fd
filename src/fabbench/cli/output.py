"""``--output FILE``: what a command prints on standard output goes to a file."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, TypeVar, cast

import click

from fabbench.cli.terminal import SafeStream
from fabbench.model.errors import MachineError

CommandT = TypeVar("CommandT", bound=click.Command)


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


@contextmanager
def _to_file(path: Path) -> Iterator[None]:
    file = _OutputFile(path)
    before, sys.stdout = sys.stdout, cast("Any", SafeStream(cast("IO[str]", file)))
    try:
        yield
    finally:
        sys.stdout = before
        file.close()


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
    if path is None or str(path) == "-" or ctx.resilient_parsing:
        return
    require_writable(path, "--output")
    ctx.with_resource(_to_file(path))


def output_option() -> click.Option:
    """Return the ``--output`` option."""
    return click.Option(
        ["-o", "--output"],
        type=click.Path(path_type=Path),
        metavar="FILE",
        expose_value=False,
        callback=_redirect,
        help="Write the result to FILE instead of standard output.",
    )


def output(command: CommandT) -> CommandT:
    """Add the option to a command, after its others."""
    command.params.append(output_option())
    return command
