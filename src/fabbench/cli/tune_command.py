"""``fabbench tune``: what is certainly better than the default, or that nothing is."""

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

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
from fabbench.model.compat import override
from fabbench.model.errors import Exit, RequestError
from fabbench.model.fabrics import AB
from fabbench.model.options import AUTO, Text, declared, option

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fabbench.runs.store import StoredRun
    from fabbench.runs.tune import Tune


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
        name = self.benchmark.name
        return (
            f"Find settings with which {name} is certainly faster than by default.\n\nOther "
            f"options are those of fabbench run {name}.\n\n"
            f"Example: fabbench tune {name} --on prod --arms arms.toml -o nccl.conf"
        )

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
        from fabbench.config.given import Given, value_of, without
        from fabbench.plan.arms import arms_of
        from fabbench.runs.tune import TUNED, tune, with_arms

        name = self.benchmark.name
        usual = name if name in {"osu", "pingpong"} else "basic"
        arms = arms_of(value_of(line.given, "arms", usual), name)
        of_run = {**without(line.given, declared(TuneOptions)), "repeats": Given(AUTO)}
        request = self.request(line._replace(given=of_run))
        if len(request.fabrics) > 1 or AB in request.fabrics:
            raise RequestError("tune takes one fabric.", hint="Tune each by itself.")
        if value_of(line.given, "dry_run"):
            show_plan(with_arms(request, arms), None)
            return Exit.FINE
        resumed = cast("StoredRun | None", line.resumed)
        if resumed and TUNED in resumed.variants:  # a confirmation, which is not a tune's first run
            arms = (resumed.variants[TUNED],)
        more: Any = {
            "adaptive": request.adaptive,
            "notify": terminal.notify,
            "watching": partial(watching, metric=request.metric),
        }
        with interruptible():
            first = tune(request, arms, resume=resumed, **more)
            runs = [first]
            best = "" if first.status else first.tuning.best_of_all()
            for won in (arm for arm in arms if arm.name == best != TUNED):
                terminal.notify(f"{best} won. Confirmation, in fresh executions:")
                tuned = replace(won, name=TUNED)
                again = replace(request, name="confirms-" + first.result.id)
                runs.append(tune(again, [tuned], **more))
        return _print_result(runs, value_of(line.given, "form"))


def _print_result(runs: "Sequence[Tune]", form: str) -> Exit:
    """Print what was found, and settings that won; return, or raise, how it ended."""
    from fabbench.model.units import format_change, format_sizes
    from fabbench.report.templates import template
    from fabbench.runs.tune import TUNED

    last = runs[-1]
    result = last.result
    won = not last.status and last.tuning.best_of_all() == TUNED
    variant, *_ = last.request.target.variants
    shown: dict[str, Any] = {"sizes": format_sizes, "change": format_change, "runs": runs}
    shown |= {"won": won, "last": last, "form": form, "variant": variant}
    text = template("tune.txt").render(shown)
    for each in text.splitlines():
        terminal.write_line(each, err=form != "text")
    if won and form != "text":
        terminal.write_drawn(template("tune_file.txt").render(shown))
    terminal.notify(f"Run: {result.path}")
    if result.interrupted:
        terminal.notify(f"Interrupted. To go on: fabbench run --resume {result.path}")
    unwritten = Exit.FINE if won or form == "text" else Exit.BAD_ANSWER
    return status_or_raise(result, last.status or unwritten)


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
