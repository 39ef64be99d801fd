"""Plan → a short bash script as a person would write it, on hosts that are known only when it runs. Pure.

It runs what `fabbench.execution.script.script` runs: the same commands, environment and marker lines. It has
no silence limits, no NIC counters and no cleanup after signals. Debug lines are printed, not written to
files, so that its output contains the proof of the transport.
"""

import base64
import math
import re
import textwrap
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, pairwise, takewhile

from fabbench.benchmarks.nccl_env import REASONS
from fabbench.execution.mpirun import MpiHosts, inherited, options, srun
from fabbench.execution.script.steps import quote, require_one_mpirun, variable, wrapped
from fabbench.execution.script.target import SRUN, ProgramStarter, RankStarter, ScriptTarget
from fabbench.model.errors import RequestError
from fabbench.model.hosts import Mpi, MpiKind
from fabbench.model.log import MARKER_SIGN, marker_words, tag_line
from fabbench.model.messages import counted
from fabbench.model.plan import Command, Execution, Plan, Shape, Step
from fabbench.model.units import format_size

_ABOUT = """\
# fabbench parse and compare read what this prints.@TOGGLE@
# shellcheck disable=SC2016,SC2043,SC2054,SC2317,SC2329 # other shells expand; functions are arguments
"""
READ_NAMED = """\
read -ra hosts <<<"${*:-${HOSTS:-}}"
[ "${#hosts[@]}" -ge @HOSTS@ ] || { echo "Name @HOSTS@ hosts: bash $0 HOST…" >&2; exit 3; }
"""
READ_SLURM = 'mapfile -t hosts < <(scontrol show hostnames "$SLURM_JOB_NODELIST")\n'
READ_SKYPILOT = 'mapfile -t hosts <<<"$SKYPILOT_NODE_IPS"\n'
READ_MPIJOB = """\
mapfile -t hosts < <(cut -d' ' -f1 /etc/mpi/hostfile)
for host in "${hosts[@]}"; do until getent hosts "$host" >/dev/null; do sleep 1; done; done
"""
"""How the hosts are determined; a cluster's DNS gets pods only after they are ready."""

_STEP = f"""
step() {{ # NAME FACTS COMMAND…: run a command between marker lines
    echo "{MARKER_SIGN}begin $execution/$1 $2"
    if "${{@:3}}"; then code=0; else code=$? status=4; fi
    echo "{MARKER_SIGN}end $execution/$1 $code"
}}
"""
_PAIR = f"""
pair() ( # HOST SECONDS: start the server on the first host and, once it listens, the client on HOST
    set -o pipefail
    on 0 timeout "$2" "${{server[@]}}" 2>&1 | sed -u 's/^/{tag_line("server", "")[:-1]} /' &
    for _ in {{1..100}}; do
        @LOOK@grep -qs ":$(printf %04X "$port") .*:0000 0A " /proc/net/tcp /proc/net/tcp6 && break
        kill -0 "$!" 2>/dev/null || break
        sleep 0.2
    done
    on "$1" timeout "$2" "${{client[@]}}" 2>&1 | sed -u 's/^/{tag_line("client", "")[:-1]} /'
    client=$?
    wait "$!" && exit "$client"
)
"""
_ON = """
on() {{ # NUMBER WORD…: run a program on a host
    local host=${{hosts[$1]}}
    shift
    {body}
}}
"""
_TOGETHER = (
    "wait",
    'cat "$folder"/*',
    f"! grep -h '^{MARKER_SIGN}end' \"$folder\"/* | grep -qv ' 0$' || status=4",
    'rm -r "$folder"',
)
_INDENT = "        "
_WIDTH = 100
_LOOP = 3  # From this many steps of the same kind on, they are written as a loop
_ON_ALONE = """
on() { "${@:2}"; } # NUMBER WORD…: run a program
"""
_AGENT = """\
export OMPI_MCA_plm_rsh_agent="$agent" OMPI_MCA_plm_rsh_no_tree_spawn=1 # Open MPI 4
export PRTE_MCA_plm_ssh_agent="$agent" PRTE_MCA_plm_ssh_no_tree_spawn=1 # and 5
"""
_FAMILY = 8  # From this many variables with one prefix on, all variables with the prefix are unset
_PREFIX = re.compile(r"[A-Z]+_[A-Z]+_")
_PACKED = "import base64, zlib; exec(zlib.decompress(base64.b64decode('{text}')))"


