"""Scripts as text, and how their words are quoted. Hosts are in test_script_runs.py."""

import shutil
import subprocess
from dataclasses import replace
from importlib.resources import files

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fabbench import __version__, markers
from fabbench.errors import RequestError
from fabbench.model import Command, Plan, Shape, Step
from fabbench.script import Ranks, Reach, Way, script
from fabbench.script.quoting import line, variable
from fabbench.script.way import MPIJOB_HOSTS, NAMED_HOSTS, SKYPILOT_HOSTS, SLURM_HOSTS, named
from script_plans import WAY, inventory, nccl, of_steps, pair, pingpong

WAYS = [
    WAY,
    Way(hosts=SLURM_HOSTS, ranks=Ranks.SRUN, reach=Reach.SRUN, extra=("--container-image=a b",)),
    Way(hosts=SKYPILOT_HOSTS, interface="eth0", agent=("ssh", "-F", "/tmp/x y"), extra=("--mca", "a", "b")),
    Way(hosts=MPIJOB_HOSTS, here=False),
    Way(hosts=named(["10.0.0.1", "10.0.0.2"]), env={"LD_LIBRARY_PATH": "/opt/it's"}),
    replace(WAY, inventory=inventory()),
]
PLANS = [
    nccl("ofi-tcp", "tcp", env={"NOTE": "a 'b' \"c\" $d\n`e` \u00fc \\"}),
    pingpong("tcp"),
    of_steps(pair(("a", "{port}"), ("b", "{port}", "{server}")), pair(("c",), ("d",), "b"), together=True),
]
WORDS = st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12), max_size=6)


def own(text: str) -> str:
    """What is not the same in every script."""
    return text.partition("# this plan\n")[0][-300:] and text.rpartition(" this plan\n")[2]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("of", PLANS)
def test_bash_and_shellcheck_have_nothing_to_say(of: Plan, way: Way) -> None:
    text = script(of, way)
    read = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True, check=False)
    assert (read.returncode, read.stderr) == (0, "")
    if shutil.which("shellcheck") is None:
        pytest.skip("shellcheck is not there")
    checked = subprocess.run(["shellcheck", "-"], input=text, capture_output=True, text=True, check=False)
    assert checked.stdout == ""


def test_a_small_script() -> None:
    of = of_steps(pair(("fi_pingpong", "-B", "{port}"), ("fi_pingpong", "-P", "{port}", "{server}")))
    assert own(script(of, WAY)) == (
        "\nhosts=()\n"
        "while read -r host _; do\n"
        "    case $host in '' | '#'*) ;; *) hosts+=(\"$host\") ;; esac\n"
        "done < <(tr -s ' ,' '\\n' <<<\"$* ${HOSTS:-}\")\n"
        '[ "${#hosts[@]}" -ge 2 ] || stop 3 "This needs 2 hosts, and there are ${#hosts[@]}: '
        '${hosts[*]:-none}."\n'
        'hosts=("${hosts[@]:0:2}")\n'
        "\nreach() {\n"
        "    local number=$1\n"
        "    shift\n"
        '    if [ "$number" = 0 ]; then\n        $brief "$@"\n        return\n    fi\n'
        "    $brief ssh -o BatchMode=yes -o ConnectTimeout=30 -o LogLevel=ERROR "
        "-o ServerAliveInterval=15 \\\n"
        '            -o ServerAliveCountMax=4 -- "${hosts[number]}" "$(quoted "$@")"\n'
        "}\n"
        "\nsteps_1() { # tcp\n"
        "    step \"$1\"/a a 20 ''\n"
        '    server_0() {\n        on 0 env fi_pingpong -B "${port}"\n    }\n'
        '    client_0() {\n        on 1 env fi_pingpong -P "${port}" "${hosts[0]}"\n    }\n'
        "    pairs || return\n"
        "}\n"
        "\ncase ${FABRIC:-all} in all | tcp) ;; *) "
        "stop 2 \"FABRIC is $FABRIC\"', and this script has tcp.' ;; esac\n"
        "case ${TRIAL:-} in '' | 000-tcp-r1) ;; *) stop 2 \"This script has no trial $TRIAL.\" ;; esac\n"
        "\ntrap finish EXIT\n"
        "trap 'signal=TERM number_of_signal=15' TERM\ntrap 'signal=INT number_of_signal=2' INT\n"
        "trap 'signal=HUP number_of_signal=1' HUP\n"
        "umask 077\n"
        'if ! { mkdir "$base" && mkfifo "$base/out"; }; then stop 3 "The folder $base cannot be made."; fi\n'
        "\ntrial 000-tcp-r1 tcp steps_1\n"
        'heed\n[ -n "$all_well" ] || exit 4\n'
    )


