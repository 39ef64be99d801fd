"""Plan → one bash script as a person would write it, on hosts that are known only when it runs.

Pure.

It prints what `fabbench.execution.runner` yields: the same commands, environment and marker lines.
Debug lines are printed, not written to files: its output has the proof of the transport. `fabbench
render` prints what is submitted.
"""

import base64
import math
import re
import textwrap
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain, pairwise, takewhile
from pathlib import PurePath

from fabbench import __version__
from fabbench.catalog.nccl_environment import REASONS
from fabbench.counters.execution_counters import expected_facts
from fabbench.execution.mpirun import MpiHosts, inherited, options, srun
from fabbench.execution.script.target import SRUN, ScriptTarget
from fabbench.execution.script.words import (
    array,
    array_of,
    case,
    command,
    quote,
    shared_environment,
    variable,
    wrapped,
)
from fabbench.model.errors import RequestError
from fabbench.model.hosts import Mpi, MpiKind
from fabbench.model.log import MARKER_SIGN, marker_words, tag_line
from fabbench.model.messages import counted
from fabbench.model.plan import Command, Execution, Plan, Step
from fabbench.model.units import format_size

_ABOUT = """\
# fabbench parse and compare read what this prints.@TOGGLE@
# shellcheck disable=SC2016,SC2034,SC2043,SC2046,SC2054,SC2154,SC2317,SC2329 # functions are arguments
"""
# mpirun gets one SIGTERM, and then ends its ranks: at a second one, it gives them up. Hence
# --foreground.
_END = "{ kill $(jobs -p); wait; } 2>/dev/null"
_STEP = f"""
trap @EXIT@ EXIT
trap 'echo "fabbench: The script was stopped by a signal."; exit 143' INT HUP TERM
step() {{ # NAME FACTS COMMAND…: run a command between marker lines
    echo "{MARKER_SIGN}begin $execution/$1 $2" || exit 74 # the disk is full
    "${{@:3}}" </dev/null &
    if wait "$!"; then code=0; else code=$? status=4; fi
    echo "{MARKER_SIGN}end $execution/$1 $code"
}}
"""
_NICS = f"""
counters='cd /; grep -sH "" proc/uptime proc/net/{{dev,snmp}} sys/class/net/*/{{operstate,speed,device/uevent}} \\
    sys/class/infiniband/*/{{device/uevent,ports/*/{{rate,state,link_layer,*counters/*}}}} proc/uptime'
nics() {{ # WHEN: print what every host's NICs have counted, packed
    for number in "${{!hosts[@]}}"; do
        packed=$(on "$number" timeout 10 bash -c "$counters" </dev/null 2>/dev/null | gzip | base64 -w 0)
        echo "{MARKER_SIGN}nics $execution when=$1 number=$number host=${{hosts[number]}} $facts packed=$packed"
    done
}}
"""
_PAIR = f"""
side() {{ # ROLE NUMBER SECONDS WORD…: run one side of a pair
    on "$2" timeout --foreground -k 10 "$3" "${{@:4}}" 2>&1 | sed -u "s/^/{tag_line("$1", "")[:-1]} /"
}}

pair() ( # HOST SECONDS: start the server on the first host and, once it listens, the client on HOST
    set -m -o pipefail
    trap 'exit 143' TERM
    trap '{{ for job in $(jobs -p); do kill -- "-$job"; done; wait; }} 2>/dev/null' EXIT # whole process groups
    side server 0 "$2" "${{server[@]}}" &
    started=$!
    for _ in {{1..100}}; do
        @LOOK@ && break
        kill -0 "$started" 2>/dev/null || break
        sleep 0.2
    done
    side client "$1" "$2" "${{client[@]}}" &
    wait "$!" || exit
    wait "$started"
)
"""
_LOOK = 'grep -qs ":$(printf %04X "$port") .*:0000 0A " /proc/net/tcp /proc/net/tcp6'
_HERE = """\
    [ "$host" != "${hosts[0]}" ] || exec "${words[@]}"
"""
_ON_HOST = f"""
on() {{ # NUMBER WORD…: become a program on a host
    local host=${{hosts[$1]}} words=("${{@:2}}")
{_HERE}    exec @SSH@ "$host" "${{words[*]@Q}}"
}}
"""
_ON_NODE = """
on() { exec @SRUN@ -w "${hosts[$1]}" -- "${@:2}"; } # NUMBER WORD…
"""
_TOGETHER = (
    "wait",
    'cat "$folder"/*',
    f"! grep -h '^{MARKER_SIGN}end' \"$folder\"/* | grep -qv ' 0$' || status=4",
    'rm -r "$folder"',
)
_INDENT = "        "
_LOOP = 3  # From this many steps of the same kind on, they are written as a loop
_ON_ALONE = """
on() { exec "${@:2}"; } # NUMBER WORD…: become a program
"""
_AGENT = """\
export OMPI_MCA_plm_rsh_agent="$agent" OMPI_MCA_plm_rsh_no_tree_spawn=1 # Open MPI 4
export PRTE_MCA_plm_ssh_agent="$agent" PRTE_MCA_plm_ssh_no_tree_spawn=1 # and 5
"""
_REQUIRE = (
    'for folder in "${@:1:$0}"; do [ -d "$folder" ] || { echo "fabbench: $folder is not on '
    '$(uname -n)"; exit 127; }; '
    'done; exec "${@:$(($0 + 1))}"'
)
_PACKED = "import base64, zlib; exec(zlib.decompress(base64.b64decode('{text}')))"
_ELSEWHERE = "fabbench run --on ssh needs no script, and can do it."


