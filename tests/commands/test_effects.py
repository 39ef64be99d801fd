"""Every option × launcher × format, from the declarations: it has an effect, or is refused and says where."""

import re
from collections.abc import Mapping
from pathlib import Path

import pytest
from click.testing import Result

from fabbench.cli import cli
from fabbench.cli.declared import GivenOptions, with_options
from fabbench.launchers import options_of_formats, options_of_launchers
from fabbench.model.errors import RequestError
from fabbench.model.hosts import Target, options_of
from fabbench.model.option_types import Flag
from fabbench.model.options import LauncherOptions, Option
from tests.support.command_line import runner
from tests.support.paths import ROOT
from tests.support.tiers import sampled

LAUNCHERS, FORMATS = options_of_launchers(), options_of_formats()
VALUES = {
    "hosts": "n[1-2]",
    "nodes": "3",
    "gpus": "4",
    "interface": "fab0",
    "bin_dirs": "/opt/mine",
    "mpirun": "/opt/mine/mpirun",
    "instance_type": "p5en.48xlarge",
    "cluster_profile": "efa-dra",
    "tolerations": "team",
    "node_selector": "pool=a",
    "labels": "team=a",
    "annotations": "team=a",
    "pod_requests": "cpu=3",
    "start_timeout": "7",
    "lost_after": "7",
    "virtual_nodes": "2",
    "container_mounts": "/a:/b",
    "sbatch_options": "exclude=n7",
    "time": "0:30:00",
    "infra": "slurm",
    "mpi": "mpirun",
    "mpi_agent": "exec",
    "mpi_ssh": "existing",
    "network_tier": "best",
    "namespace": "team",
    "pod_ssh_port": "2345",
    "run_as_user": "1000",
    "idle_minutes": "7",
    "port": "2345",
    "image": "registry.example/team/image:1",
    "ssh_client": "openssh",
}
"""An option → a value that is not its default; others are given a word."""
NEEDED: Mapping[str, tuple[str, ...]] = {
    "slurm mpirun": ("--mpi", "mpirun"),
    "container_mounts": ("--image", "registry.example/team/image:1"),
    "run_as_user": ("--mpi-agent", "exec"),
    "kubernetes mpi_agent": ("--supervised",),
    "kubernetes run_as_user": ("--supervised", "--mpi-agent", "exec"),
}
"""An option, or that of one format → those without which it has no meaning; both documents have them."""
P5 = ("--instance-type", "p5.48xlarge")


def every(places: Mapping[str, type[LauncherOptions]], unwanted: str) -> dict[str, Option]:
    """All options of places that a command line may have, by name."""
    found = {name: each for kind in places.values() for name, each in options_of(kind).items()}
    return {name: each for name, each in found.items() if each.flags and each.only != unwanted}


def words(option: Option) -> tuple[str, ...]:
    value = VALUES.get(option.name, "word")
    return (option.long,) if isinstance(option.type, Flag) else (option.long, value)


def render(form: str, *more: str) -> Result:
    fixed = () if "--instance-type" in more else P5
    return runner().invoke(cli, ["render", "nccl", "--as", form, "--efa", *fixed, *more])


@pytest.mark.parametrize("pair", sampled([(form, name) for name in every(FORMATS, "run") for form in FORMATS], every=7))
def test_an_option_changes_the_document_or_is_refused(pair: tuple[str, str]) -> None:
    form, name = pair
    known, option = options_of(FORMATS[form]), every(FORMATS, "run")[name]
    needed = NEEDED.get(f"{form} {name}", NEEDED.get(name, ())) if name in known else ()
    done = render(form, *needed, *words(option))
    if name in known and known[name].only != "run":
        assert done.exit_code == 0, done.stderr
        assert done.stdout != render(form, *needed).stdout
        return
    works = sorted(each for each, kind in FORMATS.items() if name in options_of(kind))
    assert (done.exit_code, done.stdout) == (2, "")
    assert f"{option.long} has no effect with --as {form}." in done.stderr
    assert f"It works with --as {', '.join(works)}." in done.stderr


