"""``fabbench tune``: what is certainly better than the default, or that nothing is."""

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import click

from fabbench.cli import terminal
from fabbench.cli.click_options import CommandLine, click_options
from fabbench.cli.options import result_options
from fabbench.cli.run_command import (
    RunCommand,
    RunGroup,
    interruptible,
    show_plan,
    status_or_raise,
)
from fabbench.launchers import Allocation
from fabbench.model.compat import override
from fabbench.model.errors import Exit, RequestError
from fabbench.model.fabrics import AB
from fabbench.model.mappings import without
from fabbench.model.options import AUTO, Text, declared, option

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fabbench.model.plan import Variant
    from fabbench.runs.run import HowToRun

_USUAL = {"osu": "osu", "pingpong": "pingpong"}  # Benchmark → its set of variants
_IN_CSV = {"NCCL_ALGO", "NCCL_PROTO"}


@dataclass(init=False, repr=False, eq=False)  # It is only declared
class TuneOptions:
    """Options that only tunes have."""

    arms: str | None = option(
        Text("a set of variants or a file", "NAME|FILE.toml"),
        "Variants to try: basic, full, efa, ib (NCCL), osu, osu-bcast, osu-alltoall (Open MPI), "
        "pingpong, or a TOML file. Default: basic; osu and pingpong have their own.",
    )


class TuneCommand(RunCommand):
    """A command of ``fabbench tune``."""

    shared = (
        *("on", "fabrics", "env", "max_repeats", "max_time", "dry_run", "keep_going", "name"),
        *("metric", "store"),
    )

    @override
    def about(self) -> str:
        return "Find settings that are certainly better than the default, or say that none is."

    @override
    def all_but_work_parameters(self) -> list[click.Parameter]:
        return [
            *click_options(declared(TuneOptions).values()),
            *self.run_and_launcher_parameters(),
            *result_options("settings", "What is written: the result, or settings that won."),
        ]

    @override
    def start(self, line: CommandLine) -> Exit:
        from fabbench.cli.live import watching
        from fabbench.config.given import Given, value_of
        from fabbench.plan.arms import arms_of
        from fabbench.report.templates import template
        from fabbench.runs.tune import Tune, on_held_machines, tunes, with_arms
        from fabbench.runs.tuner_csv import rows, work_of_choices

        name = self.benchmark.name
        form = value_of(line.given, "form")
        usual = _USUAL.get(name, "basic")
        of_run = {**without(line.given, declared(TuneOptions)), "repeats": Given(AUTO)}
        request = self.request(line._replace(given=of_run))
        if len(request.fabrics) > 1 or AB in request.fabrics:
            raise RequestError("tune takes one fabric. Tune each by itself.")
        arms = arms_of(value_of(line.given, "arms", usual), name, *request.fabrics)
        if form == "csv":
            _require_csv_can_hold(name, arms)
        settings_only = form != "text"  # a file has settings alone
        if value_of(line.given, "dry_run"):
            show_plan(with_arms(request, arms), None, err=settings_only)
            return Exit.FINE
        watch = partial(watching, metric=request.metric)

        def measure(held: Allocation) -> tuple[Tune, list[str]]:
            """Say what each run shows when it has ended; return the last, and the rows of a CSV."""
            how: HowToRun = {"notify": terminal.notify, "watching": watch, "held": held}
            for made in tunes(request, arms, line.resumed, by_size=form == "csv", **how):
                said = template("tune.txt").render(made=made)
                for each in said.splitlines():
                    terminal.write_line(each, err=settings_only)
            return made, rows(made, **how)

        later = work_of_choices(request.work) if form == "csv" else None
        with interruptible():
            made, of_csv = on_held_machines(
                with_arms(request, arms), line.resumed, measure, later=later
            )
        if settings_only and made.winners:
            text = template("tune_file.txt").render(made=made, form=form, rows=of_csv)
            terminal.write_drawn(text)
        unwritten = Exit(settings_only and not made.winners)
        return status_or_raise(made.result, made.status or unwritten)


def _require_csv_can_hold(name: str, arms: "Sequence[Variant]") -> None:
    settings = {variable for arm in arms for variable in arm.env}
    if name != "nccl" or settings - _IN_CSV:
        raise RequestError("A tuner CSV takes nccl, and NCCL_ALGO and NCCL_PROTO only.")


@click.group("tune", cls=RunGroup, makes=TuneCommand, no_args_is_help=True)
def tune_() -> None:
    """Find settings that are certainly better than the default, or say that none is.

    Every variant is measured against the default, interleaved and repeated. Those that are slower,
    fail, or did not run what they claim are dropped on the way. The chance that any is called
    better and is not is at most 5 % over all variants, sizes and repeats.
    What won is then measured once more, against the default, in fresh executions: only that
    confirms it. Often nothing beats the default.

    The exit status is 0 if the answer is certain, also if nothing won; with --format or -o for
    settings, 1 if there are none to write.

    Example: fabbench tune nccl --on prod --arms basic -b 1M -e 1G -o nccl.conf
    """
