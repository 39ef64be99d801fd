"""What other distributions offer: a broken one is named, and breaks nothing else."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.distributions import install
from tests.support.paths import EXAMPLES
from tests.support.tiers import sampled

LOG = EXAMPLES / "logs/x-net-socket.txt"
GROUPS = {"benchmarks": "nccl", "launchers": "local", "renderings": "script"}
MODULES = {
    "gone": "gone:IT",
    "raises": "odd_raises:IT",
    "bare": "odd_bare:IT",
    "liar": "odd_liar:IT",
}
REASONS = {
    "gone": "cannot be loaded: ModuleNotFoundError: No module named 'gone'.",
    "raises": "cannot be loaded: ZeroDivisionError: division by zero.",
    "bare": "has no ",
    "liar": "reports the name another.",
}
LIAR = """
class It:
    name, joins_groups = "another", False
    def __getattr__(self, name):
        return name
IT = It()
"""


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a distribution that offers broken things, also by fabbench's names."""
    folder = tmp_path_factory.mktemp("site")
    offers = {f"fabbench.{group}": {**MODULES, name: "gone:IT"} for group, name in GROUPS.items()}
    modules = {"odd_raises": "IT = 1 / 0\n", "odd_bare": "IT = object()\n", "odd_liar": LIAR}
    install(folder, "odd", offers, **modules)
    return folder


def fabbench(odd: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    program = (
        f"import sys; sys.path.append({str(odd)!r}); from fabbench.__main__ import main; main()"
    )
    argv = [sys.executable, "-c", program, *words]
    return subprocess.run(argv, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("count", [12, pytest.param(1, marks=pytest.mark.slow)])
def test_logs_are_read_without_what_is_broken(odd: Path, count: int) -> None:
    done = fabbench(odd, "parse", *[str(LOG)] * count, "--format", "csv")
    assert done.returncode == 0
    assert done.stdout.count("all_reduce") >= count
    found = [
        line
        for line in done.stderr.splitlines()
        if line.startswith("Warning: fabbench.benchmarks: ")
    ]
    assert len(found) == len(MODULES)
    assert done.stderr.count("Warning") == len(MODULES)
    for name, reason in REASONS.items():
        assert any(f"{name} of odd 1.0 ({MODULES[name]}) {reason}" in line for line in found), name
        assert all("Update odd, " in line for line in found)


def test_help_lists_what_is_broken_as_such(odd: Path) -> None:
    done = fabbench(odd, "run", "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert "gone      Cannot be loaded: No module named 'gone'" in done.stdout
    assert "pingpong  Latency and bandwidth of fi_pingpong" in done.stdout


@pytest.mark.parametrize("name", sampled(("gone", "raises", "bare"), every=3))
@pytest.mark.parametrize(
    "words",
    sampled(
        [
            ("run", "pingpong", "--on", "{name}"),
            ("run", "{name}", "--on", "local", "--x"),
            ("render", "pingpong", "--as", "{name}"),
        ],
        every=3,
    ),
)
def test_what_is_broken_is_named_when_it_is_asked_for(
    odd: Path, words: tuple[str, ...], name: str
) -> None:
    done = fabbench(odd, *(word.format(name=name) for word in words))
    assert (done.returncode, done.stdout) == (2, "")
    assert f"{name} of odd 1.0 ({MODULES[name]}) {REASONS[name]}" in done.stderr
    assert "Hint: Update odd, " in done.stderr


def test_nobody_takes_the_name_of_what_fabbench_has(odd: Path) -> None:
    done = fabbench(odd, "render", "pingpong", "--as", "script", "--fabric", "tcp")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("#!/usr/bin/env bash\n")


BAD = """
from fabbench.benchmarks.pingpong import BENCHMARK
from fabbench.launchers import Launcher

class Bad(type(BENCHMARK)):
    name = "bad"
    def is_document(self, block):
        return {}["in the plug-in"]

class BadLauncher(Launcher):
    name = "bad"
    def open(self, target, needs):
        return 1 / 0
    def examine(self, target, needs, *, deep, progress):
        return 1 / 0

BENCHMARK = Bad()
LAUNCHER = BadLauncher()
"""


@pytest.fixture(scope="module")
def bad(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a distribution whose objects load, and fail when they are used."""
    folder = tmp_path_factory.mktemp("site")
    offers = {
        "fabbench.benchmarks": {"bad": "bad_plugin:BENCHMARK"},
        "fabbench.launchers": {"bad": "bad_plugin:LAUNCHER"},
    }
    install(folder, "bad-things", offers, bad_plugin=BAD)
    return folder


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        pytest.param(("parse", str(LOG)), "KeyError: 'in the plug-in'", marks=pytest.mark.slow),
        (("parse", *[str(LOG)] * 12), "KeyError: 'in the plug-in'"),  # in another process
        pytest.param(("explain", str(LOG)), "KeyError: 'in the plug-in'", marks=pytest.mark.slow),
        pytest.param(
            ("compare", str(LOG), str(LOG)), "KeyError: 'in the plug-in'", marks=pytest.mark.slow
        ),
        pytest.param(
            ("check", "--on", "bad"), "ZeroDivisionError: division by zero", marks=pytest.mark.slow
        ),
        pytest.param(
            ("run", "pingpong", "--on", "bad"),
            "ZeroDivisionError: division by zero",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_plugin_that_fails_is_an_internal_error(
    bad: Path, words: tuple[str, ...], expected: str
) -> None:
    done = fabbench(bad, *words)
    assert done.returncode == 70
    first, second, _, *trace = done.stderr[done.stderr.index("Internal error") :].splitlines()
    assert first == f"Internal error: {expected}"
    assert second.startswith("This is a bug in fabbench ")
    assert any("bad_plugin.py" in line for line in trace)
