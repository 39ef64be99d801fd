"""``--hostfile``, and the words of a command line."""

from collections.abc import Sequence
from pathlib import Path

import click

from fabbench.cli.help_sections import WORDS
from fabbench.model.errors import MachineError, RequestError
from fabbench.model.hostlist import read_hostfile

_FILES = "fabbench.hostfile"


def hostfile_option() -> click.Option:
    """Return the option for files of hosts."""
    return click.Option(
        ["--hostfile"],
        type=click.Path(path_type=Path),
        metavar="FILE",
        multiple=True,
        expose_value=False,
        callback=_read,
        help="File of hosts, one per line. As Open MPI and MPICH read it; slot counts are ignored: there is one rank "
        "per GPU; see --gpus.",
    )


def _read(ctx: click.Context, parameter: click.Parameter, files: Sequence[Path]) -> None:
    del parameter
    ctx.meta[_FILES] = tuple(name for file in files for name in _hosts(file))


def _hosts(file: Path) -> tuple[str, ...]:
    try:
        return read_hostfile(file.read_text("utf-8"))
    except OSError as error:
        raise MachineError(f"{file} cannot be read: {error.strerror}.") from error
    except ValueError as error:
        raise RequestError(f"{file} is not a host file: {error}.") from None


def command_line(ctx: click.Context) -> tuple[str, ...]:
    """Return the words of the command line."""
    return ("fabbench", *ctx.command_path.split()[1:], *ctx.meta.get(WORDS, ()))


def hosts_of_files(ctx: click.Context) -> tuple[str, ...]:
    """Return the hosts of all --hostfile."""
    return tuple(ctx.meta.get(_FILES, ()))
