"""Apps of Modal.

What the real package makes of them, and what they do in containers that hosts stand for.
"""

import ast
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from click.testing import Result

from fabbench.cli import cli
from fabbench.launchers.modal.render import literal
from fabbench.model.log import Outcome
from tests.support.command_line import runner
from tests.support.host_fixtures import STANDIN, Labs, Mpi
from tests.support.hosts import HOME, Host
from tests.support.paths import EXAMPLES, FAKE_PROGRAMS
from tests.support.read_logs import read
from tests.support.script_plans import printed
from tests.support.secrets_watch import VALUE

EXAMPLE = EXAMPLES / "modal_nccl.py"
STANDIN_MODAL = FAKE_PROGRAMS / "modal/modal.py"
TYPE = ("--instance-type", "p5.48xlarge")


def render(*words: str) -> Result:
    return runner().invoke(cli, ["render", *words, "--as", "modal"])


def constants(app: str) -> dict[str, object]:
    """What an app sets, as Python reads it."""
    nodes = (node for node in ast.parse(app).body if isinstance(node, ast.Assign))
    pairs = ((ast.unparse(node.targets[0]), node.value) for node in nodes)
    return {name: ast.literal_eval(value) for name, value in pairs if name.isupper()}


def test_the_example_is_what_render_prints() -> None:
    done = render("nccl", "--ab", *TYPE)
    assert len(done.output.splitlines()) <= 150
    assert done.output == EXAMPLE.read_text("utf-8"), (
        f"To update it: fabbench render nccl --ab --instance-type p5.48xlarge --as modal >{EXAMPLE}"
    )


@pytest.mark.slow
@pytest.mark.parametrize("benchmark", ["nccl", "torch", "pingpong"])
def test_modal_itself_reads_an_app(benchmark: str, tmp_path: Path) -> None:
    inherited = () if benchmark == "pingpong" else ("--env", "MY_TOKEN")  # which ssh would show
    (tmp_path / "app.py").write_text(render(benchmark, "--ab", *TYPE, *inherited).output)
    # It imports the file, makes the App with its functions, and reads the entry point: without an
    # account.
    words = [
        sys.executable,
        "-W",
        "error",
        "-m",
        "modal",
        "run",
        str(tmp_path / "app.py"),
        "--help",
    ]
    env = {"HOME": str(tmp_path), "MY_TOKEN": VALUE}
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=env)
    assert (done.returncode, done.stderr) == (0, "")
    assert "--fabric TEXT" in done.stdout


@pytest.mark.parametrize("benchmark", ["nccl", "torch", "pingpong"])
def test_the_script_in_an_app_is_a_script(benchmark: str) -> None:
    text = str(constants(render(benchmark, "--ab", *TYPE).output)["SCRIPT"])
    done = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "NCCL_SOCKET_IFNAME=^" not in text


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ((), [1, 1, 1]),
        (("--interface", "eth1"), [1, 0, 1]),
        (("--nodes", "1", "--fabric", "p2p"), [0, 0, 0]),
    ],
)
def test_containers_meet_over_one_interface_if_there_are_several(
    words: Sequence[str], found: list[int]
) -> None:
    text = str(constants(render("nccl", *TYPE, *words).output)["SCRIPT"])
    assert [each in text for each in ("sshd", "ip -brief", "export OMPI_")] == found
    assert ("\ninterface=eth1\n" in text) == ("eth1" in words)


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (("--ab", *TYPE), {"GPU": "H100!:8", "NODES": 2, "RDMA": True}),
        (("--fabric", "tcp", *TYPE, "--nodes", "4"), {"NODES": 4, "RDMA": False}),
        (("--efa", "--instance-type", "p6-b200.48xlarge"), {"GPU": "B200:8"}),
        (("--efa", *TYPE, "--gpus", "4"), {"GPU": "H100!:8"}),
        (("--efa", *TYPE, "--timeout", "60"), {"TIMEOUT_S": 720}),
        (("--ab", *TYPE, "--repeat", "99"), {"TIMEOUT_S": 24 * 3600}),
        (("--efa", *TYPE, "--image", "docker.io/me/it:1"), {"IMAGE": "docker.io/me/it:1"}),
    ],
)
def test_what_is_asked_for_is_in_the_app(words: Sequence[str], wanted: dict[str, object]) -> None:
    found = constants(render("nccl", *words).output)
    assert {name: found[name] for name in wanted} == wanted


