"""What nccl-tests says around its tables, and a table while it is read: torn rows joined or reported. Pure.

NCCL's debug text stops the table's printer in mid-row; what stood before it and what comes after are pieces
of one row. Pieces are joined as they stand, or with a blank where a launcher took one, and the result must
be a whole row whose figures fit each other; else the pieces are reported as damaged.
"""

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

from fabbench.benchmarks import UNREADABLE, Shortcut
from fabbench.benchmarks.consistency import is_damaged_row
from fabbench.benchmarks.nccl.arithmetic import TableArithmetic
from fabbench.benchmarks.nccl.rows import (
    DTYPE_BYTES,
    Layout,
    Row,
    RowReader,
    cell_patterns,
    plausible,
    read_header,
    starts_row,
)
from fabbench.model.log import Damaged, Point
from fabbench.model.patterns import lazy

# In-place only (trace replay): the out-of-place half is 32 blanks (writeBenchMarkLineNullBody).
_BLANK_HALF = lazy(r"\S {30,}\S")
_MOST_PIECES = 64
_MOST_REMARKS = 1000
_REST = lazy(r"[\d.:e+-]+|N?/?A?|[a-z][a-z_0-9]*", re.ASCII)


class Context(NamedTuple):
    """What the text around a table says of it."""

    case: str | None
    ranks: int | None
    """None: not stated, or more than one number."""


@lru_cache(maxsize=100)
def _of_layout(layout: Layout) -> tuple[tuple[re.Pattern[str], ...], set[str]]:
    """Return what tables of one layout share: the patterns of a row's cells, and remarks that were met.

    Remarks are lines that begin with `#` and are no part of such a table. To be sure of that takes long, and
    the same few stand around every table of a log.
    """
    return cell_patterns(layout), set()


