"""What a line means: the events that a benchmark makes of its program's lines. Values only.

`fabbench.benchmarks.executions` puts executions together from them.
"""

from collections.abc import Sequence
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias, Union

from fabbench.benchmarks.tables import NO_LABELS, Layout
from fabbench.model.log import Facts, Finding, Labels, Line

NO_FACTS: Final[Facts] = MappingProxyType({})


class Begin(NamedTuple):
    """An execution begins. What was said ahead of it is about it."""


class Stop(NamedTuple):
    """The open execution ended above this line, which is about another one."""


class Setting(NamedTuple):
    """Something about the execution, or about the rows below."""

    case: str | None = None
    facts: Facts = NO_FACTS
    labels: Labels = NO_LABELS
    """Labels of the rows below, beside those before; an empty one removes it."""
    title: str | None = None
    """The title of the rows below."""
    size: int | None = None
    """The size of rows that do not print theirs."""
    first_size: int | None = None
    """The first one of a whole table."""
    last_size: int | None = None
    """The last one of a whole table; 0: not known."""
    iterations: int | None = None


class Header(NamedTuple):
    """Names of columns.

    Several layouts where a program may print more or fewer columns in a row.
    """

    layouts: Sequence[Layout]
    is_row: bool = False
    """Whether the line is a row, too: a row that is not whole is damaged."""


class RowLine(NamedTuple):
    """A whole row of a layout."""

    line: Line
    layout: Layout
    cells: tuple[str, ...]
    name: str = ""
    """The label `operation` of its figures."""
    final: bool | None = None
    """As in `fabbench.benchmarks.tables.Cells`."""


class Half(NamedTuple):
    """The first half of a row. The other follows, maybe below lines of others."""

    line: Line


class Remains(NamedTuple):
    """What is left of a row that cannot be read."""

    line: Line


class Note(NamedTuple):
    """What a benchmark keeps of a line until the execution is over."""

    kind: str
    """Which sort of line it is, in the benchmark's own words."""
    value: str = ""
    line: str = ""
    rows_above: int = 0
    """How many rows stand above it."""


class End(NamedTuple):
    """A closing line."""

    complete: bool | None = True
    """None: it does not prove that nothing is missing."""


class Error(NamedTuple):
    """A line with which the program reports an error."""

    text: str


class Fail(NamedTuple):
    """A sentence on why the execution failed."""

    sentence: str


class Wrong(NamedTuple):
    """Failed checks of data."""

    checks: int = 1


Statement: TypeAlias = Union[
    "Setting",
    "Header",
    "Half",
    "Remains",
    "Note",
    "End",
    "Error",
    "Fail",
    "Wrong",
    "Finding",
]
"""What is said about one execution."""


class Ahead(NamedTuple):
    """What is said about the execution that begins next."""

    statements: Sequence[Statement]


class Command(NamedTuple):
    """A command line, about the execution that begins next.

    It takes the place of the one before, whose program printed no table.
    """

    statements: Sequence[Statement]


Turn: TypeAlias = Begin | Stop | Command | Ahead
"""What says which execution the lines around it are about."""
Event: TypeAlias = Turn | RowLine | Statement
Events: TypeAlias = Sequence[Event]
"""What one line means. Empty: a line of the program that says nothing."""
