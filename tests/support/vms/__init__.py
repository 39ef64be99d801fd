"""Two virtual machines with an RDMA device each.

Debian's kernel has soft-RoCE (rdma_rxe), which most others lack.

qemu emulates them: they are slow, and need nothing of this machine's kernel. They see this
machine's file system, and keep what they write to themselves. fabbench reaches them by ssh over
eth0; eth1, with rxe0 on it, joins both.
"""

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.support import local_runs
from tests.support.hosts import layout, processes, traces
from tests.support.needed import PATH, refuse, strict
from tests.support.paths import ROOT
from tests.support.sshd import free_port

KERNEL = ROOT / ".rdma"
"""Debian's kernel package, unpacked by setup/prepare rdma."""
_PROGRAMS = (
    "qemu-system-x86_64",
    "modprobe",
    "depmod",
    "busybox",
    "setpriv",
    "rdma",
    "ib_write_bw",
    "fi_pingpong",
)
_MODULES = [
    "virtio_pci",
    "virtio_net",
    "9pnet_virtio",
    "9p",
    "overlay",
    "rdma_ucm",
    "ib_uverbs",
    "crc32_generic",
    "rdma_rxe",
    "sch_netem",
]
_LOOK = """\
find /tmp /var/tmp /dev/shm /root/.ssh -mindepth 1
ps -eo args= | grep -v -e "^\\[" -e " args=" -e sshd"""


class Machines:
    """rdma1 and rdma2, as a test uses them."""

    names = ("rdma1", "rdma2")

    def __init__(self, folder: Path) -> None:
        self.config = folder / "ssh_config"
        self.options = (
            "--on",
            "ssh",
            "--ssh-config",
            str(self.config),
            "--host",
            "rdma1",
            "--host",
            "rdma2",
        )
        """What names them to fabbench."""

    def sh(self, name: str, command: str, *, check: bool = True) -> str:
        """Run a shell command on one of them, as root."""
        argv = ["ssh", "-F", str(self.config), name, command]
        return subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=check
        ).stdout

    def run(self, store: Path, *words: str) -> subprocess.CompletedProcess[str]:
        """Run fabbench on both.

        `run(store, "perftest", "--fabric", "roce")` is `fabbench run perftest …`.
        """
        return local_runs.fabbench(
            store, "run", words[0], *self.options, "--interface", "eth1", *words[1:]
        )

    def _traces(self) -> list[str]:
        return [
            f"{name} {line}" for name in self.names for line in self.sh(name, _LOOK).splitlines()
        ]

    @contextmanager
    def nothing_left(self) -> Iterator[None]:
        """Hold that what happens inside leaves no process and no file on either of them."""
        before = self._traces()
        yield
        left: list[str] = []

        def none() -> bool:
            left[:] = traces.difference(before, self._traces())
            return not left

        assert processes.eventually(none), left

    @contextmanager
    def changed(self, name: str, command: str, back: str) -> Iterator[None]:
        """Let one of them be different for a while."""
        self.sh(name, command)
        try:
            yield
        finally:
            self.sh(name, back)


def missing() -> str:
    """Return why they cannot be started here; empty if they can."""
    path = f"{os.environ.get('PATH', '')}:{PATH}"
    lacking = [program for program in _PROGRAMS if shutil.which(program, path=path) is None]
    if lacking or not list(KERNEL.glob("boot/vmlinuz-*")):
        return (
            f"{', '.join(lacking) or 'a kernel with rdma_rxe'} is missing; setup/prepare rdma "
            "installs it"
        )
    # Their file system is this machine's: root must be able to read what is root's.
    return "" if os.geteuid() == 0 else "virtual machines on this machine's file system need root"


def _tool(*argv: str | Path, cwd: Path | None = None) -> str:
    env = {**os.environ, "PATH": f"{os.environ.get('PATH', '')}:{PATH}"}
    return subprocess.run(
        [*map(str, argv)], env=env, cwd=cwd, capture_output=True, text=True, check=True
    ).stdout


