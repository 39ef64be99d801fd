"""The shape of the code, as far as no linter checks it.

Layers are in pyproject.toml, for import-linter.
"""

import ast
import re
import subprocess
import sys
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest

from tests.support.paths import ROOT
from tests.support.syntax import text_of, tree_of

PACKAGE = ROOT / "src" / "fabbench"
TESTS = ROOT / "tests"
SLOW = {"jinja2", "msgspec", "pandas", "numpy", "kubernetes", "paramiko", "rich", "yaml", "sky"}
"""Libraries that take a noticeable time to import."""
OF_EXTRAS = {"mcp", "mcp_types", "pydantic", "starlette", "anyio", "resvg_py"}
"""What only the commands load that are not there without an extra."""
NOT_FOR_LOGS = {
    *("kubernetes", "numpy", "pandas", "paramiko", "rich", "yaml"),
    *("importlib.metadata", "html", "fabbench.evidence.plain_pickle"),
    *("fabbench.model.hosts", "fabbench.model.plan"),
    *("fabbench.counters.congestion", "fabbench.counters.findings", "fabbench.counters.snapshot"),
}
"""What commands that only read logs have no use for; the standard library's load slowly, too."""


def trees() -> dict[Path, ast.Module]:
    """Return the syntax of every module of the package."""
    return {path: tree_of(path) for path in sorted(PACKAGE.rglob("*.py"))}


def test_no_import_hides_in_a_string() -> None:
    """Only the plug-in loader, and a package that loads modules of its own when they are needed."""
    loading = {"importlib.import_module", "import_module", "__import__"}
    hidden = []
    for path in PACKAGE.rglob("*.py"):
        module = str(path.relative_to(PACKAGE))
        if module == "model/plugins.py" or not re.search("import_module|__import__", text_of(path)):
            continue
        own = f"fabbench.{module.partition('/')[0]}."
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in loading:
                name = ast.unparse(node.args[0]).lstrip("f").strip("'\"")
                if name.startswith("fabbench") and not name.startswith(own):
                    hidden.append(f"{module}:{node.lineno} {name}")
    assert hidden == []


def test_a_name_means_one_thing() -> None:
    """Public classes, outside of benchmarks."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for path, tree in trees().items():
        module = str(path.relative_to(PACKAGE))
        if not module.startswith("benchmarks/"):
            for node in tree.body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    found[node.name].append(module)
    assert {name: modules for name, modules in found.items() if len(modules) > 1} == {}


ASKED = {"isdigit", "isdecimal", "isnumeric"}
"""Methods that are true of texts that `int` refuses, such as a superscript or 5,000 digits."""


def test_whether_a_text_is_a_number_is_asked_where_it_is_read() -> None:
    """By `units.parse_whole`, not beside a call of `int` or `float`."""
    both = []
    for path, tree in trees().items():
        for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)):
            calls = [node for node in ast.walk(function) if isinstance(node, ast.Call)]
            asked = {
                ast.unparse(call.func.value)
                for call in calls
                if isinstance(call.func, ast.Attribute) and call.func.attr in ASKED
            }
            read = {
                ast.unparse(argument)
                for call in calls
                if ast.unparse(call.func) in {"int", "float"}
                for argument in call.args
            }
            both += [f"{path.relative_to(PACKAGE)}: {text}" for text in asked & read]
    assert both == []


def test_directories_of_tests_hold_tests() -> None:
    """What tests share is in tests/support."""
    elsewhere = {"support", "performance", "data"}
    strays = [
        str(path.relative_to(TESTS))
        for path in TESTS.rglob("*.py")
        if path.relative_to(TESTS).parts[0] not in elsewhere
        and not path.name.startswith("test_")
        and path.name != "conftest.py"
    ]
    assert strays == []


@pytest.mark.parametrize(
    "arguments",
    ["--help", "--version", "parse --help", "compare --help", "run nccl --help", "mcp --help"],
)
def test_help_loads_no_slow_library(arguments: str) -> None:
    loaded = modules_loaded_by(arguments)
    assert "fabbench.cli" in loaded
    assert not loaded & (SLOW | OF_EXTRAS)
    assert "fabbench.catalog.kubernetes_resources" not in loaded


@pytest.mark.parametrize("arguments", ["explain", "parse --json"])
def test_what_reads_loads_nothing_of_extras(arguments: str) -> None:
    loaded = modules_loaded_by(f"{arguments} {ROOT}/examples/logs/x-ofi-tcp.txt")
    assert "msgspec" in loaded
    assert not loaded & {*OF_EXTRAS, *NOT_FOR_LOGS}


def modules_loaded_by(arguments: str) -> set[str]:
    program = (
        "import sys\nfrom fabbench.__main__ import main\n"
        "try:\n    main()\nfinally:\n    print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments.split()],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(done.stderr.split())


@cache
def tracked() -> list[Path]:
    done = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        pytest.skip("not a git checkout")
    return [path for name in done.stdout.split("\0") if name and (path := ROOT / name).is_file()]


def test_tracked_files_name_no_private_place() -> None:
    private = re.compile(r"/[w]ork/|\.\./[s]hared")
    found = []
    for path in tracked():
        text = path.read_text("utf-8", errors="replace")
        found += [f"{path.relative_to(ROOT)}: {match[0]}" for match in private.finditer(text)]
    assert found == []


def test_the_top_level_stays_small() -> None:
    allowed = {
        *(
            "pyproject.toml",
            "uv.lock",
            "README.md",
            "LICENSE",
            "CHANGELOG.md",
            "Makefile",
            ".gitignore",
            ".git-blame-ignore-revs",
        ),
        *("AGENTS.md", "CONTRIBUTING.md", "SECURITY.md", "mkdocs.yml"),
        "CITATION.cff",  # where GitHub looks for it
        "server.json",  # where the publisher of the MCP registry looks for it
        "action.yml",  # where GitHub looks for what `uses:` this repository
        *("src", "tests", "examples", "docker", "docs", "setup", "skills", ".ci", ".github"),
    }
    assert {path.relative_to(ROOT).parts[0] for path in tracked()} <= allowed
    modules = {path.name for path in PACKAGE.glob("*.py")}
    assert modules <= {"__init__.py", "__main__.py", "dataframes.py", "testing.py"}
