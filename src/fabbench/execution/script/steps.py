"""The steps of a plan as functions of a script, and words of commands as words of a shell. Pure.

All quoting for a script's text is done here.
"""

import math
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain

from fabbench.execution.mpirun import MpiHosts, contexts, inherited, options, srun
from fabbench.execution.script.target import ProgramStarter, RankStarter, ScriptTarget
from fabbench.execution.session import SOURCED
from fabbench.model.errors import RequestError
from fabbench.model.hosts import Mpi, MpiKind
from fabbench.model.log import marker_words
from fabbench.model.messages import printable
from fabbench.model.plan import Command, Execution, Plan, Shape, Step

_BEGIN, _END = "\ud800", "\ud801"  # These enclose a shell variable within a word: no printable text contains them
_VARIABLE = re.compile(f"{_BEGIN}([^{_END}]*){_END}")
_PLAIN = re.compile(r"[\w@%+=:,./-]*", re.ASCII)
_WIDTH = 100
_INDENT = "        "


def variable(name: str) -> str:
    """Return the placeholder for a shell variable in a word: ``folder``, ``hosts[0]``."""
    return f"{_BEGIN}{name}{_END}"


def quote(word: str) -> str:
    """Quote a word so that a shell reads it literally, except for the variables in it."""
    parts = _VARIABLE.split(word)
    if len(parts) > 1 and all(_PLAIN.fullmatch(part.replace(" ", "")) for part in parts[::2]):
        inner = "".join(f"${{{part}}}" if index % 2 else part for index, part in enumerate(parts))
        return f'"{inner}"'
    quoted = (f'"${{{part}}}"' if index % 2 else _literal(part) if part else "" for index, part in enumerate(parts))
    return "".join(quoted) or "''"


def _literal(text: str) -> str:
    """Quote text. What must not be printed as it is is written as bash escapes; see `model.messages`."""
    return shlex.quote(text) if printable(text) == text else _escaped(text)


def in_comment(word: str) -> str:
    """Quote a word for bash so that it stays on its line."""
    return _escaped(word) if "\n" in word else _literal(word)


def _escaped(text: str) -> str:
    escaped = "".join(
        f"\\{char}" if char in "\\'" else _bytes(char) if char in "\n[:" or printable(char) != char else char
        for char in text
    )
    return f"$'{escaped}'"


def _bytes(char: str) -> str:
    return "".join(f"\\x{byte:02x}" for byte in char.encode("utf-8", "surrogateescape"))


def line(words: Iterable[str], indent: str = "    ") -> str:
    """Return a command with quoted words, wrapped into readable lines."""
    return wrapped([quote(word) for word in words], indent)


def wrapped(
    texts: Sequence[str], indent: str = "    ", hanging: str = _INDENT, newline: str = " \\\n", width: int = _WIDTH
) -> str:
    """Join words of shell text, wrapped into readable lines."""
    lines = [indent]
    for text in _together(texts):
        blank = " " if lines[-1].strip() else ""
        if blank and len(lines[-1]) + len(text) > width:
            lines.append(f"{indent}{hanging}{text}")
        else:
            lines[-1] += f"{blank}{text}"
    return newline.join(lines)


def _together(texts: Sequence[str]) -> Iterator[str]:
    """Keep an option and its value on one line."""
    option = ""
    for text in texts:
        if option and not text.startswith("-"):
            yield f"{option} {text}"
            option = ""
            continue
        if option:
            yield option
        option = text if text.startswith("-") else ""
        if not option:
            yield text
    if option:
        yield option


def comment(text: str) -> str:
    """Return text as a comment, line by line."""
    return "".join(f"# {printable(part)}\n" for part in text.splitlines())


_LONGEST_FILE = 100_000  # Bytes; a word of a command may have 128 KiB (MAX_ARG_STRLEN of Linux)
_DETECT = """\
use_mpirun() { # PATH
    local version
    mpirun=$1
    version=$("$mpirun" --version 2>&1)
    if [[ $version =~ \\(Open(\\ MPI|RTE)\\)\\ ([0-9]+)\\. ]]; then
        mpi='Open MPI 4'
        [ "${BASH_REMATCH[2]}" -lt 5 ] || mpi='Open MPI 5'
    elif [[ $version == *'HYDRA build details'* || $version == *'Intel(R) MPI Library'* ]]; then
        mpi=hydra
    else
        stop 3 "$mpirun is not an mpirun that fabbench knows: ${version%%$'\\n'*}"
    fi
    case $mpi in hydra) forward=(-genvlist "PATH${LD_LIBRARY_PATH+,LD_LIBRARY_PATH}@GENVLIST@") ;;
    *) forward=(-x PATH ${LD_LIBRARY_PATH+-x LD_LIBRARY_PATH}@OPTIONS@) ;; esac
}
"""


