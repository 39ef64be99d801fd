"""Every option that a message, a document or an example names exists."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from fabbench.cli import cli
from fabbench.model.options import FORMER
from tests.support.command_line import commands
from tests.support.paths import DATA, ROOT
from tests.support.syntax import text_of, tree_of

OPTION = re.compile(r"(?<![\w-])--[a-z][a-z0-9]*(?:-[a-z0-9]+)*(?![\w-])")
REMOVED = re.compile(r"(?ms)^### Removed\n.*?(?=^##)")
"""What the changelog says of options that are gone."""
OTHERS = frozenset((DATA / "foreign-options.txt").read_text("utf-8").split())
"""Options of other programs.

Aws, eksctl, gh, sbatch, srun, mpirun, kubectl, docker, pip, the benchmarks …
"""


def messages(path: Path) -> Iterator[str]:
    """Yield a module's texts that name an option, and are no docstrings or command lines."""
    if not OPTION.search(text_of(path)):
        return
    for node in ast.walk(tree_of(path)):
        for child in () if isinstance(node, ast.Expr) else ast.iter_child_nodes(node):
            if (
                isinstance(child, ast.Constant)
                and isinstance(child.value, str)
                and "--" in child.value.lstrip("-")
            ):
                yield from () if child.value.startswith("-") else (child.value,)


def texts() -> Iterator[tuple[str, str]]:
    """Yield file and text: messages of modules, and whole documents and examples."""
    for path in sorted((ROOT / "src").rglob("*.py")):
        for text in messages(path):
            yield str(path.relative_to(ROOT)), text
    folders = (ROOT / "examples", ROOT / "skills")
    below = (path for folder in folders for path in folder.rglob("*"))
    documents = (*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *below)
    for path in sorted(documents):
        if path.is_file() and path.suffix in {".md", ".yaml", ".yml", ".sh", ".txt"}:
            yield str(path.relative_to(ROOT)), REMOVED.sub("", path.read_text("utf-8"))


def test_every_option_that_is_named_exists() -> None:
    every = (cli, *(command for _, command in commands()))
    given = (
        option
        for command in every
        for each in command.params
        for option in (*each.opts, *each.secondary_opts)
    )
    known = frozenset({"--help", *given, *(f"--{old}" for old in FORMER)})
    assert {"--on", "--toleration", "--format", "--instance-type"} <= known
    wrong = {
        f"{option} in {where}"
        for where, text in texts()
        for option in OPTION.findall(text)
        if option not in known and option not in OTHERS
    }
    assert not wrong
