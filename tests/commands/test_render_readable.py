"""`fabbench render`: what a person would write, in every format."""

import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from fabbench.cli import cli
from fabbench.model.log import read_marker
from tests.support.command_line import runner
from tests.support.needed import need
from tests.support.paths import EXAMPLES

LONGEST = 100
LONGEST_LINE = 250  # Characters
MANIFEST = 145  # Lines of YAML and script together
FORMS = ("script", "slurm", "skypilot", "mpijob", "kubernetes", "jobset", "trainjob")
OF_INDEXED_JOBS = ("kubernetes", "jobset", "trainjob")
BENCHMARKS = (
    ("nccl", "--ab"),
    ("nvshmem", "--efa"),
    ("torch", "--ab"),
    ("pingpong", "--ab"),
    ("perftest", "--efa", "--device", "rdmap79s0"),
    ("fabtests", "--efa", "--device", "rdmap79s0", "--device", "rdmap80s0"),
    ("osu", "--ab"),
)
P5 = ("--instance-type", "p5.48xlarge")


def rendered(form: str, *words: str) -> str:
    image = () if form in {"script", "slurm"} else ("--image", "example.com/bench:1")
    done = runner().invoke(cli, ["render", *words, "--as", form, *P5, *image])
    assert (done.exit_code, done.stderr) == (0, "")
    return done.stdout


def strings(value: Any) -> Iterator[str]:
    if isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from strings(each)
    elif isinstance(value, str):
        yield value


def script_of(form: str, text: str) -> str:
    """The script in a document, as bash gets it."""
    if form in {"script", "slurm"}:
        return text
    (found,) = (each for each in strings(list(yaml.safe_load_all(text))) if "#@fabbench" in each)
    if form != "skypilot":  # Kubernetes reads $$ as $
        found = found.replace("$$", "$")
    unchecked = "# shellcheck disable=SC2016,SC2034,SC2043,SC2046,SC2054,SC2154,SC2317,SC2329\n"
    return f"#!/bin/bash\n{unchecked}{found}"


FEW = [*((form, BENCHMARKS[0]) for form in FORMS), *(("script", words) for words in BENCHMARKS[1:])]
ALL = [(form, words) for form in FORMS for words in BENCHMARKS]


