"""What is wrong with hosts: every check can pass, warn or fail, and be skipped."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fabbench.hosts.check import Check, Connection, HostRelations, Status, check_hosts, worst
from fabbench.hosts.probe import read_probe
from fabbench.hosts.probe_result import Interface, Probe, ProgramResult
from fabbench.model.errors import Exit
from fabbench.model.hosts import Needs
from tests.support import sysfs
from tests.support.paths import DATA
from tests.support.probes import lines, probe
from tests.support.tiers import EVERY_CUT, sampled

PASS, WARN, FAIL, SKIP = Status.PASS, Status.WARN, Status.FAIL, Status.SKIP
P5, P4D, IB, ROCE, BROKEN, DEBIAN = map(
    probe, ("p5-48xlarge", "p4d-24xlarge", "infiniband", "roce", "broken", "debian")
)
NCCL = Needs(
    programs=("all_reduce_perf",), install="see the docs", mpi=True, gpus=True, fabrics=("efa",)
)
GONE, HUNG = ProgramResult(status=127), ProgramResult(status=124)
BAD = ProgramResult(status=1, lines=("bad",))


ANY = Needs()


def check_host(
    host: str, found: Probe, needs: Needs = ANY, address: str = "", image: str = ""
) -> list[Check]:
    """Check a host by itself."""
    checks = check_hosts(
        {host: found}, needs, image=image, relations=HostRelations(addresses={host: address})
    )
    return [check for check in checks if check.name != "reachable"]


def one(name: str, found: Probe, wanted: Needs = NCCL) -> Check:
    (check,) = [check for check in check_host("a", found, wanted) if check.name == name]
    assert check.seen.strip()
    assert bool(check.advice) == (check.status is not PASS)
    return check


def each(
    name: str, probes: dict[str, Probe], relations: HostRelations | None = None
) -> dict[str, Status]:
    checks = check_hosts(probes, NCCL, relations=relations or HostRelations())
    return {check.host: check.status for check in checks if check.name == name}


def drop(found: Probe, kind: str) -> Probe:
    return replace(found, domains=tuple(item for item in found.domains if item.provider != kind))


def only(found: Probe, count: int) -> Probe:
    """Keep the first of the EFA devices that fi_info offers."""
    names = found.efa_domains[:count]
    return replace(
        found, domains=tuple(d for d in found.domains if d.name.rpartition("-")[0] in names)
    )


def with_gpus(instance_type: str, name: str) -> Probe:
    """Return a host of a type with eight GPUs, all of a name."""
    named = tuple(replace(gpu, name=name) for gpu in P5.gpus)
    return replace(P5, instance_type=instance_type, gpus=named)


EMPTY = Probe()
LIBRARIES = ("/usr/lib/libnccl.so.2.27.5", "/opt/nccl/libnccl.so.2.28.9")
RTX = "NVIDIA RTX PRO 6000 Blackwell Server Edition"
UNNAMED, G5 = replace(P5, instance_type=""), replace(P5, instance_type="g5.48xlarge")

TUNED = "/etc/nccl.conf (measured with nodes=4,type=p4d.24xlarge)"
ONE_WORD = (
    "libfabric efa verbs memlock gpus plugin programs mpirun tools settings disk load interface"
)

CASES = [
    ("answer", replace(P5, whole=False), NCCL, FAIL, "cut off"),
    ("answer", replace(P5, unread=("cpus: many", "x")), NCCL, WARN, "cpus: many"),
    ("libfabric", replace(P5, fi_info=HUNG, domains=()), NCCL, FAIL, "10 s"),
    ("libfabric", replace(P5, fi_info=GONE), NCCL, WARN, "fi_info was not found"),
    ("libfabric", replace(DEBIAN, fi_info=GONE), ANY, SKIP, "fi_info was not found"),
    ("efa", UNNAMED, NCCL, PASS, "/sys has 32"),
    ("efa", only(P5, 8), NCCL, WARN, "lists 8 EFA devices, and /sys has 32"),
    ("efa", only(UNNAMED, 8), NCCL, WARN, "lists 8"),
    ("efa", replace(P4D, instance_type="p5.4xlarge"), NCCL, WARN, "a p5.4xlarge has 1"),
    ("efa", only(replace(P5, instance_type="p6e-gb200.36xlarge"), 4), NCCL, PASS, "has 16 or 4"),
    ("efa", drop(P5, "efa"), NCCL, FAIL, "lists 0 EFA devices, and /sys has 32"),
    ("efa", replace(drop(P5, "efa"), fi_info=GONE), NCCL, SKIP, "lists 0"),
    (
        "rdma ports",
        replace(IB, devices=(replace(IB.devices[0], state="DOWN"), IB.devices[1])),
        ANY,
        WARN,
        "mlx5_0",
    ),
    (
        "rdma ports",
        replace(IB, devices=(replace(IB.devices[0], state="INIT"),)),
        ANY,
        FAIL,
        "mlx5_0",
    ),
    (
        "rdma ports",
        replace(ROCE, devices=(replace(ROCE.devices[0], roce_v2_gid=None),)),
        ANY,
        WARN,
        "RoCE v2",
    ),
    ("verbs", replace(P5, verbs=0, verbs_there=0), NCCL, FAIL, "/dev/infiniband"),
    ("verbs", replace(P5, verbs=30), NCCL, FAIL, "30 of 32"),
    ("verbs", replace(P5, verbs=4, verbs_there=4), NCCL, WARN, "4 /dev/infiniband/uverbs* for 32"),
    ("memlock", replace(P5, memlock=16 * 1024**3), NCCL, PASS, "16 GB"),
    ("memlock", replace(P5, memlock=8 * 1024**3), NCCL, WARN, "8 GB"),
    ("memlock", replace(P5, memlock=64 * 1024**2), NCCL, FAIL, "64 MB"),
    ("memlock", replace(IB, memlock=8192 * 1024), ANY, FAIL, "8 MB"),
    ("huge pages", replace(P5, huge_pages=0, huge_pages_free=0), NCCL, WARN, "regular pages"),
    (
        "gpus",
        replace(P5, gpus=tuple(replace(gpu, fabric="In Progress") for gpu in P5.gpus)),
        NCCL,
        FAIL,
        "not ready",
    ),
    ("gpus", replace(P5, instance_type="p4d.24xlarge"), NCCL, WARN, "has A100"),
    ("gpus", with_gpus("g6.48xlarge", "NVIDIA L40S"), NCCL, WARN, "has L4"),
    ("gpus", with_gpus("p4d.24xlarge", "NVIDIA A100-SXM4-80GB"), NCCL, WARN, "has A100"),
    ("gpus", with_gpus("g7e.48xlarge", RTX), NCCL, PASS, RTX),
    ("gpus", replace(P5, gpus=(), nvidia_smi=GONE), NCCL, FAIL, "nvidia-smi was not found"),
    ("gpus", replace(P5, gpus=(), nvidia_smi=HUNG), NCCL, FAIL, "10 s"),
    (
        "gpus",
        replace(DEBIAN, nvidia_smi=ProgramResult(status=9, lines=("No devices",))),
        ANY,
        FAIL,
        "No devices",
    ),
    ("gpu work", replace(P5, gpu_processes=None), NCCL, SKIP, "does not show"),
    (
        "plugin",
        replace(P5, libraries=("/usr/lib/libnccl.so.2",)),
        NCCL,
        FAIL,
        "(libnccl-net) was not found",
    ),
    ("plugin", replace(P5, libraries=IB.libraries), NCCL, FAIL, "(libnccl-net) was not found"),
    ("mpirun", BROKEN, Needs(programs=("mpirun",)), FAIL, "mpirun was not found"),
    ("mpirun", replace(P5, mpi=None, mpirun_version=BAD), NCCL, FAIL, "bad"),
    ("mpirun", replace(P5, mpi=None, mpirun_version=HUNG), ANY, WARN, "status 124"),
    ("tools", replace(P5, tools={"timeout": "/bin/timeout"}), NCCL, WARN, "stdbuf, setsid"),
    ("settings", replace(P5, settings={"FI_PROVIDER": ""}), NCCL, WARN, "FI_PROVIDER="),
    ("settings", replace(P5, nccl_conf=(TUNED,)), NCCL, WARN, "here: type p5.48xlarge."),
    ("settings", replace(UNNAMED, nccl_conf=(TUNED,)), NCCL, WARN, f"Inherited: {TUNED}."),
    ("settings", replace(P5, settings={"FI_EFA_IFACE": ""}), NCCL, FAIL, "FI_EFA_IFACE"),
    (
        "settings",
        replace(P5, settings={"FI_EFA_USE_HUGE_PAGE": "1", "FI_EFA_FORK_SAFE": "1"}),
        NCCL,
        FAIL,
        "abort",
    ),
    ("settings", replace(P5, settings={"FI_EFA_USE_DEVICE_RDMA": "1"}), NCCL, PASS, "1 settings"),
    ("settings", replace(G5, settings={"FI_EFA_USE_DEVICE_RDMA": "1"}), NCCL, FAIL, "no RDMA"),
    ("disk", replace(P5, temporary_free=500 * 1024**2), NCCL, WARN, "0.5 GB"),
    ("disk", replace(P5, temporary_free=0), NCCL, FAIL, "0.0 GB"),
    ("load", replace(P5, load=150.0), NCCL, WARN, "150 on 192"),
    ("interface", replace(P5, ssh_address="203.0.113.9"), NCCL, WARN, "203.0.113.9"),
    (
        "interface",
        replace(P5, interfaces=(Interface(name="eth1", address="10.0.1.11", up=False),)),
        NCCL,
        FAIL,
        "down",
    ),
    *(
        (name, EMPTY, NCCL, SKIP, "does not include")
        for name in ("rdma ports", "huge pages", *ONE_WORD.split())
    ),
]


RECORDED = [line.split(" | ") for line in (DATA / "checks.txt").read_text("utf-8").splitlines()[1:]]


@pytest.mark.parametrize("row", sampled(RECORDED, every=3), ids=" ".join)
def test_a_recorded_host(tmp_path: Path, row: list[str]) -> None:
    name, of, wanted, status, seen, *changes = row
    files = dict(each.split("=") for each in changes)
    needs = (
        NCCL
        if wanted == "nccl"
        else replace(ANY, fabrics=tuple(filter(None, [wanted.removeprefix("any")])))
    )
    check = one(name, sysfs.probe(tmp_path, files) if of == "two-sockets" else probe(of), needs)
    assert (check.status, seen in check.seen) == (status, True), check


def test_an_image_that_needs_a_newer_driver() -> None:
    (check,) = [
        each for each in check_host("a", P5, NCCL, image="a/b:cuda13.0") if each.name == "gpus"
    ]
    assert (check.status, "needs driver 580" in check.seen) == (FAIL, True)


def test_settings_measured_elsewhere_name_what_is_known_here() -> None:
    """Of one host alone it is not known how many there will be; nor NCCL's version of several."""
    file = "/etc/nccl.conf (measured with nodes=4,NCCL=2.1.0)"
    of_two = replace(P5, nccl_conf=(file,), libraries=(*LIBRARIES, "/opt/libnccl.so.2.30.7"))
    host = replace(of_two, libraries=LIBRARIES[:1])
    assert "Tune again" not in one("settings", of_two).seen
    assert "here: NCCL 2.27.5. Tune again." in one("settings", host).seen
    checks = check_hosts({"a": host, "b": of_two}, NCCL)
    first, second = (check.seen for check in checks if check.name == "settings")
    assert "with nodes 4, NCCL 2.1.0; here: nodes 2, NCCL 2.27.5." in first
    assert "with nodes 4; here: nodes 2." in second


