"""A Dockerfile's instructions; and those that take nothing but package archives, done in a root.

python -m tests.support.dockerfile docker/cpu/Dockerfile ROOT
"""

import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_ENTER = """
mount --rbind /dev "$1/dev"; mount -t proc proc "$1/proc"; cd /
if [ "$2" = alone ]; then "$(command -v ip || echo /sbin/ip)" link set lo up; fi
root=$1; shift 2; exec chroot "$root" "$@"
"""
_NO_SERVICES = "usr/sbin/policy-rc.d"


class Instruction(NamedTuple):
    """One instruction, with its continued lines joined."""

    stage: str
    name: str
    text: str


def read(path: Path) -> list[Instruction]:
    """Return the instructions of a Dockerfile."""
    lines = path.read_text("utf-8").splitlines()
    joined = "\n".join(line for line in lines if not line.lstrip().startswith("#")).replace(
        "\\\n", " "
    )
    found: list[Instruction] = []
    stage = ""
    for line in filter(str.strip, joined.splitlines()):
        word, _, text = line.partition(" ")
        if word == "FROM":
            stage = text.partition(" AS ")[2] or text
        found.append(Instruction(stage, word, " ".join(text.split())))
    return found


class Root:
    """The root of a system in a folder, as a container's.

    With the environment that ENV gives it.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {"PATH": _PATH}

    def command(self, *words: str, network: bool = False) -> list[str]:
        """Return the command that runs another in this root, by default with loopback alone."""
        spaces = ["--mount", "--pid", "--ipc", *([] if network else ["--net"])]
        enter = ["sh", "-euc", _ENTER, "sh", str(self.folder), "with" if network else "alone"]
        given = [
            "env",
            "-i",
            *(f"{name}={value}" for name, value in self.environment.items()),
            *words,
        ]
        return [
            "unshare",
            *spaces,
            "--fork",
            "--kill-child",
            "--propagation",
            "private",
            *enter,
            *given,
        ]

    def run(self, *words: str, network: bool = False) -> subprocess.CompletedProcess[str]:
        """Run a command in this root to its end, and return what it printed."""
        return subprocess.run(
            self.command(*words, network=network),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
        )

    def build(self, context: Path, instructions: Iterable[Instruction]) -> None:
        """Do these instructions, as docker build does them. Raise RuntimeError where one fails."""
        # The base images have it too: what is installed starts no service.
        policy = self.folder / _NO_SERVICES
        policy.write_text("#!/bin/sh\nexit 101\n")
        policy.chmod(0o755)
        shell = ["/bin/sh", "-c"]
        for each in instructions:
            match each.name:
                case "RUN":
                    done = self.run(*shell, each.text, network=True)
                    if done.returncode:
                        raise RuntimeError(
                            f"RUN {each.text}\n{done.stdout}\nexit status {done.returncode}"
                        )
                case "COPY":
                    self._copy(context, each.text.split())
                case "ENV":
                    self.environment |= dict(word.split("=", 1) for word in each.text.split())
                case "SHELL":
                    shell = each.text.strip("[]").replace('"', "").split(", ")
                case "CMD" | "EXPOSE" | "LABEL" | "FROM" | "ARG":
                    pass  # changes no file
                case _:
                    raise RuntimeError(f"{each.name} is not known here")

    def _copy(self, context: Path, words: list[str]) -> None:
        *sources, target = words
        place = self.folder / target.lstrip("/")
        (place if target.endswith("/") else place.parent).mkdir(parents=True, exist_ok=True)
        for source in sources:
            shutil.copy(context / source, place)


if __name__ == "__main__":
    dockerfile = Path(sys.argv[1])
    Root(Path(sys.argv[2])).build(dockerfile.parent, read(dockerfile))
