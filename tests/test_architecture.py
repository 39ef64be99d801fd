"""The shape of the code, as rules that a machine can check."""

import ast
import importlib
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from fabbench.cli import COMMANDS

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "fabbench"

LAYERS: Mapping[str, set[str]] = {
    "values": {"model", "units", "errors", "fabrics", "markers"},
    "core": {
        *("benchmarks", "parse", "prefixes", "debug", "evidence", "carrier", "symptoms", "judge"),
        *("machines", "plan", "inventory", "mpi", "launches", "hostlist"),
        *("compare", "grouping", "pool", "standout", "notes", "gate", "rails"),
        "plugins",
        *("hosts", "instances", "check", "counters", "environments", "sizes", "pods"),
        *("filling", "script", "split", "offline", "rendering", "skypilot", "slurm", "variants", "redaction"),
    },
    "edge": {
        *("batch", "config", "files", "frames", "report", "inputs", "store", "process", "pipes", "kube"),
        *("session", "together", "drive", "jobs", "telling", "execution"),
        *("launchers", "login", "remote", "run", "watch", "testing", "programs", "skyapi"),
    },
    "command line": {"cli", "__main__"},
}
"""From the bottom up. A module imports from its own layer or from one below it, and never in a circle."""

IMPURE = {
    "os",
    "socket",
    "subprocess",
    "shutil",
    "tempfile",
    "threading",
    "signal",
    "time",
    "random",
    "click",
}
"""What the two lower layers do without: they compute, and touch nothing."""

SLOW = ("pandas", "numpy", "kubernetes", "paramiko", "rich", "yaml", "sky")


def modules() -> list[str]:
    names = (path.relative_to(PACKAGE.parent).with_suffix("") for path in sorted(PACKAGE.rglob("*.py")))
    return [".".join(name.parts).removesuffix(".__init__") for name in names]


def path_of(module: str) -> Path:
    path = PACKAGE.parent.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


@cache
def tree(module: str) -> ast.Module:
    return ast.parse(path_of(module).read_text("utf-8"))


def imports(module: str) -> Iterator[str]:
    """Every module imported, wherever in the file; a name imported from a package counts as its module."""
    known = set(modules())
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: relative import"
            assert node.module
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield full if full in known else node.module


def part(module: str) -> str:
    """The module or package right below `fabbench`; empty for the package itself."""
    return module.removeprefix("fabbench").removeprefix(".").partition(".")[0]


def layer(module: str) -> int:
    """Count from the bottom; a module that is in no layer is above all."""
    numbers = (number for number, names in enumerate(LAYERS.values()) if part(module) in names)
    return next(numbers, len(LAYERS))


def inner(module: str) -> set[str]:
    return {name for name in imports(module) if name.startswith("fabbench.")}


def test_every_module_has_a_layer() -> None:
    assert [module for module in modules() if part(module) and layer(module) == len(LAYERS)] == []


@pytest.mark.parametrize("module", [module for module in modules() if part(module)])
def test_imports_go_down(module: str) -> None:
    upwards = {name for name in inner(module) if layer(name) > layer(module)}
    assert not upwards


def test_nothing_imports_in_a_circle() -> None:
    # A package's members may name their package's protocols; it finds them at run time.
    graph = {module: {name for name in inner(module) if name != module} for module in modules()}
    assert len(list(TopologicalSorter(graph).static_order())) >= len(graph)


@pytest.mark.parametrize("module", [module for module in modules() if part(module) and layer(module) < 2])
def test_values_and_core_touch_nothing(module: str) -> None:
    assert not {name.partition(".")[0] for name in imports(module)} & IMPURE


def test_processes_are_started_in_one_place() -> None:
    assert [module for module in modules() if "subprocess" in imports(module)] in ([], ["fabbench.process"])


@pytest.mark.parametrize("module", modules())
def test_modules_and_functions_are_short(module: str) -> None:
    lines = path_of(module).read_text("utf-8").count("\n")
    assert lines <= 320
    functions = [n for n in ast.walk(tree(module)) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    spans = {node.name: (node.end_lineno or 0) - node.lineno + 1 for node in functions}
    assert {name: span for name, span in spans.items() if span > 50} == {}


@pytest.mark.parametrize("module", modules())
def test_library_code_does_not_print_or_use_a_shell(module: str) -> None:
    for node in ast.walk(tree(module)):
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        assert called not in {"print", "input", "yaml.load", "os.system", "os.popen", "eval", "exec"}, called
        shell = [keyword.value for keyword in node.keywords if keyword.arg == "shell"]
        assert all(isinstance(value, ast.Constant) and value.value is False for value in shell)


def test_the_commands_are_the_modules_with_a_command() -> None:
    files = {path.stem for path in (PACKAGE / "cli").glob("*.py")}
    commands = {
        name
        for name in files
        if re.search(r"^def command\(", (PACKAGE / f"cli/{name}.py").read_text(), re.MULTILINE)
    }
    assert commands == set(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_help_says_of_a_command_what_the_command_says_of_itself(name: str) -> None:
    command = importlib.import_module(f"fabbench.cli.{name}").command
    assert command.get_short_help_str(limit=200) == COMMANDS[name]


@pytest.mark.parametrize(
    "arguments", [("--help",), ("--version",), ("parse", "--help"), ("compare", "--help")]
)
def test_help_loads_no_slow_library(arguments: tuple[str, ...]) -> None:
    program = (
        "import sys\nfrom fabbench.__main__ import main\n"
        "try:\n    main()\nfinally:\n    print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=True
    )
    loaded = set(done.stderr.split())
    assert "fabbench.cli" in loaded
    assert not loaded & set(SLOW)


def tracked() -> list[Path]:
    done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip("not a git checkout")
    return [path for name in done.stdout.split("\0") if name and (path := ROOT / name).is_file()]


def test_tracked_files_name_no_private_place() -> None:
    private = re.compile(r"/[w]ork/|\.\./[s]hared")
    found = []
    for path in tracked():
        text = path.read_text("utf-8", errors="replace")
        found += [f"{path.relative_to(ROOT)}: {match[0]}" for match in private.finditer(text)]
    assert not found


def test_the_top_level_stays_small() -> None:
    allowed = {
        *("pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "Makefile", ".gitignore"),
        *("src", "tests", "examples", "docker", "docs", "setup", "benchmarks", ".ci", ".github"),
    }
    assert {path.relative_to(ROOT).parts[0] for path in tracked()} <= allowed
