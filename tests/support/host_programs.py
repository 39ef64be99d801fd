"""Programs on hosts of a lab that fabbench did not start: traffic, and a training job over gloo."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tests.support.hosts import Host, processes

_SERVE = """
import socket
with socket.create_server(("", 7788)) as server:
    peer, _ = server.accept()
    while peer.recv(1 << 20):
        pass
"""
_SEND = """
import socket, sys, time
peer = socket.create_connection((sys.argv[1], 7788))
begun, sent = time.monotonic(), 0
while True:
    peer.sendall(bytes(1 << 18))
    sent += 1 << 18
    time.sleep(max(0.0, begun + sent / 20e6 - time.monotonic()))
"""
_LISTENS = ":1E6C 00000000:0000 0A"
"""Port 7788, as /proc/net/tcp has it."""

# Data-parallel training, by Debian's PyTorch: in each step all ranks reduce their gradients (1 MB).
# The rank that is `late` computes longer than the others; the one that is `rare` takes part in
# every second step only.
_TRAIN = """
import itertools, sys, time
import torch
from torch import distributed, nn
rank, ranks, late, rare = map(int, sys.argv[1:5])
torch.set_num_threads(1)
place = f"tcp://{sys.argv[5]}:29500"
distributed.init_process_group("gloo", init_method=place, rank=rank, world_size=ranks)
most = distributed.new_group([each for each in range(ranks) if each != rare])
model = nn.Linear(512, 512)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for step in itertools.count():
    optimizer.zero_grad()
    model(torch.rand(4, 512)).square().mean().backward()
    time.sleep(0.25 if rank == late else 0.05)
    group = most if step % 2 else distributed.group.WORLD
    if rank == rare and group is most:
        continue
    for parameter in model.parameters():
        distributed.all_reduce(parameter.grad, group=group)
    optimizer.step()
"""
NOBODY = -1


def start(host: Host, *words: str, **env: str) -> str:
    """Start a Python program on a host, and return its process id there."""
    script = '/usr/bin/python3 -c "$@" >/run/program.log 2>&1 & echo $!'
    shell = ["sh", "-c", script, "sh", *words]
    return host.sh(shell, check=True, timeout=60, **env).stdout.strip()


def forget(*hosts: Host) -> None:
    for host in hosts:
        host.sh(["rm", "-f", "/run/program.log"])


@contextmanager
def traffic(receiver: Host, sender: Host) -> Iterator[None]:
    """20 MB/s of TCP from one host to the other."""
    server = start(receiver, _SERVE)
    assert processes.eventually(lambda: _LISTENS in receiver.sh(["cat", "/proc/net/tcp"]).stdout)
    client = start(sender, _SEND, receiver.address)
    try:
        yield
    finally:
        sender.sh(["kill", client])
        receiver.sh(["kill", server], check=False)  # it ends with its client
        forget(sender, receiver)


def is_sampled(host: Host) -> bool:
    """Return whether a shell of `fabbench watch` runs there."""
    return any(words[:2] == ["sh", "-s"] for words in host.processes().values())


def sent_bytes(host: Host) -> int:
    """Return what fab0 of a host has sent so far."""
    lines = host.sh(["cat", "/proc/net/dev"]).stdout.splitlines()
    (counts,) = (line.split()[1:] for line in lines if line.strip().startswith("fab0:"))
    return int(counts[8])


def await_sent(host: Host, count: float) -> None:
    """Wait until a host has sent so many bytes more."""
    before = sent_bytes(host)
    sent = processes.eventually(lambda: sent_bytes(host) > before + count, 120)
    assert sent, host.sh(["cat", "/run/program.log"], check=False).stdout


@contextmanager
def training(hosts: Sequence[Host], late: int = NOBODY, rare: int = NOBODY) -> Iterator[list[str]]:
    """A training job over gloo that goes on, one rank on each host; give their process ids."""
    started = []
    try:
        for rank, host in enumerate(hosts):
            words = (rank, len(hosts), late, rare, hosts[0].address)
            pid = start(host, _TRAIN, *map(str, words), GLOO_SOCKET_IFNAME="fab0")
            started.append(pid)
        await_sent(hosts[-1], 20e6)
        yield started
    finally:
        for host, pid in zip(hosts, started, strict=False):
            host.sh(["kill", "-KILL", pid], check=False)
        forget(*hosts)
