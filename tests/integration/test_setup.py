"""setup/prepare, with stand-ins for the programs that would change the system."""

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.support.paths import DATA, ROOT

TOOLS = (
    "bash",
    "env",
    "sh",
    "cat",
    "cksum",
    "cut",
    "dirname",
    "xargs",
    "mktemp",
    "rm",
    "mkdir",
    "cp",
    "chmod",
    "sort",
)

# Does what is asked of it in a virtual environment, and makes one; takes note of both.
PYTHON = (DATA / "programs/python-of-prepare").read_text("utf-8")
OLD_PYTHON = '#!/bin/sh\ntest "$1" = --version && echo "Python 3.9.2" && exit\nexit 1\n'
APT = '#!/bin/sh\necho "apt-get $*" >>"$LOG"\n'
FINE = "#!/bin/sh\n"
TOOLS_OF_HOSTS = ("sshd", "ssh", "ssh-keygen", "ip", "tc", "unshare", "nsenter", "pkill")
TOOLS_OF_SLURM = ("slurmctld", "slurmd", "sbatch", "munged", "libpmix.so", "rsync")
TOOLS_OF_TESTS = (
    "ib_write_bw",
    "shellcheck",
    "curl",
    "gpg",
    "gpg-agent",
    "busybox",
    "fish",
    "ksh",
    "tcsh",
    "zsh",
)
LAB = dict.fromkeys((*TOOLS_OF_HOSTS, *TOOLS_OF_SLURM, *TOOLS_OF_TESTS), FINE)

pytestmark = pytest.mark.local


class Machine:
    """A checkout on a machine that has just these programs."""

    def __init__(self, folder: Path) -> None:
        self.checkout, self.bin, self._log = folder / "checkout", folder / "bin", folder / "log"
        shutil.copytree(ROOT / "setup", self.checkout / "setup")
        for name in ("pyproject.toml", "uv.lock"):
            shutil.copy(ROOT / name, self.checkout)
        self.bin.mkdir()
        self.policy = folder / "policy-rc.d"
        self.env = {
            "HOME": str(folder),
            "TMPDIR": str(folder),
            "SBIN": "",
            "POLICY": str(self.policy),
        }
        for tool in TOOLS:
            found = shutil.which(tool)
            assert found, tool
            (self.bin / tool).symlink_to(found)

    def has(self, **programs: str) -> None:
        for name, text in programs.items():
            path = self.bin / name.replace("_get", "-get")
            path.write_text(text)
            path.chmod(0o755)

    def prepare(
        self, *arguments: str, user: int = 0, env: Mapping[str, str] | None = None
    ) -> tuple[int, str]:
        self.has(id=f"#!/bin/sh\necho {user}\n")
        done = subprocess.run(
            [self.checkout / "setup/prepare", *arguments],
            env={"PATH": str(self.bin), "LOG": str(self._log), **self.env, **(env or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stderr

    def done(self) -> list[str]:
        return self._log.read_text().splitlines() if self._log.exists() else []


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_root_gets_everything_once(machine: Machine) -> None:
    machine.has(python3=PYTHON, apt_get=APT)
    status, output = machine.prepare("local", env={"ENSUREPIP": "1"})
    assert status == 0, output
    assert "libfabric-bin" in output
    update, install, venv, export, uv = machine.done()
    assert update == "apt-get update"
    assert install == "apt-get install --yes --no-install-recommends python3.11-venv libfabric-bin"
    assert venv == "venv"
    assert export == "uv export --quiet --frozen --no-emit-project --output-file .venv/locked.txt"
    locked = "--no-deps --requirements .venv/locked.txt"
    assert uv == (
        f"uv pip install --quiet --compile-bytecode --python .venv/bin/python {locked} --editable ."
    )

    machine.has(fi_pingpong=FINE)
    assert machine.prepare("local") == (0, "")
    assert len(machine.done()) == 5


def test_only_what_measures_needs_programs(machine: Machine) -> None:
    machine.has(python3=PYTHON)
    assert machine.prepare("run")[0] == 0
    assert machine.prepare("local")[0] == 1


def test_a_policy_that_is_there_is_kept(machine: Machine) -> None:
    machine.policy.write_text("mine")
    machine.has(python3=PYTHON, apt_get=APT, fi_pingpong=FINE, mpirun=FINE)
    assert machine.prepare("dev")[0] == 0
    assert machine.policy.read_text() == "mine"


@pytest.mark.parametrize("changed", ["pyproject.toml", "uv.lock"])
def test_what_changed_is_installed_again(machine: Machine, changed: str) -> None:
    machine.has(python3=PYTHON)
    assert machine.prepare("run")[0] == 0
    (machine.checkout / changed).write_text("[project]\n")
    assert machine.prepare("run")[0] == 0
    assert [line.partition(" --")[0] for line in machine.done()] == [
        "venv",
        *("uv export", "uv pip install") * 2,
    ]


def test_a_user_without_sudo_is_told_the_command(machine: Machine) -> None:
    machine.has(python3=PYTHON, apt_get=APT, **LAB)
    status, output = machine.prepare("dev", user=1000)
    assert status == 1
    assert (
        "apt-get update && apt-get install --yes --no-install-recommends libfabric-bin "
        "openmpi-bin\n"
    ) in output
    assert machine.done() == []


def test_a_user_with_sudo_uses_it(machine: Machine) -> None:
    machine.has(python3=PYTHON, apt_get=APT, sudo='#!/bin/sh\ntest "$1" = -n || exec "$@"\n')
    status, output = machine.prepare("local", user=1000)
    assert status == 0, output
    assert "by sudo" in output
    assert machine.done()[1] == "apt-get install --yes --no-install-recommends libfabric-bin"


def test_what_apt_says_is_shown_when_it_fails(machine: Machine) -> None:
    machine.has(python3=PYTHON, apt_get="#!/bin/sh\necho no network\nexit 100\n")
    status, output = machine.prepare("local")
    assert status == 1
    assert "no network\n" in output
    assert "apt-get failed" in output


def test_a_system_without_apt_names_what_is_missing_and_goes_on_without(machine: Machine) -> None:
    machine.has(python3=PYTHON)
    status, output = machine.prepare("local")
    assert status == 1
    assert "libfabric-bin" in output
    assert machine.done() == []
    assert machine.prepare("local", env={"SYSTEM": "no"})[0] == 0
    assert "venv" in machine.done()


def test_an_old_python_is_named(machine: Machine) -> None:
    machine.has(python3=OLD_PYTHON)
    status, output = machine.prepare("run")
    assert status == 1
    assert "python3 here is: Python 3.9.2." in output


def test_a_newer_python_beside_an_old_one_is_found(machine: Machine) -> None:
    machine.has(python3=OLD_PYTHON, fi_pingpong=FINE, **{"python3.12": PYTHON})
    status, output = machine.prepare("run")
    assert status == 0
    assert "python3.12" in output
