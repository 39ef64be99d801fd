"""Scripts as text, and how their words are quoted. Scripts that run: tests/integration/script."""

import subprocess
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabbench.execution.script import script
from fabbench.execution.script.target import READ_MPIJOB, READ_SLURM, ScriptTarget
from fabbench.execution.script.words import command, variable
from fabbench.model.errors import RequestError
from fabbench.model.log import begin_marker
from fabbench.model.plan import Command, Step
from tests.support.golden import GOLDEN, assert_golden
from tests.support.script_plans import WAY, inventory, nccl, of_steps, pair, pingpong

WAYS = [
    WAY,
    ScriptTarget(
        hosts=READ_SLURM,
        ranks_by_srun=True,
        programs_by_srun=True,
        extra=("--container-image=a b",),
    ),
    ScriptTarget(
        hosts=READ_MPIJOB,
        here=False,
        interface="eth0",
        agent=("ssh", "-F", "/tmp/x y"),
        extra=("--a", "b"),
    ),
    replace(WAY, inventory=inventory(), at_exit="true"),
    replace(WAY, mpirun="/opt/mpich/bin/mpiexec.hydra", agent=("ssh", "-p", "22")),
]
PLANS = [
    nccl("ofi-tcp", "tcp", env={"NOTE": "a 'b' \"c\" $d\n`e` \u00fc \\"}),
    pingpong("tcp"),
    of_steps(
        pair(("a", "{port}"), ("b", "{port}", "{server}")), pair(("c",), ("d",), "b"), together=True
    ),
]
WORDS = st.lists(
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12),
    max_size=6,
)


def joined(text: str) -> str:
    return " ".join(text.replace("\\\n", " ").split())


@pytest.mark.parametrize("way", WAYS)
def test_bash_reads_every_script(way: ScriptTarget) -> None:
    for of in PLANS:
        done = subprocess.run(
            ["bash", "-n"], input=script(of, way), capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stderr) == (0, "")


def test_a_small_script() -> None:
    of = of_steps(
        pair(("fi_pingpong", "-B", "{port}"), ("fi_pingpong", "-P", "{port}", "{server}"))
    )
    assert_golden(GOLDEN / "small-script.sh", script(of, WAY))


def test_nics_are_judged_by_what_each_configuration_was_to_use() -> None:
    text = script(pingpong("tcp", repeats=1), replace(WAY, inventory=inventory()))
    assert "facts='fabric=tcp chosen=fab0 expected=1 among=all'\n    nics before\n" in text
    assert "nics" not in script(pingpong("tcp"), WAY)
    assert "nics" not in script(
        of_steps(pair(("a",), ("b",)), hosts=1), replace(WAY, inventory=inventory(1))
    )


def test_every_step_has_its_time_limit() -> None:
    assert 'ranks=${ranks}" timeout --foreground -k 10 601 "${mpirun[@]}"' in joined(
        script(nccl("tcp", timeout_s=600.5), WAY)
    )
    assert "step a '' pair 1 20" in script(of_steps(pair(("a",), ("b",))), WAY)


@pytest.mark.parametrize(
    ("program", "option"),
    [("mpirun", "--mca plm"), ("/opt/openmpi/bin/mpirun", "-x PATH"), ("mpiexec.hydra", "")],
)
def test_the_kind_of_mpirun_is_recognized_by_its_name(program: str, option: str) -> None:
    text = joined(script(nccl("tcp"), replace(WAY, mpirun=program)))
    assert ("-genvlist PATH,LD_LIBRARY_PATH" in text) == (program == "mpiexec.hydra")
    assert ("-x PATH -x LD_LIBRARY_PATH" in text) == (program != "mpiexec.hydra"), option


def test_srun_starts_the_ranks_of_the_allocation() -> None:
    text = joined(script(nccl("tcp"), WAYS[1]))
    assert "srun=(srun '--container-image=a b' --mpi=pmix" in text
    assert "mpirun" not in text


@pytest.mark.parametrize(
    ("step", "said"),
    [
        (replace(pair(("a",), ("b",)), files={"x": "y"}), "does not make files"),
        (
            replace(pair(("a",), ("b",)), commands=(Command(argv=("a", "{folder}/b")),)),
            "make files",
        ),
    ],
)
def test_what_a_script_cannot_do_is_refused(step: Step, said: str) -> None:
    with pytest.raises(RequestError, match=said):
        script(of_steps(step), WAY)


@given(WORDS)
def test_every_word_arrives_as_it_is(words: list[str]) -> None:
    """Quoted once for the script, and once more, by the script, for the shell of another host."""
    printed = ["printf", r"%s\0", *words, variable("a"), f"x{variable('a')} y"]
    text = 'a="A $1"\nthere() { words=("$@"); bash -c "${words[*]@Q}"; }\n'
    text += command(printed, "") + command(["there", *printed], "")
    done = subprocess.run(["bash", "-c", text, "bash", "b"], capture_output=True, check=True)
    arrived = [*words, "A b", "xA b y"]
    assert done.stdout.decode().split("\0")[:-1] == arrived * 2


def test_markers_are_those_of_every_other_run() -> None:
    of = pingpong("tcp", repeats=1)
    step = of.executions[0].steps[0]
    facts = begin_marker(step.id, step.facts).removeprefix(f"#@fabbench begin {step.id} ")
    assert f'step 64 "{facts}"' in joined(script(of, WAY)).replace("'", '"')