class TableReader:
    """Takes the lines of one table, gives its rows. What could not be read is in `damaged`."""

    def __init__(self, layout: Layout, context: Callable[[], Context]) -> None:
        self.damaged: list[Damaged] = []
        self.retracted: set[int] = set()
        """Identities of points that were given, and which later rows have shown to be wrong."""
        self.arithmetic: TableArithmetic[tuple[int, str, Row]] = TableArithmetic()
        self._context = context
        self._rows = RowReader(layout)
        self._columns, self._remarks = _of_layout(layout)
        self._pieces: list[str] = []
        self._began = 0
        self._held: tuple[int, str, Row] | None = None
        self._unconfirmed: Damaged | None = None

    def feed(self, number: int, text: str) -> tuple[list[Row], bool]:
        """Read one line: the rows that are whole now, and whether the line was a part of the table."""
        tokens = text.split()
        row = self._rows.read(tokens)
        waits = self._waits()
        if row is not None and not row.open_end and not waits:
            return self._give(number, text, row), True
        if not tokens:
            self._pieces += [text] if self._pieces and text else []
            return [], True
        if text.endswith(UNREADABLE) and (self._pieces or tokens[0][0].isdigit()):
            return self._set_aside(number, text), True
        if self._held is not None and self._lengthen(text, tokens):
            return [], True
        rows = self.flush_held()
        if self._pieces:
            joined = self._join(text, tokens)
            if joined is not None:
                return rows + joined, True
        return self._fresh(number, text, tokens, rows, row)

    def shortcut(self, points: list[Point]) -> Shortcut | None:
        """Return a quick way to read plain rows into `points`; None while pieces or a row are kept."""
        if self._waits():
            return None
        arithmetic = self.arithmetic
        if not arithmetic.is_settled:
            return self._unsettled_rows(points)
        if arithmetic.formula is None or not arithmetic.multiple:
            return None
        return self._rows.shortcut(points, arithmetic.formula, arithmetic.multiple)

    def _unsettled_rows(self, points: list[Point]) -> Shortcut:
        """Return a reader of plain rows until the formula is settled, as `feed` reads them."""
        read_plain, arithmetic = self._rows.read_plain, self.arithmetic

        def read(text: str, number: int) -> Sequence[Point] | None:
            cells = text.split()
            row = read_plain(cells) if len(cells) == 13 and not arithmetic.is_settled else None
            if row is None:
                return None
            found = row.points if self._give(number, text, row) else ()
            points.extend(found)
            return found

        return read

    def passes_by(self, remark: str) -> bool:
        """Return whether a line that begins with `#` was met before, and is no part of the table."""
        return remark in self._remarks and not self._waits()

    def _waits(self) -> bool:
        """Return whether the next line may be the rest of what was read."""
        return bool(self._pieces) or self._held is not None or self._unconfirmed is not None

    @property
    def holds_row(self) -> bool:
        """Return whether a whole row is held back."""
        return self._held is not None

    def flush(self) -> list[Row]:
        """End of the table: give the row that was held back, report pieces that stayed alone."""
        rows = self.flush_held()
        if self._pieces:
            self._report(self._began, "".join(self._pieces))
            self._pieces = []
        if self._unconfirmed is not None:
            self.damaged.append(self._unconfirmed)
            self._unconfirmed = None
        return rows

    def end(self) -> list[Row]:
        """End of the text: as `flush`, and every row is held against the others."""
        rows = self.flush()
        self._settle(end=True)
        return rows

    def flush_held(self) -> list[Row]:
        """Return the row that was held back because its last number might go on."""
        held, self._held = self._held, None
        return self._give(*held) if held else []

    def _give(self, number: int, text: str, row: Row) -> list[Row]:
        """Return a row, unless its figures contradict each other."""
        unit = row.elements * DTYPE_BYTES[row.dtype]
        if not self.arithmetic.fits((number, text, row), row.size, unit, row.ratios):
            self._report(number, text)
            return []
        self._settle(end=False)
        return [row]

    def _settle(self, *, end: bool) -> None:
        if not end and not self.arithmetic.is_due:
            return
        for number, text, row in self.arithmetic.settle(*self._context(), end=end):
            self._report(number, text)
            self.retracted.update(map(id, row.points))

    def _report(self, number: int, text: str) -> None:
        self.damaged.append(Damaged(number, " ".join(text.split())))

    def _set_aside(self, number: int, text: str) -> list[Row]:
        """Take a piece whose end cannot be told from a host's name: what follows may be the row's rest."""
        number = self._began if self._pieces else number
        text = "".join([*self._pieces, text])
        self._pieces = []
        rows = self.flush()
        self._unconfirmed = Damaged(number, " ".join(text.split()))
        return rows

    def _completes_unconfirmed(self, piece: Damaged, row: Row | None, tokens: list[str]) -> bool:
        """Return whether a line is the rest of a row that cannot be read, which may look like another row."""
        if row is None and not all(map(_REST.fullmatch, tokens)):
            return False
        self._unconfirmed = None
        whole = row is not None and self._plausible(row)
        if not whole or " " in piece.text:
            self.damaged.append(piece)
        return not whole

    def _fresh(
        self, number: int, text: str, tokens: list[str], rows: list[Row], row: Row | None
    ) -> tuple[list[Row], bool]:
        """Take a line that continues nothing, and may be a row by itself. `rows` are whole already."""
        if row is None and _BLANK_HALF.search(text):
            row = self._rows.read(tokens, in_place_only=True)
        if self._unconfirmed is not None and self._completes_unconfirmed(self._unconfirmed, row, tokens):
            return rows, True
        if row is not None:
            return rows + self._hold(number, text, row), True
        if self._starts(tokens):
            self._pieces, self._began = [text], number
            return rows, True
        if is_damaged_row(tokens, self._columns):
            self._report(number, text)
            return rows, True
        if text[:1] == "#" and len(text) <= _SHORT and len(self._remarks) < _MOST_REMARKS:
            self._remarks.add(text)
        return rows, False

    def _plausible(self, row: Row) -> bool:
        return plausible(row, self._rows.layout.rounding)

    def _starts(self, tokens: list[str]) -> bool:
        return starts_row(tokens, self._rows.layout)

    def _hold(self, number: int, text: str, row: Row) -> list[Row]:
        """Keep a row back if what follows may be the rest of its last number."""
        if not row.open_end:
            return self._give(number, text, row)
        self._held = (number, text, row)
        return []

    def _lengthen(self, text: str, tokens: list[str]) -> bool:
        """Join a lone number to the last one of the row that is held back, if it fits."""
        if self._held is None or len(tokens) != 1 or text[:1].isspace():
            return False
        row = self._rows.read((self._held[1] + text).split())
        if row is None or not self._plausible(row):
            return False
        self._held = (self._held[0], self._held[1] + text, row)
        return True

    def _join(self, text: str, tokens: list[str]) -> list[Row] | None:
        """Continue the pieces with a line: rows made whole (or none yet); None: it is no continuation."""
        so_far = "".join(self._pieces)
        candidates = [so_far + text]
        if not self._starts(candidates[0].split()):
            candidates.append(f"{so_far} {text}")
        read = [(candidate, self._rows.read(candidate.split())) for candidate in candidates]
        whole = [(candidate, row) for candidate, row in read if row is not None and self._plausible(row)]
        if whole and all(row == whole[0][1] for _, row in whole):
            self._pieces = []
            return self._hold(self._began, *whole[0])
        if whole or self._rows.read(tokens) is not None or len(self._pieces) >= _MOST_PIECES:
            self.flush()
            return None
        for candidate in candidates:
            if self._starts(candidate.split()):
                self._pieces = [candidate]
                return []
        if self._starts(tokens):
            self.flush()
        return None


