"""YAML text → mappings, lists and texts: every scalar stays as it is written, for the type of its option to read.

The only module that uses PyYAML. Nothing is ever constructed from tags.
"""

import re
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias

from fabbench.model.compat import override
from fabbench.model.errors import RequestError

if TYPE_CHECKING:
    import yaml

Tree: TypeAlias = "str | list[Tree] | dict[str, Tree] | None"
"""A text, or None for nothing at all; a list; a mapping."""

_MERGE = "tag:yaml.org,2002:merge"


def parse(text: str, source: str) -> Tree:
    """Read YAML text; None if it is empty. Raise RequestError, with line and column, if it is not valid YAML."""
    import yaml

    try:
        tree: Tree = yaml.load(text, Loader=_loader())  # noqa: S506 - a SafeLoader
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark is not None else (1, 1)
        raise RequestError(
            f"{source}:{line}:{column}: This is not valid YAML: {_problem(error)}.", hint=_advice(error)
        ) from error
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise RequestError(f"{source}:{line}: This is not valid YAML: it has a control character.") from error
    except RecursionError:
        raise RequestError(f"{source} is nested too deeply to be read.") from None
    return tree


@cache
def _loader() -> Any:
    import yaml

    class TextLoader(yaml.SafeLoader):
        yaml_implicit_resolvers = {"<": [(_MERGE, re.compile("<<"))]}  # noqa: RUF012 - as PyYAML has it

        @override
        def compose_mapping_node(self, anchor: Any) -> "yaml.MappingNode":
            # PyYAML silently takes the last of two equal keys.
            node: yaml.MappingNode = super().compose_mapping_node(anchor)
            first: dict[str, int] = {}
            for key, _ in node.value:
                if key.tag != _MERGE and isinstance(key, yaml.ScalarNode):
                    if not key.value or key.value in first:
                        line = first.get(key.value)
                        problem = f"the key {key.value} is a duplicate of the one on line {line}" if line else "no key"
                        raise yaml.MarkedYAMLError(problem=problem, problem_mark=key.start_mark)
                    first[key.value] = key.start_mark.line + 1
            return node

    TextLoader.yaml_constructors = {
        "tag:yaml.org,2002:str": lambda _, node: node.value or (None if node.style is None else ""),
        "tag:yaml.org,2002:seq": lambda loader, node: loader.construct_sequence(node, deep=True),
        "tag:yaml.org,2002:map": lambda loader, node: loader.construct_mapping(node, deep=True),
        None: yaml.SafeLoader.construct_undefined,
    }
    return TextLoader


def _problem(error: "yaml.MarkedYAMLError") -> str:
    problem, mark = (error.problem or "it cannot be read").replace("'\\t'", "tab"), error.context_mark
    return f"{problem} ({error.context}, from line {mark.line + 1})" if error.context and mark else problem


def _advice(error: "yaml.MarkedYAMLError") -> str | None:
    problem = error.problem or ""
    if "'\\t'" in problem:
        return "YAML is indented with spaces."
    if "'['" in problem or "'<scalar>'" in problem:
        return 'In a list in brackets, a range of hosts needs quotes: ["node[01-16]"].'
    return "Quote what begins with {." if "unhashable" in problem else None