def test_each_check_says_how_to_install_its_own_thing() -> None:
    bare = replace(P5, fi_info=GONE, programs={}, missing=("all_reduce_perf", "mpirun"), mpi=None)
    advice = {check.name: check.advice for check in check_host("a", bare, NCCL)}
    assert [name for name, text in advice.items() if NCCL.install in text] == ["programs"]
    assert "libfabric-bin" in advice["libfabric"]
    assert "openmpi-bin" in advice["mpirun"]


@pytest.mark.parametrize(
    ("name", "found", "wanted", "status", "seen"),
    CASES,
    ids=[f"{name}-{status}-{seen[:20]}" for name, _, _, status, seen in CASES],
)
def test_a_host_by_itself(
    name: str, found: Probe, wanted: Needs, status: Status, seen: str
) -> None:
    check = one(name, found, wanted)
    assert check.status is status
    assert seen in check.seen


def test_every_check_of_a_host_can_pass_and_find_fault_and_be_skipped() -> None:
    cases = [
        *((case, status) for case, _, _, status, _ in CASES),
        *((row[0], Status(row[3])) for row in RECORDED),
    ]
    for name in {check.name for check in check_host("a", EMPTY)}:
        statuses = {status for case, status in cases if case == name}
        assert PASS in statuses, name
        assert statuses & {WARN, FAIL}, name
        # Of an answer something is always known.
        assert SKIP in statuses or name == "answer", name


