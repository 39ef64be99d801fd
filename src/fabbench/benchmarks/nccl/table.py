"""The text around nccl-tests' tables, and the reader of one table: torn rows are joined or reported. Pure.

NCCL's debug text interrupts the table in mid-row; what precedes and what follows it are pieces of one row.
Pieces are joined as they are, or with a blank where a launcher removed one, and the result must be a complete
row with consistent figures; otherwise the pieces are reported as damaged.
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
_MAX_PIECES = 64
_MAX_REMARKS = 1000
_REST = lazy(r"[\d.:e+-]+|N?/?A?|[a-z][a-z_0-9]*", re.ASCII)


@lru_cache(maxsize=100)
def _of_layout(layout: Layout) -> tuple[tuple[re.Pattern[str], ...], set[str]]:
    """Return what tables of one layout share: the patterns of a row's cells, and the remarks seen.

    Remarks are lines that begin with `#` outside of such a table: the same few surround every table of a log.
    """
    return cell_patterns(layout), set()


class TableReader:
    """Reads the lines of one table and returns its rows. What could not be read is in `damaged`."""

    def __init__(self, layout: Layout, context: Callable[[], tuple[str | None, int | None]]) -> None:
        self.damaged: list[Damaged] = []
        self.retracted: set[int] = set()  # identities of points already returned that later rows have shown to be wrong
        self.arithmetic: TableArithmetic[tuple[int, str, Row]] = TableArithmetic()
        self.closed = False  # whether the closing lines were read: what follows is no row, unless it is a complete one
        self._context = context
        self._rows = RowReader(layout)
        self._columns, self._remarks = _of_layout(layout)
        self._pieces: list[str] = []
        self._first_line = 0
        self._held: tuple[int, str, Row] | None = None
        self._unconfirmed: Damaged | None = None

    def feed(self, number: int, text: str) -> tuple[list[Row], bool]:
        """Read one line: return the rows it completes, and whether it was part of the table."""
        tokens = text.split()
        row = self._rows.read(tokens)
        if row is not None and not row.open_end and not self._is_pending():
            return self._accept(number, text, row), True
        if not tokens:
            self._pieces += [text] if self._pieces and text else []
            return [], True
        if text.endswith(UNREADABLE) and (self._pieces or tokens[0][0].isdigit()):
            return self._set_aside(number, text), True
        if self._held is not None and self._append_to_last(text, tokens):
            return [], True
        rows = self.flush_held()
        if self._pieces:
            joined = self._join(text, tokens)
            if joined is not None:
                return rows + joined, True
        return self._read_new(number, text, tokens, rows, row)

    def shortcut(self, points: list[Point]) -> Shortcut | None:
        """Return a fast path that reads plain rows into `points`; None while pieces or a row are held."""
        if self._is_pending():
            return None
        arithmetic = self.arithmetic
        if not arithmetic.rates.is_settled():
            return self._unsettled_rows(points)
        formula, multiple = arithmetic.rates.formula, arithmetic.multiple
        return self._rows.shortcut(points, formula, multiple) if formula is not None and multiple else None

    def _unsettled_rows(self, points: list[Point]) -> Shortcut:
        """Return a reader of plain rows until the formula is settled, equivalent to `feed`."""
        read_plain, arithmetic = self._rows.read_plain, self.arithmetic

        def read(text: str, number: int) -> Sequence[Point] | None:
            cells = text.split()
            row = read_plain(cells) if len(cells) == 13 and not arithmetic.rates.is_settled() else None
            if row is None:
                return None
            read_points = row.points if self._accept(number, text, row) else ()
            points.extend(read_points)
            return read_points

        return read

    def is_known_comment(self, remark: str) -> bool:
        """Return whether a line that begins with `#` was seen before and is not part of the table."""
        return remark in self._remarks and not self._is_pending()

    def _is_pending(self) -> bool:
        return bool(self._pieces) or self._held is not None or self._unconfirmed is not None

    @property
    def holds_row(self) -> bool:
        """Return whether a complete row is held back."""
        return self._held is not None

    def flush(self) -> list[Row]:
        """End the table: return the row that was held back, report pieces that could not be joined."""
        rows = self.flush_held()
        if self._pieces:
            self._report(self._first_line, "".join(self._pieces))
            self._pieces = []
        if self._unconfirmed is not None:
            self.damaged.append(self._unconfirmed)
            self._unconfirmed = None
        return rows

    def end(self) -> list[Row]:
        """End the text: like `flush`, and check every row against the others."""
        rows = self.flush()
        self._settle(end=True)
        return rows

    def flush_held(self) -> list[Row]:
        """Return the row that was held back because its last number might continue."""
        held, self._held = self._held, None
        return self._accept(*held) if held else []

    def _accept(self, number: int, text: str, row: Row) -> list[Row]:
        unit = row.elements * DTYPE_BYTES[row.dtype]
        if not self.arithmetic.fits((number, text, row), row.size, unit, row.ratios):
            self._report(number, text)
            return []
        self._settle(end=False)
        return [row]

    def _settle(self, *, end: bool) -> None:
        if not end and not self.arithmetic.rates.is_ready:
            return
        for number, text, row in self.arithmetic.settle(*self._context(), end=end):
            self._report(number, text)
            self.retracted.update(map(id, row.points))

    def _report(self, number: int, text: str) -> None:
        self.damaged.append(Damaged(number, " ".join(text.split())))

    def _set_aside(self, number: int, text: str) -> list[Row]:
        """Hold a piece whose end could be part of a host name: what follows may be the rest of the row."""
        number = self._first_line if self._pieces else number
        text = "".join([*self._pieces, text])
        self._pieces = []
        rows = self.flush()
        self._unconfirmed = Damaged(number, " ".join(text.split()))
        return rows

    def _completes_unconfirmed(self, piece: Damaged, row: Row | None, tokens: list[str]) -> bool:
        """Return whether a line is the rest of an unreadable row; it may look like a row itself."""
        if row is None and not all(map(_REST.fullmatch, tokens)):
            return False
        self._unconfirmed = None
        whole = row is not None and self._plausible(row)
        if not whole or " " in piece.text:
            self.damaged.append(piece)
        return not whole

    def _read_new(
        self, number: int, text: str, tokens: list[str], rows: list[Row], row: Row | None
    ) -> tuple[list[Row], bool]:
        """Read a line that continues nothing and may be a row by itself. `rows` are already complete."""
        if row is None and _BLANK_HALF.search(text):
            row = self._rows.read(tokens, in_place_only=True)
        if self._unconfirmed is not None and self._completes_unconfirmed(self._unconfirmed, row, tokens):
            return rows, True
        if row is not None:
            return rows + self._hold(number, text, row), True
        if not self.closed and self._starts(tokens):
            self._pieces, self._first_line = [text], number
            return rows, True
        if not self.closed and is_damaged_row(tokens, self._columns):
            self._report(number, text)
            return rows, True
        if text[:1] == "#" and len(text) <= _MAX_CACHED_LINE and len(self._remarks) < _MAX_REMARKS:
            self._remarks.add(text)
        return rows, False

    def _plausible(self, row: Row) -> bool:
        return plausible(row, self._rows.layout.rounding)

    def _starts(self, tokens: list[str]) -> bool:
        return starts_row(tokens, self._rows.layout)

    def _hold(self, number: int, text: str, row: Row) -> list[Row]:
        """Hold a row back if what follows may be the rest of its last number."""
        if not row.open_end:
            return self._accept(number, text, row)
        self._held = (number, text, row)
        return []

    def _append_to_last(self, text: str, tokens: list[str]) -> bool:
        """Append a lone number to the last one of the row that is held back, if it fits."""
        if self._held is None or len(tokens) != 1 or text[:1].isspace():
            return False
        row = self._rows.read((self._held[1] + text).split())
        if row is None or not self._plausible(row):
            return False
        self._held = (self._held[0], self._held[1] + text, row)
        return True

    def _join(self, text: str, tokens: list[str]) -> list[Row] | None:
        """Append a line to the pieces: return rows it completes (maybe none); None: not a continuation."""
        prefix = "".join(self._pieces)
        candidates = [prefix + text]
        if not self._starts(candidates[0].split()):
            candidates.append(f"{prefix} {text}")
        read = [(candidate, self._rows.read(candidate.split())) for candidate in candidates]
        whole = [(candidate, row) for candidate, row in read if row is not None and self._plausible(row)]
        if whole and all(row == whole[0][1] for _, row in whole):
            self._pieces = []
            return self._hold(self._first_line, *whole[0])
        if whole or self._rows.read(tokens) is not None or len(self._pieces) >= _MAX_PIECES:
            self.flush()
            return None
        for candidate in candidates:
            if self._starts(candidate.split()):
                self._pieces = [candidate]
                return []
        if self._starts(tokens):
            self.flush()
        return None


# In print order. A line of an earlier stage than the current one begins another run.
BANNER, DEVICES, HEADER, FOOTER, AFTER = range(5)


class Statement(NamedTuple):
    """One parsed line. `kind` names its entry in `_STATEMENTS`; `words` are its groups."""

    kind: str
    stage: int
    words: tuple[str | None, ...] = ()
    layout: Layout | None = None


_STATEMENTS: tuple[tuple[str, int, Sequence[str], re.Pattern[str]], ...] = tuple(
    (kind, stage, words, lazy(pattern))
    for kind, stage, words, pattern in (
        # These lines are printed once per rank.
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
        # A build outside of git prints "Unknown" or ":+".
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
        ("failure", AFTER, ("option",), r"(?:\S*_perf\S*: )?(?:unrecognized option|invalid option|option requires) .*"),
        ("usage", AFTER, ("USAGE",), r"USAGE: (\S*_perf\S*) ?.*"),
        ("failure", AFTER, ("nRanks",), r"nRanks \d+ is not a power of 2, skipping"),
        ("failure", AFTER, ("not supported", "requires"), r"(?:Option )?-\w+\S* .*(?:not supported|requires).*"),
    )
)
"""Kind, stage, words (every such line has at least one of them), and pattern."""
_SIGNS = tuple(dict.fromkeys(word for _, _, words, _ in _STATEMENTS for word in words))
_PROGRAM = lazy(r"(?:^|[\s/'\"])([a-z]\w*)_perf(?:_mpi)?(?=[\s'\";]|$)")


_MAX_CACHED_LINE = 400  # longer lines are not cached; most banners of the programs in one log are the same


def read_statement(text: str) -> Statement | None:
    """Parse a line other than a row; None if it does not come from nccl-tests."""
    return _cached_statement(text) if len(text) <= _MAX_CACHED_LINE else _parse_statement(text)


def _parse_statement(text: str) -> Statement | None:
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


_cached_statement = lru_cache(maxsize=1024)(_parse_statement)


def case_of(program: str) -> str:
    """Return a program's case: `/opt/all_reduce_perf_mpi` is `all_reduce`."""
    return program.rpartition("/")[2].removesuffix("_mpi").removesuffix("_perf")


def case_in_command(text: str) -> str | None:
    """Find the case in a command line that starts an nccl-tests program."""
    match = _PROGRAM.search(text) if "_perf" in text else None
    return match[1] if match else None


def nccl_version(code: str) -> str:
    """Format NCCL's version code: 22809 is 2.28.9 (2804 is 2.8.4, before 2.9)."""
    major, rest = divmod(int(code), 10_000 if int(code) >= 10_000 else 1000)
    return f"{major}.{rest // 100}.{rest % 100}"
