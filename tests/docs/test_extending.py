"""The plug-ins of examples/plugins, added both ways that the docs tell, and run for real."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from fabbench.runs.store import StoredRun, runs
from tests.support.distributions import install
from tests.support.paths import EXAMPLES, FAKE_PROGRAMS, ROOT
from tests.support.tiers import sampled

pytestmark = pytest.mark.local

STANDINS = FAKE_PROGRAMS / "plugins"
Fabbench = Callable[..., "subprocess.CompletedProcess[str]"]


def code(example: str) -> dict[str, str]:
    """The files of an example: name → text."""
    return {
        path.name: path.read_text("utf-8")
        for path in sorted((EXAMPLES / "plugins" / example).iterdir())
    }


BENCHMARK, LAUNCHER = code("iperf3"), code("bsub")
PLACES = {
    "iperf3.py": "benchmarks/iperf3.py",
    "options_bsub.py": "launchers/bsub/__init__.py",
    "launchers_bsub.py": "launchers/bsub/launcher.py",
    "rendering_bsub.py": "launchers/bsub/render.py",
}


def as_packages(folder: Path) -> None:
    """Install each page's package: its modules, and what its pyproject.toml offers."""
    for page in (BENCHMARK, LAUNCHER):
        project = tomllib.loads(page["pyproject.toml"])["project"]
        modules = {name.removesuffix(".py"): text for name, text in page.items() if name in PLACES}
        modules = {
            name: text.replace("fabbench.benchmarks.iperf3", "iperf3").replace(
                "fabbench.launchers.bsub", "options_bsub"
            )
            for name, text in modules.items()
        }
        install(folder, project["name"], project["entry-points"], **modules)