def readable_script(plan: Plan, target: ScriptTarget, *, hosts: str) -> str:
    """Return the script, which begins with its interpreter and comments. `hosts` reads the array hosts.

    Its exit status is 0 if every step ended with 0, 4 if one did not. Raise RequestError for plans that it cannot run.
    """
    body = readable_body(plan, target, hosts=hosts)
    several = " FABRIC=LABEL runs one configuration alone." if len(plan.configurations) > 1 else ""
    about = _ABOUT.replace("@TOGGLE@", several)
    return f"#!/usr/bin/env bash\n{target.command}{target.header}{about}set -u\n{body}"


def readable_body(plan: Plan, target: ScriptTarget, *, hosts: str) -> str:
    """Return the script without its first lines, for inclusion in another document."""
    return "".join(_Script(plan, target, hosts).texts())


class _Script:
    def __init__(self, plan: Plan, target: ScriptTarget, hosts: str) -> None:
        self._plan, self._usual, self._target, self._read = plan, target, target, hosts
        self._launches: dict[tuple[str, ...], str] = {}  # The words that start ranks → the array that holds them
        self._programs: dict[str, str] = {}  # Text of a program → the variable that holds it
        if target.ranks is RankStarter.SRUN:
            require_one_mpirun(target)
        elif any(target.insides):
            raise RequestError("mpirun does not start containers.", hint="Start the ranks with srun: --mpi srun.")
        self._steps = tuple(step for execution in plan.executions for step in execution.steps)
        self._pairs = any(step.shape is Shape.PAIR for step in self._steps)
        ranks = {step.commands[0].ranks for step in self._steps}
        # A collective takes the nodes that there are; other programs are for these.
        self._each = ranks.pop() // plan.hosts if len(ranks) == 1 else 0
        self._scales = not self._alone and all(
            step.shape is Shape.MPI
            and len(step.commands) == 1
            and "collective" in step.facts
            and step.facts.get("ranks") == self._each * plan.hosts
            for step in self._steps
        )
        self.inherited = tuple(dict.fromkeys(chain.from_iterable(map(inherited, self._steps))))
        if self._pairs and self.inherited and target.reach is ProgramStarter.SSH:
            raise RequestError(f"ssh does not pass on {', '.join(self.inherited)}.", hint="Add --supervised.")

    def texts(self) -> Iterator[str]:
        clean, body = self._bodies()
        yield "exec 2>&1 # errors belong to the log\n"
        yield self._usual.opening
        launches = "".join(_array(name, words, "") for words, name in self._launches.items())
        if not self._alone and ("hosts[" in body + launches or self._pairs or self._scales):
            yield self._read.replace("@HOSTS@", str(2 if self._scales else self._plan.hosts))
            yield self._count()
        yield from (f'export {name}="${{{name}:?is not set}}"\n' for name in self.inherited)
        yield from self._exports()
        yield launches
        yield clean
        yield from (f"{name}={quote(text)}\n" for text, name in self._programs.items())
        yield _STEP
        if self._pairs:
            yield _ON.format(body=self._on()) if not self._alone else _ON_ALONE
            yield _PAIR.replace("@LOOK@", "" if self._usual.here else "on 0 ")
        yield self._loop(body)

    def _count(self) -> str:
        """Return the lines that take as many ranks as the hosts give, or refuse other hosts than planned."""
        if self._scales:
            each = self._each
            where = f"where=$(printf ',%s:{each}' \"${{hosts[@]}}\") where=${{where:1}}"
            needed = "" if self._usual.ranks is RankStarter.SRUN else f" {where}"
            return f"ranks=$(({each} * ${{#hosts[@]}})){needed} # {each} per node\n"
        count = self._plan.hosts
        return (
            f'[ "${{#hosts[@]}}" = {count} ] || {{ echo "This measures {counted(count, "node")}, and there are '
            '${#hosts[@]}. Render it again with --nodes." && exit 3; }\n'
        )

    def _exports(self) -> Iterator[str]:
        if not self._launches or self._usual.ranks is RankStarter.SRUN:
            return
        yield "# For Open MPI. fabbench render --supervised supports MPICH and Intel MPI, too.\n"
        yield 'export LD_LIBRARY_PATH="${LD_LIBRARY_PATH:-}"\n'
        if agent := self._usual.agent:
            yield f"agent={quote(' '.join(agent))}\n"
            yield _AGENT

    def _on(self) -> str:
        if self._usual.reach is ProgramStarter.SRUN:
            container = '"${container[@]}" ' if any(self._usual.insides) else ""
            words = " ".join(("srun", *SRUN))
            return f'{words} \\\n        {container}--nodelist="$host" -- "$@"'
        there = f'{" ".join(map(quote, ("ssh", "-n", *self._usual.ssh)))} "$host" "${{*@Q}}"'
        here = 'if [ "$host" = "${hosts[0]}" ]; then "$@"; else ' if self._usual.here else ""
        return f"{here}{there}; fi" if here else there

    def _loop(self, body: str) -> str:
        labels = [configuration.label for configuration in self._plan.configurations]
        known = " | ".join(map(quote, labels))
        names = " ".join(quote(execution.id) for execution in self._plan.executions)
        message = f"FABRIC is $FABRIC, but this has {', '.join(labels)}."
        check = f'case ${{FABRIC:-all}} in all | {known}) ;; *) echo "{message}" && exit 2 ;; esac\n'
        skip = '    case ${FABRIC:-all} in all | "$label") ;; *) continue ;; esac\n'
        several = len(labels) > 1 and self._usual.toggled
        named = "    label=${execution#*-} label=${label%-r*}\n"
        port = " port=$((20000 + RANDOM % 9000))" if self._pairs else ""
        return (
            f"\n{check if several else ''}status=0{port}\nfor execution in {names}; do\n"
            f"{named if several or '$label' in body else ''}"
            f'{skip if several else ""}{body}done\nexit "$status"\n'
        )

    def _bodies(self) -> tuple[str, str]:
        """Return the environment that all configurations share, as an array, and the body of the loop over executions.

        Configurations that differ in their environments alone share the commands.
        """
        environments = {each.configuration.label: self._environment(each) for each in self._plan.executions}
        arrays = ("clean", "env")[: len(environments)] if all(environments.values()) else ()
        bodies: dict[str, str] = {}
        for execution in self._plan.executions:
            label, body = execution.configuration.label, self._body(execution, arrays)
            if bodies.setdefault(label, body) != body:
                raise RequestError(
                    f"The repeats of {label} differ, which a short script cannot express.", hint="Add --supervised."
                )
        if not arrays:
            return "", _case(bodies)
        clean, own = _shared(environments)
        named = {word.partition("=")[0] for words in environments.values() for word in words}
        reasons = "".join(f"# {name}: {why}.\n" for name, why in REASONS.items() if name in named)
        about = f"# What an image or a profile sets must not change what is measured.\n{reasons}"
        text = about + _array("clean", clean, "")
        arms = {label: _array("env", env) for label, env in own.items()}
        if len({*bodies.values()}) > 1:
            return text, _case({label: arm + bodies[label] for label, arm in arms.items()})
        steps = textwrap.indent(textwrap.dedent(next(iter(bodies.values()))), "    ")
        return text, (_case(arms) if len(arms) > 1 else "") + steps

    def _environment(self, execution: Execution) -> tuple[str, ...]:
        """Return the environment of the ranks of an execution, if all have the same, and no container its own."""
        self._target = self._usual.of(execution.configuration.variant)
        commands = [command for step in execution.steps if step.shape is Shape.MPI for command in step.commands]
        environments = {tuple(self._env(command)) for command in commands}
        alike = len(environments) == 1 and all(step.shape is Shape.MPI for step in execution.steps)
        return environments.pop() if alike and not any(self._usual.insides) else ()

    def _body(self, execution: Execution, arrays: Sequence[str]) -> str:
        """Return the steps of an execution. `arrays` hold the environment of its ranks, if it is not among them."""
        self._target = self._usual.of(execution.configuration.variant)
        shapes = {step.shape for step in execution.steps}
        if not shapes <= {Shape.PAIR, Shape.MPI}:
            raise RequestError(f"A script cannot run a step of shape {' and '.join(shapes)}.")
        text = _array("container", self._target.inside) if any(self._usual.insides) else ""
        if shapes == {Shape.MPI}:
            steps = (self._ranks(step, arrays) for step in execution.steps)
            return text + "".join(steps if arrays else self._of_ranks(execution.steps))
        if shapes != {Shape.PAIR}:
            raise RequestError("Ranks and pairs cannot be mixed in a script.")
        return text + self._of_pairs(execution)

    def _of_ranks(self, steps: Sequence[Step]) -> Iterator[str]:
        """Yield the steps, each preceded by the environment of its ranks if that changes."""
        before: tuple[str, ...] = ()
        for step in steps:
            environments = {tuple(self._env(command)) for command in step.commands}
            if len(environments) == 1 and environments != {before}:
                (before,) = environments
                yield _array("env", before)
            yield self._ranks(step, ("env",) if len(environments) == 1 else ())

    def _env(self, command: Command) -> Iterator[str]:
        """Yield the words of env for a command: variables to unset, and variables to set."""
        families = [match[0] for name in command.unset if (match := _PREFIX.match(name))]
        whole = {name for name in families if families.count(name) >= _FAMILY}
        if whole:
            removed = " ".join(f'"${{!{name}@}}"' for name in sorted(whole))
            yield from ("bash", "-c", f'unset {removed}; exec "$@"', "-")
        yield "env"
        for name in command.unset:
            if not name.startswith(tuple(whole)):
                yield from ("-u", name)
        for name, value in {**self._target.env, **command.env}.items():
            # Without a debug file, debug lines are printed.
            if "{folder}" not in value:
                yield f"{name}={value}"

    def _ranks(self, step: Step, arrays: Sequence[str]) -> str:
        """Return a step, with the arrays that hold the environment of its ranks."""
        words: list[str] = ["step", *self._named(step), _array_of(self._launch(step))]
        for number, command in enumerate(step.commands):
            words += [":"] if number else []
            if self._target.ranks is RankStarter.MPIRUN:
                words += ["-np", variable("ranks") if self._scales else str(command.ranks)]
            elif any(self._usual.insides):
                words += [_array_of("container")]
            words += map(_array_of, arrays) if arrays else self._env(command)
            words += ["stdbuf", "-oL", *self._argv(step, command)]
        return _command(words)

    def _argv(self, step: Step, command: Command) -> Iterator[str]:
        program = command.argv[0]
        yield self._target.programs.get(program, program)
        for before, word in pairwise(command.argv):
            name = word.removeprefix("{folder}/")
            if name != word and name in step.files and program == "python3":
                packed = base64.b64encode(zlib.compress(step.files[name].encode(), 9)).decode()
                text = _PACKED.format(text=packed)
                yield from ("-c", variable(self._programs.setdefault(text, re.sub(r"\W", "_", name))))
            elif "{folder}" in word:
                raise RequestError(f"A short script cannot make files ({word}).", hint="Add --supervised.")
            elif before in {"-b", "-e"} and self._plan.benchmark == "nccl":
                yield format_size(int(word)).replace(" ", "").removesuffix("B")
            else:
                yield word.replace("{server}", self._address())

    def _launch(self, step: Step) -> str:
        """Return the array that starts the ranks of a step."""
        hosts = self._mpi_hosts()
        if self._target.ranks is RankStarter.SRUN:
            words = srun(step, hosts)
            start = [words[0], "--label", *self._target.extra, *words[1 : words.index("env")]]
        else:
            start = [self._target.mpirun, *options(step, hosts), *self._target.extra]
        if self._scales:
            names = ",".join(f"{name}:{self._each}" for name in hosts.addresses)
            known = {
                names: variable("where"),
                f"--nodes={self._plan.hosts}": f"--nodes={variable('#hosts[@]')}",
                f"--ntasks={self._each * self._plan.hosts}": f"--ntasks={variable('ranks')}",
            }
            start = [known.get(word, word) for word in start]
        first = "srun" if self._target.ranks is RankStarter.SRUN else "mpirun"
        number = len(self._launches) + 1
        return self._launches.setdefault(tuple(start), first if number == 1 else f"{first}_{number}")

    def _mpi_hosts(self) -> MpiHosts:
        names = tuple(variable(f"hosts[{number}]") for number in range(self._plan.hosts))
        return MpiHosts(
            mpi=Mpi(program=self._target.mpirun, kind=MpiKind.OPEN_MPI_4, version=""),
            addresses=("localhost",) if self._alone else names,
            interface=self._target.interface,
            forward=("PATH", "LD_LIBRARY_PATH", *self.inherited),
            programs=self._target.programs,
        )

    @property
    def _alone(self) -> bool:
        return self._plan.hosts == 1 and self._usual.here

    def _address(self) -> str:
        return "127.0.0.1" if self._alone else variable("hosts[0]")

    def _of_pairs(self, execution: Execution) -> str:
        sides = [self._side(step, command) for step in execution.steps for command in step.commands]
        columns = zip(*sides, strict=False)
        shared = [words[0] for words in takewhile(lambda words: len({*words}) == 1, columns)]
        text = _array("common", shared)
        if execution.together:
            before, after = f"{_INDENT}folder=$(mktemp -d)\n", (f"{_INDENT}{each}\n" for each in _TOGETHER)
            pairs = (
                f'{self._pair(step, len(shared)).rstrip()} >"$folder/{number:03}" &\n'
                for number, step in enumerate(execution.steps)
            )
            return "".join((before, text, *pairs, *after))
        names = _varying(execution.steps)
        template = self._template(execution.steps, names) if names else None
        if template is None:
            return text + "".join(self._pair(step, len(shared)) for step in execution.steps)
        rows = (quote(" ".join(str(step.facts[name]) for name in names)) for step in execution.steps)
        loop = wrapped(["for each in", *rows], _INDENT, "    ") + f"; do\n{_INDENT}    "
        loop += f'read -r {" ".join(names)} <<<"$each"\n'
        return f"{text}{loop}{self._pair(template, len(shared), _INDENT + '    ')}{_INDENT}done\n"

    def _pair(self, step: Step, shared: int, indent: str = _INDENT) -> str:
        """Return a pair; its first `shared` words are in the array `common`."""
        text = f"{indent}port=$((port + 1))\n"
        for command in step.commands:
            rest = self._side(step, command)[shared:]
            text += _array(command.role, [_array_of("common"), *rest], indent)
        client = next(each for each in step.commands if each.role == "client")
        words = ["step", *self._named(step), "pair", str(client.host), str(math.ceil(step.timeout_s))]
        return text + _command(words, indent)

    def _template(self, steps: Sequence[Step], names: Sequence[str]) -> Step | None:
        """Return one step for all, with variables for the named facts; None if they differ in more."""
        first, *others = (_unfilled(step, names) for step in steps)
        return first if all(step == first for step in others) else None

    def _side(self, step: Step, command: Command) -> list[str]:
        if step.files or any("{folder}" in word for word in command.argv):
            raise RequestError(f"A script cannot include the files of a pair ({step.label}).")
        if command.role == "server" and command.host:
            raise RequestError(f"The server of {step.label} runs on the host {command.host}, not the first.")
        known = {"{port}": variable("port"), "{server}": self._address()}
        ready = command.filled("", known)
        program = self._target.programs.get(ready.argv[0], ready.argv[0])
        return [*self._env(command), program, *ready.argv[1:]]

    def _named(self, step: Step) -> tuple[str, str]:
        if self._scales:
            step = replace(step, facts={**step.facts, "ranks": variable("ranks")})
        facts = (
            f"{name}={value}" if str(value) == variable(name) else marker_words({name: value})
            for name, value in step.facts.items()
        )
        return step.id.partition("/")[2], " ".join(facts)


