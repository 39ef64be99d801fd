"""`fabbench.yaml`: what it says, what is wrong with it, and where a run goes."""

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from fabbench.benchmarks import benchmark_named, runnable_names
from fabbench.benchmarks.pingpong.plan import PingpongWork
from fabbench.cli import cli
from fabbench.cli.click_options import read_hostfile
from fabbench.cli.config_file import command_options, default_map
from fabbench.cli.run_command import RunCommand
from fabbench.config import Resolved, find_config, load, read, resolve
from fabbench.config.given import Given
from fabbench.config.requests import default_work
from fabbench.config.schema import schema
from fabbench.config.sections import Config
from fabbench.launchers import options_of_launchers
from fabbench.launchers.local import LocalOptions
from fabbench.launchers.ssh import SshLauncherOptions
from fabbench.model.errors import MachineError, RequestError
from fabbench.model.hostlist import expand_hostlist
from fabbench.model.hosts import Target
from fabbench.model.options import LauncherOptions
from tests.support.command_line import runner
from tests.support.golden import assert_golden
from tests.support.paths import DATA, ROOT

PATH = Path("/etc/cluster/fabbench.yaml")
LAUNCHERS = options_of_launchers()
KNOWN = {
    "local": LAUNCHERS["local"],
    "ssh": LAUNCHERS["ssh"],
    "own": LauncherOptions,
    "slurm": LAUNCHERS["slurm"],
}
LISTS = json.loads((DATA / "hostlists.json").read_text("utf-8"))
"""Lists of hosts and host files, and their hosts, or what is wrong with them."""
DOCUMENTS = DATA / "config-documents.json"


def config(text: str) -> Config:
    return read(text, PATH, launchers=KNOWN, benchmarks=command_options)


def mistakes(text: str) -> list[str]:
    """What is wrong, without the file's name."""
    with pytest.raises(RequestError) as raised:
        config(text)
    return [line.removeprefix(f"{PATH}:").strip() for line in str(raised.value).splitlines()]


def target(settings: str) -> str:
    return f"targets:\n  prod:\n    launcher: ssh\n    hosts: [a]\n    {settings}\n"


# ---------------------------------------------------------------- lists of hosts


READERS = {"lists": expand_hostlist, "files": read_hostfile}


@pytest.mark.parametrize(
    ("kind", "text", "names"), [(kind, *each) for kind in READERS for each in LISTS[kind]]
)
def test_a_list_of_hosts_or_a_host_file_names_its_hosts(kind: str, text: str, names: str) -> None:
    assert READERS[kind](text) == tuple(names.split())


@pytest.mark.parametrize(
    ("kind", "text", "wrong"),
    [(kind, *each) for kind in READERS for each in LISTS[f"wrong-{kind}"]],
)
def test_a_wrong_list_or_file_says_what_is_wrong(kind: str, text: str, wrong: str) -> None:
    with pytest.raises(ValueError, match=re.escape(wrong)):
        READERS[kind](text)


# ---------------------------------------------------------------- what a file says


def test_every_key_is_read_as_what_it_is() -> None:
    read = config((DATA / "every-key.yaml").read_text("utf-8"))
    assert (read.path, read.default, read.store) == (PATH, "prod", Path("/etc/cluster/runs"))
    assert (read.defaults.repeat, read.defaults.fabrics) == (5, ("efa", "tcp;ofi_rxm"))
    nccl = {"min-bytes": "8", "max-bytes": "2G", "check": "2", "collective": ("alltoall", "reduce")}
    assert read.defaults.run == {"nccl": nccl}
    assert read.targets["box"] == Target(
        name="box", launcher="local", options=LocalOptions(virtual_nodes=2)
    )
    assert read.targets["prod"] == Target(
        name="prod",
        launcher="ssh",
        hosts=("b.example", "node01", "node02"),
        nodes=2,
        interface="eth0",
        bin_dirs=("/opt/nccl-tests/build",),
        mpirun="/opt/amazon/openmpi/bin/mpirun",
        gpus=8,
        env={
            "A": "4",
            "B": "1.50",
            "C": "x y",
            "D": "010",
            "E": "1_000",
            "F": "2024-01-01",
            "G": "",
        },
        options=SshLauncherOptions(
            user="ubuntu",
            port=2222,
            identity=Path("/etc/cluster/keys/id"),
            ssh_config=Path("/etc/ssh/config"),
            accept_new_host_keys=True,
            ssh_client="paramiko",
            lost_after=30,
        ),
    )