def test_the_first_lines_say_what_it_is() -> None:
    lines = script(nccl("ofi-tcp", "tcp"), WAY).splitlines()
    assert lines[0] == "#!/usr/bin/env bash"
    assert lines[1] == f"# Made by fabbench {__version__}: nccl on ofi-tcp and tcp, 2 repeats, 2 hosts."


def test_arms_interleave_and_share_their_steps() -> None:
    text = script(nccl("ofi-tcp", "tcp"), WAY)
    assert [row for row in text.splitlines() if row.startswith("trial ")] == [
        "trial 000-ofi-tcp-r1 ofi-tcp steps_1",
        "trial 001-tcp-r1 tcp steps_2",
        "trial 002-tcp-r2 tcp steps_2",
        "trial 003-ofi-tcp-r2 ofi-tcp steps_1",
    ]
    assert text.count("ranks 300 mpirun_1") == 2


def test_nics_are_asked_once_and_judged_by_what_each_trial_was_to_use() -> None:
    text = script(pingpong("tcp", repeats=1), replace(WAY, inventory=inventory()))
    assert "trial 000-tcp-r1 tcp steps_1 'fabric=tcp chosen=fab0 expected=1 among=0,1'" in text
    assert text.count("proc/net/dev") == 1
    assert "proc/net/dev" not in script(pingpong("tcp"), WAY)


def test_each_kind_of_mpirun_gets_its_own_options() -> None:
    text = own(script(nccl("tcp"), WAYS[2]))
    four, rest = text.split("    'Open MPI 5')", 1)
    five, hydra = rest.split("    hydra)\n", 1)
    assert "--mca plm_rsh_agent 'ssh -F /tmp/x y'" in four.replace(" \\\n           ", "")
    assert "--prtemca plm_ssh_agent" in five
    assert '-hosts "${hosts[0]}:1,${hosts[1]}:1" -ppn 1' in hydra
    assert text.count("--mca a b") == 3 or text.count("--mca a") == 3


def test_srun_starts_the_ranks_of_the_allocation() -> None:
    text = own(script(nccl("tcp"), WAYS[1])).replace(" \\\n           ", "")
    assert (
        "ranks 300 srun '--container-image=a b' --mpi=pmix --nodes=2 --ntasks=2 --ntasks-per-node=1" in text
    )
    assert "mpirun" not in text
    assert '--nodelist="${hosts[number]}" -- "$@"' in text


def test_no_word_of_the_maker_and_no_place_of_this_machine() -> None:
    text = script(nccl("tcp"), Way(hosts=NAMED_HOSTS))
    home = str(files("fabbench"))
    assert home not in text.replace(str(WAY.programs["all_reduce_perf"]), "")


@pytest.mark.parametrize(
    ("step", "said"),
    [
        (Step(id="a/b", label="b", shape=Shape.EACH, commands=(), timeout_s=1), "shape each"),
        (
            pair(("a",), ("b",)).__class__(
                id="a/b",
                label="b",
                shape=Shape.PAIR,
                timeout_s=1,
                files={"x": "y"},
                commands=(Command(argv=("a",), role="server"), Command(argv=("b",), role="client")),
            ),
            "Files of a pair",
        ),
    ],
)
def test_what_a_script_cannot_do_is_refused(step: Step, said: str) -> None:
    with pytest.raises(RequestError, match=said):
        script(of_steps(step), WAY)


@settings(deadline=None, max_examples=40)
@given(WORDS)
def test_every_word_arrives_as_it_is(words: list[str]) -> None:
    """Quoted once for the script, and once more, by the script, for the shell of another host."""
    library = (files("fabbench.script") / "library.sh").read_text("utf-8")
    quoted = library[library.index("quoted() {") : library.index("\n}\n", library.index("quoted() {")) + 3]
    text = f'{quoted}a="A $1"\nthere() {{ sh -c "$(quoted "$@")"; }}\n'
    command = line(["printf", r"%s\0", *words, variable("a"), f"x{variable('a')} y"], indent="")
    text += f"{command}\n" + command.replace("printf", "there printf", 1) + "\n"
    done = subprocess.run(["bash", "-c", text, "bash", "b"], capture_output=True, check=True)
    arrived = [*words, "A b", "xA b y"]
    assert done.stdout.decode().split("\0")[:-1] == arrived * 2


def test_markers_are_those_of_every_other_run() -> None:
    of = pingpong("tcp", repeats=1)
    step = of.trials[0].steps[0]
    facts = markers.begin(step.id, step.facts).removeprefix(f"#@fabbench begin {step.id} ")
    assert f"step \"$1\"/64 '64 B' 60 '{facts}'" in script(of, WAY).replace(" \\\n           ", "")
