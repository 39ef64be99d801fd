"""Diagnoses and the configuration as JSON; runs in a notebook."""

import json
from pathlib import Path

import pytest

from fabbench.cli import cli
from fabbench.config.given import Given, Origin
from fabbench.config.requests import with_options
from fabbench.launchers.slurm import SlurmOptions
from fabbench.launchers.slurm.launcher import _refuse_options_of_jobs
from fabbench.model.errors import RequestError
from fabbench.model.hosts import Target
from tests.support.command_line import runner
from tests.support.paths import ROOT

LOGS = [ROOT / "examples/logs" / name for name in ("x-ofi-efa-missing.txt", "x-net-socket.txt")]


def test_a_diagnosis_is_a_document() -> None:
    done = runner().invoke(cli, ["explain", *map(str, LOGS), "--json"])
    first, _ = json.loads(done.stdout)["logs"]
    assert (first["outcome"], first["facts"]["transport"]) == ("off-fabric", "socket")
    assert "NET/Socket" in first["evidence"]["transport"]
    assert first["findings"][0]["code"] == "plugin-failed"


def test_the_configuration_is_a_document(tmp_path: Path) -> None:
    file = tmp_path / "fabbench.yaml"
    file.write_text("default: prod\ntargets: {prod: {launcher: ssh, hosts: [a, b]}}\n")
    done = runner().invoke(cli, ["config", "--config", str(file), "--json"])
    document = json.loads(done.stdout)
    assert document["targets"] == {"prod": {"launcher": "ssh", "hosts": ["a", "b"]}}
    assert (document["default"], document["file"]) == ("prod", str(file))


@pytest.mark.parametrize(("name", "value"), [("partition", "gpu"), ("time", "1:00:00")])
def test_an_allocation_has_its_partition_and_time_already(name: str, value: str) -> None:
    places = {"slurm": SlurmOptions}
    of_file = Target(
        name="prod", launcher="slurm", options=SlurmOptions(partition="gpu", time="4:00:00")
    )
    given = {"mpi": Given("mpirun"), name: Given(value, Origin.FILE)}
    _refuse_options_of_jobs(with_options(of_file, given, places, "--on"))
    typed = with_options(of_file, {name: Given(value)}, places, "--on")
    with pytest.raises(RequestError, match=f"--{name} has no effect inside a Slurm"):
        _refuse_options_of_jobs(typed)
