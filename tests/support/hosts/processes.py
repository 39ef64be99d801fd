"""Reading /proc: who is in which namespace, and what runs there."""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path


def eventually(true: Callable[[], object], seconds: float = 60) -> bool:
    """Wait for something; how long it takes is no matter."""
    begun = time.monotonic()
    while not true():
        if (waited := time.monotonic() - begun) > seconds:
            return False
        time.sleep(0.02 if waited < 1 else 0.1 if waited < 10 else 0.3)
    return True


def children(pid: int) -> list[int]:
    """Processes that a process started, and that are still there."""
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def descendants(pid: int) -> list[int]:
    """The processes that a process started, by any of its threads, and those that these did."""
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended
            _, _, fields = stat.read_text().rpartition(")")
            parents[int(stat.parent.name)] = int(fields.split()[1])
    found = [pid]
    for parent in found:
        found += [child for child, of in parents.items() if of == parent]
    return found[1:]


def ended_soon(pids: Iterable[int]) -> bool:
    """Whether processes end within two seconds."""
    left = list(pids)
    return eventually(lambda: not any(map(alive, left)), 2)


def namespace(pid: int, kind: str) -> str:
    """Name a process's namespace; empty if the process is gone."""
    try:
        return str(Path(f"/proc/{pid}/ns/{kind}").readlink())
    except OSError:
        return ""


def command(pid: int) -> list[str]:
    """The command line of a process; empty if it is gone or a zombie."""
    try:
        text = Path(f"/proc/{pid}/cmdline").read_text(errors="replace").rstrip("\0")
    except OSError:
        return []
    return text.split("\0") if text else []


def inside(kind: str, name: str) -> Iterator[int]:
    """Processes in a namespace, zombies apart."""
    for entry in os.scandir("/proc"):
        if (
            entry.name.isdecimal()
            and namespace(int(entry.name), kind) == name
            and alive(int(entry.name))
        ):
            yield int(entry.name)


def alive(pid: int, proc: Path = Path("/proc")) -> bool:
    """Whether a process runs; one that has ended and was not waited for does not."""
    try:
        return (proc / f"{pid}/stat").read_text().rpartition(")")[2].split()[0] not in {"Z", "X"}
    except (OSError, IndexError):
        return False


def is_busy(pid: int, seconds: float = 0.2) -> bool:
    """Whether a process has computed for so long: it does what it was started for."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return False
    return sum(map(int, fields[11:13])) >= seconds * os.sysconf("SC_CLK_TCK")


def send(number: signal.Signals, pid: int) -> None:
    """Send a signal to a process that may be gone."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


@contextlib.contextmanager
def slowed(pids: Iterable[int]) -> Iterator[None]:
    """Let processes that poll without a pause have a tenth of a core each, until this is left."""
    with contextlib.ExitStack() as stack:
        held = [os.pidfd_open(pid) for pid in pids]
        for one in held:
            stack.callback(os.close, one)
        over = threading.Event()

        def hold() -> None:
            while not over.wait(0.01):
                for number, pause in ((signal.SIGSTOP, 0.09), (signal.SIGCONT, 0)):
                    for one in held:
                        with contextlib.suppress(ProcessLookupError):
                            signal.pidfd_send_signal(one, number)
                    over.wait(pause)

        thread = threading.Thread(target=hold)
        thread.start()
        stack.callback(thread.join)
        stack.callback(over.set)
        yield
