"""The steps of a plan as functions of a script."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import chain

from fabbench import markers
from fabbench.errors import RequestError
from fabbench.filling import filled
from fabbench.hosts.mpi import Mpi, MpiKind
from fabbench.model import Command, Plan, Shape, Step, Trial
from fabbench.mpi import Spread, contexts, options, srun
from fabbench.script.quoting import line, quote, variable, wrapped
from fabbench.script.way import Ranks, Way

_LONGEST_FILE = 100_000
"""Characters; a word of a command may have 128 KiB (MAX_ARG_STRLEN of Linux)."""
_DETECT = """\
use_mpirun() { # PATH
    local said
    mpirun=$1
    said=$("$mpirun" --version 2>&1)
    if [[ $said =~ \\(Open(\\ MPI|RTE)\\)\\ ([0-9]+)\\. ]]; then
        mpi='Open MPI 4'
        [ "${BASH_REMATCH[2]}" -lt 5 ] || mpi='Open MPI 5'
    elif [[ $said == *'HYDRA build details'* || $said == *'Intel(R) MPI Library'* ]]; then
        mpi=hydra
    else
        stop 3 "$mpirun is no mpirun that fabbench knows: ${said%%$'\\n'*}"
    fi
    case $mpi in hydra) forward=(-genvlist "PATH${LD_LIBRARY_PATH+,LD_LIBRARY_PATH}") ;;
    *) forward=(-x PATH ${LD_LIBRARY_PATH+-x LD_LIBRARY_PATH}) ;; esac
}
"""


class Steps:
    """Functions of a script: one for all trials that do the same."""

    def __init__(self, plan: Plan, way: Way) -> None:
        self._usual = self._way = way
        """Of the arm that is written."""
        self._hosts = plan.hosts
        self._files: dict[str, str] = {}
        """Text → the variable that has it."""
        self._launches: dict[str, str] = {}
        """Body → the function that starts mpirun."""
        self._paths = _paths(plan, way)
        bodies: dict[str, str] = {}
        self.functions: list[str] = []
        """For each trial its function."""
        comments: dict[str, str] = {}
        for trial in plan.trials:
            self._way = way.of(trial.arm.variant)
            body = self._use(trial) + self._body(trial)
            name = bodies.setdefault(body, f"steps_{len(bodies) + 1}")
            comments.setdefault(name, trial.arm.label)
            self.functions.append(name)
        self._bodies = [f"{name}() {{ # {comments[name]}\n{body}}}\n\n" for body, name in bodies.items()]

    def texts(self) -> Iterator[str]:
        """Give the script's text: what the steps need, then themselves."""
        if self._launches:
            yield _DETECT
            # All of them, so that what is missing is known before anything starts.
            yield from (f"use_mpirun {quote(path)}\n" for path in reversed(self._way.mpiruns))
            yield "\n"
        yield from (f"{name}() {{\n{body}}}\n\n" for body, name in self._launches.items())
        yield from (f"{name}={quote(text)}\n\n" for text, name in self._files.items())
        yield from self._bodies

    def required(self) -> str:
        """Give the lines that stop the script where a host lacks a program, or a folder of a variant."""
        text = ""
        several = len(self._usual.insides) > 1
        wanted = {name: own.folders for name, own in self._usual.variants.items() if own.folders or several}
        if not several:
            wanted = {"": tuple(dict.fromkeys(chain.from_iterable(wanted.values())))}
        for name, folders in wanted.items():
            text += _container(self._usual.of(name), "") if several else ""
            words = (*(f"{folder}/" for folder in folders), *self._paths.get(name if several else "", ()))
            text += line(("require", *words), indent="") + "\n" if words else ""
        return text

    # ------------------------------------------------------------ one trial

    def _body(self, trial: Trial) -> str:
        shapes = {step.shape for step in trial.steps}
        if trial.together and shapes != {Shape.PAIR}:
            raise RequestError(f"Steps of shape {' and '.join(shapes)} cannot run at the same time.")
        if trial.together:
            pairs = (self._pair(step, number) for number, step in enumerate(trial.steps))
            return "".join(pairs) + _RUN_PAIRS
        return "".join(self._step(step) for step in trial.steps)

    def _use(self, trial: Trial) -> str:
        """Write the lines that begin a trial where mpirun or the container is not the same for all."""
        ranks = any(step.shape is Shape.MPI for step in trial.steps)
        own = ranks and self._way.ranks is Ranks.MPIRUN and len(self._way.mpiruns) > 1
        if ranks and self._way.ranks is Ranks.SRUN and len(self._way.mpiruns) > 1:
            raise RequestError(
                f"srun starts the ranks, and variants name {' and '.join(self._way.mpiruns)}.",
                hint="Start them with mpirun: --mpi mpirun.",
            )
        mpirun = line(("use_mpirun", self._way.mpirun)) + "\n" if own else ""
        return mpirun + (_container(self._way, "    ") if len(self._way.insides) > 1 else "")

    def _step(self, step: Step) -> str:
        if step.shape is Shape.PAIR:
            return self._pair(step, 0) + _RUN_PAIRS
        if step.shape is Shape.MPI:
            return self._ranks(step)
        raise RequestError(f"A step of shape {step.shape} cannot be run by a script.")

    def _begin(self, step: Step) -> str:
        """Write the call that begins a step; its trial is the function's first argument."""
        name = step.id.partition("/")[2]
        facts = markers.words(step.facts)
        identity = f'"$1"/{quote(name)}'
        limit = str(math.ceil(step.timeout_s))
        return wrapped(["step", identity, quote(step.label), limit, quote(facts)]) + "\n"

    # ------------------------------------------------------------ pairs

    def _pair(self, step: Step, number: int) -> str:
        if step.files:
            raise RequestError(f"Files of a pair ({step.label}) cannot be brought along by a script.")
        sides = (self._side(step, command, number) for command in step.commands)
        return self._begin(step) + "".join(sides)

    def _side(self, step: Step, command: Command, number: int) -> str:
        server = next(each.host for each in step.commands if each.role == "server")
        if server and command.role == "server":
            raise RequestError(
                f"The server of {step.label} is to run on the host {server}, and not the first."
            )
        known = {"{port}": variable("port"), "{server}": self._address()}
        ready = filled(command, known, variable("folder"))
        unset = [word for name in ready.unset for word in ("-u", name)]
        settings = [f"{name}={value}" for name, value in {**self._way.env, **ready.env}.items()]
        program = self._way.programs.get(ready.argv[0], ready.argv[0])
        words = ["on", str(command.host), "env", *unset, *settings, program, *ready.argv[1:]]
        return f"    {command.role}_{number}() {{\n{line(words, indent='        ')}\n    }}\n"

    def _address(self) -> str:
        alone = self._hosts == 1 and self._way.here
        return "127.0.0.1" if alone else variable("hosts[0]")

    # ------------------------------------------------------------ ranks

    def _ranks(self, step: Step) -> str:
        ready = replace(
            step,
            commands=tuple(
                filled(command, {"{server}": self._address()}, variable("folder"))
                for command in step.commands
            ),
        )
        silence = "0" if step.silence_s is None else str(math.ceil(step.silence_s))
        if self._way.ranks is Ranks.SRUN:
            program, *words = srun(ready, self._spread(MpiKind.OPEN_MPI_5))
            command = [program, *self._way.extra, *self._way.inside, *words]
        else:
            launch = self._launch(ready)
            command = [launch, *contexts(ready, self._spread(MpiKind.OPEN_MPI_4))]
        return (
            self._begin(step) + self._with(step.files) + line(["ranks", silence, *command]) + " || return\n"
        )

    def _with(self, named: Mapping[str, str]) -> str:
        """Write the list of a step's files."""
        for name, text in named.items():
            if len(text.encode()) > _LONGEST_FILE:
                raise RequestError(f"{name} is too long to be brought along by a script.")
            self._files.setdefault(text, f"file_{len(self._files) + 1}")
        words = [word for name, text in named.items() for word in (name, variable(self._files[text]))]
        return f"    files=({' '.join(map(quote, words))})\n"

    def _launch(self, step: Step) -> str:
        """Name the function that starts mpirun with the options of a step."""
        cases: dict[str, list[str]] = {}
        for kind in MpiKind:
            words = [quote(word) for word in (*options(step, self._spread(kind)), *self._way.extra)]
            cases.setdefault(wrapped(['"$mpirun"', *words, '"${forward[@]}"', '"$@"']), []).append(kind)
        arms = (
            f"    {' | '.join(quote(kind) for kind in kinds)})\n    {body}\n        ;;\n"
            for body, kinds in cases.items()
        )
        text = f"    case $mpi in\n{''.join(arms)}    esac\n"
        return self._launches.setdefault(text, f"mpirun_{len(self._launches) + 1}")

    def _spread(self, kind: MpiKind) -> Spread:
        alone = self._hosts == 1 and self._way.here
        names = [variable(f"hosts[{number}]") for number in range(self._hosts)]
        return Spread(
            mpi=Mpi(program=self._way.mpirun, kind=kind, version=""),
            hosts=("localhost",) if alone else tuple(names),
            agent=self._way.agent,
            interface=self._way.interface,
            forward=(),
            programs=self._way.programs,
            env={"FABBENCH_JOB": variable("token"), **self._way.env},
        )


def _paths(plan: Plan, way: Way) -> Mapping[str, tuple[str, ...]]:
    """Give the paths of programs that are known: variant → those that its arms start, and all for no name."""
    known = {path for path in way.programs.values() if path.startswith("/")}
    found: dict[str, dict[str, None]] = {"": {}}
    for trial in plan.trials:
        for command in chain.from_iterable(step.commands for step in trial.steps):
            words = (way.programs.get(command.argv[0], ""), *command.argv)
            own = dict.fromkeys(word for word in words if word in known)
            found.setdefault(trial.arm.variant, {}).update(own)
            found[""].update(own)
    return {variant: tuple(paths) for variant, paths in found.items()}


def _container(way: Way, indent: str) -> str:
    """Write the line that says where programs are started."""
    if not way.inside:
        return f"{indent}through=reach\n"
    return f"{indent}through=inside container=({' '.join(map(quote, way.inside))})\n"


_RUN_PAIRS = "    pairs || return\n"
