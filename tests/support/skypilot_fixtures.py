"""Fixture: SkyPilot on the client of a lab whose hosts are a Slurm.

Real client, API server and launches.
"""

import secrets
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from subprocess import CompletedProcess, Popen
from typing import Any

import pytest

from tests.support.host_fixtures import Labs
from tests.support.hosts import Lab, processes
from tests.support.needed import refuse, strict
from tests.support.paths import ROOT

VENV = ROOT / ".sky"
USER = secrets.token_hex(4)
"""What SkyPilot puts behind the names of clusters, and would make up."""
_CONFIG = "slurm:\n  cluster_configs:\n    lab:\n      workdir: {work}\n"
_SSH = "Host lab\n  HostName {address}\n  Port 22\n  User root\n  IdentityFile {key}\n"


def missing() -> str:
    """Say what is missing for tests with SkyPilot; empty if nothing is."""
    return "" if (VENV / "bin/sky").exists() else "SkyPilot in .sky, which make test-sky installs"


def python() -> Path:
    """Return the Python that has SkyPilot.

    A tier that cannot start fails where nobody would notice.
    """
    if reason := missing():
        refuse(reason, fail=strict("FABBENCH_REQUIRE_SKY"))
    return VENV / "bin/python"


class SkyLab:
    """A client with SkyPilot, in a clean home of its own."""

    def __init__(self, site: Lab, folder: Path) -> None:
        self.site, self.work = site, folder / "work"
        self.home, self.store = folder / "home", folder / "store"
        for made in (self.home / ".slurm", self.home / ".sky", self.work, folder / "tmp"):
            made.mkdir(parents=True)
        key = site.folder / "client/lab_key"
        (self.home / ".slurm/config").write_text(_SSH.format(address=site[0].address, key=key))
        (self.home / ".sky/config.yaml").write_text(_CONFIG.format(work=self.work))
        (self.home / ".sky/user_hash").write_text(USER)
        self.env = {
            "HOME": str(self.home),
            "PATH": f"{VENV}/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "PYTHONPATH": str(ROOT / "src"),
            "FABBENCH_STORE": str(self.store),
            "SKYPILOT_DISABLE_USAGE_COLLECTION": "1",
            "TMPDIR": str(folder / "tmp"),
        }

    def sky(self, *words: str, check: bool = True) -> str:
        """Run SkyPilot's own command."""
        done = self.site.run([VENV / "bin/sky", *words], env=self.env, timeout=300, check=check)
        return done.stdout + done.stderr

    def argv(self, *words: str, name: str) -> list[str | Path]:
        """The words of a run on a cluster of this name.

        SkyPilot finds the stand-in for uv there.
        """
        uv = self.work / f".sky_clusters/{name}-{USER}/.local/bin/uv"
        uv.parent.mkdir(parents=True, exist_ok=True)
        uv.write_text((ROOT / "tests/support/skypilot_uv").read_text().replace("@VENV@", str(VENV)))
        uv.chmod(0o755)
        where = ["--on", "skypilot", "--infra", "slurm", "--cluster-name", name]
        where += [] if "--bin-dir" in words else ["--bin-dir", "/usr/bin"]
        return [VENV / "bin/python", "-m", "fabbench", "run", "pingpong", *where, *words]

    def run(self, *words: str, name: str) -> CompletedProcess[str]:
        """Run fabbench to its end."""
        return self.site.run(self.argv(*words, name=name), env=self.env, timeout=600)

    def popen(self, *words: str, name: str, errors: Path) -> Popen[str]:
        """Start a run; what it says goes into a file."""
        with errors.open("w") as file:
            return self.site.popen(
                self.argv(*words, name=name), env=self.env, stdout=file, stderr=file
            )

    def clusters(self) -> list[str]:
        """The clusters that SkyPilot knows, from its database.

        SkyPilot itself takes seconds to start.
        """
        with closing(sqlite3.connect(self.home / ".sky/state.db")) as database:
            return [name for (name,) in database.execute("SELECT name FROM clusters")]

    def jobs(self) -> list[str]:
        """Slurm's jobs: name and state."""
        return self.site[0].sh(["squeue", "-h", "-o", "%j %T"]).stdout.splitlines()

    def measuring(self) -> list[int]:
        """The processes of the benchmark, on all hosts."""
        return [
            pid
            for host in self.site.hosts
            for pid, words in host.processes().items()
            if words and words[0].endswith("fi_pingpong")
        ]

    def left(self) -> dict[str, Any]:
        """What is left of all clusters.

        SkyPilot's list, Slurm's jobs, programs and files of hosts.
        """
        names = [host.name for host in self.site.hosts]
        measuring = [
            " ".join(words)
            for host in self.site.hosts
            for words in host.processes().values()
            if any("fi_pingpong" in word or "sky_app" in word for word in words)
        ]
        files = [
            f"{name}:{path}"
            for host, name in zip(self.site.hosts, names, strict=True)
            for pattern in ("fabbench-*", "*/fabbench-*")
            for path in map(str, host.path("/tmp").glob(pattern))
        ]
        return {
            "clusters": self.clusters(),
            "jobs": self.jobs(),
            "programs": measuring,
            "files": files,
        }

    def settled(self, **expected: list[str]) -> dict[str, Any]:
        """What is left, once it is as expected, or after a while.

        Hosts and Slurm are done a moment later.
        """
        processes.eventually(lambda: self.left() == {**NOTHING, **expected})
        return self.left()

    def stop(self) -> None:
        """Stop the API server; nothing of it stays but connections that SkyPilot shares."""
        self.sky("api", "stop")
        assert processes.eventually(lambda: not self._own()), self._own()
        shutil.rmtree(f"/tmp/sky_ssh_{USER}", ignore_errors=True)

    def _own(self) -> list[str]:
        lines = (line for line in self.site.traces() if line.startswith("client process"))
        return [line for line in lines if not line.startswith("client process ssh: /tmp/sky_ssh_")]


NOTHING: dict[str, list[str]] = {"clusters": [], "jobs": [], "programs": [], "files": []}


@pytest.fixture(scope="module")
def skypilot(lab: Labs, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SkyLab]:
    """Yield a client whose SkyPilot knows a Slurm of two hosts.

    Its API server runs, and is stopped after.
    """
    python()
    folder = tmp_path_factory.mktemp("sky")
    site = lab(2, slurm=True, share=(folder,))
    found = SkyLab(site, folder)
    try:
        said = found.sky("check", "slurm")
        assert "Slurm: enabled" in said, said
        yield found
    finally:
        found.stop()
