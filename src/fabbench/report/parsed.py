"""Logs as text, in the formats of `fabbench parse`: what stands before, between and after them. Pure."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from fabbench.errors import RequestError
from fabbench.model import Log
from fabbench.report import contract, delimited, markdown, terminal
from fabbench.report.logs import CSV_HEADER, records, tables

FORMATS = ("table", "json", "csv", "markdown")


@dataclass(frozen=True, slots=True, kw_only=True)
class Writer:
    """Writes logs one at a time, in pieces: a log may be large."""

    log: Callable[[Log], Iterator[str]]
    opening: str = ""
    separator: str = ""
    closing: Callable[[Iterable[tuple[str, str]]], str] = lambda errors: ""  # noqa: ARG005
    """Of the sources that could not be read, with the reasons."""


def writer(form: str, *, colour: bool = False, width: int | None = None) -> Writer:
    """Give the writer of one of `FORMATS`; `colour` and `width` are for `table`."""
    if form == "json":
        return Writer(
            log=contract.Elements().write,
            opening=contract.OPENING,
            separator=contract.SEPARATOR,
            closing=contract.closing,
        )
    if form == "csv":
        return Writer(log=_csv, opening=delimited.write_rows(CSV_HEADER, ()))
    if form == "markdown":
        return Writer(log=lambda log: map(markdown.write, tables(log)), separator="\n")
    if form == "table":
        return Writer(
            log=lambda log: iter((terminal.write(tables(log), colour=colour, width=width),)), separator="\n"
        )
    raise RequestError(f"There is no format {form}.", hint=f"One of {', '.join(FORMATS)}.")


def _csv(log: Log) -> Iterator[str]:
    yield delimited.write_records(records(log), CSV_HEADER).partition("\n")[2]
