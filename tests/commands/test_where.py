"""Where to run, as people type it: hosts, host files, other names; and where the output goes."""

import csv
import sys
from pathlib import Path

import pytest
from click.testing import Result

from fabbench.cli import cli
from fabbench.hosts.probe_result import Probe
from fabbench.launchers.ssh.launcher import of_different_machines
from fabbench.model.errors import RequestError
from tests.support.command_line import runner
from tests.support.paths import ROOT

LOGS = [str(ROOT / "examples/logs" / name) for name in ("x-ofi-tcp.txt", "x-net-socket.txt")]
P5 = ("--efa", "--instance-type", "p5.48xlarge")


def fabbench(*words: str) -> Result:
    return runner({"KUBECONFIG": "/nonexistent", "SLURM_JOB_ID": None}).invoke(cli, words)


def test_hosts_mean_ssh(tmp_path: Path) -> None:
    file = tmp_path / "hosts"
    file.write_text("a slots=8\n")
    for words in (("--host", "a"), (f"--hostfile={file}",)):
        done = fabbench("check", "--ssh-config", "/dev/null", *words)
        assert "Target ssh (a): implied by --host." in done.stderr
    assert "No target" in fabbench("check", "--node", "a").stderr


def test_a_host_file_names_nodes(tmp_path: Path) -> None:
    file = tmp_path / "hosts"
    file.write_text("n1 slots=8\nn2 slots=8\n")
    done = fabbench("render", "nccl", "--as", "slurm", *P5, "--hostfile", str(file))
    assert "#SBATCH --nodelist=n1,n2\n" in done.stdout


def test_two_names_of_one_machine_are_named() -> None:
    one = Probe(identity="boot net:[1] mnt:[1]", hostname="vm")
    other = Probe(identity="boot net:[2] mnt:[2]")
    assert of_different_machines({"a": one, "b": other, "c": Probe(), "d": Probe()})
    with pytest.raises(RequestError, match=r"a and c are the same machine \(vm\)\."):
        of_different_machines({"a": one, "b": other, "c": one})


def test_k8s_is_kubernetes() -> None:
    ours, theirs = (
        fabbench("render", "nccl", "--as", form, *P5).stdout for form in ("k8s", "kubernetes")
    )
    assert ours.splitlines()[1:] == theirs.splitlines()[1:]
    assert "Target kubernetes: set with --on." in fabbench("check", "--on", "k8s").stderr


@pytest.mark.parametrize(
    ("suffix", "form"),
    [
        *(
            (".html", "html"),
            (".svg", "svg"),
            (".csv", "csv"),
            (".json", "json"),
            (".md", "markdown"),
        ),
        *(
            (".prom", "openmetrics"),
            (".xml", "junit"),
            (".txt", "text"),
            (".CSV", "csv"),
            ("", "markdown"),
        ),
    ],
)
def test_the_suffix_decides_the_format(tmp_path: Path, suffix: str, form: str) -> None:
    file = tmp_path / f"result{suffix}"
    assert fabbench("compare", *LOGS, "-o", str(file)).exit_code == 0
    assert file.read_text("utf-8") == fabbench("compare", *LOGS, "--format", form).stdout


def test_an_unknown_suffix_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "result.pdf"
    done = fabbench("compare", *LOGS, "-o", str(file))
    assert (done.exit_code, done.stdout, file.exists()) == (2, "", False)
    assert "no .pdf file" in done.stderr
    assert ".md, .txt, .csv, .json, .html, .svg, .png, .xml, .prom" in done.stderr
    others = (("parse", ".html"), ("explain", ".csv"), ("report", ".pdf"))
    assert {
        fabbench(command, *LOGS, "-o", str(tmp_path / f"x{end}")).exit_code
        for command, end in others
    } == {2}


def test_a_png_is_the_svg_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "result.png"
    done = fabbench("compare", *LOGS, "-o", str(file))
    if not any(Path("/usr/share/fonts").rglob("*.ttf")):
        assert (done.exit_code, done.stdout, file.exists()) == (3, "", False)
        assert "No font" in done.stderr
        return
    drawn = file.read_bytes()
    width, height = (int.from_bytes(drawn[at : at + 4], "big") for at in (16, 20))
    svg = fabbench("compare", *LOGS, "--format", "svg").stdout
    assert drawn[:8] == b"\x89PNG\r\n\x1a\n"
    assert f'width="{width // 2}" height="{height // 2}"' in svg
    file.unlink()
    assert fabbench("compare", *LOGS, "--json", "-o", str(file)).exit_code == 2
    monkeypatch.setitem(sys.modules, "resvg_py", None)
    refused = fabbench("compare", *LOGS, "-o", str(file))
    assert (refused.exit_code, refused.stdout, file.exists()) == (3, "", False)
    assert "fabbench[png]" in refused.stderr


def test_format_overrides_the_suffix(tmp_path: Path) -> None:
    file = tmp_path / "result.log"
    assert fabbench("parse", *LOGS, "--format", "json", "-o", str(file)).exit_code == 0
    assert file.read_text("utf-8") == fabbench("parse", *LOGS, "--json").stdout != ""


def test_size_chooses_rows() -> None:
    for text, powers in (
        ("1M..4M", (20, 21, 22)),
        ("32M..", (25, 26)),
        ("..8", (3,)),
        ("1M", (20,)),
    ):
        for command in ("parse", "compare"):
            rows = csv.DictReader(
                fabbench(command, *LOGS, "--size", text, "--format", "csv").stdout.splitlines()
            )
            assert {int(row["size"]) for row in rows} == {1 << power for power in powers}
    assert "32 KB" not in fabbench("report", LOGS[0], "--size", "1M..").stdout
    assert {
        fabbench("report", *LOGS, "--size", wrong).exit_code for wrong in ("3G", "2M..1M", "..x")
    } == {2}


def test_a_file_is_touched_only_if_there_is_output(tmp_path: Path) -> None:
    file = tmp_path / "table"
    file.write_text("old")
    assert fabbench("compare", "nosuch", "--output", str(file)).exit_code == 2
    assert file.read_text("utf-8") == "old"
    for wrong, why in (
        (tmp_path, "it is a directory"),
        (tmp_path / "no/file", f"the directory {tmp_path}/no does not exist"),
    ):
        done = fabbench("compare", *LOGS, "-o", str(wrong))
        assert (done.exit_code, f"{wrong} cannot be written: {why}" in done.stderr) == (3, True)
