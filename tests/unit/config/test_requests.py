"""Requests of values: what is given, a configuration, the launchers and an environment."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

import fabbench
from fabbench.benchmarks import runnable
from fabbench.benchmarks.nccl.plan import NcclWork
from fabbench.benchmarks.pingpong.plan import PingpongWork
from fabbench.catalog.images import DEFAULT, default_image
from fabbench.cli.click_options import command_line
from fabbench.cli.run_command import RunCommand
from fabbench.config import read
from fabbench.config.given import Given, GivenOptions, Origin
from fabbench.config.requests import request_of
from fabbench.config.sections import Config
from fabbench.launchers import options_of_formats, options_of_launchers
from fabbench.launchers.kubernetes import KubernetesOptions
from fabbench.launchers.ssh import SshLauncherOptions
from fabbench.model.errors import RequestError
from fabbench.model.options import AUTO
from fabbench.plan.request import Adaptive, RunRequest

LAUNCHERS = options_of_launchers()
FILE = read(
    "targets: {prod: {launcher: ssh, hosts: [a], env: {A: '1', B: '1'}}, k: {launcher: kubernetes}}"
    "\nvariants: {old: {paths: [/opt/old]}}\n",
    Path("/etc/fabbench.yaml"),
    launchers=LAUNCHERS,
)
ON_SSH = {"on": Given("ssh"), "hosts": Given(("a", "b"))}


def made(
    given: GivenOptions,
    benchmark: str = "nccl",
    config: Config | None = FILE,
    environment: Mapping[str, str] | None = None,
) -> RunRequest:
    return request_of(benchmark, given, config, LAUNCHERS, environment or {})


def test_what_is_given_is_what_is_requested() -> None:
    given = {
        "on": Given("prod"),
        "iterations": Given(7),
        "gpus": Given(4),
        "fabrics": Given(("tcp",)),
        "env": Given({"B": "2", "C": None}),
        "variants": Given(("old",)),
        "repeats": Given(3),
        "name": Given("nightly"),
    }
    request = made(given, environment={"C": "secret"})
    assert isinstance(request.work, NcclWork)
    assert (request.work.iterations, request.repeats, request.adaptive) == (7, 3, None)
    assert (request.target.name, request.target.gpus, request.name) == ("prod", 4, "nightly")
    assert (request.env, request.target.inherited) == ({"A": "1", "B": "2"}, ("C",))
    assert [variant.paths for variant in request.target.variants] == [("/opt/old",)]
    assert request.target.typed == ("gpus",)
    assert (request.target_reason, request.command) == ("set with --on", ())


def test_hosts_mean_ssh_and_nodes_do_not() -> None:
    for flags in (("--host",), ("--node", "--hostfile")):
        request = made({"hosts": Given(("a",), flags=flags)}, config=None)
        assert (request.target.launcher, request.target.hosts) == ("ssh", ("a",))
    with pytest.raises(RequestError, match="No target"):
        made({"hosts": Given(("a",), flags=("--node",))}, config=None, environment={"HOME": "/x"})


def test_defaults_of_the_file_apply_where_they_have_an_effect() -> None:
    partition = {"partition": Given("gpu", Origin.FILE)}
    assert made({**ON_SSH, **partition}).target.typed == ("hosts",)
    with pytest.raises(RequestError, match="--partition has no effect with --on ssh") as refused:
        made({**ON_SSH, "partition": Given("gpu")})
    assert refused.value.hint == "It works with --on slurm."


def test_repeats_end_by_what_was_said() -> None:
    auto = {**ON_SSH, "repeats": Given(AUTO), "max_time": Given(60.0)}
    request = made(auto)
    assert (request.repeats, request.adaptive) == (None, Adaptive(max_repeats=20, seconds=60.0))
    for name, flag in (("max_repeats", "--max-repeats"), ("max_time", "--max-time")):
        with pytest.raises(RequestError, match=f"^{flag} has no effect without --repeat auto"):
            made({**ON_SSH, name: Given(5)})


def test_a_variable_to_inherit_is_set_unless_a_document_is_made() -> None:
    variable = {"env": Given({"TOKEN": None})}
    with pytest.raises(RequestError, match=r"--env TOKEN .* is not set"):
        made({**ON_SSH, **variable})
    formats = options_of_formats()
    document = request_of("nccl", {"as_form": Given("slurm"), **variable}, None, formats, {})
    assert (document.target.launcher, document.target.inherited) == ("slurm", ("TOKEN",))


def test_pods_have_the_usual_image_unless_the_user_names_one() -> None:
    usual = default_image("torch", ("efa",))
    assert usual not in {"", DEFAULT}
    given = {"on": Given("kubernetes"), "fabrics": Given(("efa",))}
    for image in ("", DEFAULT, "team/image:1"):
        typed = {"image": Given(image)} if image else {}
        options = made({**given, **typed}, "torch").target.options
        assert isinstance(options, KubernetesOptions)
        assert options.image == (image or usual)


def test_a_name_that_both_have_is_the_benchmarks() -> None:
    """The port of ranks is not that of sshd."""
    request = made({**ON_SSH, "port": Given(29501)}, "torch")
    assert isinstance(request.target.options, SshLauncherOptions)
    assert (getattr(request.work, "port", None), request.target.options.port) == (29501, None)


def test_the_library_makes_the_same_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fabbench.yaml").write_text("targets: {k: {launcher: kubernetes, env: {A: '1'}}}\n")
    request = fabbench.request("torch", on="k", fabrics=("efa",), env={"B": "2"})
    assert request.env == {"A": "1", "B": "2"}
    assert getattr(request.target.options, "image", "") == default_image("torch", ("efa",))


DEFAULTS = """
store: kept
targets: {prod: {launcher: ssh, hosts: [a, b]}}
defaults:
  repeat: 4
  fabrics: [efa, tcp]
  run:
    pingpong: {iterations: 7, size: [8, 4K], gate: ["latency:5%"], keep-going: true, gpus: 2}
"""


def of_command_line(*words: str) -> RunRequest:
    """Return the request that the command line makes."""
    command = RunCommand(runnable("pingpong"))
    with command.make_context("pingpong", [*words]) as context:
        return replace(command.request(command_line(context)), command=())


def test_the_defaults_of_the_file_are_those_of_the_library_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FABBENCH_STORE", raising=False)
    (tmp_path / "fabbench.yaml").write_text(DEFAULTS)
    request = fabbench.request("pingpong", on="prod")
    assert request.work == PingpongWork(sizes=(8, 4096), iterations=7)
    assert (request.repeats, request.fabrics, request.keep_going) == (4, ("efa", "tcp"), True)
    assert (request.target.gpus, request.store) == (2, tmp_path / "kept")
    assert request == of_command_line("--on", "prod")
    own = fabbench.request("pingpong", on="prod", iterations=9, repeats=2, store=tmp_path / "x")
    assert own.work == PingpongWork(sizes=(8, 4096), iterations=9)
    typed = ("--on", "prod", "--iterations", "9", "--repeat", "2", "--store", str(tmp_path / "x"))
    assert own == of_command_line(*typed)


def test_a_mistake_in_the_defaults_of_the_file_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fabbench.yaml").write_text("defaults: {run: {pingpong: {iteratons: 7}}}\n")
    with pytest.raises(RequestError, match="iteratons"):
        fabbench.request("pingpong")