def script(plan: Plan, target: ScriptTarget) -> str:
    """Return the script, which begins with its interpreter and comments.

    Its exit status is 0 if every step ended with 0, 4 if one did not. Raise RequestError for plans
    that it cannot run.
    """
    body = script_body(plan, target)
    several = " FABRIC=LABEL runs one configuration alone." if len(plan.configurations) > 1 else ""
    return f"#!/usr/bin/env bash\n{target.head}{_ABOUT.replace('@TOGGLE@', several)}{body}"


def script_body(plan: Plan, target: ScriptTarget) -> str:
    """Return the script without its first lines, for inclusion in another document."""
    return "".join(_Script(plan, target).texts())


def headline(plan: Plan) -> str:
    """Return a sentence that describes the script of a plan."""
    configurations = " and ".join(configuration.label for configuration in plan.configurations)
    repeats = max((execution.repeat for execution in plan.executions), default=1)
    each = f", {repeats} repeats" if repeats > 1 else ""
    hosts = counted(plan.hosts, "host")
    return (
        f"Generated by fabbench {__version__}: {plan.benchmark} on {configurations}{each}, {hosts}."
    )


class _Script:
    def __init__(self, plan: Plan, target: ScriptTarget) -> None:
        self._plan, self._usual, self._target = plan, target, target
        self._launches: dict[
            tuple[str, ...], str
        ] = {}  # The words that start ranks → the array that holds them
        self._programs: dict[str, str] = {}  # Text of a program → the variable that holds it
        if target.ranks_by_srun and len(target.mpiruns) > 1:
            raise RequestError(
                f"srun starts the ranks, but variants set {' and '.join(target.mpiruns)}.",
                hint="Start them with mpirun: --mpi mpirun.",
            )
        if target.contained and not target.ranks_by_srun:
            raise RequestError(
                "mpirun does not start containers.", hint="Start the ranks with srun: --mpi srun."
            )
        self._steps = tuple(step for execution in plan.executions for step in execution.steps)
        self._pairs = any(step.pair for step in self._steps)
        ranks = {step.commands[0].ranks for step in self._steps}
        # A collective takes the nodes that there are; other programs are for these.
        self._each = ranks.pop() // plan.hosts if len(ranks) == 1 else 0
        self._scales = not self._alone and all(
            not step.pair
            and len(step.commands) == 1
            and "collective" in step.facts
            and step.facts.get("ranks") == self._each * plan.hosts
            for step in self._steps
        )
        self._counts = target.inventory is not None and not self._alone
        self.inherited = tuple(dict.fromkeys(chain.from_iterable(map(inherited, self._steps))))
        if self._pairs and self.inherited and not (target.programs_by_srun or self._alone):
            names = ", ".join(self.inherited)
            raise RequestError(
                f"ssh in a script does not pass on {names} without showing its value.",
                hint=_ELSEWHERE,
            )

    def texts(self) -> Iterator[str]:
        clean, body = self._bodies()
        yield "set -um; exec 2>&1 # errors belong to the log\n"
        yield self._usual.opening
        launches = "".join(array(name, words, "") for words, name in self._launches.items())
        if not self._alone and (
            "hosts[" in body + launches or self._pairs or self._scales or self._counts
        ):
            yield self._usual.hosts.replace("@HOSTS@", str(2 if self._scales else self._plan.hosts))
            yield self._count()
        yield from (f'export {name}="${{{name}:?is not set}}"\n' for name in self.inherited)
        yield from self._exports()
        yield launches
        yield clean
        yield from (f"{name}={quote(text)}\n" for text, name in self._programs.items())
        yield _STEP.replace("@EXIT@", quote("; ".join(filter(None, (_END, self._usual.at_exit)))))
        if self._pairs or self._counts:
            yield self._on()
        yield _NICS if self._counts else ""
        if self._pairs:
            yield _PAIR.replace("@LOOK@", _LOOK if self._usual.here else f"(on 0 {_LOOK})")
        yield self._loop(body)

    def _count(self) -> str:
        """Return the lines that take as many ranks as the hosts give, or refuse other hosts than planned."""
        if self._scales:
            each = self._each
            where = f"where=$(printf ',%s:{each}' \"${{hosts[@]}}\") where=${{where:1}}"
            needed = "" if self._usual.ranks_by_srun else f" {where}"
            return f"ranks=$(({each} * ${{#hosts[@]}})){needed} # {each} per node\n"
        count = self._plan.hosts
        return (
            f'[ "${{#hosts[@]}}" = {count} ] || {{ echo "This measures {counted(count, "node")}, '
            "and there are "
            '${#hosts[@]}. Render it again with --nodes." && exit 3; }\n'
        )

    def _exports(self) -> Iterator[str]:
        if not self._launches or self._usual.ranks_by_srun:
            return
        yield 'export LD_LIBRARY_PATH="${LD_LIBRARY_PATH:-}"\n'
        if agent := self._usual.agent:
            if self._kind is MpiKind.HYDRA:
                yield f"export HYDRA_LAUNCHER_EXTRA_ARGS={quote(' '.join(agent[1:]))}\n"
            else:
                yield f"agent={quote(' '.join(agent))}\n{_AGENT}"

    def _on(self) -> str:
        if self._alone:
            return _ON_ALONE
        if self._usual.programs_by_srun:
            container = ' "${container[@]}"' if self._pairs and self._usual.contained else ""
            return _ON_NODE.replace("@SRUN@", " ".join(("srun", *SRUN)) + container)
        there = " ".join(map(quote, ("ssh", "-n", *self._usual.ssh)))
        return (_ON_HOST if self._usual.here else _ON_HOST.replace(_HERE, "")).replace(
            "@SSH@", there
        )

    def _loop(self, body: str) -> str:
        labels = [configuration.label for configuration in self._plan.configurations]
        known = " | ".join(map(quote, labels))
        names = " ".join(quote(execution.id) for execution in self._plan.executions)
        message = f"FABRIC is $FABRIC, but this has {', '.join(labels)}."
        check = (
            f'case ${{FABRIC:-all}} in all | {known}) ;; *) echo "{message}" && exit 2 ;; esac\n'
        )
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
        environments = {
            each.configuration.label: self._environment(each) for each in self._plan.executions
        }
        arrays = ("clean", "env")[: len(environments)] if all(environments.values()) else ()
        bodies: dict[str, str] = {}
        facts: dict[str, str] = {}
        for execution in self._plan.executions:
            label, body = execution.configuration.label, self._body(execution, arrays)
            facts[label] = self._facts(execution)
            if bodies.setdefault(label, body) != body:
                raise RequestError(
                    f"The repeats of {label} differ, which a script does not express.",
                    hint=_ELSEWHERE,
                )
        before, after = ("    nics before\n", "    nics after\n") if self._counts else ("", "")
        if not arrays:
            arms = {
                label: facts[label] + (before and f"    {before}") + body
                for label, body in bodies.items()
            }
            return "", self._arms(arms) + after
        clean, own = shared_environment(environments)
        named = {word.partition("=")[0] for words in environments.values() for word in words}
        reasons = "".join(f"# {name}: {why}.\n" for name, why in REASONS.items() if name in named)
        about = f"# What an image or a profile sets must not change what is measured.\n{reasons}"
        text = about + array("clean", clean, "")
        arms = {
            label: facts[label] + (array("env", env, _INDENT) if "env" in arrays else "")
            for label, env in own.items()
        }
        if len({*bodies.values()}) > 1:
            of_each = {
                label: textwrap.indent(before + body, "    ") for label, body in bodies.items()
            }
            return text, self._arms(
                {label: arm + of_each[label] for label, arm in arms.items()}
            ) + after
        return text, self._arms(arms) + before + next(iter(bodies.values())) + after

    def _arms(self, arms: dict[str, str]) -> str:
        """Return the choice between configurations; of one alone, its text."""
        if len(arms) > 1:
            return case(arms)
        return textwrap.indent(textwrap.dedent("".join(arms.values())), "    ")

    def _facts(self, execution: Execution) -> str:
        """Return the line with what the NICs of a configuration are judged against."""
        if self._usual.inventory is None or not self._counts:
            return ""
        hosts = self._usual.inventory.hosts_for_variant(execution.configuration.variant)
        return f"{_INDENT}facts={quote(expected_facts(execution, hosts))}\n"

    def _environment(self, execution: Execution) -> tuple[str, ...]:
        """Return the environment of the ranks of an execution, if all have the same, and no container its own."""
        self._target = self._usual.of(execution.configuration.variant)
        commands = [
            command for step in execution.steps if not step.pair for command in step.commands
        ]
        environments = {tuple(self._env(command)) for command in commands}
        alike = len(environments) == 1 and not any(step.pair for step in execution.steps)
        return environments.pop() if alike and not self._usual.contained else ()

    def _body(self, execution: Execution, arrays: Sequence[str]) -> str:
        """Return the steps of an execution.

        `arrays` hold the environment of its ranks, if it is not among them.
        """
        self._target = self._usual.of(execution.configuration.variant)
        pairs = {step.pair for step in execution.steps}
        text = array("container", self._target.inside, _INDENT) if self._usual.contained else ""
        if pairs == {False} and not execution.together:
            steps = (self._ranks(step, arrays, _INDENT[4:]) for step in execution.steps)
            return text + "".join(steps if arrays else self._of_ranks(execution.steps))
        if pairs != {True}:
            raise RequestError("Ranks and pairs cannot be mixed in a script.")
        return text + self._of_pairs(execution)

    def _of_ranks(self, steps: Sequence[Step]) -> Iterator[str]:
        """Yield the steps, each preceded by the environment of its ranks if that changes."""
        before: tuple[str, ...] = ()
        for step in steps:
            environments = {tuple(self._env(command)) for command in step.commands}
            if len(environments) == 1 and environments != {before}:
                (before,) = environments
                yield array("env", before, _INDENT)
            yield self._ranks(step, ("env",) if len(environments) == 1 else (), _INDENT)

    def _env(self, command: Command) -> Iterator[str]:
        """Yield the words of env for a command: variables to unset, and variables to set."""
        if (
            folders := self._target.folders
        ):  # without them, the libraries of the host would be measured
            yield from ("bash", "-c", _REQUIRE, str(len(folders)), *folders)
        yield "env"
        for name in command.unset:
            yield from ("-u", name)
        for name, value in command.env.items():
            # Without a debug file, debug lines are printed.
            if "{folder}" not in value:
                yield f"{name}={value}"

    def _ranks(self, step: Step, arrays: Sequence[str], indent: str) -> str:
        """Return a step, with the arrays that hold the environment of its ranks."""
        limit = str(math.ceil(step.timeout_s))
        words: list[str] = [
            "step",
            *self._named(step),
            "timeout",
            "--foreground",
            "-k",
            "10",
            limit,
            array_of(self._launch(step)),
        ]
        for number, each in enumerate(step.commands):
            words += [":"] if number else []
            if not self._target.ranks_by_srun:
                words += ["-np", variable("ranks") if self._scales else str(each.ranks)]
            elif self._usual.contained:
                words += [array_of("container")]
            words += map(array_of, arrays) if arrays else self._env(each)
            words += ["stdbuf", "-oL", *self._argv(step, each)]
        return command(words, indent)

    def _argv(self, step: Step, command: Command) -> Iterator[str]:
        program = command.argv[0]
        yield self._target.programs.get(program, program)
        for before, word in pairwise(command.argv):
            name = word.removeprefix("{folder}/")
            if name != word and name in step.files and program == "python3":
                packed = base64.b64encode(zlib.compress(step.files[name].encode(), 9)).decode()
                text = _PACKED.format(text=packed)
                yield from (
                    "-c",
                    variable(self._programs.setdefault(text, re.sub(r"\W", "_", name))),
                )
            elif "{folder}" in word:
                raise RequestError(f"A script does not make files ({word}).", hint=_ELSEWHERE)
            elif before in {"-b", "-e"} and self._plan.benchmark == "nccl":
                yield format_size(int(word)).replace(" ", "").removesuffix("B")
            else:
                yield word.replace("{server}", self._address())

    def _launch(self, step: Step) -> str:
        """Return the array that starts the ranks of a step."""
        hosts = self._mpi_hosts()
        if self._target.ranks_by_srun:
            words = srun(step, hosts)
            start = [words[0], *self._target.extra, *words[1 : words.index("env")]]
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
        first = "srun" if self._target.ranks_by_srun else "mpirun"
        number = len(self._launches) + 1
        return self._launches.setdefault(
            tuple(start), first if number == 1 else f"{first}_{number}"
        )

    @property
    def _kind(self) -> MpiKind:
        return (
            MpiKind.HYDRA
            if PurePath(self._target.mpirun).name == "mpiexec.hydra"
            else MpiKind.OPEN_MPI_4
        )

    def _mpi_hosts(self) -> MpiHosts:
        names = tuple(variable(f"hosts[{number}]") for number in range(self._plan.hosts))
        return MpiHosts(
            mpi=Mpi(program=self._target.mpirun, kind=self._kind, version=""),
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
        text = array("common", shared, _INDENT)
        if execution.together:
            before, after = (
                f"{_INDENT}folder=$(mktemp -d)\n",
                (f"{_INDENT}{each}\n" for each in _TOGETHER),
            )
            pairs = (
                self._pair(step, len(shared), concurrent=f' >"$folder/{number:03}" &')
                for number, step in enumerate(execution.steps)
            )
            return "".join((before, text, *pairs, *after))
        names = _varying(execution.steps)
        template = self._template(execution.steps, names) if names else None
        if template is None:
            return text + "".join(self._pair(step, len(shared)) for step in execution.steps)
        rows = (
            quote(" ".join(str(step.facts[name]) for name in names)) for step in execution.steps
        )
        loop = wrapped(["for each in", *rows], _INDENT) + f"; do\n{_INDENT}    "
        loop += f'read -r {" ".join(names)} <<<"$each"\n'
        return f"{text}{loop}{self._pair(template, len(shared), _INDENT + '    ')}{_INDENT}done\n"

    def _pair(self, step: Step, shared: int, indent: str = _INDENT, concurrent: str = "") -> str:
        """Return a pair; its first `shared` words are in the array `common`.

        `concurrent` is its redirection.
        """
        text = f"{indent}port=$((port + 1))\n"
        for each in step.commands:
            rest = self._side(step, each)[shared:]
            text += array(each.role, [array_of("common"), *rest], indent)
        client = next(each for each in step.commands if each.role == "client")
        words = [
            "step",
            *self._named(step),
            "pair",
            str(client.host),
            str(math.ceil(step.timeout_s)),
        ]
        if concurrent:
            inner = f"{indent}    trap {quote(_END)} EXIT TERM\n{command(words, indent + '    ')}"
            return f"{text}{indent}(\n{inner}{indent}){concurrent}\n"
        return text + command(words, indent)

    def _template(self, steps: Sequence[Step], names: Sequence[str]) -> Step | None:
        """Return one step for all, with variables for the named facts.

        None if they differ in more.
        """
        first, *others = (_unfilled(step, names) for step in steps)
        return first if all(step == first for step in others) else None

    def _side(self, step: Step, command: Command) -> list[str]:
        if step.files or any("{folder}" in word for word in command.argv):
            raise RequestError(f"A script does not make files ({step.label}).", hint=_ELSEWHERE)
        if command.role == "server" and command.host:
            raise RequestError(
                f"The server of {step.label} runs on the host {command.host}, not the first."
            )
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
    return (
        tuple(names)
        if plain and {*names} <= {"size", "iterations", "device", "domain", "test"}
        else ()
    )


def _unfilled(step: Step, names: Sequence[str]) -> Step:
    """Return a step with variables in place of the values of facts."""
    values = {str(step.facts[name]): variable(name) for name in reversed(names)}
    commands = (
        replace(command, argv=tuple(values.get(word, word) for word in command.argv))
        for command in step.commands
    )
    execution, _, name = step.id.partition("/")
    facts = {**step.facts, **{name: variable(name) for name in names}}
    return replace(
        step,
        id=f"{execution}/{values.get(name, name)}",
        label="",
        commands=tuple(commands),
        facts=facts,
    )