def as_modules(folder: Path) -> None:
    """Put each page's modules into a copy of fabbench."""
    shutil.copytree(ROOT / "src/fabbench", folder / "fabbench")
    for name, text in {**BENCHMARK, **LAUNCHER}.items():
        if name in PLACES:
            path = folder / "fabbench" / PLACES[name]
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, "utf-8")


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(as_packages, id="packages", marks=pytest.mark.slow),
        pytest.param(as_modules, id="modules"),
    ],
)
def added(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory for PYTHONPATH with fabbench, the benchmark and the launcher."""
    folder = tmp_path_factory.mktemp("added")
    request.param(folder)
    return folder


@pytest.fixture
def fabbench(added: Path, tmp_path: Path) -> Fabbench:
    """Call that fabbench, with a store of the test's own."""
    path = {"PYTHONPATH": f"{added}:{ROOT / 'src'}", "PATH": f"{STANDINS}:{os.environ['PATH']}"}
    environment = {
        **os.environ,
        **path,
        "FABBENCH_STORE": str(tmp_path / "store"),
        "COLUMNS": "200",
    }

    def call(*words: str, given: str = "") -> "subprocess.CompletedProcess[str]":
        argv = [sys.executable, "-m", "fabbench", *words]
        return subprocess.run(
            argv, env=environment, input=given, capture_output=True, text=True, check=False
        )

    return call


def the_run(tmp_path: Path) -> StoredRun:
    (path,) = runs(tmp_path / "store")
    return StoredRun(path)


def output(run: StoredRun) -> str:
    return "".join(path.read_text() for path in sorted(run.path.glob("exec/*/output.log")))


@pytest.mark.slow
def test_it_is_run_here(fabbench: Fabbench, tmp_path: Path) -> None:
    assert "iperf3    TCP throughput of iperf3" in fabbench("run", "--help").stdout
    done = fabbench("run", "iperf3", "--on", "local", "--size", "64K", "--seconds", "1")
    assert done.returncode == 0, done.stderr
    assert "| 64 KB " in done.stdout
    assert "bandwidth tcp (" in done.stdout
    read = fabbench(
        "parse", "-", "--fabric", "tcp", "--format", "csv", given=output(the_run(tmp_path))
    )
    assert (read.returncode, read.stderr) == (0, "")
    assert [line.count("bandwidth") for line in read.stdout.splitlines()[1:]] == [1]


@pytest.mark.slow
def test_its_programs_are_checked_for(fabbench: Fabbench) -> None:
    done = fabbench("check", "--on", "local", "--benchmark", "iperf3", "--format", "csv")
    assert ",programs,pass,Found " in done.stdout, done.stdout


@pytest.mark.slow
def test_it_fails_as_it_should(fabbench: Fabbench) -> None:
    refused = fabbench("run", "iperf3", "--on", "local", "--fabric", "shm")
    assert refused.returncode == 3
    assert "TCP over sockets" in refused.stderr
    failed = fabbench(
        "parse", "-", given="iperf3: error - unable to connect to server: Connection refused\n"
    )
    assert failed.returncode == 4
    assert "Connection refused" in failed.stdout


@pytest.mark.parametrize("form", sampled(["bsub", "script", "modal"], every=3))
def test_it_is_rendered(fabbench: Fabbench, form: str) -> None:
    words = (
        "--as",
        form,
        "--fabric",
        "tcp",
        "--instance-type",
        "p5.48xlarge",
        *(("--image", "docker.io/me/it:1") if form == "modal" else ()),
        *(("--application", "fast") if form == "bsub" else ()),
    )
    done = fabbench("render", "iperf3", *words)
    assert (done.returncode, done.stderr) == (0, "")
    assert "iperf3 --verbose" in done.stdout
    assert ("#BSUB -n 2" in done.stdout) == ("#BSUB -app fast" in done.stdout) == (form == "bsub")


@pytest.mark.slow
def test_their_options_are_those_of_the_command_line(fabbench: Fabbench) -> None:
    output = fabbench("run", "iperf3", "--help").stdout
    assert re.search(r"--seconds N +Seconds per size\. +\[default: 10\]", output), output
    own = r"--application NAME +LSF application profile\. Default: none\. \[bsub\]"
    assert re.search(own, output), output
    for words, complaint in (
        (("--on", "local", "--application", "fast"), "--application"),
        (("--on", "bsub", "--application", "a b"), "'a b'"),
        (("--on", "bsub", "--host", "a"), "--host"),
        (("--on", "local", "--seconds", "0"), "from 1 to 3600"),
    ):
        done = fabbench("run", "iperf3", *words)
        assert (done.returncode, complaint in done.stderr) == (2, True), done.stderr


@pytest.mark.slow
def test_their_options_are_keys_of_the_file(fabbench: Fabbench, tmp_path: Path) -> None:
    file = tmp_path / "fabbench.yaml"
    file.write_text(
        "defaults: {run: {iperf3: {size: 64K}}}\n"
        "targets: {farm: {launcher: bsub, application: fast}}\n"
    )
    shown = fabbench("config", "--config", str(file))
    assert yaml.safe_load(shown.stdout)["run"] == {"iperf3": {"size": "64K"}}, shown.stderr
    file.write_text("targets: {farm: {launcher: bsub, application: a b, aplication: x}}\n")
    wrong = fabbench("config", "--config", str(file))
    assert wrong.returncode == 2
    assert f"{file}: targets.farm.application " in wrong.stderr
    file.write_text("targets: {farm: {launcher: bsub, aplication: x}}\n")
    mistyped = fabbench("config", "--config", str(file))
    assert mistyped.returncode == 2
    assert "'aplication'. Did you mean application?" in mistyped.stderr
    assert '"application"' in fabbench("config", "--schema").stdout


@pytest.mark.parametrize(
    "words",
    [
        ("iperf3", "--fabric", "tcp", "--size", "64K", "--seconds", "1"),
        ("pingpong", "--fabric", "shm", "--fabric", "tcp", "--size", "64", "--iterations", "10"),
    ],
)
@pytest.mark.slow
def test_a_job_is_handed_over(fabbench: Fabbench, tmp_path: Path, words: tuple[str, ...]) -> None:
    more = (
        "--nodes",
        "1",
        "--repeat",
        "1",
        "--bin-dir",
        str(STANDINS if words[0] == "iperf3" else "/usr/bin"),
    )
    done = fabbench("run", *words, "--on", "bsub", *more)
    assert done.returncode == 0, done.stderr
    run = the_run(tmp_path)
    assert "Job <1> is submitted" in output(run)
    rendered = fabbench("render", *words, "--as", "bsub", *more)
    assert rendered.stdout == (run.path / "rendered/job.bsub").read_text()


@pytest.mark.slow
def test_a_job_that_cannot_be_handed_over_is_reported(fabbench: Fabbench, tmp_path: Path) -> None:
    done = fabbench("run", "iperf3", "--on", "bsub", "--nodes", "1", "--bin-dir", "/nowhere")
    assert done.returncode == 4
    assert "/nowhere/iperf3" in output(the_run(tmp_path))


@pytest.mark.slow
def test_its_own_tests_pass(added: Path, tmp_path: Path) -> None:
    text = BENCHMARK["test_iperf3.py"]
    if not (added / "fabbench").exists():
        text = text.replace("fabbench.benchmarks.iperf3", "iperf3")
    (tmp_path / "test_iperf3.py").write_text(text)
    argv = [
        sys.executable,
        "-W",
        "error",
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        str(tmp_path),
    ]
    path = {"PYTHONPATH": f"{added}:{ROOT / 'src'}"}
    done = subprocess.run(
        argv, env={**os.environ, **path}, capture_output=True, text=True, check=False
    )
    assert "3 passed" in done.stdout, done.stdout + done.stderr


def test_the_benchmark_reads_one_table() -> None:
    assert BENCHMARK["iperf3.py"].count("Table(") == 1


@pytest.mark.parametrize("page", [BENCHMARK, LAUNCHER], ids=["benchmark", "launcher"])
def test_the_code_is_as_fabbench_wants_its_own(page: dict[str, str], tmp_path: Path) -> None:
    shutil.copytree(
        ROOT / "src/fabbench",
        tmp_path / "src/fabbench",
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    files = [tmp_path / "src/fabbench" / PLACES[name] for name in page if name in PLACES]
    for file, text in zip(
        files, (text for name, text in page.items() if name in PLACES), strict=True
    ):
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    for words in (["-m", "ruff", "check"], ["-m", "ruff", "format", "--check"]):
        argv = [sys.executable, *words, *map(str, files)]
        done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout
