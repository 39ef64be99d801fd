"""Options that several commands share, each declared once.

``--format``, ``--json`` and ``-o FILE`` alone decide what commands write, and where.
"""

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from shutil import copyfileobj
from typing import IO, TYPE_CHECKING, Any, cast

import click
from click.core import ParameterSource

from fabbench.cli.click_options import CommandT, OptionType, click_options, with_parameters
from fabbench.cli.commands import CONFIGURATION_FLAGS, expanded
from fabbench.cli.terminal import OUTPUT_FILE, SafeStream, notify
from fabbench.model.compat import override
from fabbench.model.errors import MachineError, RequestError
from fabbench.model.formats import FORMATS, SUFFIXES
from fabbench.model.mappings import Names, without_none
from fabbench.model.options import (
    SECONDS_IN,
    SIZES,
    Choice,
    Flag,
    Text,
    Type,
    Whole,
    declared,
    option,
)
from fabbench.model.patterns import lazy
from fabbench.model.run_options import RunOptions
from fabbench.model.units import Sizes

if TYPE_CHECKING:
    from fabbench.model.log import Proof

_JSON_TYPED = "fabbench.json"
_MAX_BYTES_IN_MEMORY = 2**26  # Bytes of a result; a larger one waits in a temporary file


@contextmanager
def _written_to_file(path: Path, ctx: click.Context) -> Iterator[IO[str]]:
    """Yield a stream; what was written is in the file afterwards (.png: as a picture), if any.

    Until then the file is as it was. It stays so if it is an input of the command: RequestError.
    """
    from tempfile import SpooledTemporaryFile

    coded: Any = {"encoding": "utf-8", "errors": "backslashreplace"}
    with SpooledTemporaryFile(_MAX_BYTES_IN_MEMORY, "w+", newline="", **coded) as stream:
        try:
            yield cast("IO[str]", stream)
        finally:
            written = stream.tell() > 0  # Nothing, if it failed before that
            stream.seek(0)
            if written:
                _require_no_input(path, ctx)
                _write_from(stream, path, coded)
                notify(f"Wrote {path}")


def _write_from(stream: IO[str], path: Path, coded: Mapping[str, Any]) -> None:
    """Write what a stream has into a file."""
    if path.suffix.lower() == ".png":
        from fabbench.report.svg import to_png

        path.write_bytes(to_png(stream.read()))
        return
    written_first = path
    if path.suffix == ".prom":
        # node_exporter may read its folder at any time: it finds one file or the other.
        written_first = path.with_name(f".{path.name}.new")
    try:
        with written_first.open("w", **coded) as file:
            copyfileobj(stream, file)
        written_first.replace(path)
    except OSError:
        if written_first != path:
            written_first.unlink(missing_ok=True)
        raise


def require_writable(path: Path | None, option: str) -> None:
    """Raise MachineError if the file of an option, if it was given, cannot be written."""
    if path is None:
        return
    folder = path.absolute().parent
    written_to = path if path.exists() else folder
    problem = ""
    if path.is_dir():
        problem = "it is a directory"
    elif not folder.is_dir():
        problem = f"the directory {folder} does not exist"
    elif not os.access(written_to, os.W_OK):
        problem = "permission denied"
    if problem:
        raise MachineError(
            f"{path} cannot be written: {problem}.", hint=f"Choose another file for {option}."
        )


def _require_no_input(path: Path, ctx: click.Context) -> None:
    """Raise RequestError if the file of --output is an input."""
    inputs = ",".join(ctx.params.get("inputs", ())).split(",")
    if path.resolve() in {Path(each).resolve() for each in inputs}:
        raise RequestError(f"{path} is an input, and was left as it is.")


def _redirect_output(ctx: click.Context, parameter: click.Parameter, path: Path | None) -> None:
    """Send standard output to the file of --output until the command ends; `-` leaves it."""
    del parameter
    if str(path) == "-":
        path = None
    ctx.meta[OUTPUT_FILE] = path
    if path is None or ctx.resilient_parsing:
        return
    require_writable(path, "--output")
    stream = ctx.with_resource(_written_to_file(path, ctx))
    ctx.with_resource(redirect_stdout(SafeStream(stream)))


_early_option = partial(click.Option, is_eager=True, expose_value=False)
_JSON_FLAG = _early_option(
    ["--json"],
    is_flag=True,
    callback=lambda ctx, _, given: ctx.meta.update({_JSON_TYPED: given}),
    help="Short for --format json.",
)


def output_option(
    help_: str = "Write the result to FILE instead of standard output.",
) -> click.Option:
    """Return the ``--output`` option alone, for a command whose format another option chooses."""
    return _early_option(
        ["-o", "--output"],
        type=click.Path(path_type=Path),
        metavar="FILE",
        callback=_redirect_output,
        help=help_,
    )


