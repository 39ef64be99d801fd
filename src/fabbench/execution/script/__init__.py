"""Plan → one bash script as a person would write it, for hosts known only when it runs. Pure.

It prints what `fabbench.execution.runner` yields: the same commands, environment and marker lines.
Debug lines are printed, not written to files: its output has the proof of the transport. `fabbench
render` prints what is submitted.
"""

import math
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
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
# Functions are arguments:
# shellcheck disable=SC2016,SC2034,SC2043,SC2046,SC2054,SC2154,SC2317,SC2329
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
counters='cd /; grep -sH "" proc/uptime proc/net/{{dev,snmp}} \\
    sys/class/net/*/{{operstate,speed,device/uevent}} sys/class/infiniband/*/device/uevent \\
    sys/class/infiniband/*/ports/*/{{rate,state,link_layer,*counters/*}} proc/uptime'
nics() {{ # WHEN: print what every host's NICs have counted, packed
    for number in "${{!hosts[@]}}"; do
        local host=${{hosts[number]}}
        packed=$(on "$number" timeout 10 bash -c "$counters" </dev/null 2>/dev/null |
            gzip | base64 -w 0)
        echo "{MARKER_SIGN}nics $execution when=$1 number=$number host=$host $facts packed=$packed"
    done
}}
"""
_PAIR = f"""
side() {{ # ROLE NUMBER SECONDS WORD…: run one side of a pair
    on "$2" timeout --foreground -k 10 "$3" "${{@:4}}" 2>&1 |
        sed -u "s/^/{tag_line("$1", text="")[:-1]} /"
}}

pair() ( # HOST SECONDS: start the server on the first host and, once it listens, the client on HOST
    set -m -o pipefail
    trap 'exit 143' TERM
    # Whole process groups:
    trap '{{ for job in $(jobs -p); do kill -- "-$job"; done; wait; }} 2>/dev/null' EXIT
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
_INDENT = "        "
_AFTER_TOGETHER = f"""\
{_INDENT}wait
{_INDENT}cat "$folder"/*
{_INDENT}! grep -h '^{MARKER_SIGN}end' "$folder"/* | grep -qv ' 0$' || status=4
{_INDENT}rm -r "$folder"
"""
_LOOP = 3  # From this many steps of the same kind on, they are written as a loop
_ON_ALONE = """
on() { exec "${@:2}"; } # NUMBER WORD…: become a program
"""
_AGENT = """\
export OMPI_MCA_plm_rsh_agent="$agent" OMPI_MCA_plm_rsh_no_tree_spawn=1 # Open MPI 4
export PRTE_MCA_plm_ssh_agent="$agent" PRTE_MCA_plm_ssh_no_tree_spawn=1 # and 5
"""
_REQUIRE = (
    'for folder in "${@:1:$0}"; do '
    '[ -d "$folder" ] || { echo "fabbench: $folder is not on $(uname -n)"; exit 127; }; '
    'done; exec "${@:$(($0 + 1))}"'
)
_PROGRAM = """\
{name}=$(cat <<'PYTHON'
{text}
PYTHON
)
"""
_ELSEWHERE = "fabbench run --on ssh needs no script, and can do it."


def script(plan: Plan, target: ScriptTarget) -> str:
    """Return the script, which begins with its interpreter and comments.

    Its exit status is 0 if every step ended with 0, 4 if one did not. Raise RequestError for plans
    that it cannot run.
    """
    body = script_body(plan, target)
    several = len(plan.configurations) > 1
    toggle = " FABRIC=LABEL runs one configuration alone." if several else ""
    about = _ABOUT.replace("@TOGGLE@", toggle)
    return f"#!/usr/bin/env bash\n{target.head}{about}{body}"


def script_body(plan: Plan, target: ScriptTarget) -> str:
    """Return the script without its first lines, for inclusion in another document."""
    return "".join(_Script(plan, target).texts())


def headline(plan: Plan) -> str:
    """Return a sentence that describes the script of a plan."""
    configurations = " and ".join(configuration.label for configuration in plan.configurations)
    repeats = max((execution.repeat for execution in plan.executions), default=1)
    repeated = f", {repeats} repeats" if repeats > 1 else ""
    hosts = counted(plan.hosts, "host")
    what = f"{plan.benchmark} on {configurations}{repeated}, {hosts}"
    return f"Generated by fabbench {__version__}: {what}."


class _Script:
    def __init__(self, plan: Plan, target: ScriptTarget) -> None:
        self._plan = plan
        self._usual_target = target
        """How nodes are reached, without what variants change."""
        self._target = target
        """The same for the variant whose execution is being written."""
        self._launch_arrays: dict[tuple[str, ...], str] = {}
        """The words that start ranks → the array that holds them."""
        self._programs: dict[str, str] = {}  # Text of a program → the variable that holds it
        self._steps = tuple(step for execution in plan.executions for step in execution.steps)
        self._has_pairs = any(step.pair for step in self._steps)
        ranks = {step.commands[0].ranks for step in self._steps}
        self._ranks_per_host = 0  # 0: steps differ in their number of ranks
        if len(ranks) == 1:
            self._ranks_per_host = ranks.pop() // plan.hosts
        collective = all(map(self._is_collective, self._steps))
        self._scales = collective and not self._alone
        """Whether it takes as many nodes as there are: programs other than a collective do not."""
        self._counts_nics = target.inventory is not None and not self._alone
        """Whether it prints the counters of NICs."""
        names = chain.from_iterable(map(inherited, self._steps))
        self.inherited = tuple(dict.fromkeys(names))
        self._refuse_if_impossible()

    def _is_collective(self, step: Step) -> bool:
        """Return whether a step is one collective over the same number of ranks on all hosts."""
        if step.pair or len(step.commands) != 1:
            return False
        everywhere = step.facts.get("ranks") == self._ranks_per_host * self._plan.hosts
        return everywhere and "collective" in step.facts

    def _refuse_if_impossible(self) -> None:
        """Raise RequestError if a script cannot run the plan."""
        target = self._usual_target
        if target.ranks_by_srun and len(target.mpiruns) > 1:
            mpiruns = " and ".join(target.mpiruns)
            raise RequestError(
                f"srun starts the ranks, but variants set {mpiruns}.",
                hint="Start them with mpirun: --mpi mpirun.",
            )
        if target.contained and not target.ranks_by_srun:
            raise RequestError(
                "mpirun does not start containers.", hint="Start the ranks with srun: --mpi srun."
            )
        by_ssh = self._has_pairs and not target.programs_by_srun and not self._alone
        # Inherited variables may be secrets, and would stand in the words of ssh.
        if by_ssh and self.inherited:
            names = ", ".join(self.inherited)
            raise RequestError(
                f"ssh in a script does not pass on {names} without showing its value.",
                hint=_ELSEWHERE,
            )

    def texts(self) -> Iterator[str]:
        """Yield the sections of the script in their order.

        The body, though last, is written first: it collects the launch commands, inherited
        variables and programs that the sections before it declare.
        """
        environment, body = self._bodies()
        yield "set -um; exec 2>&1 # errors belong to the log\n"
        yield self._usual_target.opening
        launches = ""
        for words, name in self._launch_arrays.items():
            launches += array(name, words, indent="")
        names_hosts = "hosts[" in body or "hosts[" in launches
        # Only a script that names its hosts, or goes to them, takes and counts them.
        if not self._alone and (
            names_hosts or self._has_pairs or self._scales or self._counts_nics
        ):
            fewest = 2 if self._scales else self._plan.hosts
            yield self._usual_target.hosts.replace("@HOSTS@", str(fewest))
            yield self._number_of_nodes()
        yield from (f'export {name}="${{{name}:?is not set}}"\n' for name in self.inherited)
        yield from self._exports_for_mpirun()
        yield launches
        yield environment
        for text, name in self._programs.items():
            yield _PROGRAM.format(name=name, text=text)
        at_exit = "; ".join(filter(None, (_END, self._usual_target.at_exit)))
        yield _STEP.replace("@EXIT@", quote(at_exit))
        if self._has_pairs or self._counts_nics:
            yield self._function_on()
        yield _NICS if self._counts_nics else ""
        if self._has_pairs:
            look = _LOOK if self._usual_target.here else f"(on 0 {_LOOK})"
            yield _PAIR.replace("@LOOK@", look)
        yield self._loop(body)

    def _number_of_nodes(self) -> str:
        """Return the lines that take as many ranks as the hosts give, or refuse other hosts."""
        if self._scales:
            per_host = self._ranks_per_host
            # `where` is what mpirun's -H gets: HOST:RANKS,HOST:RANKS,…
            where = f"where=$(printf ',%s:{per_host}' \"${{hosts[@]}}\") where=${{where:1}}"
            needed = "" if self._usual_target.ranks_by_srun else f" {where}"
            return f"ranks=$(({per_host} * ${{#hosts[@]}})){needed} # {per_host} per node\n"
        count = self._plan.hosts
        nodes = counted(count, "node")
        return (
            f'[ "${{#hosts[@]}}" = {count} ] || {{ echo "This measures {nodes}, and there are '
            '${#hosts[@]}. Render it again with --nodes." && exit 3; }\n'
        )

    def _exports_for_mpirun(self) -> Iterator[str]:
        """Yield exports for mpirun: what it passes on by name, and how it starts its daemons."""
        if not self._launch_arrays or self._usual_target.ranks_by_srun:
            return
        yield 'export LD_LIBRARY_PATH="${LD_LIBRARY_PATH:-}"\n'
        agent = self._usual_target.agent
        if agent and self._mpi_kind is MpiKind.HYDRA:
            options = quote(" ".join(agent[1:]))
            yield f"export HYDRA_LAUNCHER_EXTRA_ARGS={options}\n"
        elif agent:
            whole = quote(" ".join(agent))
            yield f"agent={whole}\n{_AGENT}"

    def _function_on(self) -> str:
        """Return the bash function `on`, which starts a program on one node."""
        if self._alone:
            return _ON_ALONE
        if self._usual_target.programs_by_srun:
            container = (
                ' "${container[@]}"' if self._has_pairs and self._usual_target.contained else ""
            )
            srun_there = " ".join(("srun", *SRUN)) + container
            return _ON_NODE.replace("@SRUN@", srun_there)
        words = ("ssh", "-n", *self._usual_target.ssh)
        ssh = " ".join(map(quote, words))
        text = _ON_HOST if self._usual_target.here else _ON_HOST.replace(_HERE, "")
        return text.replace("@SSH@", ssh)

    def _loop(self, body: str) -> str:
        """Return the loop over executions, each of which `body` runs, and the exit status."""
        labels = [configuration.label for configuration in self._plan.configurations]
        chosen = len(labels) > 1 and self._usual_target.chosen_by_variable  # FABRIC
        names = " ".join(quote(execution.id) for execution in self._plan.executions)
        port = " port=$((20000 + RANDOM % 9000))" if self._has_pairs else ""
        text = "\n"
        if chosen:
            known = " | ".join(map(quote, labels))
            listed = ", ".join(labels)
            text += f"case ${{FABRIC:-all}} in all | {known}) ;; "
            text += f'*) echo "FABRIC is $FABRIC, but this has {listed}." && exit 2 ;; esac\n'
        text += f"status=0{port}\nfor execution in {names}; do\n"
        if chosen or "$label" in body:
            # An execution is named NUMBER-LABEL-rREPEAT.
            text += "    label=${execution#*-} label=${label%-r*}\n"
        if chosen:
            text += '    case ${FABRIC:-all} in all | "$label") ;; *) continue ;; esac\n'
        return f'{text}{body}done\nexit "$status"\n'

    def _bodies(self) -> tuple[str, str]:
        """Return the environment that all configurations share, and the body of the loop.

        The environment is an array. Configurations that differ in their environments alone share
        the commands: `arms`, the lines of each for the choice by its label, are only what differs.
        """
        executions = {each.configuration.label: each for each in self._plan.executions}
        environments = {label: self._environment(each) for label, each in executions.items()}
        # `clean` is what all have in common, `env` what one has besides. An execution whose steps
        # have different environments has none here.
        arrays: tuple[str, ...] = ()
        if all(environments.values()):
            arrays = ("clean", "env") if len(environments) > 1 else ("clean",)
        bodies = self._body_of_each(arrays)
        arms = {label: self._line_of_facts(each) for label, each in executions.items()}
        before = "    nics before\n" if self._counts_nics else ""
        after = "    nics after\n" if self._counts_nics else ""
        if not arrays:
            # The environment stands in the steps: these differ between configurations too.
            count = f"    {before}" if before else ""
            for label, body in bodies.items():
                arms[label] += count + body
            return "", self._choice_of_configuration(arms) + after
        clean, added = shared_environment(environments)
        if "env" in arrays:
            for label, words in added.items():
                arms[label] += array("env", words, _INDENT)
        shared = self._comments_on_variables(environments) + array("clean", clean, indent="")
        if len(set(bodies.values())) == 1:
            (body,) = set(bodies.values())  # Once for all, behind the choice
            return shared, self._choice_of_configuration(arms) + before + body + after
        for label, body in bodies.items():
            arms[label] += textwrap.indent(before + body, "    ")
        return shared, self._choice_of_configuration(arms) + after

    def _body_of_each(self, arrays: Sequence[str]) -> dict[str, str]:
        """Return the steps of each configuration. Raise RequestError if its repeats differ."""
        bodies: dict[str, str] = {}
        for execution in self._plan.executions:
            label = execution.configuration.label
            body = self._body(execution, arrays)
            if bodies.setdefault(label, body) != body:
                raise RequestError(
                    f"The repeats of {label} differ, which a script does not express.",
                    hint=_ELSEWHERE,
                )
        return bodies

    @staticmethod
    def _comments_on_variables(environments: Mapping[str, Sequence[str]]) -> str:
        """Return comments that say why variables are set or unset."""
        words = chain.from_iterable(environments.values())
        named = {word.partition("=")[0] for word in words}
        text = "# What an image or a profile sets must not change what is measured.\n"
        for name, why in REASONS.items():
            if name in named:
                text += f"# {name}: {why}.\n"
        return text

    def _choice_of_configuration(self, arms: dict[str, str]) -> str:
        """Return the choice between configurations; of one alone, its text."""
        if len(arms) > 1:
            return case(arms)
        (text,) = arms.values()
        return textwrap.indent(textwrap.dedent(text), "    ")

    def _line_of_facts(self, execution: Execution) -> str:
        """Return the line with what the NICs of a configuration are judged against.

        Empty if the script does not read their counters.
        """
        if self._usual_target.inventory is None or not self._counts_nics:
            return ""
        hosts = self._usual_target.inventory.hosts_for_variant(execution.configuration.variant)
        facts = quote(expected_facts(execution, hosts))
        return f"{_INDENT}facts={facts}\n"

    def _environment(self, execution: Execution) -> tuple[str, ...]:
        """Return the environment of the ranks of an execution, if all have the same.

        Empty also if it has pairs, or containers, which have their own. From here on `_target` is
        that of the execution's variant.
        """
        self._target = self._usual_target.of(execution.configuration.variant)
        if self._usual_target.contained or any(step.pair for step in execution.steps):
            return ()
        commands = chain.from_iterable(step.commands for step in execution.steps)
        environments = {tuple(self._env_words(command)) for command in commands}
        return environments.pop() if len(environments) == 1 else ()

    def _body(self, execution: Execution, arrays: Sequence[str]) -> str:
        """Return the steps of an execution: of ranks, or of pairs.

        `arrays` hold the environment of all its ranks; if there are none, it stands in the steps.
        """
        self._target = self._usual_target.of(execution.configuration.variant)
        text = (
            array("container", self._target.inside, _INDENT) if self._usual_target.contained else ""
        )
        pairs = {step.pair for step in execution.steps}
        if pairs == {True}:
            return text + self._body_of_pairs(execution)
        if pairs != {False} or execution.together:
            raise RequestError("Ranks and pairs cannot be mixed in a script.")
        if not arrays:
            return text + "".join(self._body_of_ranks(execution.steps))
        for step in execution.steps:
            text += self._step_of_ranks(step, arrays, "    ")
        return text

    def _body_of_ranks(self, steps: Sequence[Step]) -> Iterator[str]:
        """Yield the steps, each preceded by the environment of its ranks if that changes.

        It is written as the bash array `env`, which steps refer to.
        """
        before: tuple[str, ...] = ()  # of no step: a real one has at least the word `env`
        for step in steps:
            environments = {tuple(self._env_words(command)) for command in step.commands}
            if len(environments) > 1:  # each command of the step has its own environment in it
                yield self._step_of_ranks(step, arrays=(), indent=_INDENT)
                continue
            (environment,) = environments
            if environment != before:
                before = environment
                yield array("env", environment, _INDENT)
            yield self._step_of_ranks(step, ("env",), _INDENT)

    def _env_words(self, command: Command) -> Iterator[str]:
        """Yield the words of env for a command: variables to unset, and variables to set."""
        # If they were missing, the libraries of the host would be measured.
        if folders := self._target.folders:
            yield from ("bash", "-c", _REQUIRE, str(len(folders)), *folders)
        yield "env"
        for name in command.unset:
            yield from ("-u", name)
        for name, value in command.env.items():
            # Without a debug file, debug lines are printed.
            if "{folder}" not in value:
                yield f"{name}={value}"

    def _step_of_ranks(self, step: Step, arrays: Sequence[str], indent: str) -> str:
        """Return a step. The environment of its ranks is in `arrays`; without any, in the step."""
        seconds = str(math.ceil(step.timeout_s))
        words: list[str] = ["step", *self._name_and_facts(step)]
        words += ("timeout", "--foreground", "-k", "10", seconds)
        words.append(array_of(self._launch_array(step)))
        for number, each in enumerate(step.commands):
            if number:  # mpirun's sign between programs
                words.append(":")
            words += self._words_before_env(each)
            words += map(array_of, arrays) if arrays else self._env_words(each)
            words += ("stdbuf", "-oL", *self._words_of_program(step, each))
        return command(words, indent)

    def _words_before_env(self, command: Command) -> tuple[str, ...]:
        """Return the words before the environment of a command's ranks."""
        if self._target.ranks_by_srun:
            return (array_of("container"),) if self._usual_target.contained else ()
        return ("-np", variable("ranks") if self._scales else str(command.ranks))

    def _words_of_program(self, step: Step, command: Command) -> Iterator[str]:
        """Yield a program and its arguments; what Python would run from a file is an argument."""
        program = command.argv[0]
        yield self._target.programs.get(program, program)
        for before, word in pairwise(command.argv):
            name = word.removeprefix("{folder}/")
            is_file = name != word and name in step.files
            if is_file and program == "python3":
                yield "-c"
                yield self._variable_of_program(name, step.files[name])
            else:
                yield self._word_in_script(before, word)

    def _word_in_script(self, before: str, word: str) -> str:
        """Return a word of a command, which stands after another one, as the script has it."""
        if "{folder}" in word:
            raise RequestError(f"A script does not make files ({word}).", hint=_ELSEWHERE)
        # The sizes of nccl-tests are in bytes: 8M is easier to read.
        if before in {"-b", "-e"} and self._plan.benchmark == "nccl":
            return format_size(int(word)).replace(" ", "").removesuffix("B")
        return word.replace("{server}", self._server_address())

    def _variable_of_program(self, name: str, program: str) -> str:
        """Return the variable that holds a program in Python."""
        holder = self._programs.setdefault(program.rstrip(), re.sub(r"\W", "_", name))
        return variable(holder)

    def _launch_array(self, step: Step) -> str:
        """Return the name of the array that starts the ranks of a step; equal steps share it."""
        hosts = self._mpi_hosts()
        if self._target.ranks_by_srun:
            words = srun(step, hosts)
            of_ranks = words.index("env")
            start = [words[0], *self._target.extra, *words[1:of_ranks]]
        else:
            start = [
                self._target.mpirun,
                *options(step, hosts),
                *self._target.extra,
            ]
        if self._scales:
            # In place of the plan's numbers, those of the hosts that there are.
            places = ",".join(f"{name}:{self._ranks_per_host}" for name in hosts.addresses)
            nodes = self._plan.hosts
            ranks = self._ranks_per_host * nodes
            variables = {
                places: variable("where"),
                f"--nodes={nodes}": "--nodes=" + variable("#hosts[@]"),
                f"--ntasks={ranks}": "--ntasks=" + variable("ranks"),
            }
            start = [variables.get(word, word) for word in start]
        first = "srun" if self._target.ranks_by_srun else "mpirun"
        number = len(self._launch_arrays) + 1
        name = first if number == 1 else f"{first}_{number}"
        return self._launch_arrays.setdefault(tuple(start), name)

    @property
    def _mpi_kind(self) -> MpiKind:
        if PurePath(self._target.mpirun).name == "mpiexec.hydra":
            return MpiKind.HYDRA
        return MpiKind.OPEN_MPI_4  # Or 5: they differ only in the agent's options, not given here

    def _mpi_hosts(self) -> MpiHosts:
        # Hosts are elements of the bash array `hosts`, which the script fills where it runs.
        names = tuple(variable(f"hosts[{number}]") for number in range(self._plan.hosts))
        return MpiHosts(
            mpi=Mpi(program=self._target.mpirun, kind=self._mpi_kind, version=""),
            addresses=("localhost",) if self._alone else names,
            interface=self._target.interface,
            forward=("PATH", "LD_LIBRARY_PATH", *self.inherited),
            programs=self._target.programs,
        )

    @property
    def _alone(self) -> bool:
        """Whether the script runs on the only node, which nothing has to reach."""
        return self._plan.hosts == 1 and self._usual_target.here

    def _server_address(self) -> str:
        return "127.0.0.1" if self._alone else variable("hosts[0]")

    def _body_of_pairs(self, execution: Execution) -> str:
        """Return steps of pairs: all concurrently, as a loop over what differs, or one by one.

        The words with which all sides begin are in the array `common`.
        """
        sides = [
            self._words_of_side(step, command)
            for step in execution.steps
            for command in step.commands
        ]
        columns = zip(*sides, strict=False)
        shared = [words[0] for words in takewhile(_are_alike, columns)]
        text = array("common", shared, _INDENT)
        if execution.together:
            text = f"{_INDENT}folder=$(mktemp -d)\n{text}"
            for number, step in enumerate(execution.steps):
                name = format(number, "03")
                text += self._step_of_pair(step, len(shared), concurrent=f' >"$folder/{name}" &')
            return text + _AFTER_TOGETHER
        names = _varying_facts(execution.steps)
        template = self._template(execution.steps, names) if names else None
        if template is None:
            for step in execution.steps:
                text += self._step_of_pair(step, len(shared))
            return text
        rows: list[str] = []
        for step in execution.steps:
            values = " ".join(str(step.facts[name]) for name in names)
            rows.append(quote(values))
        read = " ".join(names)
        text += wrapped(["for each in", *rows], _INDENT) + "; do\n"
        text += f'{_INDENT}    read -r {read} <<<"$each"\n'
        text += self._step_of_pair(template, len(shared), f"{_INDENT}    ")
        return f"{text}{_INDENT}done\n"

    def _step_of_pair(
        self, step: Step, shared: int, indent: str = _INDENT, concurrent: str = ""
    ) -> str:
        """Return a pair; the first `shared` words of its sides are in `common`.

        `concurrent` is what follows a pair in the background: where its output goes.
        """
        text = f"{indent}port=$((port + 1))\n"
        for each in step.commands:
            rest = self._words_of_side(step, each)[shared:]
            text += array(each.role, [array_of("common"), *rest], indent)
        client = next(each for each in step.commands if each.role == "client")
        if "{address}" in str(client.argv):
            # The server's IPv4 address, as the host of the client resolves its name.
            look = f"on {client.host} getent ahostsv4 {quote(self._server_address())}"
            text = f"{indent}address=$({look} </dev/null | head -n 1 | cut -d' ' -f1)\n{text}"
        seconds = str(math.ceil(step.timeout_s))
        named = self._name_and_facts(step)
        words = ["step", *named, "pair", str(client.host), seconds]
        if not concurrent:
            return text + command(words, indent)
        text += f"{indent}(\n{indent}    trap {quote(_END)} EXIT TERM\n"
        text += command(words, f"{indent}    ")
        return f"{text}{indent}){concurrent}\n"

    def _template(self, steps: Sequence[Step], names: Sequence[str]) -> Step | None:
        """Return one step for all, with variables for named facts; None: they differ in more."""
        first, *others = (_with_variables(step, names) for step in steps)
        return first if all(step == first for step in others) else None

    def _words_of_side(self, step: Step, command: Command) -> list[str]:
        """Return the words of one side. Raise RequestError if a script cannot run it."""
        needs_folder = any("{folder}" in word for word in command.argv)
        if step.files or needs_folder:
            raise RequestError(f"A script does not make files ({step.label}).", hint=_ELSEWHERE)
        if command.role == "server" and command.host:
            raise RequestError(
                f"The server of {step.label} runs on the host {command.host}, not the first."
            )
        values = {"{port}": variable("port"), "{server}": self._server_address()}
        values["{address}"] = variable("address")
        name, *arguments = command.filled(folder="", values=values).argv
        program = self._target.programs.get(name, name)
        return [*self._env_words(command), program, *arguments]

    def _name_and_facts(self, step: Step) -> tuple[str, str]:
        """Return a step's name without its execution's, and its facts as a marker has them."""
        if self._scales:
            step = replace(step, facts={**step.facts, "ranks": variable("ranks")})
        _, _, name = step.id.partition("/")
        facts = [_marker_word(fact, value) for fact, value in step.facts.items()]
        return name, " ".join(facts)


def _marker_word(name: str, value: str | int) -> str:
    if str(value) == variable(name):  # A shell fills it in: it must not be quoted here
        return f"{name}={value}"
    return marker_words({name: value})


def _are_alike(words: Sequence[str]) -> bool:
    return len(set(words)) == 1


_PLAIN_VALUE = re.compile(r"[\w.:-]+")
_CAN_VARY = frozenset({"size", "iterations", "device", "domain", "test"})


def _varying_facts(steps: Sequence[Step]) -> tuple[str, ...]:
    """Return the facts that differ between steps, if they can be variables of a shell.

    Empty: the steps are too few for a loop, or differ in more than that.
    """
    names_of_facts = {tuple(step.facts) for step in steps}
    if len(steps) < _LOOP or len(names_of_facts) > 1:
        return ()
    varying: list[str] = []
    for name in steps[0].facts:
        values = {str(step.facts[name]) for step in steps}
        if len(values) == 1:
            continue
        if name not in _CAN_VARY or not all(map(_PLAIN_VALUE.fullmatch, values)):
            return ()
        varying.append(name)
    return tuple(varying)


def _with_variables(step: Step, names: Sequence[str]) -> Step:
    """Return a step with variables in place of the values of facts."""
    variable_of_value: dict[str, str] = {}
    for fact in reversed(names):  # Of facts with the same value, the first counts
        variable_of_value[str(step.facts[fact])] = variable(fact)
    commands = [
        replace(command, argv=tuple(variable_of_value.get(word, word) for word in command.argv))
        for command in step.commands
    ]
    # A step may be named after a fact, such as its size.
    execution, _, name = step.id.partition("/")
    filled = variable_of_value.get(name, name)
    facts = {**step.facts, **{fact: variable(fact) for fact in names}}
    return replace(
        step,
        id=f"{execution}/{filled}",
        label="",
        commands=tuple(commands),
        facts=facts,
    )