def test_the_address_that_others_use_decides_the_interface() -> None:
    checks = check_host("a", BROKEN, address="10.0.1.12")
    assert [(c.status, c.seen) for c in checks if c.name == "interface"] == [
        (PASS, "ens5 (10.0.1.12).")
    ]


# ---------------------------------------------------------------- between hosts

BUILD = P5.programs["all_reduce_perf"]
PATHS = {"all_reduce_perf": replace(BUILD, path="/x")}
UP = (Interface(name="eth9", address=P5.ssh_address),)
DOWN = {"interfaces": (), "ssh_address": "", "default_interface": ""}
DIFFERENCES: list[tuple[str, dict[str, Any], dict[str, Any], Status]] = [
    ("kernel", {"kernel": "5.10"}, {"kernel": ""}, WARN),
    ("libfabric version", {"libfabric": "1.0"}, {"libfabric": ""}, WARN),
    ("EFA installer", {"efa_installer": "1.0"}, {"efa_installer": ""}, WARN),
    ("EFA driver", {"efa_driver": "1.0"}, {"efa_driver": ""}, WARN),
    ("NVIDIA driver", {"nvidia_driver": "1.0"}, {"nvidia_driver": "", "gpus": ()}, WARN),
    ("NCCL", {"libraries": ("/x/libnccl.so.2.1.5",)}, {"libraries": ()}, WARN),
    ("one mpirun", {"mpi": ROCE.mpi}, {"mpi": None}, WARN),
    (
        "one all_reduce_perf",
        {"programs": {"all_reduce_perf": replace(BUILD, size=7)}},
        {"programs": {}},
        WARN,
    ),
    ("one all_reduce_perf", {"programs": PATHS}, {"programs": {}}, FAIL),
    ("interface names", {"interfaces": UP}, DOWN, WARN),
    ("instance type", {"instance_type": "p5en.48xlarge"}, {"instance_type": ""}, WARN),
    ("instance type", {"instance_type": "p4d.24xlarge"}, {"instance_type": ""}, FAIL),
    ("zone", {"zone": "us-east-2c"}, {"zone": ""}, FAIL),
]