def _initrd(folder: Path) -> Path:
    """Make the initial RAM disk.

    Boot, busybox with its libraries, and the modules in the order of their loading.
    """
    tree = folder / "initrd"
    for name in ("bin", "modules", "below", "upper", "new", "proc", "sys", "dev"):
        (tree / name).mkdir(parents=True)
    shutil.copy(Path(__file__).with_name("boot"), tree / "init")
    (tree / "init").chmod(0o755)
    busybox = shutil.which("busybox", path=f"/bin:{PATH}")
    assert busybox
    shutil.copy(busybox, tree / "bin/busybox")
    linked = subprocess.run(["ldd", busybox], capture_output=True, text=True, check=False).stdout
    for library in (word for word in linked.split() if word.startswith("/")):
        (tree / library[1:]).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(library, tree / library[1:])
    (version,) = (path.name for path in (KERNEL / "lib/modules").iterdir())
    _tool("depmod", "-b", KERNEL, version)
    shown = [
        _tool("modprobe", "-d", KERNEL, "-S", version, "--show-depends", module)
        for module in _MODULES
    ]
    files = [line.split()[1] for line in "".join(shown).splitlines() if line.startswith("insmod ")]
    for file in (wanted := dict.fromkeys(files)):
        shutil.copy(file, tree / "modules")
    (tree / "modules/order").write_text("".join(f"{Path(file).name}\n" for file in wanted))
    image = folder / "initrd.img"
    _tool("sh", "-c", f"find . | busybox cpio -o -H newc >{image}", cwd=tree)
    return image


def _start(
    folder: Path, number: int, port: int, key: str, wire: socket.socket
) -> "subprocess.Popen[bytes]":
    (kernel,) = KERNEL.glob("boot/vmlinuz-*")
    # On a busy machine the emulated timer fails the kernel's check.
    given = "console=ttyS0 quiet no_timer_check panic=-1"
    given += f" vm.name=rdma{number} vm.addr=10.77.0.{number} vm.key={key.split()[1]}"
    security = "security_model=passthrough"
    mac = f"52:54:00:00:02:0{number}"
    # fmt: off
    argv = [
        # They end with this process, however it ends.
        "setpriv", "--pdeathsig", "KILL", "qemu-system-x86_64",
        "-accel", "tcg", "-cpu", "max", "-m", "1024", "-nographic", "-no-reboot",
        "-kernel", kernel, "-initrd", folder / "initrd.img", "-append", given,
        "-virtfs", f"local,path=/,mount_tag=host,{security},readonly=on,multidevs=remap",
        "-netdev", f"user,id=eth0,hostfwd=tcp:127.0.0.1:{port}-:22",
        "-device", "virtio-net-pci,romfile=,netdev=eth0",
        "-netdev", f"socket,id=eth1,fd={wire.fileno()}",
        "-device", f"virtio-net-pci,romfile=,netdev=eth1,mac={mac},host_mtu=4200",
    ]
    # fmt: on
    with (folder / f"rdma{number}.log").open("wb") as log:
        return subprocess.Popen(
            [*map(str, argv)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=[wire.fileno()],
        )


def _config(folder: Path, ports: Sequence[int]) -> None:
    hosts = "".join(f"Host rdma{number}\n  Port {port}\n" for number, port in enumerate(ports, 1))
    keys = (
        f"  IdentityFile {folder}/key\n  UserKnownHostsFile {folder}/known_hosts\n  "
        "StrictHostKeyChecking accept-new\n"
    )
    every = f"Host *\n  HostName 127.0.0.1\n  User root\n{keys}"
    (folder / "ssh_config").write_text(hosts + every)


@contextmanager
def up(folder: Path) -> Iterator[Machines]:
    """Start both, wait until they are up, and end them afterwards."""
    _initrd(folder)
    key = layout.make_key(folder / "key", "client")
    ports = [free_port(), free_port()]
    _config(folder, ports)
    wires = socket.socketpair()
    with ExitStack() as stack:
        for number, (port, wire) in enumerate(zip(ports, wires, strict=True), 1):
            machine = stack.enter_context(_start(folder, number, port, key, wire))
            stack.callback(machine.kill)
            wire.close()
        logs = [folder / f"rdma{number}.log" for number in (1, 2)]
        ready = processes.eventually(
            lambda: all(b"up rdma" in log.read_bytes() for log in logs), 400
        )
        assert ready, "\n".join(log.read_text(errors="replace")[-2000:] for log in logs)
        machines = Machines(folder)
        for name in machines.names:
            # Now their host keys are known, and a program that fabbench gives 10 s has been read
            # once.
            machines.sh(name, "fi_info >/dev/null")
        yield machines


@pytest.fixture(scope="session")
def rdma(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    """Yield two virtual machines with RoCE."""
    if reason := missing():
        refuse(reason, fail=strict("FABBENCH_REQUIRE_RDMA"))
    with up(tmp_path_factory.mktemp("rdma")) as machines:
        yield machines
