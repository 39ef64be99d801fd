"""What several commands write: results on standard output; sentences and progress on stderr.

While the command line runs, both streams are `SafeStream`s: no text that passes them can control a
terminal or be a command of a CI system, no matter what code wrote it and how.
"""

import itertools
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from shlex import quote
from shutil import get_terminal_size
from typing import IO, TYPE_CHECKING, Any, cast

import click

from fabbench.model.errors import Exit, FabbenchError, worst
from fabbench.model.messages import counted, printable, unbroken, unfinished, with_line_feeds
from fabbench.model.patterns import lazy
from fabbench.model.values import T
from fabbench.plan import STORE

if TYPE_CHECKING:
    from rich.console import Console

    from fabbench.analysis.compare import Comparison
    from fabbench.analysis.gate_results import Verdict
    from fabbench.logs.signs import Unread
    from fabbench.model.units import Sizes
    from fabbench.report.page import RunPage

Show = Callable[..., None]
Render = Callable[..., str]
OUTPUT_FILE = "fabbench.output"  # of click's `meta`: the file of --output
_MIN_FILES_SHOWN = 16  # Minimum number of files for which progress is shown

_STYLE = lazy(r"(\x1b\[[\d;]*m)")
_DRAWING = lazy(r"(\x1b\[(?:[\d;]*[mA-HJK]|\?25[hl])|\r)")
"""Also what rich writes to redraw a table in place."""