@pytest.mark.parametrize(
    "files", [FEW, pytest.param(ALL, marks=pytest.mark.slow)], ids=["few", "all"]
)
def test_files_are_short_clean_and_say_how_they_were_made(
    files: list[tuple[str, tuple[str, ...]]], tmp_path: Path
) -> None:
    need("shellcheck")
    for number, (form, words) in enumerate(files):
        text = rendered(form, *words)
        # What a benchmark runs in Python stands there as it is.
        lines = re.sub(r"(?s)<<'PYTHON'\n.*?\n\s*PYTHON\n", "\n", text).splitlines()
        assert max(map(len, lines)) <= LONGEST_LINE, (form, words)
        others = {"script": LONGEST, "slurm": LONGEST, "skypilot": 140}
        most = others.get(form, MANIFEST)
        assert len(lines) <= most, (form, words)
        if words == BENCHMARKS[0]:
            shortest = {"script": 75, "slurm": 75, "skypilot": 95, "mpijob": LONGEST}
            assert len(lines) <= shortest.get(form, 115)
        command = lines[1] if lines[0].startswith("#!") else lines[0]
        assert command.startswith(
            f"# fabbench render {' '.join(words)} --as {form} --instance-type p5.48xlarge"
        )
        assert "PRIVATE KEY" not in text
        (tmp_path / f"{number}-{form}.sh").write_text(script_of(form, text))
    done = subprocess.run(
        ["shellcheck", *tmp_path.iterdir()], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize(
    ("profile", "fabric"), [("gke-gib", "gib"), ("gke-tcpxo", "tcpxo"), ("oke-rdma-vf", "roce")]
)
@pytest.mark.parametrize("form", ["kubernetes", "mpijob"])
def test_a_file_for_another_cloud_is_short_too(form: str, profile: str, fabric: str) -> None:
    """With eight interfaces, a side-car, what the cloud sets for NCCL, and a baseline."""
    where = ("--as", form, "--cluster-profile", profile, "--image", "example.com/bench:1")
    done = runner().invoke(cli, ["render", "nccl", *where, "--fabric", fabric, "--fabric", "tcp"])
    assert (done.exit_code, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) <= MANIFEST + 20


@pytest.mark.parametrize(
    "name",
    ["nccl.sh", "nccl.sbatch", "skypilot_nccl_efa.yaml", "nccl_job.yaml", "nccl_mpijob.yaml"],
)
def test_examples_are_what_render_prints(name: str) -> None:
    """To write one anew, run the command in its first line."""
    text = (EXAMPLES / name).read_text("utf-8")
    lines = text.splitlines()
    command = lines[1] if lines[0].startswith("#!") else lines[0]
    assert runner().invoke(cli, shlex.split(command.removeprefix("# fabbench "))).stdout == text


@pytest.mark.parametrize("word", ["A=x\ny", "A=it's"])
def test_the_command_is_a_comment_of_one_line(word: str) -> None:
    lines = rendered("script", "pingpong", "--efa", "--env", word).splitlines()
    said = subprocess.run(
        ["bash", "-c", f"printf '%s\\0' {lines[1].removeprefix('# ')}"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split("\0")
    assert said[:3] == ["fabbench", "render", "pingpong"]
    assert word in said


def test_it_runs_and_its_markers_are_read(tmp_path: Path) -> None:
    """On one host, with a program that fails in one configuration."""
    program = tmp_path / "all_reduce_perf"
    program.write_text('#!/bin/sh\necho "net $NCCL_NET"; [ "$NCCL_NET" = Socket ]\n')
    mpirun = tmp_path / "mpirun"
    mpirun.write_text('#!/bin/sh\nwhile [ "$1" != -np ]; do shift; done\nshift 2\nexec "$@"\n')
    for each in (program, mpirun):
        each.chmod(0o755)
    words = ("nccl", "--ab", "--repeat", "1", "--bin-dir", str(tmp_path), "--mpirun", str(mpirun))
    text = rendered("script", *words)
    argv = ["bash", "-c", text, "script", "a", "b"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (4, "")
    markers = [found for line in done.stdout.splitlines() if (found := read_marker(line))]
    assert [(each.kind, each.step, each.status) for each in markers if each.kind != "nics"] == [
        ("begin", "000-efa-r1/all_reduce", None),
        ("end", "000-efa-r1/all_reduce", 1),
        ("begin", "001-tcp-r1/all_reduce", None),
        ("end", "001-tcp-r1/all_reduce", 0),
    ]
    nics = [each for each in markers if each.kind == "nics"]
    assert [(each.step, each.facts["when"], each.facts["host"]) for each in nics[:4]] == [
        ("000-efa-r1", when, host) for when in ("before", "after") for host in ("a", "b")
    ]
    assert next(each for each in markers if each.kind == "begin").facts == {
        "benchmark": "nccl",
        "collective": "all_reduce",
        "ranks": "16",
    }
    for fabric, status in (("tcp", 0), ("ib", 2)):
        env = {"PATH": "/usr/bin:/bin", "FABRIC": fabric}
        done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False)
        assert (done.returncode, "efa-r1" in done.stdout) == (status, False)
    assert done.stdout == "FABRIC is ib, but this has efa, tcp.\n"


@pytest.mark.parametrize("form", ["script", "slurm", "skypilot"])
@pytest.mark.parametrize(
    ("system", "fabric"),
    [
        ("standard_nd96isr_h100_v5", "ib"),
        ("gb300-roce", "roce"),
        ("BM.GPU.H100.8", "roce"),
        ("gpu-b200-sxm", "ib"),
    ],
)
def test_infiniband_and_roce_need_no_machine(form: str, system: str, fabric: str) -> None:
    done = runner().invoke(cli, ["render", "nccl", "--ab", "--instance-type", system, "--as", form])
    assert (done.exit_code, done.stderr) == (0, "")
    assert f"000-{fabric}-r1 001-tcp-r1" in done.stdout
    assert "NCCL_NET=IB" in done.stdout
    assert f"ranks=$(({4 if system == 'gb300-roce' else 8} * " in done.stdout
    assert ("amazon" in done.stdout) == (form == "skypilot")  # in the folders of its default image


@pytest.mark.parametrize("benchmark", ["nccl", "torch"])
def test_nics_describe_machines_that_the_catalog_does_not_know(benchmark: str) -> None:
    words = ("render", benchmark, "--fabric", "roce", "--gpus", "8", "--as", "script")
    without, with_nics = (runner().invoke(cli, [*words, *more]) for more in ((), ("--nics", "4")))
    assert (without.exit_code, with_nics.exit_code) == (3, 0)
    assert "facts='fabric=roce expected=4 among=all'" in with_nics.stdout


FOUR = ("a", "b", "c", "d")


@pytest.mark.parametrize("form", FORMS)
def test_as_many_nodes_are_measured_as_the_file_is_edited_to(form: str, tmp_path: Path) -> None:
    """What each is edited in, the scheduler tells the script."""
    stubs = {
        "mpirun": 'echo "start $*"',
        "srun": 'echo "start $*"',
        "scontrol": f"printf '%s\\n' {' '.join(FOUR)}",
    }
    for name, text in {**stubs, "getent": "true"}.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "hostfile").write_text("".join(f"{host} slots=8\n" for host in FOUR))
    mpirun = () if form == "slurm" else ("--mpirun", str(tmp_path / "mpirun"))
    script = script_of(form, rendered(form, "nccl", "--efa", *mpirun)).replace(
        "/etc/mpi", str(tmp_path)
    )
    if form in OF_INDEXED_JOBS:  # whose pods log in to each other before that
        script = script.replace("nodes=2", "nodes=4")
        lines = [
            line for line in script.splitlines() if line.startswith(("nodes=", "mapfile", "ranks="))
        ]
        script = "\n".join([*lines, 'echo "start $where -np $ranks benchmark ranks=$ranks"'])
    env = {
        "FABRIC": "efa",
        "PATH": f"{tmp_path}:/usr/bin:/bin",
        "SKYPILOT_NODE_IPS": "\n".join(FOUR),
        "SLURM_JOB_NODELIST": "x",
    }
    done = subprocess.run(
        ["bash", "-c", script, "-", *FOUR], env=env, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    (started,) = (line for line in done.stdout.splitlines() if line.startswith("start "))
    assert "ranks=32" in done.stdout
    if form == "slurm":
        assert "--nodes=4 --ntasks=32 --ntasks-per-node=8 " in started
    else:
        assert len(re.findall(r"[\w.-]+:8\b", started)) == 4
        assert " -np 32 " in started


@pytest.mark.parametrize("form", ["script", "slurm"])
def test_pairs_are_of_the_nodes_that_they_were_rendered_for(form: str, tmp_path: Path) -> None:
    (tmp_path / "scontrol").write_text(f"#!/bin/sh\nprintf '%s\\n' {' '.join(FOUR)}\n")
    (tmp_path / "scontrol").chmod(0o755)
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin", "SLURM_JOB_NODELIST": "x"}
    words = ["bash", "-c", rendered(form, "pingpong", "--efa"), "-", *FOUR]
    done = subprocess.run(words, env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, "2 nodes, and there are 4" in done.stdout) == (3, True)


def test_variants_of_several_programs_run(tmp_path: Path) -> None:
    """Their commands differ, and so do their mpiruns."""
    words = ["--bin-dir", str(tmp_path), "--repeat", "1"]
    for name in ("new", "old"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "mpirun").write_text(f'#!/bin/sh\necho "{name} $NCCL_NET: $*"\n')
        (tmp_path / name / "mpirun").chmod(0o755)
        words += ["--variant", f"{name}=mpirun={tmp_path}/{name}/mpirun"]
    argv = ["bash", "-c", rendered("script", "nccl", "--efa", *words), "script", "a", "b"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    started = [line for line in done.stdout.splitlines() if "-np 16" in line]
    assert [line.split()[0] for line in started] == ["new", "old"]
    assert all("NCCL_NET=AWS Libfabric" in line and "-u NCCL_ALGO" in line for line in started)


def test_each_variant_has_its_container(tmp_path: Path) -> None:
    srun = tmp_path / "srun"
    srun.write_text('#!/bin/sh\necho "srun $*"\n')
    srun.chmod(0o755)
    variants = (
        "--variant",
        "new=image=docker.io/x/y:1",
        "--variant",
        "old=",
        "--image",
        "a",
        "--repeat",
        "1",
    )
    text = rendered("slurm", "nccl", "--efa", *variants)
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    done = subprocess.run(
        ["bash", "-c", text], env=env, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    begun = [line for line in done.stdout.splitlines() if line.startswith("srun ")]
    assert ["--container-image=docker://docker.io#x/y:1 env " in line for line in begun] == [
        True,
        False,
    ]
    assert ["--container-image=docker://a env " in line for line in begun] == [False, True]


def test_pairs_on_one_host_need_no_ssh() -> None:
    assert "ssh" not in rendered("script", "pingpong", "--fabric", "tcp", "--nodes", "1")