def result_options(result: str, help_: str = "Output format.") -> list[click.Parameter]:
    """Return the options for the format and the file of a result. Their value is `form`.

    `result` is one of `FORMATS`.
    """
    formats = FORMATS[result]
    default: Any = formats[0]  # The usual one is first
    shown: bool | str = True
    if default == "markdown":
        default = _default_on_this_output
        shown = "text on a terminal, else markdown"
    kind = Choice(formats)
    form = click.Option(
        ["--format", "form"],
        type=OptionType(kind),
        metavar=kind.metavar,
        default=default,
        show_default=shown,
        help=help_,
        callback=partial(_format_to_write, formats),
    )
    suffixes = " ".join(_by_suffix(formats))
    output = output_option(
        f"Write the result to FILE, in the format that its suffix stands for: {suffixes}."
    )
    return [form, _JSON_FLAG, output] if "json" in formats else [form, output]


def _default_on_this_output() -> str:
    return "text" if sys.stdout.isatty() else "markdown"


def _by_suffix(formats: Sequence[str]) -> Mapping[str, str]:
    """Return how the names of files end → the format that each stands for."""
    return {suffix: form for form in formats for suffix in SUFFIXES[form].split()}


def results(result: str, *help_: str) -> Callable[[CommandT], CommandT]:
    """Add the options of `result_options` to a command."""
    return with_parameters(result_options(result, *help_))


def _format_to_write(
    formats: Sequence[str], ctx: click.Context, parameter: click.Parameter, value: str
) -> str:
    """Return the format: as given, else as the file's suffix says, else the default."""
    # --json and --output were read before: they are eager
    typed = ctx.get_parameter_source(parameter.name or "") is ParameterSource.COMMANDLINE
    path: Path | None = ctx.meta.get(OUTPUT_FILE)
    short = ctx.meta.get(_JSON_TYPED)  # Whether --json was typed
    if short and typed and value != "json":
        raise RequestError(
            f"--json is short for --format json, not {value}.", hint="Leave one of them out."
        )
    if short:
        value = "json"
    elif not typed and path is not None and path.suffix:
        value = _format_of_suffix(path, formats, ctx.command_path)
    if path is not None and path.suffix.lower() == ".png":  # Drawn from the svg
        _require_picture(value)
    if value == "html" and sys.stdout.isatty():
        raise RequestError("html is not for a terminal.", hint="Add -o FILE.html.")
    return value


def _format_of_suffix(path: Path, formats: Sequence[str], command: str) -> str:
    """Return the format that a file's suffix stands for. Raise RequestError if there is none."""
    by_suffix = _by_suffix(formats)
    form = by_suffix.get(path.suffix.lower())
    if form is None:
        suffixes = ", ".join(by_suffix)
        raise RequestError(
            f"{path}: {command} writes no {path.suffix} file.",
            hint=f"It writes {suffixes}; with --format, to any name.",
        )
    return form


def _require_picture(form: str) -> None:
    """Raise FabbenchError, before a run begins, if its .png could not be drawn at the end."""
    from fabbench.report.svg import to_png

    if form != "svg":
        raise RequestError(f"--format {form} is not for a .png file.", hint="Leave it out.")
    to_png(text="")  # Raises if its library or a font is missing


_AGE = lazy(r"([0-9]{1,9})([smhdw])")


def _read_age(text: str) -> timedelta:
    match = _AGE.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a valid age. Write 90s, 10m, 2h, 7d or 2w")
    number, unit = match.groups()
    return timedelta(seconds=int(number) * SECONDS_IN[unit])


def written_age(age: timedelta) -> str:
    """Write an age in its largest whole unit, as kubectl does."""
    seconds = int(age.total_seconds())
    for unit in "dhm":
        # One of a unit is too coarse: 90 minutes are 90m
        if seconds >= 2 * SECONDS_IN[unit]:
            number = seconds // SECONDS_IN[unit]
            return f"{number}{unit}"
    return f"{seconds}s"