@pytest.mark.parametrize(
    "text", ["", "# nothing\n", "---\n", "targets:\n", "defaults:\n", "{}", "\ufeff{}"]
)
def test_a_file_may_be_empty(text: str, tmp_path: Path) -> None:
    path = tmp_path / "fabbench.yaml"
    path.write_text(text, "utf-8")
    assert load(path, launchers=KNOWN) == Config(path=path)


def test_hosts_may_be_one_text_and_a_home_directory_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    read = config(target("identity: ~/.ssh/id").replace("[a]", "node[1-2],c")).targets["prod"]
    assert (read.hosts, read.options_as(SshLauncherOptions).identity) == (
        ("node1", "node2", "c"),
        Path("/home/me/.ssh/id"),
    )


def test_targets_share_settings_by_merging() -> None:
    prod = target("user: me").replace("prod:", "prod: &prod")
    read = config(f"{prod}  pair:\n    <<: *prod\n    hosts: [c, d]\n")
    pair = Target(
        name="pair", launcher="ssh", hosts=("c", "d"), options=SshLauncherOptions(user="me")
    )
    assert (read.targets["pair"], read.targets["prod"].hosts) == (pair, ("a",))


def test_a_launcher_has_the_keys_that_it_declares() -> None:
    assert config("targets: {t: {launcher: own, gpus: 2}}").targets["t"].gpus == 2
    (mistake,) = mistakes("targets: {t: {launcher: own, virtual-nodes: 2}}")
    assert mistake.startswith("targets.t: unknown key for launcher own: 'virtual-nodes'. Valid")


def test_names_of_benchmarks_are_checked_where_they_are_known() -> None:
    text = "defaults: {run: {other: {any: 1}}}"
    assert read(text, PATH, launchers=KNOWN).defaults.run == {"other": {"any": "1"}}
    (mistake,) = mistakes(text)
    assert mistake.startswith("defaults.run.other: Unknown benchmark other. One of ep, fabtests, ")


# ---------------------------------------------------------------- mistakes


def test_documents_are_read_or_refused_as_recorded() -> None:
    """By the schema that editors get, too. Of each: a text, and what the golden file says of it."""
    found = []
    for document in json.loads(DOCUMENTS.read_text("utf-8")):
        text, valid, said, hint = document["text"], None, [], None
        try:
            read(text, PATH, launchers=LAUNCHERS, benchmarks=command_options)
        except RequestError as error:
            said = [
                line.removeprefix(f"{PATH}:").strip().partition(" Valid")[0]
                for line in str(error).splitlines()
            ]
            hint = None if "--schema" in str(error.hint) else error.hint
        with suppress(yaml.YAMLError, RecursionError, ValueError):
            valid = accepted_by_schema(text)
        found.append({"text": text, "schema": valid, "said": said, "hint": hint})
        # What the schema refuses the loader refuses.
        assert valid is not False or said, text
    assert len([each for each in found if each["schema"] and not each["said"]]) > 5
    lines = ",\n".join(json.dumps(each, ensure_ascii=False) for each in found)
    assert_golden(DOCUMENTS, f"[\n{lines}\n]\n")


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (target("prot: 1\n    port: x"), "targets.prod: unknown key for launcher ssh: 'prot'"),
        (target("port: x\n    prot: 1"), "targets.prod.port is 'x'"),
        ("stroe: x\n" + target("prot: 1"), "Unknown key 'stroe'"),
    ],
)
def test_the_first_mistake_of_the_file_is_reported(text: str, place: str) -> None:
    (mistake,) = mistakes(text)
    assert mistake.startswith(place)


def test_a_file_that_cannot_be_read_is_the_machines_fault(tmp_path: Path) -> None:
    for path, reason in (
        (tmp_path / "none", "No such file or directory"),
        (tmp_path, "Is a directory"),
    ):
        with pytest.raises(MachineError, match=f"{re.escape(str(path))} cannot be read: {reason}"):
            load(path, launchers=KNOWN)


@pytest.mark.parametrize(
    ("data", "wrong"),
    [
        (b"a: b\nc: \xff", ": This is not UTF-8: invalid start byte at byte 8."),
        (b"[" * 500, " is nested too deeply"),
    ],
)
def test_a_file_that_is_no_text_of_settings_is_refused(
    data: bytes, wrong: str, tmp_path: Path
) -> None:
    path = tmp_path / "fabbench.yaml"
    path.write_bytes(data)
    with pytest.raises(RequestError, match=re.escape(f"{path}{wrong}")):
        load(path, launchers=KNOWN)