@pytest.mark.parametrize("name", every(LAUNCHERS, "render"))
@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_an_option_is_used_by_its_launchers_and_refused_by_others(launcher: str, name: str) -> None:
    kind, option = LAUNCHERS[launcher], every(LAUNCHERS, "render")[name]
    target = Target(name=launcher, launcher=launcher, options=kind())
    value = True if isinstance(option.type, Flag) else VALUES.get(name, "word")
    given = GivenOptions({name: (value,) if option.many else value}, {})
    if name in options_of(kind):
        assert with_options(target, given, LAUNCHERS, "--on") != target
        return
    with pytest.raises(RequestError, match=f"{option.long} has no effect with --on {launcher}") as raised:
        with_options(target, given, LAUNCHERS, "--on")
    works = sorted(each for each, of in LAUNCHERS.items() if name in options_of(of))
    assert raised.value.hint == f"It works with --on {', '.join(works)}."


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_what_a_launcher_declares_is_read(launcher: str) -> None:
    """By its own package, or by what it shares with others."""
    (package,) = (ROOT / "src/fabbench/launchers").rglob(f"{launcher}/launcher.py")
    shared = [*(ROOT / "src/fabbench/remote").glob("*.py"), *(ROOT / "src/fabbench/launchers").glob("*.py")]
    above = package.parent.parent.glob("*.py")
    files = [*package.parent.rglob("*.py"), *shared, *above]
    text = "".join(path.read_text("utf-8") for path in files if path.name != "options.py")
    own = options_of(LAUNCHERS[launcher]).keys() - options_of(LauncherOptions).keys()
    unread = {name for name in own if not re.search(rf"\.{name}\b", text) and f'"{name}"' not in text}
    assert unread == set()


@pytest.mark.parametrize("infra", ["aws", "slurm/cluster"])
@pytest.mark.parametrize("option", ["--toleration", "--pull-secret", "--label", "--annotation"])
def test_options_of_pods_have_no_effect_where_skypilot_makes_none(infra: str, option: str) -> None:
    value = "a=b" if option in {"--label", "--annotation"} else "a"
    done = render("skypilot", "--infra", infra, option, value)
    assert (done.exit_code, done.stdout) == (2, "")
    assert f"{option} has no effect with --infra {infra}" in done.stderr


@pytest.mark.parametrize(
    ("form", "name", "value", "set_"),
    [
        ("script", "NCCL_NET", "Socket", "AWS Libfabric"),
        ("script", "FI_PROVIDER", "tcp", "efa"),
        ("slurm", "NCCL_DEBUG", "WARN", "INFO"),
        ("mpijob", "NCCL_NET", "IB", "AWS Libfabric"),
    ],
)
def test_a_variable_of_the_configuration_is_refused(form: str, name: str, value: str, set_: str) -> None:
    done = render(form, "--env", f"{name}={value}")
    assert (done.exit_code, done.stdout) == (2, "")
    assert f"sets {name}={value}, but efa needs {name}={set_}" in done.stderr
    assert render(form, "--env", f"{name}={set_}").exit_code == 0


NASTY = ("a b", "a;b", "a$(b)", "a`b`", "a'b", 'a"b', "a\nb", "a\x1b[1m", "a|b", "a\\b", "-b", "", "a\u2028b")


@pytest.mark.parametrize("word", sampled(NASTY, every=4))
@pytest.mark.parametrize(
    "option", ["--interface", "--host", "--partition", "--account", "--image", "--instance-type", "--mpirun"]
)
def test_what_a_shell_could_misread_is_no_name(option: str, word: str) -> None:
    form = "script" if option in {"--interface", "--instance-type", "--mpirun"} else "slurm"
    by_option = render(form, f"{option}={word}")
    assert (by_option.exit_code, by_option.stdout) == (2, ""), (option, word)


@pytest.mark.parametrize("word", sampled([each for each in NASTY if each], every=4))
@pytest.mark.parametrize("key", ["interface", "image", "mpirun"])
def test_nor_in_a_variant_or_the_file(key: str, word: str, tmp_path: Path) -> None:
    assert render("slurm", "--variant", f"v={key}={word}", "--variant", "w=").exit_code == 2
    file = tmp_path / "fabbench.yaml"
    quoted = word.replace("'", "''")
    if word.isprintable():
        file.write_text(f"targets: {{t: {{launcher: slurm, {key}: '{quoted}'}}}}\n")
        done = runner().invoke(cli, ["config", "--config", str(file)])
        assert done.exit_code == 2
        assert f"{file}:1:{34 + len(key)}: targets.t.{key} is the string " in done.stderr
