"""What was requested: what to measure, where, how often, and what must hold; and its variants.

Frozen.

A variant is the same plan with other libraries, programs, variables, interface, image or network of
pods. It is compared like a fabric. Its programs are searched for in its directories first. A shell
in front of the program puts its libraries before those that a process inherits: so they come first
on every host, regardless of what mpirun, ssh or an image sets there.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path

from fabbench.benchmarks.standard import Work
from fabbench.catalog.images import with_libraries
from fabbench.model.errors import RequestError
from fabbench.model.fabrics import FABRICS
from fabbench.model.hosts import Host, Target
from fabbench.model.messages import shown
from fabbench.model.options import declared, read_option
from fabbench.model.plan import Step, Variant
from fabbench.plan import STORE

MAX_REPEATS = 20  # Repeats at which `Adaptive` gives up by default


@dataclass(frozen=True, slots=True, kw_only=True)
class Adaptive:
    """Repeats until everything that was requested is decided."""

    max_repeats: int
    seconds: float | None = None  # No repeat starts after this time; None: no limit


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """One run, as requested. `fabrics` are names, `AB` or `AUTO`; none means `AUTO`."""

    benchmark: str
    work: Work
    target: Target
    target_reason: str = ""  # Why there, to follow a colon: `set with --on`
    fabrics: tuple[str, ...] = ()
    repeats: int | None = None  # Of each configuration; None: 3 with several configurations, else 1
    adaptive: Adaptive | None = None  # Instead of `repeats`: as many as it takes to decide
    env: Mapping[str, str] = field(
        default_factory=dict
    )  # Of every configuration, besides what the fabric needs
    gates: tuple[
        str, ...
    ] = ()  # Fail (exit 1) unless this holds for the first configuration, such as `busbw:5%`
    strict: bool = False  # Whether a gate fails whose loss can be neither shown nor excluded
    baseline: str | None = None  # What gates compare with: a run, RUN:CONFIG or a log file
    metric: str | None = None  # What is compared; None: the benchmark's usual metric
    keep_going: bool = False  # Whether an execution on the wrong network may continue
    limit_s: float = inf  # After so many seconds each step is aborted, unless its own limit is less
    store: Path = STORE
    name: str = ""  # The user's name for the run, to find it by
    command: tuple[str, ...] = ()  # The command line that requested it


NAME = re.compile(
    r"^[A-Za-z0-9][A-Za-z0-9._-]{0,39}$"
)  # Names that are valid in labels and in file names
TAKEN = frozenset(
    {*FABRICS, "ab", "all", "auto"}
)  # Names that would be mistaken for something else
_BARE = re.compile(r"(?:^|,)host-network(?=,|$)")
_KEY = re.compile(r"(?:^|,)(?=(?:env\.)?[A-Za-z_][A-Za-z0-9_]*=|host-network=)")
_HINT = (
    "Use NAME=/DIRECTORY, NAME=host-network or NAME=KEY=VALUE: path, image, interface, "
    "mpirun or a VARIABLE."
)


def applied(
    step: Step, request: RunRequest, variant: Variant, fabric: str, hosts: Sequence[Host]
) -> Step:
    """Return a step with a variant applied, and the request's environment for all its commands.

    What the fabric needs stays as it is. Raise RequestError for a variable set to another value,
    and for one that is both inherited and set.
    """
    env, inherited = {**request.env, **variant.env}, request.target.inherited
    commands = []
    for command in step.commands:
        for name, value in env.items():
            if command.env.get(name, value) != value:
                source = (
                    f"The variant {variant.name}"
                    if name in variant.env
                    else "--env (or the target's env)"
                )
                raise RequestError(
                    f"{source} sets {name}={shown(name, value)}, but {fabric} needs "
                    f"{name}={command.env[name]}: with another value the fabric cannot be "
                    "verified.",
                    hint="Remove it: --fabric, --interface and the benchmark's options set it. "
                    "The run's "
                    "plan.json lists what fabbench sets.",
                )
        if both := [name for name in inherited if name in {**env, **command.env}]:
            raise RequestError(
                f"--env {both[0]} takes the variable from the environment, but --env also sets it.",
                hint="Remove one of them. The run's plan.json lists what fabbench itself sets.",
            )
        (name, *words), host = command.argv, hosts[command.host]
        argv, folders = command.argv, host.searched.get(name, ())
        if variant.name or folders:
            argv = with_libraries((host.programs.get(name, name), *words), variant.paths, folders)
        unset = tuple(name for name in command.unset if name not in {*env, *inherited})
        commands.append(
            replace(
                command, argv=argv, env={**env, **command.env}, unset=unset, inherited=inherited
            )
        )
    return replace(step, commands=tuple(commands), timeout_s=min(step.timeout_s, request.limit_s))


# ---------------------------------------------------------------- variants as users write them


def read_variants(texts: Sequence[str], known: Mapping[str, Variant]) -> tuple[Variant, ...]:
    """Read ``NAME``, ``NAME=/FOLDER:/FOLDER`` and ``NAME=KEY=VALUE,KEY=VALUE``.

    Those of one name are merged.

    A bare name is one of those `known`. Raise RequestError for anything else.
    """
    variants: dict[str, Variant] = {}
    for text in texts:
        name, equals, rest = text.partition("=")
        check_name(name)
        if not equals and name not in known:
            listed = f"fabbench.yaml has {', '.join(known)}" if known else "fabbench.yaml has none"
            raise RequestError(f"The variant {name} is not defined: {listed}.", hint=_HINT)
        variants.setdefault(
            name, known[name] if name in texts and name in known else Variant(name=name)
        )
        if equals:
            variants[name] = _added(variants[name], rest, text)
    return tuple(variants.values())


def check_name(name: str) -> None:
    """Raise RequestError for a name that is not valid in labels and file names, or is that of something else."""
    if not NAME.fullmatch(name) or name in TAKEN:
        raise RequestError(
            f"{name!r} is not a valid variant name.",
            hint="Use up to 40 letters, digits and . _ -, beginning with a letter or a digit. A "
            "column cannot be named "
            "like a fabric, ab, all or auto.",
        )


def _added(variant: Variant, rest: str, text: str) -> Variant:
    """Return a variant with what follows the first ``=`` added."""
    known, given = declared(Variant), dict[str, list[str]]()
    for pair in (
        [f"path={rest}"]
        if rest.startswith("/")
        else filter(None, _KEY.split(_BARE.sub(r"\g<0>=true", rest)))
    ):
        key, _, value = pair.partition("=")
        name = "paths" if key == "path" else key.replace("-", "_")
        if name not in known or key in {"env", "paths"}:
            name, value = "env", pair.removeprefix("env.")
            if value == pair and not key.isupper():
                raise RequestError(f"Invalid --variant {text}: unexpected {pair!r}.", hint=_HINT)
        given.setdefault(name, []).append(value)
    try:
        new = {
            key: read_option(known[key], each if known[key].many else each[-1])
            for key, each in given.items()
        }
    except RequestError as error:
        raise RequestError(f"--variant {text}: {error}", hint=_HINT) from None
    paths, env = (*variant.paths, *new.get("paths", ())), {**variant.env, **new.get("env", {})}
    return replace(variant, **{**new, "paths": paths, "env": env})