EXAMPLE = (ROOT / "examples/fabbench.yaml").read_text("utf-8")
PIECES = (
    "- ",
    ": ",
    "{",
    "]",
    "<<",
    "&a ",
    "*a",
    "*prod",
    "!x ",
    "'",
    "\t",
    "~",
    "---\n",
    "|\n",
    "? ",
    "\x07",
    "0o7",
)


@given(
    st.lists(
        st.tuples(st.integers(0, len(EXAMPLE)), st.integers(0, 20), st.sampled_from(PIECES)),
        max_size=4,
    )
)
def test_a_damaged_file_is_read_or_refused(damages: list[tuple[int, int, str]]) -> None:
    text = EXAMPLE
    for start, length, piece in damages:
        text = text[:start] + piece + text[start + length :]
    try:
        assert isinstance(read(text, PATH, launchers=LAUNCHERS), Config)
    except RequestError as error:
        assert str(error).startswith(f"{PATH}:")  # noqa: PT017 - either is right


# ---------------------------------------------------------------- where the file is


def test_the_nearest_file_is_found_up_to_the_repository(tmp_path: Path) -> None:
    inner = tmp_path / "repository/a/b"
    inner.mkdir(parents=True)
    (tmp_path / "repository/.git").mkdir()
    (tmp_path / "fabbench.yaml").touch()
    own = tmp_path / "home/.config/fabbench/fabbench.yaml"
    environment = {"HOME": str(tmp_path / "home")}
    assert find_config(inner, environment) is None
    own.parent.mkdir(parents=True)
    own.touch()
    assert find_config(inner, environment) == own
    assert find_config(inner, environment | {"XDG_CONFIG_HOME": "relative"}) == own
    assert find_config(inner, environment | {"XDG_CONFIG_HOME": str(tmp_path)}) is None
    for folder in (tmp_path / "repository", inner.parent):
        (folder / "fabbench.yaml").touch()
        assert find_config(inner, environment) == folder / "fabbench.yaml"
    (inner / "fabbench.yaml").mkdir()
    assert find_config(inner, environment) == inner.parent / "fabbench.yaml"
    named = find_config(inner, environment | {"FABBENCH_CONFIG": "other.yaml"})
    assert named == inner / "other.yaml"


# ---------------------------------------------------------------- schema, example, documentation


@cache
def generated() -> dict[str, Any]:
    return schema(LAUNCHERS, {name: command_options(name) for name in runnable_names()})


def accepted_by_schema(text: str) -> bool:
    return bool(jsonschema.Draft7Validator(generated()).is_valid(yaml.safe_load(text)))


def test_the_example_is_right() -> None:
    assert accepted_by_schema(EXAMPLE)
    assert (
        len(load(ROOT / "examples/fabbench.yaml", launchers=LAUNCHERS).targets["prod"].hosts) == 16
    )


# ---------------------------------------------------------------- the command


def test_the_command_shows_what_is_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "fabbench.yaml"
    path.write_text(
        "default: box\ndefaults: {run: {pingpong: {verify: true, size: [8, 1K]}}}\n"
        "targets: {box: {launcher: local}, other-box: {launcher: local}}\n"
    )
    done = runner().invoke(cli, ["config", "--config", str(path)])
    assert yaml.safe_load(done.stdout) == {
        "file": str(path),
        "default": "box",
        "run": {"pingpong": {"verify": True, "size": ["8", "1K"]}},
        "targets": {name: {"launcher": "local"} for name in ("box", "other-box")},
    }


def test_the_command_prints_the_schema() -> None:
    done = runner().invoke(cli, ["config", "--schema"])
    assert json.loads(done.output) == generated()
    jsonschema.Draft7Validator.check_schema(generated())


def test_defaults_of_the_file_become_defaults_of_options() -> None:
    pingpong = "{verify: true, size: [8], factor: 4}"
    read = config(
        f"store: runs\ndefaults: {{repeat: 5, fabrics: [tcp], run: {{pingpong: {pingpong}}}}}"
    )
    defaults = default_map(read, "pingpong", RunCommand(benchmark_named("pingpong")))
    wanted = {"sizes": ("8",), "check": True, "factor": "4", "repeats": 5, "fabrics": ("tcp",)}
    assert defaults == {**wanted, "store": Path("/etc/cluster/runs")}
    assert default_work("pingpong", read) == PingpongWork(sizes=(8,), check=True, factor=4)


