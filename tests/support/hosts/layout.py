"""What a lab consists of, and the files that its boot script reads: keys, names, sshd's configuration."""

import pwd
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tests.support.hosts import slurm
from tests.support.paths import ROOT

MOST_HOSTS = 64
HOME = Path(pwd.getpwuid(0).pw_dir)
"""Root's home: the client and the hosts each see a copy-on-write view of it there."""

# Key exchange as cheap as it gets: OpenSSH's default costs 60 ms of processor time a connection.
_SSHD = """\
Port {port}
AddressFamily inet
HostKey /etc/ssh/ssh_host_ed25519_key
AuthorizedKeysFile .ssh/authorized_keys
PidFile /run/sshd.pid
UsePAM no
UseDNS no
StrictModes no
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
KexAlgorithms curve25519-sha256,curve25519-sha256@libssh.org,ecdh-sha2-nistp256,diffie-hellman-group14-sha256
MaxStartups 1000
MaxSessions 1000
PrintMotd no
Subsystem sftp internal-sftp
"""
_CLIENT = """\
Host *
  User root
  Port {port}
  IdentityFile ~/.ssh/{key}
  IdentitiesOnly yes
  BatchMode yes
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What a test asks of a lab."""

    hosts: int = 2
    slow: str = "200mbit"
    """Rate of fab1, in tc's notation."""
    port: int = 22
    homes: Literal["shared", "own"] = "shared"
    """One home for all hosts, as on a cluster with a shared file system, or one for each."""
    trust: bool = False
    """Whether the hosts may ssh to each other already: the user's own arrangement."""
    behind: tuple[int, ...] = ()
    """Hosts that the client reaches through node0 only (ProxyJump)."""
    share: tuple[Path, ...] = ()
    """Folders under /tmp that the hosts are to see; the checkout and its Python they see anyway."""
    tmp: str = "128m"
    """Size of each host's /tmp."""
    sshd: tuple[str, ...] = ()
    """Lines for the hosts' sshd_config; they win over the lab's own."""
    slurm: bool = False
    """Whether the hosts are the nodes of a Slurm; its controller is on node0. See lab/slurm.py."""
    switches: bool = False
    """Whether that Slurm has a topology: two switches with half of the hosts each, and one above them."""
    gpus: int = 0
    """GPUs that Slurm hands out on each host. There are none: it only counts them."""


def address(number: int, network: int = 1) -> str:
    """The address of a host: on fab0 (network 1) or fab1 (network 2)."""
    return f"198.18.{network}.{10 + number}"


def write(folder: Path, options: Options) -> None:
    """Write everything that `boot` reads."""
    names = [f"node{number}" for number in range(options.hosts)]
    for name in ("client", "cluster", "etc-ssh", *names):
        (folder / name).mkdir(parents=True)
    (folder / "plan").write_text(_plan(names, options))
    (folder / "etc-hosts").write_text("".join(_etc_hosts(names)))
    # sshd without PAM lets nobody in whose password is locked with an exclamation mark.
    (folder / "etc-shadow").write_text("root:*:20000:0:99999:7:::\n")
    for name in ("ssh_config", "sshd_config"):
        (folder / "etc-ssh" / name).write_text("# nothing\n")
    known = "".join(_host(folder / name, number, options) for number, name in enumerate(names))
    _client(folder, names, known, options)
    if options.slurm:
        addresses = [address(number) for number in range(options.hosts)]
        slurm.write(folder / "etc-slurm", addresses, options.gpus, switches=options.switches)
    if options.trust:
        _trust(folder / "cluster", known, options)


def _plan(names: Sequence[str], options: Options) -> str:
    prefixes = {Path(sys.prefix), Path(sys.base_prefix), Path(sys.executable).resolve().parents[1]}
    shares = dict.fromkeys(map(str, [ROOT, *sorted(prefixes - {Path("/usr")}), *options.share]))
    lists = {"names": names, "shares": [*shares], "walled": [str(number) for number in options.behind]}
    single = {"home": str(HOME), "slow": options.slow, "tmp": options.tmp, "homes": options.homes}
    single["slurm"] = "yes" if options.slurm else ""
    lines = [f"{key}={shlex.quote(value)}\n" for key, value in single.items()]
    return "".join([*lines, *(f"{key}=({shlex.join(values)})\n" for key, values in lists.items())])


def _etc_hosts(names: Sequence[str]) -> Iterator[str]:
    yield "127.0.0.1 localhost\n198.18.1.1 client\n"
    for number, name in enumerate(names):
        yield f"{address(number)} {name}\n{address(number, 2)} {name}-slow\n"


def make_key(path: Path, comment: str) -> str:
    """Make a key pair; gives the public key without its comment."""
    made = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(path)]
    subprocess.run(made, check=True, stdin=subprocess.DEVNULL)
    return " ".join(path.with_suffix(".pub").read_text().split()[:2])


def _host(folder: Path, number: int, options: Options) -> str:
    """Write one host's /etc/ssh; gives its lines for known_hosts."""
    key = make_key(folder / "ssh_host_ed25519_key", folder.name)
    ours = _SSHD.format(port=options.port)
    (folder / "sshd_config").write_text("".join([*(f"{line}\n" for line in options.sshd), ours]))
    (folder / "ssh_config").write_text("# nothing\n")
    places = [folder.name, f"{folder.name}-slow", address(number), address(number, 2)]
    if options.port != 22:
        places = [f"[{place}]:{options.port}" for place in places]
    return f"{','.join(places)} {key}\n"


def _client(folder: Path, names: Sequence[str], known: str, options: Options) -> None:
    home = folder / "client"
    key = make_key(home / "lab_key", "client")
    (folder / "cluster/authorized_keys").write_text(f"{key} client\n")
    (home / "known_hosts").write_text(known)
    hosts = []
    for number, name in enumerate(names):
        jump = "  ProxyJump node0\n" if number in options.behind else ""
        hosts.append(f"Host {name}\n  HostName {address(number)}\n{jump}")
        hosts.append(f"Host {name}-slow\n  HostName {address(number, 2)}\n{jump}")
    (home / "config").write_text("".join(hosts) + _CLIENT.format(port=options.port, key="lab_key"))


def _trust(home: Path, known: str, options: Options) -> None:
    key = make_key(home / "id_ed25519", "cluster")
    with (home / "authorized_keys").open("a") as file:
        file.write(f"{key} cluster\n")
    (home / "known_hosts").write_text(known)
    (home / "config").write_text(_CLIENT.format(port=options.port, key="id_ed25519"))