@dataclass(init=False, repr=False, eq=False)  # It is only declared: `parse --help` makes it, too
class PastOptions:
    """Options of commands that read logs and past runs."""

    sizes: Sizes | None = option(
        SIZES,
        "Only these message sizes: 1M, 64K,4M, 1M..1G, 1M.., ..64K.",
        "--size",
    )
    fabric: str | None = option(
        Text("a fabric", "NAME"),
        "Judge the logs as measured on this fabric (efa, tcp, ib, roce, shm, p2p, ofi-tcp, or a "
        "libfabric "
        "provider): a log that shows another transport is off-fabric, one that shows none is "
        "unproven.",
    )
    instance_type: str | None = option(
        Text("an instance type", "TYPE"),
        "Type of the nodes, such as p5.48xlarge, or the link of one NIC, such as ib-ndr, if the "
        "log does not state "
        "it. It tells whether figures are normal; fewer EFA NICs than the type has are off-fabric.",
    )
    nodes: int | None = option(Whole(1, 65536), "Number of nodes, if the log does not state it.")
    nics: int | None = option(
        Whole(0, 1024), "Required NICs per rank (0: any). Default: those of the instance type."
    )
    labels: Names = option(
        Type("a name", "TEXT", str, any_lines=True),
        "Name that a log has in the result, instead of its file's. Once per input, in order; in a "
        "comparison once per column.",
        "--label",
        many=tuple,
    )
    placement: str | None = option(
        Choice(("out-of-place", "in-place")),
        "Which half of an nccl-tests table to compare. Default: out-of-place, if it was measured.",
    )
    allow: Names = option(
        Text("a field", "FIELD"),
        "Allow this field to differ: benchmark, case, ranks, hosts, gpus_per_host, dtype, redop, "
        "direction, way or endpoint. Can be given several times.",
        many=tuple,
    )
    fabric_of_each: Names = option(
        Text("a fabric", "NAME"),
        "Judge log files as measured on this fabric (efa, tcp, ...): once for all, or once per "
        "input, in order. Use `any` for one that should not be judged.",
        "--fabric",
        many=tuple,
    )
    where: tuple[str, ...] = option(
        Text("a condition", "KEY=VALUE"),
        "Only runs with this, such as case=all_reduce, name=nightly or configuration=efa; * and "
        "? match any "
        "text. Can be given several times.",
        many=tuple,
    )
    benchmark: str | None = option(Text("a benchmark", "NAME"), "Only runs of this benchmark.")
    target: str | None = option(Text("a target", "TARGET"), "Only runs on this target.", "--on")
    name: str | None = option(Text("a name", "NAME"), "Only runs with this name (run --name).")
    since: timedelta | None = option(
        Type("an age", "AGE", _read_age), "Only runs younger than AGE: 90m, 12h, 7d, 4w."
    )
    older_than: timedelta | None = option(
        Type("an age", "AGE", _read_age), "Remove runs older than AGE: 12h, 30d, 8w."
    )
    yes: bool = option(Flag(), "Do not ask for confirmation.")


FILTERS = ("benchmark", "target", "name")
"""Which runs of a store."""
ON_NODES = ("instance_type", "nodes", "nics")
"""What logs ran on: `known_proof` combines them."""
_JUDGING = ("labels", "gates", "strict")
_GATE_HELP = (
    "Fail (exit 1) unless this holds for each log, or for the first column of a comparison, such "
    "as busbw@1G>=70GB/s, busbw>=80%ceiling or latency@64<=20us; against a baseline also busbw:5% "
    "or latency@64:20us. Can be given several times."
)


def takes(*names: str, **instead: str) -> Callable[[CommandT], CommandT]:
    """Add shared options to a command; those of `instead` with another help."""
    by_name = {**declared(RunOptions), **declared(PastOptions)}
    options = [by_name[name] for name in names]
    for name, about in instead.items():
        options.append(replace(by_name[name], help=about))
    return with_parameters(click_options(options))


class LogCommand(click.Command):
    """A command that reads logs.

    All of them take the same about what was measured, what it is called, and what it has to reach.
    """

    def __init__(self, name: str, *, params: Sequence[click.Parameter], **more: Any) -> None:
        by_name = {**declared(RunOptions), **declared(PastOptions)}
        by_name["gates"] = replace(by_name["gates"], help=_GATE_HELP)
        efa, tcp, _ = CONFIGURATION_FLAGS  # Not --ab: a log is judged as of one fabric
        names = (*ON_NODES, *_JUDGING)
        shared = [efa, tcp, *click_options(by_name[each] for each in names)]
        super().__init__(name, params=[*params, *shared], **more)

    @override
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, expanded(args))


def known_proof(known: Mapping[str, Any]) -> "Proof | None":
    """Return what logs are judged against; None: nothing.

    Raise RequestError for an unknown type.
    """
    from fabbench.model.log import Proof  # which --help does not need

    wanted = {name: known.get(name) for name in ("fabric", *ON_NODES)}
    given = without_none(wanted)
    if "instance_type" in given:
        from fabbench.catalog.systems import require_system

        given["instance_type"] = require_system(given["instance_type"]).name
    return Proof(**given) if given else None