class Steps:
    """The functions of a script. Executions that do the same share one."""

    def __init__(self, plan: Plan, target: ScriptTarget) -> None:
        self._usual = self._target = target  # The target of the configuration that is being written
        self._hosts = plan.hosts
        steps = [step for execution in plan.executions for step in execution.steps]
        self.inherited = tuple(dict.fromkeys(chain.from_iterable(map(inherited, steps))))
        alone = plan.hosts == 1 and target.here
        self._shared = (
            not alone and target.reach is ProgramStarter.SSH and any(step.shape is Shape.PAIR for step in steps)
        )
        self._files: dict[str, str] = {}  # Text → the variable that holds it
        self._launches: dict[str, str] = {}  # Body → the function that starts mpirun
        self._paths = _paths(plan, target)
        bodies: dict[str, str] = {}
        self.functions: list[str] = []  # The name of each execution's function
        comments: dict[str, str] = {}
        for execution in plan.executions:
            self._target = target.of(execution.configuration.variant)
            body = self._use(execution) + self._body(execution)
            name = bodies.setdefault(body, f"steps_{len(bodies) + 1}")
            comments.setdefault(name, execution.configuration.label)
            self.functions.append(name)
        self._bodies = [f"{name}() {{ # {comments[name]}\n{body}}}\n\n" for body, name in bodies.items()]

    def texts(self) -> Iterator[str]:
        """Yield the script's text: first what the steps need, then the steps."""
        if self._launches:
            genvlist = "".join(f",{name}" for name in self.inherited)
            options = "".join(f" -x {name}" for name in self.inherited)
            yield _DETECT.replace("@GENVLIST@", genvlist).replace("@OPTIONS@", options)
            # All of them, so that a missing one is noticed before anything starts.
            yield from (f"use_mpirun {quote(path)}\n" for path in reversed(self._target.mpiruns))
            yield "\n"
        yield from (f"{name}() {{\n{body}}}\n\n" for body, name in self._launches.items())
        yield from (f"{name}={quote(text)}\n\n" for text, name in self._files.items())
        yield from self._bodies

    def inheriting(self) -> str:
        """Return the lines that pass on inherited variables: in files if ssh starts some programs."""
        if not self.inherited:
            return ""
        text = line(("inherit", *self.inherited), indent="") + "\n"
        return text + (line(("share", *self.inherited), indent="") + "\n" if self._shared else "")

    def required(self) -> str:
        """Return the lines that stop the script if a host lacks a program, or a directory of a variant."""
        text = ""
        several = len(self._usual.insides) > 1
        required = {
            name: overrides.folders for name, overrides in self._usual.variants.items() if overrides.folders or several
        }
        if not several:
            required = {"": tuple(dict.fromkeys(chain.from_iterable(required.values())))}
        for name, folders in required.items():
            text += _container(self._usual.of(name), "") if several else ""
            words = (*(f"{folder}/" for folder in folders), *self._paths.get(name if several else "", ()))
            text += line(("require", *words), indent="") + "\n" if words else ""
        return text

    def _body(self, execution: Execution) -> str:
        shapes = {step.shape for step in execution.steps}
        if execution.together and shapes != {Shape.PAIR}:
            raise RequestError(f"Steps of shape {' and '.join(shapes)} cannot run concurrently.")
        if execution.together:
            pairs = (self._pair(step, number) for number, step in enumerate(execution.steps))
            return "".join(pairs) + _RUN_PAIRS
        return "".join(self._step(step) for step in execution.steps)

    def _use(self, execution: Execution) -> str:
        """Return the lines that start an execution if mpirun or the container is not the same for all."""
        ranks = any(step.shape is Shape.MPI for step in execution.steps)
        switch = ranks and self._target.ranks is RankStarter.MPIRUN and len(self._target.mpiruns) > 1
        if ranks and self._target.ranks is RankStarter.SRUN:
            require_one_mpirun(self._target)
        mpirun = line(("use_mpirun", self._target.mpirun)) + "\n" if switch else ""
        return mpirun + (_container(self._target, "    ") if len(self._target.insides) > 1 else "")

    def _step(self, step: Step) -> str:
        if step.shape is Shape.PAIR:
            return self._pair(step, 0) + _RUN_PAIRS
        if step.shape is Shape.MPI:
            return self._ranks(step)
        raise RequestError(f"A script cannot run a step of shape {step.shape}.")

    def _begin(self, step: Step) -> str:
        """Return the call that starts a step; its execution is the function's first argument."""
        identity, limit = f'"$1"/{quote(step.id.partition("/")[2])}', str(math.ceil(step.timeout_s))
        return wrapped(["step", identity, quote(step.label), limit, quote(marker_words(step.facts))]) + "\n"

    def _pair(self, step: Step, number: int) -> str:
        if step.files or any("{folder}" in word for command in step.commands for word in command.argv):
            raise RequestError(f"A script cannot include the files of a pair ({step.label}).")
        sides = (self._side(step, command, number) for command in step.commands)
        return self._begin(step) + "".join(sides)

    def _side(self, step: Step, command: Command, number: int) -> str:
        server = next(each.host for each in step.commands if each.role == "server")
        if server and command.role == "server":
            raise RequestError(f"The server of {step.label} runs on the host {server}, not on the first.")
        known = {"{port}": variable("port"), "{server}": self._address()}
        ready = command.filled(variable("folder"), known)
        unset = [word for name in ready.unset for word in ("-u", name)]
        settings = [f"{name}={value}" for name, value in {**self._target.env, **ready.env}.items()]
        program = self._target.programs.get(ready.argv[0], ready.argv[0])
        sourced = (*SOURCED, f"{variable('base')}/environment") if self._shared and self.inherited else ()
        words = ["on", str(command.host), *sourced, "env", *unset, *settings, program, *ready.argv[1:]]
        return f"    {command.role}_{number}() {{\n{line(words, indent='        ')}\n    }}\n"

    def _address(self) -> str:
        alone = self._hosts == 1 and self._target.here
        return "127.0.0.1" if alone else variable("hosts[0]")

    def _ranks(self, step: Step) -> str:
        known = {"{server}": self._address()}
        ready = replace(step, commands=tuple(each.filled(variable("folder"), known) for each in step.commands))
        silence = "0" if step.silence_s is None else str(math.ceil(step.silence_s))
        if self._target.ranks is RankStarter.SRUN:
            program, *words = srun(ready, self._mpi_hosts(MpiKind.OPEN_MPI_5))
            command = [program, *self._target.extra, *self._target.inside, *words]
        else:
            launch = self._launch(ready)
            command = [launch, *contexts(ready, self._mpi_hosts(MpiKind.OPEN_MPI_4))]
        return self._begin(step) + self._with(step.files) + line(["ranks", silence, *command]) + " || return\n"

    def _with(self, named: Mapping[str, str]) -> str:
        for name, text in named.items():
            if len(text.encode()) > _LONGEST_FILE:
                raise RequestError(f"{name} is too long to include in a script.")
            self._files.setdefault(text, f"file_{len(self._files) + 1}")
        words = [word for name, text in named.items() for word in (name, variable(self._files[text]))]
        return f"    files=({' '.join(map(quote, words))})\n"

    def _launch(self, step: Step) -> str:
        """Return the name of the function that starts mpirun with the options of a step."""
        cases: dict[str, list[str]] = {}
        for kind in MpiKind:
            words = [quote(word) for word in (*options(step, self._mpi_hosts(kind)), *self._target.extra)]
            cases.setdefault(wrapped(['"$mpirun"', *words, '"${forward[@]}"', '"$@"']), []).append(kind)
        configurations = (
            f"    {' | '.join(quote(kind) for kind in kinds)})\n    {body}\n        ;;\n"
            for body, kinds in cases.items()
        )
        text = f"    case $mpi in\n{''.join(configurations)}    esac\n"
        return self._launches.setdefault(text, f"mpirun_{len(self._launches) + 1}")

    def _mpi_hosts(self, kind: MpiKind) -> MpiHosts:
        alone = self._hosts == 1 and self._target.here
        names = [variable(f"hosts[{number}]") for number in range(self._hosts)]
        return MpiHosts(
            mpi=Mpi(program=self._target.mpirun, kind=kind, version=""),
            addresses=("localhost",) if alone else tuple(names),
            agent=self._target.agent,
            interface=self._target.interface,
            forward=(),
            programs=self._target.programs,
            env={"FABBENCH_JOB": variable("token"), **self._target.env},
        )


