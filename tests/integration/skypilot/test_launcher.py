"""The launcher skypilot with a fake SkyPilot library that has faults."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from fabbench.launchers.skypilot.cluster import final_status, node_prefix, repeats_end
from fabbench.runs.store import StoredRun, runs
from tests.support.paths import FAKE_PROGRAMS, ROOT
from tests.support.secrets_watch import VALUE, kept, watched

ONE = ("--infra", "k8s", "--nodes", "1", "--fabric", "tcp", "--size", "64", "--iterations", "10")
local = pytest.mark.local
slow = pytest.mark.slow


@dataclass(frozen=True)
class Sky:
    """fabbench beside a SkyPilot that is played."""

    folder: Path

    def __post_init__(self) -> None:
        (self.folder / "sky").mkdir()

    @property
    def calls(self) -> list[str]:
        return (self.folder / "sky/calls").read_text().splitlines()

    def let(self, name: str, text: str = "yes") -> None:
        (self.folder / "sky" / name).write_text(text)

    def argv(self, *words: str) -> list[str]:
        bin_dir = (
            ("--bin-dir", "/usr/bin") if words[0] == "run" and "--bin-dir" not in words else ()
        )
        return [sys.executable, "-m", "fabbench", *words, "--on", "skypilot", *bin_dir]

    @property
    def env(self) -> dict[str, str]:
        kept = {key: value for key, value in os.environ.items() if not key.startswith("FABBENCH_")}
        path = f"{FAKE_PROGRAMS / 'sky'}:{ROOT / 'src'}"
        variables = {"PYTHONPATH": path, "SKY_STANDIN": str(self.folder / "sky")}
        return {**kept, **variables, "FABBENCH_STORE": str(self.folder / "store")}

    @property
    def secrets(self) -> list[str]:
        """Names of the secrets that tasks had."""
        return (self.folder / "sky/secrets").read_text().split()

    def run(
        self, *words: str, env: Mapping[str, str] | None = None
    ) -> "subprocess.CompletedProcess[str]":
        argv = self.argv("run", "pingpong", *ONE, "--cluster-name", "c", *words)
        merged = {**self.env, **(env or {})}
        return subprocess.run(
            argv, env=merged, capture_output=True, text=True, check=False, timeout=120
        )

    def log(self) -> str:
        run = StoredRun(next(runs(self.folder / "store")))
        (log,) = run.logs("tcp")
        return f"{log.outcome}: {log.reason}"


@pytest.fixture
def sky(tmp_path: Path) -> Sky:
    return Sky(tmp_path)


@local
@pytest.mark.slow
def test_a_cluster_is_launched_with_the_whole_plan(sky: Sky) -> None:
    done = sky.run("--repeat", "3", "--format", "json")
    assert done.returncode == 0, done.stderr
    json.loads(done.stdout)
    assert "SkyPilot says something" in done.stderr
    assert "\x1b" not in done.stderr
    run = StoredRun(next(runs(sky.folder / "store")))
    assert [log.outcome for log in run.logs("tcp")] == ["ok"] * 3
    assert sky.calls == ["launch c down=True idle_minutes_to_autostop=10", "logs c 1", "down c"]


@local
@slow
def test_a_variable_from_the_environment_is_a_secret_of_the_task(sky: Sky) -> None:
    """SkyPilot keeps secrets out of what it shows of a task.

    The library gets them by no command line.
    """
    with watched("MY_TOKEN") as seen:  # the iterations let the program live long enough to be seen
        done = sky.run("--env", "MY_TOKEN", "--iterations", "5000", env={"MY_TOKEN": VALUE})
    assert done.returncode == 0, done.stderr
    assert sky.log() == "ok: None"
    assert seen.on_command_lines == set()
    assert seen.in_environments.get("fi_pingpong") == {VALUE.encode()}
    assert kept(sky.folder) == []
    assert set(sky.secrets) == {"MY_TOKEN"}


@local
@slow
@pytest.mark.parametrize(
    ("words", "options"),
    [
        (("--set", "keep=true"), ""),
        (
            ("--set", "keep=true", "--set", "idle-minutes=30"),
            " down=True idle_minutes_to_autostop=30",
        ),
    ],
)
def test_a_cluster_is_kept_when_asked(sky: Sky, words: tuple[str, ...], options: str) -> None:
    done = sky.run(*words)
    assert done.returncode == 0, done.stderr
    assert sky.calls == [f"launch c{options}", "logs c 1"]
    assert "sky down c" in done.stderr


@local
@slow
@pytest.mark.parametrize(
    ("fault", "text", "asked"), [("break", "5", "logs c 1"), ("mute", "yes", "job_status c")]
)
def test_a_log_that_breaks_off_goes_on_in_a_cluster_that_was_there(
    sky: Sky, fault: str, text: str, asked: str
) -> None:
    """Where it was; one without its last line is asked for its end."""
    sky.let("cluster", "c")
    sky.let(fault, text)
    done = sky.run()
    assert (done.returncode, sky.log()) == (0, "ok: None"), done.stderr
    assert sky.calls.count("logs c 1") == (2 if fault == "break" else 1)
    assert asked in sky.calls
    assert "down c" not in sky.calls


@local
def test_a_step_that_ends_with_a_cancelled_job_failed_by_it(sky: Sky) -> None:
    sky.let("ended", "CANCELLED")
    (sky.folder / "fi_pingpong").symlink_to("/bin/false")
    done = sky.run("--bin-dir", str(sky.folder))
    assert (done.returncode, "SkyPilot ended job 1 as CANCELLED" in sky.log()) == (3, True), (
        done.stderr
    )


@local
@slow
def test_a_script_that_cannot_start_is_refused_with_its_reason(sky: Sky) -> None:
    done = sky.run("--nodes", "2")
    assert done.returncode == 3
    assert (
        "Error: SkyPilot ended job 1 as FAILED: This measures 2 nodes, and there are 1."
        in done.stderr
    )
    assert sky.calls[-1] == "down c"


@local
@slow
def test_a_step_that_fails_is_one_failed_execution(sky: Sky) -> None:
    program = sky.folder / "fi_pingpong"
    program.write_text("#!/bin/sh\nexit 7\n")
    program.chmod(0o755)
    done = sky.run("--bin-dir", str(sky.folder))
    assert done.returncode == 4
    assert sky.log() == "failed: pingpong exited with status 7 in step 64."


@local
@slow
@pytest.mark.parametrize(("times", "status"), [(2, 0), (3, 3)])
def test_tearing_down_is_tried_again_and_what_is_left_is_reported(
    sky: Sky, times: int, status: int
) -> None:
    sky.let("down", str(times))
    done = sky.run()
    assert done.returncode == status, done.stderr
    assert sky.calls.count("down c") == 3
    left = "The cluster c could not be torn down: the cloud said no It may still be up."
    assert (left in done.stderr) == bool(status)
    assert ("sky down c" in done.stderr) == bool(status)


@pytest.mark.lab
@slow
@pytest.mark.parametrize(("size", "statuses"), [("16k", {3}), ("96k", {3, 4})])
def test_a_disk_of_this_machine_that_is_full_tears_all_down(
    sky: Sky, size: str, statuses: set[int]
) -> None:
    """From the start, or soon: before an execution (3), or in the middle of its log (4)."""
    store = sky.folder / "store"
    store.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", store], check=True)
    try:
        done = sky.run("--repeat", "9")
        assert done.returncode in statuses, done.stderr
        assert "No space left on device" in done.stderr
        assert "Traceback" not in done.stderr
        calls = sky.calls if (sky.folder / "sky/calls").exists() else ["down c"]
        assert calls[-1] == "down c"
    finally:
        subprocess.run(["umount", store], check=True)


@pytest.mark.parametrize(
    ("words", "status", "expected"),
    [
        (("--infra", "slurm", "--set", "idle-minutes=5"), 2, "idle clusters on Slurm"),
        pytest.param(("--host", "a"), 2, "--host has no effect with --on skypilot", marks=slow),
        pytest.param(("--infra", "oci"), 2, "does not support SkyPilot on oci", marks=slow),
        pytest.param(("--fabric", "efa"), 3, "without --instance-type", marks=slow),
    ],
)
def test_an_invalid_request_launches_nothing(
    sky: Sky, words: tuple[str, ...], status: int, expected: str
) -> None:
    done = sky.run(*words)
    assert done.returncode == status
    assert expected in done.stderr
    assert not (sky.folder / "sky/calls").exists()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"PYTHONPATH": str(ROOT / "src")}, "pip install 'fabbench[sky]'"),
        pytest.param({"SKY_VERSION": "0.9.3"}, "SkyPilot 0.9.3 is installed", marks=slow),
    ],
)
def test_without_skypilot_the_error_says_what_to_install(
    sky: Sky, changes: Mapping[str, str], said: str
) -> None:
    argv = sky.argv("run", "pingpong", *ONE)
    done = subprocess.run(
        argv, env={**sky.env, **changes}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 3
    assert said in done.stderr
    assert not (sky.folder / "sky/calls").exists()


@pytest.mark.parametrize(
    ("infra", "status", "seen"),
    [pytest.param("aws", 3, "not enabled", marks=slow), ("k8s", 0, "enabled")],
)
def test_check_says_what_skypilot_can_use(sky: Sky, infra: str, status: int, seen: str) -> None:
    argv = sky.argv("check", "--infra", infra, "--format", "json")
    done = subprocess.run(argv, env=sky.env, capture_output=True, text=True, check=False)
    assert done.returncode == status
    checks = {check["check"]: check["seen"] for check in json.loads(done.stdout)}
    assert checks == {"library": "SkyPilot 0.14.1.", "place": f"{infra}: {seen}."}


def test_the_end_of_a_job_is_read() -> None:
    assert final_status("✓ Job finished (status: FAILED_SETUP).") == "FAILED_SETUP"
    assert final_status("(head, rank=0, pid=1) ✓ Job finished (status: FAILED).") is None
    assert (
        node_prefix("(worker1, rank=1, pid=253, ip=198.18.1.11) [a] b")
        == "(worker1, rank=1, pid=253, ip=198.18.1.11) "
    )
    assert node_prefix("└── Job started. Streaming logs...") == ""
    assert repeats_end("srun: error: node0: task 0: Exited with exit code 4")
    assert repeats_end("srun: error: node1: task 1: Terminated")
    assert not repeats_end(
        "slurmstepd-node0: error: *** STEP 2.14 ON node0 CANCELLED AT 2026-11-21T20:13:31 ***"
    )
