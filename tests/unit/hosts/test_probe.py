"""What a host tells of itself: the script, and the reader of its answer."""

import dataclasses
import os
import platform
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabbench.hosts.probe import probe_arguments, read_probe, script
from fabbench.hosts.probe_result import UNLIMITED, Interface, Link, Probe
from fabbench.model.hosts import MpiKind
from tests.support import sysfs
from tests.support.any_text import CHARACTERS
from tests.support.golden import GOLDEN, assert_golden
from tests.support.needed import need
from tests.support.probes import PROBES, lines, probe
from tests.support.tiers import sampled

NAMES = sorted(path.stem for path in PROBES.glob("*.txt"))


def ask(
    *programs: str, folders: tuple[str, ...] = (), env: dict[str, str] | None = None
) -> list[str]:
    argv = ["sh", "-c", script(), "fabbench", *probe_arguments(programs, folders)]
    done = subprocess.run(
        argv, env=os.environ | (env or {}), capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    return done.stdout.splitlines()


def fake(folder: Path, name: str, text: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


# ---------------------------------------------------------------- the script, on this machine


@pytest.mark.parametrize("shell", sampled(["dash", "bash", "sh", "busybox"], every=4))
def test_every_shell_can_read_the_script_and_run_it(shell: str) -> None:
    need(shell)
    shells = [shell, "sh"] if shell == "busybox" else [shell]
    subprocess.run([*shells, "-n"], input=script(), text=True, check=True)
    done = subprocess.run(
        [*shells, "-s"], input=script(), capture_output=True, text=True, check=True
    )
    assert read_probe(done.stdout.splitlines()).whole


def test_the_script_is_clean() -> None:
    need("shellcheck")
    subprocess.run(["shellcheck", "-s", "sh", "-"], input=script(), text=True, check=True)


def test_this_machine_is_reported_as_it_is() -> None:
    found = read_probe(ask("sh", "no-such-program"))
    assert found.whole
    assert found.unread == ()
    assert found.hostname == platform.node()
    assert found.kernel == platform.release()
    assert found.cpus
    assert found.huge_pages is not None
    assert found.temporary_free
    assert found.programs["sh"].path.endswith("/sh")
    assert found.programs["sh"].size == Path(found.programs["sh"].path).stat().st_size
    assert found.missing == ("no-such-program",)


def test_named_directories_come_before_the_path(tmp_path: Path) -> None:
    fake(tmp_path / "my tools", "mpirun", "echo 'mpirun (Open MPI) 5.0.8'")
    fake(tmp_path / "path", "mpirun", "echo 'mpirun (Open MPI) 4.1.4'")
    path = {"PATH": f"{tmp_path / 'path'}:{os.environ['PATH']}"}
    named = read_probe(ask("mpirun", folders=(str(tmp_path / "my tools"),), env=path))
    assert named.mpi is not None
    assert (named.mpi.program, named.mpi.kind) == (
        f"{tmp_path}/my tools/mpirun",
        MpiKind.OPEN_MPI_5,
    )
    fake(
        tmp_path / "hydra",
        "mpiexec.hydra",
        "echo 'HYDRA build details:'; echo '    Version:    4.0.2'",
    )
    itself = read_probe(
        ask("mpirun", folders=(str(tmp_path / "hydra" / "mpiexec.hydra"),), env=path)
    )
    assert itself.mpi is not None
    assert (itself.mpi.program, itself.mpi.kind) == (
        f"{tmp_path}/hydra/mpiexec.hydra",
        MpiKind.HYDRA,
    )
    by_path = read_probe(ask("mpirun", env=path))
    assert by_path.mpi is not None
    assert (by_path.mpi.program, by_path.mpi.kind) == (
        f"{tmp_path}/path/mpirun",
        MpiKind.OPEN_MPI_4,
    )


@pytest.mark.slow
def test_a_directory_may_be_a_pattern_or_in_the_home_directory(tmp_path: Path) -> None:
    fake(tmp_path / "cuda-12.8" / "bin", "some_perf", "")
    home = {"HOME": str(tmp_path)}
    found = read_probe(ask("some_perf", folders=("~/cuda-*/bin",), env=home))
    assert found.programs["some_perf"].path == f"{tmp_path}/cuda-12.8/bin/some_perf"


def test_settings_are_reported_and_nothing_else_of_the_environment() -> None:
    env = {
        "NCCL_NET": "AWS Libfabric",
        "NCCL_API_TOKEN": "s3cret",
        "FI_private_key": "s3cret",
        "AWS_SECRET_ACCESS_KEY": "s3cret",
        "MY_NCCL_NET": "other",
        "FI_PROVIDER": "",
    }
    probed = ask(env=env)
    assert "s3cret" not in "\n".join(probed)
    settings = read_probe(probed).settings
    assert {name: settings[name] for name in env if name in settings} == {
        "NCCL_NET": "AWS Libfabric",
        "NCCL_API_TOKEN": "(hidden)",
        "FI_private_key": "(hidden)",
        "FI_PROVIDER": "",
    }


def test_files_of_settings_are_reported_with_what_they_were_measured_with(tmp_path: Path) -> None:
    own = tmp_path / ".nccl.conf"
    own.write_text("NCCL_ALGO=RING\n")
    tuned = tmp_path / "tuned.conf"
    tuned.write_text(
        "# Written by fabbench tune nccl\n"
        "# Measured with nodes=2,GPU=NVIDIA H100. Elsewhere, measure again.\nNCCL_ALGO=RING\n"
    )
    env = {"HOME": str(tmp_path), "NCCL_CONF_FILE": str(tuned)}
    seen = f"{tuned} (measured with nodes=2,GPU=NVIDIA H100)"
    assert read_probe(ask(env=env)).nccl_conf[-2:] == (str(own), seen)


@pytest.mark.slow
def test_nothing_is_written(tmp_path: Path) -> None:
    ask("mpirun", env={"TMPDIR": str(tmp_path), "HOME": str(tmp_path)})
    assert list(tmp_path.iterdir()) == []


def test_providers_are_reported_although_a_variable_hides_them(tmp_path: Path) -> None:
    fake(tmp_path, "fi_info", 'echo "provider: tcp"; echo "    domain: ${FI_PROVIDER-all}"')
    probed = ask(env={"PATH": f"{tmp_path}:{os.environ['PATH']}", "FI_PROVIDER": "efa"})
    assert [domain.name for domain in read_probe(probed).domains] == ["all"]
    assert read_probe(probed).settings["FI_PROVIDER"] == "efa"


def test_programs_that_hang_are_stopped_and_the_rest_is_reported(tmp_path: Path) -> None:
    # The first question is whether it works at all, with `true`, which may take longer on a busy
    # machine.
    fake(
        tmp_path,
        "timeout",
        'shift 3; [ "$1" != true ] || exec true; exec /usr/bin/timeout 0.2 "$@"',
    )
    fake(tmp_path, "nvidia-smi", "exec sleep 60")
    fake(tmp_path, "fi_info", "echo 'provider: efa'; exec sleep 60")
    found = read_probe(ask(env={"PATH": f"{tmp_path}:{os.environ['PATH']}"}))
    assert found.whole
    assert (found.nvidia_smi.status, found.fi_info.status) == (124, 124)
    assert found.gpus == ()


@pytest.mark.slow
def test_an_old_nvidia_smi_is_asked_for_what_it_knows(tmp_path: Path) -> None:
    fake(
        tmp_path,
        "nvidia-smi",
        "case $1 in *fabric.state*) echo fabric.state is not a valid field to query.; exit 2 ;; "
        "*apps*) exit 0 ;; "
        "*) echo '0, Tesla V100-SXM2-32GB, 450.80.02, 00000000:00:1E.0' ;; esac",
    )
    found = read_probe(ask(env={"PATH": f"{tmp_path}:{os.environ['PATH']}"}))
    assert [(gpu.name, gpu.fabric) for gpu in found.gpus] == [("Tesla V100-SXM2-32GB", "")]
    assert found.gpu_processes == 0


# ---------------------------------------------------------------- the reader, on recorded answers


@pytest.mark.parametrize("name", NAMES)
def test_a_whole_answer_is_read_whole(name: str) -> None:
    found = probe(name)
    assert (found.whole, found.unread) == (True, ())
    facts = {field.name: getattr(found, field.name) for field in dataclasses.fields(found)}
    shown = "".join(f"{fact}: {value(each)}\n" for fact, each in facts.items())
    assert_golden(GOLDEN / f"probe-{name}.txt", shown)


def value(fact: object) -> str:
    """Write what is known: a line for each part of a list, and each different one once."""
    if isinstance(fact, tuple) and len(fact) > 1:
        return "".join(f"\n  {each}" for each in fact)
    return repr(dict(sorted(fact.items()))) if isinstance(fact, dict) else repr(fact)


def test_what_is_read_of_a_p5_is_what_it_has() -> None:
    found = probe("p5-48xlarge")
    assert found.memlock == UNLIMITED
    assert len(found.devices_of(Link.EFA)) == len(found.efa_domains) == 32
    assert found.providers["efa"] == {"rdm", "dgram"}
    assert probe("infiniband").devices_of(Link.INFINIBAND) == ("mlx5_0", "mlx5_1")
    assert probe("roce").devices_of(Link.ROCE) == ("mlx5_0", "mlx5_1")


@pytest.mark.parametrize(
    ("gids", "index"),
    [
        (["0 fe80::1 RoCE v2"], 0),
        (["0 fe80::1 RoCE v2", "1 2001:db8::1 RoCE v2"], 1),
        (["2 0000:0000:0000:0000:0000:ffff:0a00:0001 IB/RoCE v1"], None),
        (["1 0000:0000:0000:0000:0000:0000:0000:0000 RoCE v2"], None),
    ],
)
def test_the_gid_for_roce_is_chosen(gids: list[str], index: int | None) -> None:
    port, parts = "sys\tclass/infiniband/mlx5_0/ports/1", [gid.split(" ", 2) for gid in gids]
    probed = [f"{port}/link_layer:Ethernet"]
    for number, gid, kind in parts:
        probed += [f"{port}/gids/{number}:{gid}", f"{port}/gid_attrs/types/{number}:{kind}"]
    assert read_probe(probed).devices[0].roce_v2_gid == index


@pytest.mark.parametrize(
    ("name", "driver", "layer", "link"),
    [
        ("rdmap0s6", "efa", "Unspecified", Link.EFA),
        ("rdmap0s6", "", "Unspecified", Link.EFA),
        ("rdmap0s6", "other", "Unspecified", Link.UNKNOWN),
        ("usnic_0", "", "Unspecified", Link.UNKNOWN),
        ("mlx5_0", "mlx5_core", "InfiniBand", Link.INFINIBAND),
        ("rdmap0s6", "mlx5_core", "Ethernet", Link.ROCE),
        ("mlx5_0", "", "", Link.UNKNOWN),
    ],
)
def test_a_device_is_what_its_driver_and_link_layer_say(
    name: str, driver: str, layer: str, link: Link
) -> None:
    device = f"sys\tclass/infiniband/{name}"
    probed = [f"{device}/device/uevent:DRIVER={driver}", f"{device}/ports/1/link_layer:{layer}"]
    assert [item.link for item in read_probe(probed).devices] == [link]


def test_without_ip_the_addresses_are_put_to_the_routes() -> None:
    probed = [
        "address\tsh: ip: not found",
        "address.status\t127",
        "address.bare\t198.18.1.11 10.9.9.9 fe80::1 ",
        "address.bare.status\t0",
        (
            "route\tIface\tDestination\tGateway "
            "\tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT"
        ),
        "route\tfab0\t000112C6\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0  ",
        "sys\tclass/net/fab0/operstate:up",
    ]
    found = read_probe(probed)
    assert found.interfaces == (Interface(name="fab0", address="198.18.1.11", up=True),)
    assert found.unread == ("the interface of the address: 10.9.9.9",)


@pytest.mark.parametrize(
    ("vendor", "expected", "kind"),
    [
        ("Amazon EC2", "ml.p5.48xlarge", "p5.48xlarge"),
        ("Amazon EC2", "p5.48xlarge", "p5.48xlarge"),
        ("Amazon EC2", "HVM domU", ""),
        ("QEMU", "p5.48xlarge", ""),
    ],
)
def test_only_amazons_own_machines_have_an_instance_type(
    vendor: str, expected: str, kind: str
) -> None:
    dmi = "sys\tclass/dmi/id"
    assert (
        read_probe([f"{dmi}/board_vendor:{vendor}", f"{dmi}/product_name:{expected}"]).instance_type
        == kind
    )


def test_what_is_not_from_the_probe_is_reported() -> None:
    found = read_probe(["Welcome to cluster one", *lines("debian"), "a\tb"])
    assert found.whole
    assert found.unread == (
        "not from the probe: Welcome to cluster one",
        "not from the probe: a\tb",
    )


@pytest.mark.parametrize(
    ("line", "unread"),
    [
        ("cpus\tmany", "cpus: many"),
        ("memlock\tsh: ulimit: bad", "memlock: sh: ulimit: bad"),
        ("memory\tHugePages_Free: lots", "memory: HugePages_Free: lots"),
        ("sys\tclass/infiniband/mlx5_0", "sysfs: class/infiniband/mlx5_0"),
        ("uname\tLinux", "uname: Linux"),
        ("uverbs\tx y", "uverbs: x y"),
        ("gpu\t0, H100\ngpu.status\t0", "GPU: 0, H100"),
    ],
)
def test_what_cannot_be_read_is_reported(line: str, unread: str) -> None:
    assert unread in read_probe(line.split("\n")).unread


@pytest.mark.parametrize("keep", [0, 1, 20, 100, 500, -1])
def test_an_answer_that_was_cut_is_not_whole(keep: int) -> None:
    found = read_probe(lines("p5-48xlarge")[:keep])
    assert not found.whole


@given(st.data())
def test_no_answer_can_break_the_reader(data: st.DataObject) -> None:
    known = data.draw(st.sampled_from(NAMES))
    drawn = data.draw(
        st.lists(
            st.one_of(
                st.text(CHARACTERS),
                st.sampled_from(lines(known)),
                st.from_regex(r"\A[a-z_.]{1,12}\t.*\Z", alphabet=CHARACTERS),
            )
        )
    )
    cut = [line[: data.draw(st.integers(0, 60))] for line in drawn]
    assert isinstance(read_probe([*drawn, *cut]), Probe)


@pytest.mark.parametrize("shell", sampled(["dash", "bash", "busybox"], every=3))
def test_the_pci_tree_is_reported(tmp_path: Path, shell: str) -> None:
    """What is read of it is in the golden file: PIX, PXB, PHB, NODE and SYS are there."""
    need(shell)
    said = sysfs.answer(tmp_path, {}, *([shell, "sh"] if shell == "busybox" else [shell]))
    assert [line for line in said if line.startswith("sys\t")] == [
        line for line in lines("two-sockets") if line.startswith("sys\t")
    ]


def test_what_ibv_devinfo_says_of_the_mtu_comes_first(tmp_path: Path) -> None:
    said = (
        "hca_id:\tmlx5_0\n\t\tport:\t1\n\t\t\tmax_mtu:\t\t4096 (5)\n\t\t\tactive_mtu:\t\t2048 (4)\n"
    )
    fake(tmp_path / "bin", "ibv_devinfo", f"printf '{said}'")
    found = sysfs.probe(
        tmp_path, {}, "sh", path=f"{tmp_path / 'bin'}:{os.environ['PATH']}"
    ).topology
    assert [(each.mtu, each.max_mtu) for name, each in found.items() if "mlx5" in name] == [
        (2048, 4096)
    ] + [(4096,) * 2] * 3
