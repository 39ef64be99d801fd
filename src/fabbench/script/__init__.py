"""Plan → one bash script that runs all of it, on hosts that are known only when it runs. Pure.

The script's own part is here and in steps.py; what is the same in every script is library.sh. It prints what
`fabbench.drive` gives: the same markers, tags and lines; so its output is read like any other log.
"""

import shlex
from collections.abc import Iterator
from importlib.resources import files

from fabbench import __version__
from fabbench.counters import printed
from fabbench.counters.snapshot import SNAPSHOT
from fabbench.errors import RequestError
from fabbench.model import Plan
from fabbench.script.quoting import comment, line, quote, wrapped
from fabbench.script.steps import Steps
from fabbench.script.way import Ranks, Reach, Way

__all__ = ["Ranks", "Reach", "Way", "headline", "script"]


def script(plan: Plan, way: Way) -> str:
    """Write the script. Its exit status is 0 if every step ended with 0; 4 if one did not.

    Raises RequestError for what cannot be run by a script.
    """
    steps = Steps(plan, way)
    parts = (
        "#!/usr/bin/env bash\n",
        way.header,
        comment(headline(plan)),
        comment(f"FABRIC={plan.arms[0].label} runs that arm alone. fabbench parse reads what this prints."),
        "# shellcheck disable=SC1003,SC2016,SC2034,SC2317,SC2329 # text for other shells; called by name\n",
        "set -u\n\n",
        (files(__name__) / "library.sh").read_text("utf-8"),
        "\n# ---------------------------------------------------------------- this plan\n\n",
        *_hosts(plan, way),
        _reach(plan, way),
        _snapshot(way),
        *steps.texts(),
        _toggle(plan),
        _BEGIN,
        way.opening,
        steps.required(),
        *(_trial(plan, index, steps.functions[index], way) for index in range(len(plan.trials))),
        "heed\n",
        way.closing,
        '[ -n "$all_well" ] || exit 4\n',
    )
    return "".join(parts)


_BEGIN = """
trap finish EXIT
trap 'signal=TERM number_of_signal=15' TERM
trap 'signal=INT number_of_signal=2' INT
trap 'signal=HUP number_of_signal=1' HUP
umask 077
if ! { mkdir "$base" && mkfifo "$base/out"; }; then stop 3 "The folder $base cannot be made."; fi

"""


def headline(plan: Plan) -> str:
    """Say in words what a script of the plan is for."""
    arms = " and ".join(arm.label for arm in plan.arms)
    repeats = max((trial.repeat for trial in plan.trials), default=1)
    each = f", {repeats} repeats" if repeats > 1 else ""
    hosts = f"{plan.hosts} host{'s' if plan.hosts > 1 else ''}"
    return f"Made by fabbench {__version__}: {plan.benchmark} on {arms}{each}, {hosts}."


def _hosts(plan: Plan, way: Way) -> Iterator[str]:
    if plan.hosts == 1 and way.here:
        yield "hosts=(localhost)\n\n"
        return
    yield "hosts=()\n"
    yield "while read -r host _; do\n"
    yield "    case $host in '' | '#'*) ;; *) hosts+=(\"$host\") ;; esac\n"
    yield f"done < <({way.hosts})\n"
    yield (
        f'[ "${{#hosts[@]}}" -ge {plan.hosts} ] || '
        f'stop 3 "This needs {plan.hosts} hosts, and there are ${{#hosts[@]}}: ${{hosts[*]:-none}}."\n'
    )
    yield f'hosts=("${{hosts[@]:0:{plan.hosts}}}")\n\n'


def _reach(plan: Plan, way: Way) -> str:
    """Write the function `reach`, which starts a program on a host."""
    here = '    if [ "$number" = 0 ]; then\n        $brief "$@"\n        return\n    fi\n' if way.here else ""
    there = {
        Reach.SSH: _brief(("ssh", *way.ssh)) + ' -- "${hosts[number]}" "$(quoted "$@")"\n',
        Reach.SRUN: _brief(("srun", *_SRUN, *way.extra)) + ' --nodelist="${hosts[number]}" -- "$@"\n',
    }
    body = there[way.reach] if plan.hosts > 1 or not way.here else ""
    inside = _inside(way) if any(way.insides) else ""
    return f"reach() {{\n    local number=$1\n    shift\n{here}{body}}}\n\n{inside}"


def _brief(words: tuple[str, ...]) -> str:
    """Write a command whose time may be limited."""
    return wrapped(["$brief", *map(quote, words)])


def _inside(way: Way) -> str:
    """Write the function that starts a program in a container on a host."""
    if way.ranks is not Ranks.SRUN:
        raise RequestError("mpirun starts no container.", hint="Start the ranks with srun: --mpi srun.")
    several = len(way.insides) > 1
    container = () if several else way.insides[0]
    words = line(("srun", *_SRUN, *way.extra, *container)) + ' --nodelist="${hosts[number]}"'
    words += ' "${container[@]}"' if several else ""
    through = "" if several else "through=inside\n"
    return f'inside() {{\n    local number=$1\n    shift\n{words} -- "$@"\n}}\n{through}\n'


_SRUN = (*("--overlap", "--quiet", "--nodes=1", "--ntasks=1", "--ntasks-per-node=1", "--cpu-bind=none"),)


def _toggle(plan: Plan) -> str:
    """Write the checks of FABRIC and TRIAL, which choose what is run."""
    pattern = " | ".join(map(quote, ("all", *(arm.label for arm in plan.arms))))
    told = shlex.quote(f", and this script has {' and '.join(arm.label for arm in plan.arms)}.")
    trials = " | ".join(map(quote, ("", *(trial.id for trial in plan.trials))))
    return (
        f'case ${{FABRIC:-all}} in {pattern}) ;; *) stop 2 "FABRIC is $FABRIC"{told} ;; esac\n'
        f'case ${{TRIAL:-}} in {trials}) ;; *) stop 2 "This script has no trial $TRIAL." ;; esac\n'
    )


def _snapshot(way: Way) -> str:
    """Write the program that prints what a host's NICs have counted."""
    return f"snapshot={quote(f'{SNAPSHOT}fabbench_counters')}\n\n" if way.inventory is not None else ""


def _trial(plan: Plan, index: int, function: str, way: Way) -> str:
    trial = plan.trials[index]
    words = ["trial", trial.id, trial.arm.label, function]
    if way.inventory is not None:
        words.append(printed.asked(trial, way.inventory.seen_by(trial.arm.variant)))
    return line(words, indent="") + "\n"
