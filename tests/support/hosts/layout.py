"""What a lab consists of, and the files that its boot script reads.

Keys, names, sshd's configuration.
"""

import pwd
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tests.support.hosts import slurm
from tests.support.paths import DATA, ROOT

MAX_HOSTS = 64
_FIRST_UID = 2001
HOME = Path(pwd.getpwuid(0).pw_dir)
"""Root's home: the client and the hosts each see a copy-on-write view of it there."""

# Key exchange as cheap as it gets: OpenSSH's default costs 60 ms of processor time a connection.
_SSHD = (DATA / "lab/sshd_config").read_text("utf-8")
_CLIENT = """\
Host *
  User {user}
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
    users: tuple[str, ...] = ()
    """Users besides root, each with a uid and a home of their own, which client and hosts share."""
    slurm: bool = False
    """Whether the hosts are the nodes of a Slurm; its controller is on node0. See lab/slurm.py."""
    switches: bool = False
    """Whether that Slurm has a topology.

    Two switches with half of the hosts each, and one above them.
    """
    gpus: int = 0
    """GPUs that Slurm hands out on each host. There are none: it only counts them."""


def address(number: int, network: int = 1) -> str:
    """The address of a host: on fab0 (network 1) or fab1 (network 2)."""
    return f"198.18.{network}.{10 + number}"


def write(folder: Path, options: Options) -> None:
    """Write everything that `boot` reads."""
    names = [f"node{number}" for number in range(options.hosts)]
    for name in (
        "client",
        "cluster",
        "etc-ssh",
        *(f"home-{user}" for user in options.users),
        *names,
    ):
        (folder / name).mkdir(parents=True)
    (folder / "plan").write_text(_plan(names, options))
    (folder / "etc-hosts").write_text("".join(_etc_hosts(names)))
    _users(folder, options.users)
    for name in ("ssh_config", "sshd_config"):
        (folder / "etc-ssh" / name).write_text("# nothing\n")
    known = "".join(_host(folder / name, number, options) for number, name in enumerate(names))
    for user in ("root", *options.users):
        _client(folder, user, names, known, options)
    if options.slurm:
        addresses = [address(number) for number in range(options.hosts)]
        slurm.write(folder / "etc-slurm", addresses, options.gpus, switches=options.switches)
    if options.trust:
        _trust(folder / "cluster", known, options)


def _plan(names: Sequence[str], options: Options) -> str:
    prefixes = {Path(sys.prefix), Path(sys.base_prefix), Path(sys.executable).resolve().parents[1]}
    shares = dict.fromkeys(map(str, [ROOT, *sorted(prefixes - {Path("/usr")}), *options.share]))
    lists = {
        "names": names,
        "shares": [*shares],
        "walled": [str(number) for number in options.behind],
    }
    lists["users"] = [*options.users]
    single = {"home": str(HOME), "slow": options.slow, "tmp": options.tmp, "homes": options.homes}
    single["slurm"] = "yes" if options.slurm else ""
    lines = [f"{key}={shlex.quote(value)}\n" for key, value in single.items()]
    return "".join([*lines, *(f"{key}=({shlex.join(values)})\n" for key, values in lists.items())])


def _users(folder: Path, users: Sequence[str]) -> None:
    """Write /etc/passwd, group and shadow: those of this machine, with more users."""
    # sshd without PAM lets nobody in whose password is locked with an exclamation mark.
    shadow = "".join(f"{user}:*:20000:0:99999:7:::\n" for user in ("root", *users))
    (folder / "etc-shadow").write_text(shadow)
    numbered = [*enumerate(users, _FIRST_UID)]
    passwd = "".join(f"{user}:x:{uid}:{uid}::/home/{user}:/bin/bash\n" for uid, user in numbered)
    group = "".join(f"{user}:x:{uid}:\n" for uid, user in numbered)
    for name, more in (("passwd", passwd), ("group", group)):
        (folder / f"etc-{name}").write_text(Path("/etc", name).read_text() + more)


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


def _client(folder: Path, user: str, names: Sequence[str], known: str, options: Options) -> None:
    """Write a user's .ssh of the client; its key opens the hosts.

    Only root has another home there.
    """
    home = folder / ("client" if user == "root" else f"home-{user}")
    key = make_key(home / "lab_key", "client")
    there = folder / "cluster" if user == "root" else home
    (there / "authorized_keys").write_text(f"{key} client\n")
    (home / "known_hosts").write_text(known)
    hosts = []
    for number, name in enumerate(names):
        jump = "  ProxyJump node0\n" if number in options.behind else ""
        hosts.append(f"Host {name}\n  HostName {address(number)}\n{jump}")
        hosts.append(f"Host {name}-slow\n  HostName {address(number, 2)}\n{jump}")
    config = _CLIENT.format(user=user, port=options.port, key="lab_key")
    (home / "config").write_text("".join(hosts) + config)


def _trust(home: Path, known: str, options: Options) -> None:
    key = make_key(home / "id_ed25519", "cluster")
    with (home / "authorized_keys").open("a") as file:
        file.write(f"{key} cluster\n")
    (home / "known_hosts").write_text(known)
    (home / "config").write_text(_CLIENT.format(user="root", port=options.port, key="id_ed25519"))