@pytest.mark.parametrize(("name", "other", "none", "status"), DIFFERENCES)
def test_the_host_that_differs_is_named(
    name: str, other: dict[str, Any], none: dict[str, Any], status: Status
) -> None:
    differs, lacks = replace(P5, **other), replace(P5, **none)
    assert each(name, {"a": P5, "b": P5, "c": P5}) == {"a": PASS, "b": PASS, "c": PASS}
    assert each(name, {"a": differs, "b": P5, "c": P5}) == {"a": status, "b": PASS, "c": PASS}
    assert each(name, {"a": P5, "b": P5, "c": lacks}) == {"a": PASS, "b": PASS, "c": SKIP}
    # Of two that differ, the first is what the other is compared with.
    assert each(name, {"a": P5, "b": differs}) == {"a": PASS, "b": status}
    assert each(name, {"a": P5, "b": lacks}) == {"a": SKIP, "b": SKIP}


def test_a_difference_says_who_has_what() -> None:
    hosts = {"a": P5, "b": P5, "c": P5, "d": P5, "e": replace(P5, kernel="5.10")}
    (check,) = [c for c in check_hosts(hosts) if c.name == "kernel" and c.status is WARN]
    assert (check.host, check.seen) == ("e", "5.10, while a, b, c and 1 more have 6.8.0-1029-aws.")


def test_what_matters_less_is_a_warning() -> None:
    """Another zone without EFA, and another path of a program that mpirun does not start."""
    tcp, other = replace(DEBIAN, zone="x-1a"), replace(P5, programs=PATHS)
    zones = check_hosts({"a": tcp, "b": replace(tcp, zone="x-1b")})
    paths = check_hosts({"a": P5, "b": other}, replace(NCCL, mpi=False))
    assert [check.status for check in zones if check.name == "zone"] == [PASS, WARN]
    assert [check.status for check in paths if check.name == "one all_reduce_perf"] == [PASS, WARN]


def test_what_only_amazon_has_is_not_checked_elsewhere() -> None:
    names = {check.name for check in check_hosts({"a": IB, "b": IB})}
    assert not names & {"zone", "instance type", "EFA installer", "EFA driver"}
    assert "kernel" in names


def test_one_host_is_not_compared_with_itself() -> None:
    names = {check.name for check in check_hosts({"a": P5})}
    assert not names & {"kernel", "connections", "interface names"}
    assert "reachable" in names


def test_a_host_that_does_not_answer_fails_and_the_others_are_checked() -> None:
    relations = HostRelations(unreachable={"b": "connection refused."})
    checks = check_hosts({"a": P5}, relations=relations)
    assert [(c.host, c.status) for c in checks if c.name == "reachable"] == [
        ("a", PASS),
        ("b", FAIL),
    ]
    (down,) = [check for check in checks if check.host == "b"]
    assert down.seen == "No answer: connection refused."
    assert [c.status for c in checks if c.name == "connections"] == [SKIP]


