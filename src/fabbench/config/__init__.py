"""`fabbench.yaml`: where it is, what is in it, and which target a run uses."""

import contextlib
from collections.abc import Callable, Mapping
from pathlib import Path

from fabbench.config.sections import Config, Reader, parse
from fabbench.model.errors import MachineError, RequestError
from fabbench.model.options import LauncherOptions, Option

FILE_NAME = "fabbench.yaml"
VARIABLE = "FABBENCH_CONFIG"
_MAX_BYTES = 1 << 20
MAX_MISTAKES = 20
"""Maximum mistakes that one message lists."""


def find_config(start: Path, environment: Mapping[str, str]) -> Path | None:
    """Find the file: where FABBENCH_CONFIG says, else in `start` or above it, else the user's own.

    The search upwards ends with the first directory that has a `.git`. A file that FABBENCH_CONFIG names is
    returned whether it exists or not.
    """
    if named := environment.get(VARIABLE):
        return start / named
    for folder in (start, *start.parents):
        if _is(folder / FILE_NAME, Path.is_file):
            return folder / FILE_NAME
        if _is(folder / ".git", Path.exists):
            break
    user = user_file(environment)
    return user if user is not None and _is(user, Path.is_file) else None


def user_file(environment: Mapping[str, str]) -> Path | None:
    """Return the path of the user's own settings; None if there is no home directory.

    XDG Base Directory Specification: a relative XDG_CONFIG_HOME is ignored.
    """
    base = Path(environment.get("XDG_CONFIG_HOME", ""))
    home = environment.get("HOME")
    if not base.is_absolute() and home:
        base = Path(home, ".config")
    return base / "fabbench" / FILE_NAME if base.is_absolute() else None


def load(
    path: Path,
    *,
    launchers: Mapping[str, type[LauncherOptions]],
    benchmarks: Callable[[str], Mapping[str, Option]] | None = None,
) -> Config:
    """Read a file. `launchers` are all known ones, with their options; `benchmarks` returns those of one.

    Without `benchmarks`, `defaults.run` is not checked. Raise MachineError if the file cannot be read,
    RequestError that names every mistake with its path in the file.
    """
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise MachineError(f"{path} cannot be read: {error.strerror or error}.") from error
    if len(data) > _MAX_BYTES:
        raise RequestError(f"{path} is larger than {_MAX_BYTES} bytes. It is not a configuration file.")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise RequestError(f"{path}:{line}: This is not UTF-8: it has the byte {data[error.start]:#04x}.") from error
    return read(text, path, launchers=launchers, benchmarks=benchmarks)


def read(
    text: str,
    path: Path,
    *,
    launchers: Mapping[str, type[LauncherOptions]],
    benchmarks: Callable[[str], Mapping[str, Option]] | None = None,
) -> Config:
    """Read the text of a file at `path`. Raise RequestError as `load` does."""
    reader = Reader(folder=path.absolute().parent, launchers=launchers, benchmarks=benchmarks)
    values = reader.file(parse(text, str(path)))
    if reader.mistakes:
        shown = [f"{path}: {each}" for each in reader.mistakes[:MAX_MISTAKES]]
        if more := len(reader.mistakes) - len(shown):
            shown.append(f"{more} more mistakes in {path}.")
        raise RequestError(*shown, hint="fabbench config --schema prints every key, with its type and its meaning.")
    return Config(path=path, **values)


def _is(path: Path, test: Callable[[Path], bool]) -> bool:
    """Return whether `test` holds; never in a directory that cannot be read."""
    with contextlib.suppress(OSError):
        return test(path)
    return False
