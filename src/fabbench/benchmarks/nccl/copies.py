"""The stage that tells copies of a program apart, which print side by side. Pure.

Usually one program prints, maybe through the streams of several ranks. Built without MPI, each rank
is a program of its own, with a table of its own.
"""

from collections import defaultdict

from fabbench.benchmarks.nccl.lines import Device, ParsedLine, Stage
from fabbench.model.log import Line
from fabbench.model.patterns import lazy

_MAY_BE_ROW = lazy(r"\s*\d{1,18}\s+\d{1,18}\s+[a-z]")
_FOOTERS = frozenset({"bounds", "average"})
_BEHIND_BANNER = _FOOTERS | {"device", "header", "concluded"}


def may_be_row(text: str) -> bool:
    """Return whether a line has the first cells of a row."""
    return _MAY_BE_ROW.match(text) is not None


class Copies:
    """What each stream of one execution has printed, by rank, and whether several are copies."""

    def __init__(self) -> None:
        self.are_several = False
        """Whether several programs print a table each, although one should print for all ranks."""
        self.printer: str | None = None
        """The rank whose stream has the table. None: there is no table."""
        self.devices: dict[int, Device] = {}
        """Rank → the device that was listed last for it; a second one may be a copy's."""
        self._kinds = defaultdict[str, set[str]](set)
        """Rank → the kinds of its lines that are no rows. Rank ``""``: lines without a label."""
        self._sizes: dict[tuple[str, ...], int] = {}
        """Rank, type, redop and root → the size of the last row; only of streams without header."""
        # Whether two rows of one type, redop and root have the same size, as copies print.
        self._has_size_twice = False

    def note_line(self, parsed: ParsedLine, rank: str) -> bool:
        """Note what a rank says; return whether it is about the execution: not a second header."""
        self._kinds[rank].add(parsed.kind)
        if parsed.kind != "header":
            return True
        if self.printer is not None:  # one program prints a single header
            self.are_several = True
            return False
        self.printer = rank
        return True

    def note_device(self, device: Device) -> None:
        """Note the device of a rank: those of copies are on several hosts, or have several pids."""
        listed_before = self.devices.get(device.rank, device)
        if (listed_before.host, listed_before.pid) != (device.host, device.pid):
            self.are_several = True
        self.devices[device.rank] = device

    def note_counted_rows(self) -> None:
        """Note that rows of the printer count: below its footer they are another copy's."""
        if "bounds" in self._kinds[self.printer or ""]:
            self.are_several = True

    def is_printer(self, rank: str) -> bool:
        """Return whether a rank prints the table, or may do so: none has begun."""
        return self.printer is None or self.printer == rank

    def is_row_of_other_copy(self, line: Line) -> bool:
        """Return whether a line is a row of a copy whose table is not read; note that copy."""
        if self.is_printer(line.stream.rank) or not may_be_row(line.text):
            return False
        self.are_several = True
        return True

    def is_closed(self, rank: str) -> bool:
        """Return whether no row can follow in the table of a rank, unless a whole one."""
        return not self.are_several and not self._kinds[rank].isdisjoint(_FOOTERS)

    def is_inside_table(self, rank: str) -> bool:
        """Return whether the next row of a rank is one more of its table."""
        kinds = self._kinds[rank]
        return rank == self.printer and "header" in kinds and "bounds" not in kinds

    def begins_other_run(self, line: Line) -> bool:
        """Note the size of a row; return whether it is the first one of another run.

        It stands below a footer, or is a smaller size, and there are no headers that tell runs
        apart. Where sizes came twice, rows below a footer are a copy's.
        """
        rank = line.stream.rank
        kinds = self._kinds[rank]
        if "header" in kinds or not may_be_row(line.text):
            return False
        cells = line.text.split()
        size = int(cells[0])
        row_kind = (rank, *cells[2:5])  # type, redop and root, behind size and count
        before = self._sizes.get(row_kind, -1)  # -1, below any size: there is none
        self._sizes[row_kind] = size
        if not kinds.isdisjoint(_FOOTERS):
            return not self._has_size_twice
        self._has_size_twice = self._has_size_twice or size == before
        return size < before

    def is_of_later(self, parsed: ParsedLine, rank: str, *, has_rows: bool, finished: bool) -> bool:
        """Return whether a line can only be of a later execution.

        `finished`: whether this one is; `has_rows`: whether its table has any.
        """
        before = self._kinds[rank]  # the kinds of lines above
        # It has a label, and lines above have none; or it has none, and no line above is without.
        # A launcher labels either all copies or none.
        is_labeled_otherwise = bool(rank) == bool(self._kinds.get(""))
        prints_rows = rank == self.printer and has_rows
        if not before and parsed.stage <= Stage.HEADER and is_labeled_otherwise:
            # The rank's first line: this execution has ended, or is rows whose head is cut off.
            return finished or prints_rows
        if parsed.stage is Stage.BANNER:
            # Copies of a program may print all of their banners first.
            return not before.isdisjoint(_BEHIND_BANNER)
        # A list of devices and a header stand above the rows of their own execution.
        has_started = "bounds" in before or prints_rows  # bounds: a line that closes the table
        is_above_rows = parsed.stage in {Stage.DEVICES, Stage.HEADER}
        return is_above_rows and has_started and not self.are_several