def test_connections_that_were_not_tried_are_skipped() -> None:
    tried = {
        ("a", "b"): Connection(made=True),
        ("a", "c"): Connection(made=None),
        ("b", "a"): Connection(made=False, why="no answer in 3 s"),
        ("b", "c"): Connection(made=True),
        ("c", "a"): Connection(made=None, why="no free port"),
    }
    hosts = {"a": P5, "b": P5, "c": P5}
    checks = check_hosts(hosts, relations=HostRelations(connections=tried))
    found = {
        check.host: (check.status, check.seen) for check in checks if check.name == "connections"
    }
    assert found == {
        "a": (PASS, "Reached b."),
        "b": (FAIL, "Not reached: a (no answer in 3 s); reached: 1."),
        "c": (SKIP, "No connection was tested: no free port."),
    }


# ---------------------------------------------------------------- all of it


@pytest.mark.parametrize(
    ("statuses", "status"),
    [
        ([PASS, WARN, SKIP], Exit.FINE),
        ([PASS, FAIL], Exit.REFUSED),
        ([WARN], Exit.FINE),
        ([SKIP, SKIP], Exit.REFUSED),
        ([], Exit.REFUSED),
    ],
)
def test_a_fail_refuses_and_so_does_having_found_nothing_out(
    statuses: list[Status], status: Exit
) -> None:
    assert (
        worst(Check(host="a", name="x", status=s, seen="", advice="") for s in statuses) is status
    )


def test_a_good_host_has_nothing_wrong_and_a_broken_one_much() -> None:
    good = check_host("a", P5, NCCL)
    assert {check.status for check in good} == {PASS}
    bad = {check.name for check in check_host("a", BROKEN, NCCL) if check.status is FAIL}
    assert {"libfabric", "efa", "verbs", "memlock", "gpus", "plugin", "programs", "mpirun"} <= bad


@EVERY_CUT
def test_what_a_cut_answer_leaves_out_is_never_blamed_on_the_host(every: int) -> None:
    """A check of an answer that was cut comes to what that of the whole one does, or is skipped."""
    output = lines("p5-48xlarge")
    whole = {check.name: check.status for check in check_host("a", P5, NCCL)}
    for keep in range(0, len(output), every):
        for check in check_host("a", read_probe(output[:keep]), NCCL):
            if check.name != "answer":
                assert check.status in {SKIP, whole[check.name]}, (keep, check)


def test_how_nodes_differ_is_named(tmp_path: Path) -> None:
    changes = {"19:00.0/current_link_width": "8", "mlx5_2/fw_ver": "28.40.1000", "eth2/mtu": "1500"}
    hosts = {"a": sysfs.probe(tmp_path / "a", {}), "b": sysfs.probe(tmp_path / "b", changes)}
    differ = {
        check.name: check.seen
        for check in check_hosts(hosts)
        if check.status is WARN and check.host == "b"
    }
    assert {*differ} - {"load"} == {
        "pcie links",
        "same pcie links",
        "mtu",
        "same mtu",
        "NIC firmware",
    }
    assert differ["NIC firmware"].startswith("28.39.1002, 28.40.1000, while a has 28.39.1002")
    # An idle GPU's link is slower, which is no difference.
    idle = sysfs.probe(tmp_path / "c", {"18:00.0/current_link_speed": "32.0 GT/s PCIe"})
    assert each("same pcie links", {"a": hosts["a"], "c": idle}) == {"a": PASS, "c": PASS}


@pytest.mark.parametrize(
    ("clocks", "off"),
    [
        ({"a": 0.9, "b": -0.1, "c": 0.0}, {}),
        ({"a": 3600.0, "b": 0.2, "c": -0.3}, {"a": "3600 s ahead of"}),
        ({"a": -1.5, "b": 0.0, "c": 0.0}, {"a": "2 s behind"}),
        # This machine's is wrong, and those of the hosts are alike.
        ({"a": 60.0, "b": 60.2, "c": 59.9}, {}),
        # Where no two are alike, this machine's counts.
        ({"a": 60.0, "b": 90.0}, {"a": "60 s ahead of", "b": "90 s ahead of"}),
    ],
)
def test_a_clock_that_differs_by_more_than_a_second(
    clocks: dict[str, float], off: dict[str, str]
) -> None:
    probes = dict.fromkeys(clocks, P5)
    checks = check_hosts(probes, NCCL, relations=HostRelations(clocks=clocks))
    found = {check.host: check for check in checks if check.name == "clock"}
    assert set(found) == set(clocks)
    warned = {host for host, check in found.items() if check.status is not PASS}
    assert warned == set(off)
    for host, how in off.items():
        assert f"is {how} the others" in found[host].seen