class SafeStream:
    """A text stream that lets only printable text out, and is else the stream that it wraps."""

    def __init__(self, stream: IO[str], let_pass: re.Pattern[str] | None = None) -> None:
        """`let_pass` matches, in a group, sequences that may pass: for text that rich has drawn."""
        self.raw = stream  # The stream as it is, on which nothing is made safe
        self._let_pass = let_pass
        # Errors that do not matter: where standard error cannot be written to (a full disk, nobody
        # at its other end), a run goes on, and cleans up.
        self._ignored = (OSError,) if stream is sys.__stderr__ else ()
        self._line = ""  # What a command of a CI system could begin with, in the line so far
        self.buffer = None  # no bytes: they would bypass it

    def write(self, text: Any) -> int:
        """Write text, anything but plain text as escapes: see `fabbench.model.messages`."""
        if isinstance(text, bytes):  # as click writes completions
            text = text.decode()
        parts = [text]
        if self._let_pass is not None and "\x1b" in text:
            parts = self._let_pass.split(text)
        # Every second part is a sequence that may pass; the others are made safe.
        for index in range(0, len(parts), 2):
            # What a command could begin with is read again, as it may come in several writes.
            # After a sequence a line may begin anew, and so may a command that stands there, `::`;
            # one that begins with `#` may stand anywhere.
            before = "" if index and "#" not in self._line else self._line
            shown = printable(before + parts[index])
            parts[index] = shown[len(before) :]
            self._line = unfinished(shown)
        with suppress(*self._ignored):
            self.raw.write("".join(parts))
        return len(text)

    def flush(self) -> None:
        """Write what is buffered."""
        with suppress(*self._ignored):
            self.raw.flush()

    def writelines(self, lines: Iterator[str]) -> None:
        """Write texts."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.raw, name)


@contextmanager
def safe_streams() -> Iterator[None]:
    """Make standard output and error safe: what they cannot encode is written as an escape.

    Exit if a standard stream is closed: the next file to be opened would take its place.
    """
    before = sys.stdout, sys.stderr
    if None in {sys.stdin, *before}:
        with suppress(OSError):
            os.write(2, b"Error: A standard stream is closed. Redirect it: </dev/null >/dev/null\n")
        os._exit(Exit.REFUSED)
    safe = []
    for stream in before:
        with suppress(AttributeError, OSError, ValueError):
            cast("Any", stream).reconfigure(errors="backslashreplace")
        safe.append(cast("IO[str]", SafeStream(stream)))
    sys.stdout, sys.stderr = cast("Any", safe)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
        try:
            sys.stderr.flush()
        except OSError:  # Python would fail on it, too, and exit with 120
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


def _letting_pass(stream: IO[str], let_pass: re.Pattern[str]) -> IO[str]:
    """Return a safe stream that lets some sequences pass; any other stream as it is."""
    if not isinstance(stream, SafeStream):
        return stream
    return cast("IO[str]", SafeStream(stream.raw, let_pass))


def write_drawn(text: str) -> None:
    """Write what `fabbench.report` has drawn to standard output, with its colors on a terminal.

    All of it is written before any message about it on standard error.
    """
    stream = _letting_pass(sys.stdout, _STYLE) if sys.stdout.isatty() else sys.stdout
    stream.write(text)
    stream.flush()


def drawn(render: Render, *what: Any, **more: Any) -> str:
    """Return what a function of `fabbench.report` writes: as fits on a terminal, in color."""
    how: dict[str, Any] = {"color": in_color(sys.stdout), "width": width()}
    return render(*what, **(how | more))


def console() -> "Console":
    """Return rich's console on standard error.

    Pass it printable text only: its own escape sequences pass.
    """
    from rich.console import Console

    stream = _letting_pass(sys.stderr, _DRAWING)
    plain = not in_color(sys.stderr)
    return Console(file=stream, no_color=plain, highlight=False, emoji=False, markup=False)


def in_color(stream: IO[str]) -> bool:
    """Return whether a stream is a terminal that shows colors, unless they are unwanted.

    See https://no-color.org.
    """
    if "colors" in _unwanted or os.environ.get("NO_COLOR"):
        return False
    return os.environ.get("TERM") != "dumb" and stream.isatty()


def width() -> int | None:
    """Return the width of the terminal; None: standard output is not one."""
    if not sys.stdout.isatty():
        return None
    return get_terminal_size().columns


_unwanted: set[str] = set()  # One process has one command line


@contextmanager
def without(what: str) -> Iterator[None]:
    """In this context write no `notices` and no progress, or no `colors`."""
    _unwanted.add(what)
    try:
        yield
    finally:
        _unwanted.discard(what)


def is_quiet() -> bool:
    """Return whether only results and errors are written."""
    return "notices" in _unwanted


def write_line(text: str, *, err: bool = False) -> int:
    """Write one line, whatever names are in it; on a terminal in its width, verdicts in color.

    Return how many lines it has there.
    """
    stream = sys.stderr if err else sys.stdout
    if not stream.isatty():
        click.echo(unbroken(text), err=err)
        return 1
    from fabbench.report.table import folded, toned

    own_indent = len(text) - len(text.lstrip())
    # What is folded goes on two blanks further in
    indent = " " * (own_indent + 2)
    folded_lines = folded(text, get_terminal_size().columns, indent=indent)
    lines = with_line_feeds(folded_lines)
    if in_color(stream):
        lines = toned(lines)
    _letting_pass(stream, _STYLE).write(lines)
    stream.flush()
    return len(folded_lines)


def say(sentence: str) -> None:
    """Write a line on standard error."""
    write_line(sentence, err=True)


def notify(sentence: str) -> None:
    """Write a notice on standard error, which is not for results."""
    if not is_quiet():
        say(sentence)


def say_unread(unread: "Sequence[Unread]") -> Exit:
    """Say which files have no result, and why; return the exit status: fine for remarks alone."""
    for entry in unread:
        reason = entry.reason.removeprefix(f"{entry.source} ")  # Some begin with the file, too
        kind = "Note" if entry.remark else "Error"
        say(f"{kind}: {entry.source}: {reason}")
    return Exit.FINE if all(entry.remark for entry in unread) else Exit.REFUSED


def write_json(document: Mapping[str, Any]) -> None:
    """Write a document to standard output."""
    from fabbench.report.table import to_json

    click.echo(to_json(document), nl=False)


def say_damage(run: object, damage: Iterable[str], then: str = "") -> Exit:
    """Say what is damaged of a run, and what was done `then`; return the matching exit status."""
    status = Exit.FINE
    for sentence in damage:
        say(f"{run} is damaged{then}: {sentence}")
        status = Exit.REFUSED
    return status


def show(render: Render, *what: Any, answer: Sequence[str] = (), **more: Any) -> None:
    """Write what a function of `fabbench.report` writes, drawn for standard output.

    Text that is longer than the terminal ends with its answer, which has scrolled away.
    """
    text = drawn(render, *what, **more)
    write_drawn(text)
    if "text" in what:
        end_with(answer, text.count("\n"))


def end_with(answer: Sequence[str], lines: int) -> None:
    """Write the answer again below a text of so many lines, if it has scrolled away."""
    if answer and sys.stdout.isatty() and lines >= get_terminal_size().lines:
        from fabbench.report import closing_lines

        write_drawn(drawn(closing_lines, answer))


def show_document(name: str, store: Path, form: str) -> Exit | None:
    """Write a certificate or a watch; None: the store has none of this name."""
    from fabbench.runs.document import read
    from fabbench.runs.documents import KINDS, document_path

    path = document_path(store, name)
    if path is None:
        return None
    kind = KINDS[path.parent.name]
    document = read(path, kind.document)
    show(kind.render, document, form, answer=[document.headline])
    return document.status


def remove(
    runs: Sequence[T],
    remove_them: Callable[[Sequence[T]], object],
    hint: str,
    *,
    yes: bool,
) -> Exit:
    """Remove runs, unless the answer is no; without a terminal, `hint` says what removes them."""
    interactive = sys.stdin.isatty()
    what = counted(len(runs), "run")
    if not yes and not interactive:
        say(f"Nothing was removed. {hint}")
        return Exit.BAD_ANSWER
    if not yes and not click.confirm(f"Remove {what}?", err=True):
        say("Nothing was removed.")
        return Exit.BAD_ANSWER
    remove_them(runs)
    say(f"Removed {what}.")
    return Exit.FINE


def print_comparison(
    comparison: "Comparison", form: str, *, verdict: "Verdict | None" = None
) -> None:
    """Write a comparison to standard output.

    The results of its gates go to stderr, too, unless a terminal shows them in the comparison. With
    --quiet failed ones go there in any case.
    """
    from fabbench.analysis.headline import headlines
    from fabbench.report import render_comparison

    show(render_comparison, comparison, form, answer=headlines(comparison), verdict=verdict)
    is_on_screen = form == "text" and sys.stdout.isatty()
    if not is_on_screen or is_quiet():
        print_verdicts([verdict])


def write_junit(path: Path | None, comparison: "Comparison", verdict: "Verdict | None") -> None:
    """Write a comparison to the file of ``--junit``, too."""
    from fabbench.report import render_comparison

    if path is not None:
        text = render_comparison(comparison, "junit", verdict=verdict)
        path.write_text(text, "utf-8", errors="backslashreplace")


def print_verdicts(verdicts: "Sequence[Verdict | None]") -> Exit:
    """Write the results of gates to stderr, and return the status.

    There is a verdict per log or comparison, None without gates; a gate passed if it did in all.
    """
    with_gates = [each for each in verdicts if each]
    for verdict in with_gates:
        for breach in verdict.breaches:
            say(f"Gate failed: {breach}")
        for doubt in verdict.undecided if verdict.inconclusive else ():
            say(f"Gate inconclusive: {doubt}")
    for gate in with_gates[0].passed if with_gates else ():  # All have the same gates
        if all(gate in each.passed for each in with_gates):
            notify(f"Gate passed: {gate}")
    return worst(*(each.status for each in with_gates))


def write_page(
    runs: Sequence[Path],
    metric: str | None = None,
    sizes: "Sizes | None" = None,
    compared: "Sequence[RunPage]" = (),
) -> Exit:
    """Write comparisons and then runs as a page to standard output.

    Return the exit status: that of `compare` for each comparison.
    """
    from fabbench.report.page import page_of, run_section
    from fabbench.runs.report_pages import stored_sections

    sections = [run_section(page, number) for number, page in enumerate(compared, 1)]
    written = []
    with files_progress(len(runs)) as read:
        for run in stored_sections(runs, metric, sizes, first=len(sections) + 1):
            written.append(run)
            read()
    sections += [run.section for run in written]
    sys.stdout.writelines(page_of(sections))
    status = worst(*(found.status for page in compared for found in page.comparisons))
    for page in compared:
        status = worst(status, print_verdicts([page.verdict]))
    for run in written:
        damaged = say_damage(run.path.name, run.damage)  # FINE, which is 0, if nothing is
        status = worst(status, damaged or run.status)
    return status


def say_next(path: Path) -> None:
    """Say where a run is; on a terminal, also what can be done with it, as commands to copy."""
    notify(f"Run: {path}")
    if is_quiet() or not sys.stderr.isatty():
        return
    name = path.name.rpartition("-")[2]  # The end of its id is enough to name it
    usual = Path(os.environ.get("FABBENCH_STORE") or STORE)
    store = ""
    if usual.resolve() != path.parent.resolve():
        folder = quote(str(path.parent))
        store = f" --store {folder}"
    from fabbench.report.templates import template

    text = template("next.txt").render(name=name, store=store)
    click.echo(text, err=True, nl=False)  # not folded


def print_error(error: FabbenchError) -> None:
    """Write an error and its hint."""
    first, *more = map(str, error.args)
    for line in (f"Error: {first}", *more):
        say(line)
    if error.hint:
        say(f"Hint: {error.hint}")


def print_notes(error: BaseException) -> None:
    """Write what else went wrong while an error was handled, such as leftovers on hosts."""
    for note in getattr(error, "__notes__", ()):
        # Python 3.12 notes the class whose creation raised an error.
        if not note.startswith("Error calling __set_name__ "):
            say(note)


def is_live() -> bool:
    """Return whether standard error can show what changes."""
    moves = os.environ.get("TERM") not in {"dumb", "unknown"}
    return moves and not is_quiet() and sys.stderr.isatty()


@contextmanager
def changing(*, wanted: bool = True) -> Iterator[Show]:
    """Yield a function that draws text after a bar, and lines below it, in place of those before.

    It takes the text, how much is done, of what total, and the lines. It does nothing unless it
    `is_live` and `wanted`. It draws in the thread that calls it. What is
    written meanwhile stands above.
    """
    if not wanted or not is_live():
        yield lambda *_: None
        return
    from rich.console import Group
    from rich.live import Live
    from rich.progress import BarColumn, Progress, TextColumn
    from rich.text import Text

    from fabbench.report.table import cut

    on = console()
    text = TextColumn("{task.description}", markup=False)
    # Colors are for verdicts
    column = BarColumn(10, complete_style="default", finished_style="default")
    bar = Progress(column, text, console=on, auto_refresh=False)
    task = bar.add_task("", total=None)
    one_line = partial(Text, no_wrap=True, overflow="ellipsis")
    with Live(console=on, auto_refresh=False, transient=True, vertical_overflow="crop") as live:

        def show(what: str, done: float, total: float, lines: Sequence[str] = ()) -> None:
            fitting = cut(what, on.width - 12)  # The bar and the blanks beside it
            bar.update(task, description=fitting, completed=done, total=total)
            below = [one_line(unbroken(line)) for line in lines]
            live.update(Group(bar.get_renderable(), *below), refresh=True)

        yield show


@contextmanager
def files_progress(count: int) -> Iterator[Callable[[], None]]:
    """Show how many of `count` files have been read; yield a function to call after each."""
    number = itertools.count(1)
    step = max(1, count // 100)  # It is drawn at most about a hundred times
    with changing(wanted=count >= _MIN_FILES_SHOWN) as show:

        def read() -> None:
            done = next(number)
            if done % step == 0:  # of many files not each one is drawn
                show(f"reading {done}/{count}", done, count)

        yield read
