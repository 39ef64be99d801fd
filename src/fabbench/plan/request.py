"""What was requested: what to measure, where, how often, what must hold; its variants. Frozen.

A variant is the same plan with other libraries, programs, variables, interface, image or network of
pods. It is compared like a fabric. Its programs are searched for in its directories first. A shell
in front of the program puts its libraries before those that a process inherits: so they come first
on every host, regardless of what mpirun, ssh or an image sets there.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from math import inf
from pathlib import Path
from typing import Any

from fabbench.benchmarks.standard import Work
from fabbench.catalog.images import with_libraries
from fabbench.catalog.nccl_environment import DEFAULTS
from fabbench.model.errors import RequestError
from fabbench.model.fabrics import FABRICS
from fabbench.model.hosts import Host, Target
from fabbench.model.mappings import Names, Variables, gathered
from fabbench.model.messages import shown
from fabbench.model.options import declared, read_option
from fabbench.model.plan import Step, Variant, Words
from fabbench.model.values import frozen
from fabbench.plan import STORE

MAX_REPEATS = 20  # Repeats at which `Adaptive` gives up by default


@frozen
class Adaptive:
    """Repeats until everything that was requested is decided."""

    max_repeats: int
    seconds: float | None = None  # No repeat starts after this time; None: no limit


@frozen
class RunRequest:
    """One run, as requested. `fabrics` are names, `AB` or `AUTO`; none means `AUTO`."""

    benchmark: str
    work: Work
    target: Target
    target_reason: str = ""  # Why there, to follow a colon: `set with --on`
    fabrics: Names = ()
    repeats: int | None = None  # Of each configuration; None: 3 with several configurations, else 1
    adaptive: Adaptive | None = None  # Instead of `repeats`: as many as it takes to decide
    # Of every configuration, besides what the fabric needs
    env: Variables = field(default_factory=dict)
    # Variable that the fabric needs → what is added to its value
    appended: Variables = field(default_factory=dict)
    # Fail (exit 1) unless this holds for the first configuration, such as `busbw:5%`
    gates: tuple[str, ...] = ()
    strict: bool = False  # Whether a gate fails whose loss can be neither shown nor excluded
    baseline: str | None = None  # What gates compare with: a run, RUN:CONFIG or a log file
    metric: str | None = None  # What is compared; None: the benchmark's usual metric
    keep_going: bool = False  # Whether an execution on the wrong network may continue
    limit_s: float = inf  # After so many seconds each step is aborted, unless its own limit is less
    limits: float = 1  # Of each step's own limits: how many times as long it may take
    store: Path = STORE
    name: str = ""  # The user's name for the run, to find it by
    command: Words = ()  # The command line that requested it


NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]{0,39}$")
"""Names that are valid in labels and in file names."""
TAKEN = frozenset({*FABRICS, "ab", "all", "auto"})
"""Names that would be mistaken for something else."""
_BARE_HOST_NETWORK = re.compile(r"(?:^|,)host-network(?=,|$)")
_START_OF_PAIR = re.compile(r"(?:^|,)(?=(?:env\.)?[A-Za-z_][A-Za-z0-9_]*=|host-network=)")
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
    env = {**request.env, **variant.env}
    inherited = request.target.inherited
    commands = []
    for command in step.commands:
        needed = {
            name: value
            for name, value in command.env.items()
            if name not in DEFAULTS or name not in env
        }
        _require_fabric_variables(needed, env, variant, fabric)
        variables = {**env, **needed}
        for variable in request.appended.keys() & variables.keys():
            variables[variable] += request.appended[variable]
        _require_not_inherited(inherited, variables)
        host = hosts[command.host]
        name, *words = command.argv
        # Where a program that is not on the host's PATH may be: the shell searches there, too.
        folders = host.searched.get(name, ())
        argv = command.argv
        if variant.name or folders:  # a variant may have another program of this name
            program = host.programs.get(name, name)
            argv = with_libraries((program, *words), variant.paths, folders)
        given = {*env, *inherited}  # a variable that the user gives stays
        unset = tuple(each for each in command.unset if each not in given)
        commands.append(
            replace(command, argv=argv, env=variables, unset=unset, inherited=inherited)
        )
    return replace(
        step,
        commands=tuple(commands),
        timeout_s=min(step.timeout_s * request.limits, request.limit_s),
        silence_s=step.silence_s and step.silence_s * request.limits,
    )


def _require_fabric_variables(
    needs: Variables, env: Variables, variant: Variant, fabric: str
) -> None:
    """Raise RequestError for a variable that a fabric needs, but that is set to another value."""
    for name, value in env.items():
        needed = needs.get(name, value)
        if needed != value:
            source = "--env (or the target's env)"
            if name in variant.env:
                source = f"The variant {variant.name}"
            given = shown(name, value)
            raise RequestError(
                f"{source} sets {name}={given}, but {fabric} needs {name}={needed}: with another "
                "value the fabric cannot be verified.",
                hint="Remove it: --fabric, --interface and the benchmark's options set it. The "
                "run's plan.json lists what fabbench sets.",
            )


def _require_not_inherited(inherited: Sequence[str], env: Variables) -> None:
    """Raise RequestError for a variable that is both inherited and set."""
    for name in inherited:
        if name in env:
            raise RequestError(
                f"--env {name} takes the variable from the environment, but --env also sets it.",
                hint="Remove one of them. The run's plan.json lists what fabbench itself sets.",
            )


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
        if not equals:
            _require_known(name, known)
        if name not in variants:
            variants[name] = Variant(name=name)
            if name in texts:  # bare, here or later
                variants[name] = known.get(name, variants[name])
        if equals:
            variants[name] = _with_settings(variants[name], rest, text)
    return tuple(variants.values())


def _require_known(name: str, known: Mapping[str, Variant]) -> None:
    if name not in known:
        names = ", ".join(known) or "none"
        raise RequestError(
            f"The variant {name} is not defined: fabbench.yaml has {names}.", hint=_HINT
        )


def check_name(name: str) -> None:
    """Raise RequestError for a name that is not valid in labels and file names, or is taken."""
    if not NAME.fullmatch(name) or name in TAKEN:
        raise RequestError(
            f"{name!r} is not a valid variant name.",
            hint="Use up to 40 letters, digits and . _ -, beginning with a letter or a digit. A "
            "column cannot be named like a fabric, ab, all or auto.",
        )


def _with_settings(variant: Variant, rest: str, text: str) -> Variant:
    """Return a variant with what follows the first ``=`` added.

    Directories and variables are added to those that it has; any other value replaces the old one.
    `text`: the whole value of --variant, for messages.
    """
    known = declared(Variant)
    given = _texts_by_field(rest, text)
    changes: dict[str, Any] = {}
    try:
        for name, texts in given.items():
            option = known[name]
            changes[name] = read_option(option, texts if option.many else texts[-1])
    except RequestError as error:
        raise RequestError(f"--variant {text}: {error}", hint=_HINT) from None
    if "paths" in changes:
        changes["paths"] = (*variant.paths, *changes["paths"])
    if "env" in changes:
        changes["env"] = {**variant.env, **changes["env"]}
    return replace(variant, **changes)


def _texts_by_field(rest: str, text: str) -> dict[str, list[str]]:
    """Return field of a variant → what is given for it. Raise RequestError."""
    return gathered(_field_and_text(pair, text) for pair in _key_value_pairs(rest))


def _field_and_text(pair: str, text: str) -> tuple[str, str]:
    """Return the field of a variant that ``KEY=VALUE`` sets, and what is given for it."""
    key, _, value = pair.partition("=")
    name = _field_of(key)
    if name is None:
        raise RequestError(f"Invalid --variant {text}: unexpected {pair!r}.", hint=_HINT)
    if name == "env":  # its value is NAME=VALUE, the whole pair
        value = pair.removeprefix("env.")
    return name, value


def _field_of(key: str) -> str | None:
    """Return the field of a variant that a key sets; None: none."""
    fields = declared(Variant).keys() - {"env", "paths"}
    name = key.replace("-", "_")
    if key == "path":
        return "paths"
    if name in fields:
        return name
    return "env" if key.startswith("env.") or key.isupper() else None


def _key_value_pairs(rest: str) -> list[str]:
    """Return each ``KEY=VALUE``: directories are a path, and host-network alone is true."""
    if rest.startswith("/"):
        return [f"path={rest}"]
    pairs = _START_OF_PAIR.split(_BARE_HOST_NETWORK.sub(r"\g<0>=true", rest))
    return [pair for pair in pairs if pair]
