"""The index of warnings: what it judges, and how it is made of the programs' sources."""

import csv
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from fabbench.catalog.systems import rows_of
from fabbench.catalog.warnings import error_follows
from tests.support.paths import ROOT

SOURCE = """
#define SYSCHECK(call, name) do { \\
    if (call) { \\
      WARN("Call to " name " failed: %s", strerror(errno)); \\
      return ncclSystemError; \\
    } \\
} while (0)

ncclResult_t connect(int dev) {
  if (dev < 0) {
    WARN("Device number %d is below the first of this host", dev);
    return ncclInternalError;
  }
  if (dev > 64) {
    WARN("More devices than usual were found on this host: %d", dev);
  }
  // WARN("No line of this comment is printed");
  if (dlopen("libx.so") == NULL) {
    WARN("Failed to open libx.so of this machine"); return ncclSystemError;
  }
  return ncclSuccess;
}
"""


def rendered(row: Mapping[str, str]) -> tuple[str, str]:
    """Return a message with the words of a row, and the file that prints it."""
    message = f"{row['words']} 7"
    if row["file"] == "NET/OFI":
        return f"NET/OFI {message}", "nccl_net_ofi_init"
    return message, "net_ib.cc" if row["file"] == "*" else row["file"]


def test_each_message_of_the_index_is_judged_as_it_says() -> None:
    judged = {True: 0, False: 0}
    for row in rows_of("warnings.csv"):
        follows = error_follows(*rendered(row))
        if row["error"] == "yes":
            judged[follows] += 1
        else:
            assert not follows, row
    assert judged[False] < 0.02 * judged[True]


@pytest.mark.parametrize(
    ("message", "file", "expected"),
    [
        ("NET/IB: Got CQE with error on comm 0x7f", "p2p.cc", True),
        ("Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 38000", "init.cc", True),
        ("Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 38000", "", True),
        ("lib wrapper not initialized.", "ibvwrap.cc", False),
        ("Cannot initialize CollNet, using point-to-point network instead", "transport.cc", False),
        ("a message that no release has", "init.cc", False),
        ("Duplicate GPU detected : rank 1", "plugin_of_somebody.c", False),
    ],
)
def test_what_an_error_follows(message: str, file: str, *, expected: bool) -> None:
    assert error_follows(message, file) is expected


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    folder = tmp_path / "nccl"
    (folder / "src" / "misc").mkdir(parents=True)
    (folder / "src" / "misc" / "dev.cc").write_text(SOURCE)
    who = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    tags = ("v2.9.6-1", "v2.30.7-1", "v1.2.0")
    commands: list[list[str]] = [["init", "-q"], ["add", "."], [*who, "commit", "-qm", "all"]]
    commands += [["tag", tag] for tag in tags]
    for words in commands:
        subprocess.run(["git", "-C", str(folder), *words], check=True)
    return folder


def test_the_index_is_made_of_the_sources(clone: Path) -> None:
    script = ROOT / "setup" / "nccl_messages.py"
    command = [sys.executable, str(script), *[str(clone)] * 3]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    lines = [line for line in done.stdout.splitlines() if not line.startswith("#")]
    rows = {(row["file"], row["words"]): row for row in csv.DictReader(lines)}
    fates = {key: row["error"] for key, row in rows.items()}
    assert fates == {
        ("*", "Call to"): "yes",
        ("dev.cc", "is below the"): "yes",
        ("dev.cc", "More devices than"): "no",
        ("dev.cc", "Failed to open"): "both",
    }
    assert {(row["first"], row["last"]) for row in rows.values()} == {("v2.9.6-1", "v2.30.7-1")}
