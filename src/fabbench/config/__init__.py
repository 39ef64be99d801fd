"""`fabbench.yaml`: where it is, what is in it, and where a run goes."""

import contextlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from fabbench.config.keys import FILE
from fabbench.config.kinds import Reading, unknown
from fabbench.config.tree import Entries, Mistakes, Scalar, parse
from fabbench.errors import MachineError, RequestError
from fabbench.variants import Variant

FILE_NAME = "fabbench.yaml"
VARIABLE = "FABBENCH_CONFIG"
_LARGEST = 1 << 20
_NOTHING: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A place to run, as the file describes it."""

    name: str
    launcher: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Key → value, typed (`fabbench.config.keys`): `hosts` is a tuple of names, `port` an int, `identity` a
    Path, `env` a mapping of texts. Keys that the file does not have are not in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Defaults:
    """Defaults of `fabbench run`."""

    repeat: int | None = None
    fabrics: tuple[str, ...] = ()
    run: Mapping[str, Mapping[str, str | bool | tuple[str | bool, ...]]] = field(default_factory=dict)
    """Benchmark → long name of an option → value as typed; a tuple for an option given several times."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """A whole file."""

    path: Path
    default: str | None = None
    store: Path | None = None
    defaults: Defaults = field(default_factory=Defaults)
    targets: Mapping[str, Target] = field(default_factory=dict)
    variants: Mapping[str, Variant] = field(default_factory=dict)


def find_config(start: Path, environment: Mapping[str, str]) -> Path | None:
    """Find the file: where FABBENCH_CONFIG says, else in `start` or above it, else the user's own.

    The search upwards ends with the first folder that has a `.git`. A file that FABBENCH_CONFIG names is
    given whether it is there or not.
    """
    if named := environment.get(VARIABLE):
        return start / named
    for folder in (start, *start.parents):
        if _is(folder / FILE_NAME, Path.is_file):
            return folder / FILE_NAME
        if _is(folder / ".git", Path.exists):
            break
    own = user_file(environment)
    return own if own is not None and _is(own, Path.is_file) else None


def user_file(environment: Mapping[str, str]) -> Path | None:
    """Say where the user's own settings would be; None if there is no home.

    XDG Base Directory Specification: a relative XDG_CONFIG_HOME does not count.
    """
    base = Path(environment.get("XDG_CONFIG_HOME", ""))
    home = environment.get("HOME")
    if not base.is_absolute() and home:
        base = Path(home, ".config")
    return base / "fabbench" / FILE_NAME if base.is_absolute() else None


def load(
    path: Path, *, launchers: Collection[str], benchmarks: Mapping[str, Collection[str]] | None = None
) -> Config:
    """Read a file. `benchmarks` are those that can be run, with the long names of their options.

    Without `benchmarks` the names below `defaults.run` are not checked. Raises MachineError where the file
    cannot be read, RequestError that names every mistake with its line and column.
    """
    try:
        with path.open("rb") as file:
            data = file.read(_LARGEST + 1)
    except OSError as error:
        raise MachineError(f"{path} cannot be read: {error.strerror or error}.") from error
    if len(data) > _LARGEST:
        raise RequestError(f"{path} is larger than {_LARGEST} bytes. It is no file of settings.")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise RequestError(
            f"{path}:{line}: This is not UTF-8: it has the byte {data[error.start]:#04x}."
        ) from error
    return read(text, path, launchers=launchers, benchmarks=benchmarks)


def read(
    text: str,
    path: Path,
    *,
    launchers: Collection[str],
    benchmarks: Mapping[str, Collection[str]] | None = None,
) -> Config:
    """Read the text of a file that lies at `path`. Raises RequestError as `load` does."""
    mistakes = Mistakes(str(path))
    reading = Reading(
        mistakes=mistakes, folder=path.absolute().parent, launchers=launchers, benchmarks=benchmarks
    )
    root = parse(text, mistakes)
    values = FILE.read(root, "", reading) if root is not None else {}
    if isinstance(root, Entries) and values.get("default"):
        names = {*values.get("targets", ()), *launchers}
        key, node = root.entries["default"]
        if values["default"] not in names and isinstance(node, Scalar):
            unknown(node, key.text, sorted(names), reading, what="target")
    mistakes.check()
    targets = {
        name: Target(
            name=name,
            launcher=settings["launcher"],
            settings={key: value for key, value in settings.items() if key != "launcher"},
        )
        for name, settings in values.get("targets", _NOTHING).items()
    }
    return Config(
        path=path,
        default=values.get("default"),
        store=values.get("store"),
        defaults=Defaults(**values.get("defaults", _NOTHING)),
        targets=targets,
        variants=values.get("variants", _NOTHING),
    )


def _is(path: Path, what: Callable[[Path], bool]) -> bool:
    """Whether `what` holds; nothing is in a folder that may not be looked into."""
    with contextlib.suppress(OSError):
        return what(path)
    return False
