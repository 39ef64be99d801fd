"""The syntax of Python files, parsed once per process."""

import ast
import gc
from collections.abc import Iterator
from functools import cache
from pathlib import Path


@cache
def text_of(path: Path) -> str:
    return path.read_text("utf-8")


@cache
def tree_of(path: Path) -> ast.Module:
    # Three fifths of the time to parse would be the collector's, which finds nothing.
    gc.disable()
    try:
        return ast.parse(text_of(path))
    finally:
        gc.freeze()
        gc.enable()


def below(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the blocks in a node: statements, `except` and `case`.

    Not expressions, which are most of a tree.
    """
    for name in ("body", "handlers", "cases", "orelse", "finalbody"):
        found = getattr(node, name, ())
        yield from found if isinstance(found, list) else ()
