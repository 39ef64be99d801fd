"""YAML text → a tree with lines and columns. The only module that uses PyYAML.

PyYAML's own loader silently takes the last of two equal keys and drops the positions of values; its node tree
does neither. Nothing is ever constructed from tags.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fabbench.model.errors import RequestError

if TYPE_CHECKING:
    import yaml

MAX_MISTAKES = 20
"""Maximum mistakes that one message lists."""

_STANDARD = "tag:yaml.org,2002:"
_SCALARS = {"str", "int", "float", "bool", "null"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Scalar:
    """One word or number, as written. `type` is what YAML resolves it to."""

    line: int
    column: int
    text: str
    type: str = "str"


@dataclass(frozen=True, slots=True, kw_only=True)
class Items:
    """A list."""

    line: int
    column: int
    items: "tuple[Node, ...]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entries:
    """A mapping, without duplicates: key → the node of the key, and its value."""

    line: int
    column: int
    entries: "Mapping[str, tuple[Scalar, Node]]"


Node = Scalar | Items | Entries


def describe(node: Node) -> str:
    """Describe a node for a message."""
    match node:
        case Items():
            return "a list"
        case Entries():
            return "a mapping"
        case Scalar(type="null"):
            return "empty"
        case Scalar(type="str"):
            return f"the string {node.text!r}"
    return f"the number {node.text}" if node.type in {"int", "float"} else node.text


@dataclass(slots=True)
class Mistakes:
    """What is wrong with a file, collected to be reported at once."""

    source: str
    found: dict[tuple[int, int, str], None] = field(default_factory=dict)

    def add(self, node: Node, text: str) -> None:
        """Note what is wrong with a node."""
        self.found[node.line, node.column, text] = None

    def check(self) -> None:
        """Raise RequestError with every mistake, in the order of the file, if there is any."""
        if not self.found:
            return
        lines = [f"{self.source}:{line}:{column}: {text}" for line, column, text in sorted(self.found)]
        more = len(lines) - MAX_MISTAKES
        tail = [f"{more} more mistakes in {self.source}."] if more > 0 else []
        raise RequestError(
            *lines[:MAX_MISTAKES],
            *tail,
            hint="fabbench config --schema prints every key, with its type and its meaning.",
        )


def parse(text: str, mistakes: Mistakes) -> Node | None:
    """Read YAML text; None if it is empty. Raise RequestError if it is not YAML.

    What is YAML but invalid in any settings file (duplicate keys, keys that are not scalars, unknown tags, an
    alias inside the value that it refers to) is added to `mistakes`.
    """
    import yaml

    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        return Converter(mistakes).node(root) if root is not None else None
    except yaml.MarkedYAMLError as error:
        line, column = _position(error.problem_mark or error.context_mark)
        raise RequestError(
            f"{mistakes.source}:{line}:{column}: This is not YAML: {_problem(error)}.", hint=_advice(error)
        ) from error
    except yaml.reader.ReaderError as error:
        before = text[: error.position]
        line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
        raise RequestError(
            f"{mistakes.source}:{line}:{column}: This is not YAML: it has the character "
            f"U+{ord(text[error.position]):04X}, which YAML does not allow."
        ) from error
    except RecursionError:
        raise RequestError(f"{mistakes.source} is nested too deeply to be read.") from None


class Converter:
    """Converts PyYAML's nodes to ours, each once, however many aliases refer to it."""

    def __init__(self, mistakes: Mistakes) -> None:
        import yaml

        # Typed as Any: its methods have no annotations.
        self._resolver: Any = yaml.resolver.Resolver()
        self._mistakes = mistakes
        self._known: dict[int, Node] = {}
        self._open: set[int] = set()

    def node(self, raw: "yaml.Node") -> Node:
        """Convert a node and what is in it."""
        if id(raw) in self._known:
            return self._known[id(raw)]
        line, column = _position(raw.start_mark)
        if id(raw) in self._open:
            empty = Scalar(line=line, column=column, text="", type="null")
            self._mistakes.add(empty, "An alias refers to a value that contains it.")
            return empty
        self._open.add(id(raw))
        known = self._known[id(raw)] = self._convert(raw, line, column)
        self._open.discard(id(raw))
        return known

    def _convert(self, raw: "yaml.Node", line: int, column: int) -> Node:
        import yaml

        if isinstance(raw, yaml.MappingNode):
            converted: Node = Entries(line=line, column=column, entries=dict(self._entries(raw)))
            allowed = {"map"}
        elif isinstance(raw, yaml.SequenceNode):
            converted = Items(line=line, column=column, items=tuple(map(self.node, raw.value)))
            allowed = {"seq"}
        else:
            # Dates and the value sign are text here: nothing in the file is a date.
            implied = _type(self._resolver.resolve(yaml.ScalarNode, raw.value, (True, False)))
            kind = _type(raw.tag)
            converted = Scalar(line=line, column=column, text=raw.value, type=kind if kind in _SCALARS else "str")
            allowed = {"str", implied}
        if _type(raw.tag) not in allowed:
            tag = raw.tag.replace(_STANDARD, "!!")
            self._mistakes.add(converted, f"The tag {tag} cannot be used here. Leave it out.")
        return converted

    def _entries(self, raw: "yaml.MappingNode") -> Iterator[tuple[str, tuple[Scalar, Node]]]:
        """Yield what is merged in (``<<``) first, so that the mapping's own keys replace it."""
        entries: dict[str, tuple[Scalar, Node]] = {}
        for key, value in raw.value:
            if _type(key.tag) == "merge":
                yield from self._merged(self.node(value))
                continue
            name = self.node(key)
            if not isinstance(name, Scalar):
                self._mistakes.add(name, f"A key is {describe(name)}; expected a word. Quote what begins with {{.")
            elif name.text in entries:
                first = entries[name.text][0].line
                self._mistakes.add(name, f"The key {name.text} is a duplicate of the one on line {first}.")
            else:
                entries[name.text] = name, self.node(value)
        yield from entries.items()

    def _merged(self, value: Node) -> Iterator[tuple[str, tuple[Scalar, Node]]]:
        """Yield the entries of a mapping, or of several, of which the first takes precedence."""
        for each in reversed(value.items) if isinstance(value, Items) else (value,):
            if isinstance(each, Entries):
                yield from each.entries.items()
            else:
                self._mistakes.add(each, f"<< merges mappings, but this is {describe(each)}.")


def _type(tag: str) -> str:
    return tag.removeprefix(_STANDARD)


def _position(mark: "yaml.Mark | None") -> tuple[int, int]:
    return (mark.line + 1, mark.column + 1) if mark is not None else (1, 1)


def _problem(error: "yaml.MarkedYAMLError") -> str:
    problem = (error.problem or "it cannot be read").replace("'\\t'", "tab")
    mark = error.context_mark
    return f"{problem} ({error.context}, from line {mark.line + 1})" if error.context and mark else problem


def _advice(error: "yaml.MarkedYAMLError") -> str | None:
    problem = error.problem or ""
    if "'\\t'" in problem:
        return "YAML is indented with spaces."
    if "'['" in problem or "'<scalar>'" in problem:
        return 'In a list in brackets, a range of hosts needs quotes: ["node[01-16]"].'
    return None