# ---------------------------------------------------------------- where a run goes

PROD = config(f"default: prod\n{target('user: x')}")
NO_DEFAULT = config(target("user: x"))
IN_SLURM = {"SLURM_JOB_ID": "1"}


@pytest.fixture
def kubeconfig(tmp_path: Path) -> dict[str, str]:
    """An environment whose kubeconfig has the current context c."""
    (tmp_path / "config").write_text("current-context: c\n")
    return {"KUBECONFIG": str(tmp_path / "config")}


def where(
    on: str | None = None,
    config: Config | None = None,
    environment: Mapping[str, str] | None = None,
    launchers: Mapping[str, type[LauncherOptions]] = LAUNCHERS,
) -> Resolved:
    given = {} if on is None else {"on": Given(on)}
    return resolve(given, config, launchers, environment or {})


@pytest.mark.parametrize(
    ("on", "file", "environment", "name", "launcher", "why"),
    [
        ("prod", PROD, {"FABBENCH_TARGET": "local"}, "prod", "ssh", "set with --on"),
        ("local", PROD, {"FABBENCH_TARGET": "prod"}, "local", "local", "set with --on"),
        (None, PROD, {"FABBENCH_TARGET": "local"}, "local", "local", "set with FABBENCH_TARGET"),
        (None, NO_DEFAULT, {"FABBENCH_TARGET": "prod"}, "prod", "ssh", "set with FABBENCH_TARGET"),
        (None, PROD, {"FABBENCH_TARGET": "", **IN_SLURM}, "prod", "ssh", f"default of {PATH}"),
        (None, NO_DEFAULT, IN_SLURM, "slurm", "slurm", "this is inside a Slurm allocation"),
        (None, None, {}, "kubernetes", "kubernetes", "c is the current kubeconfig context"),
    ],
)
def test_the_first_that_says_where_to_run_decides(  # noqa: PLR0913, PLR0917 - one of each
    on: str | None,
    file: Config | None,
    environment: Mapping[str, str],
    name: str,
    launcher: str,
    why: str,
    kubeconfig: dict[str, str],
) -> None:
    found = where(on, file, {**kubeconfig, **environment})
    assert (found.target.name, found.target.launcher) == (name, launcher)
    assert found.target == (PROD.targets["prod"] if name == "prod" else found.target)
    assert type(found.target.options) is LAUNCHERS[launcher]
    assert found.why.startswith(why)


def test_the_kubeconfig_is_not_looked_at_where_something_else_says_where_to_run(
    tmp_path: Path,
) -> None:
    (tmp_path / "config").write_text("[")
    broken = {"KUBECONFIG": str(tmp_path / "config")}
    for environment in ({"FABBENCH_TARGET": "local"}, IN_SLURM):
        where(environment={**broken, **environment})
    with pytest.raises(MachineError):
        where(environment=broken)


def test_an_unknown_name_is_refused_with_those_there_are() -> None:
    known = {name: LAUNCHERS[name] for name in ("local", "ssh", "slurm", "kubernetes")}
    with pytest.raises(RequestError, match=rf"prdo \(set with --on\): .* {PATH}") as raised:
        where("prdo", PROD, launchers=known)
    assert (
        raised.value.hint
        == "Did you mean prod? Known to --on: prod, kubernetes, local, slurm, ssh."
    )
    with pytest.raises(RequestError, match=r"fabbench\.yaml \(none was found\)"):
        where(environment={"FABBENCH_TARGET": "prod"})


def test_each_place_looked_at_is_named_where_nothing_says_it() -> None:
    with pytest.raises(RequestError) as raised:
        where()
    looked_at = (
        "--on FABBENCH_TARGET fabbench.yaml ~/.config/fabbench --host SLURM_JOB_ID kubeconfig"
    )
    assert [each for each in looked_at.split() if each not in str(raised.value)] == []
    with pytest.raises(RequestError, match=f"{PATH} has no default") as raised:
        where(config=NO_DEFAULT, environment=IN_SLURM, launchers={"local": LAUNCHERS["local"]})
    assert "SLURM" not in str(raised.value)