def test_torch_comes_from_the_registry_of_packages_or_with_the_image() -> None:
    ours = render("torch", "--efa", *TYPE).output
    theirs = render("torch", "--efa", *TYPE, "--image", "docker.io/me/torch:1").output
    assert '.uv_pip_install("torch==' in ours
    assert "add_python" in ours
    assert "uv_pip_install" not in theirs
    assert "add_python" not in theirs


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--fabric", "tcp", "--gpus", "8"), "--instance-type p5.48xlarge"),
        (("--efa", "--instance-type", "p4d.24xlarge"), "p4d.24xlarge has 8 A100"),
        (("--efa", "--instance-type", "p5.4xlarge"), "p5.4xlarge has 1 H100"),
    ],
)
def test_what_modal_does_not_have_is_reported(words: Sequence[str], expected: str) -> None:
    done = render("nccl", *words)
    assert done.exit_code == 2
    assert expected in done.stderr


@pytest.mark.parametrize(
    "text",
    [
        "a\nb\n",
        'a """\n',
        "a \"\"\" ''' \\\n b",
        "\\",
        '"',
        "a\r\nb",
        "\x00\x1b\n",
        "\u00fc\u2028x",
    ],
)
def test_any_text_is_written_so_that_python_reads_it(text: str) -> None:
    assert ast.literal_eval(literal(text)) == text


# ---------------------------------------------------------------- containers


def play(
    hosts: Sequence[Host], app: Path, env: Mapping[str, str]
) -> list["subprocess.CompletedProcess[str]"]:
    """Run an app's clustered function on all hosts at once, as Modal does in its containers."""
    # The second network: NCCL and MPI would choose the first one if nobody told them.
    addresses = [host.slow_address for host in hosts]

    def container(rank: int) -> "subprocess.CompletedProcess[str]":
        words = [sys.executable, *map(str, (STANDIN_MODAL, app, rank)), *addresses]
        return hosts[rank].sh(words, check=False, timeout=120, **env)

    with ThreadPoolExecutor(len(hosts)) as pool:
        return list(pool.map(container, range(len(hosts))))


def in_containers(
    words: Sequence[str], lab: Labs, folder: Path, sshd: str = "/usr/sbin/sshd", **env: str
) -> str:
    """Run an app on two hosts, see that all is well, and give what its first container printed.

    `sshd` stands in for the container's. `env` is what a Secret of Modal's brings into the
    containers.
    """
    site = lab(2, homes="own", share=(folder,), fresh=True)
    app = folder / "app.py"
    text = render(*words, "--fabric", "tcp", *TYPE, "--repeat", "2").stdout
    assert "/usr/sbin/sshd" in text
    app.write_text(text.replace("/usr/sbin/sshd", sshd))
    first, other = play(site.hosts, app, env)
    assert (first.returncode, first.stderr) == (0, ""), first.stdout
    assert (other.returncode, other.stdout, other.stderr) == (0, "", "")
    assert [log.outcome for log in read(first.stdout)] == [Outcome.OK] * 2
    if words[0] == "pingpong":
        assert [*printed(first.stdout).traffic()] == [host.slow_address for host in site.hosts]
    assert (
        site[1].path(HOME / ".nccl.conf").read_text()
        == f"NCCL_HOSTID=modal{site[1].slow_address}\n"
    )
    return first.stdout


RANKS = ("nccl", "--gpus", "2", "-e", "1K", "--bin-dir", str(STANDIN))


@pytest.mark.lab
@pytest.mark.slow
def test_containers_find_each_other_by_mpirun(lab: Labs, mpi: Mpi, tmp_path: Path) -> None:
    if mpi.name == "mpich":
        pytest.skip("its name is mpirun: a script takes it for Open MPI's")
    printed = in_containers((*RANKS, "--mpirun", str(mpi.mpirun)), lab, tmp_path)
    assert {log.facts["hosts"] for log in read(printed)} == {2}
    assert "NET/Socket : Using [0]fab1:" in printed
    assert "NET/Socket : Using [0]fab0:" not in printed


@pytest.mark.lab
@pytest.mark.slow
def test_containers_find_each_other_by_ssh(lab: Labs, tmp_path: Path) -> None:
    words = ("pingpong", "--size", "64", "--iterations", "100", "--bin-dir", "/usr/bin")
    assert "198.18.2.10" in in_containers(words, lab, tmp_path)


@pytest.mark.lab
@pytest.mark.slow
def test_the_first_container_waits_until_sshd_listens_in_the_others(
    lab: Labs, tmp_path: Path
) -> None:
    sshd = tmp_path / "sshd"
    sshd.write_text('#!/bin/sh\nsleep 2; exec /usr/sbin/sshd "$@"\n')
    sshd.chmod(0o755)
    words = ("pingpong", "--size", "64", "--iterations", "100", "--bin-dir", "/usr/bin")
    in_containers(words, lab, tmp_path, sshd=str(sshd))
