"""`fabbench.yaml`: where it is and what is in it; where to run: there, or as is implied."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from fabbench.config.given import GivenOptions, own_options, value_of
from fabbench.config.sections import BenchmarkOptions, Config, Reader, parse
from fabbench.model.errors import MachineError, RequestError
from fabbench.model.hosts import Target
from fabbench.model.mappings import Variables
from fabbench.model.messages import did_you_mean, nearest
from fabbench.model.options import LauncherOptions, Launchers
from fabbench.model.plugins import ALIASES

FILE_NAME = "fabbench.yaml"
VARIABLE = "FABBENCH_CONFIG"
TARGET_VARIABLE = "FABBENCH_TARGET"
_SSH = "ssh"
_FLAGS_OF_SSH_HOSTS = frozenset({"--host", "--hostfile"})


def find_config(start: Path, environment: Variables) -> Path | None:
    """Find the file: where FABBENCH_CONFIG says, else in `start` or above it, else the user's own.

    The search upwards ends with the first directory that has a `.git`. A file that FABBENCH_CONFIG
    names is returned whether it exists or not.
    """
    if named := environment.get(VARIABLE):
        return start / named
    for folder in (start, *start.parents):
        if _holds(folder / FILE_NAME, Path.is_file):
            return folder / FILE_NAME
        if _holds(folder / ".git", Path.exists):
            break
    user = user_file(environment)
    return user if user is not None and _holds(user, Path.is_file) else None


def user_file(environment: Variables) -> Path | None:
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
    launchers: Launchers,
    benchmarks: BenchmarkOptions | None = None,
) -> Config:
    """Read a file. `launchers` are all known ones; `benchmarks` returns the options of one.

    Without `benchmarks`, `defaults.run` is not checked. Raise MachineError if the file cannot be
    read, RequestError that names the first mistake with its path in the file.
    """
    try:
        text = path.read_text("utf-8-sig")
    except OSError as error:
        reason = error.strerror or error
        raise MachineError(f"{path} cannot be read: {reason}.") from error
    except UnicodeDecodeError as error:
        raise RequestError(
            f"{path}: This is not UTF-8: {error.reason} at byte {error.start}."
        ) from error
    return read(text, path, launchers=launchers, benchmarks=benchmarks)


def read(
    text: str,
    path: Path,
    *,
    launchers: Launchers,
    benchmarks: BenchmarkOptions | None = None,
) -> Config:
    """Read the text of a file at `path`. Raise RequestError as `load` does."""
    reader = Reader(folder=path.absolute().parent, launchers=launchers, benchmarks=benchmarks)
    tree = parse(text, str(path))
    try:
        values = reader.file(tree)
    except RequestError as error:
        raise RequestError(
            f"{path}: {error}",
            hint="fabbench config --schema prints every key, with its type and its meaning.",
        ) from None
    return Config(path=path, **values)


def _holds(path: Path, test: Callable[[Path], bool]) -> bool:
    """Return whether `test` holds; never in a directory that cannot be read."""
    with suppress(OSError):
        return test(path)
    return False


# ---------------------------------------------------------------- where to run


class Resolved(NamedTuple):
    """Where to run, and why."""

    target: Target
    """From the file, or with nothing but the name of a launcher."""
    why: str
    """Why there, to follow a colon: ``set with --on``."""


def resolve(
    given: GivenOptions,
    config: Config | None,
    launchers: Launchers,
    environment: Variables,
) -> Resolved:
    """Return where to run, and why there, without the given options of targets.

    The first that is set: `on` of the given options, FABBENCH_TARGET, the file's default, ssh where
    hosts are named, the first launcher that the environment implies. Raise RequestError for a name
    that is neither a target of the file nor a launcher, and if nothing decides: with each source
    tried.
    """
    names = {
        "set with --on": value_of(given, "on"),
        f"set with {TARGET_VARIABLE}": environment.get(TARGET_VARIABLE),
    }
    if config is not None:
        names[f"default of {config.path}"] = config.default
    for why, name in names.items():
        if name:  # the first that is set
            return _target_named(name, why, config, launchers)
    if _names_ssh_hosts(given) and _SSH in launchers:
        return Resolved(_target_of_launcher(_SSH, launchers[_SSH]), "implied by --host")
    return _implied_by_environment(given, config, launchers, environment)


def _names_ssh_hosts(given: GivenOptions) -> bool:
    """Return whether there is a --host or --hostfile: a --node is one of a cluster."""
    return "hosts" in given and not _FLAGS_OF_SSH_HOSTS.isdisjoint(given["hosts"].flags)


def _implied_by_environment(
    given: GivenOptions,
    config: Config | None,
    launchers: Launchers,
    environment: Variables,
) -> Resolved:
    """Return the first launcher that the environment implies. Raise RequestError."""
    file = f"there is no {FILE_NAME} here or in ~/.config/fabbench"
    if config is not None:
        file = f"{config.path} has no default"
    tried = [f"no --on, no --host and no {TARGET_VARIABLE}", file]
    # By `order`; 0: the environment never implies the launcher
    ordered = [(name, kind) for name, kind in launchers.items() if kind.order]
    for name, kind in sorted(ordered, key=lambda named: named[1].order):
        is_implied, sentence = own_options(kind, given).surroundings(environment)
        if is_implied:
            return Resolved(_target_of_launcher(name, kind), sentence)
        tried.append(sentence)  # It says why not
    known = ", ".join(_names_for_on(config, launchers))
    reasons = "; ".join(tried)
    raise RequestError(
        f"No target: {reasons}.",
        hint=f"Pass --host NODE, or --on: {known}. clean needs a cluster.",
    )


def _target_of_launcher(name: str, kind: type[LauncherOptions]) -> Target:
    return Target(name=name, launcher=name, options=kind())


def _target_named(name: str, why: str, config: Config | None, launchers: Launchers) -> Resolved:
    # A target of the file, or a launcher (or its alias). `why`: who named it, for messages.
    if config and name in config.targets:
        return Resolved(config.targets[name], why)
    launcher = ALIASES.get(name, name)
    if launcher in launchers:
        return Resolved(_target_of_launcher(launcher, launchers[launcher]), why)
    known = list(_names_for_on(config, launchers))
    near = did_you_mean(nearest(name, (*known, *ALIASES)))
    file = f"in {config.path}" if config else f"in a {FILE_NAME} (none was found)"
    names = ", ".join(known)
    raise RequestError(
        f"Unknown target {name} ({why}): it is neither {file} nor a launcher.",
        hint=f"{near} Known to --on: {names}.".lstrip(),
    )


def _names_for_on(config: Config | None, launchers: Launchers) -> Iterator[str]:
    yield from config.targets if config else ()
    yield from sorted(launchers)