# In the order in which they are printed. A line of an earlier stage than was reached begins another run.
BANNER, DEVICES, HEADER, FOOTER, AFTER = range(5)


class Statement(NamedTuple):
    """One line understood. `kind` says which; `words` are its groups."""

    kind: str
    stage: int
    words: tuple[str | None, ...] = ()
    layout: Layout | None = None


_STATEMENTS: tuple[tuple[str, int, Sequence[str], re.Pattern[str]], ...] = tuple(
    (kind, stage, words, lazy(pattern))
    for kind, stage, words, pattern in (
        # The lines of which there is one per rank.
        (
            "device",
            DEVICES,
            ("Rank",),
            (
                r"#?\s*Rank\s+(\d{1,9})\s+(?:Group\s+(\d+)\s+)?(?:Pid\s+(\d+)\s+)?on\s+(\S.*?)\s+device\s+\d+"
                r"\s+\[[^\]]*\]\s*(.*)"
            ),
        ),
        ("json", BANNER, ("JSON", "json"), r"# (?:Writing JSON output to .*|skipping json output; (.*))"),
        (
            "version",
            BANNER,
            ("nccl-tests version",),
            (
                r"# nccl-tests version (\S+)(?: \([0-9a-f]+\))?"
                r"(?: nccl-headers=(\d{1,18}) nccl-library=(\d{1,18}))?"
            ),
        ),
        ("program", BANNER, ("test starting",), r"# Collective test starting: (\S+)"),
        (
            "config",
            BANNER,
            ("nThread",),
            (
                r"#? ?nThread \d+ nGpus \d+ minBytes (\d{1,18}) maxBytes (\d{1,18})"
                r" step: (\d{1,18})\((factor|bytes)\) warmup iters: (\d{1,18}) iters: (\d{1,18})"
            ),
        ),
        # A build outside of git says "Unknown" or ":+".
        ("rccl_tests", DEVICES, ("rccl-tests",), r"rccl-tests: Version (?:(\w+:[0-9a-f]+\+?)|.*)"),
        ("in_place", HEADER, ("in-place",), r"# +in-place$"),
        ("using", DEVICES, ("Using dev",), r"#? ?Using devices"),
        ("reducing", DEVICES, ("Reducing",), r"# Reducing maxBytes to (\d{1,18}) due to memory limitation"),
        ("bounds", FOOTER, ("Out of b",), r"(?:# ?)?Out of bounds values +: +(\d{1,18}) (OK|FAILED)"),
        ("average", FOOTER, ("Avg bus",), r"(?:# ?)?Avg bus bandwidth +: +(\S+) *(OK|FAILED)?"),
        ("concluded", AFTER, ("concluded",), r"# Collective test concluded: (\S+)"),
        ("timeout", AFTER, ("timeout",), r"(?:\S+: )?Test timeout \((\d{1,18})s\).*"),
        ("failure", AFTER, ("failure",), r"(?:\S+: )?(?:Test )?(?:NCCL|CUDA|CURAND) failure \S+:\d+.*"),
        ("chain", AFTER, ("failure",), r" *\.\. \S+ pid \d+: Test failure \S+:\d+"),
        ("failure", AFTER, ("# error",), r"# error: .*"),
        ("failure", AFTER, ("nvalid ",), r"Invalid number of GPUs: .*|invalid size specified .*"),
        (
            "failure",
            AFTER,
            ("option",),
            r"(?:\S*_perf\S*: )?(?:unrecognized option|invalid option|option requires) .*",
        ),
        ("usage", AFTER, ("USAGE",), r"USAGE: (\S*_perf\S*) ?.*"),
        ("failure", AFTER, ("nRanks",), r"nRanks \d+ is not a power of 2, skipping"),
        (
            "failure",
            AFTER,
            ("not supported", "requires"),
            r"(?:Option )?-\w+\S* .*(?:not supported|requires).*",
        ),
    )
)
"""Kind, stage, words of which each such line has one, and what it looks like."""
_SIGNS = tuple(dict.fromkeys(word for _, _, words, _ in _STATEMENTS for word in words))
_PROGRAM = lazy(r"(?:^|[\s/'\"])([a-z]\w*)_perf(?:_mpi)?(?=[\s'\";]|$)")


