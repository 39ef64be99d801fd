"""``fabbench accept``: one command, one verdict on nodes."""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fabbench.benchmarks import DEFAULT
from fabbench.cli import terminal
from fabbench.cli.click_options import CommandLine, click_options, pass_command_line
from fabbench.cli.commands import Again
from fabbench.cli.options import require_writable, result_options, takes
from fabbench.cli.run_command import (
    TargetCommand,
    command_line_again,
    interruptible,
    warn_of_foreign_commands,
)
from fabbench.cli.sweep_command import DiagnosisOptions
from fabbench.launchers import options_of_launchers
from fabbench.model.errors import Exit, RequestError
from fabbench.model.mappings import without
from fabbench.model.messages import with_line_feeds
from fabbench.model.options import declared
from fabbench.report.certificate import EXITS, State, render_certificate
from fabbench.report.sweep_report import cordon_command
from fabbench.runs.ladder import LEVELS, AcceptOptions, write_thresholds

if TYPE_CHECKING:
    from fabbench.report.certificate import Certificate
    from fabbench.runs.sweep import SweepRequest

_JUDGING_OPTIONS = [
    declared(DiagnosisOptions)[name] for name in ("tolerance", "confidence", "print_cordon")
]


@click.command(
    name="accept",
    cls=TargetCommand,
    selects=lambda each: each.for_runs,
    params=[
        *click_options([*declared(AcceptOptions).values(), *_JUDGING_OPTIONS]),
        *result_options("certificate"),
    ],
)
@click.option(
    "--resume",
    "resumed",
    metavar="ID",
    help="Go on with a ladder that has not ended, or not tested it all.",
)
@takes("store")
@pass_command_line
def command(
    line: CommandLine,
    /,
    resumed: str | None,
    store: Path,
    form: str,
    **_: Any,
) -> Exit | Again:
    """Test nodes rung by rung, and answer: accepted, rejected or incomplete.

    Checks, each node alone, each NIC, pairs of nodes, all nodes together. Machines are held once. A
    node that a rung finds bad is left out of later rungs; a rung that fails stops only what depends
    on it. Between nodes the fabric must be proven. Figures are judged by published ones, or by
    --thresholds.

    The exit status is 0 if all nodes are accepted, 1 if something is bad, and 4 if something was
    not tested or is not certain. The certificate is stored: --resume ID, --resume last,
    fabbench show ID.

    Example: fabbench accept --on ssh --host node[01-08] -o certificate.html

    Example: fabbench accept --level full --profile inference --thresholds limits.json
    """
    from fabbench.cli.live import watching, watching_sweep
    from fabbench.config.given import value_of, values_of
    from fabbench.runs.acceptance import Acceptance, how_to_resume, open_certificate

    certificate = open_certificate(resumed, store) if resumed is not None else None
    if certificate is not None:
        _require_effect(line, certificate.command)
        if not certificate.open:  # Nothing is left to test
            raise RequestError(
                f"{certificate.id} has ended: {certificate.verdict}.", hint="Run the command again."
            )
        seconds = value_of(line.given, "max_time")  # Of its options only this one may change
        more = [f"--max-time={seconds:g}"] if seconds else []
        same = command_line_again(certificate, store, more, resumed=True)
        # What is stored again is the command line of the beginning, after `fabbench accept`
        return same._replace(recorded=certificate.command[2:])
    how = AcceptOptions(**values_of(line.given, declared(AcceptOptions)))
    request = _request_of_rungs(line, how)
    # How sentences, runs, sweeps and checks of nodes are shown
    shown = (terminal.notify, watching, watching_sweep, terminal.changing)
    with interruptible():
        certificate = Acceptance(request, how, line.resumed, *shown).accept()
    if program := value_of(line.given, "print_cordon"):
        lines = [cordon_command(program, *each) for each in certificate.bad_nodes.items()]
        terminal.write_drawn(with_line_feeds(lines))
    else:
        terminal.show(render_certificate, certificate, form, answer=[certificate.headline])
    page = f"A page to send: fabbench report {certificate.id} -o certificate.html"
    then = how_to_resume(certificate, store) if certificate.open else page
    terminal.notify(f"Certificate: {certificate.id}. {then}".rstrip())
    if how.write_thresholds:
        _write_thresholds(how.write_thresholds, certificate, request.tolerance)
    return EXITS[certificate.state]


def _require_effect(line: CommandLine, stored: Sequence[str]) -> None:
    """Raise RequestError for options that have no effect with --resume.

    One that says what the `stored` command line does agrees with it.
    """
    for each in line.typed.keys() - {"resumed", "store", "max_time", "verbose", "quiet"}:
        flag = line.typed[each]
        if not _agrees_with_stored(flag, line.command, stored):
            raise RequestError(f"{flag} has no effect with --resume.", hint="Leave it out.")


def _agrees_with_stored(flag: str, words: Sequence[str], stored: Sequence[str]) -> bool:
    """Return whether an option is typed with values that a stored command line has."""
    typed = {option for option in _options_in(words) if option[0] == flag}
    return bool(typed) and typed <= _options_in(stored)


def _options_in(words: Sequence[str]) -> set[tuple[str, str]]:
    """Return the flags of a command line, each with the word after it if that is no flag.

    Other words are paired likewise, which does not matter: only flags are looked for.
    """
    plain: list[str] = []
    for word in words:
        plain += word.split("=", 1) if word.startswith("--") else [word]
    following = [*plain[1:], ""]
    values = ["" if word.startswith("-") else word for word in following]
    return set(zip(plain, values, strict=False))


def _write_thresholds(path: Path, certificate: "Certificate", tolerance: float) -> None:
    """Write limits from the figures of these nodes, unless one of them is bad."""
    if certificate.state is State.FAILED:
        terminal.notify(
            "No thresholds were written: something is bad. Write them on healthy nodes."
        )
        return
    write_thresholds(path, certificate, tolerance)


def _request_of_rungs(line: CommandLine, how: AcceptOptions) -> "SweepRequest":
    """Return what all rungs have in common. Raise FabbenchError."""
    from fabbench.config.given import Given, Origin, from_origin, values_of
    from fabbench.config.requests import request_of
    from fabbench.runs.sweep import SweepRequest

    typed = from_origin(line.given, Origin.USER)
    if "soak" in typed and how.level != LEVELS[-1]:  # The last level, soak, alone has that rung
        raise RequestError(
            "--soak has no effect without --level soak.", hint="Add it, or leave --soak out."
        )
    require_writable(how.write_thresholds, "--write-thresholds")
    given = without(line.given, declared(AcceptOptions))
    if how.fabric:  # One, where runs take several
        given["fabrics"] = Given((how.fabric,))
    run = request_of(DEFAULT, given, line.config, options_of_launchers(), os.environ)
    warn_of_foreign_commands(line.config, run.target)
    run = replace(run, command=line.command)
    judged = values_of(line.given, ("tolerance", "confidence"))
    # Each rung that is a sweep has its own mode
    return SweepRequest(run=run, mode="", raises_limit=not how.timeout, **judged)
