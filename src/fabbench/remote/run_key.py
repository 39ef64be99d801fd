"""An ssh key for one run, which the first host's mpirun uses to reach the others.

It is in the run's directory on the first host; in a sweep, on every host. The others accept it during the
run, only for commands, and everything that is started with it has the run's mark.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fabbench.remote.host import RemoteHost
from fabbench.remote.session import MARK


@dataclass(frozen=True, slots=True, kw_only=True)
class RunKey:
    """A key pair, in OpenSSH's formats."""

    private: bytes
    public: str


def new_key() -> RunKey:
    """Make an Ed25519 key pair."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

    private = Ed25519PrivateKey.generate()
    return RunKey(
        private=private.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()),
        public=private.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode(),
    )


def authorized_line(key: RunKey, token: str) -> str:
    """Return the line for a host's authorized_keys. It ends in the token, which identifies it later."""
    # In quotes, sshd reads \\" as a quote. The user's shell, which may be any, runs the command.
    command = f'env {MARK}={token} TMPDIR=/tmp/fabbench-{token} sh -c \\"$SSH_ORIGINAL_COMMAND\\"'
    return f'restrict,command="{command}" {key.public} fabbench-{token}\n'


def client_config(folder: str, hosts: Sequence[tuple[str, RemoteHost]]) -> str:
    """Return the ssh configuration of the first host. `hosts`: addresses and their hosts."""
    lines = [
        "Host *",
        f"  IdentityFile {folder}/key",
        "  IdentitiesOnly yes",
        f"  UserKnownHostsFile {folder}/known_hosts",
        "  GlobalKnownHostsFile /dev/null",
        "  StrictHostKeyChecking yes",
        "  BatchMode yes",
        "  LogLevel ERROR",
        "  ConnectTimeout 15",
        "  ServerAliveInterval 15",
        "  ControlMaster no",
    ]
    for address, remote in hosts:
        lines += [f"Host {address}", f"  User {remote.user}", f"  Port {remote.port}"]
    return "\n".join(lines) + "\n"


def known_hosts(hosts: Sequence[tuple[str, RemoteHost]]) -> str:
    """Return the host keys that fabbench itself has checked, under the addresses that the hosts use."""
    names = (f"[{address}]:{remote.port}" if remote.port != 22 else address for address, remote in hosts)
    keys = (" ".join(remote.connection.host_key) for _, remote in hosts)
    return "".join(f"{name} {key}\n" for name, key in zip(names, keys, strict=True))


def install(
    addresses: Sequence[Sequence[str]], remotes: Sequence[RemoteHost], *, any_head: bool = False
) -> tuple[str, ...]:
    """Put a key on the first host, let the others accept it, and return the ssh command for mpirun.

    `addresses`: the addresses of each host, in the order of `remotes`. With `any_head`, every host gets the
    key and accepts it. Raise MachineError if it cannot be installed.
    """
    key, token, folder = new_key(), remotes[0].token, remotes[0].folder
    hosts = [(address, remote) for names, remote in zip(addresses, remotes, strict=True) for address in names]
    _on_each(remotes, lambda remote: remote.connection.host_key)  # it may have to ask
    contents = {
        f"{folder}/key": key.private,
        f"{folder}/known_hosts": known_hosts(hosts).encode(),
        f"{folder}/ssh_config": client_config(folder, hosts).encode(),
    }
    _on_each(remotes if any_head else remotes[:1], lambda head: head.put(contents))
    line = authorized_line(key, token).encode()
    first, *others = remotes if any_head else remotes[1:]
    # First one host alone: if hosts share a home, the others find the line there.
    first.run("key", stdin=line)
    _on_each(others, lambda remote: remote.run("key", stdin=line))
    return ("ssh", "-F", f"{folder}/ssh_config")


def _on_each(remotes: Sequence[RemoteHost], work: Callable[[RemoteHost], object]) -> None:
    """Call `work` on all hosts concurrently. Raise the first failure."""
    from fabbench.remote.parallel import map_hosts

    for result in map_hosts({remote.name: remote for remote in remotes}, work).values():
        if isinstance(result, Exception):
            raise result