def require_one_mpirun(target: ScriptTarget) -> None:
    """Raise RequestError if variants name an mpirun although srun starts the ranks."""
    if len(target.mpiruns) > 1:
        raise RequestError(
            f"srun starts the ranks, but variants set {' and '.join(target.mpiruns)}.",
            hint="Start them with mpirun: --mpi mpirun.",
        )


def _paths(plan: Plan, target: ScriptTarget) -> Mapping[str, tuple[str, ...]]:
    """Return the known paths of programs: variant → those that its configurations start; empty name → all."""
    known = {path for path in target.programs.values() if path.startswith("/")}
    paths: dict[str, dict[str, None]] = {"": {}}
    for execution in plan.executions:
        for command in chain.from_iterable(step.commands for step in execution.steps):
            words = (target.programs.get(command.argv[0], ""), *command.argv)
            started = dict.fromkeys(word for word in words if word in known)
            paths.setdefault(execution.configuration.variant, {}).update(started)
            paths[""].update(started)
    return {variant: tuple(started) for variant, started in paths.items()}


def _container(target: ScriptTarget, indent: str) -> str:
    """Return the line that sets where programs are started."""
    if not target.inside:
        return f"{indent}through=reach\n"
    return f"{indent}through=inside container=({' '.join(map(quote, target.inside))})\n"


_RUN_PAIRS = "    pairs || return\n"
