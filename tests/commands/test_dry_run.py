"""`fabbench run --dry-run` on clusters: it shows what a cluster has, and writes nothing there."""

import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from click.testing import Result

from fabbench.cli import cli
from tests.support.command_line import runner
from tests.support.pod_objects import EFA, GPU, node_object, pod_object

NODE = (
    "NodeName=n{} AvailableFeatures=p5.48xlarge,efa Gres=gpu:h100:8 State=IDLE+CLOUD "
    "Partitions=gpu "
    "CfgTRES=cpu=192,gres/gpu=8"
)
SCONTROL = """#!/bin/sh
case "$1 $2" in
    "show node") cat {nodes} ;;
    "show partition") cat {partitions} ;;
    *) echo "scontrol $*" >>{log}; exit 1 ;;
esac
"""


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Slurm with two nodes and no default partition.

    What would change anything leaves a line in `log`.
    """
    files = {name: tmp_path / name for name in ("nodes", "partitions", "log")}
    files["nodes"].write_text("".join(f"{NODE.format(number)}\n" for number in (1, 2)))
    files["partitions"].write_text("PartitionName=gpu Default=NO State=UP Nodes=n[1-2]\n")
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "scontrol").write_text(SCONTROL.format(**files))
    for name in ("sbatch", "srun", "squeue", "scancel"):
        (programs / name).write_text(f'#!/bin/sh\necho "{name} $*" >>{files["log"]}\nexit 1\n')
    for program in programs.iterdir():
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def only_the_last_line(err: str) -> bool:
    """Whether only the answer was said: nothing was started, and what it would be."""
    last = r"\nDry run: nothing was started\. \d+ executions?, at most [\d:]+\.\n"
    return re.fullmatch(last, err) is not None


def planned(*words: str, benchmark: str = "nccl", **env: str | None) -> Result:
    return runner({"SLURM_JOB_ID": None, **env}).invoke(
        cli, ["run", benchmark, "--efa", *words, "--dry-run", "--store", "runs"]
    )


def test_slurm(slurm: Path) -> None:
    done = planned("--on", "slurm", "--partition", "gpu")
    assert (done.exit_code, only_the_last_line(done.stderr)) == (0, True)
    for words in (
        "Target:         slurm (slurm): set with --on",
        "p5.48xlarge, 8 GPUs, 32 efa devices",
        "srun ",
    ):
        assert words in done.stdout
    assert not (slurm / "log").exists()
    assert not (slurm / "runs").exists()


def test_programs_need_not_be_installed_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ("run", "osu", "--on", "local", "--program", "osu_none", "--ranks-per-host", "2")
    done = runner().invoke(cli, [*words, "--dry-run", "--store", "runs"])
    assert (done.exit_code, "mpirun " in done.stdout) == (0, True)
    assert "osu_none" in done.stdout.splitlines()[-1]
    assert "osu_none not found on " in done.stderr
    assert "Install it: " in done.stderr
    assert not (tmp_path / "runs").exists()
    named = runner().invoke(cli, [*words, "--mpirun", "/opt/none/mpirun", "--dry-run"])
    refused = runner().invoke(cli, [*words, "--store", "runs"])
    assert (named.exit_code, refused.exit_code) == (3, 3)


def test_slurm_without_a_default_partition_needs_one(slurm: Path) -> None:
    del slurm
    done = planned("--on", "slurm")
    assert done.exit_code == 3
    assert "Available: gpu." in done.stderr


def test_an_allocation_needs_no_partition(slurm: Path) -> None:
    """That of a target of fabbench.yaml is for jobs, and may be of another time."""
    (slurm / "fabbench.yaml").write_text(
        "targets:\n  prod:\n    launcher: slurm\n    partition: gone\n"
    )
    for name in ("prod", "slurm"):
        done = planned("--on", name, SLURM_JOB_ID="7", SLURM_JOB_NODELIST="n[1-2]")
        assert (done.exit_code, only_the_last_line(done.stderr)) == (0, True)
        assert "Nodes:          n1: p5.48xlarge, 8 GPUs, 32 efa devices\n" in done.stdout
    assert "Unknown partition gone. Available: gpu." in planned("--on", "prod").stderr
    nodes = runner({"SLURM_JOB_ID": None}).invoke(
        cli, ["check", "--on", "slurm", "--partition", "gpu", "--json"]
    )
    assert [each["name"] for each in json.loads(nodes.stdout)["nodes"]] == ["n1", "n2"]


@pytest.fixture
def kubernetes(tmp_path: Path) -> Iterator[list[str]]:
    """An API of three nodes, of which one is taken; gives what was asked that is no reading."""
    nodes = [node_object("p5", f"n{number}") for number in (1, 2, 3)]
    pods = [pod_object("n1", {GPU: "8", EFA: "32"})]
    answers: dict[str, object] = {
        "/api/v1/nodes": {"metadata": {}, "items": nodes},
        "/api/v1/pods": {"metadata": {}, "items": pods},
        "/apis/kubeflow.org/v2beta1": {"resources": [{"name": "mpijobs"}]},
        "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews": {"status": {"allowed": True}},
    }
    written: list[str] = []

    class Api(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer = answers.get(self.path.partition("?")[0])
            body = json.dumps(answer).encode()
            self.send_response(200 if answer else 404)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            if "selfsubjectaccessreviews" not in self.path:
                written.append(self.path)
            self.do_GET()

        do_PUT = do_PATCH = do_DELETE = do_POST  # noqa: N815 - as the server wants them

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Api) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        cluster = {"name": "c", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}
        context = {"name": "prod", "context": {"cluster": "c", "user": "u"}}
        users = [{"name": "u", "user": {"token": "t"}}]
        config = {
            "clusters": [cluster],
            "contexts": [context],
            "users": users,
            "current-context": "prod",
        }
        (tmp_path / "kubeconfig").write_text(
            json.dumps({"apiVersion": "v1", "kind": "Config", **config})
        )
        yield written
        server.shutdown()


@pytest.mark.parametrize("launcher", ["kubernetes", "mpijob"])
def test_kubernetes(kubernetes: list[str], tmp_path: Path, launcher: str) -> None:
    done = planned("--on", launcher, "--kubeconfig", str(tmp_path / "kubeconfig"))
    assert (done.exit_code, only_the_last_line(done.stderr)) == (0, True)
    for name in ("n2", "n3"):
        assert f"{name}: p5.48xlarge, 8 GPUs, 32 efa devices\n" in done.stdout
    assert "mpirun " in done.stdout
    assert not kubernetes


@pytest.mark.parametrize("launcher", ["kubernetes", "mpijob"])
def test_osu_on_kubernetes_needs_an_image_that_has_it(
    kubernetes: list[str], tmp_path: Path, launcher: str
) -> None:
    words = ("--no-efa", "--program", "osu_latency", "--on", launcher)
    config = ("--kubeconfig", str(tmp_path / "kubeconfig"))
    done = planned(*words, *config, "--image", "registry.example/osu:1", benchmark="osu")
    assert (done.exit_code, only_the_last_line(done.stderr)) == (0, True)
    for fabric in ("OMPI_MCA_mtl_ofi_provider_include=efa", "OMPI_MCA_btl=tcp,self"):
        assert fabric in done.stdout
    assert "osu_latency -m 1:4194304" in done.stdout
    assert not kubernetes


def test_of_a_sweep_the_first_test_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ("sweep", "pingpong", "--on", "local", "--virtual-nodes", "4", "--gpus", "4")
    more = ("--fabric", "tcp", "--dry-run", "--store", "runs")
    done = runner().invoke(cli, [*words, *more, "--format", "json"])
    assert done.exit_code == 0, done.output
    shown = json.loads(done.stdout)
    assert len(shown["hosts"]) == 4
    assert shown["first_round"].startswith("2 tests (random pairs, round 1 of 3)")
    assert len(shown["plan"]["executions"]) == 1
    # One machine: two tests of each of the rounds run one after another.
    alone = runner().invoke(cli, [*words, *more, "--format", "json", "--mode", "single"])
    assert json.loads(alone.stdout)["longest_s"] > shown["longest_s"]
    assert "First test: tcp" in runner().invoke(cli, [*words, *more]).stdout
    # A limit of the user's is not raised for tests that run out of time.
    fixed = runner().invoke(cli, [*words, *more, "--format", "json", "--timeout", "30"])
    assert json.loads(fixed.stdout)["longest_s"] < shown["longest_s"]
    short = runner().invoke(cli, [*words, *more, "--format", "json", "--max-time", "60"])
    assert json.loads(short.stdout)["longest_s"] == 60
    assert not (tmp_path / "runs").exists()


def test_an_option_without_effect_is_named_as_it_was_typed(tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text("node1\nnode2\n")
    words = ["render", "pingpong", "--as", "script", "--hostfile", str(tmp_path / "hosts")]
    done = runner().invoke(cli, words)
    assert done.exit_code == 2
    assert "--hostfile has no effect with --as script." in done.stderr