_SHORT = 400
"""Characters of a line that is remembered: of the programs of one log most banners are the same."""


def read_statement(text: str) -> Statement | None:
    """Understand a line that is no row; None if it is nothing that nccl-tests says."""
    return _remembered(text) if len(text) <= _SHORT else _understand(text)


def _understand(text: str) -> Statement | None:
    if "algbw" in text:
        layout = read_header(text)
        return Statement("header", HEADER, (), layout) if layout else None
    for sign in _SIGNS:
        if sign in text:
            break
    else:
        return None
    text = text.strip()
    for kind, stage, words, pattern in _STATEMENTS:
        if sign not in words and not any(word in text for word in words):
            continue
        if (match := pattern.match(text)) is not None:
            return Statement(kind, stage, match.groups() or (match[0],))
    return None


_remembered = lru_cache(maxsize=1024)(_understand)


def case_of(program: str) -> str:
    """Return a program's case: `/opt/all_reduce_perf_mpi` is `all_reduce`."""
    name = program.rpartition("/")[2]
    return name.removesuffix("_mpi").removesuffix("_perf")


def case_in_command(text: str) -> str | None:
    """Find the case in a command line that starts an nccl-tests program."""
    if "_perf" not in text:
        return None
    match = _PROGRAM.search(text)
    return match[1] if match else None


def nccl_version(code: str) -> str:
    """Turn NCCL's version code into words: 22809 is 2.28.9 (2804 is 2.8.4, before 2.9)."""
    number = int(code)
    if number < 10_000:
        return f"{number // 1000}.{number % 1000 // 100}.{number % 100}"
    return f"{number // 10_000}.{number % 10_000 // 100}.{number % 100}"
