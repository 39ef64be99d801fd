"""``fabbench accept``: one command, one verdict on nodes."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fabbench.cli import options, terminal
from fabbench.cli.click_options import click_options, values_of
from fabbench.cli.help_sections import WORDS
from fabbench.cli.host_options import command_line, rerun_words
from fabbench.cli.output import require_writable, result_options
from fabbench.cli.run_command import TargetCommand, chosen_target, interruptible
from fabbench.cli.sweep_answer import AnswerOptions
from fabbench.model.compat import override
from fabbench.model.errors import RequestError
from fabbench.model.option_types import FABRIC, Choice, File, Flag, Seconds, Text
from fabbench.model.options import declared, option
from fabbench.runs.ladder import LEVELS, PROFILES

if TYPE_CHECKING:
    from fabbench.report.certificate import Certificate
    from fabbench.runs.acceptance import AcceptRequest, Watched

_RESUMED = "fabbench.resumed_certificate"

FORMATS = ("markdown", "json", "html", "junit", "ctrf", "terminal")
"""`fabbench.report.certificate.FORMATS`, which --help need not import."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptOptions:
    """Options of the ladder."""

    level: str = option(
        Choice(LEVELS),
        "How much to test. quick: checks, GPUs, pairs, one collective; full: each NIC and more collectives, repeated; "
        "soak: then load.",
        default=LEVELS[0],
    )
    profile: str = option(Choice(PROFILES), "Which collectives all nodes run together.", default=PROFILES[0])
    fabrics: tuple[str, ...] = option(
        FABRIC,
        "Fabric that every rung between nodes must use and prove. Default: the best one available.",
        "--fabric",
        many=tuple,
    )
    max_time: float | None = option(Seconds(), "Start no rung after this time. What is left counts as not tested.")
    soak: float | None = option(Seconds(), "How long --level soak keeps all nodes loaded. Default: 3600.")
    background: bool = option(Flag(), "Also measure half of the nodes while the others are loaded.")
    thresholds: Path | None = option(File("a file"), "Limits to judge by, as --write-thresholds wrote them.")
    write_thresholds: Path | None = option(
        File("a file"), "If nothing is bad, write limits that are 10% worse than these figures."
    )
    resume: str | None = option(Text("a certificate", "ID"), "Go on with a ladder that was interrupted.")


class _Accept(TargetCommand):
    """The command, with declared options."""

    def __init__(self, name: str | None, *, params: list[click.Parameter], **more: Any) -> None:
        own = click_options(declared(AcceptOptions).values())
        how = click_options(declared(AnswerOptions)[name] for name in ("tolerance", "confidence", "print_cordon"))
        super().__init__(name, params=[*own, *how, *params, *result_options(FORMATS, "Output format.")], **more)

    @override
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[WORDS] = tuple(args)
        return super().parse_args(ctx, args)


@click.command(
    name="accept",
    cls=_Accept,
    selects=lambda each: each.only != "render",
    short_help="Test new nodes rung by rung, and answer: accepted or not.",
)
@click.option(
    "--compare",
    "compared",
    nargs=2,
    metavar="OLD NEW",
    help="Start nothing: print what changed between two certificates, as after maintenance.",
)
@options.store
@click.pass_context
def command(ctx: click.Context, /, compared: tuple[str, str] | None, store: Path, form: str, **_: Any) -> None:
    """Test nodes rung by rung, and answer: accepted, rejected or incomplete.

    Checks, each node alone, each NIC, pairs of nodes, all nodes together. Machines are held once. A node that
    a rung finds bad is left out of later rungs; a rung that fails stops only what depends on it. Between nodes
    the fabric must be proven. Figures are judged by published ones, or by --thresholds.

    The exit status is 0 if all nodes are accepted, 1 if something is bad, and 4 if something was not tested or
    is not certain. The certificate is stored: --resume ID, --resume last, --compare OLD NEW.

    Example: fabbench accept --on ssh --host node[01-08] -o certificate.html

    Example: fabbench accept --level full --profile inference --thresholds limits.yaml

    Example: fabbench accept --compare 20261101T080000Z-a1b2c3 last
    """
    from fabbench.report.certificate import EXITS, render_certificate, render_changes
    from fabbench.report.sweep_report import cordon_command
    from fabbench.runs.acceptance import accept, open_certificate, write_thresholds

    if compared:
        old, new = (open_certificate(each, store) for each in compared)
        terminal.write_drawn(terminal.drawn(render_changes, old, new, form))
        return
    how = AcceptOptions(**values_of(ctx, declared(AcceptOptions)))
    if how.resume is not None:
        _resume(ctx, open_certificate(how.resume, store), store)
        return
    if how.write_thresholds:
        require_writable(how.write_thresholds, "--write-thresholds")
    request, watched = _request(ctx, how, store), _watched()
    with interruptible():
        certificate = accept(request, watched)
    if how.write_thresholds:
        write_thresholds(how.write_thresholds, certificate)
    if program := ctx.params["print_cordon"]:
        text = "".join(f"{cordon_command(program, *each)}\n" for each in certificate.bad_nodes.items())
    else:
        text = terminal.drawn(render_certificate, certificate, form)
    terminal.write_drawn(text)
    terminal.notify(f"Certificate: {certificate.id}")
    ctx.exit(EXITS[certificate.verdict])


def _resume(ctx: click.Context, certificate: "Certificate", store: Path) -> None:
    """Go on with a ladder: the same command line, on the same target."""
    if certificate.ended is not None:
        raise RequestError(f"{certificate.id} has ended: {certificate.verdict}.", hint="Run the command again.")
    words = rerun_words(certificate.command[2:], (), target=certificate.target, store=store)
    ctx.meta[_RESUMED] = certificate
    with command.make_context("accept", words, parent=ctx.parent) as inner:
        command.invoke(inner)


def _request(ctx: click.Context, how: AcceptOptions, store: Path) -> "AcceptRequest":
    from fabbench.runs.acceptance import AcceptRequest, read_thresholds

    target, reason = chosen_target(ctx)
    if how.soak is not None and how.level != "soak":
        raise RequestError("--soak has no effect without --level soak.", hint="Add it, or leave --soak out.")
    limits = {"limits": read_thresholds(how.thresholds)} if how.thresholds else {}
    return AcceptRequest(
        target=target,
        target_reason=reason,
        level=how.level,
        profile=how.profile,
        fabrics=how.fabrics,
        **limits,
        tolerance=ctx.params["tolerance"],
        confidence=ctx.params["confidence"],
        max_time=how.max_time,
        soak=(how.soak or 3600.0) if how.level == "soak" else None,
        background=how.background,
        env=target.env,
        store=store,
        command=command_line(ctx),
        resume=ctx.meta.get(_RESUMED),
    )


def _watched() -> "Watched":
    from fabbench.cli.live import watching
    from fabbench.cli.sweep_command import suspects
    from fabbench.cli.sweep_live import watching_sweep
    from fabbench.runs.acceptance import Watched

    run = {} if terminal.is_quiet() else {"watching": watching}
    return Watched(
        notify=terminal.notify, run=run, sweep=partial(watching_sweep, suspects), examine=terminal.hosts_progress
    )