def _varying(steps: Sequence[Step]) -> tuple[str, ...]:
    """Return the names of the facts that differ between steps, if they can be variables of a shell."""
    if len(steps) < _LOOP or len({tuple(step.facts) for step in steps}) > 1:
        return ()
    names = [name for name in steps[0].facts if len({step.facts[name] for step in steps}) > 1]
    values = (str(step.facts[name]) for step in steps for name in names)
    plain = all(re.fullmatch(r"[\w.:-]+", value) for value in values)
    return tuple(names) if plain and {*names} <= {"size", "iterations", "device", "domain", "test"} else ()


def _unfilled(step: Step, names: Sequence[str]) -> Step:
    """Return a step with variables in place of the values of facts."""
    values = {str(step.facts[name]): variable(name) for name in reversed(names)}
    commands = (
        replace(command, argv=tuple(values.get(word, word) for word in command.argv)) for command in step.commands
    )
    execution, _, name = step.id.partition("/")
    facts = {**step.facts, **{name: variable(name) for name in names}}
    return replace(step, id=f"{execution}/{values.get(name, name)}", label="", commands=tuple(commands), facts=facts)


def _shared(environments: Mapping[str, Sequence[str]]) -> tuple[list[str], dict[str, list[str]]]:
    """Return the words of env that all have in common, and those that each has besides."""
    split = {label: _parts(words) for label, words in environments.items()}
    everywhere = [part for part in next(iter(split.values())) if all(part in parts for parts in split.values())]
    own = {
        label: [part for part in parts if part not in everywhere or part == ("env",)] for label, parts in split.items()
    }
    return [*chain.from_iterable(everywhere)], {label: [*chain.from_iterable(parts)] for label, parts in own.items()}


def _parts(words: Sequence[str]) -> list[tuple[str, ...]]:
    """Split the words of `_Script._env`: what starts env, env itself, options, variables."""
    start = words.index("env")
    parts = [tuple(words[:start])] if start else []
    rest = iter(words[start + 1 :])
    return [*parts, ("env",), *((word, next(rest)) if word == "-u" else (word,) for word in rest)]


def _case(arms: Mapping[str, str]) -> str:
    """Return the choice between the texts of configurations; one of a single line stands behind its label."""
    text = ""
    for label, arm in arms.items():
        line = arm.strip()
        text += f"    {quote(label)})" + (f" {line} ;;\n" if "\n" not in line else f"\n{arm}{_INDENT};;\n")
    return f"    case $label in\n{text}    esac\n"


def _array_of(name: str) -> str:
    return variable(f"{name}[@]")


def _command(words: Sequence[str], indent: str = _INDENT) -> str:
    return wrapped([quote(word) for word in words], indent, "    ", width=_WIDTH) + "\n"


def _array(name: str, words: Sequence[str], indent: str = _INDENT) -> str:
    text = wrapped([quote(word) for word in words], indent, "    ", "\n", _WIDTH)
    return f"{indent}{name}=({text.strip()})\n"
