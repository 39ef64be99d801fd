"""The words of a command line: its hosts (``--hostfile``, and which names mean ssh), and those of a past run."""

from collections.abc import Sequence
from pathlib import Path

import click

from fabbench.cli.help_sections import WORDS
from fabbench.model.errors import MachineError, RequestError
from fabbench.model.hostlist import read_hostfile
from fabbench.model.messages import REDACTED

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


def rerun_words(words: Sequence[str], more: Sequence[str], *, target: str, store: Path) -> list[str]:
    """Return the words of a command line with more options, on the target where it ran.

    Raise RequestError for a secret that is not stored, and is not given again.
    """
    end = words.index("--") if "--" in words else len(words)
    first, last = list(words[:end]), list(words[end:])
    names = {each.partition("=")[0] for each in more}
    for word in first:
        name = word.removeprefix("--env=").partition("=")[0]
        if REDACTED in word and name not in names and f"--env={name}" not in names:
            raise RequestError(
                f"The value of {name} is a secret, and is not stored.",
                hint=f"Pass it again: fabbench rerun … --env {name}=VALUE.",
            )
    if not any(word.partition("=")[0] == "--on" for word in (*first, *more)) and target:
        first += ["--on", target]
    return [*first, *more, "--store", str(store), *last]


def hosts_of_files(ctx: click.Context) -> tuple[str, ...]:
    """Return the hosts of all --hostfile."""
    return tuple(ctx.meta.get(_FILES, ()))
