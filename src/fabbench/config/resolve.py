"""Where to run. Pure: the surroundings are arguments."""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass

from fabbench.config import FILE_NAME, Config, Target
from fabbench.errors import RequestError

TARGET_VARIABLE = "FABBENCH_TARGET"


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """A place to run."""

    name: str
    """The target's name in the file, or the launcher's."""
    launcher: str
    target: Target | None
    """None: a launcher without settings."""
    why: str
    """Why there, to follow a colon: ``--on says so``."""


def resolve(  # noqa: PLR0913 - every place that can say where to run
    on: str | None,
    environment: Mapping[str, str],
    config: Config | None,
    *,
    launchers: Collection[str],
    inside_slurm: bool,
    kube_context: Callable[[], str | None],
) -> Resolved:
    """Say where to run, and why there.

    The first that is there: `on`, FABBENCH_TARGET, the file's default, the Slurm allocation that the program
    runs in, the current context of the kubeconfig, which is only asked for then. Raises RequestError for a
    name that is neither a target of the file nor a launcher, and where nothing says it: with each place that
    was looked at.
    """
    for name, why in (
        (on, "--on says so"),
        (environment.get(TARGET_VARIABLE), f"{TARGET_VARIABLE} says so"),
        (config.default if config else None, f"it is the default of {config.path if config else ''}"),
    ):
        if name:
            return _named(name, why, config, launchers)
    if inside_slurm and "slurm" in launchers:
        return Resolved(name="slurm", launcher="slurm", target=None, why="this is inside a Slurm allocation")
    context = kube_context()
    if context and "kubernetes" in launchers:
        why = f"{context} is the current context of the kubeconfig"
        return Resolved(name="kubernetes", launcher="kubernetes", target=None, why=why)
    looked = _looked(config, launchers, inside_slurm=inside_slurm, kube_context=context)
    raise RequestError(
        f"Nothing says where to run: {'; '.join(looked)}.",
        hint=f"--on local runs on this machine. Known to --on: {_known(config, launchers)}.",
    )


def _named(name: str, why: str, config: Config | None, launchers: Collection[str]) -> Resolved:
    target = config.targets.get(name) if config else None
    if target is not None:
        return Resolved(name=name, launcher=target.launcher, target=target, why=why)
    if name in launchers:
        return Resolved(name=name, launcher=name, target=None, why=why)
    import difflib

    near = difflib.get_close_matches(name, [*(config.targets if config else ()), *launchers], n=1)
    file = f"in {config.path}" if config else f"in a {FILE_NAME} (there is none)"
    raise RequestError(
        f"There is no target {name} ({why}): it is neither {file} nor a launcher.",
        hint=f"{f'Did you mean {near[0]}? ' if near else ''}Known to --on: {_known(config, launchers)}.",
    )


def _known(config: Config | None, launchers: Collection[str]) -> str:
    return ", ".join([*(config.targets if config else ()), *sorted(launchers)])


def _looked(
    config: Config | None, launchers: Collection[str], *, inside_slurm: bool, kube_context: str | None
) -> Iterator[str]:
    """Say of each place what was found there."""
    yield "there is no --on"
    yield f"{TARGET_VARIABLE} is not set"
    yield f"{config.path} has no default" if config else f"there is no {FILE_NAME}, here or above or your own"
    if inside_slurm:
        yield "this is inside a Slurm allocation, but there is no launcher slurm"
    elif "slurm" in launchers:
        yield "this is not inside a Slurm allocation (SLURM_JOB_ID is not set)"
    if kube_context:
        yield f"the kubeconfig's context is {kube_context}, but there is no launcher kubernetes"
    elif "kubernetes" in launchers:
        yield "there is no kubeconfig with a current context"
